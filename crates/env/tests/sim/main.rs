//! Effects that the simulated disk may have, and must not have, each shown over many seeds.

mod crash_points;
mod direct;
mod failed_syncs;
mod mapped;
mod model;
mod name_model;
mod names;
mod power;
mod raw;
mod space;
mod time;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_env::{Env, File, OpenOptions};

const SECTOR: usize = 512;
const SEEDS: u64 = 1_000;

fn root() -> &'static Path {
    Path::new("/")
}

fn log() -> &'static Path {
    Path::new("/log")
}

/// A machine with a durable file `/log` of `sectors` sectors filled with `byte`.
fn with_log(sectors: usize, byte: u8) -> (Arc<SimEnv>, Arc<dyn File>) {
    let sim = SimEnv::new(1);
    let file = sim.disk().open(log(), OpenOptions::CreateNew).expect("create");
    file.write_at(&vec![byte; sectors * SECTOR], 0).expect("write");
    file.sync_data().expect("sync");
    sim.disk().sync_dir(root()).expect("sync_dir");
    (sim, file)
}

/// The first byte of each sector of `/log`, after a check that no sector is torn.
fn stamps(sim: &SimEnv) -> Vec<u8> {
    let bytes = sim.read_raw(log()).expect("the file is there");
    let stamp = |sector: &[u8]| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a torn sector");
        sector[0]
    };
    bytes.chunks(SECTOR).map(stamp).collect()
}

/// The states of `/log` after a crash, over many seeds.
fn outcomes(sim: &SimEnv, kind: CrashKind) -> BTreeSet<Vec<u8>> {
    (0..SEEDS).map(|seed| stamps(&sim.crash(kind, seed))).collect()
}
