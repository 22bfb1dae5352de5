//! The whole interface, each part once, on a real disk.

use fulgurite::{Database, Error, Isolation, Options};

fn open(dir: &std::path::Path) -> Database {
    Database::open(dir, Options::default()).unwrap()
}

/// Without threads, so that the directory may be copied while the database is open.
fn open_quiet(dir: &std::path::Path) -> Database {
    Database::open(dir, Options { background: false, ..Options::default() }).unwrap()
}

#[test]
fn a_first_session() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let db = open(&path);
    let users = db.table("users").unwrap();
    let first = users.put(b"alice", b"1").unwrap();
    let mut txn = db.begin();
    assert_eq!(txn.get(&users, b"alice").unwrap().unwrap(), b"1");
    txn.put(&users, b"bob", b"2").unwrap();
    let second = txn.commit().unwrap();
    assert_eq!(second.csn, first.csn.next());
    db.transact(|txn| txn.put(&users, b"carol", b"3")).unwrap();
    let rows: Vec<_> = db.snapshot().range(&users, b"b".as_slice()..).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].0 == b"bob" && rows[1].1 == b"3");
    db.close().unwrap();

    let db = open(&path);
    let users = db.open_table("users").unwrap();
    assert_eq!(users.get(b"carol").unwrap().unwrap(), b"3");
    assert!(users.get(b"dave").unwrap().is_none());
    let names: Vec<_> = db.tables().unwrap().iter().map(|table| table.name()).collect();
    assert_eq!(names, ["users"]);
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn nothing_is_lost_without_a_clean_close() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3u32 {
        let db = open_quiet(dir.path());
        let table = db.table("t").unwrap();
        for old in 0..round {
            for n in 0..100u32 {
                let value = table.get(&key(old, n)).unwrap().unwrap();
                assert_eq!(value, old.to_le_bytes());
            }
        }
        for n in 0..100u32 {
            table.put(&key(round, n), &round.to_le_bytes()).unwrap();
        }
        // The files of a killed process: no thread runs during the copy, and no destructor has run.
        let copy = tempfile::tempdir().unwrap();
        copy_dir(dir.path(), copy.path());
        let survivor = open(copy.path());
        assert_eq!(survivor.table("t").unwrap().range(..).unwrap().count(), (round as usize + 1) * 100);
    }
}

fn key(round: u32, n: u32) -> Vec<u8> {
    format!("{round:04}/{n:06}").into_bytes()
}

#[expect(clippy::disallowed_methods, reason = "a test copies a database behind its back")]
fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn ranges_run_both_ways_and_meet() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    for n in 0..1000u32 {
        txn.put(&table, &n.to_be_bytes(), b"v").unwrap();
    }
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    let mut txn = db.begin();
    txn.delete(&table, &500u32.to_be_bytes()).unwrap();
    txn.put(&table, &1000u32.to_be_bytes(), b"own").unwrap();
    txn.delete_range(&table, 10u32.to_be_bytes().as_slice()..&20u32.to_be_bytes()).unwrap();
    txn.put(&table, &15u32.to_be_bytes(), b"own").unwrap();
    let expected: Vec<u32> =
        (0..=1000).filter(|&n| n != 500 && (!(10..20).contains(&n) || n == 15)).collect();
    let number = |entry: fulgurite::Result<(fulgurite::Value, fulgurite::Value)>| {
        u32::from_be_bytes(entry.unwrap().0.to_vec().try_into().unwrap())
    };
    let forward: Vec<u32> = txn.range(&table, ..).unwrap().map(number).collect();
    assert_eq!(forward, expected);
    let mut backward: Vec<u32> = txn.range(&table, ..).unwrap().rev().map(number).collect();
    backward.reverse();
    assert_eq!(backward, expected);
    let mut range = txn.range(&table, ..).unwrap();
    let mut both = Vec::new();
    let mut turn = 0;
    loop {
        let entry = if turn % 3 == 0 { range.next() } else { range.next_back() };
        let Some(entry) = entry else { break };
        both.push(number(entry));
        turn += 1;
    }
    both.sort_unstable();
    assert_eq!(both, expected);
    drop(range);
    txn.commit().unwrap();
    let after: Vec<u32> = table.range(..).unwrap().map(number).collect();
    assert_eq!(after, expected);
}

