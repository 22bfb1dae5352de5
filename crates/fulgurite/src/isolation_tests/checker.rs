//! Random transactions of many threads, replayed on a model one after another, in the order of their numbers.
//!
//! Serializable: every read equals the model's at the transaction's commit. Snapshot: every read equals the model's at
//! the transaction's snapshot, and the first committer of a key that was read and written wins. Values are unique, so
//! that no read fits by chance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_env::SimEnv;

use super::support::*;
use crate::{Database, Error, Isolation, Options, Table, Transaction};

const KEYS: u64 = 16;
const THREADS: u64 = 4;
const TRANSACTIONS: u64 = 700;

type State = BTreeMap<u8, u64>;

#[derive(Clone, Debug)]
enum Step {
    Get(u8, Option<u64>),
    Scan(u8, u8, Vec<(u8, u64)>),
    Put(u8, u64),
    Delete(u8),
    DeleteRange(u8, u8),
}

#[derive(Debug)]
struct Done {
    isolation: Isolation,
    snapshot: u64,
    /// `None`: it wrote nothing.
    csn: Option<u64>,
    steps: Vec<Step>,
}

impl Step {
    fn writes(&self, key: u8) -> bool {
        match self {
            Step::Put(own, _) | Step::Delete(own) => *own == key,
            Step::DeleteRange(from, to) => (*from..*to).contains(&key),
            Step::Get(..) | Step::Scan(..) => false,
        }
    }

    fn reads(&self, key: u8) -> bool {
        match self {
            Step::Get(own, _) => *own == key,
            Step::Scan(from, to, _) => (*from..*to).contains(&key),
            _ => false,
        }
    }

