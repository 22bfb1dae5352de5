//! Changes around an open database, on the real file system: directories are moved, the working directory changes,
//! files are removed. No acknowledged commit may be lost.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "these are the acts of others, behind the back of the database"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::{Database, Error, Options, Table};

/// Enough to fill several segments.
const PUTS: u32 = 400;
const VALUE_BYTES: usize = 60_000;

fn open(path: &Path) -> Database {
    Database::open(path, Options::default()).expect("it opens")
}

/// Puts to all tables in turn, so that their databases make segments at the same time.
fn fill(tables: &[(&Table, u8)]) {
    for n in 0..PUTS {
        for (table, byte) in tables {
            table.put(&n.to_be_bytes(), &[*byte; VALUE_BYTES]).expect("acknowledged");
        }
    }
}

/// Every put of [`fill`] that was acknowledged is there after another opening.
fn verify(path: &Path, byte: u8) {
    let db = open(path);
    let table = db.open_table("t").expect("it was created");
    for n in 0..PUTS {
        let value = table.get(&n.to_be_bytes()).expect("readable").unwrap_or_else(|| panic!("{n} is lost"));
        assert!(value[..] == [byte; VALUE_BYTES], "{n} of {} is another database's", path.display());
    }
    let report = db.check(|_| {}).expect("checked");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    db.close().expect("closed");
}

#[test]
fn a_database_whose_directory_is_moved_and_one_in_its_place_keep_apart() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let (data, moved) = (temporary.path().join("data"), temporary.path().join("data.old"));
    let first = open(&data);
    let first_table = first.table("t").expect("created");
    std::fs::rename(&data, &moved).expect("moved");
    let second = open(&data);
    let second_table = second.table("t").expect("created");
    fill(&[(&first_table, 1), (&second_table, 2)]);
    first.close().expect("closed");
    second.close().expect("closed");
    verify(&moved, 1);
    verify(&data, 2);
}

#[test]
fn a_database_continues_in_its_directory_when_that_is_moved() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let (data, moved) = (temporary.path().join("data"), temporary.path().join("elsewhere"));
    let db = open(&data);
    let table = db.table("t").expect("created");
    std::fs::rename(&data, &moved).expect("moved");
    fill(&[(&table, 3)]);
    db.checkpoint().expect("written");
    db.close().expect("closed");
    assert!(!data.exists(), "a file was created at the old path");
    verify(&moved, 3);
}

/// Runs one of the tests `part_...` below in a process of its own, whose working directory is `dir`.
fn run(test: &str, dir: &Path) -> Output {
    let program = std::env::current_exe().expect("this test");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--ignored"]).current_dir(dir);
    command.output().expect("it runs")
}

fn assert_ran(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn databases_opened_by_relative_paths_keep_apart_when_the_working_directory_changes() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    for dir in ["a", "b"] {
        std::fs::create_dir(temporary.path().join(dir)).expect("created");
    }
    assert_ran(&run("child_that_changes_its_working_directory", temporary.path()));
    verify(&temporary.path().join("a/data"), 1);
    verify(&temporary.path().join("b/data"), 2);
}

#[test]
#[ignore = "run by the test above"]
fn child_that_changes_its_working_directory() {
    std::env::set_current_dir("a").expect("it is there");
    let first = open(Path::new("data"));
    let first_table = first.table("t").expect("created");
    std::env::set_current_dir("../b").expect("it is there");
    let second = open(Path::new("data"));
    let second_table = second.table("t").expect("created");
    fill(&[(&first_table, 1), (&second_table, 2)]);
    let path = first.path().to_path_buf();
    first.close().expect("closed");
    second.close().expect("closed");
    assert!(path.is_absolute() && path.ends_with("a/data"), "{path:?}");
}

#[test]
fn a_process_that_changes_its_root_continues_to_write() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(temporary.path().join("empty")).expect("created");
    let output = run("child_that_changes_its_root", temporary.path());
    assert_ran(&output);
    if !String::from_utf8_lossy(&output.stderr).contains("skipped:") {
        verify(&temporary.path().join("data"), 7);
    }
}

/// Without `/proc` no further file is opened a second time, for direct writes.
#[test]
#[ignore = "run by the test above"]
fn child_that_changes_its_root() {
    let db = open(Path::new("data"));
    let table = db.table("t").expect("created");
    if rustix::process::chroot("empty").is_err() {
        eprintln!("skipped: this needs the right to change the root");
        return;
    }
    fill(&[(&table, 7)]);
    db.checkpoint().expect("written");
    db.close().expect("closed");
}

