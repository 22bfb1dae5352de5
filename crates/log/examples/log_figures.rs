//! Measures the log alone, in the directory given (default: a temporary one):
//! `cargo run --release -p fulgurite-log --example log_figures [DIR]`

use fulgurite_env::{Env, RealEnv};
use fulgurite_log::{CommitLog, Log, LogOptions, RecoveredFrame, RecoverySink, ReplayFrom, frame_bytes};
use fulgurite_types::{Csn, DatabaseId, crc32c};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ID: DatabaseId = DatabaseId(1);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn append(log: &Log, body: &[u8], body_crc: u32) -> Outcome<Csn> {
    let admission = log.admit(frame_bytes(body.len() as u32), 0)?;
    let reservation = log.reserve(admission, fulgurite_log::Durability::Sync);
    let csn = reservation.csn();
    let header = reservation.header(0, body_crc);
    log.fill(reservation, &header, body, &[]);
    Ok(csn)
}

fn create(env: &Arc<dyn Env>, dir: &Path, buffer_bytes: usize) -> Outcome<Arc<Log>> {
    Ok(Log::create(Arc::clone(env), dir, ID, LogOptions { buffer_bytes, ..LogOptions::default() })?)
}

/// The cost of a commit up to its flush.
fn overhead(env: &Arc<dyn Env>, dir: &Path) -> Outcome<()> {
    let log = create(env, dir, 64 << 20)?;
    let body = [7; 100];
    let crc = crc32c(&body);
    let (rounds, batch) = (50, 10_000);
    let mut best = u64::MAX;
    for _ in 0..rounds {
        while log.stats().ready_segments < 2 {
            log.maintain()?;
        }
        let start = env.clock().monotonic_ns();
        let mut last = Csn::ZERO;
        for _ in 0..batch {
            last = append(&log, &body, crc)?;
        }
        best = best.min(env.clock().monotonic_ns() - start);
        log.wait_durable(last)?;
    }
    println!("admit + reserve + fill, 100 bytes, 1 thread: {} ns (best of {rounds} rounds)", best / batch);
    Ok(())
}

fn commits(env: &Arc<dyn Env>, dir: &Path, threads: u64, each: u64) -> Outcome<()> {
    let log = create(env, dir, 8 << 20)?;
    let start = env.clock().monotonic_ns();
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let log = Arc::clone(&log);
            let body = move || {
                let (body, crc) = ([7; 100], crc32c(&[7; 100]));
                for _ in 0..each {
                    let csn = append(&log, &body, crc).expect("a healthy disk");
                    log.wait_durable(csn).expect("a healthy disk");
                }
            };
            env.spawn("committer", Box::new(body))
        })
        .collect::<Result<_, _>>()?;
    running.into_iter().for_each(|thread| assert!(thread.join()));
    let ns = env.clock().monotonic_ns() - start;
    let stats = log.stats();
    println!(
        "durable commits, 100 bytes, {threads} threads: {} a second, {:.1} frames a group, {:.1} commits a sync, {} us \
         a sync",
        threads * each * 1_000_000_000 / ns,
        stats.frames_per_group(),
        stats.commits_per_sync(),
        stats.sync_ns / stats.syncs / 1000
    );
    Ok(())
}

struct Count(u64);

impl RecoverySink for Count {
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Outcome<()> {
        self.0 += frame.body.len() as u64;
        Ok(())
    }
}

/// Recovery of 256 MiB of frames.
fn replay(env: &Arc<dyn Env>, dir: &Path, body_bytes: usize) -> Outcome<()> {
    let log = create(env, dir, 8 << 20)?;
    let body = vec![7; body_bytes];
    let crc = crc32c(&body);
    for _ in 0..(256 << 20) / body_bytes {
        append(&log, &body, crc)?;
    }
    log.close()?;
    drop(log);
    let mut sink = Count(0);
    let (_, report) =
        Log::open(Arc::clone(env), dir, ID, LogOptions::default(), &ReplayFrom::beginning(), &mut sink)?;
    println!(
        "recovery of {} frames of {body_bytes} bytes: {} MB/s of segments read, {} ms",
        report.frames,
        report.read_bytes * 1000 / report.elapsed_ns,
        report.elapsed_ns / 1_000_000
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let base = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let base = base.join(format!("fulgurite-log-figures-{}", std::process::id()));
    let env: Arc<dyn Env> = RealEnv::new();
    overhead(&env, &base.join("overhead"))?;
    for (threads, each) in [(1, 2000), (2, 2000), (8, 1000), (32, 500)] {
        commits(&env, &base.join(format!("commits-{threads}")), threads, each)?;
    }
    replay(&env, &base.join("replay-100"), 100)?;
    replay(&env, &base.join("replay-4096"), 4096)?;
    println!("remove {} when done", base.display());
    Ok(())
}
