//! Shared code of the tests on the simulated disk.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod extremes;
pub mod images;
pub mod model;
pub mod oracle;
pub mod rng;
pub mod session;
pub mod tap;
pub mod transactions;
pub mod verify;
pub mod workload;

use std::sync::Arc;

use fulgurite::env::{Env, OpenOptions};
use fulgurite::{Database, Options, ResearchOptions, Result, StagingOptions};

/// The directory of the simulated database.
pub const PATH: &str = "/db";

/// Small leaves and memtables, no background threads: a run is a function of its seed.
pub fn options() -> Options {
    Options {
        leaf_bytes: 512,
        inline_bytes_max: 200,
        memtable_bytes_max: Some(64 << 10),
        checkpoint_log_bytes: 1 << 20,
        log_buffer_bytes: 1 << 20,
        transaction_bytes_max: 2 << 20,
        background: false,
        ..Options::default()
    }
}

/// The same with no memory for nodes: all of them are evicted, dirty leaves are written, between any two steps.
pub fn evicting() -> Options {
    let research = ResearchOptions { evict_everything: true, ..ResearchOptions::default() };
    Options { research, ..options() }
}

/// The same with commits staged in persistent memory, in buffers that are as short as may be.
pub fn staged() -> Options {
    let medium = fulgurite::env::MemoryMedium::Persistent;
    let staging = StagingOptions { buffer_bytes: 97 * 4096, ..StagingOptions::new(STAGING, medium) };
    Options { staging: Some(staging), ..options() }
}

/// Where [`staged`] stages.
pub const STAGING: &str = "/staging";

/// Opens the database of an environment, with its staging file if there is one.
pub fn open(env: Arc<dyn Env>) -> Result<Database> {
    let has_staging = env.disk().open_mapped(STAGING.as_ref(), OpenOptions::Read).is_ok();
    Database::open_with(env, PATH, if has_staging { staged() } else { options() }, |_| {})
}

/// Opens the database of an environment with given options.
pub fn open_as(env: Arc<dyn Env>, options: Options) -> Result<Database> {
    Database::open_with(env, PATH, options, |_| {})
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}
