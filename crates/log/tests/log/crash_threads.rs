//! Threads that commit at every level, crashed in the middle: acknowledged commits survive, and the survivors are a
//! prefix.

use crate::support::*;
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::{
    CommitLog, Durability, FlushScheme, Log, LogError, LogOptions, ReplayFrom, Waiting, frame_bytes,
};
use fulgurite_types::Csn;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const THREADS: u64 = 4;
const COMMITS: u64 = 12;

#[derive(Default)]
struct Promises {
    bodies: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// The newest commit that was acknowledged with a flush of the device, and the newest that was acknowledged at all.
    flushed: AtomicU64,
    acknowledged: AtomicU64,
}

fn level(rng: &mut Rng) -> Durability {
    match rng.below(8) {
        0 => Durability::None,
        1 => Durability::Async { interval: Duration::from_micros(rng.below(5)) },
        2..=4 => Durability::NoBarrier,
        _ => Durability::Sync,
    }
}

/// One thread's commits, until the machine stops.
fn committer(log: &Log, promises: &Promises, mut rng: Rng) -> Result<(), LogError> {
    for _ in 0..COMMITS {
        let level = level(&mut rng);
        let body = vec![rng.next() as u8; 1 + rng.below(1500) as usize];
        let admission = log.admit(frame_bytes(body.len() as u32), 0)?;
        let reservation = log.reserve(admission, level);
        let csn = reservation.csn();
        promises.bodies.lock().expect("no panic").insert(csn.0, body.clone());
        fill(log, reservation, &body, &[]);
        match level {
            Durability::Async { interval } => log.request_durable_within(csn, interval),
            level if level.waits() => {
                log.wait_durable(csn)?;
                promises.acknowledged.fetch_max(csn.0, Ordering::SeqCst);
            }
            _ => {}
        }
        if level == Durability::Sync {
            promises.flushed.fetch_max(csn.0, Ordering::SeqCst);
        }
        if rng.below(4) == 0 {
            log.maintain()?;
        }
    }
    Ok(())
}

/// Runs the threads on a machine that stops in its `n`-th operation from now on.
fn run(env: &Arc<SimEnv>, options: LogOptions, n: u64) -> Arc<Promises> {
    let log = Log::create(Arc::clone(env) as Arc<dyn Env>, dir(), ID, options).expect("nothing fails yet");
    env.faults().crash_at(env.faults().op_count() + n);
    let promises = Arc::new(Promises::default());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (machine, log, promises) = (Arc::clone(env), Arc::clone(&log), Arc::clone(&promises));
            let work = move || {
                if let Err(error) = committer(&log, &promises, Rng::new(n * THREADS + thread)) {
                    assert!(machine.faults().has_crashed(), "only the crash fails: {error}");
                }
            };
            env.spawn("committer", Box::new(work)).expect("a thread")
        })
        .collect();
    for thread in threads {
        assert!(thread.join(), "no thread panicked");
    }
    promises
}

/// Opens the log after a crash, which `what` names, and checks every promise. Where the device `lied`, commits after
/// `promised` may be missing although later groups testify to them.
fn check(env: &Arc<SimEnv>, promises: &Promises, promised: u64, lied: bool, what: &str) {
    let (log, report, found) = match open(env, &ReplayFrom::beginning()) {
        Ok(opened) => opened,
        Err(LogError::Damaged(damage)) if lied => {
            let (first, _) = damage.csns.expect("a group testifies to commits");
            assert!(first.0 > promised, "{what}: {promised} was acknowledged, {first} is lost");
            return;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    assert!(
        report.last_csn.0 >= promised,
        "{what}: {promised} was acknowledged, {} is there",
        report.last_csn
    );
    let bodies = promises.bodies.lock().expect("no panic");
    assert_eq!(found.0.len() as u64, report.last_csn.0, "{what}");
    for ((csn, body, ..), expected) in found.0.iter().zip(1..) {
        assert_eq!(*csn, Csn(expected), "{what}: a prefix");
        assert_eq!(Some(body), bodies.get(&csn.0), "{what}: commit {csn} is what was committed");
    }
    commit(&log, b"it goes on").unwrap_or_else(|error| panic!("{what}: {error}"));
}

fn crashes(scheme: FlushScheme, direct: bool, power_safe_cache: bool) {
    for n in 1..70 {
        let env = SimEnv::new(n);
        let is_true = power_safe_cache && n % 3 > 0;
        env.faults().fua(n % 2 == 0);
        env.faults().power_safe_cache(is_true);
        let waiting = if n % 2 == 0 { Waiting::Block } else { Waiting::SpinThenBlock };
        let background = n % 5 == 0;
        let options = LogOptions { scheme, direct, power_safe_cache, waiting, background, ..options() };
        let promises = run(&env, options, n);
        let (flushed, acknowledged) =
            (promises.flushed.load(Ordering::SeqCst), promises.acknowledged.load(Ordering::SeqCst));
        for seed in 0..4 {
            for kind in [CrashKind::Kill, CrashKind::OsCrash, CrashKind::PowerCut] {
                // A cache that is not power-safe, although asserted to be, guarantees only flushed commits.
                let lied = kind == CrashKind::PowerCut && power_safe_cache && !is_true;
                let promised = if lied { flushed } else { acknowledged };
                let what = format!("{scheme:?}, direct {direct}, operation {n}, {kind:?} {seed}");
                check(&env.crash(kind, seed), &promises, promised, lied, &what);
            }
        }
    }
}

#[test]
fn threads_that_combine_around_the_page_cache() {
    crashes(FlushScheme::Combined, true, false);
}

#[test]
fn threads_that_combine_without_barriers() {
    crashes(FlushScheme::Combined, true, true);
}

#[test]
fn threads_that_combine_through_the_page_cache() {
    crashes(FlushScheme::Combined, false, false);
}

#[test]
fn threads_that_aggregate() {
    crashes(FlushScheme::Aggregated, false, false);
}

#[test]
fn threads_that_sync_for_themselves() {
    crashes(FlushScheme::OwnLsn, false, false);
}