#[test]
fn conflicts_inserts_swaps_savepoints() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    table.insert(b"k", b"1").unwrap();
    assert!(matches!(table.insert(b"k", b"2"), Err(Error::KeyExists { .. })));
    assert!(table.compare_and_swap(b"k", Some(b"1"), Some(b"2")).unwrap());
    assert!(!table.compare_and_swap(b"k", Some(b"1"), Some(b"3")).unwrap());

    let mut first = db.begin();
    let mut second = db.begin();
    first.get(&table, b"k").unwrap();
    second.get(&table, b"k").unwrap();
    first.put(&table, b"k", b"first").unwrap();
    second.put(&table, b"k", b"second").unwrap();
    first.commit().unwrap();
    assert!(matches!(second.commit(), Err(Error::Conflict { .. })));

    let mut txn = db.begin_with(Isolation::Serializable);
    txn.put(&table, b"a", b"1").unwrap();
    let savepoint = txn.savepoint();
    txn.put(&table, b"a", b"2").unwrap();
    txn.delete_range(&table, ..).unwrap();
    assert!(txn.get(&table, b"a").unwrap().is_none());
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(txn.get(&table, b"a").unwrap().unwrap(), b"1");
    txn.commit().unwrap();
    assert_eq!(table.range(..).unwrap().count(), 2);
}

#[test]
fn large_values_and_long_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
    let medium = &big[..20_000];
    {
        let db = open_quiet(dir.path());
        let table = db.table("t").unwrap();
        table.put(b"big", &big).unwrap();
        table.put(b"medium", medium).unwrap();
        let mut txn = db.begin();
        for n in 0..20_000u32 {
            txn.put(&table, &n.to_be_bytes(), &big[n as usize..n as usize + 40]).unwrap();
        }
        for n in 0..100u32 {
            txn.put(&table, format!("m{n}").as_bytes(), &big[n as usize..n as usize + 5_000]).unwrap();
        }
        assert_eq!(txn.get(&table, b"big").unwrap().unwrap(), big);
        txn.commit().unwrap();
        verify(&db, &big);
        let copy = tempfile::tempdir().unwrap();
        copy_dir(dir.path(), copy.path());
        verify(&open(copy.path()), &big);
        db.checkpoint().unwrap();
        verify(&db, &big);
        let copy = tempfile::tempdir().unwrap();
        copy_dir(dir.path(), copy.path());
        verify(&open(copy.path()), &big);
    }
    verify(&open(dir.path()), &big);
}

fn verify(db: &Database, big: &[u8]) {
    let table = db.open_table("t").unwrap();
    assert_eq!(table.get(b"big").unwrap().unwrap(), big);
    assert_eq!(table.get(b"medium").unwrap().unwrap(), &big[..20_000]);
    for n in (0..20_000u32).step_by(97) {
        assert_eq!(table.get(&n.to_be_bytes()).unwrap().unwrap(), &big[n as usize..n as usize + 40]);
    }
    for n in 0..100u32 {
        let value = table.get(format!("m{n}").as_bytes()).unwrap().unwrap();
        assert_eq!(value, &big[n as usize..n as usize + 5_000]);
    }
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn tables_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let one = db.create_table("one").unwrap();
    assert!(matches!(db.create_table("one"), Err(Error::TableExists { .. })));
    one.put(b"k", b"v").unwrap();
    let before = db.snapshot();
    db.rename_table("one", "two").unwrap();
    assert_eq!(one.name(), "two");
    assert!(matches!(db.open_table("one"), Err(Error::UnknownTable { .. })));
    db.drop_table("two").unwrap();
    assert!(matches!(one.get(b"k"), Err(Error::TableDropped { .. })));
    assert!(matches!(one.put(b"k", b"w"), Err(Error::TableDropped { .. })));
    assert_eq!(before.get(&one, b"k").unwrap().unwrap(), b"v");
    let again = db.create_table("two").unwrap();
    assert!(again.get(b"k").unwrap().is_none());
    db.checkpoint().unwrap();
    assert_eq!(before.get(&one, b"k").unwrap().unwrap(), b"v");
    drop(before);
    db.close().unwrap();
    let db = open(dir.path());
    assert_eq!(db.tables().unwrap().len(), 1);
    assert!(db.open_table("two").unwrap().get(b"k").unwrap().is_none());
}

#[test]
fn opening_again_and_again_takes_no_more_space() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = open(dir.path());
        let table = db.table("t").unwrap();
        for n in 0..100u32 {
            table.put(&n.to_be_bytes(), b"value").unwrap();
        }
    }
    let mut segments = Vec::new();
    for _ in 0..12 {
        let db = open(dir.path());
        assert_eq!(db.open_table("t").unwrap().range(..).unwrap().count(), 100);
        segments.push(db.stats().segments);
        db.close().unwrap();
    }
    assert!(segments.iter().all(|segments| segments.commit + segments.bulk <= 6), "{segments:?}");
}

