//! Disk space: dead segments are freed, those that a snapshot or a transaction needs are not.

use crate::common;

use std::sync::Arc;

use crate::common::rng::Rng;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, LogStats, Options, Table};

fn start(seed: u64) -> (Arc<SimEnv>, Database, Rng) {
    let sim = SimEnv::new(seed);
    let db = common::open(sim.clone()).unwrap();
    (sim, db, Rng::new(seed))
}

/// Overwrites all keys with values of `len` bytes.
fn overwrite(db: &Database, table: &Table, keys: u64, len: usize, rng: &mut Rng) {
    for first in (0..keys).step_by(20) {
        let mut txn = db.begin();
        for n in first..(first + 20).min(keys) {
            txn.put(table, format!("key {n:05}").as_bytes(), &rng.bytes(len)).unwrap();
        }
        txn.commit().unwrap();
    }
}

/// Checkpoints until nothing more becomes free. A segment is freed only when neither of two checkpoints needs it, and
/// after the readers' epochs have passed, which other tests of this process may delay.
fn tidy(db: &Database, table: Option<&Table>) {
    for round in 0..500 {
        let segments = db.stats().segments;
        if round >= 5 && segments.commit + segments.bulk <= 4 {
            break;
        }
        std::thread::yield_now();
        if let Some(table) = table {
            table.put(b"nudge", b"").unwrap();
        }
        db.checkpoint().unwrap();
        while db.maintain().unwrap() {}
    }
}

fn used_bytes(sim: &SimEnv) -> u64 {
    sim.list_raw().iter().map(|(_, len)| len).sum()
}

