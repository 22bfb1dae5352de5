//! What no write touches is purged all the same: expired rows, and versions that only ended snapshots saw.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fulgurite::env::sim::SimEnv;
use fulgurite::env::{Env, RealEnv};
use fulgurite::{Database, Options, Table};

const ROWS: u32 = 20_000;
const HOUR: Duration = Duration::from_secs(3600);

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Half of the rows expire in an hour: in ranges of a thousand, every other one.
fn expires(n: u32) -> bool {
    n / 1000 % 2 == 1
}

fn load(db: &Database) -> Table {
    let table = db.table("t").unwrap();
    for n in 0..ROWS {
        match expires(n) {
            true => table.put_expiring(key(n), [1; 100], HOUR).unwrap(),
            false => table.put(key(n), [1; 100]).unwrap(),
        };
    }
    db.checkpoint().unwrap();
    table
}

fn maintain(db: &Database) {
    while db.maintain().unwrap() {}
}

/// Work without a call, until `by` has passed: a look a minute.
fn pass(env: &Arc<SimEnv>, db: &Database, by: Duration) {
    for _ in 0..by.as_secs() / 60 {
        maintain(db);
        env.advance(Duration::from_secs(60));
    }
    maintain(db);
}

fn live(db: &Database) -> u64 {
    db.stats().space.live_bytes()
}

