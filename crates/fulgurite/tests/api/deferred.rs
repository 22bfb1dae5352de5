//! Deferred commits: their work on the caller's thread, and how many flushes a value takes.

use crate::common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{ThreadId, current};
use std::time::Duration;

use fulgurite::env::SimEnv;
use fulgurite::env::sim::CrashKind;
use fulgurite::{Database, Error, Options, limits};

use crate::common::tap::{Op, Tap};

/// The syncs and synchronous writes of each thread, of segment files and of others.
#[derive(Default)]
struct Flushes(Mutex<Vec<ThreadId>>);

impl Flushes {
    fn note(&self, op: &Op<'_>) {
        if matches!(op, Op::Sync { .. } | Op::SyncDir { .. } | Op::Write { dsync: true, .. }) {
            self.0.lock().unwrap().push(current().id());
        }
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Those of this thread.
    fn own(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|thread| **thread == current().id()).count()
    }
}

fn tapped(options: Options) -> (Database, Arc<Flushes>, Arc<SimEnv>) {
    let (sim, flushes) = (SimEnv::new(1), Arc::new(Flushes::default()));
    let noted = flushes.clone();
    let tap = Tap::new(&sim, Box::new(move |_, op| noted.note(&op)));
    (common::open_as(tap, options).unwrap(), flushes, sim)
}

#[test]
fn the_deferred_commit_of_a_large_value_syncs_nothing_on_its_caller() {
    let (db, flushes, sim) = tapped(Options::default());
    let table = db.table("t").unwrap();
    let lens = [200, 64 << 10, 200 << 10, 700 << 10, 3 << 20];
    for (n, len) in lens.into_iter().enumerate() {
        let mut txn = db.begin();
        txn.put(&table, &[n as u8], &vec![n as u8; len]).unwrap();
        let before = flushes.own();
        let ticket = txn.commit_deferred().unwrap();
        assert_eq!(flushes.own(), before, "a value of {len} bytes: the caller synced");
        let read = db.begin().get(&table, &[n as u8]).unwrap().unwrap();
        assert_eq!(read.len(), len, "seen at once");
        ticket.wait().unwrap();
    }
    // The tickets are right.
    let image = sim.crash(fulgurite::env::sim::CrashKind::PowerCut, 1);
    let survivor = common::open_as(image, Options::default()).unwrap();
    let there = survivor.open_table("t").unwrap();
    for (n, len) in lens.into_iter().enumerate() {
        assert_eq!(there.get(&[n as u8]).unwrap().unwrap(), vec![n as u8; len]);
    }
}

/// INV-LOG-17: commits that come after a deferred one in the log wait for the sync of its values.
#[test]
fn a_deferred_commit_of_long_values_leaves_little_to_sync_to_those_that_commit_after_it() {
    const MIB: usize = 1 << 20;
    // The bytes of each bulk segment that are not synced, and the largest sum of them.
    let unsynced = Arc::new(Mutex::new((BTreeMap::<PathBuf, usize>::new(), 0)));
    let noted = unsynced.clone();
    let observer = move |_: &Arc<SimEnv>, op: Op<'_>| {
        let (bytes, most) = &mut *noted.lock().unwrap();
        match op {
            Op::Write { path, data, dsync: false, direct: false, .. }
                if path.extension() == Some("seg".as_ref()) =>
            {
                *bytes.entry(path.to_path_buf()).or_default() += data.len();
            }
            Op::Sync { path } => _ = bytes.remove(path),
            _ => {}
        }
        *most = bytes.values().sum::<usize>().max(*most);
    };
    let db = common::open_as(Tap::new(&SimEnv::new(1), Box::new(observer)), Options::default()).unwrap();
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    for n in 0..8u8 {
        txn.put(&table, [n], vec![n; 3 * MIB]).unwrap();
    }
    let ticket = txn.commit_deferred().unwrap();
    table.put(b"small", b"1").unwrap();
    ticket.wait().unwrap();
    // The commit writes an operation list ahead.
    let mut txn = db.begin();
    for n in 0..24_000u32 {
        txn.put(&table, n.to_be_bytes(), [7; 1000]).unwrap();
    }
    let ticket = txn.commit_deferred().unwrap();
    table.put(b"small", b"2").unwrap();
    ticket.wait().unwrap();
    let most = unsynced.lock().unwrap().1;
    assert!(most > MIB, "nothing was written ahead");
    assert!(most <= 5 * MIB, "{most} bytes were left to sync");
}

