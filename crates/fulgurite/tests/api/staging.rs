//! Commits that are staged in memory that survives.

use crate::common;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::env::{Env, MemoryMedium, OpenOptions, RealEnv};
use fulgurite::{Database, Durability, Error, Options, StagingOptions, Table};
use std::sync::Arc;

fn staged(medium: MemoryMedium) -> Options {
    let mut options = common::staged();
    options.staging.as_mut().expect("it stages").medium = medium;
    options
}

fn open(env: &Arc<SimEnv>, options: Options) -> fulgurite::Result<Database> {
    env.faults()
        .mapped(Some(options.staging.as_ref().map_or(MemoryMedium::Persistent, |staging| staging.medium)));
    common::open_as(env.clone(), options)
}

/// Puts a row at a level.
fn put(db: &Database, table: &Table, key: u64, level: Durability, bytes: usize) -> fulgurite::Csn {
    let mut txn = db.begin();
    txn.set_durability(level).unwrap();
    txn.put(table, key.to_be_bytes(), vec![key as u8; bytes]).unwrap();
    txn.commit().unwrap().csn
}

fn rows(db: &Database) -> Vec<u64> {
    let table = db.open_table("rows").unwrap();
    let rows = table.range(..).unwrap().map(Result::unwrap);
    rows.map(|(key, _)| u64::from_be_bytes(key[..].try_into().unwrap())).collect()
}

#[test]
fn each_level_is_what_its_medium_makes_of_it() {
    for medium in [MemoryMedium::Persistent, MemoryMedium::Volatile] {
        let env = SimEnv::new(1);
        let db = open(&env, staged(medium)).unwrap();
        let table = db.table("rows").unwrap();
        let syncs = env.faults().sync_count();
        let csn = put(&db, &table, 1, Durability::Staged, 40);
        assert_eq!(env.faults().sync_count(), syncs, "{medium:?}: staging syncs nothing");
        let is_durable = medium == MemoryMedium::Persistent;
        assert_eq!(db.stats().durable >= csn, is_durable);
        let csn = put(&db, &table, 2, Durability::Sync, 40);
        assert!(db.stats().durable >= csn);
        assert_eq!(env.faults().sync_count() == syncs, is_durable, "{medium:?}: what Sync waits for");
        let stats = db.stats();
        // In persistent memory it is `Sync`.
        let counts = (stats.latency.staged.count, stats.latency.sync.count);
        assert_eq!(counts, if is_durable { (0, 3) } else { (1, 2) });
        assert_eq!(stats.log.staged_bytes > 0, is_durable);
        let budgeted = stats.memory.log_buffer_bytes;
        let without =
            common::open_as(SimEnv::new(2), common::options()).unwrap().stats().memory.log_buffer_bytes;
        assert_eq!(budgeted - without, if is_durable { 0 } else { 3 * 97 * 4096 });
        assert_eq!(stats.staging.map(|staging| staging.medium), Some(medium));
    }
}

#[test]
fn a_deferred_commit_is_staged_when_its_ticket_is_there() {
    let env = SimEnv::new(1);
    let db = open(&env, staged(MemoryMedium::Persistent)).unwrap();
    let table = db.table("rows").unwrap();
    for key in 0..50u64 {
        let mut txn = db.begin();
        txn.set_durability(Durability::Staged).unwrap();
        txn.put(&table, key.to_be_bytes(), "v").unwrap();
        let ticket = txn.commit_deferred().unwrap();
        assert!(db.stats().durable >= ticket.csn());
        ticket.wait().unwrap();
    }
    let env = env.crash(CrashKind::PowerCut, 1);
    assert_eq!(rows(&open(&env, staged(MemoryMedium::Persistent)).unwrap()), (0..50).collect::<Vec<_>>());
}

/// A killed process loses nothing; a power cut takes what was not synced, and the opening says so before it goes on.
#[test]
fn volatile_memory_loses_what_was_only_staged_and_says_so() {
    let env = SimEnv::new(3);
    let options = || staged(MemoryMedium::Volatile);
    let db = open(&env, options()).unwrap();
    let table = db.table("rows").unwrap();
    for key in 0..40 {
        let level = if key == 19 { Durability::Sync } else { Durability::Staged };
        put(&db, &table, key, level, 300);
    }
    let killed = env.crash(CrashKind::Kill, 1);
    let db = open(&killed, options()).unwrap();
    assert_eq!(rows(&db), (0..40).collect::<Vec<_>>());
    drop(db);
    let cut = env.crash(CrashKind::PowerCut, 1);
    let refused = open(&cut, options()).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused:?}");
    assert!(refused.to_string().contains("there is no file /staging"), "{refused}");
    let db = open(&cut, Options { adopt_staging_loss: true, ..options() }).unwrap();
    let left = rows(&db);
    assert!(left.len() >= 20 && left.len() < 40, "{left:?}");
    assert_eq!(left, (0..left.len() as u64).collect::<Vec<_>>(), "a prefix");
    db.close().unwrap();
    assert_eq!(rows(&open(&cut, common::options()).unwrap()), left);
}

