//! The events that a database reports, and its counters.

mod common;

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Once;
use std::time::Duration;

use fulgurite::env::Env;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Error, Isolation, Options};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    /// The events of this thread since [`events`] began: of a database without threads of its own that is all of them.
    static KEPT: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the events of each thread apart.
struct Keeper;

impl Keeper {
    /// Every test calls it first: an event that first occurs while the keeper is being installed may stay off forever.
    fn install() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| tracing::subscriber::set_global_default(Keeper).expect("there is no other"));
    }
}

/// An event on a line: the message, then the fields.
#[derive(Default)]
struct Line(String, String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        } else {
            self.1 += &format!(" {}={value:?}", field.name());
        }
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("fulgurite")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        KEPT.with_borrow_mut(|kept| kept.push((*event.metadata().level(), line.0 + &line.1)));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The events of `life`.
fn events(life: impl FnOnce()) -> Vec<(Level, String)> {
    KEPT.take();
    life();
    KEPT.take()
}

/// Each of `expected` is the beginning of one event at info, in this order, and there are no others.
fn are(events: &[(Level, String)], expected: &[&str]) {
    let fits = |((level, event), expected): (&(Level, String), &&str)| {
        *level == Level::INFO && event.starts_with(expected)
    };
    assert!(
        events.len() == expected.len() && events.iter().zip(expected).all(fits),
        "expected {expected:#?}, came {events:#?}"
    );
}

#[test]
fn a_life_without_trouble_reports_its_work() {
    Keeper::install();
    let sim = SimEnv::new(1);
    let events_seen = events(|| {
        let db = common::open(sim.clone()).unwrap();
        let table = db.table("apples").unwrap();
        table.put("key", "value").unwrap();
        db.rename_table("apples", "pears").unwrap();
        db.drop_table("pears").unwrap();
        db.checkpoint().unwrap();
        db.close().unwrap();
    });
    are(
        &events_seen,
        &[
            "opened path=/db found=\"nothing\" replayed_commits=0 replayed_bytes=0 tables=0 took_ms=",
            "made a table path=/db table=\"apples\"",
            "renamed a table path=/db table=\"apples\" to=\"pears\"",
            "dropped a table path=/db table=\"pears\"",
            "wrote a checkpoint path=/db covered=4 records_written=",
            "wrote a checkpoint path=/db covered=4 records_written=0",
            "closed path=/db took_ms=",
        ],
    );
}

#[test]
fn opening_reports_whether_the_database_was_closed_and_how_much_it_replayed() {
    Keeper::install();
    let sim = SimEnv::new(2);
    let db = common::open(sim.clone()).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..10u8 {
        table.put([n], "value").unwrap();
    }
    let killed = sim.crash(CrashKind::Kill, 1);
    drop((table, db));
    let open = |env: &std::sync::Arc<SimEnv>| {
        let env: std::sync::Arc<dyn Env> = env.clone();
        events(|| std::mem::forget(common::open(env).unwrap()))
    };
    let closed = open(&sim);
    are(&closed, &["opened path=/db found=\"a closed database\" replayed_commits=0 replayed_bytes="]);
    let events_seen = open(&killed);
    are(
        &events_seen,
        &["opened path=/db found=\"a database that was not closed\" replayed_commits=11 replayed_bytes="],
    );
    assert!(!events_seen[0].1.contains("replayed_bytes=0 "), "{events_seen:?}");
}

