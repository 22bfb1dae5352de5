//! Garbage collection: live values leave segments that are mostly dead, while readers hold where they were.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::rng::Rng;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::env::{Env, RealEnv};
use fulgurite::{CollectionStats, Database, Durability, Error, Options, ResearchOptions, Stats, Table};

fn options() -> Options {
    Options {
        inline_bytes_max: 200,
        memtable_bytes_max: Some(64 << 10),
        checkpoint_log_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(env: &Arc<SimEnv>) -> Database {
    Database::open_with(env.clone(), "/data", options(), |_| {}).unwrap()
}

/// The value of a key in a round; some are inline, most in the commit's frame, some in chunks, some in two of these.
fn value(key: u32, round: u32) -> Vec<u8> {
    let len = match key % 50 {
        0 => 150_000,
        1 => 700_000,
        2..10 => 100,
        _ => 1000 + key as usize * 7 % 3000,
    };
    (0..len as u32).map(|at| (at ^ key.wrapping_mul(31) ^ round.wrapping_mul(101)) as u8).collect()
}

struct Rows {
    table: Table,
    rounds: BTreeMap<u32, u32>,
}

impl Rows {
    fn fill(db: &Database, count: u32) -> Rows {
        let table = db.create_table("t").unwrap();
        let mut rows = Rows { table, rounds: BTreeMap::new() };
        (0..count).for_each(|key| rows.put(key, 0));
        rows
    }

    fn put(&mut self, key: u32, round: u32) {
        self.table.put(key.to_be_bytes(), value(key, round)).unwrap();
        self.rounds.insert(key, round);
    }

    fn live_bytes(&self) -> u64 {
        self.rounds.iter().map(|(key, round)| value(*key, *round).len() as u64).sum()
    }

    fn check(&self) {
        for (key, round) in &self.rounds {
            let found = self.table.get(key.to_be_bytes()).unwrap().expect("it was put");
            assert!(*found == *value(*key, *round), "{key} {round}");
        }
    }
}

fn segment_bytes(db: &Database) -> u64 {
    db.stats().space.uses.values().map(|group| group.bytes).sum()
}

fn is_sound(db: &Database) {
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn overwritten_values_stay_in_bounded_space() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let mut rows = Rows::fill(&db, 1_000);
    let mut rng = Rng::new(7);
    let mut worst = 0;
    for round in 1..=12_000 {
        // Most of them again and again, some never.
        let key = rng.below(900) as u32;
        rows.put(key, round);
        while db.maintain().unwrap() {}
        worst = worst.max(segment_bytes(&db));
    }
    let live = rows.live_bytes();
    let moved = db.stats().log.moved_value_bytes;
    println!(
        "{worst} bytes at most for {live} live, {moved} moved, {} written",
        db.stats().log.written_bytes
    );
    assert!(moved > live / 2, "{moved}");
    // Segments of a mebibyte: two are open, two are ready, and each may end with half of one that a long chunk did not fit into.
    assert!(worst < live * 13 / 10 + (9 << 20), "{worst} for {live}");
    rows.check();
    is_sound(&db);
    drop(db);
    let env = env.crash(CrashKind::PowerCut, 3);
    let db = open(&env);
    rows.table = db.table("t").unwrap();
    rows.check();
    is_sound(&db);
}

/// A cursor keeps the leaf at which it is, with the places of values that were moved since, and whose segments are gone.
#[test]
fn readers_of_moved_values_find_them() {
    let env = SimEnv::new(2);
    let db = open(&env);
    let mut rows = Rows::fill(&db, 600);
    db.checkpoint().unwrap();
    let snapshot = db.snapshot();
    let old = rows.rounds.clone();
    let range = |from: u32| snapshot.range(&rows.table, from.to_be_bytes()..).unwrap();
    let back = |from: u32| snapshot.range(&rows.table, ..from.to_be_bytes()).unwrap().rev();
    let mut ranges: Vec<_> = (0..600).step_by(25).map(|from| (from, range(from))).collect();
    let mut backs: Vec<_> = (1..600).step_by(25).map(|from| (from, back(from))).collect();
    let is_value = |key: u32, found: Option<fulgurite::Result<(fulgurite::Value, fulgurite::Value)>>| {
        let (found_key, found) = found.expect("there is another entry").unwrap();
        assert_eq!(*found_key, key.to_be_bytes());
        assert!(*found == *value(key, old[&key]), "{key}");
    };
    let mut step = || {
        for (next, range) in ranges.iter_mut().filter(|(next, _)| *next < 600) {
            is_value(*next, range.next());
            *next += 1;
        }
        for (next, range) in backs.iter_mut().filter(|(next, _)| *next > 0) {
            *next -= 1;
            is_value(*next, range.next());
        }
    };
    step();
    let mut rng = Rng::new(3);
    for round in 1..=40 {
        for _ in 0..60 {
            rows.put(rng.below(600) as u32, round);
        }
        db.checkpoint().unwrap();
        while db.maintain().unwrap() {}
        if round % 4 == 0 {
            step();
        }
    }
    let log = db.stats().log;
    assert!(log.moved_value_bytes > 10_000_000 && log.segments_freed > 20, "{log:?}");
    (0..600).for_each(|_| step());
    for (key, round) in &old {
        let found = snapshot.get(&rows.table, key.to_be_bytes()).unwrap().unwrap();
        assert!(*found == *value(*key, *round), "{key}");
    }
    rows.check();
    drop((ranges, backs));
    drop(snapshot);
    is_sound(&db);
}

/// Gets, scans, and transactions on threads, while the database collects in the background.
#[test]
fn readers_on_threads_beside_the_collection() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options { background: true, ..options() }).unwrap();
    let mut rows = Rows::fill(&db, 400);
    let table = rows.table.clone();
    let is_over = AtomicBool::new(false);
    let is_value = |key: &[u8], found: &[u8]| {
        let key = u32::from_be_bytes(key.try_into().unwrap());
        // The first byte of each value says its round, up to 256 of them.
        let first = u32::from(found[0]) ^ key.wrapping_mul(31) & 0xff;
        let round = (0..256_u32).find(|round| round.wrapping_mul(101) & 0xff == first).unwrap();
        assert!(*found == *value(key, round), "{key}");
    };
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (db, table, is_over) = (&db, &table, &is_over);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let key = (rng.below(400) as u32).to_be_bytes();
                    match seed {
                        0 => is_value(&key, &table.get(key).unwrap().unwrap()),
                        1 => is_value(&key, &db.snapshot().get(table, key).unwrap().unwrap()),
                        _ => {
                            let mut range = table.range(key..).unwrap();
                            for _ in 0..100 {
                                let Some((key, found)) = range.next_entry().unwrap() else { break };
                                is_value(key, found);
                            }
                        }
                    }
                }
            });
        }
        let mut rng = Rng::new(9);
        for round in 0..12_u32 {
            for _ in 0..200 {
                rows.put(rng.below(400) as u32, round);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let log = db.stats().log;
    println!("{} moved, {} segments freed", log.moved_value_bytes, log.segments_freed);
    assert!(log.moved_value_bytes > 0 && log.segments_freed > 0, "{log:?}");
    rows.check();
    is_sound(&db);
    db.close().unwrap();
}

#[test]
fn an_idle_database_collects_until_it_is_within_its_bound_and_then_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options { background: true, ..options() }).unwrap();
    let mut rows = Rows::fill(&db, 600);
    let mut rng = Rng::new(5);
    (1..3_000).for_each(|round| rows.put(rng.below(600) as u32, round));
    let clock = RealEnv::new();
    let mut still = (0, 0);
    for _ in 0..600 {
        clock.clock().sleep(Duration::from_millis(100));
        let checkpoints = db.stats().checkpoints;
        still = if checkpoints == still.0 { (checkpoints, still.1 + 1) } else { (checkpoints, 0) };
        if still.1 == 25 {
            break;
        }
    }
    assert_eq!(still.1, 25, "it goes on and on: {} checkpoints", still.0);
    let (bytes, live) = (segment_bytes(&db), rows.live_bytes());
    println!("{bytes} for {live} live after {} checkpoints", still.0);
    assert!(bytes < live * 13 / 10 + (9 << 20), "{bytes} for {live}");
    rows.check();
    is_sound(&db);
    db.close().unwrap();
}

