//! Commands that read write nothing: on a read-only mount, and beside a process that writes.
#![expect(clippy::disallowed_methods, reason = "the tests' own files are not the database's")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::common::Sandbox;

const READERS: [&[&str]; 8] = [
    &["get", "db", "t", "key 1"],
    &["scan", "db", "t"],
    &["export", "db", "t"],
    &["tables", "db"],
    &["stat", "db"],
    &["stat", "db", "--json"],
    &["check", "db"],
    &["dump", "db"],
];

/// Every file and directory below `path`, with all that a write would change.
fn state(path: &Path) -> Vec<(String, SystemTime, Vec<u8>)> {
    let mut found = Vec::new();
    let meta = path.metadata().unwrap();
    let bytes = if meta.is_dir() { Vec::new() } else { std::fs::read(path).unwrap() };
    found.push((path.display().to_string(), meta.modified().unwrap(), bytes));
    if meta.is_dir() {
        let mut entries: Vec<_> =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| found.extend(state(entry)));
    }
    found
}

fn load(sandbox: &Sandbox) {
    let rows: String = (0..500).map(|n| format!("key {n}\tvalue {n}\n")).collect();
    sandbox.write("rows.tsv", rows);
    sandbox.ok(&["load", "db", "t", "rows.tsv"]);
}

#[test]
fn reading_a_closed_database_writes_nothing() {
    let sandbox = Sandbox::new();
    load(&sandbox);
    let before = state(&sandbox.file("db"));
    for args in READERS {
        sandbox.ok(args);
        assert!(state(&sandbox.file("db")) == before, "{args:?} wrote something");
    }
}

/// A process that loads, and is killed once the rows are durable.
fn killed(sandbox: &Sandbox) {
    let rows: String = (0..300).map(|n| format!("key {n}\tvalue {n}\n")).collect();
    sandbox.load_and_kill("t", &rows);
}

#[test]
fn reading_a_killed_database_writes_nothing_either() {
    let sandbox = Sandbox::new();
    killed(&sandbox);
    let before = state(&sandbox.file("db"));
    let mut scans = Vec::new();
    for _ in 0..2 {
        for args in READERS {
            let ran = sandbox.run(args);
            // With --json the note is an object.
            let is_note = ["note: ", "{\"note\":"].iter().any(|start| ran.stderr.starts_with(start));
            assert!(ran.stderr.is_empty() || is_note, "{args:?}: {}", ran.stderr);
            assert!(state(&sandbox.file("db")) == before, "{args:?} wrote something");
        }
        scans.push(sandbox.run(&["scan", "db", "t"]).stdout);
    }
    assert_eq!(scans[0], scans[1]);
    // The rows are the same after an open for writing.
    sandbox.run(&["delete", "db", "t", "no such key"]);
    assert_eq!(sandbox.run(&["scan", "db", "t"]).stdout, scans[0]);
}

#[test]
fn a_read_only_mount_can_be_read() {
    let sandbox = Sandbox::new();
    load(&sandbox);
    // Without LOCK, as a copy might be.
    std::fs::remove_file(sandbox.file("db/LOCK")).unwrap();
    let program = env!("CARGO_BIN_EXE_fulgurite");
    let script = format!(
        "mount --bind db db && mount -o remount,bind,ro db || exit 77\n\
         touch db/x 2>/dev/null && exit 78\n\
         {program} get db t 'key 7' && {program} check db && {program} stat db"
    );
    let ran = Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(sandbox.path()).output();
    let Ok(ran) = ran else { return eprintln!("skipped: there is no unshare") };
    let errors = String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(77) || errors.contains("unshare") {
        return eprintln!("skipped: nothing can be mounted: {errors}");
    }
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{:?}: {errors}", ran.status);
    assert!(printed.starts_with("value 7") && printed.contains("the database is sound"), "{printed}");
}

#[test]
fn stat_beside_a_running_process_says_which() {
    let sandbox = Sandbox::new();
    load(&sandbox);
    let mut child = sandbox.start(&["load", "db", "t", "-", "--batch", "1"]);
    let pid = child.id();
    // Enough that it has a row before it looks for more.
    child.stdin.as_mut().unwrap().write_all("more\trows\n".repeat(20_000).as_bytes()).unwrap();
    // A reader that opened first would lock the process out.
    for _ in 0..500 {
        let noted = std::fs::read_to_string(sandbox.path().join("db/LOCK")).unwrap_or_default();
        if noted.trim() == pid.to_string() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let beside = |args: &[&str]| {
        for _ in 0..500 {
            let ran = sandbox.run(args);
            let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
            if printed.contains(&pid.to_string()) {
                return printed;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("the process never shows")
    };
    let printed = beside(&["stat", "db"]);
    assert!(
        printed.contains(&format!("process {pid}")) && printed.contains("in the checkpoint"),
        "{printed}"
    );
    let json: serde_json::Value = serde_json::from_str(&beside(&["stat", "db", "--json"])).unwrap();
    assert_eq!((&json["open_elsewhere"], &json["pid"]), (&true.into(), &pid.into()));
    assert!(
        json["since_ms"].as_u64().unwrap() > 1_700_000_000_000 && json["checkpoint_csn"].as_u64() >= Some(1)
    );
    let other = sandbox.run(&["get", "db", "t", "key 1"]);
    assert!(other.stderr.contains(&pid.to_string()), "{}", other.stderr);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    sandbox.ok(&["stat", "db"]);
}

#[test]
fn readers_share_a_database() {
    let sandbox = Sandbox::new();
    load(&sandbox);
    // It holds the lock until its output is taken: a pipe holds 64 KiB.
    let long: String = (0..20_000).map(|n| format!("long {n}\t{}\n", "x".repeat(100))).collect();
    sandbox.write("long.tsv", long);
    sandbox.ok(&["load", "db", "long", "long.tsv"]);
    let mut reader = Command::new(env!("CARGO_BIN_EXE_fulgurite"));
    reader.args(["scan", "db", "long"]).current_dir(sandbox.path()).stdout(Stdio::piped());
    let mut reader = reader.spawn().unwrap();
    let mut first = [0; 1];
    std::io::Read::read_exact(reader.stdout.as_mut().unwrap(), &mut first).unwrap();
    assert_eq!(sandbox.ok(&["get", "db", "t", "key 3"]), "value 3");
    let refused = sandbox.run(&["put", "db", "t", "k", "v"]);
    // The file LOCK names the load, which has ended.
    refused.fails(4, "is being read by other processes: try again when they have closed it");
    let refused = sandbox.run(&["put", "db", "t", "k", "v", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!((&error["kind"], &error["exit_code"]), (&"environment".into(), &4.into()));
    drop(reader.stdout.take());
    _ = reader.wait();
    sandbox.ok(&["put", "db", "t", "k", "v"]);
}
