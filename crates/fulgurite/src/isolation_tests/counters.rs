//! Many threads on one key.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::support::*;
use crate::{Error, Isolation};

const THREADS: u64 = 4;
const INCREMENTS: u64 = 100;

fn number(value: Option<crate::Value>) -> u64 {
    value.map_or(0, |value| text(value).parse().unwrap())
}

#[test]
fn inserts_race_and_one_wins() {
    let (db, table) = one_table();
    gather_at(&db, "validated", THREADS as usize);
    let table = &table;
    let insert = |n: u64| move || table.insert(b"k", n.to_string().as_bytes());
    let outcomes = at_once((0..THREADS).map(insert));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(Error::KeyExists { .. }))));
    let winner = outcomes.iter().position(|outcome| outcome.is_ok()).unwrap();
    assert_eq!(table.get(b"k").unwrap().unwrap(), winner.to_string().as_bytes());
}

#[test]
fn swaps_add_up() {
    let (_db, table) = one_table();
    let increment = || {
        for _ in 0..INCREMENTS {
            loop {
                let old = table.get(b"k").unwrap().map(|value| value.to_vec());
                let new =
                    (old.as_ref().map_or(0, |old| String::from_utf8_lossy(old).parse::<u64>().unwrap()) + 1)
                        .to_string();
                match table.compare_and_swap(b"k", old.as_deref(), Some(new.as_bytes())) {
                    Ok(true) => break,
                    Ok(false) | Err(Error::TooManyConflicts { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    at_once((0..THREADS).map(|_| increment));
    assert_eq!(number(table.get(b"k").unwrap()), THREADS * INCREMENTS);
}

#[test]
fn transactions_add_up() {
    for level in LEVELS {
        let (db, table) = one_table();
        let increment = || {
            for _ in 0..INCREMENTS {
                loop {
                    let outcome = db.transact_with(level, |txn| {
                        let old = number(txn.get(&table, b"k")?);
                        txn.put(&table, b"k", (old + 1).to_string().as_bytes())
                    });
                    match outcome {
                        Ok(_) => break,
                        Err(Error::TooManyConflicts { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        };
        at_once((0..THREADS).map(|_| increment));
        assert_eq!(number(table.get(b"k").unwrap()), THREADS * INCREMENTS);
    }
}

/// As above with tickets: no thread waits for the disk, so that commits overlap with flushes that others lead.
#[test]
fn deferred_transactions_add_up() {
    let (db, table) = one_table();
    let increment = || {
        let mut done = 0;
        while done < INCREMENTS {
            let mut txn = db.begin_with(Isolation::Snapshot);
            let old = number(txn.get(&table, b"k").unwrap());
            txn.put(&table, b"k", (old + 1).to_string().as_bytes()).unwrap();
            match txn.commit_deferred() {
                Ok(ticket) if done % 16 == 0 => drop(ticket.wait().unwrap()),
                Ok(_) => {}
                Err(Error::Conflict { .. }) => continue,
                Err(error) => panic!("{error}"),
            }
            done += 1;
        }
    };
    at_once((0..THREADS).map(|_| increment));
    let reader = db.begin();
    assert_eq!(number(reader.get(&table, b"k").unwrap()), THREADS * INCREMENTS);
}

/// INV-TXN-13: a transaction that lost retries at or above the winning commit, although large commits that are being
/// applied delay `visible`.
#[test]
fn a_loser_does_not_lose_to_the_same_commit_again() {
    let (db, table) = one_table();
    let other = db.table("other").unwrap();
    let enough = AtomicBool::new(false);
    let (conflicts, in_vain) = (AtomicU64::new(0), AtomicU64::new(0));
    let writer = || {
        while !enough.load(Ordering::Relaxed) {
            let mut txn = db.begin();
            (0..500u32).for_each(|n| txn.put(&other, n.to_be_bytes(), b"v").unwrap());
            drop(txn.commit_deferred().unwrap());
        }
    };
    let increment = || {
        let mut rounds = 0;
        while conflicts.load(Ordering::Relaxed) < 300 && rounds < 10_000 {
            rounds += 1;
            let mut txn = db.begin();
            let old = number(txn.get(&table, b"k").unwrap());
            txn.put(&table, b"k", (old + 1).to_string()).unwrap();
            match txn.commit_deferred() {
                Ok(ticket) => drop(ticket),
                Err(Error::Conflict(lost)) => {
                    conflicts.fetch_add(1, Ordering::Relaxed);
                    let begins_below = db.begin().snapshot_csn() < lost.csn;
                    in_vain.fetch_add(u64::from(begins_below), Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
        enough.store(true, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(writer), scope.spawn(writer)];
        at_once((0..THREADS).map(|_| increment));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(
        in_vain.into_inner(),
        0,
        "of {} would have lost to the same commit again",
        conflicts.into_inner()
    );
}
