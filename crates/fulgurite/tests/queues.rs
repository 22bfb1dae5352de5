//! Tables as queues: entries are appended at one end and taken at the other, by one worker or by many.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::rng::Rng;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Durability, Error, Isolation, Options, Table, Value};

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn open(env: &std::sync::Arc<SimEnv>) -> (Database, Table) {
    let db = common::open(env.clone()).unwrap();
    let table = db.table("jobs").unwrap();
    (db, table)
}

fn commit_asynchronously(db: &Database, work: impl FnOnce(&mut fulgurite::Transaction)) {
    let mut txn = db.begin();
    txn.set_durability(Durability::None).unwrap();
    work(&mut txn);
    txn.commit().unwrap();
}

/// Commits that enqueue or delete the jobs of a range of numbers, one each.
fn each(db: &Database, jobs: std::ops::Range<u64>, work: impl Fn(&mut fulgurite::Transaction, [u8; 8])) {
    jobs.for_each(|n| commit_asynchronously(db, |txn| work(txn, key(n))));
}

/// The shortest of several times to read the entry at an end of the table: other load on the machine does not count.
#[expect(clippy::disallowed_methods, reason = "a time is what this is about")]
fn time_to_look(table: &Table, from_the_end: bool) -> Duration {
    let look = |_| {
        let before = Instant::now();
        let mut range = table.range(..).unwrap();
        let entry = if from_the_end { range.next_back() } else { range.next() };
        let time = before.elapsed();
        entry.transpose().unwrap();
        time
    };
    (0..50).map(look).min().unwrap()
}

/// The longest time for such a read: a scan that steps over thousands of deleted keys takes hundreds of microseconds.
const LOOK_MAX: Duration = Duration::from_micros(60);

const JOBS: u64 = 20_000;

/// At 20,000 jobs each took a millisecond: every read of the head stepped over all jobs that were taken before.
#[test]
fn the_head_of_a_queue_costs_the_same_however_much_was_taken() {
    let env = SimEnv::new(1);
    let (db, table) = open(&env);
    each(&db, 0..JOBS, |txn, key| txn.put(&table, key, [7; 20]).unwrap());
    let snapshot = db.snapshot();
    for taken in (0..JOBS).step_by(1000) {
        each(&db, taken..taken + 1000, |txn, key| txn.delete(&table, key).unwrap());
        let time = time_to_look(&table, false);
        assert!(time < LOOK_MAX, "{time:?} after {taken}, with {} left", JOBS - taken - 1000);
    }
    assert_eq!(snapshot.range(&table, ..).unwrap().count() as u64, JOBS, "a snapshot sees the same jobs");
    assert_eq!(table.range(..).unwrap().count(), 0);
    each(&db, JOBS..JOBS + 1, |txn, key| txn.put(&table, key, [7; 20]).unwrap());
    assert_eq!(*table.range(..).unwrap().next().unwrap().unwrap().0, key(JOBS), "a drained queue continues");
    each(&db, 5..6, |txn, key| txn.put(&table, key, [7; 20]).unwrap());
    assert_eq!(
        *table.range(..).unwrap().next().unwrap().unwrap().0,
        key(5),
        "a job may come back to its place"
    );
    drop(snapshot);
    // The first read steps over the replayed deletes, once.
    db.table("jobs").unwrap().put(key(u64::MAX), "durable").unwrap();
    let (_db, table) = open(&env.crash(CrashKind::Kill, 1));
    let _ = table.range(..).unwrap().next();
    assert!(time_to_look(&table, false) < LOOK_MAX);
}

/// The other end, as for a stack.
#[test]
fn the_top_of_a_stack_costs_the_same_however_much_was_taken() {
    let (db, table) = open(&SimEnv::new(2));
    each(&db, 0..JOBS, |txn, key| txn.put(&table, key, [7; 20]).unwrap());
    for taken in (0..JOBS).step_by(1000) {
        each(&db, JOBS - taken - 1000..JOBS - taken, |txn, key| txn.delete(&table, key).unwrap());
        let time = time_to_look(&table, true);
        assert!(time < LOOK_MAX, "{time:?} after {taken}");
    }
}

type Pop = fn(&mut fulgurite::Transaction, &Table) -> fulgurite::Result<Option<(Value, Value)>>;

