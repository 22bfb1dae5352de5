//! Merging, pruning and checkpoints do not change what transactions see.

use fulgurite_env::SimEnv;
use fulgurite_env::sim::CrashKind;
use fulgurite_log::{SegmentInfo, Stream};

use super::support::*;
use crate::{Isolation, Options, Table};

#[test]
fn a_long_snapshot_sees_what_it_saw() {
    let (db, table) = one_table();
    let other = db.table("other").unwrap();
    for n in 0..50u32 {
        table.put(format!("{n:03}").as_bytes(), b"first").unwrap();
    }
    other.put(b"k", b"first").unwrap();
    let snapshot = db.snapshot();
    let long = db.begin();
    let expected = rows(snapshot.range(&table, ..).unwrap());
    for round in 0..6u32 {
        for n in 0..50u32 {
            match (n + round) % 5 {
                0 => table.delete(format!("{n:03}").as_bytes()).unwrap(),
                _ => table.put(format!("{n:03}").as_bytes(), round.to_string().as_bytes()).unwrap(),
            };
        }
        if round == 3 {
            table.delete_range(..).unwrap();
            other.delete(b"k").unwrap();
        }
        db.checkpoint().unwrap();
        assert_eq!(rows(snapshot.range(&table, ..).unwrap()), expected);
        assert_eq!(rows(long.range(&table, ..).unwrap()), expected);
        let mut backward = rows(snapshot.range(&table, ..).unwrap().rev());
        backward.reverse();
        assert_eq!(backward, expected);
        assert_eq!(snapshot.read(&table, b"007"), Some("first".into()));
        assert_eq!(snapshot.read(&other, b"k"), Some("first".into()));
    }
    let half = snapshot.range(&table, ..).unwrap().take(10).count();
    assert_eq!(half, 10);
    drop((snapshot, long));
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

/// A transaction that is older than the last merge finds its conflict in the base only.
#[test]
fn conflicts_are_found_after_they_were_merged() {
    type Write = fn(&crate::Table);
    let writes: [(&str, Write); 5] = [
        ("put", |table| {
            let _ = table.put(b"k", b"1").unwrap();
        }),
        ("delete", |table| {
            let _ = table.delete(b"k").unwrap();
        }),
        ("range delete", |table| {
            let _ = table.delete_range(b"a".as_slice()..b"z").unwrap();
        }),
        ("put and delete of another key", |table| {
            table.put(b"absent", b"1").unwrap();
            table.delete(b"absent").unwrap();
        }),
        ("put that has expired", |table| {
            let _ = table.put_expiring(b"k", b"1", std::time::UNIX_EPOCH).unwrap();
        }),
    ];
    for level in LEVELS {
        for (name, write) in writes {
            for checkpoints in 1..4 {
                let (db, table) = one_table();
                table.put(b"k", b"0").unwrap();
                db.checkpoint().unwrap();
                let mut key = db.begin_with(level);
                let mut absent = db.begin_with(level);
                let mut scan = db.begin_with(Isolation::Serializable);
                let mut elsewhere = db.begin_with(level);
                key.read(&table, b"k");
                key.put(&table, b"k", b"mine").unwrap();
                absent.read(&table, b"absent");
                absent.put(&table, b"absent", b"mine").unwrap();
                rows(scan.range(&table, b"a".as_slice()..b"l").unwrap());
                scan.put(&table, b"zz", b"mine").unwrap();
                elsewhere.read(&table, b"zzz");
                elsewhere.put(&table, b"zzz", b"mine").unwrap();
                write(&table);
                for _ in 0..checkpoints {
                    db.checkpoint().unwrap();
                }
                assert_eq!(table.state.index.memtables().entries(), 0, "{name}: merged");
                let touches_absent = name != "put" && name != "delete" && name != "put that has expired";
                let touches_key = name != "put and delete of another key";
                assert_eq!(key.commit().is_err(), touches_key, "{name}: the key, {checkpoints}");
                assert_eq!(absent.commit().is_err(), touches_absent, "{name}: the absent key, {checkpoints}");
                assert_conflict(scan.commit());
                elsewhere.commit().unwrap();
            }
        }
    }
}

/// The same with a younger snapshot: old versions may be pruned, but not the one that the old transaction conflicts
/// with.
#[test]
fn a_merged_tombstone_stays_for_the_oldest_transaction() {
    let (db, table) = one_table();
    let mut old = db.begin();
    assert_eq!(old.read(&table, b"k"), None);
    table.put(b"k", b"1").unwrap();
    table.delete(b"k").unwrap();
    let young = db.begin();
    for _ in 0..3 {
        db.checkpoint().unwrap();
    }
    assert_eq!(young.read(&table, b"k"), None);
    old.put(&table, b"k", b"mine").unwrap();
    assert_conflict(old.commit());
    drop(young);
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    table.insert(b"k", b"2").unwrap();
}

/// Commits during a checkpoint that has set its boundary and not merged yet.
#[test]
fn commits_continue_while_a_checkpoint_is_stopped() {
    let (db, table) = one_table();
    table.put(b"k", b"0").unwrap();
    let meeting = hold_first_at(&db, "checkpoint boundary");
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| db.checkpoint());
        meeting.wait_for(1);
        let mut old = db.begin();
        assert_eq!(old.read(&table, b"k"), Some("0".into()));
        for n in 0..10u32 {
            table.put(b"k", n.to_string().as_bytes()).unwrap();
        }
        old.put(&table, b"k", b"mine").unwrap();
        meeting.open();
        checkpoint.join().unwrap().unwrap();
        assert_conflict(old.commit());
    });
    db.checkpoint().unwrap();
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"9");
}

