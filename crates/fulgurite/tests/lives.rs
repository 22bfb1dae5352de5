//! Processes that die again and again: the log stays bounded, and so does the replay of the next open.

mod common;

use std::sync::Arc;
use std::time::Duration;

use fulgurite::env::SimEnv;
use fulgurite::env::sim::CrashKind;
use fulgurite::{Database, Error, Options};

fn check(db: &Database) {
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

/// One put in each life, and no time for anything else: the process is killed before its threads run.
#[test]
fn a_put_and_a_kill_again_and_again_do_not_fill_the_disk() {
    let mut sim = SimEnv::new(1);
    let mut most = 0;
    for life in 0..60u64 {
        let db = common::open(sim.clone()).unwrap();
        db.table("t").unwrap().put(&life.to_be_bytes(), b"v").unwrap();
        most = most.max(sim.used_bytes());
        let kind = if life % 3 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
        sim = sim.crash(kind, life);
    }
    assert!(most <= 24 << 20, "60 lives with a put each took {most} bytes");
    let db = common::open(sim).unwrap();
    assert_eq!(db.open_table("t").unwrap().range(..).unwrap().count(), 60);
    assert!(db.stats().checkpoint_covered.0 >= 40, "{:?}", db.stats().checkpoint_covered);
    check(&db);
}

/// Lives that each write less than makes a checkpoint due, but more than half of it. Threads run, as in a real process.
#[test]
fn lives_that_are_each_too_short_for_a_checkpoint_get_one_together() {
    let mut sim = SimEnv::new(2);
    for life in 0..8u64 {
        let db = common::open(sim.clone()).unwrap();
        let table = db.table("t").unwrap();
        for n in 0..700u64 {
            table.put(&(n % 100).to_be_bytes(), &[life as u8; 900]).unwrap();
            if n % 50 == 0 {
                db.maintain().unwrap();
            }
        }
        let stats = db.stats();
        let uncovered = stats.visible.0 - stats.checkpoint_covered.0;
        assert!(uncovered <= 2_000, "life {life} leaves {uncovered} commits to replay");
        sim = sim.crash(CrashKind::Kill, life);
    }
    assert!(sim.used_bytes() <= 24 << 20, "{} bytes for 100 KB", sim.used_bytes());
    check(&common::open(sim).unwrap());
}

/// Each process dies in its first checkpoint and leaves the records that it wrote; the next one removes them.
#[test]
fn checkpoints_that_are_cut_off_again_and_again_do_not_fill_the_disk() {
    let mut sim = SimEnv::new(3);
    let db = common::open(sim.clone()).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..3_000u64 {
        table.put(&n.to_be_bytes(), &[7; 100]).unwrap();
    }
    drop((db, table));
    let mut most = 0;
    for life in 0..30u64 {
        sim = sim.crash(CrashKind::Kill, life);
        let before = {
            let db = common::open(sim.clone()).unwrap();
            db.table("t").unwrap().put(b"k", &life.to_be_bytes()).unwrap();
            let faults = sim.faults();
            faults.crash_at(faults.op_count() + 2 + life % 5);
            _ = db.checkpoint();
            sim.used_bytes()
        };
        most = most.max(before);
    }
    assert!(most <= 32 << 20, "30 checkpoints that were cut off took {most} bytes");
    check(&common::open(sim.crash(CrashKind::Kill, 99)).unwrap());
}

/// The disk has only the database, which fills it, and every life ends with a kill.
#[test]
fn a_crash_loop_on_a_full_disk_never_ends_in_a_refusal_to_open() {
    let mut sim = SimEnv::new(4);
    for life in 0..80u64 {
        sim.faults().space_bytes(Some(24 << 20));
        let db = common::open(sim.clone());
        let db = db.unwrap_or_else(|error| panic!("life {life}: {error}"));
        let table = db.open_table("t").or_else(|_| db.table("t")).unwrap();
        let full = table.put(&(life % 10).to_be_bytes(), &[7; 5_000]).is_err();
        if full {
            table.delete(&(life % 10).to_be_bytes()).unwrap();
        }
        _ = db.maintain();
        sim = sim.crash(CrashKind::Kill, life);
    }
    sim.faults().space_bytes(None);
    check(&common::open(sim).unwrap());
}

/// Puts until the disk is full; returns how many succeeded.
fn fill(db: &Database, len: usize) -> u64 {
    let table = db.table("t").unwrap();
    for n in 0..100_000u64 {
        // Scattered, so that each checkpoint writes most leaves again.
        if table.put(&(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes(), &vec![n as u8; len]).is_err() {
            return n;
        }
        if n % 16 == 0 {
            _ = db.maintain();
        }
    }
    panic!("the disk does not fill up");
}

/// Loads 1,000 rows a transaction until the disk is full; returns how many succeeded.
fn load(db: &Database, len: usize) -> u64 {
    let table = db.table("t").unwrap();
    for batch in 0..1_000u64 {
        let mut txn = db.begin();
        for n in batch * 1_000..batch * 1_000 + 1_000 {
            let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            txn.put(&table, &key, &vec![n as u8; len]).unwrap();
        }
        if txn.commit().is_err() {
            return batch * 1_000;
        }
        _ = db.maintain();
    }
    panic!("the disk does not fill up");
}

/// With the threads of a real process, which compete for the remaining space.
#[test]
fn a_load_that_fills_the_disk_and_a_close_leave_a_database_that_opens() {
    for space in [36, 40, 44, 48] {
        let sim = SimEnv::new(5);
        sim.faults().space_bytes(Some(space << 20));
        let options = Options::default;
        let db = common::open_as(sim.clone(), options()).unwrap();
        let count = load(&db, 190);
        _ = db.close();
        let what = format!("{space} MiB");
        let db = common::open_as(sim.clone(), options()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let table = db.open_table("t").unwrap();
        assert_eq!(table.range(..).unwrap().count() as u64, count, "{what}");
        table.delete(&0u64.to_be_bytes()).unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&db);
    }
}

/// Other programs take all that is free, for many lives.
fn on_a_full_disk(clean: bool, mut life: impl FnMut(u64, &Database)) -> Arc<SimEnv> {
    let mut sim = SimEnv::new(6);
    let db = common::open(sim.clone()).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..2_000u64 {
        table.put(&n.to_be_bytes(), &[7; 500]).unwrap();
    }
    while db.maintain().unwrap() {}
    drop(table);
    db.close().unwrap();
    for nth in 0..20u64 {
        sim.faults().space_bytes(Some(sim.used_bytes()));
        let db = common::open(sim.clone()).unwrap_or_else(|error| panic!("life {nth}: {error}"));
        life(nth, &db);
        if clean {
            _ = db.close();
        }
        sim = sim.crash(CrashKind::Kill, nth);
    }
    sim
}

#[test]
fn a_disk_with_0_bytes_free_never_keeps_one_from_reading() {
    for clean in [true, false] {
        let mut left = 2_000;
        let sim = on_a_full_disk(clean, |life, db| {
            let table = db.open_table("t").unwrap();
            assert_eq!(table.range(..).unwrap().count(), left, "life {life}");
            for n in life * 50..life * 50 + 50 {
                match table.delete(&n.to_be_bytes()) {
                    Ok(_) => left -= 1,
                    Err(error) => {
                        assert!(life > 0 && matches!(error, Error::NoSpace { .. }), "life {life}: {error}")
                    }
                }
            }
            for _ in 0..10 {
                _ = db.maintain();
            }
        });
        assert!(left <= 2_000 - 50, "nothing was deleted");
        sim.faults().space_bytes(None);
        check(&common::open(sim).unwrap());
    }
}

/// Loads `len` bytes a value, `batch` values a transaction, until one is refused; returns how many succeeded.
fn load_values(db: &Database, len: usize, batch: u64) -> usize {
    let table = db.table("t").unwrap();
    let mut count = 0;
    for txn_number in 0.. {
        let mut txn = db.begin();
        let put = (0..batch).try_for_each(|n| {
            let key = (txn_number * batch + n).to_be_bytes();
            txn.put(&table, key, vec![n as u8; len])
        });
        match put.and_then(|()| txn.commit()) {
            Ok(_) => count += batch as usize,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                break;
            }
        }
    }
    count
}

/// A load that fills the disk, a kill, and lives that delete a little and are killed, while other programs take all
/// space that becomes free. Either the background threads run, or only opening itself does any work.
#[test]
fn kills_on_a_disk_that_a_load_filled_never_end_in_a_refusal_to_open() {
    for (len, batch) in [(100, 10), (1_000, 10), (20_000, 5), (60_000, 3), (200_000, 10)] {
        for background in [false, true] {
            let what = format!("{len} bytes a value, background {background}");
            let options = || Options {
                background,
                memtable_bytes_max: Some(4 << 20),
                checkpoint_log_bytes: 256 << 20,
                ..Options::default()
            };
            let mut sim = SimEnv::new(8);
            sim.faults().space_bytes(Some(32 << 20));
            let db = common::open_as(sim.clone(), options()).unwrap();
            while !background && db.maintain().unwrap() {}
            let mut count = load_values(&db, len, batch);
            drop(db);
            sim = sim.crash(CrashKind::Kill, 0);
            let mut deleted = 0;
            for life in 0..30u64 {
                sim.faults().space_bytes(Some(sim.used_bytes()));
                let db = common::open_as(sim.clone(), options())
                    .unwrap_or_else(|error| panic!("{what}, life {life}: {error}"));
                let table = db.open_table("t").unwrap();
                assert_eq!(table.range(..).unwrap().count(), count, "{what}, life {life}");
                match table.delete(life.to_be_bytes()) {
                    Ok(_) => {
                        deleted += 1;
                        count -= 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, Error::NoSpace { .. }), "{what}, life {life}: {error}")
                    }
                }
                if life % 3 == 0 {
                    _ = db.maintain();
                }
                sim = sim.crash(CrashKind::Kill, life);
            }
            if deleted == 0 {
                // The kill came after a checkpoint had taken all space except that for openings.
                assert!(background, "{what}: nothing could be deleted");
                sim.faults().space_bytes(Some(sim.used_bytes() + (3 << 20)));
                let db = common::open_as(sim.clone(), options()).unwrap();
                db.open_table("t").unwrap().delete(b"nothing").unwrap();
                sim = sim.crash(CrashKind::Kill, 99);
            }
            sim.faults().space_bytes(None);
            check(&common::open_as(sim, options()).unwrap());
        }
    }
}

