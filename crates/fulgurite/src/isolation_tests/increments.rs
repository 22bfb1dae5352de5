//! Checkpoint records that name only the tables that changed: many of them on one full record, with tables made, dropped and
//! emptied between, and crashes, and openings from increments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_types::Lsn;

use super::support::{Random, open};
use crate::checkpoint::record::{self, ReadRecord};
use crate::{Database, Options, Snapshot};

type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn options() -> Options {
    Options {
        leaf_bytes: 512,
        inline_bytes_max: 60,
        memtable_bytes_max: Some(64 << 10),
        background: false,
        ..Options::default()
    }
}

/// The record of the last checkpoint.
fn last_record(db: &Database) -> ReadRecord {
    let superblock = db.engine().superblock.lock();
    record::read(&*db.engine().log, superblock.current().checkpoint).unwrap()
}

/// The records that both copies of the superblock name, and those on which they are based, are in segments that stay.
fn check_segments(db: &Database) {
    let copies: Vec<Lsn> = db.engine().superblock.lock().copies().map(|copy| copy.checkpoint).collect();
    for lsn in copies.into_iter().filter(|lsn| !lsn.is_null()) {
        let space = db.engine().space.lock();
        for segment in record::read(&*db.engine().log, lsn).unwrap().segments() {
            assert!(space.accounts.is_in_a_copy(segment), "INV-CKPT-7: segment {segment}");
        }
    }
}

fn compare(db: &Database, model: &Model, what: &str) {
    let names: Vec<String> = db.tables().unwrap().iter().map(|table| table.name()).collect();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>(), "{what}");
    for (name, rows) in model {
        let table = db.open_table(name).unwrap();
        let found: BTreeMap<_, _> = table
            .range(..)
            .unwrap()
            .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
            .collect();
        assert!(found == *rows, "{what}: table {name} has {} rows, not {}", found.len(), rows.len());
    }
    let report = db.check(|_| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "{what}");
}

/// Changes a few tables, in one of many ways.
fn change(db: &Database, model: &mut Model, random: &mut Random) {
    let name = format!("t{:02}", random.below(40));
    let key = |n: u64| format!("{n:06}").into_bytes();
    match random.below(12) {
        0 => {
            if model.remove(&name).is_some() {
                db.drop_table(&name).unwrap();
            }
        }
        1 if model.contains_key(&name) => {
            let table = db.open_table(&name).unwrap();
            table.delete_range(key(100)..key(200)).unwrap();
            model.get_mut(&name).unwrap().retain(|own, _| *own < key(100) || *own >= key(200));
        }
        2 if model.contains_key(&name) => {
            db.open_table(&name).unwrap().delete_range(..).unwrap();
            model.get_mut(&name).unwrap().clear();
        }
        3 => {
            db.table(&name).unwrap();
            model.entry(name).or_default();
        }
        _ => {
            let table = db.table(&name).unwrap();
            let rows = model.entry(name).or_default();
            // Some fill a memtable, so that it is merged before the checkpoint.
            let count = if random.below(5) == 0 { 700 } else { 1 + random.below(60) };
            for n in (0..count).map(|n| n * 5) {
                let value = vec![random.below(250) as u8; 20 + random.below(100) as usize];
                table.put(key(n), &value).unwrap();
                rows.insert(key(n), value);
            }
        }
    }
}

/// What a run met.
#[derive(Default, Debug)]
struct Tally {
    fulls: u64,
    increments: u64,
    /// The most increments on one full record.
    increments_on_one: usize,
    opened_from_increments: u64,
}