fn sound(db: &Database) {
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn overwriting_does_not_grow_the_database() {
    for len in [30, 150, 3_000, 80_000] {
        let (_sim, db, mut rng) = start(1);
        let table = db.table("t").unwrap();
        let keys = if len < 10_000 { 200 } else { 20 };
        let mut counts = Vec::new();
        for _ in 0..40 {
            overwrite(&db, &table, keys, len, &mut rng);
            db.checkpoint().unwrap();
            while db.maintain().unwrap() {}
            let segments = db.stats().segments;
            counts.push(segments.commit + segments.bulk + segments.ready);
        }
        let stats = db.stats();
        let logical = keys * (len as u64 + 40);
        assert!(
            counts.iter().all(|count| *count <= 14),
            "values of {len} bytes: segments by round: {counts:?}"
        );
        assert!(stats.live_bytes <= 2 * logical + 60_000, "{} live bytes for {logical}", stats.live_bytes);
        sound(&db);
    }
}

/// Overwrites a twentieth as many rows as the table has, at random, in a checkpoint; returns the bytes of the bulk stream for a
/// hundred live ones.
fn overwrite_some(db: &Database, table: &Table, rows: u64, rng: &mut Rng) -> u64 {
    for _ in 0..rows / 400 {
        let mut txn = db.begin();
        for _ in 0..20 {
            txn.put(table, format!("key {:05}", rng.below(rows)).as_bytes(), &rng.bytes(100)).unwrap();
        }
        txn.commit().unwrap();
    }
    db.checkpoint().unwrap();
    while db.maintain().unwrap() {}
    let stats = db.stats();
    stats.space.bulk.bytes * 100 / stats.live_bytes
}

/// Random overwrites leave live records in old segments: full ones on which leaf delta records are based, and those of leaves
/// that do not change. Nodes leave these segments when little in them is live, so that they become free: the bulk stream has
/// 1.8 times the live bytes on average, 2.3 times if only leaves leave that are dirty anyway, 3.0 times if none does. Of leaves
/// so small that most are clean at each checkpoint it would have eight to ten times the live bytes.
#[test]
fn segments_of_a_tree_that_changes_at_random_become_free() {
    for (leaf_bytes, most) in [(8192, 210), (512, 250)] {
        let options = Options { leaf_bytes, ..common::options() };
        let db = common::open_as(SimEnv::new(12), options).unwrap();
        let mut rng = Rng::new(12);
        let table = db.table("t").unwrap();
        let rows = 40_000;
        overwrite(&db, &table, rows, 100, &mut rng);
        let percent: Vec<u64> = (0..60).map(|_| overwrite_some(&db, &table, rows, &mut rng)).collect();
        let steady = &percent[20..];
        let average = steady.iter().sum::<u64>() / steady.len() as u64;
        assert!(average <= most, "leaves of {leaf_bytes} bytes: {average} % on average: {percent:?}");
        sound(&db);
    }
}

/// While one transaction commits another one always has a snapshot, for which the versions from before are kept. These go
/// when their leaf changes next: otherwise each row would have two in the end.
#[test]
fn what_short_snapshots_keep_does_not_stay() {
    let options = Options { leaf_bytes: 8192, ..common::options() };
    let db = common::open_as(SimEnv::new(14), options).unwrap();
    let mut rng = Rng::new(14);
    let table = db.table("t").unwrap();
    let rows = 10_000;
    overwrite(&db, &table, rows, 100, &mut rng);
    db.checkpoint().unwrap();
    let live_bytes = db.stats().live_bytes;
    let mut open = db.begin();
    for _ in 0..400 {
        let mut txn = db.begin();
        for _ in 0..100 {
            let key = format!("key {:05}", rng.below(rows));
            txn.put(&table, key.as_bytes(), &rng.bytes(100)).unwrap();
        }
        txn.commit().unwrap();
        db.checkpoint().unwrap();
        open = db.begin();
    }
    drop(open);
    let percent = db.stats().live_bytes * 100 / live_bytes;
    assert!(percent <= 150, "{percent} % of the rows alone");
    sound(&db);
}

/// Tables that do not change leave the segments that another table filled around them.
#[test]
fn idle_tables_do_not_keep_segments() {
    let (_sim, db, mut rng) = start(13);
    let table = db.table("t").unwrap();
    let rows = 10_000;
    overwrite(&db, &table, rows, 100, &mut rng);
    for round in 0..40 {
        db.table(&format!("idle {round}")).unwrap().put(b"key", b"value").unwrap();
        for _ in 0..4 {
            overwrite_some(&db, &table, rows, &mut rng);
        }
    }
    let percent: Vec<u64> = (0..20).map(|_| overwrite_some(&db, &table, rows, &mut rng)).collect();
    let average = percent.iter().sum::<u64>() / percent.len() as u64;
    assert!(average <= 300, "{average} % on average: {percent:?}");
    sound(&db);
}

#[test]
fn dropped_tables_return_their_space() {
    let (sim, db, mut rng) = start(2);
    for name in ["a", "b", "c"] {
        let table = db.create_table(name).unwrap();
        for len in [40, 2_000, 70_000] {
            overwrite(&db, &table, 60, len, &mut rng);
        }
        db.checkpoint().unwrap();
        overwrite(&db, &table, 60, 900, &mut rng);
    }
    assert!(db.stats().live_bytes > 100_000);
    for name in ["a", "b", "c"] {
        db.drop_table(name).unwrap();
    }
    let other = db.create_table("other").unwrap();
    tidy(&db, Some(&other));
    let stats = db.stats();
    assert!(stats.live_bytes < 10_000, "{} live bytes without tables", stats.live_bytes);
    assert!(stats.segments.commit + stats.segments.bulk <= 4, "segments: {:?}", stats.segments);
    db.close().unwrap();
    let db = common::open(sim.clone()).unwrap();
    tidy(&db, Some(&db.open_table("other").unwrap()));
    assert!(used_bytes(&sim) <= 20 << 20, "{} bytes on disk, {:?}", used_bytes(&sim), sim.list_raw());
    sound(&db);
}

/// A drop that is replayed frees the table's space all the same.
#[test]
fn a_drop_that_is_replayed_returns_its_space() {
    let (sim, db, mut rng) = start(3);
    let table = db.create_table("a").unwrap();
    for len in [40, 2_000, 70_000, 140_000] {
        overwrite(&db, &table, 60, len, &mut rng);
    }
    db.checkpoint().unwrap();
    overwrite(&db, &table, 30, 70_000, &mut rng);
    db.drop_table("a").unwrap();
    let left = sim.crash(CrashKind::PowerCut, 1);
    let db = common::open(left.clone()).unwrap();
    assert!(db.tables().unwrap().is_empty());
    let other = db.create_table("other").unwrap();
    tidy(&db, Some(&other));
    assert!(db.stats().live_bytes < 10_000, "{} live bytes", db.stats().live_bytes);
    let again = common::open(left.crash(CrashKind::PowerCut, 2)).unwrap();
    sound(&again);
}

#[test]
fn deleting_everything_returns_its_space() {
    for range in [false, true] {
        let (_sim, db, mut rng) = start(4);
        let table = db.create_table("t").unwrap();
        for len in [40, 2_000, 70_000, 140_000] {
            overwrite(&db, &table, 100, len, &mut rng);
        }
        db.checkpoint().unwrap();
        if range {
            table.delete_range(..).unwrap();
        } else {
            for n in 0..100 {
                table.delete(format!("key {n:05}").as_bytes()).unwrap();
            }
        }
        tidy(&db, Some(&table));
        let stats = db.stats();
        assert!(stats.live_bytes < 10_000, "range {range}: {} live bytes", stats.live_bytes);
        assert!(stats.segments.commit + stats.segments.bulk <= 4, "range {range}: {:?}", stats.segments);
        sound(&db);
    }
}

/// A snapshot keeps exactly the versions that it sees, across checkpoints; when it is dropped, they are freed.
#[test]
fn a_snapshot_keeps_the_versions_that_it_sees() {
    for len in [30, 3_000, 90_000] {
        let (_sim, db, mut rng) = start(5);
        let table = db.create_table("t").unwrap();
        let keys = if len < 10_000 { 150 } else { 15 };
        overwrite(&db, &table, keys, len, &mut rng);
        let snapshot = db.snapshot();
        let before: Vec<_> = snapshot.range(&table, ..).unwrap().map(Result::unwrap).collect();
        let before: Vec<_> = before.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        for round in 0..6 {
            overwrite(&db, &table, keys, len, &mut rng);
            if round == 3 {
                table.delete_range(b"key 00003".as_slice()..).unwrap();
            }
            tidy(&db, Some(&table));
            let after: Vec<_> = snapshot.range(&table, ..).unwrap().map(Result::unwrap).collect();
            assert!(
                before.iter().map(|(k, v)| (&k[..], &v[..])).eq(after.iter().map(|(k, v)| (&k[..], &v[..]))),
                "values of {len} bytes, round {round}"
            );
            assert!(db.stats().live_bytes as usize <= keys as usize * (len + 60) * 2 + 90_000);
        }
        sound(&db);
        drop(snapshot);
        overwrite(&db, &table, keys, len, &mut rng);
        tidy(&db, Some(&table));
        let live = db.stats().live_bytes;
        assert!(live as usize <= keys as usize * (len + 60) + 60_000, "{live} live bytes after the snapshot");
        sound(&db);
    }
}

/// A dropped table stays whole, values outside its leaves included, while a snapshot sees it.
#[test]
fn a_snapshot_keeps_a_dropped_table() {
    for checkpoint_before in [false, true] {
        for len in [30, 3_000, 90_000] {
            let (_sim, db, mut rng) = start(6);
            let (table, other) = (db.create_table("t").unwrap(), db.create_table("other").unwrap());
            overwrite(&db, &table, 20, len, &mut rng);
            if checkpoint_before {
                db.checkpoint().unwrap();
                overwrite(&db, &table, 10, len, &mut rng);
            }
            let snapshot = db.snapshot();
            let read = || -> Result<Vec<Vec<u8>>, fulgurite::Error> {
                snapshot.range(&table, ..)?.map(|entry| Ok(entry?.1.to_vec())).collect()
            };
            let before = read().unwrap();
            db.drop_table("t").unwrap();
            for round in 0..8 {
                overwrite(&db, &other, 200, 3_000, &mut rng);
                tidy(&db, None);
                let what =
                    format!("values of {len} bytes, checkpoint before {checkpoint_before}, round {round}");
                let after = read().unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(before == after, "{what}");
            }
            drop(snapshot);
            tidy(&db, Some(&other));
            let live = db.stats().live_bytes;
            assert!(
                live <= 200 * 3_100 + 60_000,
                "values of {len} bytes: {live} live bytes after the snapshot"
            );
            sound(&db);
        }
    }
}

/// The chunks that a transaction wrote ahead stay while it is open, and are freed after it gives up.
#[test]
fn an_open_transaction_keeps_its_chunks() {
    let (_sim, db, mut rng) = start(7);
    let (table, other) = (db.create_table("t").unwrap(), db.create_table("other").unwrap());
    let (kept, given_up) = (rng.bytes(900_000), rng.bytes(900_000));
    let mut txn = db.begin();
    txn.put(&table, b"kept", &kept).unwrap();
    let mut abort = db.begin();
    abort.put(&table, b"given up", &given_up).unwrap();
    for _ in 0..6 {
        overwrite(&db, &other, 40, 80_000, &mut rng);
        tidy(&db, Some(&other));
        assert_eq!(txn.get(&table, b"kept").unwrap().unwrap(), kept);
        assert_eq!(abort.get(&table, b"given up").unwrap().unwrap(), given_up);
    }
    abort.rollback();
    txn.commit().unwrap();
    for _ in 0..4 {
        overwrite(&db, &other, 40, 80_000, &mut rng);
        tidy(&db, Some(&other));
        assert_eq!(table.get(b"kept").unwrap().unwrap(), kept);
    }
    let live = db.stats().live_bytes;
    assert!(live <= 900_000 + 40 * 81_000 + 60_000, "{live} live bytes");
    assert!(table.get(b"given up").unwrap().is_none());
    sound(&db);
}

/// A range iterator keeps the segments that it has still to read.
#[test]
fn a_scan_continues_across_checkpoints() {
    let (_sim, db, mut rng) = start(8);
    let table = db.create_table("t").unwrap();
    overwrite(&db, &table, 60, 3_000, &mut rng);
    let before: Vec<_> = table.range(..).unwrap().map(|entry| entry.unwrap().1.to_vec()).collect();
    let mut scan = table.range(..).unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.extend(scan.by_ref().take(10).map(|entry| entry.unwrap().1.to_vec()));
        overwrite(&db, &table, 60, 20_000, &mut rng);
        tidy(&db, Some(&table));
    }
    seen.extend(scan.map(|entry| entry.unwrap().1.to_vec()));
    assert!(before == seen, "the scan saw other values");
}