/// A load fills a disk that holds nothing else, and processes are killed, each after a put that is refused. They left
/// segments with a few kilobytes in each, and then every delete was refused, in all later lives.
#[test]
fn kills_on_a_disk_that_a_load_filled_leave_room_to_delete() {
    for kills in 1..8u64 {
        for (len, space) in [(20_000, 64 << 20), (3_000, 40 << 20)] {
            let what = format!("{len} bytes a value, {kills} kills");
            let mut sim = SimEnv::new(kills);
            sim.faults().space_bytes(Some(space));
            let db = common::open_as(sim.clone(), Options::default()).unwrap();
            let count = load_values(&db, len, 1);
            drop(db);
            for life in 1..kills {
                sim = sim.crash(if life % 3 == 0 { CrashKind::PowerCut } else { CrashKind::Kill }, life);
                let db = common::open_as(sim.clone(), Options::default()).unwrap();
                _ = db.table("t").unwrap().put("more", "1");
            }
            sim = sim.crash(CrashKind::Kill, kills);
            let db = common::open_as(sim.clone(), Options::default()).unwrap();
            let table = db.open_table("t").unwrap();
            assert!(table.range(..).unwrap().count() >= count, "{what}");
            for n in 0..10u64 {
                table.delete(n.to_be_bytes()).unwrap_or_else(|error| panic!("{what}, delete {n}: {error}"));
            }
            table.delete_range(..).unwrap_or_else(|error| panic!("{what}: {error}"));
            _ = db.close();
            let db = common::open_as(sim, Options::default()).unwrap();
            let table = db.open_table("t").unwrap();
            // Checkpoints make the room, on a thread of their own.
            for round in 0.. {
                match table.put("again", vec![1; len]) {
                    Ok(_) => break,
                    Err(error) => assert!(round < 3_000, "{what}: {error}, {:?}", db.stats()),
                }
                std::thread::park_timeout(Duration::from_millis(10));
            }
            check(&db);
        }
    }
}

