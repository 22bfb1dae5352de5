use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::sim::SimEnv;
use fulgurite_types::hash_key;

use crate::{Database, Error, Isolation, Options, Result, SegmentUse, Snapshot, Table};

const AGE: Duration = Duration::from_secs(60);

fn open(env: &Arc<SimEnv>, max_snapshot_age: Option<Duration>) -> Database {
    let options = Options {
        leaf_bytes: 512,
        inline_bytes_max: 200,
        memtable_bytes_max: Some(64 << 10),
        log_buffer_bytes: 1 << 20,
        background: false,
        max_snapshot_age,
        ..Options::default()
    };
    Database::open_with(env.clone(), "/db", options, |_| {}).unwrap()
}

fn fill(table: &Table, value: &[u8]) {
    for n in 0..100u8 {
        table.put([n], value).unwrap();
    }
}

/// Merges everything, prunes, and frees segments.
fn settle(db: &Database) {
    for _ in 0..4 {
        db.checkpoint().unwrap();
        while db.maintain().unwrap() {}
    }
}

#[track_caller]
fn assert_too_old<T: std::fmt::Debug>(outcome: Result<T>) {
    let Err(Error::SnapshotTooOld { age, max_age }) = outcome else { panic!("{outcome:?}") };
    assert!(age > AGE && age < 2 * AGE && max_age == AGE, "{age:?} {max_age:?}");
}

#[test]
fn the_next_step_of_each_reader_that_is_too_old_fails() {
    let env = SimEnv::new(1);
    let db = open(&env, Some(AGE));
    let table = db.table("t").unwrap();
    fill(&table, b"old");
    let snapshot = db.snapshot();
    let (mut forward, mut backward, mut of_table) =
        (snapshot.range(&table, ..).unwrap(), snapshot.range(&table, ..).unwrap(), table.range(..).unwrap());
    let mut salvage = snapshot.salvage(&table, ..).unwrap();
    let begin = || {
        let mut txn = db.begin_with(Isolation::Serializable);
        assert!(txn.get(&table, [1]).unwrap().is_some());
        txn.put(&table, b"mine", b"1").unwrap();
        txn
    };
    let (mut txn, committed, deferred, read_only) = (begin(), begin(), begin(), db.begin());
    let savepoint = txn.savepoint();
    let scanning = begin();
    let mut of_txn = scanning.range(&table, ..).unwrap();
    for range in [&mut forward, &mut of_table, &mut of_txn] {
        assert_eq!(range.next_entry().unwrap(), Some((&[0][..], &b"old"[..])));
    }
    assert!(salvage.next().unwrap().is_ok() && backward.next_back().unwrap().is_ok());
    env.advance(AGE);
    assert!(snapshot.get(&table, [1]).unwrap().is_some() && forward.next().unwrap().is_ok());
    env.advance(Duration::from_millis(1));
    let young = db.snapshot();

    assert_too_old(snapshot.get(&table, [1]));
    assert_too_old(snapshot.expiry(&table, [1]));
    assert_too_old(snapshot.first(&table, ..));
    assert_too_old(snapshot.range(&table, ..).map(|_| ()));
    assert_too_old(snapshot.clone().prefix(&table, "a").map(|_| ()));
    // The steps above have ended the snapshot. The two other scans find it when they look at their age.
    assert_too_old(forward.next_entry().map(|_| ()));
    assert_too_old(backward.next_back().unwrap());
    assert_too_old(salvage.next().unwrap());
    for range in [&mut of_table, &mut of_txn] {
        let failed = (0..8).find_map(|_| range.next_entry().map(|entry| assert!(entry.is_some())).err());
        assert_too_old(Err::<(), _>(failed.expect("one of eight steps")));
    }
    for range in [&mut forward, &mut backward, &mut of_table, &mut of_txn] {
        assert_eq!(range.next_entry().unwrap(), None, "the iteration is over");
    }
    assert!(salvage.next().is_none());
    assert_too_old(txn.get(&table, b"mine"));
    assert_too_old(txn.get_for_update(&table, [1]));
    assert_too_old(txn.expiry(&table, [1]));
    assert_too_old(txn.put(&table, [1], b"2"));
    assert_too_old(txn.delete(&table, [1]));
    assert_too_old(txn.delete_range(&table, ..));
    assert_too_old(txn.insert(&table, b"new", b"2"));
    assert_too_old(txn.compare_and_swap(&table, [1], None, None));
    assert_too_old(txn.range(&table, ..).map(|_| ()));
    assert_too_old(txn.first(&table, ..));
    assert_too_old(txn.pop_last(&table, ..));
    assert_too_old(txn.pop_first_unclaimed(&table, ..));
    assert_too_old(txn.rollback_to(savepoint));
    assert_too_old(txn.commit());
    assert_too_old(committed.commit());
    assert_too_old(deferred.commit_deferred().map(|_| ()));
    assert_too_old(read_only.commit());

    assert_eq!(young.get(&table, [1]).unwrap().unwrap(), "old");
    assert_eq!(young.range(&table, ..).unwrap().count(), 100);
    assert!(table.get(b"mine").unwrap().is_none(), "no ended transaction was committed");
    // The snapshot, the range of the table, and five transactions.
    assert_eq!((db.stats().snapshots_ended, db.stats().snapshots), (7, 1));
    assert_eq!(db.stats().oldest_snapshot, Some(young.csn()));
}