#[test]
fn stats_tell_what_was_written_for_the_users_bytes() {
    let sim = SimEnv::new(11);
    let db = common::open(sim).unwrap();
    assert_eq!(db.stats().write_amplification(), None);
    let table = db.table("t").unwrap();
    let before = db.stats();
    table.put(b"12345678", [1; 92]).unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"long", &vec![2; 200_000]).unwrap();
    txn.delete(&table, b"12345678").unwrap();
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    let after = db.stats();
    assert_eq!(after.user_bytes - before.user_bytes, 100 + 200_004 + 8);
    assert!(after.log.chunk_bytes - before.log.chunk_bytes > 200_000);
    assert!(after.log.node_bytes > before.log.node_bytes && after.log.leaf_delta_bytes == 0);
    let LogStats { bulk_bytes, node_bytes, chunk_bytes, .. } = after.log;
    assert!(bulk_bytes > node_bytes + chunk_bytes, "and the checkpoint's record");
    assert!(after.write_amplification().unwrap() > 1.0);
    let (writes, LogStats { written_bytes, bulk_written_bytes, zero_bytes, .. }) =
        (after.writes(), after.log);
    assert_eq!(writes.total(), written_bytes + bulk_written_bytes + zero_bytes);
    assert_eq!((writes.chunks, writes.checkpoints), (chunk_bytes, node_bytes));
    assert_eq!((writes.evictions, writes.moved_values), (0, 0));
    assert!(writes.commits >= 100 && writes.other > 0, "{writes:?}");
}