fn open_without_collection(env: &Arc<SimEnv>) -> Database {
    let research = ResearchOptions { collect: false, ..ResearchOptions::default() };
    let options = Options { research, ..options() };
    Database::open_with(env.clone(), "/data", options, |_| {}).unwrap()
}

/// In no other value.
const UNIQUE: &[u8] = b"0123456789 in words";

/// A database in which garbage is collected only when a caller asks for it.
fn full_of_garbage(env: &Arc<SimEnv>) -> (Database, Rows) {
    let db = open_without_collection(env);
    // Without the longest values, which leave a third of a segment unused.
    let mut rows = Rows { table: db.create_table("t").unwrap(), rounds: BTreeMap::new() };
    (0..3_000).filter(|key| key % 50 != 1).for_each(|key| rows.put(key, 0));
    db.table("other").unwrap().put("the only one", UNIQUE.repeat(300)).unwrap();
    let mut rng = Rng::new(11);
    for round in 1..=9_000 {
        // Of each ten keys one stays as it is: no segment dies as a whole.
        let key = rng.below(3_000) as u32;
        if key % 10 != 9 && key % 50 != 1 {
            rows.put(key, round);
        }
        while db.maintain().unwrap() {}
    }
    (db, rows)
}

#[test]
fn a_caller_has_garbage_collected_as_far_as_it_asks() {
    let env = SimEnv::new(5);
    let (db, mut rows) = full_of_garbage(&env);
    let before = segment_bytes(&db);
    assert_eq!(db.stats().collection, CollectionStats::default(), "nothing is collected by itself");
    for until in [1.0, f64::NAN, 1000.0] {
        let error = db.collect(until, |_| panic!("nothing is begun")).unwrap_err();
        assert!(matches!(error, Error::BadOptions { .. }), "{error}");
    }
    let mut ratios = Vec::new();
    let report = db.collect(1.15, |progress| ratios.push(progress.ratio())).unwrap();
    assert!(report.is_reached && report.after.ratio() <= 1.15 && report.before.ratio() > 2.0, "{report:?}");
    assert_eq!((ratios.first(), ratios.last()), (Some(&report.before.ratio()), Some(&report.after.ratio())));
    assert_eq!((report.segment_bytes_before, report.segment_bytes_after), (before, segment_bytes(&db)));
    assert!(report.segment_bytes_after < rows.live_bytes() * 12 / 10 + (7 << 20), "{report:?}");
    let collection = db.stats().collection;
    assert_eq!(collection.moved_bytes, report.after.moved_bytes);
    assert_eq!(collection.victims, collection.victims_by_tenths.iter().sum::<u64>());
    assert!(collection.victim_live_bytes < collection.victim_bytes / 2, "{collection:?}");
    rows.check();
    let again = db.collect(1.15, |_| {}).unwrap();
    assert!(again.is_reached && again.after.moved_bytes == 0, "{again:?}");
    is_sound(&db);
    let moved = db.stats().log.moved_value_bytes;
    let tighter = db.collect(1.02, |_| {}).unwrap();
    assert!(tighter.after.ratio() < 1.12 && db.stats().log.moved_value_bytes > moved, "{tighter:?}");
    drop(db);
    let db = open(&env.crash(CrashKind::PowerCut, 3));
    rows.table = db.table("t").unwrap();
    rows.check();
    is_sound(&db);
}