#[test]
fn a_table_that_was_read_must_not_have_been_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let (read, written) = (db.create_table("read").unwrap(), db.create_table("written").unwrap());
    read.put(b"k", b"v").unwrap();
    let mut by_key = db.begin_with(Isolation::Serializable);
    by_key.get(&read, b"k").unwrap();
    by_key.put(&written, b"k", b"1").unwrap();
    let mut by_range = db.begin_with(Isolation::Serializable);
    assert_eq!(by_range.range(&read, ..).unwrap().count(), 1);
    by_range.put(&written, b"k", b"2").unwrap();
    let mut undone = db.begin();
    let savepoint = undone.savepoint();
    undone.put(&read, b"k", b"3").unwrap();
    undone.rollback_to(savepoint).unwrap();
    undone.put(&written, b"other", b"3").unwrap();
    db.drop_table("read").unwrap();
    assert!(matches!(by_key.commit(), Err(Error::TableDropped { .. })));
    assert!(matches!(by_range.commit(), Err(Error::TableDropped { .. })));
    undone.commit().unwrap();
    assert!(written.get(b"k").unwrap().is_none());
}

#[test]
fn many_snapshots_of_a_key_do_not_stop_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_quiet(dir.path());
    let table = db.table("t").unwrap();
    let key = vec![7; 60_000];
    let mut snapshots = Vec::new();
    for n in 0..40u32 {
        table.put(&key, &n.to_le_bytes()).unwrap();
        snapshots.push(db.snapshot());
    }
    db.checkpoint().unwrap();
    for (n, snapshot) in (0u32..).zip(&snapshots) {
        assert_eq!(snapshot.get(&table, &key).unwrap().unwrap(), n.to_le_bytes());
    }
    drop(snapshots);
    table.put(&key, b"last").unwrap();
    db.checkpoint().unwrap();
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
    drop((table, db));
    assert_eq!(open(dir.path()).table("t").unwrap().get(&key).unwrap().unwrap(), b"last");
}

#[test]
fn a_commit_that_saw_a_deletion_waits_until_that_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_quiet(dir.path());
    let table = db.table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    let mut delete = db.begin();
    delete.delete(&table, b"k").unwrap();
    let ticket = delete.commit_deferred().unwrap();
    assert!(ticket.try_wait().is_none());
    let reader = db.begin();
    assert!(reader.get(&table, b"k").unwrap().is_none());
    reader.commit().unwrap();
    assert!(db.stats().durable >= ticket.csn());
}

#[test]
fn a_serializable_read_of_a_table_that_is_dropped_meanwhile_does_not_commit() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_quiet(dir.path());
    let (read, written) = (db.table("read").unwrap(), db.table("written").unwrap());
    read.put(b"k", b"v").unwrap();
    for whole in [false, true] {
        let table = if whole { db.table("range").unwrap() } else { read.clone() };
        let mut txn = db.begin_with(Isolation::Serializable);
        if whole {
            assert_eq!(txn.range(&table, ..).unwrap().count(), 0);
        } else {
            assert!(txn.get(&table, b"k").unwrap().is_some());
        }
        txn.put(&written, b"k", b"v").unwrap();
        db.drop_table(&table.name()).unwrap();
        assert!(matches!(txn.commit(), Err(Error::TableDropped { .. })));
    }
}

#[test]
fn a_key_that_was_read_and_is_deleted_with_a_range_conflicts() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_quiet(dir.path());
    let table = db.table("t").unwrap();
    let other = db.table("u").unwrap();
    let (from, to) = (b"d".as_slice(), b"h".as_slice());
    type Read = fn(&fulgurite::Transaction, &fulgurite::Table);
    let reads: [(Read, &[u8], bool); 7] = [
        (|txn, table| assert!(txn.get(table, b"e").unwrap().is_none()), b"e", true),
        (|txn, table| assert!(txn.get(table, b"e").unwrap().is_none()), b"f", false),
        (|txn, table| assert!(txn.get(table, b"a").unwrap().is_none()), b"a", false),
        (|txn, table| _ = txn.range(table, b"a".as_slice()..b"f".as_slice()).unwrap().count(), b"e", true),
        (|txn, table| _ = txn.range(table, b"a".as_slice()..b"f".as_slice()).unwrap().count(), b"g", false),
        (|txn, table| _ = txn.range(table, b"e".as_slice()..).unwrap().count(), b"z", false),
        (|_, _| {}, b"e", false),
    ];
    for merged in [false, true] {
        for (n, (read, key, conflicts)) in reads.iter().enumerate() {
            table.delete_range(..).unwrap();
            let mut txn = db.begin();
            read(&txn, &table);
            txn.get(&other, b"e").unwrap();
            txn.delete_range(&table, from..to).unwrap();
            table.put(key, b"theirs").unwrap();
            other.put(b"e", b"theirs").unwrap();
            if merged {
                db.checkpoint().unwrap();
            }
            let outcome = txn.commit();
            assert_eq!(matches!(outcome, Err(Error::Conflict { .. })), *conflicts, "read {n}: {outcome:?}");
            let survives = *conflicts || !(from..to).contains(key);
            assert_eq!(table.get(key).unwrap().is_some(), survives, "read {n}");
        }
    }
}

