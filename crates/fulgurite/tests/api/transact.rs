//! Transactions in a closure: errors of the library and of the application, rollback, retries.

use crate::common;

use fulgurite::env::SimEnv;
use fulgurite::{Database, Error, Isolation, Result, Table};

#[derive(Debug)]
enum Mine {
    Refused,
    Storage(Error),
}

impl From<Error> for Mine {
    fn from(error: Error) -> Mine {
        Mine::Storage(error)
    }
}

fn one_table() -> (Database, Table) {
    let db = common::open(SimEnv::new(1)).unwrap();
    let table = db.table("t").unwrap();
    (db, table)
}

/// The test is that it compiles. Neither closure names its error type.
#[test]
fn our_own_error_needs_no_annotation() {
    let (db, table) = one_table();
    let go = || -> Result<()> {
        let count = db.transact(|txn| {
            txn.put(&table, "k", "v")?;
            Ok(1)
        })?;
        let (other, commit) = db.transact_with(Isolation::Serializable, |txn| {
            let value = txn.get(&table, "k")?;
            Ok(value.map_or(0, |value| value.len()))
        })?;
        assert_eq!((count, other, commit.csn), (1, 1, db.begin().snapshot_csn()));
        Ok(())
    };
    go().unwrap();
}

#[test]
fn an_application_error_rolls_back_and_comes_out() {
    let (db, table) = one_table();
    let refused = db.transact_as(|txn| {
        txn.put(&table, "k", "v")?;
        if txn.get(&table, "limit")?.is_none() {
            return Err(Mine::Refused);
        }
        Ok(())
    });
    assert!(matches!(refused, Err(Mine::Refused)), "{refused:?}");
    assert_eq!(table.get("k").unwrap(), None, "any error rolls back");

    let mut runs = 0;
    let storage = db.transact_with_as(Isolation::Serializable, |txn| {
        runs += 1;
        txn.put(&table, "k", "v")?;
        txn.put(&table, vec![0; 1 << 20], "v")?;
        Ok::<_, Mine>(())
    });
    assert!(matches!(storage, Err(Mine::Storage(Error::KeyTooLong { .. }))), "{storage:?}");
    assert_eq!((runs, table.get("k").unwrap()), (1, None));

    let (value, commit) = db
        .transact_with_as::<_, Mine>(Isolation::Snapshot, |txn| {
            txn.put(&table, "k", "v")?;
            Ok(7)
        })
        .unwrap();
    assert_eq!((value, table.get("k").unwrap().unwrap().to_vec()), (7, b"v".to_vec()));
    assert!(commit.csn.0 > 0);
}

/// The test is that it compiles. The documentation of transactions and `.await` depends on it.
#[test]
fn a_transaction_may_move_to_another_thread() {
    fn moves<T: Send>() {}
    moves::<fulgurite::Transaction>();
}

#[test]
fn an_application_error_goes_with_a_commit_that_is_awaited() {
    let (db, table) = one_table();
    let refused = db.transact_deferred_as(|txn| {
        txn.put(&table, "k", "v")?;
        Err::<(), _>(Mine::Refused)
    });
    assert!(matches!(refused, Err(Mine::Refused)));
    assert_eq!(table.get("k").unwrap(), None, "any error rolls back");

    let mut runs = 0;
    let (value, ticket) = db
        .transact_deferred_with_as::<_, Mine>(Isolation::Serializable, |txn| {
            runs += 1;
            txn.get(&table, "k")?;
            if runs == 1 {
                table.put("k", "won")?;
            }
            txn.put(&table, "k", "v")?;
            Ok(runs)
        })
        .unwrap();
    assert_eq!(value, 2, "the conflict was retried");
    ticket.wait().unwrap();
    assert_eq!(table.get("k").unwrap().unwrap(), "v");
}

/// With an application's error type conflicts are retried, too; it wraps the [`Error::TooManyConflicts`].
#[test]
fn conflicts_are_retried_whatever_the_error_type() {
    let (db, table) = one_table();
    table.put("k", "0").unwrap();
    let mut runs = 0;
    let outcome = db.transact_as(|txn| {
        runs += 1;
        let Some(found) = txn.get(&table, "k")? else { return Err(Mine::Refused) };
        if runs < 3 {
            table.put("k", runs.to_string())?;
        }
        txn.put(&table, "k", [&found[..], b"!"].concat())?;
        Ok(runs)
    });
    assert_eq!(outcome.unwrap(), 3);
    assert_eq!(table.get("k").unwrap().unwrap(), "2!");

    // The wrong call: a commit of its own in the body, with which the transaction conflicts every time.
    let gave_up = db.transact_as(|txn| {
        txn.get(&table, "k")?;
        table.put("k", "mine")?;
        txn.put(&table, "k", "never")?;
        Ok::<_, Mine>(())
    });
    assert!(
        matches!(gave_up, Err(Mine::Storage(Error::TooManyConflicts { attempts: 101, .. }))),
        "{gave_up:?}"
    );
    assert_eq!(table.get("k").unwrap().unwrap(), "mine");
    let Err(Mine::Storage(error)) = gave_up else { unreachable!() };
    let error = error.to_string();
    assert!(error.contains("101 times in a row, the last time: another transaction"), "{error}");
    assert!(error.ends_with("by a handle instead of the transaction?"), "{error}");
}
