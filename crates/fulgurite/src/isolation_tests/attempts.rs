//! `try_commit`: what it waits for instead of which it gives the transaction back, and that this is then as it was.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::SimEnv;

use super::support::*;
use crate::{
    Attempt, Csn, Database, Durability, Error, Isolation, Missing, Numbered, Options, Table, Transaction,
};

#[track_caller]
fn committed(attempt: Attempt) -> Numbered {
    match attempt {
        Attempt::Committed(commit) => commit,
        Attempt::Blocked(_, missing) => panic!("blocked by {missing}"),
    }
}

#[track_caller]
fn blocked(attempt: Attempt, expected: Missing) -> Transaction {
    match attempt {
        Attempt::Committed(commit) => panic!("{commit:?}"),
        Attempt::Blocked(transaction, missing) => {
            assert_eq!(missing, expected);
            transaction
        }
    }
}

fn put_one(db: &Database, table: &Table, key: &[u8]) -> Transaction {
    let mut txn = db.begin();
    txn.put(table, key, b"v").unwrap();
    txn
}

#[test]
fn what_needs_no_wait_commits() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let commit = committed(put_one(&db, &table, b"k").try_commit().unwrap());
    assert_eq!(commit.needs, commit.csn);
    let reader = db.begin();
    assert!(reader.get(&table, b"k").unwrap().is_some(), "it is applied");
    assert_eq!(committed(reader.try_commit().unwrap()).needs, commit.csn);
    let mut none = put_one(&db, &table, b"l");
    none.set_durability(Durability::None).unwrap();
    assert_eq!(committed(none.try_commit().unwrap()).needs, Csn::ZERO);
    db.wait_durable(commit.needs).unwrap();
    let mut deletes = db.begin();
    deletes.delete_range(&table, b"a"..b"z").unwrap();
    let commit = committed(deletes.try_commit().unwrap());
    db.wait_durable(commit.needs).unwrap();
    assert_eq!(table.range(..).unwrap().count(), 0);
}

/// Another commit holds the latch of the key: it is numbered and not applied yet.
#[test]
fn a_latch_gives_the_transaction_back() {
    let (db, table) = one_table();
    let meeting = Meeting::new();
    let held = meeting.clone();
    db.engine().hooks.set("validated", move || held.hold_first());
    std::thread::scope(|scope| {
        let (other, own) = (db.clone(), table.clone());
        scope.spawn(move || put_one(&other, &own, b"k").commit().unwrap());
        meeting.wait_for(1);
        let read_before = |isolation| {
            let txn = db.begin_with(isolation);
            assert!(txn.get(&table, b"k").unwrap().is_none());
            txn
        };
        let mut losing = read_before(Isolation::Snapshot);
        losing.put(&table, b"k", b"lost").unwrap();
        let losing = blocked(losing.try_commit().unwrap(), Missing::Latch);
        let mut ranges = db.begin_with(Isolation::Serializable);
        assert_eq!(ranges.range(&table, ..).unwrap().count(), 0);
        ranges.put(&table, b"other", b"v").unwrap();
        let ranges = blocked(ranges.try_commit().unwrap(), Missing::Latch);
        // A key of another stripe is free.
        committed(put_one(&db, &table, b"free").try_commit().unwrap());
        let mut blind = blocked(put_one(&db, &table, b"k").try_commit().unwrap(), Missing::Latch);
        meeting.open();
        blind.put(&table, b"more", b"v").unwrap();
        blind.commit().unwrap();
        // Its reads are still validated.
        assert_conflict(losing.try_commit().map(committed));
        assert_conflict(ranges.commit());
    });
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
    assert!(table.get(b"more").unwrap().is_some() && table.get(b"other").unwrap().is_none());
}

#[test]
fn a_validation_that_reads_from_disk_gives_the_transaction_back() {
    let options = Options {
        leaf_bytes: 512,
        inline_bytes_max: 60,
        background: false,
        research: crate::ResearchOptions { evict_everything: true, ..Default::default() },
        ..Options::default()
    };
    let db = open(&SimEnv::new(1), options);
    let table = db.table("t").unwrap();
    db.transact(|txn| (0..1_000_u32).try_for_each(|n| txn.put(&table, n.to_be_bytes(), b"first"))).unwrap();
    db.checkpoint().unwrap();
    let mut old = db.begin();
    assert!(old.get_for_update(&table, 7_u32.to_be_bytes()).unwrap().is_some());
    old.put(&table, b"mine", b"mine").unwrap();
    let reader = db.begin();
    assert!(reader.get_for_update(&table, 7_u32.to_be_bytes()).unwrap().is_some());
    table.put(b"other", b"v").unwrap();
    db.checkpoint().unwrap();
    while db.engine().evict_round().unwrap().worked {}
    let loads = db.stats().memory.node_loads.validation;
    let reader = blocked(reader.try_commit_validated().unwrap(), Missing::Node);
    let old = blocked(old.try_commit().unwrap(), Missing::Node);
    assert_eq!(db.stats().memory.node_loads.validation, loads, "nothing was read");
    assert!(reader.get_for_update(&table, 7_u32.to_be_bytes()).unwrap().is_some(), "it goes on");
    while db.engine().evict_round().unwrap().worked {}
    old.commit().unwrap();
    assert!(db.stats().memory.node_loads.validation > loads);
}

