//! Benchmarks of transactional, ordered key-value stores: the workloads of the papers that Fulgurite is based on, and
//! of its users, run on any store through one family of traits.
//!
//! A [`Plan`] names the engines and workloads to compare; [`Plan::run`] runs it, each run in a process of its own, and
//! returns a [`Report`]. Workloads use a store through the traits of [`engine`]; [`FulguriteEngine`] implements them,
//! and a [`Registry`] finds the engines of a program by name.
//!
//! ```
//! use fulgurite_bench::engine::Level;
//! use fulgurite_bench::workload::{Micro, MicroMix};
//! use fulgurite_bench::{Configuration, DataPoint, Limit, Load, Plan, Process, Registry, Spec};
//!
//! # fn main() -> fulgurite_bench::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let plan = Plan {
//!     name: "insert".into(),
//!     title: "Single inserts".into(),
//!     configurations: vec![Configuration { label: "fulgurite".into(), engine: "fulgurite".into(), level: Level::Sync }],
//!     baseline: "fulgurite".into(),
//!     data_points: vec![DataPoint {
//!         name: String::new(),
//!         workload: Spec::Micro(Micro { sizes: Micro::SIZES, rows: 1, mix: MicroMix::Insert }),
//!         load: Load::closed(2, Limit::Operations(100)),
//!         cache_bytes: 64 << 20,
//!     }],
//!     rounds: 1,
//!     assume_power_safe_cache: false,
//!     notes: Vec::new(),
//!     dir: dir.path().to_path_buf(),
//! };
//! let env = fulgurite::env::RealEnv::new() as _;
//! let report = plan.run(&env, &Registry::default(), &Process::Here, &mut |_| true)?;
//! assert_eq!(report.rows[0].runs[0].operations, 200);
//! # Ok(())
//! # }
//! ```

mod bare;
mod beside;
mod child;
pub mod command;
mod compare;
mod counting_env;
pub mod engine;
mod error;
mod figures;
mod files;
mod forecast;
mod fulgurite_engine;
mod head;
mod html;
mod io;
mod latencies;
mod machine;
mod markdown;
mod measurement;
mod metrics;
mod number;
mod pace;
mod plan;
mod plot;
mod registry;
mod report;
mod report_file;
#[cfg(test)]
mod report_tests;
pub mod retrying_session;
mod run;
mod seconds;
mod seconds_table;
mod server_engine;
mod server_process;
mod spec;
mod table;
mod terminal;
#[cfg(test)]
mod testing;
mod timeline;
mod worker;
pub mod workload;

pub use crate::child::{Job, Process, serve, with_causes};
pub use crate::compare::{Change, ComparedRow, Comparison, Verdict, compare};
pub use crate::engine::Engine;
pub use crate::error::{Error, Result};
pub use crate::fulgurite_engine::FulguriteEngine;
pub use crate::io::{IoCounters, IoCounts};
pub use crate::machine::Machine;
pub use crate::markdown::markdown;
pub use crate::measurement::{Limit, Load, Stage, Watcher};
pub use crate::metrics::{METRICS, Metric, Summary};
pub use crate::pace::{Pacing, Rate};
pub use crate::plan::{Configuration, DataPoint, Plan, Progress, Watch};
pub use crate::registry::{FULGURITE_OPTIONS, Registry};
pub use crate::report::{End, FORMAT, Report, Row};
pub use crate::run::{KindRun, Latency, Run, Sample, Second, Timeline, Watched};
pub use crate::spec::Spec;
pub use crate::table::TableSpec;
pub use crate::terminal::text_table;
pub use crate::workload::Workload;