/// How many descriptors each file below `dir` has in this process.
fn descriptors(dir: &Path) -> BTreeMap<PathBuf, usize> {
    let mut counts = BTreeMap::new();
    let entries = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    let targets = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    for path in targets.filter(|path| path.starts_with(dir)) {
        *counts.entry(path).or_default() += 1;
    }
    counts
}

#[test]
fn reaching_the_limit_of_open_files_ends_no_writing() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    assert_ran(&run("child_that_runs_out_of_files", temporary.path()));
}

#[test]
#[ignore = "run by the test above"]
fn child_that_runs_out_of_files() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit { current: Some(128), maximum: Some(128) };
    setrlimit(Resource::Nofile, limit).expect("it may be lowered");
    // Each round leaves one descriptor more, and in the last rounds another thread takes and returns some: so each call
    // that needs a descriptor fails at least once.
    for round in 0..7 {
        run_out_of_files(&PathBuf::from(format!("data{round}")), (round < 5).then_some(round));
    }
}

/// Ends the thread that takes descriptors, also when the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts while all but `left` descriptors are taken, or while another thread takes them and gives some back.
fn run_out_of_files(path: &Path, left: Option<usize>) {
    let db = open(path);
    let table = db.table("t").expect("created");
    let take_all = || std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect::<Vec<_>>();
    let done = AtomicBool::new(false);
    let mut acknowledged = 0u32;
    std::thread::scope(|scope| {
        let _done = Done(&done);
        let mut taken = take_all();
        match left {
            Some(left) => taken.truncate(taken.len() - left),
            None => {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        taken.truncate(taken.len().saturating_sub(1));
                        std::thread::yield_now();
                        taken.extend(take_all());
                    }
                });
            }
        }
        for n in 0..120u32 {
            match table.put(&n.to_be_bytes(), &[5; VALUE_BYTES]) {
                Ok(_) => acknowledged = n + 1,
                Err(Error::Io { .. }) if left.is_some() => break,
                Err(Error::Io { .. }) => {}
                Err(error) => panic!("with {left:?} descriptors: {error}"),
            }
        }
    });
    let put = table.put(&acknowledged.to_be_bytes(), &[5; VALUE_BYTES]);
    put.unwrap_or_else(|error| panic!("with descriptors again, after {left:?}: {error}"));
    drop(table);
    db.close().expect("closed");
    let db = open(path);
    let table = db.open_table("t").expect("it was created");
    let value = table.get(&acknowledged.to_be_bytes()).expect("readable").expect("it was acknowledged");
    assert!(value[..] == [5; VALUE_BYTES]);
    drop(table);
    db.close().expect("closed");
}

#[test]
fn a_sealed_segment_takes_one_descriptor_at_most() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let db = open(temporary.path());
    let table = db.table("t").expect("created");
    fill(&[(&table, 6)]);
    db.checkpoint().expect("written");
    for n in 0..PUTS {
        table.get(&n.to_be_bytes()).expect("readable").expect("there");
    }
    let counts = descriptors(&temporary.path().join("log"));
    // Each stream appends to one, the log keeps two ready and makes a third.
    let twice = counts.values().filter(|count| **count > 1).count();
    assert!(twice <= 5, "{counts:?}");
}

#[test]
fn a_second_process_stays_out_after_the_lock_file_was_removed() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let data = temporary.path().join("data");
    let db = open(&data);
    let table = db.table("t").expect("created");
    std::fs::remove_file(data.join("LOCK")).expect("removed");
    assert_ran(&run("child_that_is_to_be_locked_out", temporary.path()));
    let error = Database::open(&data, Options::default()).expect_err("open here");
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(error.to_string().contains("is open in this process"), "{error}");
    fill(&[(&table, 4)]);
    db.close().expect("closed");
    verify(&data, 4);
}

#[test]
#[ignore = "run by the test above"]
fn child_that_is_to_be_locked_out() {
    for _ in 0..2 {
        let error = Database::open("data", Options::default()).expect_err("open in another process");
        assert!(matches!(error, Error::Locked { .. }), "{error}");
        assert!(error.to_string().contains("is open in another process"), "{error}");
    }
}