/// A segment that cannot be read stays, and its rows' damage is reported to its readers; all else is collected.
#[test]
fn an_unreadable_victim_stays_and_is_named() {
    let env = SimEnv::new(6);
    let (db, mut rows) = full_of_garbage(&env);
    db.close().unwrap();
    // Now the values are on the disk only.
    let db = open_without_collection(&env);
    rows.table = db.table("t").unwrap();
    let other = db.table("other").unwrap();
    let damaged = env.list_raw().into_iter().find(|(path, _)| {
        let bytes = env.read_raw(path).unwrap();
        let Some(at) = bytes.windows(UNIQUE.len()).position(|window| window == UNIQUE) else { return false };
        env.corrupt(path, at as u64 + 5, |byte| *byte ^= 1).unwrap();
        other.get("the only one").is_err()
    });
    let (path, _) = damaged.expect("the value is in a segment");
    let report = db.collect(1.05, |_| {}).unwrap();
    assert!(report.after.moved_bytes > 0, "{report:?}");
    let unreadable = db.stats().collection.unreadable;
    let whys: Vec<_> = unreadable.values().collect();
    assert!(whys.len() == 1 && whys[0].contains(&*path.to_string_lossy()), "{whys:?}");
    rows.check();
    assert!(matches!(other.get("the only one"), Err(Error::Damaged(_))));
}

