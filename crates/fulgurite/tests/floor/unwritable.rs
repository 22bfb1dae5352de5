//! Evictions that cannot write: on the simulated disk, whose contents count among the allocations, so that only `stats()` tells.

use std::sync::Arc;
use std::time::Duration;

use fulgurite::env::{Clock, Disk, Env, Joiner, RealEnv, SimEnv};
use fulgurite::{Database, Error, Table};

use super::process::{FLOOR, Random, Scenario, eventually, is_full, is_sound, options, scattered, value};
use crate::common;

const ROWS: u64 = 60_000;
const ROW_BYTES: usize = 400;

/// The simulated disk in real time: simulated time advances with each thread's naps, and ends the others' waits for memory early.
#[derive(Debug)]
struct SimDiskInRealTime {
    sim: Arc<SimEnv>,
    real: Arc<RealEnv>,
}

impl Env for SimDiskInRealTime {
    fn disk(&self) -> &dyn Disk {
        self.sim.disk()
    }

    fn clock(&self) -> &dyn Clock {
        self.real.clock()
    }

    fn random_u64(&self) -> u64 {
        self.sim.random_u64()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn Joiner>> {
        self.sim.spawn(name, body)
    }
}

fn open(sim: &Arc<SimEnv>) -> Database {
    let env = SimDiskInRealTime { sim: sim.clone(), real: RealEnv::new() };
    common::open_as(Arc::new(env), options()).unwrap()
}

/// Does `work` on another thread, which must not hang.
fn within_a_minute(what: &str, work: impl FnOnce() + Send + 'static) {
    let (done, outcome) = std::sync::mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "what hangs must not hang the test")]
    let worker = std::thread::spawn(move || {
        work();
        _ = done.send(());
    });
    match outcome.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        _ => worker.join().unwrap(),
    }
}

fn load(sim: &Arc<SimEnv>) -> (Database, Table) {
    let db = open(sim);
    let table = db.table("rows").unwrap();
    for batch in 0..ROWS / 100 {
        put_batch(&db, &table, batch * 100..batch * 100 + 100, 0).unwrap();
    }
    db.checkpoint().unwrap();
    (db, table)
}

fn put_batch(
    db: &Database,
    table: &Table,
    numbers: std::ops::Range<u64>,
    round: u64,
) -> fulgurite::Result<()> {
    db.transact(|txn| {
        numbers.clone().try_for_each(|n| txn.put(table, scattered(n), value(n, round, ROW_BYTES)))
    })
}

/// Puts rows from `first` on until one is refused; returns how many.
fn fill(db: &Database, table: &Table, first: u64) -> (u64, Error) {
    for put in (0..10 * ROWS).step_by(100) {
        if let Err(error) = put_batch(db, table, first + put..first + put + 100, 1) {
            return (put, error);
        }
    }
    panic!("no put was refused, {:?}", db.stats());
}

/// Reads at random and in order: all nodes that are clean come and go.
fn all_are_right(db: &Database, table: &Table, rows: u64, new_below: u64) {
    // On a busy machine what was being written when the disk became full ends a moment later.
    let is_bounded = || db.stats().memory.total_bytes() < FLOOR as u64 * 5 / 4;
    assert!(eventually(is_bounded), "{:?}", db.stats().memory);
    let before = db.stats().memory;
    let mut random = Random(8);
    for nth in 0..ROWS / 4 {
        let n = random.below(ROWS);
        let round = u64::from(n < new_below);
        assert_eq!(table.get(scattered(n)).unwrap().unwrap(), value(n, round, ROW_BYTES), "row {n}");
        if nth % 1_000 == 0 {
            let memory = db.stats().memory;
            assert!(memory.total_bytes() < FLOOR as u64 * 3 / 2, "{memory:?}");
        }
    }
    assert_eq!(table.range(..).unwrap().map(Result::unwrap).count() as u64, rows);
    let after = db.stats().memory;
    println!(
        "{} nodes were evicted, {} bytes in use",
        after.evicted_nodes - before.evicted_nodes,
        after.total_bytes()
    );
    assert!(after.evicted_nodes - before.evicted_nodes > 1_000, "{before:?}, {after:?}");
}

