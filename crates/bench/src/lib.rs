//! Benchmarks of transactional key-value stores.

mod bare;
mod counting_env;
pub mod engine;
mod error;
mod fulgurite_engine;
mod io;
pub mod lane;
mod machine;
mod metrics;
mod report;
mod run;
mod scratch;
#[cfg(test)]
mod testing;
pub mod workload;

pub use crate::engine::Engine;
pub use crate::error::{Error, Result};
pub use crate::fulgurite_engine::FulguriteEngine;
pub use crate::io::IoCounts;
pub use crate::machine::Machine;
pub use crate::metrics::{METRICS, Metric, Summary};
pub use crate::report::{End, FORMAT, Report, Row};
pub use crate::run::{KindRun, Latency, Run, Sample};
pub use crate::workload::Workload;
