//! The states in which opening can find a directory; one test for each row of the second table in `docs/recovery.md`.

use crate::common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::PATH;
use fulgurite::env::sim::{CrashKind, Loss};
use fulgurite::env::{Env, SimEnv};
use fulgurite::{Database, Error, ErrorKind, Options, Result};

const SUPERBLOCK: &str = "/db/SUPERBLOCK";

fn open(env: &Arc<SimEnv>) -> Result<Database> {
    common::open(env.clone())
}

/// A database with one acknowledged row in the log, and one in a checkpoint, closed or not.
fn with_rows(seed: u64, clean: bool) -> Arc<SimEnv> {
    let env = SimEnv::new(seed);
    let db = open(&env).unwrap();
    let table = db.table("t").unwrap();
    table.put(b"checkpointed", b"1").unwrap();
    db.checkpoint().unwrap();
    table.put(b"logged", b"2").unwrap();
    if clean {
        db.close().unwrap();
        return env.crash(CrashKind::PowerCut, seed);
    }
    env.crash(CrashKind::PowerCut, seed)
}

fn assert_rows(env: &Arc<SimEnv>) {
    let db = open(env).unwrap();
    let table = db.open_table("t").unwrap();
    assert_eq!(table.get(b"checkpointed").unwrap().unwrap(), b"1");
    assert_eq!(table.get(b"logged").unwrap().unwrap(), b"2");
    table.put(b"again", b"3").unwrap();
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

fn refused(env: &Arc<SimEnv>) -> Error {
    match open(env) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[test]
fn an_empty_or_missing_directory_is_created() {
    let env = SimEnv::new(1);
    let db = open(&env).unwrap();
    assert!(db.tables().unwrap().is_empty());
    let options = Options { create: false, ..common::options() };
    let missing = Database::open_with(SimEnv::new(2), PATH, options.clone(), |_| {});
    assert!(matches!(missing, Err(Error::NotADatabase { .. })));
    let env = SimEnv::new(2);
    env.disk().create_dir_all(Path::new(PATH)).unwrap();
    let Err(empty) = Database::open_with(env, PATH, options, |_| {}) else { panic!("it opened") };
    assert!(empty.to_string().ends_with("the directory is empty, and `create` is not set"), "{empty}");
}

/// A path into a disk that is not mounted must not become a new database on another.
#[test]
fn a_directory_whose_parent_is_missing_is_not_created() {
    let env = SimEnv::new(18);
    let Err(error) = Database::open_with(env.clone(), "/mnt/disk/db", common::options(), |_| {}) else {
        panic!("it opened")
    };
    assert_eq!(error.kind(), ErrorKind::Request);
    assert!(error.to_string().contains("there is no directory /mnt/disk to make it in"), "{error}");
    assert!(env.list_raw().is_empty());
}

#[test]
fn a_creation_that_was_cut_off_anywhere_is_begun_again() {
    let steps = {
        let env = SimEnv::new(3);
        drop(open(&env).unwrap());
        env.faults().op_count()
    };
    for step in 1..=steps {
        for kind in [CrashKind::Kill, CrashKind::PowerCut] {
            let env = SimEnv::new(3);
            env.faults().crash_at(step);
            drop(open(&env));
            let image = env.crash(kind, step);
            let db = open(&image).unwrap_or_else(|error| panic!("step {step}, {kind:?}: {error}"));
            db.table("t").unwrap().put(b"k", b"v").unwrap();
        }
    }
}

#[test]
fn a_clean_close_needs_no_replay() {
    let env = with_rows(4, true);
    let db = open(&env).unwrap();
    assert_eq!(db.stats().checkpoint_covered, db.stats().visible);
    drop(db);
    assert_rows(&env);
}

/// `close_timeout`: what is not merged stays in the log.
#[test]
fn a_close_that_has_no_time_to_merge_is_replayed() {
    let options = |close_timeout| Options { close_timeout, ..common::options() };
    let mut env = with_rows(19, true);
    let mut replays = 0;
    for life in 0..20u64 {
        let db = common::open_as(env.clone(), options(Duration::ZERO)).unwrap();
        let table = db.open_table("t").unwrap();
        // The eighth such opening writes a checkpoint itself (INV-CKPT-4).
        replays += u64::from(db.stats().checkpoint_covered < db.stats().visible);
        (0..life).for_each(|n| assert_eq!(table.get(n.to_be_bytes()).unwrap().unwrap(), [7; 3_000]));
        table.put(life.to_be_bytes(), [7; 3_000]).unwrap();
        table.delete_range(b"x".as_slice()..).unwrap();
        drop(table);
        db.close().unwrap();
        let kind = if life % 2 == 0 { CrashKind::Kill } else { CrashKind::PowerCut };
        env = env.crash(kind, life);
        assert_rows(&env.crash(kind, life));
    }
    assert!((14..20).contains(&replays), "{replays}");
    common::open_as(env.clone(), options(Duration::MAX)).unwrap().close().unwrap();
    let db = open(&env).unwrap();
    assert_eq!(db.stats().checkpoint_covered, db.stats().visible);
}

#[test]
fn a_crash_is_replayed() {
    assert_rows(&with_rows(5, false));
}

#[test]
fn one_bad_superblock_copy_leaves_the_other() {
    for clean in [false, true] {
        for slot in 0..2u64 {
            let env = with_rows(6, clean);
            env.corrupt(Path::new(SUPERBLOCK), slot * 4096 + 40, |byte| *byte ^= 1).unwrap();
            assert_rows(&env);
        }
    }
}

#[test]
fn two_bad_superblock_copies_are_damage() {
    let env = with_rows(7, true);
    for slot in 0..2u64 {
        env.corrupt(Path::new(SUPERBLOCK), slot * 4096 + 40, |byte| *byte ^= 1).unwrap();
    }
    let error = refused(&env);
    assert_eq!(error.kind(), ErrorKind::Restore);
    assert!(error.to_string().contains("SUPERBLOCK"), "{error}");
}

#[test]
fn a_log_without_a_superblock_is_damage() {
    let env = with_rows(8, true);
    env.remove_raw(Path::new(SUPERBLOCK)).unwrap();
    let error = refused(&env);
    assert_eq!(error.kind(), ErrorKind::Restore);
    assert!(error.to_string().contains("SUPERBLOCK"), "{error}");
}

#[test]
fn a_superblock_without_a_log_is_damage() {
    let env = with_rows(9, true);
    for (path, _) in env.list_raw() {
        if path.starts_with("/db/log") {
            env.remove_raw(&path).unwrap();
        }
    }
    assert_eq!(refused(&env).kind(), ErrorKind::Restore);
}

#[test]
fn a_missing_segment_with_live_bytes_is_damage() {
    let env = with_rows(10, true);
    let segments: Vec<_> =
        env.list_raw().into_iter().filter(|(path, _)| path.starts_with("/db/log")).collect();
    let mut damaged = 0;
    for (path, _) in segments {
        let env = with_rows(10, true);
        env.remove_raw(&path).unwrap();
        match open(&env) {
            Ok(db) => drop(db),
            Err(error) => {
                let named = error.to_string().contains(path.file_name().unwrap().to_str().unwrap());
                let start = error.to_string().contains("no segment holds a valid start of an epoch");
                assert!(named || start, "{error}");
                damaged += 1;
            }
        }
    }
    assert!(damaged >= 1, "the nodes are in some segment");
}

#[test]
fn a_newer_format_is_refused() {
    let env = with_rows(11, true);
    for slot in 0..2u64 {
        env.corrupt(Path::new(SUPERBLOCK), slot * 4096 + 8, |byte| *byte = 9).unwrap();
    }
    assert!(matches!(refused(&env), Error::NewerFormat { found: 9, supported: 5, .. }));
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let env = SimEnv::new(12);
    env.write_raw(Path::new("/db/letters.txt"), b"dear").unwrap();
    let error = refused(&env);
    assert!(matches!(&error, Error::NotADatabase { .. }), "{error}");
    assert!(error.to_string().contains("letters.txt"), "{error}");
    assert_eq!(env.list_raw().len(), 1, "nothing was written");
}

#[test]
fn a_second_open_is_refused_while_the_first_lasts() {
    let env = SimEnv::new(13);
    let db = open(&env).unwrap();
    assert!(matches!(refused(&env), Error::Locked { .. }));
    db.close().unwrap();
    drop(open(&env).unwrap());
}

#[test]
fn a_database_that_another_process_took_over_hides_none_of_its_commits() {
    let env = SimEnv::new(16);
    let db = open(&env).unwrap();
    let table = db.table("t").unwrap();
    table.put(b"k", b"1").unwrap();
    // Written by a process that no lock kept out.
    let other = env.crash(CrashKind::Kill, 1);
    drop(open(&other).unwrap());
    let foreign = other.read_raw(Path::new("/db/SUPERBLOCK")).unwrap();
    env.write_raw(Path::new("/db/SUPERBLOCK"), &foreign).unwrap();

    let error = db.checkpoint().unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    assert!(error.to_string().contains("another process has opened this database"), "{error}");
    assert!(matches!(table.put(b"k", b"2"), Err(Error::Poisoned { .. })));
    assert_eq!(&table.get(b"k").unwrap().unwrap()[..], b"1", "reads continue");
    assert!(
        env.read_raw(Path::new("/db/SUPERBLOCK")).unwrap() == foreign,
        "the other process's superblock stays"
    );
    drop((table, db));
    assert!(
        env.read_raw(Path::new("/db/SUPERBLOCK")).unwrap() == foreign,
        "the other process's superblock stays"
    );
}

/// A superblock from an own write that failed is not taken for another process's.
#[test]
fn a_superblock_that_could_not_be_synced_is_written_again() {
    for (seed, loss) in (0..8).map(|seed| (seed, if seed == 0 { Loss::All } else { Loss::Some })) {
        let env = SimEnv::new(seed);
        let db = Database::open_with(
            env.clone(),
            "/db",
            Options { background: false, ..Options::default() },
            |_| {},
        );
        let db = db.unwrap();
        let table = db.table("t").unwrap();
        table.put(b"k", b"1").unwrap();
        db.checkpoint().unwrap();
        for _ in 0..3 {
            // Nothing has changed: only the superblock is written.
            env.faults().fail_sync(env.faults().sync_count() + 1, loss);
            let error = db.checkpoint().unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{error}");
        }
        db.checkpoint().unwrap();
        table.put(b"k", b"2").unwrap();
        drop((table, db));
        let db = open(&env.crash(CrashKind::PowerCut, seed)).unwrap();
        assert_eq!(&db.table("t").unwrap().get(b"k").unwrap().unwrap()[..], b"2");
    }
}

#[test]
fn a_refused_open_changes_nothing() {
    let env = with_rows(14, false);
    let log: Vec<_> = env.list_raw().into_iter().filter(|(path, _)| path.starts_with("/db/log")).collect();
    let (first, _) = log.first().unwrap();
    env.corrupt(first, 4096 + 30, |byte| *byte ^= 0x40).unwrap();
    let contents = |env: &Arc<SimEnv>| -> Vec<_> {
        let files = env.list_raw().into_iter().filter(|(path, _)| !path.ends_with("LOCK"));
        files.map(|(path, _)| (env.read_raw(&path).unwrap(), path)).collect()
    };
    let before = contents(&env);
    if open(&env).is_err() {
        assert!(before == contents(&env), "a refused open wrote something");
    }
}

#[test]
fn a_check_continues_after_damage() {
    let env = SimEnv::new(15);
    let db = open(&env).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..200u32 {
        // A leaf does not have what its keys share.
        let value = [format!("needle {n:05}").as_bytes(), &[7; 100]].concat();
        table.put(&n.to_be_bytes(), &value).unwrap();
    }
    db.close().unwrap();
    let mut leaves = 0;
    for needle in ["needle 00010", "needle 00100", "needle 00190"] {
        for (path, _) in env.list_raw() {
            let bytes = env.read_raw(&path).unwrap();
            // The last match is the leaf's: the log is before it.
            let found = bytes.windows(needle.len()).rposition(|window| window == needle.as_bytes());
            if let Some(at) = found.filter(|_| path.starts_with("/db/log")) {
                env.corrupt(&path, at as u64 + 20, |byte| *byte ^= 1).unwrap();
                leaves += 1;
            }
        }
    }
    assert!(leaves >= 3);
    let db = open(&env).unwrap();
    let report = db.check(|_| {}).unwrap();
    assert!(report.problems.len() >= 3, "{:?}", report.problems);
    assert!(report.entries >= 100, "{report:?}");
}

#[test]
fn a_check_counts_user_tables_and_versions_that_are_only_in_the_log() {
    let env = with_rows(17, false);
    let db = open(&env).unwrap();
    let report = db.check(|_| {}).unwrap();
    assert_eq!((report.tables, report.entries, report.recent_versions), (1, 1, 1), "{report:?}");
    assert_eq!(report.tables, db.stats().tables);
    db.checkpoint().unwrap();
    let report = db.check(|_| {}).unwrap();
    assert_eq!((report.tables, report.entries, report.recent_versions), (1, 2, 0), "{report:?}");
}

#[test]
fn values_outside_their_leaves_do_not_keep_a_database_from_opening_again() {
    for inline_bytes_max in [0, 1, 6, 7] {
        let env = SimEnv::new(16);
        let open = || common::open_as(env.clone(), Options { inline_bytes_max, ..common::options() });
        let db = open().unwrap();
        db.create_table("t").unwrap().put(b"k", b"v").unwrap();
        db.close().unwrap();
        let db = open().unwrap_or_else(|error| panic!("inline_bytes_max {inline_bytes_max}: {error}"));
        assert_eq!(db.open_table("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
        let report = db.check(|_| {}).unwrap();
        assert_eq!((report.problems.len(), report.notes.len()), (0, 0), "{report:?}");
    }
}
