//! The help of the program and of each workload.

mod common;

use common::Sandbox;

/// The workloads.
const BENCHMARKS: [&str; 14] = [
    "commit",
    "ycsb",
    "tpcc",
    "tpcb",
    "linkbench",
    "wisckey",
    "page-vs-log",
    "mvcc-vs-lock",
    "read",
    "scan",
    "load",
    "delete-queue",
    "job-queue",
    "overwrite-steady",
];

#[test]
fn every_benchmark_explains_itself() {
    let sandbox = Sandbox::new();
    let overview = sandbox.ok(&["--help"]);
    for words in ["FIGURES:", "EXIT CODES:", "regression", "EXAMPLES:\n  fulgurite-bench commit"] {
        assert!(overview.contains(words), "{words} is not in {overview}");
    }
    for name in BENCHMARKS {
        let about = overview.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{name} ")));
        let about = about.expect("a line in the overview").trim();
        let help = sandbox.ok(&[name, "--help"]);
        assert!(!about.is_empty() && help.starts_with(about), "{name}: {about}: {help}");
        for words in ["--engine <NAME,...>", "--durability", "--rounds", "--html", "Usage: fulgurite-bench"] {
            assert!(help.contains(words), "{name} has no {words}: {help}");
        }
        assert!(!help.contains("--scheme") && !help.contains("--transactions"), "{name}: {help}");
    }
    let ycsb = sandbox.ok(&["ycsb", "--help"]);
    let said: Vec<&str> = ycsb.split_whitespace().collect();
    assert!(said.join(" ").contains("scrambled Zipfian"), "{ycsb}");
    let figure = sandbox.ok(&["figure5a", "--help"]);
    assert!(figure.contains("Usage: fulgurite-bench") && figure.contains("--out <DIR>"), "{figure}");
}