/// A batch in one transaction stepped over all that the batch had taken before, for each of its jobs.
#[test]
#[expect(clippy::disallowed_methods, reason = "a time is what this is about")]
fn a_job_costs_the_same_however_many_its_transaction_took_before() {
    let options = Options { transaction_bytes_max: 64 << 20, ..common::options() };
    let db = common::open_as(SimEnv::new(8), options).unwrap();
    let table = db.table("jobs").unwrap();
    commit_asynchronously(&db, |txn| (0..JOBS).for_each(|n| txn.put(&table, key(n), [7; 20]).unwrap()));
    let (mut beside, mut txn) = (db.begin(), db.begin());
    assert_eq!(*beside.pop_first_unclaimed(&table, ..).unwrap().unwrap().0, key(0));
    let pops: [Pop; 3] = [
        |txn, table| txn.pop_first_unclaimed(table, ..),
        |txn, table| txn.pop_first(table, key(1)..),
        |txn, table| txn.pop_last(table, ..),
    ];
    let (mut first, mut last) = (1, JOBS - 1);
    for pop in pops.into_iter().cycle().take(9) {
        let mut shortest = Duration::MAX;
        for _ in 0..JOBS / 10 {
            let before = Instant::now();
            let (job, _) = pop(&mut txn, &table).unwrap().unwrap();
            shortest = shortest.min(before.elapsed());
            if *job == key(first) {
                first += 1;
            } else {
                assert_eq!(*job, key(last));
                last -= 1;
            }
        }
        assert!(shortest < 2 * LOOK_MAX, "{shortest:?} when {} are left", last + 1 - first);
    }
}

fn plain(entry: Option<(Value, Value)>) -> Option<(Vec<u8>, Vec<u8>)> {
    entry.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

/// Pops at both ends, in transactions with other writes, compared with a map.
#[test]
fn pops_take_what_a_map_would_give() {
    let (db, table) = open(&SimEnv::new(3));
    let mut rng = Rng::new(3);
    let mut committed: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for _ in 0..300 {
        let mut txn = db.begin();
        let mut map = committed.clone();
        let mut saved = (txn.savepoint(), map.clone());
        for _ in 0..rng.below(16) {
            let key = key(rng.below(30)).to_vec();
            match rng.below(13) {
                0 => assert_eq!(plain(txn.pop_first(&table, ..).unwrap()), map.pop_first()),
                1 => assert_eq!(plain(txn.pop_last(&table, ..).unwrap()), map.pop_last()),
                2 => assert_eq!(plain(txn.pop_first_unclaimed(&table, ..).unwrap()), map.pop_first()),
                3 => assert_eq!(plain(txn.pop_last_unclaimed(&table, ..).unwrap()), map.pop_last()),
                4 => {
                    let inside = map.range(key.clone()..).next().map(|(key, _)| key.clone());
                    let expected = inside.and_then(|key| map.remove_entry(&key));
                    assert_eq!(plain(txn.pop_first(&table, &key..).unwrap()), expected);
                }
                5 => {
                    txn.delete(&table, &key).unwrap();
                    map.remove(&key);
                }
                6 => {
                    let inside = map.range(..key.clone()).next_back().map(|(key, _)| key.clone());
                    let expected = inside.and_then(|key| map.remove_entry(&key));
                    assert_eq!(plain(txn.pop_last_unclaimed(&table, ..&key).unwrap()), expected);
                }
                7 => {
                    txn.delete_range(&table, &key..).unwrap();
                    map.split_off(&key);
                }
                8 => saved = (txn.savepoint(), map.clone()),
                9 => {
                    txn.rollback_to(saved.0).unwrap();
                    map.clone_from(&saved.1);
                }
                _ => {
                    let value = rng.bytes(10);
                    txn.put(&table, &key, &value).unwrap();
                    map.insert(key, value);
                }
            }
            let owned = |entry: Option<(&Vec<u8>, &Vec<u8>)>| entry.map(|(k, v)| (k.clone(), v.clone()));
            assert_eq!(plain(txn.first(&table, ..).unwrap()), owned(map.first_key_value()));
            assert_eq!(plain(txn.last(&table, ..).unwrap()), owned(map.last_key_value()));
        }
        if rng.below(4) > 0 {
            txn.commit().unwrap();
            committed = map;
        }
    }
}

#[test]
fn of_two_that_pop_the_first_one_conflicts() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (db, table) = open(&SimEnv::new(4));
        for n in 0..3 {
            table.put(key(n), "job").unwrap();
        }
        let (mut one, mut other) = (db.begin_with(isolation), db.begin_with(isolation));
        assert_eq!(*one.pop_first(&table, ..).unwrap().unwrap().0, key(0));
        assert_eq!(*other.pop_first(&table, ..).unwrap().unwrap().0, key(0));
        one.commit().unwrap();
        assert!(matches!(other.commit(), Err(Error::Conflict { .. })));
        assert_eq!(*table.first(..).unwrap().unwrap().0, key(1));
    }
}

/// A scan of the whole table for its head would conflict with every append.
#[test]
fn a_serializable_pop_conflicts_with_what_comes_before_it_and_not_with_what_is_appended() {
    let (db, table) = open(&SimEnv::new(5));
    for n in 10..20 {
        table.put(key(n), "job").unwrap();
    }
    let popping = || {
        let mut txn = db.begin_with(Isolation::Serializable);
        txn.pop_first(&table, ..).unwrap().unwrap();
        txn.pop_first(&table, ..).unwrap().unwrap();
        txn.pop_last(&table, ..).unwrap().unwrap();
        txn
    };
    let txn = popping();
    table.put(key(15), "in the middle").unwrap();
    txn.commit().unwrap();
    for urgent in [5, 30] {
        let txn = popping();
        table.put(key(urgent), "a new end").unwrap();
        assert!(matches!(txn.commit(), Err(Error::Conflict { .. })));
    }
}