#[test]
fn nothing_is_ended_by_default() {
    let env = SimEnv::new(1);
    let db = open(&env, None);
    let table = db.table("t").unwrap();
    fill(&table, b"old");
    let (snapshot, mut txn) = (db.snapshot(), db.begin());
    let mut range = table.range(..).unwrap();
    range.next().unwrap().unwrap();
    txn.put(&table, b"mine", b"1").unwrap();
    for _ in 0..400 {
        env.advance(Duration::from_secs(24 * 3600));
    }
    fill(&table, b"new");
    settle(&db);
    assert_eq!(snapshot.get(&table, [1]).unwrap().unwrap(), "old");
    assert!(range.all(|entry| entry.unwrap().1 == "old"));
    txn.commit().unwrap();
    assert_eq!(db.stats().snapshots_ended, 0);
}

/// Whether a version of a key is stored that a reader at that CSN, without a slot, finds.
fn stored(db: &Database, table: &Table, key: &[u8], at: &Snapshot) -> bool {
    let hash = hash_key(table.state.id, key);
    db.engine().read_at(&table.state, key, hash, at.csn()).unwrap().seen(u64::MAX / 2).is_some()
}

#[test]
fn an_idle_reader_that_was_ended_keeps_no_versions_and_no_segments() {
    for max_snapshot_age in [Some(AGE), None] {
        let env = SimEnv::new(1);
        let db = open(&env, max_snapshot_age);
        let table = db.table("t").unwrap();
        let gone = db.table("gone").unwrap();
        // Out of line: the versions are in leaves, their values in segments.
        let [first, second, third] = [1, 2, 3].map(|byte| vec![byte; 60_000]);
        fill(&table, &first);
        fill(&gone, &[first.clone(), first.clone()].concat());
        settle(&db);
        let (old, scan) = (db.snapshot(), table.range(..).unwrap());
        let mut txn = db.begin();
        txn.put(&table, b"ahead", vec![7; 12 << 20]).unwrap();
        env.advance(AGE);
        db.drop_table("gone").unwrap();
        fill(&table, &second);
        let young = db.snapshot();
        env.advance(Duration::from_secs(1));
        fill(&table, &third);
        settle(&db);
        let stats = db.stats();
        let uses = |reason| stats.space.uses.get(&reason).map_or(0, |group| group.bytes);
        let pinned = [uses(SegmentUse::Snapshot), uses(SegmentUse::Transaction)];
        let live = stats.space.live_bytes();
        if max_snapshot_age.is_none() {
            assert!(stored(&db, &table, &[1], &old), "a snapshot keeps what it sees");
            assert!(
                live > 3 * 100 * 60_000 && pinned.iter().all(|bytes| *bytes > 4_000_000),
                "{live} {pinned:?}"
            );
            assert_eq!(old.get(&table, [1]).unwrap().unwrap(), first);
            continue;
        }
        assert_eq!((stats.snapshots_ended, stats.snapshots), (3, 1));
        assert!((0..100u8).all(|n| !stored(&db, &table, &[n], &old)), "the ended snapshot's versions stay");
        assert!(live < 2 * 100 * 60_000 + 500_000 && pinned == [0, 0], "{live} {pinned:?}");
        assert!((0..100u8).all(|n| young.get(&table, [n]).unwrap().unwrap() == second));
        assert!(young.range(&table, ..).unwrap().all(|entry| entry.unwrap().1 == second));
        assert!(table.range(..).unwrap().all(|entry| entry.unwrap().1 == third));
        assert_too_old(old.get(&table, [1]));
        assert_too_old(txn.get(&table, b"ahead"));
        assert_too_old(txn.commit());
        drop((old, scan));
        assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
    }
}