/// A process for each delete, as a shell loop has them, on a disk without a free byte.
#[test]
fn a_delete_in_each_life_on_a_disk_with_0_bytes_free_succeeds_to_the_last_row() {
    for clean in [true, false] {
        let mut sim = SimEnv::new(9);
        sim.faults().space_bytes(Some(40 << 20));
        let db = common::open_as(sim.clone(), Options::default()).unwrap();
        let count = load_values(&db, 100, 100);
        _ = db.close();
        sim.faults().space_bytes(Some(sim.used_bytes()));
        for life in 0..60u64 {
            let db = common::open_as(sim.clone(), Options::default()).unwrap();
            let table = db.open_table("t").unwrap();
            table
                .delete(life.to_be_bytes())
                .unwrap_or_else(|error| panic!("clean {clean}, life {life}: {error}"));
            drop(table);
            if clean {
                _ = db.close();
            } else {
                drop(db);
                sim = sim.crash(CrashKind::Kill, life);
            }
        }
        let db = common::open_as(sim.clone(), Options::default()).unwrap();
        assert_eq!(db.open_table("t").unwrap().range(..).unwrap().count(), count - 60);
        check(&db);
    }
}

#[test]
fn deleting_on_a_disk_with_0_bytes_free_makes_room_for_new_rows() {
    for clean in [true, false] {
        let mut sim = SimEnv::new(7);
        let db = common::open(sim.clone()).unwrap();
        sim.faults().space_bytes(Some(40 << 20));
        fill(&db, 5_000);
        if clean {
            _ = db.close();
        }
        sim = sim.crash(CrashKind::Kill, 1);
        sim.faults().space_bytes(Some(sim.used_bytes()));
        let db = common::open(sim.clone()).unwrap();
        let table = db.open_table("t").unwrap();
        table.delete_range(..).unwrap();
        // Segments are freed after the readers' epochs have passed, which other tests of this process may delay.
        for _ in 0..3_000 {
            _ = db.maintain();
            if table.put(b"first", b"").is_ok() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        for n in 0..1_000u64 {
            table.put(&n.to_be_bytes(), &[7; 100]).unwrap_or_else(|error| panic!("clean {clean}: {error}"));
        }
        check(&db);
    }
}
