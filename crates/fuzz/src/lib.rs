//! The fuzz targets: every decoder of what is on disk, a whole database directory, and the parsers of the Redis protocol.
//! `cargo fuzz` runs them from `fuzz/` on nightly Rust, `tests/smoke.rs` runs them on stable Rust, from the same seeds.
//!
//! A decoder of what is on disk sees its input twice: as it is, and with its checksums made right, because a random change seldom passes a
//! checksum. It must return an error or a value that is encoded to the same bytes, and never panic.

mod directory;
mod seeds;

pub use crate::directory::{Outcome, open_changed};

use fulgurite::fuzzing::{self, index, log};
use fulgurite_resp::fuzzing as resp;

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, that of its file in `fuzz/fuzz_targets` too.
    pub name: &'static str,
    /// Runs it; panics if it finds something.
    pub run: fn(&[u8]),
    /// Valid inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({})", self.name)
    }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "log_segment", run: log_segment, seeds: seeds::segments },
    Target { name: "log_group", run: log_group, seeds: seeds::groups },
    Target { name: "log_frames", run: log_frames, seeds: seeds::payloads },
    Target { name: "log_epoch_start", run: log::epoch_start, seeds: seeds::epoch_starts },
    Target { name: "log_bulk_record", run: log::bulk, seeds: seeds::bulk_records },
    Target { name: "node", run: index::node, seeds: seeds::nodes },
    Target {
        name: "leaf_with_delta_record",
        run: index::leaf_with_delta_record,
        seeds: seeds::leaves_with_deltas,
    },
    Target { name: "out_of_line_value", run: index::out_of_line, seeds: seeds::out_of_line_values },
    Target { name: "operations", run: fuzzing::operations, seeds: fuzzing::operation_seeds },
    Target { name: "checkpoint_record", run: fuzzing::checkpoint_record, seeds: seeds::checkpoint_records },
    Target { name: "superblock", run: superblock, seeds: seeds::superblocks },
    Target { name: "catalog_row", run: fuzzing::catalog, seeds: fuzzing::catalog_seeds },
    Target { name: "directory", run: directory::run, seeds: directory::seeds },
    Target { name: "resp_request", run: resp::request, seeds: resp::request_seeds },
    Target { name: "resp_reply", run: resp::reply, seeds: resp::reply_seeds },
];

/// The target of this name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("there is no target {name}"))
}

fn log_segment(bytes: &[u8]) {
    log::segment(bytes);
    let mut sealed = bytes.to_vec();
    log::seal_segment(&mut sealed);
    log::segment(&sealed);
}

fn log_group(bytes: &[u8]) {
    log::group(bytes);
    let mut sealed = bytes.to_vec();
    log::seal_group(&mut sealed);
    log::group(&sealed);
}

fn log_frames(bytes: &[u8]) {
    log::frames(bytes);
    let mut sealed = bytes.to_vec();
    log::seal_frames(&mut sealed);
    log::frames(&sealed);
}

fn superblock(bytes: &[u8]) {
    fuzzing::superblock(bytes);
    let mut sealed = bytes.to_vec();
    fuzzing::seal_superblock(&mut sealed);
    fuzzing::superblock(&sealed);
}