/// A database whose table is emptied, merged and pruned when a thread first reaches a spot.
fn emptied_at(spot: &'static str, max_snapshot_age: Option<Duration>) -> (Database, Table) {
    let env = SimEnv::new(1);
    let db = open(&env, max_snapshot_age);
    let table = db.table("t").unwrap();
    fill(&table, &[7; 300]);
    settle(&db);
    let (other, emptied) = (db.clone(), table.clone());
    let once = parking_lot::Once::new();
    db.engine().hooks.set(spot, move || {
        once.call_once(|| {
            env.advance(AGE + Duration::from_secs(1));
            for n in 0..100u8 {
                emptied.delete([n]).unwrap();
            }
            settle(&other);
        });
    });
    (db, table)
}

#[test]
fn a_reader_that_is_ended_in_the_middle_of_a_step_misses_nothing() {
    for max_snapshot_age in [Some(AGE), None] {
        let (db, table) = emptied_at("read at a snapshot", max_snapshot_age);
        let found = db.snapshot().get(&table, [1]);
        match max_snapshot_age {
            Some(_) => assert_too_old(found),
            None => assert_eq!(found.unwrap().unwrap(), [7; 300]),
        }
        let (db, table) = emptied_at("read at a snapshot", max_snapshot_age);
        let found = db.begin().get(&table, [1]);
        match max_snapshot_age {
            Some(_) => assert_too_old(found),
            None => assert_eq!(found.unwrap().unwrap(), [7; 300]),
        }
        let (db, table) = emptied_at("step of a scan", max_snapshot_age);
        let snapshot = db.snapshot();
        let mut range = snapshot.range(&table, ..).unwrap();
        match max_snapshot_age {
            Some(_) => assert_too_old(range.next_entry().map(|_| ())),
            None => assert_eq!(range.count(), 100),
        }
        for spot in ["step of a scan", "entry claimed"] {
            let (db, table) = emptied_at(spot, max_snapshot_age);
            let popped = db.begin().pop_first_unclaimed(&table, ..);
            match max_snapshot_age {
                Some(_) => assert_too_old(popped),
                None => assert!(popped.unwrap().is_none(), "another transaction has deleted all"),
            }
        }
    }
}

/// The deletes are pruned with what they delete, unless the transaction that commits keeps them.
#[test]
fn a_commit_that_has_begun_is_not_ended_and_finds_its_conflict() {
    let (db, table) = emptied_at("commit begun", Some(AGE));
    let mut txn = db.begin_with(Isolation::Serializable);
    assert!(txn.get(&table, [1]).unwrap().is_some());
    txn.put(&table, b"mine", b"1").unwrap();
    let outcome = txn.commit();
    assert!(matches!(outcome, Err(Error::Conflict(_))), "{outcome:?}");
    assert_eq!((db.stats().snapshots_ended, db.stats().snapshots), (0, 0));
}

/// Single operations begin snapshots of their own, which are not ended.
#[test]
fn single_operations_are_not_ended() {
    let (db, table) = emptied_at("read at a snapshot", Some(AGE));
    assert!(matches!(table.insert([1], "1"), Err(Error::KeyExists { .. })));
    let (_, again) = emptied_at("commit begun", Some(AGE));
    assert!(again.compare_and_swap([1], Some(&[7; 300]), None).is_ok_and(|swapped| !swapped));
    assert_eq!(db.stats().snapshots_ended, 0);
}
