//! The system calls of commits: `strace` records those of a process, and the record has to show that no commit was
//! acknowledged before it was durable, and that one commit is one synchronous write. Skipped where tracing is not
//! possible.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use fulgurite::env::{Env, OpenOptions, RealEnv};
use fulgurite::{Database, Options};

const COMMITS: usize = 40;
const DIR: &str = "FULGURITE_TRACED_DIR";
const DIRECT: &str = "FULGURITE_TRACED_DIRECT";
const THREADS: &str = "FULGURITE_TRACED_THREADS";
/// The messages of the process on its standard error, one call each.
const BEGIN: &str = "begin";
const END: &str = "end";

// The process that is watched.

/// Does nothing unless the process was started by one of the tests below.
#[test]
fn traced_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let direct_io = std::env::var(DIRECT).is_ok();
    let threads: usize = std::env::var(THREADS).expect("set with the other").parse().expect("a number");
    // Without background threads, so that all calls are those of the commits.
    let options = Options { background: false, direct_io, ..Options::default() };
    let db = Database::open(Path::new(&dir), options).expect("an empty directory");
    let table = db.table("t").expect("it is created");
    say(&format!("ack {BEGIN}"));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let table = &table;
            scope.spawn(move || {
                for n in 0..COMMITS {
                    let key = key(thread, n);
                    table.put(key.as_bytes(), b"value").expect("nothing fails");
                    say(&format!("ack {key}"));
                }
            });
        }
    });
    say(&format!("ack {END}"));
}

fn key(thread: usize, n: usize) -> String {
    format!("k-{thread}-{n}-")
}

fn say(what: &str) {
    let line = format!("{what}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("the test reads it");
}

// The record of it.

/// A system call, from its entry to its return; both are line numbers of the record.
#[derive(Debug)]
struct Call {
    thread: String,
    name: String,
    /// Arguments and result.
    text: String,
    start: usize,
    end: usize,
}

impl Call {
    fn is_on_segment(&self) -> bool {
        let descriptor = self.text.split_once('>').map_or("", |(descriptor, _)| descriptor);
        self.name != "futex" && descriptor.ends_with(".seg")
    }

    fn is_synchronous_write(&self) -> bool {
        self.name == "pwritev2" && self.text.contains("RWF_DSYNC")
    }

    fn is_sync(&self) -> bool {
        matches!(&*self.name, "fdatasync" | "fsync")
    }

    fn has_succeeded(&self) -> bool {
        let result = self.text.rsplit_once(" = ").map_or("", |(_, result)| result);
        if self.is_sync() { result == "0" } else { result.parse::<u64>().is_ok_and(|bytes| bytes > 0) }
    }

    /// The key that it acknowledges.
    fn ack(&self) -> Option<&str> {
        let said =
            self.text.split_once('"').filter(|_| self.name == "write" && self.text.starts_with('2'))?.1;
        Some(said.strip_prefix("ack ")?.split_once("\\n")?.0)
    }
}

/// The calls of a record, by their entries.
fn calls(record: &str) -> Vec<Call> {
    let (mut calls, mut open): (Vec<Call>, Vec<(&str, usize)>) = (Vec::new(), Vec::new());
    for (at, line) in record.lines().enumerate() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some((_, rest)) = rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            let index = open.iter().position(|(other, _)| *other == pid).expect("it was entered before");
            let call = &mut calls[open.swap_remove(index).1];
            call.text.push_str(rest);
            call.end = at;
        } else if let Some((name, text)) = rest.split_once('(').filter(|_| !rest.starts_with(['-', '+'])) {
            let (text, end) = match text.strip_suffix(" <unfinished ...>") {
                Some(text) => {
                    open.push((pid, calls.len()));
                    (text, usize::MAX)
                }
                None => (text, at),
            };
            calls.push(Call { thread: pid.into(), name: name.into(), text: text.into(), start: at, end });
        }
    }
    calls
}

/// Runs the process under `strace`; `None` if that is not possible here.
fn trace(direct: bool, threads: usize) -> Option<Vec<Call>> {
    let dir = tempfile::tempdir().expect("a directory");
    let traces =
        Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    if !traces.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace is missing, or may not trace here");
        return None;
    }
    let env = RealEnv::new();
    let probe = env.disk().open(&dir.path().join("probe"), OpenOptions::CreateNew).expect("a file");
    if direct && !probe.takes_direct_writes().expect("the file system reports it") {
        eprintln!("skipped: the file system of {} takes no direct writes", dir.path().display());
        return None;
    }
    let record = dir.path().join("record");
    let mut command = Command::new("strace");
    let traced = "trace=write,pwrite64,pwritev,pwritev2,fdatasync,fsync,futex";
    command.args(["-f", "-y", "-s", "65536", "-e", traced, "-o"]).arg(&record);
    command.arg(std::env::current_exe().expect("the test itself"));
    command.args(["--exact", "traced_process", "--nocapture", "--test-threads=1"]);
    command.env(DIR, dir.path().join("db")).env(THREADS, threads.to_string());
    if direct {
        command.env(DIRECT, "1");
    }
    let output = command.output().expect("strace runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the process failed: {said}");
    assert_eq!(said.matches("ack k-").count(), threads * COMMITS, "everything was acknowledged: {said}");
    let mut calls = calls(&read(&record));
    let position = |what| calls.iter().position(|call: &Call| call.ack() == Some(what)).expect("it was said");
    let (begin, end) = (position(BEGIN), position(END));
    Some(calls.drain(begin..end).collect())
}

