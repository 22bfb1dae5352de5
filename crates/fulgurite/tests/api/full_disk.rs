//! A full disk is a state that checkpoints end: on the simulated disk. `full_disk_real.rs` has real ones.

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use crate::common::rng::Rng;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Error, Options, Result, Table};

const DISK_BYTES: u64 = 48 << 20;
const ROW_BYTES: usize = 100;

fn options(background: bool) -> Options {
    Options { background, memtable_bytes_max: Some(2 << 20), ..Options::default() }
}

fn start(seed: u64, background: bool) -> (Arc<SimEnv>, Database, Rng) {
    let sim = SimEnv::new(seed);
    sim.faults().space_bytes(Some(DISK_BYTES));
    let db = common::open_as(sim.clone(), options(background)).unwrap();
    (sim, db, Rng::new(seed))
}

fn put_rows(db: &Database, table: &Table, rows: impl Iterator<Item = u64>, rng: &mut Rng) -> Result<()> {
    let mut txn = db.begin();
    for n in rows {
        txn.put(table, n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), rng.bytes(ROW_BYTES))?;
    }
    txn.commit().map(|_| ())
}

fn load(db: &Database, table: &Table, rows: u64, rng: &mut Rng) {
    for first in (0..rows).step_by(200) {
        put_rows(db, table, first..first + 200, rng)
            .unwrap_or_else(|error| panic!("loading row {first} of {rows}: {error}; {:?}", db.stats().room));
    }
}