    /// Executes a write on the model, or checks a read against it.
    fn replay(&self, state: &mut State) -> Result<(), String> {
        match self {
            Step::Put(key, value) => drop(state.insert(*key, *value)),
            Step::Delete(key) => drop(state.remove(key)),
            Step::DeleteRange(from, to) => state.retain(|key, _| !(*from..*to).contains(key)),
            Step::Get(key, found) => {
                let expected = state.get(key).copied();
                if *found != expected {
                    return Err(format!("key {key} was {found:?}, the model has {expected:?}"));
                }
            }
            Step::Scan(from, to, found) => {
                let expected: Vec<_> = state.range(from..to).map(|(key, value)| (*key, *value)).collect();
                if *found != expected {
                    return Err(format!("{from}..{to} was {found:?}, the model has {expected:?}"));
                }
            }
        }
        Ok(())
    }
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

fn scan(
    range: impl Iterator<Item = crate::Result<(crate::Value, crate::Value)>>,
) -> crate::Result<Vec<(u8, u64)>> {
    range.map(|entry| entry.map(|(key, value)| (key[0], number(&value)))).collect()
}

fn range(random: &mut Random) -> (u8, u8) {
    let from = random.below(KEYS) as u8;
    (from, from + 1 + random.below(6) as u8)
}

/// One random operation.
fn step(txn: &mut Transaction, table: &Table, random: &mut Random, fresh: &AtomicU64) -> crate::Result<Step> {
    let key = random.below(KEYS) as u8;
    Ok(match random.below(12) {
        0..4 => Step::Get(key, txn.get(table, &[key])?.map(|value| number(&value))),
        4 => {
            let (from, to) = range(random);
            Step::Scan(from, to, scan(txn.range(table, [from].as_slice()..&[to])?)?)
        }
        5 => {
            let (from, to) = range(random);
            let mut found = scan(txn.range(table, [from].as_slice()..&[to])?.rev())?;
            found.reverse();
            Step::Scan(from, to, found)
        }
        6 => {
            txn.delete(table, &[key])?;
            Step::Delete(key)
        }
        7 if random.below(3) == 0 => {
            let (from, to) = range(random);
            txn.delete_range(table, [from].as_slice()..&[to])?;
            Step::DeleteRange(from, to)
        }
        _ => {
            let value = fresh.fetch_add(1, Ordering::Relaxed);
            // Some values are too long for a leaf.
            let mut bytes = vec![0; if value.is_multiple_of(7) { 2000 } else { 8 }];
            bytes[..8].copy_from_slice(&value.to_le_bytes());
            txn.put(table, &[key], &bytes)?;
            Step::Put(key, value)
        }
    })
}

fn work(db: &Database, table: &Table, isolation: Isolation, seed: u64, fresh: &AtomicU64) -> Vec<Done> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut done = Vec::new();
    while (done.len() as u64) < TRANSACTIONS {
        let mut txn = db.begin_with(isolation);
        let snapshot = txn.snapshot_csn().0;
        let mut steps = Vec::new();
        for _ in 0..1 + random.below(6) {
            steps.push(step(&mut txn, table, &mut random, fresh).unwrap());
            if random.below(4) == 0 {
                std::thread::yield_now();
            }
        }
        let wrote = steps.iter().any(|step| (0..=u8::MAX).any(|key| step.writes(key)));
        let outcome = if random.below(8) == 0 {
            txn.commit().map(|commit| commit.csn)
        } else {
            txn.commit_deferred().map(|ticket| ticket.csn())
        };
        match outcome {
            Ok(csn) => done.push(Done { isolation, snapshot, csn: wrote.then_some(csn.0), steps }),
            Err(Error::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    done
}

/// Snapshots taken beside the transactions; each has to be a state of the model.
fn observe(db: &Database, table: &Table, stop: &AtomicBool) -> Vec<Done> {
    let mut done = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let snapshot = db.snapshot();
        let first = scan(snapshot.range(table, ..).unwrap()).unwrap();
        std::thread::yield_now();
        let mut second = scan(snapshot.range(table, ..).unwrap().rev()).unwrap();
        second.reverse();
        assert_eq!(first, second);
        let steps = vec![Step::Scan(0, u8::MAX, first)];
        done.push(Done { isolation: Isolation::Snapshot, snapshot: snapshot.csn().0, csn: None, steps });
    }
    done
}

/// The state after each commit.
fn states(history: &[Done]) -> Vec<State> {
    let newest =
        history.iter().map(|done| done.csn.unwrap_or(done.snapshot).max(done.snapshot)).max().unwrap();
    let by_csn: BTreeMap<u64, &Done> = history.iter().filter_map(|done| Some((done.csn?, done))).collect();
    assert_eq!(
        by_csn.len(),
        history.iter().filter(|done| done.csn.is_some()).count(),
        "a number given twice"
    );
    let mut states = vec![State::new()];
    for csn in 1..=newest {
        let mut state = states.last().unwrap().clone();
        for step in by_csn.get(&csn).iter().flat_map(|done| &done.steps) {
            if !matches!(step, Step::Get(..) | Step::Scan(..)) {
                step.replay(&mut state).unwrap();
            }
        }
        states.push(state);
    }
    states
}

/// The commits that wrote each key.
fn writers(history: &[Done]) -> BTreeMap<u8, BTreeSet<u64>> {
    let mut writers: BTreeMap<u8, BTreeSet<u64>> = BTreeMap::new();
    for (csn, done) in history.iter().filter_map(|done| Some((done.csn?, done))) {
        for key in 0..=u8::MAX {
            if done.steps.iter().any(|step| step.writes(key)) {
                writers.entry(key).or_default().insert(csn);
            }
        }
    }
    writers
}

/// Keys that were read from the database, not only from the transaction's own writes, and then written.
fn read_then_written(steps: &[Step]) -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(|&key| {
        let read = steps.iter().position(|step| step.reads(key));
        let wrote = steps.iter().position(|step| step.writes(key));
        matches!((read, wrote), (Some(read), Some(wrote)) if read < wrote)
    })
}

fn check(history: &[Done], isolation: Isolation) {
    let states = states(history);
    let writers = writers(history);
    for done in history {
        let at = match (done.isolation, done.csn) {
            (Isolation::Serializable, Some(csn)) => csn - 1,
            _ => done.snapshot,
        };
        let mut state = states[at as usize].clone();
        for step in &done.steps {
            step.replay(&mut state)
                .unwrap_or_else(|why| panic!("{isolation:?}, at {at}: {why}, in {done:?}"));
        }
        let Some(csn) = done.csn else { continue };
        for key in read_then_written(&done.steps) {
            let between = writers[&key].range(done.snapshot + 1..csn).next();
            assert_eq!(between, None, "key {key}: another was first, before {done:?}");
        }
    }
}

fn run(isolation: Isolation, checkpoints: bool) {
    let options =
        Options { memtable_bytes_max: Some(64 << 10), inline_bytes_max: 1000, ..Options::default() };
    let db = open(&SimEnv::new(1), options);
    let table = db.table("t").unwrap();
    let (fresh, stop) = (AtomicU64::new(1), AtomicBool::new(false));
    let (db, table, fresh, stop) = (&db, &table, &fresh, &stop);
    let history: Vec<Done> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (1..=THREADS).map(|seed| scope.spawn(move || work(db, table, isolation, seed, fresh))).collect();
        let observer = scope.spawn(|| observe(db, table, stop));
        let merger = scope.spawn(|| {
            while checkpoints && !stop.load(Ordering::Relaxed) {
                db.checkpoint().unwrap();
            }
        });
        let mut history: Vec<Done> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        merger.join().unwrap();
        history.extend(observer.join().unwrap());
        history
    });
    check(&history, isolation);
}

#[test]
fn serializable_transactions_replay_in_order() {
    run(Isolation::Serializable, false);
}

#[test]
fn serializable_transactions_replay_in_order_beside_checkpoints() {
    run(Isolation::Serializable, true);
}

#[test]
fn snapshot_transactions_replay_at_their_snapshots() {
    run(Isolation::Snapshot, false);
}

#[test]
fn snapshot_transactions_replay_at_their_snapshots_beside_checkpoints() {
    run(Isolation::Snapshot, true);
}

/// A canary: the checker rejects a history that is not serializable.
#[test]
#[should_panic(expected = "the model has")]
fn a_write_skew_does_not_replay() {
    let txn = |csn, read, write| Done {
        isolation: Isolation::Serializable,
        snapshot: 0,
        csn: Some(csn),
        steps: vec![Step::Get(read, None), Step::Put(write, csn)],
    };
    check(&[txn(1, 1, 2), txn(2, 2, 1)], Isolation::Serializable);
}
