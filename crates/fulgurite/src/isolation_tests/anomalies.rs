//! The named anomalies, and the isolation levels that allow them.

use super::support::*;
use crate::{Error, Isolation, Transaction};

#[test]
fn an_update_is_not_lost() {
    for level in LEVELS {
        let (db, table) = one_table();
        table.put(b"k", b"0").unwrap();
        let (mut first, mut second) = (db.begin_with(level), db.begin_with(level));
        assert_eq!(
            (first.read(&table, b"k"), second.read(&table, b"k")),
            (Some("0".into()), Some("0".into()))
        );
        first.put(&table, b"k", b"first").unwrap();
        second.put(&table, b"k", b"second").unwrap();
        first.commit().unwrap();
        assert_conflict(second.commit());
        assert_eq!(table.get(b"k").unwrap().unwrap(), b"first");
    }
}

/// An absent key counts as read, too.
#[test]
fn an_update_of_an_absent_key_is_not_lost() {
    for level in LEVELS {
        let (db, table) = one_table();
        let (mut first, mut second) = (db.begin_with(level), db.begin_with(level));
        for txn in [&mut first, &mut second] {
            assert_eq!(txn.read(&table, b"k"), None);
            txn.put(&table, b"k", b"1").unwrap();
        }
        first.commit().unwrap();
        assert_conflict(second.commit());
    }
}

/// Each reads what the other writes.
fn skew(level: Isolation) -> (usize, usize) {
    let (db, table) = one_table();
    table.put(b"x", b"on").unwrap();
    table.put(b"y", b"on").unwrap();
    gather_at(&db, "validated", 2);
    let keys: [[&[u8]; 2]; 2] = [[b"x", b"y"], [b"y", b"x"]];
    let transactions: Vec<Transaction> = keys
        .map(|[read, write]| {
            let mut txn = db.begin_with(level);
            assert_eq!(txn.read(&table, read), Some("on".into()));
            txn.put(&table, write, b"off").unwrap();
            txn
        })
        .into();
    let outcomes = at_once(transactions.into_iter().map(|txn| || txn.commit()));
    let committed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let conflicts = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Conflict { .. }))).count();
    (committed, conflicts)
}

#[test]
fn write_skew_is_for_snapshot_isolation_alone() {
    assert_eq!(skew(Isolation::Snapshot), (2, 0));
    assert_eq!(skew(Isolation::Serializable), (1, 1));
}

/// A ring of transactions, each of which reads its neighbour's key; all stop between validation and reservation.
#[test]
fn a_ring_of_reads_commits_without_a_deadlock_and_without_a_cycle() {
    const RING: usize = 6;
    let (db, table) = one_table();
    for n in 0..RING {
        table.put(&[n as u8], b"old").unwrap();
    }
    gather_at(&db, "validated", RING);
    let mut transactions = Vec::new();
    for n in 0..RING {
        let mut txn = db.begin_with(Isolation::Serializable);
        assert_eq!(txn.read(&table, &[((n + 1) % RING) as u8]), Some("old".into()));
        txn.put(&table, &[n as u8], b"new").unwrap();
        transactions.push(txn);
    }
    let outcomes = at_once(transactions.into_iter().map(|txn| || txn.commit().is_ok()));
    let committed: Vec<usize> = (0..RING).filter(|&n| outcomes[n]).collect();
    assert!(!committed.is_empty() && committed.len() < RING, "a cycle of all of them: {outcomes:?}");
}

/// One counts a range, the other puts a key into it.
fn phantom(level: Isolation, by_delete: bool) -> usize {
    let (db, table) = one_table();
    table.put(b"m1", b"v").unwrap();
    table.put(b"z", b"v").unwrap();
    gather_at(&db, "validated", 2);
    let mut counter = db.begin_with(level);
    let count = rows(counter.prefix(&table, b"m").unwrap()).len();
    counter.put(&table, b"count", count.to_string().as_bytes()).unwrap();
    let mut writer = db.begin_with(level);
    assert_eq!(writer.read(&table, b"count"), None);
    if by_delete {
        writer.delete_range(&table, b"m".as_slice()..b"n").unwrap();
    } else {
        writer.put(&table, b"m2", b"v").unwrap();
    }
    let outcomes = at_once(vec![
        Box::new(|| counter.commit().is_ok()) as Box<dyn FnOnce() -> bool + Send>,
        Box::new(|| writer.commit().is_ok()),
    ]);
    outcomes.into_iter().filter(|is_ok| *is_ok).count()
}