fn sound(db: &Database) {
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

/// If another program has taken the space that was kept, the next checkpoint may not fit, and deletes are refused, too.
fn delete_if_it_fits(table: &Table, key: &[u8]) {
    let deleted = table.delete(key);
    assert!(matches!(deleted, Ok(_) | Err(Error::NoSpace { .. })), "{deleted:?}");
}

/// Each round dirties nearly every leaf (INV-SPACE-3).
#[test]
fn live_data_of_a_quarter_of_the_disk_is_overwritten_without_a_refusal() {
    for background in [true, false] {
        let (sim, db, mut rng) = start(1, background);
        let table = db.table("t").unwrap();
        let rows = DISK_BYTES / 4 / (ROW_BYTES as u64 + 40) / 200 * 200;
        load(&db, &table, rows, &mut rng);
        for n in 0..5 * rows / 200 {
            let picks: Vec<u64> = (0..200).map(|_| rng.below(rows)).collect();
            put_rows(&db, &table, picks.into_iter(), &mut rng).unwrap_or_else(|error| {
                panic!("background {background}, overwriting {n}: {error}; {:?}", db.stats())
            });
            if n % 97 == 0 {
                let room = db.stats().room;
                assert!(room.reserved_bytes > 0 && room.puts_refused.is_none(), "{room:?}");
            }
        }
        assert!(db.stats().waits.space.count > 0, "the disk was large enough for all");
        assert_eq!(table.range(..).unwrap().count() as u64, rows);
        sound(&db);
        db.close().unwrap();
        let db = common::open_as(sim.crash(CrashKind::PowerCut, 1), options(background)).unwrap();
        assert_eq!(db.table("t").unwrap().range(..).unwrap().count() as u64, rows);
    }
}

/// The disk is filled, some rows and a range are deleted, and others are written, without a restart.
#[test]
fn a_disk_that_is_full_is_written_again_after_deletes() {
    let (sim, db, mut rng) = start(2, true);
    let table = db.table("t").unwrap();
    let mut filled = 0;
    let refused = loop {
        match put_rows(&db, &table, filled..filled + 50, &mut rng) {
            Ok(()) => filled += 50,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    let room = db.stats().room;
    assert!(room.puts_refused.is_some_and(|why| why.contains("kept for the next checkpoint")));
    assert!(filled * ROW_BYTES as u64 > DISK_BYTES / 4, "{filled} rows fill the disk");
    for round in 0..2u64 {
        for n in 0..20u64 {
            let key = (round * 20 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            table.delete(key).unwrap_or_else(|error| panic!("round {round}, delete {n}: {error}"));
        }
        let (from, to) = ([64 * round as u8], [64 * round as u8 + 63]);
        table.delete_range(from..to).unwrap_or_else(|error| panic!("round {round}: {error}"));
        for first in (0..filled / 16).step_by(50) {
            put_rows(&db, &table, first..first + 50, &mut rng)
                .unwrap_or_else(|error| panic!("round {round}, row {first}: {error}; {:?}", db.stats().room));
        }
    }
    assert!(db.stats().room.puts_refused.is_none());
    sound(&db);
    let count = table.range(..).unwrap().count();
    let killed = sim.crash(CrashKind::Kill, 3);
    let again = common::open_as(killed, options(true)).unwrap();
    let table = again.table("t").unwrap();
    assert_eq!(table.range(..).unwrap().count(), count);
    table.delete_range(..).unwrap();
    again.close().unwrap();
}

/// What was deleted while a snapshot saw it is room once the snapshot has ended, although nothing else is committed and no time
/// passes. The snapshot may be that of a commit which waits for this room, in vain, and an older one may stay.
#[test]
fn what_an_ended_snapshot_held_is_room_for_the_next_write() {
    for case in 0..8 {
        let (background, waits, beside_older) = (case & 1 != 0, case & 2 != 0, case & 4 != 0);
        let (_, db, _) = start(1, background);
        let table = db.table("t").unwrap();
        let _older = beside_older.then(|| db.snapshot());
        let value = vec![1; 20_000];
        let put = |n: u32| table.put(n.to_be_bytes(), &value);
        let rows = (0..10_000).find(|n| put(*n).is_err()).unwrap();
        let mut txn = db.begin();
        (0..rows).for_each(|n| _ = table.delete(n.to_be_bytes()).unwrap());
        if waits {
            txn.put(&table, "waits", &value).unwrap();
            _ = txn.commit();
        } else {
            db.checkpoint().unwrap();
            drop(txn);
        }
        let has_room = (0..1_000).any(|_| {
            if !background {
                while db.maintain().unwrap() {}
            }
            std::thread::park_timeout(Duration::from_millis(3));
            put(0).is_ok()
        });
        assert!(has_room, "{background}, {waits}, {beside_older}: {:?}", db.stats());
        sound(&db);
    }
}

/// Rows that expire are room once they have, although they were looked at before, for the sake of a commit that was refused.
#[test]
fn rows_that_have_expired_since_a_refusal_are_room() {
    const LIVE: Duration = Duration::from_secs(300);
    let (sim, db, _) = start(1, false);
    let table = db.table("t").unwrap();
    let put = |n: u32| table.put_expiring(n.to_be_bytes(), vec![1; 2_000], LIVE);
    let rows = (0..100_000).find(|n| put(*n).is_err()).unwrap();
    let maintain = || (0..300).for_each(|_| while db.maintain().unwrap() {});
    maintain();
    assert!(put(rows).is_err(), "they have not expired");
    sim.advance(LIVE);
    maintain();
    assert!(put(rows).is_ok(), "{:?}", db.stats());
    sound(&db);
}

/// Space that another program took and gives back is used without a restart.
#[test]
fn space_that_comes_back_is_used() {
    let (sim, db, mut rng) = start(3, true);
    let table = db.table("t").unwrap();
    load(&db, &table, 20_000, &mut rng);
    for _ in 0..5 {
        sim.faults().space_bytes(Some(sim.used_bytes()));
        // New rows, in the end: overwriting the same ones may go on, as checkpoints free what they replace.
        let new = |n: u64| n * 50..n * 50 + 50;
        let refused = (0..10_000).find_map(|n| put_rows(&db, &table, new(n), &mut rng).err());
        assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
        delete_if_it_fits(&table, &1u64.to_be_bytes());
        sim.faults().space_bytes(Some(DISK_BYTES));
        for n in 0.. {
            match put_rows(&db, &table, n..n + 50, &mut rng) {
                Ok(()) => break,
                // What a file that was refused says of the free space counts for a second.
                Err(error) => assert!(n < 300, "{error}"),
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        load(&db, &table, 2_000, &mut rng);
    }
    sound(&db);
    db.close().unwrap();
}

/// With a quota the file system may report more space than there is: only a file that gets none tells. Nothing acknowledged
/// is lost, reads go on, and once there is space, writes do, without a restart.
#[test]
fn a_quota_that_the_file_system_does_not_report() {
    let (sim, db, mut rng) = start(4, true);
    sim.faults().reports_space(Some(1 << 40));
    let table = db.table("t").unwrap();
    let mut rows = 0;
    for round in 1..3u64 {
        let refused = loop {
            match put_rows(&db, &table, rows..rows + 50, &mut rng) {
                Ok(()) => rows += 50,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        assert_eq!(table.range(..).unwrap().count() as u64, rows);
        assert!(db.stats().poisoned.is_none());
        sim.faults().space_bytes(Some((round + 1) * DISK_BYTES));
        let goes_on = (0..300).find(|_| {
            std::thread::park_timeout(Duration::from_millis(10));
            sim.advance(Duration::from_millis(10));
            put_rows(&db, &table, rows..rows + 50, &mut rng).is_ok()
        });
        assert!(goes_on.is_some(), "round {round}: {:?}", db.stats());
        rows += 50;
    }
    // Nothing was kept for the checkpoint: it needs as much as it says (`RoomStats::reserved_bytes`).
    sim.faults().space_bytes(Some(sim.used_bytes() + 2 * db.stats().room.reserved_bytes));
    sim.advance(Duration::from_secs(2));
    sound(&db);
    db.close().unwrap();
    let db = common::open_as(sim.crash(CrashKind::PowerCut, 1), options(true)).unwrap();
    assert_eq!(db.table("t").unwrap().range(..).unwrap().count() as u64, rows);
}

/// Records of a dropped table lie beside live ones in the segments that are cleaned: they are dead, and stay so.
#[test]
fn tables_are_dropped_while_segments_are_cleaned() {
    let (_sim, db, mut rng) = start(5, true);
    let kept = db.table("kept").unwrap();
    let mut filled = 0;
    for round in 0..3 {
        let dropped = db.table("dropped").unwrap();
        let refused = (0..100_000).find_map(|n| {
            let table = if n % 2 == 0 { &dropped } else { &kept };
            put_rows(&db, table, n * 50..(n + 1) * 50, &mut rng)
                .inspect(|()| filled += 50 * u64::from(n % 2 == 1))
                .err()
        });
        assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
        db.drop_table("dropped").unwrap();
        for n in 0..40 {
            let rows: Vec<u64> = (0..50).map(|_| rng.below(50) + 50).collect();
            put_rows(&db, &kept, rows.into_iter(), &mut rng)
                .unwrap_or_else(|error| panic!("round {round}, {n}: {error}; {:?}", db.stats().room));
        }
        assert_eq!(db.stats().maintenance_error, None);
        sound(&db);
        kept.delete_range([0x40]..).unwrap();
    }
    assert!(filled > 0);
    db.close().unwrap();
}
