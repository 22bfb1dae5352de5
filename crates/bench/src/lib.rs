//! Benchmarks of transactional key-value stores.

mod bare;
mod compare;
mod counting_env;
pub mod engine;
mod error;
mod fulgurite_engine;
mod head;
mod html;
mod io;
pub mod lane;
mod machine;
mod markdown;
mod metrics;
mod number;
mod plot;
mod report;
mod report_file;
#[cfg(test)]
mod report_tests;
mod run;
mod scratch;
mod table;
mod terminal;
pub mod workload;

pub use crate::compare::{Change, ComparedRow, Comparison, Verdict, compare};
pub use crate::engine::Engine;
pub use crate::error::{Error, Result};
pub use crate::fulgurite_engine::FulguriteEngine;
pub use crate::html::{Section, html};
pub use crate::io::IoCounts;
pub use crate::machine::Machine;
pub use crate::markdown::markdown;
pub use crate::metrics::{METRICS, Metric, Summary};
pub use crate::plot::{Kind, PlotSpec, X, plot};
pub use crate::report::{End, FORMAT, Report, Row};
pub use crate::report_file::ReadError;
pub use crate::run::{KindRun, Latency, Run, Sample};
pub use crate::table::TableSpec;
pub use crate::terminal::text_table;
pub use crate::workload::Workload;