/// The first failure, of a commit or of an eviction, has the log refuse all writes; whatever is clean comes and goes.
#[test]
fn all_writes_fail() {
    let _scenario = Scenario::begin();
    let sim = SimEnv::new(1);
    let (db, table) = load(&sim);
    within_a_minute("a database whose writes fail", move || {
        sim.faults().fail_all_writes(true);
        let (put, error) = fill(&db, &table, 0);
        println!("after {put} rows: {error}");
        assert!(matches!(error, Error::Poisoned { .. } | Error::OutcomeUnknown { .. }), "{error:?}");
        for _ in 0..100 {
            assert!(matches!(table.put("key", "value"), Err(Error::Poisoned { .. })));
        }
        all_are_right(&db, &table, ROWS.max(put), put);
        drop(table);
        println!("closed: {:?}", db.close().map_err(|error| error.to_string()));
    });
}

/// Puts are refused until there is room; nothing is lost.
#[test]
fn an_eviction_has_no_room() {
    let _scenario = Scenario::begin();
    let sim = SimEnv::new(2);
    let (db, table) = load(&sim);
    within_a_minute("a database without room", move || {
        let used: u64 = sim.list_raw().iter().map(|(_, bytes)| bytes).sum();
        sim.faults().space_bytes(Some(used));
        let (put, error) = fill(&db, &table, ROWS);
        println!("after {put} rows: {error}");
        assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
        assert!(db.stats().poisoned.is_none(), "{:?}", db.stats().poisoned);
        all_are_right(&db, &table, ROWS + put, 0);
        sim.faults().space_bytes(None);
        for batch in 0..ROWS / 100 {
            put_batch(&db, &table, batch * 100..batch * 100 + 100, 1).unwrap();
        }
        all_are_right(&db, &table, ROWS + put, ROWS);
        drop(table);
        db.close().unwrap();
    });
}

/// Leaves that become dirty can be written only by checkpoints then: merges and garbage collection wait for them. With 60 MiB left
/// 63 MiB were counted, and with 10, where almost all puts are refused, 206 at 500,000 rows.
#[test]
fn little_room_is_left() {
    const ROWS: u64 = 150_000;
    let _scenario = Scenario::begin();
    for &left_mib in if is_full() { &[4, 20, 60][..] } else { &[4, 60] } {
        let sim = SimEnv::new(2);
        let db = open(&sim);
        let table = db.table("rows").unwrap();
        for batch in 0..ROWS / 100 {
            put_batch(&db, &table, batch * 100..batch * 100 + 100, 0).unwrap();
        }
        db.collect(1.3, |_| {}).unwrap();
        let used: u64 = sim.list_raw().iter().map(|(_, bytes)| bytes).sum();
        sim.faults().space_bytes(Some(used + (left_mib << 20)));
        let mut random = Random(8);
        let mut rounds = vec![0; ROWS as usize];
        let mut refused = 0;
        let mut most = db.stats().memory;
        for round in 1..=300 {
            let numbers: Vec<u64> = (0..100).map(|_| random.below(ROWS)).collect();
            let put = db.transact(|txn| {
                numbers.iter().try_for_each(|&n| txn.put(&table, scattered(n), value(n, round, ROW_BYTES)))
            });
            match put {
                Ok(_) => numbers.iter().for_each(|&n| rounds[n as usize] = round),
                Err(Error::NoSpace { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            let memory = db.stats().memory;
            if memory.total_bytes() > most.total_bytes() {
                most = memory;
            }
            if refused == 30 {
                break;
            }
        }
        println!("{left_mib} MiB left: {} bytes counted at most, {refused} refused", most.total_bytes());
        assert!(most.total_bytes() < FLOOR as u64 * 3 / 2, "{most:?}");
        sim.faults().space_bytes(None);
        for (n, &round) in (0..).zip(&rounds) {
            assert!(table.get(scattered(n)).unwrap().unwrap() == value(n, round, ROW_BYTES), "row {n}");
        }
        is_sound(&db);
        db.close().unwrap();
    }
}