/// Without background threads, and with a waiting committer: the fewest flushes that a put of a value takes.
#[test]
fn a_value_takes_one_flush_up_to_the_length_that_is_written_ahead() {
    let (db, flushes, _sim) = tapped(Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    let fewest = |len: usize| {
        let puts = (0..8u8).map(|n| {
            let before = flushes.count();
            table.put(&[n], &vec![n; len]).unwrap();
            let taken = flushes.count() - before;
            while db.maintain().unwrap() {}
            taken
        });
        puts.min().unwrap()
    };
    for (len, expected) in [
        (200, 1),
        (64 << 10, 1),
        (limits::SPILL_BYTES_MIN - 1, 1),
        (limits::SPILL_BYTES_MIN, 2),
        (300 << 10, 2),
    ] {
        assert_eq!(fewest(len), expected, "{len} bytes");
    }
}

/// The pins have a lock of their own, which is not held while chunks are written.
#[test]
fn a_transaction_is_given_up_at_once_while_another_writes_a_large_value_ahead() {
    let (sim, is_armed) = (SimEnv::new(1), Arc::new(AtomicBool::new(false)));
    let ((reached, is_reached), (continues, may_continue)) = (channel(), channel::<()>());
    let (armed, gates) = (is_armed.clone(), Mutex::new((reached, may_continue)));
    let observer = move |_: &Arc<SimEnv>, op: Op<'_>| {
        let is_bulk = matches!(op, Op::Write { path, data, dsync: false, direct: false, .. }
            if data.len() >= 128 << 10 && path.extension().is_some_and(|extension| extension == "seg"));
        if is_bulk && armed.swap(false, Ordering::SeqCst) {
            let (reached, may_continue) = &*gates.lock().unwrap();
            reached.send(()).unwrap();
            may_continue.recv().unwrap();
        }
    };
    let db = common::open_as(Tap::new(&sim, Box::new(observer)), Options::default()).unwrap();
    let table = db.table("t").unwrap();
    let mut given_up = db.begin();
    given_up.put(&table, b"a", &vec![1; 200 << 10]).unwrap();
    std::thread::scope(|scope| {
        is_armed.store(true, Ordering::SeqCst);
        let writer = scope.spawn(|| table.put(b"b", &vec![2; 4 << 20]));
        is_reached.recv_timeout(Duration::from_secs(20)).unwrap();
        let (gave_up, is_given_up) = channel();
        scope.spawn(move || {
            given_up.rollback();
            gave_up.send(()).unwrap();
        });
        let at_once = is_given_up.recv_timeout(Duration::from_secs(20));
        continues.send(()).unwrap();
        writer.join().unwrap().unwrap();
        at_once.expect("a rollback does not wait for another's write");
    });
}

#[test]
fn a_deferred_transaction_is_run_again_until_it_does_not_conflict() {
    let (db, _, _sim) = tapped(Options::default());
    let counters = db.table("counters").unwrap();
    let attempts = AtomicU64::new(0);
    let (seen, ticket) = db
        .transact_deferred(|txn| {
            let before = txn.get(&counters, b"hits")?.map(|value| value.to_vec());
            if attempts.fetch_add(1, Ordering::Relaxed) < 2 {
                counters.put(b"hits", b"another's")?;
            }
            txn.put(&counters, b"hits", b"mine")?;
            Ok(before)
        })
        .unwrap();
    assert_eq!((attempts.into_inner(), seen.as_deref()), (3, Some(b"another's".as_slice())));
    assert_eq!(db.begin().get(&counters, b"hits").unwrap().unwrap(), b"mine", "seen at once");
    ticket.wait().unwrap();
    let mine = || Error::UnknownTable { name: "mine".into() };
    let failed = db.transact_deferred(|txn| {
        txn.put(&counters, b"hits", b"never")?;
        Err::<(), _>(mine())
    });
    assert!(matches!(failed, Err(Error::UnknownTable { .. })));
    assert_eq!(counters.get(b"hits").unwrap().unwrap(), b"mine", "an error of the body rolls back");
    let options = Options { conflict_retries_max: 1, ..Options::default() };
    let (db, _, _sim) = tapped(options);
    let counters = db.table("counters").unwrap();
    let outcome = db.transact_deferred(|txn| {
        txn.get(&counters, b"hits")?;
        counters.put(b"hits", b"another's")?;
        txn.put(&counters, b"hits", b"mine")
    });
    assert!(matches!(outcome, Err(Error::TooManyConflicts { attempts: 2, .. })), "{:?}", outcome.map(|_| ()));
}

#[test]
fn deferred_transactions_of_many_threads_lose_no_update() {
    let (db, _, _sim) = tapped(Options::default());
    let counters = db.table("counters").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut tickets = Vec::new();
                for _ in 0..50 {
                    let increment = db.transact_deferred(|txn| {
                        let before = txn.get(&counters, b"hits")?;
                        let before =
                            before.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()));
                        txn.put(&counters, b"hits", &(before + 1).to_le_bytes())
                    });
                    tickets.push(increment.unwrap().1);
                }
                tickets.iter().for_each(|ticket| _ = ticket.wait().unwrap());
            });
        }
    });
    assert_eq!(counters.get(b"hits").unwrap().unwrap(), 200u64.to_le_bytes());
}

#[test]
fn tables_come_and_go_without_a_wait() {
    let (db, flushes, sim) = tapped(Options::default());
    let before = flushes.own();
    let (one, created) = db.create_table_deferred("one").unwrap();
    assert!(matches!(db.create_table_deferred("one"), Err(Error::TableExists { .. })));
    let mut txn = db.begin();
    txn.put(&one, "k", "v").unwrap();
    let put = txn.commit_deferred().unwrap();
    let renamed = db.rename_table_deferred("one", "two").unwrap().unwrap();
    assert!(db.rename_table_deferred("two", "two").unwrap().is_none());
    let (_, again) = db.create_table_deferred("one").unwrap();
    assert!(matches!(db.rename_table_deferred("two", "one"), Err(Error::TableExists { .. })));
    let dropped = db.drop_table_deferred("one").unwrap();
    assert!(matches!(db.drop_table_deferred("one"), Err(Error::UnknownTable { .. })));
    assert_eq!(flushes.own(), before, "the caller synced");
    let tickets = [created, put, renamed, again, dropped];
    assert!(tickets.is_sorted_by_key(|ticket| ticket.csn()));
    tickets.into_iter().for_each(|ticket| _ = ticket.wait().unwrap());
    let db = common::open_as(sim.crash(CrashKind::PowerCut, 3), Options::default()).unwrap();
    let tables: Vec<_> = db.tables().unwrap().iter().map(|table| table.name().to_string()).collect();
    assert_eq!(tables, ["two"]);
    assert_eq!(db.open_table("two").unwrap().get("k").unwrap().unwrap(), "v");
}
