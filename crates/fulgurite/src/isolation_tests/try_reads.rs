//! Reads from memory only: of transactions, snapshots and ranges, and of the memtables alone.

use std::ops::Bound;
use std::time::Duration;

use fulgurite_env::SimEnv;

use super::support::{LEVELS, open};
use crate::{
    Attempt, Csn, Database, Durability, Error, InMemtables, Isolation, KeyBounds, Missing, Options,
    RangeLimits, Result, Snapshot, Table, Transaction, TryRange, Value,
};

/// A database whose nodes and long values are not in memory, with 300 rows of about 100 bytes.
fn cold() -> (Database, Table) {
    let env = SimEnv::new(1);
    let options = Options { background: false, ..Options::default() };
    let db = open(&env, options.clone());
    let table = db.table("t").unwrap();
    for n in 0..300u32 {
        table.put(n.to_be_bytes(), format!("{n:0100}")).unwrap();
    }
    table.put("long", [7; 3000]).unwrap();
    db.checkpoint().unwrap();
    drop(table);
    db.close().unwrap();
    let db = open(&env, options);
    let table = db.table("t").unwrap();
    (db, table)
}

fn is_missing<T>(outcome: &Result<T>, missing: Missing) -> bool {
    matches!(outcome, Err(Error::WouldBlock(what)) if *what == missing)
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

#[test]
fn what_is_not_in_memory_is_named_and_found_once_it_is() {
    let (db, table) = cold();
    let snapshot = db.snapshot();
    let txn = db.begin();
    assert!(is_missing(&snapshot.try_get(&table, key(1)), Missing::Node));
    assert!(is_missing(&txn.try_get(&table, key(1)), Missing::Node));
    assert!(is_missing(&table.try_read_at(key(1), Csn::ZERO), Missing::Node));
    assert!(is_missing(&table.try_newest_csn(key(1)), Missing::Node));
    assert!(table.newest_csn(key(1)).unwrap() > Csn::ZERO);
    let one = format!("{:0100}", 1);
    assert_eq!(snapshot.try_get(&table, key(1)).unwrap().unwrap(), one);
    assert_eq!(txn.try_get(&table, key(1)).unwrap().unwrap(), one);
    assert_eq!(table.try_read_at(key(1), Csn::ZERO).unwrap().value.unwrap(), one);
    // The value is apart from its leaf.
    _ = table.newest_csn("long").unwrap();
    assert!(is_missing(&snapshot.try_get(&table, "long"), Missing::Value));
    assert!(is_missing(&txn.try_get(&table, "long"), Missing::Value));
    assert_eq!(table.read_at("long", Csn::ZERO).unwrap().value.unwrap(), [7; 3000]);
    assert_eq!(snapshot.try_get(&table, "long").unwrap().unwrap(), [7; 3000]);
    assert_eq!(txn.try_get_for_update(&table, "long").unwrap().unwrap(), [7; 3000]);
}

/// Commits leave the order of their versions to what needs it: one that must not wait does so only for a few.
#[test]
fn a_range_that_must_not_wait_leaves_much_ordering_to_others() {
    let db = open(&SimEnv::new(1), Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    let all = |read: TryRange| (read.entries.len(), read.missing);
    let limits = RangeLimits { entries: usize::MAX, bytes: usize::MAX };
    for n in 0..1_000 {
        table.put(key(n), "v").unwrap();
    }
    assert_eq!(all(db.snapshot().try_range(&table, .., limits).unwrap()), (1_000, None));
    for n in 500..3_000 {
        table.put(key(n), "w").unwrap();
    }
    let (snapshot, mut txn) = (db.snapshot(), db.begin_with(Isolation::Serializable));
    assert_eq!(all(snapshot.try_range(&table, .., limits).unwrap()), (0, Some(Missing::Order)));
    assert_eq!(all(txn.try_range_back(&table, .., limits).unwrap()), (0, Some(Missing::Order)));
    assert!(snapshot.try_get(&table, key(2_999)).unwrap().is_some());
    // A read that waits, and maintenance, link them.
    assert_eq!(snapshot.range(&table, ..).unwrap().count(), 3_000);
    assert_eq!(all(txn.try_range_back(&table, .., limits).unwrap()), (3_000, None));
    txn.put(&table, "own", "v").unwrap();
    for n in 0..9_000 {
        table.put(key(n), "x").unwrap();
    }
    assert!(matches!(txn.try_commit().unwrap(), Attempt::Blocked(_, Missing::Order)));
    db.maintain().unwrap();
    assert_eq!(all(db.snapshot().try_range(&table, .., limits).unwrap()), (9_000, None));
}

/// A read that did not happen is no read: another transaction may write the key.
#[test]
fn a_read_that_would_block_leaves_the_transaction_as_it_was() {
    for isolation in LEVELS {
        for update in [false, true] {
            for again in [false, true] {
                let (db, table) = cold();
                let mut txn = db.begin_with(isolation);
                let read = |txn: &Transaction| {
                    if update { txn.try_get_for_update(&table, key(5)) } else { txn.try_get(&table, key(5)) }
                };
                assert!(is_missing(&read(&txn), Missing::Node));
                assert!(is_missing(&txn.try_get(&table, key(6)), Missing::Node));
                let range = txn.try_range(&table, key(7)..key(9), RangeLimits::default()).unwrap();
                assert!(range.entries.is_empty() && range.missing == Some(Missing::Node));
                if again {
                    table.get(key(5)).unwrap();
                    assert!(read(&txn).unwrap().is_some());
                }
                for n in 5..9 {
                    table.put(key(n), "other").unwrap();
                }
                txn.put(&table, "own", "v").unwrap();
                let conflicts = again && (update || isolation == Isolation::Serializable);
                assert_eq!(txn.commit().is_err(), conflicts, "{isolation:?} {update} {again}");
            }
        }
    }
}

#[test]
fn a_transaction_reads_its_own_writes_from_memory_unless_they_were_written_ahead() {
    let (db, table) = cold();
    let mut txn = db.begin();
    txn.put(&table, key(1), "own").unwrap();
    txn.delete(&table, key(2)).unwrap();
    txn.put(&table, "ahead", vec![1; 200_000]).unwrap();
    assert_eq!(txn.try_get(&table, key(1)).unwrap().unwrap(), "own");
    assert!(txn.try_get(&table, key(2)).unwrap().is_none());
    assert!(is_missing(&txn.try_get(&table, "ahead"), Missing::Value));
    assert!(is_missing(&txn.try_get_for_update(&table, "ahead"), Missing::Value));
    assert_eq!(txn.get(&table, "ahead").unwrap().unwrap().len(), 200_000);
    _ = table.range(..).unwrap().count();
    let read = txn.try_range(&table, "ahead".., RangeLimits::default()).unwrap();
    assert_eq!((read.entries.len(), read.missing), (0, Some(Missing::Value)));
}

trait Ranges {
    fn read(&self, table: &Table, range: &KeyBounds, limits: RangeLimits, back: bool) -> TryRange;
    fn fetch(&self, table: &Table, range: &KeyBounds, back: bool) -> Option<(Value, Value)>;
}

impl Ranges for Snapshot {
    fn read(&self, table: &Table, range: &KeyBounds, limits: RangeLimits, back: bool) -> TryRange {
        match back {
            false => self.try_range(table, range, limits).unwrap(),
            true => self.try_range_back(table, range, limits).unwrap(),
        }
    }

    fn fetch(&self, table: &Table, range: &KeyBounds, back: bool) -> Option<(Value, Value)> {
        let mut range = self.range(table, range).unwrap();
        if back { range.next_back() } else { range.next() }.transpose().unwrap()
    }
}

impl Ranges for Transaction {
    fn read(&self, table: &Table, range: &KeyBounds, limits: RangeLimits, back: bool) -> TryRange {
        match back {
            false => self.try_range(table, range, limits).unwrap(),
            true => self.try_range_back(table, range, limits).unwrap(),
        }
    }

    fn fetch(&self, table: &Table, range: &KeyBounds, back: bool) -> Option<(Value, Value)> {
        if back { self.last(table, range) } else { self.first(table, range) }.unwrap()
    }
}

/// Reads a whole range in pieces, loading missing nodes; returns the keys, and how often something was missing.
fn read_all(reader: &impl Ranges, table: &Table, range: KeyBounds, back: bool) -> (Vec<Vec<u8>>, u32) {
    let (mut keys, mut missing, mut rest) = (Vec::new(), 0, Some(range));
    let mut limits = RangeLimits { entries: 7, ..RangeLimits::default() };
    while let Some(range) = rest.take() {
        let read = reader.read(table, &range, limits, back);
        assert!(read.entries.len() <= limits.entries);
        keys.extend(read.entries.iter().map(|(key, _)| key.to_vec()));
        rest = read.rest;
        if read.missing.is_some() {
            missing += 1;
            reader.fetch(table, rest.as_ref().unwrap(), back);
        }
        limits.entries = 1 + (limits.entries * 5) % 23;
    }
    (keys, missing)
}

#[test]
fn ranges_are_read_in_pieces_from_both_ends_whatever_is_missing() {
    let mut keys: Vec<Vec<u8>> = (10..290).map(|n| key(n).to_vec()).collect();
    let range = (Bound::Excluded(key(9).to_vec()), Bound::Included(key(289).to_vec()));
    for back in [false, true] {
        let (db, table) = cold();
        let (read, missing) = read_all(&db.snapshot(), &table, range.clone(), back);
        assert_eq!(read, keys);
        assert!((2..200).contains(&missing), "{missing} leaves");
        let (db, table) = cold();
        let mut txn = db.begin();
        txn.put(&table, [key(100).as_slice(), b"x"].concat(), "own").unwrap();
        txn.delete(&table, key(200)).unwrap();
        let mut own = keys.clone();
        own.push([key(100).as_slice(), b"x"].concat());
        own.sort();
        if back {
            own.reverse();
        }
        own.retain(|at| *at != key(200));
        let (read, missing) = read_all(&txn, &table, range.clone(), back);
        assert_eq!(read, own);
        assert!(missing > 1);
        keys.reverse();
    }
}

#[test]
fn a_range_ends_at_its_limits_and_counts_as_read_up_to_there() {
    for back in [false, true] {
        let (db, table) = cold();
        _ = table.range(..).unwrap().count();
        let all = || (Bound::Included(key(0).to_vec()), Bound::Excluded(key(300).to_vec()));
        let none = db.snapshot().read(&table, &all(), RangeLimits { entries: 0, bytes: 1 }, back);
        assert!(none.entries.is_empty() && none.rest == Some(all()) && none.missing.is_none());
        let limits = RangeLimits { entries: 100, bytes: 1000 };
        let read = db.snapshot().read(&table, &all(), limits, back);
        assert_eq!(read.entries.len(), 10, "104 bytes each");
        for written in [0, 9, 10, 290, 289, 299] {
            let mut txn = db.begin_with(Isolation::Serializable);
            let read = txn.read(&table, &all(), limits, back);
            assert_eq!(read.entries.len(), 10);
            let mut other = db.begin();
            other.put(&table, key(written), format!("{written:0100}")).unwrap();
            other.commit().unwrap();
            txn.put(&table, "own", "v").unwrap();
            let is_read = read.entries.iter().any(|(at, _)| *at == key(written));
            assert_eq!(txn.commit().is_err(), is_read, "{written}, backward: {back}");
        }
        // The end of the range was reached: all of it was read, present or not.
        let mut txn = db.begin_with(Isolation::Serializable);
        let range = (Bound::Excluded(key(295).to_vec()), Bound::Unbounded);
        let read = txn.read(&table, &range, RangeLimits::default(), back);
        assert!(read.rest.is_none() || read.missing == Some(Missing::Value), "{read:?}");
        let range = (Bound::Included(key(400).to_vec()), Bound::Excluded(key(500).to_vec()));
        assert!(txn.read(&table, &range, RangeLimits::default(), back).rest.is_none());
        table.put(key(450), "new").unwrap();
        txn.put(&table, "own", "v").unwrap();
        assert!(matches!(txn.commit(), Err(Error::Conflict(_))));
    }
}

#[test]
fn the_memtables_alone_know_what_they_hold_and_up_to_where() {
    let env = SimEnv::new(1);
    let db = open(&env, Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    let found = |key: &str| table.try_memtable_read_at(key, Csn::ZERO).unwrap().found;
    assert!(matches!(found("k"), InMemtables::RuledOut));
    let put = table.put("k", "v").unwrap().csn;
    assert!(matches!(found("k"), InMemtables::Value(value) if value == "v"));
    assert!(table.memtables_may_contain("k").unwrap().may_contain);
    db.checkpoint().unwrap();
    assert!(matches!(found("k"), InMemtables::RuledOut));
    assert!(!table.memtables_may_contain("k").unwrap().may_contain);
    assert!(table.try_memtable_read_at("k", Csn::ZERO).unwrap().complete_to >= put);
    // Deleted ranges: they hide versions of the base.
    let write = |level, body: &dyn Fn(&mut Transaction) -> Result<()>| {
        let mut txn = db.begin();
        txn.set_durability(level).unwrap();
        body(&mut txn).unwrap();
        txn.commit_deferred().unwrap().csn()
    };
    let range = write(Durability::Sync, &|txn| txn.delete_range(&table, "j".."l"));
    assert!(matches!(found("k"), InMemtables::RuledOut), "not shown yet");
    let own = table.try_memtable_read_at("k", range).unwrap();
    assert!(matches!(own.found, InMemtables::NoValue), "its writer sees it");
    assert_eq!(own.needs, range);
    _ = write(Durability::None, &|txn| txn.put(&table, "other", "v"));
    let read = table.try_memtable_read_at("k", Csn::ZERO).unwrap();
    assert!(matches!(read.found, InMemtables::NoValue));
    assert_eq!(read.needs, range);
    db.wait_durable(range).unwrap();
    table.put("k", "w").unwrap();
    db.checkpoint().unwrap();
    // What the base has is newer than the range delete.
    assert!(matches!(found("k"), InMemtables::RuledOut));
    table.delete("k").unwrap();
    assert!(matches!(found("k"), InMemtables::NoValue));
    let mut txn = db.begin();
    txn.put_expiring(&table, "k", "lease", Duration::from_secs(1)).unwrap();
    txn.commit().unwrap();
    assert!(matches!(found("k"), InMemtables::Value(_)));
    env.advance(Duration::from_secs(2));
    assert!(matches!(found("k"), InMemtables::NoValue));
    // Few keys that were never written are not ruled out, and all of those are found to be absent.
    let passed = (0..2000).filter(|n| match found(&format!("never {n}")) {
        InMemtables::RuledOut => false,
        InMemtables::Absent => true,
        found => panic!("{found:?}"),
    });
    assert!(passed.count() < 100);
}

#[test]
fn a_value_says_how_much_memory_it_keeps() {
    let (db, table) = cold();
    let mut txn = db.begin();
    txn.put(&table, "a", [1; 50]).unwrap();
    txn.put(&table, "b", [2; 900]).unwrap();
    txn.put(&table, "short", [3; 31]).unwrap();
    txn.put(&table, "longer", [4; 32]).unwrap();
    txn.commit().unwrap();
    let kept = |key: &[u8]| table.get(key).unwrap().unwrap().kept_bytes();
    assert_eq!(kept(b"a"), kept(b"b"), "one commit");
    assert_eq!((kept(b"short"), kept(b"longer")), (0, kept(b"a")), "it has the bytes itself");
    assert_eq!(table.get("short").unwrap().unwrap(), [3; 31]);
    assert!((1000..3000).contains(&kept(b"a")), "{}", kept(b"a"));
    assert!((4000..20_000).contains(&kept(&key(1))), "a leaf: {}", kept(&key(1)));
    assert!((3000..4000).contains(&kept(b"long")), "its own bytes: {}", kept(b"long"));
    assert_eq!(Value::from(Vec::new()).kept_bytes(), Value::from(Vec::with_capacity(0)).kept_bytes());
    let of_spacious = |bytes: &[u8]| {
        let mut vec = Vec::with_capacity(5000);
        vec.extend_from_slice(bytes);
        Value::from(vec).kept_bytes()
    };
    assert_eq!(of_spacious(&[5; 31]), 0);
    assert!(of_spacious(&[5; 32]) >= 5000);
}