/// Another transaction changes what it read, or a key beside it.
#[test]
fn a_transaction_that_wrote_nothing_may_validate_what_it_read() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    let reader = |key: &[u8]| {
        let txn = db.begin();
        txn.get_for_update(&table, key).unwrap();
        txn
    };
    let all = [reader(b"k"), reader(b"k"), reader(b"l"), reader(b"beside")];
    let mut writer = reader(b"l");
    writer.put(&table, b"more", b"v").unwrap();
    table.put(b"k", b"w").unwrap();
    table.put(b"l", b"w").unwrap();
    let [shown, changed, created, beside] = all;
    let snapshot = shown.snapshot_csn();
    assert_eq!(committed(shown.try_commit().unwrap()).csn, snapshot, "it shows its snapshot");
    assert!(matches!(changed.try_commit_validated(), Err(Error::Conflict(_))));
    assert!(matches!(created.try_commit_validated(), Err(Error::Conflict(_))));
    assert!(matches!(writer.try_commit_validated(), Err(Error::Conflict(_))));
    assert_eq!(committed(beside.try_commit_validated().unwrap()).csn, snapshot);
    assert!(table.get(b"more").unwrap().is_none());
}

/// The log's buffer is full, or merging is behind: there is no thread that would empty the one or catch up with the other.
#[test]
fn a_full_buffer_and_merging_that_is_behind_give_the_transaction_back() {
    for (options, expected) in [
        (Options { log_buffer_bytes: 1 << 20, ..Options::default() }, Missing::Room),
        (Options { memtable_bytes_max: Some(64 << 10), ..Options::default() }, Missing::Merging),
    ] {
        let env = SimEnv::new(1);
        let db = open(&env, Options { background: false, ..options });
        let table = db.table("t").unwrap();
        let mut commits = 0_u32;
        let given_back = loop {
            let mut txn = db.begin();
            txn.put(&table, commits.to_be_bytes(), vec![1; 10_000]).unwrap();
            match txn.try_commit().unwrap() {
                Attempt::Committed(_) => commits += 1,
                Attempt::Blocked(txn, missing) => {
                    assert_eq!(missing, expected);
                    break txn;
                }
            }
            assert!(commits < 100_000, "never blocked");
        };
        assert!(commits > 3, "{commits}");
        given_back.commit().unwrap();
        assert_eq!(table.range(..).unwrap().count() as u32, commits + 1);
    }
}

/// A transaction that was given back is not kept from ending: what it sees would stay for as long as it is parked.
#[test]
fn a_transaction_that_was_given_back_is_ended_when_it_is_too_old() {
    let env = SimEnv::new(1);
    let options = Options {
        background: false,
        log_buffer_bytes: 1 << 20,
        max_snapshot_age: Some(Duration::from_secs(10)),
        ..Options::default()
    };
    let db = open(&env, options);
    let table = db.table("t").unwrap();
    let parked = loop {
        let mut txn = db.begin();
        txn.put(&table, b"k", vec![1; 10_000]).unwrap();
        if let Attempt::Blocked(txn, missing) = txn.try_commit().unwrap() {
            assert_eq!(missing, Missing::Room);
            break txn;
        }
    };
    env.advance(Duration::from_secs(11));
    db.checkpoint().unwrap();
    assert!(matches!(parked.get(&table, b"k"), Err(Error::SnapshotTooOld { .. })));
    assert!(matches!(parked.try_commit(), Err(Error::SnapshotTooOld { .. })));
}

#[test]
fn a_commit_that_writes_ahead_is_given_back() {
    let (db, table) = one_table();
    let mut spilled = db.begin();
    spilled.put(&table, b"long", vec![1; crate::limits::SPILL_BYTES_MIN]).unwrap();
    let mut many = db.begin();
    for n in 0..400_u32 {
        many.put(&table, n.to_be_bytes(), vec![2; 1_000]).unwrap();
    }
    for txn in [spilled, many] {
        blocked(txn.try_commit().unwrap(), Missing::Chunks).commit().unwrap();
    }
    assert_eq!(table.range(..).unwrap().count(), 401);
}

#[test]
fn errors_are_those_of_a_commit() {
    let (db, table) = one_table();
    let mut losing = db.begin();
    losing.get(&table, b"k").unwrap();
    losing.put(&table, b"k", b"lost").unwrap();
    table.put(b"k", b"first").unwrap();
    assert_conflict(losing.try_commit().map(committed));
    assert_eq!(db.stats().conflicts, 1);
    let open = put_one(&db, &table, b"l");
    db.close().unwrap();
    assert!(matches!(open.try_commit(), Err(Error::Closed)));
}

/// Threads that attempt, and commit what they get back, lose no increment.
#[test]
fn increments_of_attempts_are_not_lost() {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    let (db, table) = one_table();
    let table = Arc::new(table);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut done = 0;
                while done < EACH {
                    let mut txn = db.begin();
                    let old = txn.get(&table, b"n").unwrap();
                    let count = old.map_or(0, |old| u64::from_le_bytes(old.to_vec().try_into().unwrap()));
                    txn.put(&table, b"n", (count + 1).to_le_bytes()).unwrap();
                    let outcome = match txn.try_commit() {
                        Ok(Attempt::Blocked(txn, _)) => txn.commit_numbered(),
                        outcome => outcome.map(committed),
                    };
                    match outcome {
                        Ok(_) => done += 1,
                        Err(Error::Conflict(_)) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let count = db.begin().get(&table, b"n").unwrap().unwrap().to_vec();
    assert_eq!(u64::from_le_bytes(count.try_into().unwrap()), THREADS * EACH);
}
