//! `fulgurite-bench` with wrong command lines, without space, interrupted and killed.
#![expect(clippy::disallowed_methods, reason = "the tests look at processes, and wait for them")]

mod common;

use std::process::{Child, Command};
use std::time::Duration;

use common::{Ran, Sandbox};
use serde_json::Value;

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let sandbox = Sandbox::new();
    let commit = |args: &[&'static str]| [&["commit"], args].concat();
    for (args, words) in [
        (commit(&["--engine", "rocksdb"]), "there are fulgurite"),
        (commit(&["--engine", "fulgurite:fast"]), "own-lsn, aggregated, combined"),
        (commit(&["--engine", "fulgurite,fulgurite"]), "fulgurite twice"),
        (commit(&["--baseline", "best"]), "best is not among"),
        (commit(&["--workload", "delete"]), "insert, update-search, oltp"),
        (commit(&["--durability", "fast"]), "sync, async:TIME"),
        (commit(&["--durability", "async"]), "sync, async:TIME"),
        (commit(&["--durability", "sync,sync"]), "sync twice"),
        (commit(&["--threads", "0"]), "1..=4096"),
        (commit(&["--threads", "1,1"]), "1 twice"),
        (commit(&["--operations", "0"]), "--operations"),
        (commit(&["--operations", "1", "--seconds", "1"]), "cannot be used with"),
        (commit(&["--seconds", "0"]), "0.01 to 86400"),
        (commit(&["--rounds", "0"]), "--rounds"),
        (commit(&["--scale", "0"]), "0.0001 to 10000"),
        (commit(&["--cache", "1MB"]), "MiB"),
        (commit(&["--sizes", "4,100"]), "12 to 480 bytes"),
        (commit(&["--sizes", "20"]), "20,100"),
        (commit(&["--workload", "oltp", "--sizes", "20,7"]), "at least 8 bytes"),
        (commit(&["--workload", "oltp", "--rows", "18446744073709551615"]), "is more than"),
        (vec!["ycsb", "--mix", "z"], "[possible values: a, b"),
        (vec!["ycsb", "--mix", "a,b,a"], "A twice"),
        (vec!["read", "--misses", "101"], "0..=100"),
        (vec!["tail-latency", "--rate", "fast"], "max are expected"),
        (vec!["tail-latency", "--share", "3"], "0.01 to 2"),
        (vec!["tail-latency", "--rate", "5", "--share", "0.5"], "cannot be used with"),
        (vec!["tail-latency", "--warm-up", "0"], "leaves no rate for --share"),
        (vec!["tail-latency", "--tables", "2", "--written", "3"], "there are 2 tables and 1000000 rows"),
        (vec!["tail-latency", "--tables", "20", "--rows", "10"], "--written 20: there are"),
        (vec!["tail-latency", "--value-bytes", "5"], "--value-bytes"),
        (vec!["tail-latency", "--ask-every", "5"], "up to 60s"),
        (vec!["tail-latency", "--engine", "fulgurite:checkpoint-log-bytes=1"], "allowed is 1048576 to"),
        (vec!["figure99"], "there is no workload, figure or table `figure99`"),
        (vec!["figure5a", "--engine", "rocksdb"], "bench-peers has it"),
        (
            vec!["figure5a", "--engine", "fulgurite,fast"],
            "`fast` is not in flush-figure5a: there are fulgurite:own-lsn",
        ),
        (vec!["niosit", "--row", "A,C"], "`C` is no row of niosit: there are A, B, connection"),
        (vec!["figure5a", "--row", "A"], "`A` is no row of flush-figure5a: its rows have no names"),
        (vec!["figure5a", "--threads", "2,2"], "2 twice"),
        (vec!["figure5a", "--fast"], "Usage: fulgurite-bench <NAME> [DIR]"),
        (vec!["figure5a", "--threads", "0"], "1..=4096"),
        (vec!["figure5a", "--scale", "0"], "0.0001 to 10000"),
        (vec!["page", "--out", "x.html"], "REPORTS"),
        (vec![], "Usage:"),
    ] {
        let ran = sandbox.run(&args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
    }
    sandbox.assert_empty();
}

#[test]
fn a_run_that_cannot_work_is_refused_before_it_starts() {
    let sandbox = Sandbox::new();
    for (args, words) in [
        (&["commit", "missing"][..], "missing: No such file or directory"),
        (&["commit", "--operations", "1000000000000"], "give another directory"),
        (&["read", "--rows", "100000000000"], "give another directory"),
        (&["commit", "--json", "none/x.json"], "none/x.json: No such file or directory"),
        (&["commit", "--html", "."], ".: is a directory"),
        (&["commit", "--svg", "/proc/x.svg"], "/proc/x.svg"),
        (&["figure5a", "--out", "/proc/x"], "/proc/x"),
        (&["compare", "none.json", "none.json"], "none.json: No such file or directory"),
    ] {
        sandbox.run(args).fails(1, words);
    }
    sandbox.assert_empty();
    sandbox.write("text.json", "none");
    sandbox.write("other.json", "{\"format\": 1}");
    sandbox.run(&["compare", "text.json", "text.json"]).fails(1, "text.json is not JSON");
    sandbox.run(&["page", "other.json", "--out", "x.html"]).fails(1, "other.json is of format 1");
}

fn pause(ms: u64) {
    std::thread::park_timeout(Duration::from_millis(ms));
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().expect("running kill");
    assert!(sent.success(), "{name} to {process}");
}

/// The process of the current run, once its store exists.
fn child_of(sandbox: &Sandbox, parent: &mut Child) -> u32 {
    for _ in 0..1000 {
        let is_there = |name: &String| sandbox.file(name).join("store/log").exists();
        let children = format!("/proc/{0}/task/{0}/children", parent.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        if let Some(child) =
            children.split_whitespace().next().filter(|_| sandbox.names().iter().any(is_there))
        {
            return child.parse().expect("a number");
        }
        assert_eq!(parent.try_wait().expect("a child of the test"), None, "it ended too early");
        pause(10);
    }
    panic!("the run has not begun: {:?}", sandbox.names());
}

/// Starts a benchmark with runs of twenty seconds.
fn start(sandbox: &Sandbox, args: &[&str]) -> Child {
    sandbox.start(&[args, &["--seconds", "20", "--warm-up", "0", "--json", "-", "--threads", "2"]].concat())
}

fn ended(child: Child) -> (Ran, Value) {
    let ran = Ran::of(child);
    let report = serde_json::from_str(&ran.stdout).unwrap_or_default();
    (ran, report)
}

#[test]
fn a_signal_ends_the_run_and_prints_what_there_is() {
    let sandbox = Sandbox::new();
    let mut child = start(&sandbox, &["commit", "--engine", "fulgurite", "--rounds", "2"]);
    child_of(&sandbox, &mut child);
    // It has begun by then, also where the disk is busy.
    pause(3_000);
    signal("-INT", child.id());
    let (ran, report) = ended(child);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(130), ""));
    let runs = report["rows"][0]["runs"].as_array().expect("a list");
    assert_eq!((&report["end"], runs.len()), (&"interrupted".into(), 1));
    assert!(runs[0]["interrupted"] == true && runs[0]["operations"].as_u64() > Some(0), "{report}");
    sandbox.assert_empty();
}

