//! Operations that a transaction refuses before its commit, because recovery could not read them.

use std::sync::Arc;

use fulgurite_types::{KeySpan, hash_key, limits};

use super::support::*;
use crate::Error;
use crate::catalog::TableState;
use crate::operations::ShortBytes;
use crate::write_set::{Budget, WriteOp, WriteSet, WriteValue};

/// A budget that no transaction here reaches.
const BUDGET: usize = 64 << 30;

fn op(table: &TableState, key: &[u8], value: &[u8]) -> WriteOp {
    let hash = hash_key(table.id, key);
    WriteOp {
        value: WriteValue::Inline(ShortBytes::from_slice(value)),
        expires_at_ms: 0,
        read_before: false,
        hash,
    }
}

/// Sets the counted lengths only: the operations themselves would take gigabytes.
#[test]
fn a_transaction_that_recovery_could_not_read_is_refused_at_the_put() {
    let (_db, table) = one_table();
    let state: &Arc<TableState> = &table.state;
    let mut probe = WriteSet::default();
    probe.put(state, b"key", op(state, b"key", &[7; 32 << 10]), Budget::new(BUDGET)).unwrap();
    let one = probe.cost.operations;
    assert!(one > 32 << 10);
    for (missing, is_fine) in [(one, true), (one - 1, false)] {
        let mut writes = WriteSet::default();
        writes.cost.operations = limits::OPERATIONS_BYTES_MAX - missing;
        let before = writes.cost;
        let outcome = writes.put(state, b"key", op(state, b"key", &[7; 32 << 10]), Budget::new(BUDGET));
        assert_eq!(outcome.is_ok(), is_fine, "{outcome:?}");
        if is_fine {
            assert_eq!(writes.cost.operations, limits::OPERATIONS_BYTES_MAX);
            let again = writes.put(state, b"other", op(state, b"other", b""), Budget::new(BUDGET));
            let Err(Error::TooLarge { max, .. }) = again else { panic!("{again:?}") };
            assert_eq!(max, limits::OPERATIONS_BYTES_MAX);
            // A shorter value for the same key fits, and so does a key in the room that it leaves.
            writes.put(state, b"key", op(state, b"key", b"short"), Budget::new(BUDGET)).unwrap();
            writes.put(state, b"other", op(state, b"other", b""), Budget::new(BUDGET)).unwrap();
        } else {
            assert_eq!(writes.cost, before, "nothing was changed");
            assert!(writes.is_empty());
            let range = KeySpan { start: Box::default(), end: Some(vec![1; one].into()) };
            assert!(matches!(
                writes.delete_range(state, range, Budget::new(BUDGET)),
                Err(Error::TooLarge { .. })
            ));
        }
    }
}

/// The cost of an operation is subtracted again, however the operation is removed.
#[test]
fn the_cost_of_operations_that_are_undone_is_taken_back() {
    let (_db, table) = one_table();
    let state: &Arc<TableState> = &table.state;
    let mut writes = WriteSet::default();
    let put = |writes: &mut WriteSet, key: &[u8], len: usize| {
        writes.put(state, key, op(state, key, &vec![7; len]), Budget::new(BUDGET)).unwrap();
    };
    put(&mut writes, b"a", 10);
    let (mark, before) = (writes.savepoint(), writes.cost);
    put(&mut writes, b"a", 1000);
    put(&mut writes, b"b", 20);
    let range = KeySpan { start: Box::default(), end: Some(b"b".as_slice().into()) };
    writes.delete_range(state, range, Budget::new(BUDGET)).unwrap();
    put(&mut writes, b"c", 0);
    assert_ne!(writes.cost, before);
    writes.rollback_to(mark);
    assert_eq!(writes.cost, before);
}

/// The whole story, in gigabytes: `FULGURITE_HUGE=1 cargo test --release -p fulgurite --lib a_huge_transaction`.
#[test]
fn a_huge_transaction_is_refused_and_what_fits_opens_again() {
    if std::env::var_os("FULGURITE_HUGE").is_none() {
        return;
    }
    let env = fulgurite_env::SimEnv::new(1);
    let options = crate::Options {
        transaction_bytes_max: BUDGET,
        inline_bytes_max: 32 << 10,
        leaf_bytes: 64 << 10,
        ..Default::default()
    };
    let db = open(&env, options.clone());
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    let mut count = 0u32;
    loop {
        match txn.put(&table, &count.to_be_bytes(), &[7; 32 << 10]) {
            Ok(()) => count += 1,
            Err(Error::TooLarge { max, .. }) => {
                assert_eq!(max, limits::OPERATIONS_BYTES_MAX);
                break;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(count < 66_000, "66,000 of them are more than recovery reads");
    }
    txn.commit().unwrap();
    let image = env.crash(fulgurite_env::sim::CrashKind::PowerCut, 1);
    drop((table, db));
    let db = open(&image, options);
    let table = db.open_table("t").unwrap();
    assert_eq!(table.get((count - 1).to_be_bytes().as_slice()).unwrap().unwrap().len(), 32 << 10);
}