#[test]
fn phantoms_are_for_snapshot_isolation_alone() {
    for by_delete in [false, true] {
        assert_eq!(phantom(Isolation::Snapshot, by_delete), 2);
        assert_eq!(phantom(Isolation::Serializable, by_delete), 1);
    }
}

#[test]
fn a_blind_put_never_conflicts() {
    for level in LEVELS {
        for blind_first in [true, false] {
            let (db, table) = one_table();
            table.put(b"k", b"0").unwrap();
            let mut blind = db.begin_with(level);
            blind.put(&table, b"k", b"blind").unwrap();
            let mut careful = db.begin_with(level);
            assert_eq!(careful.read(&table, b"k"), Some("0".into()));
            careful.put(&table, b"k", b"careful").unwrap();
            if blind_first {
                blind.commit().unwrap();
                assert_conflict(careful.commit());
                assert_eq!(table.get(b"k").unwrap().unwrap(), b"blind");
            } else {
                careful.commit().unwrap();
                blind.commit().unwrap();
                assert_eq!(table.get(b"k").unwrap().unwrap(), b"blind");
            }
        }
    }
}

#[test]
fn get_for_update_conflicts_without_a_write_of_its_own() {
    for level in LEVELS {
        let (db, table) = one_table();
        table.put(b"k", b"0").unwrap();
        let mut guard = db.begin_with(level);
        guard.get_for_update(&table, b"k").unwrap();
        guard.put(&table, b"other", b"v").unwrap();
        table.put(b"k", b"1").unwrap();
        assert_conflict(guard.commit());
        assert!(table.get(b"other").unwrap().is_none());
    }
}

#[test]
fn the_first_committer_wins_across_two_tables() {
    for level in LEVELS {
        let db = database();
        let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
        let mut first = db.begin_with(level);
        let mut second = db.begin_with(level);
        for (txn, mine, other) in [(&mut first, &one, &two), (&mut second, &two, &one)] {
            assert_eq!(txn.read(mine, b"k"), None);
            assert_eq!(txn.read(other, b"k"), None);
            txn.put(mine, b"k", b"v").unwrap();
            txn.put(other, b"shared", b"v").unwrap();
        }
        assert_eq!(second.read(&two, b"shared"), None);
        second.put(&two, b"shared", b"w").unwrap();
        first.commit().unwrap();
        assert_conflict(second.commit());
        assert!(two.get(b"k").unwrap().is_none(), "nothing of a transaction that conflicts happened");
        assert!(one.get(b"shared").unwrap().is_none());
    }
}

/// Fekete, O'Neil, O'Neil: a withdrawal, a deposit and a reader that sees the second without the first, although the
/// first goes before it.
#[test]
fn readers_of_serializable_writers_see_no_anomaly() {
    let (db, table) = one_table();
    table.put(b"checking", b"0").unwrap();
    table.put(b"savings", b"0").unwrap();
    let mut withdrawal = db.begin_with(Isolation::Serializable);
    let total: i64 = [b"checking".as_slice(), b"savings"]
        .iter()
        .map(|key| withdrawal.read(&table, key).unwrap().parse::<i64>().unwrap())
        .sum();
    let fee = if total < 10 { 1 } else { 0 };
    withdrawal.put(&table, b"checking", format!("{}", -10 - fee).as_bytes()).unwrap();
    let mut deposit = db.begin_with(Isolation::Serializable);
    assert_eq!(deposit.read(&table, b"savings"), Some("0".into()));
    deposit.put(&table, b"savings", b"20").unwrap();
    deposit.commit().unwrap();
    let reader = db.snapshot();
    assert_eq!(reader.read(&table, b"savings"), Some("20".into()));
    assert_eq!(reader.read(&table, b"checking"), Some("0".into()));
    assert_conflict(withdrawal.commit());
}
