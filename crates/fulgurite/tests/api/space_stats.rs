//! Space one can see: what the bytes of the segments are, which of them a pin keeps, and how soon the disk is full.

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use crate::common::rng::Rng;
use fulgurite::env::Env;
use fulgurite::env::sim::SimEnv;
use fulgurite::{Database, Error, SegmentGroup, SegmentUse, Stats, Table};

fn start(seed: u64) -> (Arc<SimEnv>, Database, Rng) {
    let sim = SimEnv::new(seed);
    let db = common::open(sim.clone()).unwrap();
    (sim, db, Rng::new(seed))
}

fn pass(sim: &SimEnv, seconds: u64) {
    sim.clock().sleep(Duration::from_secs(seconds));
}

fn fill(db: &Database, table: &Table, rows: u64, len: usize, rng: &mut Rng) {
    for first in (0..rows).step_by(20) {
        let mut txn = db.begin();
        for n in first..(first + 20).min(rows) {
            txn.put(table, n.to_be_bytes(), rng.bytes(len)).unwrap();
        }
        txn.commit().unwrap();
    }
}

/// Writes and checkpoints until the statistics are as they should be.
fn until(db: &Database, table: &Table, what: &str, is_so: impl Fn(&Stats) -> bool) {
    for _ in 0..300 {
        let stats = db.stats();
        add_up(&stats);
        if is_so(&stats) {
            return;
        }
        table.put(b"nudge", b"").unwrap();
        db.checkpoint().unwrap();
        while db.maintain().unwrap() {}
        std::thread::yield_now();
    }
    panic!("{what}: {:#?}", db.stats().space);
}

/// Every segment is in one group, and the sums are those of the segments.
fn add_up(stats: &Stats) {
    let space = &stats.space;
    let sum = |figure: fn(&SegmentGroup) -> u64| space.uses.values().map(figure).sum::<u64>();
    assert_eq!(sum(|group| group.bytes), stats.segment_bytes, "{space:#?}");
    let counts = (stats.segments.commit, stats.segments.bulk, stats.segments.ready);
    let ready = space.uses.get(&SegmentUse::Ready).map_or(0, |group| group.count);
    assert_eq!(counts, (space.commit.count, space.bulk.count, ready), "{space:#?}");
    assert_eq!(sum(|group| group.live_bytes), space.commit.live_bytes + space.bulk.live_bytes);
    assert!(space.live_bytes() + space.dead_bytes() <= stats.segment_bytes);
    for (reason, group) in &space.uses {
        assert_eq!(group.pinned_for.is_some(), reason.is_pin(), "{reason:?}: {group:?}");
    }
}

fn has(stats: &Stats, reason: SegmentUse) -> bool {
    stats.space.uses.contains_key(&reason)
}

#[test]
fn a_snapshot_pins_what_a_dropped_table_has() {
    let (sim, db, mut rng) = start(1);
    let other = db.table("other").unwrap();
    let table = db.table("t").unwrap();
    fill(&db, &table, 1_500, 4_000, &mut rng);
    until(&db, &other, "live", |stats| {
        stats.space.live_bytes() > 5_500_000 && stats.space.pinned_bytes() == 0
    });
    let snapshot = db.snapshot();
    pass(&sim, 100);
    db.drop_table("t").unwrap();
    let pins_most = |stats: &Stats| {
        stats.space.uses.get(&SegmentUse::Snapshot).is_some_and(|group| group.live_bytes > 3_000_000)
    };
    until(&db, &other, "pinned", pins_most);
    let group = db.stats().space.uses[&SegmentUse::Snapshot];
    assert!(group.bytes >= group.live_bytes, "{group:?}");
    assert!(db.stats().space.pinned_bytes() >= group.bytes);
    let pinned_for = group.pinned_for.expect("it is a pin");
    assert!((100..1000).contains(&pinned_for.as_secs()), "since the snapshot was taken: {pinned_for:?}");
    assert!(group.oldest_age >= Duration::from_secs(100));
    drop(snapshot);
    until(&db, &other, "freed", |stats| {
        !has(stats, SegmentUse::Snapshot)
            && stats.space.pinned_bytes() == 0
            && stats.space.live_bytes() < 100_000
    });
}

#[test]
fn an_open_transaction_pins_what_it_wrote_ahead_and_checkpoints_end_that() {
    let (sim, db, mut rng) = start(2);
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    for n in 0..40u64 {
        txn.put(&table, n.to_be_bytes(), rng.bytes(300_000)).unwrap();
    }
    pass(&sim, 50);
    let stats = db.stats();
    add_up(&stats);
    let group = stats.space.uses[&SegmentUse::Transaction];
    assert!(group.bytes > 5_000_000 && group.live_bytes == 0, "{group:?}");
    assert!(group.pinned_for >= Some(Duration::from_secs(50)), "{group:?}");
    assert!(!has(&stats, SegmentUse::Dead), "{:#?}", stats.space);
    txn.commit().unwrap();
    let stats = db.stats();
    add_up(&stats);
    assert!(
        has(&stats, SegmentUse::Uncovered) && !has(&stats, SegmentUse::Transaction),
        "{:#?}",
        stats.space
    );
    until(&db, &table, "live", |stats| !has(stats, SegmentUse::Uncovered));
    assert!(db.stats().space.live_bytes() > 40 * 300_000);
    let mut dropped = db.begin();
    for n in 0..40u64 {
        dropped.put(&table, n.to_be_bytes(), rng.bytes(300_000)).unwrap();
    }
    assert!(has(&db.stats(), SegmentUse::Transaction));
    drop(dropped);
    let stats = db.stats();
    add_up(&stats);
    assert!(!has(&stats, SegmentUse::Transaction) && has(&stats, SegmentUse::Dead), "{:#?}", stats.space);
    assert!(stats.space.dead_bytes() > 5_000_000);
    until(&db, &table, "freed", |stats| stats.space.dead_bytes() < 5_000_000);
}

