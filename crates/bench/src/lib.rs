//! Benchmarks of committing: the workloads of Son, Yeom and Han, *Design and implementation of an efficient flushing
//! scheme for cloud key-value storage* (2017), what is measured while they run, and reports of it.
//!
//! A [`Plan`] says what to run; [`Plan::run`] runs it and gives a [`Report`], which [`json`] and [`draw`] turn into files.
//! Workloads ask of an engine what [`engine`] says; [`FulguriteEngine`] is one.
//!
//! ```
//! use fulgurite_bench::{FulguriteEngine, Limit, Plan, Progress, Watch, workload};
//!
//! struct Quiet;
//! impl Watch for Quiet {
//!     fn go_on(&mut self) -> bool {
//!         true
//!     }
//!     fn show(&mut self, _: &Progress) {}
//! }
//!
//! # fn main() -> fulgurite_bench::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let plan = Plan {
//!     workload: Box::new(workload::Insert::new(workload::Insert::SIZES)),
//!     engines: vec![Box::new(FulguriteEngine { options: Default::default() })],
//!     baseline: 0,
//!     threads: vec![1, 2],
//!     limit: Limit::Transactions(100),
//!     warm_up: 0,
//!     tickets: 0,
//!     rounds: 1,
//!     dir: dir.path().to_path_buf(),
//! };
//! let report = plan.run(&(fulgurite::env::RealEnv::new() as _), &mut Quiet)?;
//! assert_eq!(report.series.len(), 2);
//! assert_eq!(report.series[1].runs[0].rows, [200]);
//! # Ok(())
//! # }
//! ```

mod bare;
pub mod engine;
mod error;
mod forecast;
mod fulgurite_engine;
mod json;
mod machine;
mod metrics;
mod plan;
mod plot;
mod report;
mod run;
mod scratch;
mod worker;
pub mod workload;

pub use crate::engine::Engine;
pub use crate::error::{Error, Result};
pub use crate::fulgurite_engine::FulguriteEngine;
pub use crate::json::json;
pub use crate::machine::Machine;
pub use crate::metrics::{METRICS, Metric, Summary};
pub use crate::plan::{Limit, Plan, Progress, Watch};
pub use crate::plot::draw;
pub use crate::report::{End, Report, Series};
pub use crate::run::{Latency, Run};
pub use crate::workload::Workload;