#[track_caller]
fn check(db: &Database, table: &Table, rows: usize) {
    let found = table.range(..).unwrap().map(Result::unwrap).filter(|(_, value)| value.len() == 100);
    assert_eq!(found.count(), rows);
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

fn options(evicts: bool) -> Options {
    if evicts { common::evicting() } else { common::options() }
}

#[test]
fn expired_rows_that_no_write_touches_leave_the_disk() {
    for (evicts, reopened) in [(false, false), (false, true), (true, false), (true, true)] {
        let env = SimEnv::new(1);
        let mut db = common::open_as(env.clone(), options(evicts)).unwrap();
        let mut table = load(&db);
        let before = live(&db);
        pass(&env, &db, HOUR / 2);
        assert_eq!(db.stats().collection.purged_leaves, 0, "nothing has expired");
        assert_eq!(live(&db), before);
        if reopened {
            drop(table);
            db.close().unwrap();
            db = common::open_as(env.clone(), options(evicts)).unwrap();
            table = db.table("t").unwrap();
        }
        let loads = || db.stats().memory.node_loads.total();
        let loads_before = loads();
        pass(&env, &db, HOUR / 2 + Duration::from_secs(180));
        let stats = db.stats();
        let (leaves, after) = (stats.collection.purged_leaves, live(&db));
        assert!(
            after < before / 10 * 6,
            "evicts {evicts}, reopened {reopened}: {before} bytes, then {after}"
        );
        if evicts {
            // Inner nodes, and of the leaves those that are due; each may be read once for each look at a neighbour.
            let read = loads() - loads_before;
            assert!(read < leaves * 6, "{read} nodes are read for {leaves} leaves");
        }
        check(&db, &table, ROWS as usize / 2);
        let checkpoints = db.stats().checkpoints;
        pass(&env, &db, HOUR);
        assert!(db.stats().checkpoints <= checkpoints + 2, "it goes on without an end");
        assert_eq!(db.stats().collection.purged_leaves, leaves);
    }
}

#[test]
fn the_segments_of_expired_rows_are_freed() {
    let env = SimEnv::new(1);
    let db = common::open_as(env.clone(), common::options()).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..16_000_u32 {
        table.put_expiring(key(n), vec![1; 2_000], HOUR).unwrap();
    }
    table.put("stays", [1; 100]).unwrap();
    let before = db.stats().segment_bytes;
    pass(&env, &db, HOUR + Duration::from_secs(240));
    let after = db.stats().segment_bytes;
    assert!(after < before / 2, "{before} bytes of segments, then {after}");
    check(&db, &table, 1);
}

/// What a snapshot sees stays until it ends; a leaf that is due is tried again after ten minutes.
#[test]
fn a_snapshot_keeps_what_it_sees() {
    let env = SimEnv::new(1);
    let db = common::open_as(env.clone(), common::options()).unwrap();
    let table = load(&db);
    let snapshot = db.snapshot();
    let seen = || snapshot.range(&table, ..).unwrap().map(Result::unwrap).count();
    // A second version of each row that stays.
    for n in (0..ROWS).filter(|n| !expires(*n)) {
        table.put(key(n), [2; 100]).unwrap();
    }
    pass(&env, &db, HOUR + Duration::from_secs(600));
    assert_eq!((seen(), db.stats().collection.purged_leaves), (ROWS as usize, 0));
    let before = live(&db);
    drop(snapshot);
    pass(&env, &db, Duration::from_secs(900));
    // Of three versions for each two rows one is left.
    assert!(live(&db) < before / 2, "{before} bytes, then {}", live(&db));
    check(&db, &table, ROWS as usize / 2);
}

/// Leaves that a snapshot holds are read once in ten minutes, although the nodes that know when they are due are evicted meanwhile.
#[test]
fn a_look_that_was_of_no_use_is_not_made_again_at_once() {
    let env = SimEnv::new(1);
    let db = common::open_as(env.clone(), common::evicting()).unwrap();
    let table = load(&db);
    let snapshot = db.snapshot();
    for n in (0..ROWS).filter(|n| !expires(*n)) {
        table.put(key(n), [2; 100]).unwrap();
    }
    db.checkpoint().unwrap();
    let loads = |minutes: u32| {
        let before = db.stats().memory.node_loads.merges;
        pass(&env, &db, Duration::from_secs(60) * minutes);
        db.stats().memory.node_loads.merges - before
    };
    let first = loads(13);
    assert!(first > 500, "{first} leaves are read that are due");
    let later = loads(30);
    // Two looks, then three.
    assert!(later <= first * 2, "{first} leaves in 13 minutes, {later} in the next 30");
    assert_eq!(snapshot.range(&table, ..).unwrap().map(Result::unwrap).count(), ROWS as usize);
}

/// A range delete frees what it hides, and the checkpoints for that end, whether a snapshot holds it back meanwhile or not.
#[test]
fn a_deleted_range_leaves_the_disk_of_an_idle_database() {
    for (evicts, reopened, held) in [(false, false, false), (true, true, false), (false, false, true)] {
        let env = SimEnv::new(1);
        let mut db = common::open_as(env.clone(), options(evicts)).unwrap();
        let mut table = db.table("t").unwrap();
        (0..ROWS).for_each(|n| _ = table.put(key(n), [1; 100]).unwrap());
        db.checkpoint().unwrap();
        let before = live(&db);
        let snapshot = held.then(|| db.snapshot());
        table.delete_range(key(ROWS / 10)..).unwrap();
        if reopened {
            drop(table);
            db.close().unwrap();
            db = common::open_as(env.clone(), options(evicts)).unwrap();
            table = db.table("t").unwrap();
        }
        if let Some(snapshot) = snapshot {
            pass(&env, &db, Duration::from_secs(600));
            assert_eq!(snapshot.range(&table, ..).unwrap().map(Result::unwrap).count(), ROWS as usize);
            assert!(live(&db) > before / 10 * 9);
        }
        pass(&env, &db, Duration::from_secs(240));
        let after = live(&db);
        assert!(after < before / 5, "evicts {evicts}, held {held}: {before} bytes, then {after}");
        check(&db, &table, ROWS as usize / 10);
        let checkpoints = db.stats().checkpoints;
        pass(&env, &db, HOUR);
        assert!(db.stats().checkpoints <= checkpoints + 2, "it goes on without an end");
    }
}

/// Flips a bit of the first byte wherever `bytes` are on the disk; returns how often.
fn flip_all(env: &SimEnv, bytes: &[u8]) -> usize {
    let flip_in = |path: &Path| {
        // A segment that is not used any more may be gone meanwhile.
        let Ok(file) = env.read_raw(path) else { return 0 };
        let found = (0..file.len()).filter(|at| file[*at..].starts_with(bytes));
        found.map(|at| env.corrupt(path, at as u64, |byte| *byte ^= 1).unwrap()).count()
    };
    env.list_raw().iter().map(|(path, _)| flip_in(path)).sum()
}

const MARK: &[u8] = b"this row is in the leaf that is damaged";

/// A leaf that cannot be read keeps its range tombstone; checkpoints end, what is behind it is purged, and so are other tables, and it
/// is tried again later.
#[test]
fn an_unreadable_leaf_under_a_deleted_range_stops_nothing_else() {
    let env = SimEnv::new(1);
    let db = common::open_as(env.clone(), options(true)).unwrap();
    let tables = ["t", "other"].map(|name| db.table(name).unwrap());
    for table in &tables {
        (0..ROWS).for_each(|n| _ = table.put(key(n), [1; 100]).unwrap());
    }
    tables[0].put(key(ROWS / 2), MARK).unwrap();
    drop(tables);
    db.close().unwrap();
    assert!(flip_all(&env, MARK) > 0);
    let db = common::open_as(env.clone(), options(true)).unwrap();
    let tables = ["t", "other"].map(|name| db.table(name).unwrap());
    let before = live(&db);
    tables.iter().for_each(|table| _ = table.delete_range(..).unwrap());
    pass(&env, &db, Duration::from_secs(300));
    assert!(live(&db) < before / 10, "{before} bytes, then {}", live(&db));
    let error = db.stats().maintenance_error.expect("the leaf was not read");
    assert!(error.rounds == 1 && error.what.contains("checksum"), "{error:?}");
    let checkpoints = db.stats().checkpoints;
    pass(&env, &db, Duration::from_secs(240));
    assert!(db.stats().checkpoints <= checkpoints + 2, "it was tried again and again");
    assert!(flip_all(&env, &[&[MARK[0] ^ 1], &MARK[1..]].concat()) > 0, "the leaf is gone");
    pass(&env, &db, HOUR);
    assert!(live(&db) < before / 10, "{before} bytes, then {}", live(&db));
    assert_eq!(db.stats().maintenance_error.map(|error| error.rounds), Some(0));
    tables.iter().for_each(|table| check(&db, table, 0));
}

/// Of rows that expire those in a leaf that cannot be read stay, and no others.
#[test]
fn an_unreadable_leaf_keeps_what_expires_from_nothing_else() {
    let env = SimEnv::new(1);
    let db = common::open_as(env.clone(), options(true)).unwrap();
    let table = db.table("t").unwrap();
    (0..ROWS).for_each(|n| _ = table.put_expiring(key(n), [1; 100], HOUR).unwrap());
    table.put_expiring(key(ROWS / 2), MARK, HOUR).unwrap();
    drop(table);
    db.close().unwrap();
    assert!(flip_all(&env, MARK) > 0);
    let db = common::open_as(env.clone(), options(true)).unwrap();
    let table = db.table("t").unwrap();
    let before = live(&db);
    for _ in 0..70 {
        // A round that found damage says so, and the next one goes on.
        while db.maintain().unwrap_or(true) {}
        env.advance(Duration::from_secs(60));
    }
    let (left, error) = (live(&db), db.stats().maintenance_error.expect("the leaf was not read"));
    assert!(left < before / 10 && error.what.contains("checksum"), "{before} bytes, then {left}, {error:?}");
    assert!(flip_all(&env, &[&[MARK[0] ^ 1], &MARK[1..]].concat()) > 0, "the leaf is gone");
    pass(&env, &db, HOUR);
    assert!(live(&db) < left, "{left} bytes, then {}", live(&db));
    check(&db, &table, 0);
}

fn open_real(dir: &tempfile::TempDir) -> (Database, Table) {
    let options = Options { memory_bytes: Some(200 << 20), ..Options::default() };
    let db = Database::open(dir.path().join("db"), options).unwrap();
    let table = db.table("t").unwrap();
    (db, table)
}

/// `FULGURITE_EXPIRED_ROWS` rows of 100 bytes, in a budget of 200 MiB on a real disk, which expire while nothing else happens.
#[test]
#[ignore = "takes minutes"]
fn millions_of_expired_rows_are_gone_within_minutes() {
    let rows = common::setting("FULGURITE_EXPIRED_ROWS").unwrap_or(1_000_000);
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_real(&dir);
    let env = RealEnv::new();
    let now_ms = || env.clock().wall_ms();
    let at_ms = now_ms() + 60_000 + rows / 200;
    let at = UNIX_EPOCH + Duration::from_millis(at_ms);
    for first in (0..rows).step_by(1000) {
        let rows = first..(first + 1000).min(rows);
        db.transact(|txn| {
            rows.clone().try_for_each(|n| txn.put_expiring(&table, n.to_be_bytes(), [1; 100], at))
        })
        .unwrap();
    }
    table.put("stays", [1; 100]).unwrap();
    db.checkpoint().unwrap();
    let loaded = db.stats().segment_bytes;
    assert!(now_ms() < at_ms, "the rows were not loaded before they expired");
    env.clock().sleep(Duration::from_millis(at_ms - now_ms()));
    let passed = || (now_ms() - at_ms) / 1000;
    while db.stats().segment_bytes > loaded / 10 {
        assert!(passed() < 600, "{loaded} bytes, {:?}", db.stats());
        env.clock().sleep(Duration::from_secs(1));
    }
    let after = db.stats().segment_bytes;
    println!("{rows} rows, {loaded} bytes of segments: {after} {} s after they had expired", passed());
    check(&db, &table, 1);
}

/// The same number of rows, all but one of which a range delete hides, and then nothing else happens.
#[test]
#[ignore = "takes minutes"]
fn millions_of_rows_of_a_deleted_range_are_gone_within_minutes() {
    let rows = common::setting("FULGURITE_EXPIRED_ROWS").unwrap_or(1_000_000);
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_real(&dir);
    for first in (0..rows).step_by(1000) {
        let rows = first..(first + 1000).min(rows);
        db.transact(|txn| rows.clone().try_for_each(|n| txn.put(&table, n.to_be_bytes(), [1; 100]))).unwrap();
    }
    table.put("stays", [1; 100]).unwrap();
    db.checkpoint().unwrap();
    let (loaded, checkpoints) = (db.stats().segment_bytes, db.stats().checkpoints);
    let env = RealEnv::new();
    let begun_ms = env.clock().wall_ms();
    table.delete_range(0_u64.to_be_bytes()..rows.to_be_bytes()).unwrap();
    let passed = || (env.clock().wall_ms() - begun_ms) / 1000;
    while db.stats().segment_bytes > loaded / 10 {
        assert!(passed() < 600, "{loaded} bytes, {:?}", db.stats());
        env.clock().sleep(Duration::from_secs(1));
    }
    let (after, written) = (db.stats().segment_bytes, db.stats().checkpoints - checkpoints);
    println!("{rows} rows, {loaded} bytes: {after} {} s after the delete, {written} checkpoints", passed());
    check(&db, &table, 1);
}