/// A checkpoint waits for a commit that is numbered and not applied, and for nothing else.
#[test]
fn a_checkpoint_passes_a_committer_that_is_stopped_before_its_number() {
    let (db, table) = one_table();
    let meeting = hold_first_at(&db, "validated");
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| table.put(b"k", b"stopped"));
        meeting.wait_for(1);
        table.put(b"other", b"v").unwrap();
        db.checkpoint().unwrap();
        let snapshot = db.snapshot();
        assert_eq!(snapshot.read(&table, b"k"), None);
        meeting.open();
        stopped.join().unwrap().unwrap();
        assert_eq!(snapshot.read(&table, b"k"), None);
    });
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"stopped");
}

/// INV-SPACE-2: a read that has found a long value keeps the value's segment, although no checkpoint refers to it.
#[test]
fn a_read_that_found_a_value_reads_it_although_its_segment_dies_meanwhile() {
    let db =
        open(&SimEnv::new(1), Options { background: false, log_buffer_bytes: 1 << 20, ..Options::default() });
    let table = db.table("t").unwrap();
    let fill = |n: u8| table.put(b"other", vec![n; 100_000]).unwrap();
    // The segment in which the epoch begins stays, so the value is in a later one.
    (0..20).for_each(|n| _ = fill(n));
    let old = vec![1; 50_000];
    table.put(b"k", &old).unwrap();
    let log = &db.engine().log;
    let commits = |segment: &&SegmentInfo| segment.open && segment.stream == Some(Stream::Commit);
    let number = log.segments().iter().rfind(commits).expect("the log has an open segment").number;
    db.checkpoint().unwrap();
    while !db.engine().values.cache.is_empty() {
        db.engine().values.cache.evict_some(usize::MAX, 100);
    }
    let is_dead = || {
        let is_there = log.segments().iter().any(|segment| segment.number == number);
        !is_there || db.engine().space.lock().is_retiring(number)
    };
    let meeting = hold_first_at(&db, "version to be read found");
    let found = std::thread::scope(|scope| {
        let reader = scope.spawn(|| table.get(b"k").map(|value| value.map(|value| value.to_vec())));
        meeting.wait_for(1);
        table.put(b"k", b"new").unwrap();
        for round in 0..500u32 {
            if is_dead() {
                break;
            }
            fill(round as u8);
            if round % 20 == 0 {
                db.checkpoint().unwrap();
            }
        }
        let is_dead = is_dead();
        (0..3).for_each(|_| _ = db.maintain().unwrap());
        meeting.open();
        (is_dead, reader.join().unwrap())
    });
    assert!(found.0, "the segment of the old value is dead");
    assert!(found.1.unwrap().unwrap() == old);
}

/// Whether every memtable that was merged has left memory.
fn keeps_nothing_merged(table: &Table) -> bool {
    // Threads of other tests may be in an epoch.
    let mut held = (0..20_000).map(|_| {
        std::thread::park_timeout(std::time::Duration::from_micros(200));
        table.state.index.memtables().reclaim()
    });
    held.any(|held| held == 0)
}