#[test]
fn a_disk_that_fills_up_and_its_end_are_reported_once_each() {
    Keeper::install();
    let sim = SimEnv::new(3);
    let db = common::open(sim.clone()).unwrap();
    let table = db.table("t").unwrap();
    while db.maintain().unwrap() {}
    let used: u64 = sim.list_raw().iter().map(|(_, len)| len).sum();
    let events_seen = events(|| {
        sim.faults().space_bytes(Some(used + 1000));
        for _ in 0..3 {
            let _ = db.maintain();
            assert!(matches!(table.put("key", "value"), Err(Error::NoSpace { .. })));
        }
        sim.faults().space_bytes(None);
        for _ in 0..3 {
            table.put("key", "value").unwrap();
        }
    });
    let about_space: Vec<_> = events_seen.iter().filter(|(_, event)| event.starts_with("the disk")).collect();
    let [(Level::WARN, low), (Level::INFO, over)] = about_space[..] else { panic!("{events_seen:#?}") };
    assert!(
        low.starts_with("the disk is nearly full") && low.contains("path=/db free=1000 needed="),
        "{low}"
    );
    assert!(over.starts_with("the disk has space again"), "{over}");
}

#[test]
fn a_slow_commit_is_reported_and_others_are_not() {
    Keeper::install();
    let events_seen = |slow_commit| {
        let options = Options { slow_commit, ..common::options() };
        let db = Database::open_with(SimEnv::new(4), common::PATH, options, |_| {}).unwrap();
        let table = db.table("t").unwrap();
        events(|| _ = table.put("key", "value").unwrap())
    };
    are(&events_seen(Duration::ZERO), &["a commit was slow path=/db csn=2 level=Sync took_ms="]);
    are(&events_seen(Duration::MAX), &[]);
}

#[test]
fn stats_count_conflicts_retries_reads_merges_and_checkpoints() {
    Keeper::install();
    let db = common::open(SimEnv::new(5)).unwrap();
    let table = db.table("t").unwrap();
    let before = db.stats();
    let conflict = |isolation| {
        let mut txn = db.begin_with(isolation);
        txn.get(&table, "key").unwrap();
        table.put("key", "other").unwrap();
        txn.put(&table, "key", "mine").unwrap();
        assert!(matches!(txn.commit(), Err(Error::Conflict { .. })));
    };
    conflict(Isolation::Snapshot);
    conflict(Isolation::Serializable);
    let mut runs = 0;
    db.transact(|txn| {
        runs += 1;
        txn.get(&table, "key")?;
        if runs <= 2 {
            table.put("key", "between")?;
        }
        txn.put(&table, "key", "last")
    })
    .unwrap();
    assert_eq!(runs, 3);
    for _ in 0..10 {
        table.get("key").unwrap();
        db.snapshot().get(&table, "key").unwrap();
        assert_eq!(table.range(..).unwrap().count(), 1);
    }
    db.checkpoint().unwrap();
    let after = db.stats();
    assert_eq!(after.conflicts - before.conflicts, 4);
    assert_eq!(after.retries - before.retries, 2);
    assert_eq!(after.gets - before.gets, 2 + 3 + 20);
    assert_eq!(after.scans - before.scans, 10);
    assert_eq!(after.checkpoints - before.checkpoints, 1);
    assert!(after.merges > before.merges);
    let times = (after.merge_times, after.checkpoint_times);
    assert!(times.0.max_ns <= times.0.total_ns && times.1.last_ns <= times.1.max_ns, "{times:?}");
    assert!(times.1.total_ns > 0);
}

#[test]
fn the_oldest_snapshot_has_an_age() {
    Keeper::install();
    let sim = SimEnv::new(6);
    let db = common::open(sim.clone()).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!((db.stats().snapshots, db.stats().oldest_snapshot_age), (0, None));
    let first = db.snapshot();
    sim.clock().sleep(Duration::from_secs(90));
    let second = db.begin();
    table.put("key", "value").unwrap();
    let minute = Duration::from_secs(60);
    let stats = db.stats();
    assert_eq!(stats.snapshots, 2);
    assert!(stats.oldest_snapshot_age.is_some_and(|age| age > minute), "{:?}", stats.oldest_snapshot_age);
    drop(first);
    assert!(db.stats().oldest_snapshot_age.is_some_and(|age| age < minute));
    drop(second);
    assert_eq!((db.stats().snapshots, db.stats().oldest_snapshot_age), (0, None));
}