fn run(seed: u64, tally: &mut Tally) {
    let mut random = Random(seed * 0x9e37_79b9);
    let mut env: Arc<SimEnv> = SimEnv::new(seed);
    let mut db = open(&env, options());
    let mut model = Model::new();
    for n in 0..40 {
        let table = db.table(&format!("t{n:02}")).unwrap();
        table.put(b"first", b"row").unwrap();
        model.insert(format!("t{n:02}"), BTreeMap::from([(b"first".to_vec(), b"row".to_vec())]));
    }
    let mut on_base = (Lsn::NULL, BTreeSet::new());
    let mut snapshot: Option<Snapshot> = None;
    for round in 0..60 {
        for _ in 0..random.below(4) {
            change(&db, &mut model, &mut random);
        }
        match random.below(10) {
            0 => snapshot = Some(db.snapshot()),
            1 | 2 => snapshot = None,
            _ => {}
        }
        if random.below(2) == 0 {
            while db.maintain().unwrap() {}
        }
        let before = last_record_lsn(&db);
        db.checkpoint().unwrap();
        check_segments(&db);
        let read = last_record(&db);
        if last_record_lsn(&db) != before {
            if on_base.0 != read.base.lsn {
                on_base = (read.base.lsn, BTreeSet::new());
            }
            match &read.increment {
                None => tally.fulls += 1,
                Some((placed, ..)) => {
                    tally.increments += 1;
                    on_base.1.insert(placed.lsn);
                }
            }
            tally.increments_on_one = tally.increments_on_one.max(on_base.1.len());
        }
        while db.maintain().unwrap() {}
        if random.below(6) == 0 {
            for _ in 0..random.below(3) {
                change(&db, &mut model, &mut random);
            }
            tally.opened_from_increments += u64::from(last_record(&db).increment.is_some());
            drop(snapshot.take());
            let kind = [CrashKind::Kill, CrashKind::PowerCut][random.below(2) as usize];
            env = env.crash(kind, seed + round);
            db = open(&env, options());
            compare(&db, &model, &format!("seed {seed}, round {round}"));
        }
    }
    compare(&db, &model, &format!("seed {seed}, at the end"));
    drop(snapshot);
    db.close().unwrap();
    let db = open(&env, options());
    compare(&db, &model, &format!("seed {seed}, closed"));
}

fn last_record_lsn(db: &Database) -> Lsn {
    db.engine().superblock.lock().current().checkpoint
}

/// In a debug build each checkpoint compares its record with a full one, too (INV-CKPT-7).
#[test]
fn increments_and_their_base_are_the_checkpoint_after_any_crash() {
    let mut tally = Tally::default();
    (1..=6).for_each(|seed| run(seed, &mut tally));
    let Tally { fulls, increments, increments_on_one, opened_from_increments } = tally;
    let is_enough = fulls > 10 && increments > 100 && increments_on_one >= 5 && opened_from_increments > 10;
    assert!(is_enough, "{fulls}, {increments}, {increments_on_one}, {opened_from_increments}");
}

/// Of a thousand tables ten are written: a record costs what the ten cost, and after many a full one comes again.
#[test]
fn the_records_of_a_few_written_tables_are_short() {
    let env = SimEnv::new(7);
    let db = open(&env, options());
    let tables: Vec<_> = (0..1000).map(|n| db.table(&format!("t{n:04}")).unwrap()).collect();
    for table in &tables {
        table.put(b"key", b"value").unwrap();
    }
    db.checkpoint().unwrap();
    let full_bytes = last_record(&db).base.bytes;
    assert!(full_bytes > 20_000, "{full_bytes} bytes");
    let (mut fulls, mut freed) = (0, 0);
    for round in 0..200u32 {
        for table in &tables[..10] {
            table.put(b"key", round.to_be_bytes()).unwrap();
        }
        // The bulk stream goes on, and what the segment of the base held beside it dies.
        let mut churn = db.begin();
        for n in 0..600u32 {
            churn.put(&tables[0], n.to_be_bytes(), [round as u8; 40]).unwrap();
        }
        churn.commit().unwrap();
        freed += db.checkpoint().unwrap().segments_freed;
        check_segments(&db);
        let read = last_record(&db);
        let Some((placed, earlier_bytes, named)) = read.increment else {
            fulls += 1;
            continue;
        };
        assert!(placed.bytes < full_bytes / 40 && named.len() == 10, "{placed:?}, {named:?}");
        assert!(earlier_bytes + placed.bytes < read.base.bytes, "they are bounded");
    }
    assert!((1..=5).contains(&fulls), "{fulls} full records");
    assert!(freed >= 2, "only {freed} segments were freed");
    drop(tables);
    drop(db);
    let db = open(&env.crash(CrashKind::PowerCut, 7), options());
    assert_eq!(db.open_table("t0003").unwrap().get(b"key").unwrap().unwrap(), 199u32.to_be_bytes());
    assert_eq!(db.open_table("t0900").unwrap().get(b"key").unwrap().unwrap(), b"value");
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}