/// Like a report that waits for its user between two rows, or a cursor that was never closed.
#[test]
fn an_idle_scan_keeps_nothing_in_memory_that_was_merged_since_and_continues() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let key = |n: u32| format!("{n:03}").into_bytes();
    for n in (0..200).filter(|n| n % 3 != 0) {
        table.put(&key(n), b"in the tree").unwrap();
    }
    db.checkpoint().unwrap();
    for n in (0..200).filter(|n| n % 3 != 1) {
        table.put(&key(n), b"in the memtables").unwrap();
    }
    table.delete_range(key(30)..key(60)).unwrap();
    for n in (40..50).chain([3, 99]) {
        table.put(&key(n), b"after the range").unwrap();
    }
    table.delete(&key(7)).unwrap();
    let mut txn = db.begin();
    for n in [0, 8, 45, 70, 199] {
        txn.put(&table, &key(n), b"own").unwrap();
    }
    txn.delete(&table, &key(100)).unwrap();
    txn.delete_range(&table, key(120)..key(140)).unwrap();
    let snapshot = db.snapshot();
    let own = rows(txn.range(&table, ..).unwrap());
    let seen = rows(snapshot.range(&table, ..).unwrap());
    assert!(own != seen && own.len() > 140 && seen.len() > 150);

    // At each of these rows a scan stops, one for each direction.
    let mut idle = Vec::new();
    for stop in [0, 1, 2, 20, 39, 70, 71, 120, own.len()] {
        for (expected, scan) in
            [(&own, txn.range(&table, ..).unwrap()), (&seen, snapshot.range(&table, ..).unwrap())]
        {
            let mut scan = scan;
            let first = rows(scan.by_ref().take(stop));
            idle.push((true, first, scan, expected));
        }
        for (expected, scan) in
            [(&own, txn.range(&table, ..).unwrap()), (&seen, snapshot.range(&table, ..).unwrap())]
        {
            let mut scan = scan;
            let first = rows(scan.by_ref().rev().take(stop));
            idle.push((false, first, scan, expected));
        }
    }
    // A row that is lent meanwhile stays readable.
    let mut lending = snapshot.range(&table, ..).unwrap();
    let lent = lending.next_entry().unwrap().unwrap();
    let value = [7; 1000];
    for round in 0..10u32 {
        for n in (0..250).filter(|n| n % 2 == round % 2) {
            table.put(&key(n), &value).unwrap();
        }
        table.delete_range(key(round * 20)..key(round * 20 + 15)).unwrap();
        db.checkpoint().unwrap();
    }
    assert!(keeps_nothing_merged(&table));
    assert_eq!((lent.0, lent.1), (seen[0].0.as_bytes(), seen[0].1.as_bytes()));
    assert_eq!(rows(lending), seen[1..]);
    for (forward, mut given, scan, expected) in idle {
        let stop = given.len();
        given.extend(if forward { rows(scan) } else { rows(scan.rev()) });
        if !forward {
            given.reverse();
        }
        assert!(given == *expected, "stopped after {stop}, forward {forward}: {given:?}");
    }
}

/// INV-CKPT-5: at the boundary of a checkpoint the table's memtable is empty, and a commit with a number at or below the
/// boundary is about to be applied to it.
#[test]
fn a_table_with_a_commit_that_is_not_applied_yet_is_not_idle() {
    let env = SimEnv::new(1);
    let db = open(&env, Options { background: false, ..Options::default() });
    let (idle, table) = (db.table("idle").unwrap(), db.table("t").unwrap());
    idle.put(b"k", b"1").unwrap();
    db.checkpoint().unwrap();
    let memtable_count = |table: &Table| table.state.index.memtables().count();
    let meeting = hold_first_at(&db, "numbered");
    std::thread::scope(|scope| {
        scope.spawn(|| table.put(b"k", b"2").unwrap());
        meeting.wait_for(1);
        let checkpoint = scope.spawn(|| db.checkpoint().unwrap());
        while memtable_count(&table) < 2 {
            assert!(!checkpoint.is_finished(), "the table counts as idle");
            std::thread::yield_now();
        }
        assert_eq!(memtable_count(&idle), 1, "an idle table is left alone");
        meeting.open();
        assert_eq!(checkpoint.join().unwrap().covered, db.stats().visible);
    });
    let crashed = env.crash(CrashKind::PowerCut, 1);
    let table = open(&crashed, Options::default()).table("t").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(b"2".as_slice()), "replay begins after it");
}