#[expect(clippy::disallowed_methods, reason = "a record of strace's is no file of a database")]
fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).expect("strace wrote it")).into_owned()
}

/// For each commit of one thread: the calls on a segment between the acknowledgement of the one before and its own. All
/// of them have succeeded by then, and no other thread was waited for or woken.
fn calls_of_each_commit(calls: &[Call]) -> Vec<Vec<&Call>> {
    let acks: Vec<&Call> = calls.iter().filter(|call| call.ack().is_some()).collect();
    assert_eq!(acks.len(), COMMITS + 1);
    let commits = acks.windows(2).enumerate().map(|(n, pair)| {
        assert_eq!(pair[1].ack(), Some(&*key(0, n)));
        let between = calls.iter().filter(|call| call.start > pair[0].end && call.start < pair[1].start);
        let (mine, others): (Vec<&Call>, Vec<&Call>) = between.partition(|call| call.is_on_segment());
        assert!(
            others.iter().all(|call| call.name != "futex" || call.thread != pair[1].thread),
            "a thread alone neither sleeps nor wakes: {others:?}"
        );
        for call in &mine {
            assert!(
                call.end < pair[1].start && call.has_succeeded(),
                "acknowledged before the end of {call:?}"
            );
        }
        assert!(mine[0].text.contains(&key(0, n)), "commit {n} is in the write: {mine:?}");
        mine
    });
    commits.collect()
}

#[test]
fn one_thread_around_the_page_cache_makes_one_synchronous_write_a_commit() {
    let Some(calls) = trace(true, 1) else { return };
    for mine in calls_of_each_commit(&calls) {
        assert!(mine.len() == 1 && mine[0].is_synchronous_write(), "{mine:?}");
    }
}

#[test]
fn one_thread_through_the_page_cache_makes_one_write_and_one_sync_a_commit() {
    let Some(calls) = trace(false, 1) else { return };
    for mine in calls_of_each_commit(&calls) {
        let [write, sync] = mine[..] else { panic!("{mine:?}") };
        assert!(write.name.starts_with("pwrite") && !write.text.contains("RWF_DSYNC"), "{write:?}");
        assert!(sync.name == "fdatasync" && sync.start > write.end, "{mine:?}");
    }
}

/// Every acknowledgement comes after the end of a write that holds the commit and was synchronous, or that a sync
/// followed; and every write brings something new.
fn nothing_is_acknowledged_early(calls: &[Call], threads: usize) {
    let on_segment = || calls.iter().filter(|call| call.is_on_segment() && call.has_succeeded());
    let durable_at = |write: &Call| {
        if write.is_synchronous_write() {
            return Some(write.end);
        }
        on_segment().filter(|call| call.is_sync() && call.start > write.end).map(|call| call.end).min()
    };
    let writes: Vec<&Call> = on_segment().filter(|call| !call.is_sync()).collect();
    let acks = || calls.iter().filter_map(|call| Some((call, call.ack()?))).filter(|(_, key)| *key != BEGIN);
    assert_eq!(acks().count(), threads * COMMITS);
    for (ack, key) in acks() {
        let durable =
            writes.iter().filter(|write| write.text.contains(key)).filter_map(|write| durable_at(write));
        assert!(
            durable.min().is_some_and(|end| end < ack.start),
            "{key} was acknowledged before it was durable"
        );
    }
    assert!(writes.len() <= threads * COMMITS, "{} writes", writes.len());
    for (index, write) in writes.iter().enumerate() {
        let is_new =
            |key| write.text.contains(key) && !writes[..index].iter().any(|old| old.text.contains(key));
        assert!(acks().any(|(_, key)| is_new(key)), "no acknowledgement needs {write:?}");
    }
}

#[test]
fn threads_around_the_page_cache_are_acknowledged_by_synchronous_writes_that_hold_their_commits() {
    let Some(calls) = trace(true, 8) else { return };
    nothing_is_acknowledged_early(&calls, 8);
    let mut on_segment = calls.iter().filter(|call| call.is_on_segment());
    assert!(on_segment.all(Call::is_synchronous_write), "synchronous writes and nothing else");
}

#[test]
fn threads_through_the_page_cache_are_acknowledged_by_syncs_that_follow_their_writes() {
    let Some(calls) = trace(false, 8) else { return };
    nothing_is_acknowledged_early(&calls, 8);
}