/// Values in the log and in chunks, while their commits are staged, and after they are synced; by a read-only opening, too.
#[test]
fn values_are_read_wherever_they_are() {
    let env = SimEnv::new(5);
    let db = open(&env, staged(MemoryMedium::Persistent)).unwrap();
    let table = db.table("rows").unwrap();
    let bytes = |key: u64| [30, 900, 5_000, 150_000][key as usize % 4];
    let check = |db: &Database, keys: u64| {
        let table = db.open_table("rows").unwrap();
        for key in 0..keys {
            assert_eq!(table.get(key.to_be_bytes()).unwrap().unwrap(), vec![key as u8; bytes(key)], "{key}");
        }
    };
    for key in 0..60 {
        put(&db, &table, key, Durability::Sync, bytes(key));
        check(&db, key + 1);
        if key % 20 == 19 {
            while db.maintain().unwrap() {}
        }
    }
    drop((db, table));
    let env = env.crash(CrashKind::PowerCut, 9);
    let written = env.faults().op_count();
    let reader = open(&env, Options { read_only: true, ..staged(MemoryMedium::Persistent) }).unwrap();
    check(&reader, 60);
    drop(reader);
    assert_eq!(env.faults().op_count(), written, "a reader writes nothing");
    let db = open(&env, staged(MemoryMedium::Persistent)).unwrap();
    check(&db, 60);
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
    assert_eq!(
        rows(&open(&env, common::options()).unwrap()).len(),
        60,
        "the file is not needed after a close"
    );
}

#[test]
fn what_cannot_be_staged_is_refused() {
    let env = SimEnv::new(1);
    let violations = |options: Options| match open(&env, options) {
        Err(Error::BadOptions { violations }) => violations.join("; "),
        other => panic!("{other:?}"),
    };
    let level = Options { durability: Durability::Staged, ..common::options() };
    assert!(violations(level).contains("Staged needs a staging file"));
    let mut short = staged(MemoryMedium::Persistent);
    short.staging.as_mut().unwrap().buffer_bytes = 64 << 10;
    assert!(violations(short).contains("a staging buffer has 65536 bytes"));
    let mut tight = staged(MemoryMedium::Volatile);
    tight.staging.as_mut().unwrap().buffer_bytes = 32 << 20;
    tight.memory_bytes = Some(64 << 20);
    assert!(violations(tight).contains("staging buffers in volatile memory"));
    let mut elsewhere = staged(MemoryMedium::Persistent);
    elsewhere.staging = Some(StagingOptions::new("/nowhere/staging", MemoryMedium::Persistent));
    assert!(open(&env, elsewhere).unwrap_err().to_string().contains("/nowhere/staging"));
    assert!(
        env.disk().open_mapped(common::STAGING.as_ref(), OpenOptions::Read).is_err(),
        "none was left behind"
    );
}

/// A directory on tmpfs; `None` if there is none.
fn in_memory() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in("/dev/shm").ok()?;
    let device = RealEnv::new().disk().device(dir.path()).ok()?;
    (device.file_system == "tmpfs").then_some(dir)
}

/// A closed database gives the file up, although a handle to it still lives.
#[test]
fn a_closed_database_leaves_its_file_to_the_next() {
    let Some(memory) = in_memory() else { return };
    let dir = tempfile::tempdir().unwrap();
    let staging = StagingOptions::new(memory.path().join("staging"), MemoryMedium::Volatile);
    let options = || Options { staging: Some(staging.clone()), ..Options::default() };
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.table("rows").unwrap();
    put(&db, &table, 1, Durability::Staged, 40);
    let in_use = Database::inspect_staging(&staging.path).unwrap_err().to_string();
    assert!(in_use.contains("staging"), "{in_use}");
    db.close().unwrap();
    let again = Database::open(dir.path(), options()).unwrap();
    assert_eq!(rows(&again), [1]);
    assert!(matches!(table.get("k"), Err(Error::Closed)), "its handle still lives");
    drop(again);
    assert_eq!(Database::inspect_staging(&staging.path).unwrap().buffers, 2);
}

/// Commits of all levels, while buffers fill up and are synced by threads.
#[test]
fn threads_of_all_levels_share_buffers() {
    let Some(memory) = in_memory() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut staging = StagingOptions::new(memory.path().join("staging"), MemoryMedium::Volatile);
    staging.buffer_bytes = 512 << 10;
    for buffers in [1, 3] {
        staging.buffers = buffers;
        let options = Options { staging: Some(staging.clone()), ..Options::default() };
        let db = Database::open(dir.path(), options).unwrap();
        let table = db.table("rows").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let level = [Durability::Staged, Durability::Staged, Durability::None, Durability::Sync];
                    for n in 0..400 {
                        put(db, table, thread << 32 | n, level[(thread + n) as usize % 4], 2_000);
                    }
                });
            }
        });
        let log = db.stats().log;
        assert!(log.drains > 3, "{log:?}");
        assert_eq!(rows(&db).len(), 2400);
        db.close().unwrap();
    }
}