#[test]
fn a_check_pins_what_dies_meanwhile() {
    let (sim, db, mut rng) = start(3);
    let table = db.table("t").unwrap();
    fill(&db, &table, 6_000, 400, &mut rng);
    until(&db, &table, "live", |stats| stats.space.pinned_bytes() == 0);
    let mut seen = None;
    let report = db.check(|_| {
        if seen.is_none() {
            pass(&sim, 30);
            fill(&db, &table, 6_000, 400, &mut Rng::new(4));
            until(&db, &table, "pinned", |stats| has(stats, SegmentUse::Check));
            seen = db.stats().space.uses.get(&SegmentUse::Check).copied();
        }
    });
    assert_eq!(report.unwrap().problems, Vec::<String>::new());
    let group = seen.expect("a check of so many rows reports");
    assert!(group.bytes > 1_000_000 && group.pinned_for >= Some(Duration::from_secs(30)), "{group:?}");
    until(&db, &table, "freed", |stats| !has(stats, SegmentUse::Check));
}

/// A disk that fills at a constant rate: the time that is left is about right half-way, and none is left when puts are
/// refused. When nothing comes any more, it does not fill.
#[test]
fn the_time_until_puts_are_refused_is_known_before() {
    let (sim, db, mut rng) = start(5);
    let table = db.table("t").unwrap();
    let used: u64 = sim.list_raw().iter().map(|(_, len)| len).sum();
    sim.faults().space_bytes(Some(used + (48 << 20)));
    let mut predicted = Vec::new();
    let refused_at = 'load: loop {
        for n in 0..25u64 {
            let key = (predicted.len() as u64 * 25 + n).to_be_bytes();
            match table.put(key, rng.bytes(4_000)) {
                Ok(_) => {}
                Err(Error::NoSpace { .. }) => break 'load predicted.len() as u64,
                Err(error) => panic!("{error}"),
            }
        }
        pass(&sim, 1);
        while db.maintain().unwrap() {}
        predicted.push(db.stats().room.seconds_left);
        assert!(predicted.len() < 2_000, "the disk does not fill");
    };
    assert_eq!(predicted[0], None, "nothing is known of the first second");
    assert!(refused_at > 60, "refused after {refused_at} s");
    for second in [refused_at / 2, refused_at * 3 / 4] {
        let predicted = predicted[second as usize].expect("it fills");
        let left = refused_at - second;
        assert!((left / 2..=left * 2).contains(&predicted), "second {second}: {predicted} s, in fact {left}");
    }
    let last = predicted.last().copied().flatten().expect("it fills");
    assert!(last <= 20, "{last} s are left just before the end");
    pass(&sim, 100);
    assert_eq!(db.stats().room.seconds_left, None);
}

/// A small database has small segments, however large the disk is and however much is written to it.
#[test]
fn a_small_database_takes_little_space() {
    let (_sim, db, mut rng) = start(6);
    let table = db.table("t").unwrap();
    for _ in 0..100 {
        fill(&db, &table, 500, 1_000, &mut rng);
        while db.maintain().unwrap() {}
    }
    let stats = db.stats();
    assert!(stats.log.written_bytes > 40 << 20, "{} bytes", stats.log.written_bytes);
    // checkpoint_log_bytes is 1 MiB here: segments of the smallest size are enough.
    assert!(stats.segment_bytes < 16 << 20, "{:#?}", stats.space);
}

/// Old versions that only snapshots see are counted, until merges have removed them or their table is gone.
#[test]
fn superseded_versions_are_counted() {
    let db = common::open(SimEnv::new(9)).unwrap();
    let table = db.table("rows").unwrap();
    let overwrite = |round: u8| {
        (0..1_000u64).for_each(|n| _ = table.put(n.to_be_bytes(), [round; 20]).unwrap());
        db.checkpoint().unwrap();
        db.stats().superseded_versions
    };
    assert_eq!([overwrite(0), overwrite(1)], [0, 0]);
    let first = db.snapshot();
    assert_eq!([overwrite(2), overwrite(3)], [1_000, 1_000]);
    let second = db.snapshot();
    assert_eq!(overwrite(4), 2_000);
    drop(first);
    assert_eq!(overwrite(5), 1_000);
    drop(second);
    assert_eq!(overwrite(6), 0);
    let third = db.snapshot();
    assert_eq!(overwrite(7), 1_000);
    drop(third);
    db.drop_table("rows").unwrap();
    db.checkpoint().unwrap();
    assert_eq!(db.stats().superseded_versions, 0);
}