#[test]
fn a_signal_while_a_store_is_filled_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut child = start(&sandbox, &["read", "--rows", "20000000"]);
    child_of(&sandbox, &mut child);
    pause(200);
    signal("-TERM", child.id());
    let (ran, _) = ended(child);
    assert_eq!((ran.code, ran.stdout.len()), (Some(130), 0), "{}", ran.stderr);
    assert_eq!(ran.stderr, "error: interrupted: nothing was measured\n");
    sandbox.assert_empty();
}

#[test]
fn a_run_that_is_killed_fails_and_leaves_the_others() {
    let sandbox = Sandbox::new();
    let engines = ["commit", "--engine", "fulgurite:own-lsn,fulgurite", "--rounds", "1"];
    let args = ["--threads", "2", "--seconds", "1.5", "--json", "-"];
    let mut child = sandbox.start(&[&engines[..], &args].concat());
    let run = child_of(&sandbox, &mut child);
    signal("-KILL", run);
    let (ran, report) = ended(child);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: 1 row failed"), "{}", ran.stderr);
    let [killed, other] = [&report["rows"][0], &report["rows"][1]];
    assert!(
        killed["not_available"].as_str().is_some_and(
            |why| why.contains("the process of fulgurite:own-lsn ended without a result: signal: 9")
        ),
        "{killed}"
    );
    assert_eq!(other["runs"].as_array().map(Vec::len), Some(1), "{other}");
    sandbox.assert_empty();
}

#[test]
fn a_run_ends_with_its_parent() {
    let sandbox = Sandbox::new();
    let mut child = start(&sandbox, &["commit", "--engine", "fulgurite", "--rounds", "1"]);
    let run = child_of(&sandbox, &mut child);
    signal("-KILL", child.id());
    child.wait().expect("waiting for the program");
    // A process that ended and was not reaped has no command line any more.
    let lives = || std::fs::read(format!("/proc/{run}/cmdline")).is_ok_and(|line| !line.is_empty());
    let soon = (0..500).any(|_| {
        pause(10);
        !lives()
    });
    assert!(soon, "the process {run} continues without its parent");
}

#[test]
fn a_reader_that_left_is_no_failure() {
    let sandbox = Sandbox::new();
    let args = ["commit", "--engine", "fulgurite", "--threads", "1", "--operations", "20", "--rounds", "1"];
    let mut child = sandbox.start(&args);
    drop(child.stdout.take());
    let ran = Ran::of(child);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    sandbox.assert_empty();
}
