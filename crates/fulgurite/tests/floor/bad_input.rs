//! Budgets that are none, and values that are longer than the budget.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fulgurite::{Database, Error, Options};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::process::{FLOOR, MIB, Scenario, eventually, is_sound, open, options, value};

fn is_refused(outcome: fulgurite::Result<()>, bytes: usize) {
    let Err(Error::BadOptions { violations }) = outcome else { panic!("{bytes} bytes: {outcome:?}") };
    let said = format!("memory_bytes is {bytes}, the least is {FLOOR}");
    assert!(violations.iter().any(|violation| violation.contains(&said)), "{violations:?}");
}

#[test]
fn a_budget_below_the_floor_is_refused_and_changes_nothing() {
    let _scenario = Scenario::begin();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    for bytes in [0, 1, FLOOR - 1] {
        let refused = Database::open(&path, Options { memory_bytes: Some(bytes), ..options() });
        is_refused(refused.map(|_| ()), bytes);
        assert!(!path.exists());
    }
    let db = open(dir.path());
    let table = db.table("rows").unwrap();
    for bytes in [0, 1, FLOOR - 1] {
        is_refused(db.set_memory_bytes(bytes), bytes);
        assert_eq!(db.stats().memory.budget_bytes, FLOOR as u64);
        table.put("key", bytes.to_string()).unwrap();
    }
    for bytes in [FLOOR, 100 * MIB, usize::MAX, FLOOR] {
        db.set_memory_bytes(bytes).unwrap();
        assert_eq!(db.stats().memory.budget_bytes, bytes as u64);
        table.put("key", bytes.to_string()).unwrap();
        assert_eq!(table.get("key").unwrap().unwrap(), bytes.to_string());
    }
    is_sound(&db);
}

/// Counts warnings of the memory budget.
struct Warnings;

static SEEN: AtomicUsize = AtomicUsize::new(0);

struct Message<'a>(&'a mut bool);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        *self.0 |= field.name() == "message" && format!("{value:?}").contains("the memory budget is larger");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut is_it = false;
        event.record(&mut Message(&mut is_it));
        SEEN.fetch_add(usize::from(is_it), Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_budget_above_the_machine_opens_with_a_warning() {
    let _scenario = Scenario::begin();
    let dir = tempfile::tempdir().unwrap();
    for bytes in [1 << 46, usize::MAX] {
        let before = SEEN.load(Relaxed);
        let unbounded = Options { memory_bytes: Some(bytes), ..options() };
        let db = tracing::subscriber::with_default(Warnings, || {
            Database::open(dir.path().join("db"), unbounded).unwrap()
        });
        assert_eq!(SEEN.load(Relaxed), before + 1, "no warning of {bytes} bytes");
        let table = db.table("rows").unwrap();
        (0..1_000u64).for_each(|n| _ = table.put(n.to_be_bytes(), value(n, 0, 1000)).unwrap());
        db.checkpoint().unwrap();
        is_sound(&db);
        db.close().unwrap();
    }
}

/// It is written ahead, or refused: the memory that it takes is the copy of the program, and the bytes that the engine reads.
#[test]
fn a_value_longer_than_the_budget() {
    const LONG: usize = 40 * MIB;
    let scenario = Scenario::begin();
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("values").unwrap();
    let long = value(1, 0, LONG);
    let allowed = LONG + FLOOR + 8 * MIB;
    scenario.step("a value of 40 MiB is put", &db, allowed, || table.put("long", &long).unwrap());
    scenario.step("two in a transaction", &db, allowed, || {
        let mut txn = db.begin();
        txn.put(&table, "second", &long).unwrap();
        txn.put(&table, "third", &long).unwrap();
        txn.commit().unwrap();
    });
    let read = scenario.step("one is read", &db, allowed + LONG, || table.get("second").unwrap().unwrap());
    assert!(read == long && db.stats().memory.lent_bytes >= LONG as u64, "{:?}", db.stats().memory);
    scenario.step("others go on", &db, allowed + LONG, || {
        for n in 0..20_000u64 {
            table.put(n.to_be_bytes(), value(n, 0, 200)).unwrap();
            assert_eq!(table.get((n / 2).to_be_bytes()).unwrap().unwrap(), value(n / 2, 0, 200));
        }
    });
    drop(read);
    assert!(eventually(|| db.stats().memory.lent_bytes < MIB as u64), "{:?}", db.stats().memory);
    scenario.step("a scan reads all three", &db, allowed + LONG, || {
        assert!(table.prefix("").unwrap().rev().take(2).all(|entry| entry.unwrap().1 == long));
    });
    is_sound(&db);
    drop((table, long));
    db.close().unwrap();
    assert!(scenario.allocated() < 2 * MIB, "{} bytes are left", scenario.allocated());
}
