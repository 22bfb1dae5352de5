//! A thread sees the commits that it deferred.

use std::sync::atomic::{AtomicBool, Ordering};

use super::support::*;
use crate::{Durability, Isolation};

/// INV-TXN-11, with real threads and reads; `crate::schedules` explores the schedules. Large commits take long between
/// their number and the end of their apply, and a later small one waits for them.
#[test]
fn a_thread_reads_what_it_deferred_while_others_commit() {
    for level in [Durability::Sync, Durability::None] {
        let (db, table) = one_table();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..6u32 {
                    let mut txn = db.begin();
                    for n in 0..20_000u32 {
                        txn.put(&table, (n.wrapping_mul(2_654_435_761)).to_be_bytes(), round.to_be_bytes())
                            .unwrap();
                    }
                    txn.commit().unwrap();
                }
                is_over.store(true, Ordering::SeqCst);
            });
            for thread in 0..2u8 {
                let (db, table, is_over) = (&db, &table, &is_over);
                scope.spawn(move || {
                    let key = [thread];
                    let mut n = 0u32;
                    while !is_over.load(Ordering::SeqCst) {
                        n += 1;
                        let mut txn = db.begin();
                        txn.set_durability(level).unwrap();
                        txn.put(table, key, n.to_le_bytes()).unwrap();
                        let ticket = txn.commit_deferred().unwrap();
                        let read = db.begin().get(table, key).unwrap();
                        assert_eq!(read.as_deref(), Some(&n.to_le_bytes()[..]), "{level:?}: own commit {n}");
                        if n.is_multiple_of(50) {
                            ticket.wait().unwrap();
                        }
                    }
                });
            }
        });
        db.close().unwrap();
    }
}

/// The same with a swap that expects the value that the thread itself has just written.
#[test]
fn a_swap_finds_what_its_own_thread_deferred() {
    let (db, table) = one_table();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let key = [thread];
                for n in 0..200u32 {
                    let mut txn = db.begin_with(Isolation::Serializable);
                    let before = n.checked_sub(1).map(u32::to_le_bytes);
                    let expected = before.as_ref().map(|bytes| bytes.as_slice());
                    let swapped =
                        txn.compare_and_swap(table, &key, expected, Some(&n.to_le_bytes())).unwrap();
                    assert!(swapped, "the swap to {n} does not find the value that its thread wrote before");
                    drop(txn.commit_deferred().unwrap());
                }
            });
        }
    });
    db.close().unwrap();
}
