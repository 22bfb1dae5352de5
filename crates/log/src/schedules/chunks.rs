//! Chunks in the bulk stream, and frames that name them (INV-LOG-16).

use crate::CommitLog;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_types::{Csn, crc32c};
use shuttle::thread;

use super::explore;
use super::world::{ID, World, below, dir, one_of, options};
use crate::{
    ChunkRef, Durability, Log, LogError, RecoveredFrame, RecoverySink, ReplayFrom, frame_bytes,
    local_record_bytes,
};

/// Writes a chunk ahead and fills a frame that names it. With `syncs` the committer syncs the chunk itself.
fn commit(world: &World, syncs: bool) -> Result<Csn, LogError> {
    let log = &world.log;
    let (spill, bytes) = (log.new_spill(), vec![7; 1 + below(2000)]);
    let (lsn, mark) = log.append_chunk(spill, 0, &bytes, None, |_| ())?;
    if syncs {
        log.sync_bulk_to(mark)?;
    }
    let local = [ChunkRef { spill, ordinal: 0, lsn, len: bytes.len() as u32 }];
    let body = [9; 10];
    let admission = log.admit(frame_bytes(body.len() as u32), local_record_bytes(1))?;
    if !syncs {
        log.require_bulk(mark);
    }
    let reservation = log.reserve(admission, Durability::Sync);
    let csn = reservation.csn();
    let header = reservation.header(1, crc32c(&body));
    log.fill(reservation, &header, &body, &local);
    Ok(csn)
}

#[derive(Default)]
struct Found(Vec<ChunkRef>, Csn);

impl RecoverySink for Found {
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.extend_from_slice(&frame.local);
        self.1 = frame.header.csn;
        Ok(())
    }
}

/// Asserts that after a crash each surviving frame has its chunks, and that acknowledged commits survive.
fn assert_whole(sim: &Arc<SimEnv>, log: &Log, acknowledged: Csn) {
    let kind = one_of(&[CrashKind::PowerCut, CrashKind::OsCrash, CrashKind::Kill]);
    let image = sim.crash(kind, below(1 << 30) as u64);
    let mut found = Found::default();
    let (image, path): (Arc<dyn Env>, &Path) = (image, dir());
    let opened = Log::open(image, path, ID, log.options().clone(), &ReplayFrom::beginning(), &mut found);
    let (opened, _) = opened.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    assert!(found.1 >= acknowledged, "{kind:?}: {acknowledged} was acknowledged, {} is there", found.1);
    for reference in &found.0 {
        let chunk = opened.read_chunk(reference);
        chunk.unwrap_or_else(|error| {
            panic!("INV-LOG-16: {kind:?}: a frame is there, its chunk is not: {error}")
        });
    }
}

fn frames_with_chunks() {
    let world = World::new(options());
    world.watch.bulk.store(true, Relaxed);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut acknowledged = Csn::ZERO;
                for _ in 0..2 {
                    let csn = match below(4) {
                        0 => world.append(1 + below(100), Durability::None),
                        1 => commit(&world, true),
                        _ => commit(&world, false),
                    };
                    let csn = csn.expect("nothing fails");
                    if below(2) == 0 {
                        world.log.wait_durable(csn).expect("nothing fails");
                        acknowledged = csn;
                    }
                }
                acknowledged
            })
        })
        .collect();
    for _ in 0..below(60) {
        thread::yield_now();
    }
    let durable = world.log.durable_csn();
    assert_whole(&world.sim, &world.log, durable);
    let acknowledged = threads.into_iter().map(|thread| thread.join().expect("no panic")).max();
    assert_whole(&world.sim, &world.log, acknowledged.expect("three threads"));
    world.log.close().expect("nothing fails");
    assert_whole(&world.sim, &world.log, Csn(6));
}

#[test]
fn a_frame_that_a_crash_leaves_has_its_chunks() {
    explore(6_000, frames_with_chunks);
}
