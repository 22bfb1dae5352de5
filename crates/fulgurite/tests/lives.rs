//! Processes that die again and again: the log stays bounded, and so does what the next open replays.

mod common;

use fulgurite::Database;
use fulgurite::env::SimEnv;
use fulgurite::env::sim::CrashKind;

fn used_bytes(sim: &SimEnv) -> u64 {
    sim.list_raw().iter().map(|(_, len)| len).sum()
}

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
        most = most.max(used_bytes(&sim));
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
    assert!(used_bytes(&sim) <= 24 << 20, "{} bytes for 100 KB", used_bytes(&sim));
    check(&common::open(sim).unwrap());
}

/// A process that dies in its first checkpoint each time leaves what it wrote of it, and the next one removes that.
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
            used_bytes(&sim)
        };
        most = most.max(before);
    }
    assert!(most <= 32 << 20, "30 checkpoints that were cut off took {most} bytes");
    check(&common::open(sim.crash(CrashKind::Kill, 99)).unwrap());
}

/// The disk holds nothing but the database, which fills it, and every life ends with a kill.
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