#[test]
fn a_snapshot_reads_a_dropped_table_whatever_is_checkpointed() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_quiet(dir.path());
    let (dropped, other) = (db.table("dropped").unwrap(), db.table("other").unwrap());
    let values = [vec![1; 5_000], vec![2; 140_000]];
    let busy = |round: u8| {
        for n in 0..40u8 {
            other.put(&[n % 3], &vec![round; 60_000]).unwrap();
            other.put(&[n % 3], &vec![round; 300_000]).unwrap();
        }
    };
    // Not in a segment that the log itself needs.
    busy(0);
    for (n, value) in values.iter().enumerate() {
        dropped.put(&[n as u8], value).unwrap();
    }
    let snapshot = db.snapshot();
    db.drop_table("dropped").unwrap();
    for round in 1..6u8 {
        db.checkpoint().unwrap();
        busy(round);
        while db.maintain().unwrap() {}
    }
    for (n, value) in values.iter().enumerate() {
        assert_eq!(snapshot.get(&dropped, &[n as u8]).unwrap().unwrap(), *value);
    }
    let live = db.stats().live_bytes;
    drop(snapshot);
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    assert!(db.stats().live_bytes < live);
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn range_deletes_count_in_a_transactions_budget() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { transaction_bytes_max: 1 << 20, background: false, ..Options::default() };
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    let start = txn.savepoint();
    for _ in 0..3 {
        let fits = (0..20_000u32).take_while(|n| {
            let key = n.to_be_bytes();
            match txn.delete_range(&table, key.as_slice()..=key.as_slice()) {
                Err(Error::TooLarge { .. }) => false,
                outcome => outcome.is_ok(),
            }
        });
        let fits = fits.count();
        assert!((1_000..10_000).contains(&fits), "{fits}");
        txn.rollback_to(start).unwrap();
    }
    txn.put(&table, b"k", b"v").unwrap();
    txn.commit().unwrap();
}

/// The overwritten values that a savepoint keeps were in no budget: a loop over one key took all memory.
#[test]
fn values_that_a_savepoint_keeps_count_in_a_transactions_budget() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { transaction_bytes_max: 1 << 20, background: false, ..Options::default() };
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    let overwrites = |txn: &mut fulgurite::Transaction| {
        let fits = (0..20_000u32).take_while(|n| match txn.put(&table, b"k", vec![*n as u8; 500]) {
            Err(Error::TooLarge { .. }) => false,
            outcome => outcome.is_ok(),
        });
        fits.count()
    };
    assert_eq!(overwrites(&mut txn), 20_000, "nothing keeps them");
    let start = txn.savepoint();
    for _ in 0..3 {
        let fits = overwrites(&mut txn);
        assert!((1_000..2_200).contains(&fits), "{fits}");
        txn.rollback_to(start).unwrap();
    }
    txn.put(&table, b"k", b"v").unwrap();
    txn.commit().unwrap();
}

#[test]
fn handles_and_savepoints_of_others_are_refused() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (open(one.path()), open(two.path()));
    let (mine, theirs) = (one.table("accounts").unwrap(), two.table("log").unwrap());
    mine.put(b"k", b"mine").unwrap();
    theirs.put(b"k", b"theirs").unwrap();
    let mut txn = one.begin();
    let refused = |error: Error| assert!(matches!(error, Error::WrongDatabase { .. }), "{error}");
    refused(txn.put(&theirs, b"k", b"x").unwrap_err());
    refused(txn.delete(&theirs, b"k").unwrap_err());
    refused(txn.delete_range(&theirs, ..).unwrap_err());
    refused(txn.get(&theirs, b"k").unwrap_err());
    refused(txn.get_for_update(&theirs, b"k").unwrap_err());
    refused(txn.range(&theirs, ..).err().unwrap());
    refused(one.snapshot().get(&theirs, b"k").unwrap_err());
    refused(one.snapshot().range(&theirs, ..).err().unwrap());
    let foreign = txn.savepoint();
    let mut other = one.begin();
    other.put(&mine, b"a", b"1").unwrap();
    let _ = other.savepoint();
    other.put(&mine, b"b", b"2").unwrap();
    assert!(matches!(other.rollback_to(foreign), Err(Error::UnknownSavepoint)));
    other.commit().unwrap();
    assert_eq!(mine.get(b"b").unwrap().unwrap(), b"2");
    assert_eq!(theirs.get(b"k").unwrap().unwrap(), b"theirs");
}