/// The bytes of the keys and values that a scan sees.
fn data_bytes(tables: &[&Table]) -> u64 {
    let entries = tables.iter().flat_map(|table| table.range(..).unwrap());
    entries.map(|entry| entry.map(|(key, value)| (key.len() + value.len()) as u64).unwrap()).sum()
}

#[test]
fn the_bytes_of_keys_and_values_are_counted_exactly() {
    for seed in 0..5 {
        let (mut sim, mut db, mut rng) = start(100 + seed);
        let names = ["a", "b"];
        for round in 0..12 {
            let tables = names.map(|name| db.table(name).unwrap());
            let snapshot = (round % 3 == 0).then(|| db.snapshot());
            for table in &tables {
                let len = [0, 40, 700, 30_000][rng.below(4) as usize];
                overwrite(&db, table, 20 + rng.below(150), len, &mut rng);
                for _ in 0..30 {
                    table.delete(format!("key {:05}", rng.below(170)).as_bytes()).unwrap();
                }
            }
            db.checkpoint().unwrap();
            let [a, b] = &tables;
            assert_eq!(db.stats().data_bytes, Some(data_bytes(&[a, b])), "seed {seed}, round {round}");
            // Merged and evicted, but in no checkpoint when it dies, or is closed.
            overwrite(&db, a, 100, 40, &mut rng);
            while db.maintain().unwrap() {}
            drop(snapshot);
            sound(&db);
            drop(tables);
            match round % 4 {
                0 => db.close().unwrap(),
                1 => {
                    sim = sim.crash(CrashKind::PowerCut, round);
                    drop(db);
                }
                _ => continue,
            }
            db = common::open(sim.clone()).unwrap();
            sound(&db);
        }
        db.drop_table("b").unwrap();
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        let a = db.table("a").unwrap();
        assert_eq!(db.stats().data_bytes, Some(data_bytes(&[&a])));
    }
}