/// INV-SPACE-6, on a disk, as fast as a thread can overwrite. `FULGURITE_COLLECT_MIB=500` has more, in a release build.
#[test]
fn overwrites_at_full_speed_stay_within_the_bound() {
    let mib: u32 = std::env::var("FULGURITE_COLLECT_MIB").map_or(64, |mib| mib.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let share = 8 << 20;
    let options = Options { memory_bytes: Some(64 << 20), checkpoint_log_bytes: share, ..Options::default() };
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.table("t").unwrap();
    let rows = mib * 256;
    let (mut round, mut rng) = (0, Rng::new(3));
    let mut commit = |keys: &mut dyn FnMut() -> u32| {
        let mut txn = db.begin();
        txn.set_durability(Durability::Async { interval: Duration::from_millis(100) }).unwrap();
        for _ in 0..100 {
            txn.put(&table, keys().to_be_bytes(), [round as u8; 4096]).unwrap();
        }
        round += 1;
        txn.commit().unwrap();
        segment_bytes(&db)
    };
    let mut next = 0..rows;
    (0..rows / 100).for_each(|_| _ = commit(&mut || next.next().unwrap()));
    let worst = (0..rows / 20).map(|_| commit(&mut || rng.below(u64::from(rows)) as u32)).max().unwrap();
    let Stats { waits, collection, .. } = db.stats();
    println!("{} MiB for {mib} MiB, {:?}, {collection:?}", worst >> 20, waits.collection);
    let live = u64::from(mib) << 20;
    // The share counts as 32 MiB at least.
    assert!(worst < live * 3 / 2 + 2 * (32 << 20) + (16 << 20), "{} MiB for {mib}", worst >> 20);
    // Commits are slowed for a collector that is behind; it moves less then, and finds more garbage in each segment.
    assert!(collection.moved_value_bytes > live / 8, "{collection:?}");
    is_sound(&db);
    db.close().unwrap();
}

/// Rows in leaves, with memory for few of them: the collection copies the records of leaves that are not in memory. Nothing of
/// that may be lost in a crash at any time, nor what commits and evictions change meanwhile.
#[test]
fn leaves_that_are_collected_survive_crashes() {
    let options = || Options {
        leaf_bytes: 1024,
        inline_bytes_max: 200,
        research: ResearchOptions { evict_everything: true, ..ResearchOptions::default() },
        memtable_bytes_max: Some(64 << 10),
        checkpoint_log_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    let rows = 30_000_u64;
    let row = |key: u64, round: u64| {
        [key ^ round.rotate_left(40), key, round].map(u64::to_be_bytes).concat().repeat(4)
    };
    let mut env = SimEnv::new(8);
    let mut rounds = vec![0; rows as usize];
    let mut rng = Rng::new(13);
    let (mut copied, mut loaded) = (0, 0);
    for life in 0..6_u64 {
        let db = Database::open_with(env.clone(), "/data", options(), |_| {}).unwrap();
        let table = db.table("t").unwrap();
        if life == 0 {
            for first in (0..rows).step_by(1000) {
                let mut load = db.begin();
                (first..first + 1000)
                    .for_each(|key| load.put(&table, key.to_be_bytes(), row(key, 0)).unwrap());
                load.commit().unwrap();
                while db.maintain().unwrap() {}
            }
        }
        for (key, round) in rounds.iter().enumerate() {
            let found = table.get((key as u64).to_be_bytes()).unwrap().unwrap();
            assert_eq!(*found, *row(key as u64, *round), "life {life}: {key} {round}");
        }
        let loads_before = db.stats().memory.node_loads.maintenance;
        for batch in 0..40 + life * 7 {
            let round = life << 20 | batch << 1 | 1;
            let mut transaction = db.begin();
            for _ in 0..300 {
                let key = rng.below(rows);
                transaction.put(&table, key.to_be_bytes(), row(key, round)).unwrap();
                rounds[key as usize] = round;
            }
            transaction.commit().unwrap();
            while db.maintain().unwrap() {}
        }
        let stats = db.stats();
        copied += stats.collection.copied_node_bytes;
        loaded += stats.memory.node_loads.maintenance - loads_before;
        is_sound(&db);
        drop(table);
        drop(db);
        env = env.crash(if life % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill }, life);
    }
    println!("{copied} bytes copied, {loaded} leaves loaded by maintenance");
    assert!(copied > 10 << 20, "{copied} bytes copied, {loaded} leaves loaded");
}
