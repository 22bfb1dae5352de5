//! Checks that a level means the same for every engine: the system calls of each for 200 commits.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{child_with_store, each, store_of_child, trace, write};
use fulgurite_bench::engine::{Level, Needs};

const COMMITS: usize = 200;

/// Calls that write or may make data durable, and calls that open files for synchronous writes.
const CALLS: &str = "fsync,fdatasync,msync,write,writev,pwrite64,pwritev,pwritev2,open,openat,close";
/// The calls among them that write.
const WRITES: [&str; 5] = ["write", "writev", "pwrite64", "pwritev", "pwritev2"];
/// The traced process writes these lines to standard error before the commits, and after them.
const BEGIN: &str = "parity begins";
const END: &str = "parity ends";

#[test]
fn child_that_commits() {
    let Some(store) = store_of_child() else { return };
    let mut session = store.session().unwrap();
    eprintln!("{BEGIN}");
    for number in 0..COMMITS {
        write(&mut *session, |txn| txn.put(0, &(number as u64).to_be_bytes(), &[7; 100]));
    }
    eprintln!("{END}");
    drop(session);
    store.close().unwrap();
}

/// The name of the call in a line of a trace (`1234 call(arguments) = result`), and its first argument, if that is a
/// descriptor.
fn call_of(line: &str) -> (&str, Option<u64>) {
    let rest = line.split_once(' ').unwrap_or_default().1.trim_start();
    let call = rest.split_once('(').map_or("", |(call, _)| call);
    (call, rest.split(['(', ',', ')']).nth(1).and_then(|fd| fd.parse().ok()))
}

/// Whether this line is a write, other than to the standard streams.
fn is_write(line: &str) -> bool {
    let (call, fd) = call_of(line);
    WRITES.contains(&call) && fd.is_some_and(|fd| fd > 2)
}

/// Finds the calls that make something durable.
#[derive(Default)]
struct Syncs {
    /// Descriptors whose writes are synchronous.
    synced: BTreeSet<u64>,
    /// Processes with an `openat` for such a descriptor that has not returned.
    opening: BTreeMap<u64, bool>,
}

impl Syncs {
    /// Whether this line is such a call.
    fn is_sync(&mut self, line: &str) -> bool {
        let (process, rest) = line.split_once(' ').unwrap_or_default();
        let process: u64 = process.parse().unwrap_or_default();
        let rest = rest.trim_start();
        let (call, fd) = call_of(line);
        let on_synced = fd.is_some_and(|fd| self.synced.contains(&fd));
        if call.starts_with("open") {
            self.opening.insert(process, rest.contains("O_DSYNC") || rest.contains("O_SYNC"));
        }
        if call.starts_with("open") || rest.starts_with("<... open") {
            self.opened(process, rest);
        }
        match call {
            "fsync" | "fdatasync" => true,
            "msync" => rest.contains("MS_SYNC"),
            "pwritev2" if rest.contains("RWF_DSYNC") || rest.contains("RWF_SYNC") => true,
            _ => WRITES.contains(&call) && on_synced,
        }
    }

    /// Notes the descriptor that a call returned, if it did.
    fn opened(&mut self, process: u64, rest: &str) {
        let Some(fd) = rest.rsplit_once(" = ").and_then(|(_, fd)| fd.trim().parse::<u64>().ok()) else {
            return;
        };
        match self.opening.remove(&process) {
            Some(true) => self.synced.insert(fd),
            _ => self.synced.remove(&fd),
        };
    }
}

/// The calls between the first commit and the last one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    syncs: usize,
    writes: usize,
}

fn asked_by_commits(calls: &str) -> Asked {
    let mut syncs = Syncs::default();
    let mut asked = Asked::default();
    let mut is_between = false;
    for line in calls.lines() {
        is_between = (is_between || line.contains(BEGIN)) && !line.contains(END);
        asked.syncs += usize::from(syncs.is_sync(line) && is_between);
        asked.writes += usize::from(is_write(line) && is_between);
    }
    asked
}

#[test]
fn traces_are_read() {
    let trace = r#"
10    fsync(3) = 0
10    openat(AT_FDCWD, "log", O_RDWR|O_DSYNC) = 7
11    openat(AT_FDCWD, "lock", O_RDWR|O_SYNC <unfinished ...>
10    write(2, "parity begins\n", 14) = 14
11    <... openat resumed>) = 8
10    fsync(3) = 0
10    fdatasync(3 <unfinished ...>
10    <... fdatasync resumed>) = 0
10    msync(0x7f0000000000, 4096, MS_SYNC) = 0
10    msync(0x7f0000000000, 4096, MS_ASYNC) = 0
10    pwrite64(7, "x", 1, 0) = 1
10    pwrite64(8, "x", 1, 0) = 1
10    pwrite64(9, "x", 1, 0) = 1
10    pwritev2(9, [{iov_base="x", iov_len=1}], 1, 0, RWF_DSYNC) = 1
10    pwritev2(9, [{iov_base="x", iov_len=1}], 1, 0, 0) = 1
10    openat(AT_FDCWD, "other", O_RDWR) = 7
10    pwrite64(7, "x", 1, 0) = 1
10    write(2, "parity ends\n", 12) = 12
10    fsync(3) = 0
"#;
    assert_eq!(asked_by_commits(trace), Asked { syncs: 6, writes: 6 });
}

fn asked(name: &str, level: Level) -> Option<Asked> {
    let dir = tempfile::tempdir().unwrap();
    let traced = trace(child_with_store("child_that_commits", name, dir.path(), level), CALLS)?;
    assert!(traced.calls.contains(BEGIN) && traced.calls.contains(END), "{name}: the trace is not whole");
    Some(asked_by_commits(&traced.calls))
}

/// Checks the calls of each engine with this level.
fn check(level: Level, is_right: impl Fn(&Asked) -> bool) {
    each(Needs::default(), level, |engine| {
        let Some(asked) = asked(engine.name(), level) else { return };
        assert!(is_right(&asked), "{} at {level}: {asked:?} for {COMMITS} commits", engine.name());
        eprintln!("{asked:?}");
    });
}

#[test]
fn each_commit_is_synced() {
    check(Level::Sync, |asked| asked.syncs >= COMMITS);
}

#[test]
fn unsynced_commits_are_written_and_not_synced() {
    check(Level::Unsynced, |asked| asked.syncs < COMMITS / 10 && asked.writes >= COMMITS);
}

#[test]
fn commits_to_memory_are_not_written_one_by_one() {
    check(Level::Memory, |asked| asked.syncs < COMMITS / 10 && asked.writes < COMMITS);
}