/// Each pop from another end than the one before added a range to the transaction's read set, which soon used up its
/// budget.
#[test]
fn a_transaction_takes_from_both_ends_of_two_queues_in_turn_at_the_cost_of_one() {
    let options = Options { transaction_bytes_max: 1 << 20, ..common::options() };
    let db = common::open_as(SimEnv::new(8), options).unwrap();
    let queues = [db.table("a").unwrap(), db.table("b").unwrap()];
    for queue in &queues {
        commit_asynchronously(&db, |txn| (0..2500).for_each(|n| txn.put(queue, key(n), "job").unwrap()));
    }
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let mut txn = db.begin_with(isolation);
        for n in 0..1250 {
            for queue in &queues {
                assert_eq!(*txn.pop_first(queue, ..).unwrap().unwrap().0, key(n));
                assert_eq!(*txn.pop_last(queue, ..).unwrap().unwrap().0, key(2499 - n));
            }
        }
        assert!(queues.iter().all(|queue| txn.first(queue, ..).unwrap().is_none()));
        txn.rollback();
    }
    // It has read the same as before: both ends, and nothing between.
    for (n, conflicts) in [(0, true), (300, false), (2499, true)] {
        let mut txn = db.begin_with(Isolation::Serializable);
        for _ in 0..100 {
            queues.iter().for_each(|queue| _ = txn.pop_first(queue, ..).unwrap().unwrap());
            queues.iter().for_each(|queue| _ = txn.pop_last(queue, ..).unwrap().unwrap());
        }
        queues[0].put(key(n), "changed").unwrap();
        assert_eq!(matches!(txn.commit(), Err(Error::Conflict { .. })), conflicts, "{n}");
    }
}

#[test]
fn a_claim_ends_with_its_transaction_or_its_savepoint() {
    let (db, table) = open(&SimEnv::new(6));
    for n in 0..4 {
        table.put(key(n), "job").unwrap();
    }
    let popped = |txn: &mut fulgurite::Transaction| -> Option<u64> {
        let entry = txn.pop_first_unclaimed(&table, ..).unwrap();
        entry.map(|(key, _)| u64::from_be_bytes(key.as_ref().try_into().unwrap()))
    };
    let (mut one, mut other) = (db.begin(), db.begin());
    assert_eq!(popped(&mut one), Some(0));
    let savepoint = one.savepoint();
    assert_eq!((popped(&mut one), popped(&mut other)), (Some(1), Some(2)));
    one.rollback_to(savepoint).unwrap();
    assert_eq!((popped(&mut other), popped(&mut one), popped(&mut one)), (Some(1), Some(3), None));
    let mut third = db.begin();
    assert_eq!(popped(&mut third), None, "everything is claimed");
    drop(one);
    assert_eq!((popped(&mut third), popped(&mut third)), (Some(0), Some(3)));
    other.commit().unwrap();
    third.rollback();
    // A transaction that still sees a popped key passes over it.
    let mut late = db.begin();
    assert_eq!(*table.pop_first(..).unwrap().unwrap().0, key(0));
    assert_eq!((popped(&mut late), popped(&mut late)), (Some(3), None));
    late.commit().unwrap();
    assert!(table.first(..).unwrap().is_none());
}

/// On one head all workers but one conflicted.
#[test]
fn many_workers_at_one_queue_get_each_job_once_and_never_conflict() {
    const WORKERS: u64 = 8;
    const EACH: u64 = 250;
    let (db, table) = open(&SimEnv::new(7));
    let taken = (0..WORKERS * EACH).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (db, table, taken) = (&db, &table, &taken);
            scope.spawn(move || {
                let mut rng = Rng::new(worker);
                for n in 0..EACH {
                    commit_asynchronously(db, |txn| {
                        txn.put(table, key(n * WORKERS + worker), "job").unwrap()
                    });
                }
                while taken.iter().any(|taken| taken.load(Ordering::Relaxed) == 0) {
                    let mut txn = db.begin();
                    txn.set_durability(Durability::None).unwrap();
                    let Some((job, _)) = txn.pop_first_unclaimed(table, ..).unwrap() else {
                        std::thread::yield_now();
                        continue;
                    };
                    if rng.below(10) == 0 {
                        txn.rollback();
                        continue;
                    }
                    txn.commit().expect("no other worker has this job");
                    let job = u64::from_be_bytes(job.as_ref().try_into().unwrap());
                    assert_eq!(
                        taken[job as usize].fetch_add(1, Ordering::Relaxed),
                        0,
                        "job {job} came twice"
                    );
                }
            });
        }
    });
    assert!(taken.iter().all(|taken| taken.load(Ordering::Relaxed) == 1));
    assert!(table.first(..).unwrap().is_none());
}
