//! A report for tests, with everything in which reports differ: several data points, kinds, a row that is not available, one
//! that is partial, one that was never run.

use std::collections::BTreeMap;

use crate::engine::Counters;
use crate::io::IoCounts;
use crate::machine::Machine;
use crate::report::{End, FORMAT, Report, Row};
use crate::run::{KindRun, Latency, Run, Sample, Second, Timeline, Watched};

/// Three engines, two of them with three rounds at two numbers of threads.
pub(crate) fn sample() -> Report {
    let mut rows = Vec::new();
    for threads in [8, 64] {
        rows.push(row("fulgurite", threads, rounds(12_000 * u64::from(threads))));
        rows.push(row("rocksdb", threads, rounds(8_000 * u64::from(threads))));
        let reason = "it has no <transactions> | of several statements";
        rows.push(Row { not_available: Some(reason.into()), ..row("lmdb", threads, vec![]) });
    }
    Report {
        format: FORMAT,
        version: "0.1.0".into(),
        name: "fig-5a".into(),
        title: "Inserts & <syncs>".into(),
        began_ms: 1_772_384_759_999,
        machine: Machine {
            processors: 8,
            processor: "Some Processor 9000".into(),
            memory_bytes: 32 << 30,
            kernel: "6.1.0".into(),
            file_system: "ext4".into(),
            device: Some("nvme0n1".into()),
            volatile_cache: Some(true),
        },
        settings: BTreeMap::from(
            [("rounds", "3"), ("limit", "2 s"), ("warm-up", "0.5 s")].map(|(a, b)| (a.into(), b.into())),
        ),
        baseline: "rocksdb".into(),
        rows,
        end: End::Complete,
        notes: vec!["Keys come *in order*.".into()],
    }
}

/// A row of the workload `insert`.
pub(crate) fn row(label: &str, threads: u32, runs: Vec<Run>) -> Row {
    Row {
        label: label.into(),
        engine: label.into(),
        about: format!("{label} 1.2"),
        isolation: "snapshot".into(),
        workload: "insert".into(),
        parameters: "20-byte keys, 100-byte values".into(),
        data_point: String::new(),
        threads,
        level: "sync".into(),
        cache_bytes: 64 << 20,
        not_available: None,
        runs,
    }
}

/// Three rounds at about `rate` operations a second.
pub(crate) fn rounds(rate: u64) -> Vec<Run> {
    [95, 100, 105].iter().zip(1..).map(|(percent, round)| run(round, rate * percent / 100)).collect()
}

/// A run of a second in which half of the operations were reads.
pub(crate) fn run(round: u32, rate: u64) -> Run {
    let latency = |factor: u64| {
        let p50_ns = factor * 1_000_000_000 / rate.max(1);
        Latency {
            mean_ns: p50_ns + p50_ns / 10,
            p50_ns,
            p99_ns: 4 * p50_ns,
            p999_ns: 9 * p50_ns,
            max_ns: 30 * p50_ns,
        }
    };
    let kind = |name: &str, factor, rolled_back| KindRun {
        kind: name.into(),
        operations: rate / 2 - rolled_back,
        rolled_back,
        latency: latency(factor),
    };
    Run {
        round,
        operations: rate,
        elapsed_ns: 1_000_000_000,
        conflicts: rate / 4,
        latency: latency(8),
        kinds: vec![kind("new-order", 10, rate / 100), kind("read", 6, 0)],
        counters: Counters {
            commits: rate,
            groups: rate / 4,
            sync_locks: rate / 10,
            sync_lock_ns: rate * 30_000,
            sync_ns: rate * 20_000,
            flush_wait_ns: rate * 10_000,
            syncs: rate / 10,
            requests_completed: rate,
            ..Counters::default()
        },
        io: IoCounts {
            reads: 1_000,
            random_writes: 500,
            sequential_writes: rate / 10,
            sequential_bytes: rate * 200,
            syncs: rate / 10,
            ..IoCounts::default()
        },
        cpu_ns: 1_500_000_000,
        device_bytes: Some(rate * 400),
        user_bytes: rate * 120,
        live_bytes: Some(rate * 120),
        disk_bytes: rate * 180,
        peak_memory_bytes: Some(200 << 20),
        samples: (1..=10).map(|tenth| sample_at(tenth, rate)).collect(),
        ..Run::default()
    }
}

/// Every third tenth of a second is half as fast.
fn sample_at(tenth: u64, rate: u64) -> Sample {
    let slow = tenth / 3;
    Sample {
        at_ns: tenth * 100_000_000,
        operations: rate * (2 * tenth - slow) / 20,
        disk_bytes: rate * 18 * (tenth + tenth % 3),
    }
}

/// The same with its seconds: four of them, a checkpoint in the second one, the device stalls in the third one; then one in
/// which nothing was due.
pub(crate) fn paced(round: u32, rate: u64) -> Run {
    let second = |index: u64| {
        let slow = Latency { p50_ns: 100_000, p99_ns: (index + 1) * 1_000_000, ..Latency::default() };
        Second {
            due: rate,
            completed: rate,
            latency: Latency { max_ns: 10 * slow.p99_ns, ..slow },
            bare: Some(Latency { max_ns: if index == 2 { 50_000_000 } else { 500_000 }, ..slow }),
            watched: Some(Watched {
                log_bytes: (index + 1) << 20,
                checkpoints: u64::from(index == 1),
                checkpoint_ns: u64::from(index == 1) * 800_000_000,
                stats_ns_max: 30_000,
            }),
        }
    };
    let after = Second { completed: 1, ..Second::default() };
    let bare = Some(Latency { p99_ns: 2_000_000, max_ns: 50_000_000, ..Latency::default() });
    let seconds = (0..4).map(second).chain([after]).collect();
    let timeline = Timeline { rate: Some(rate as f64), not_begun: 0, bare, seconds };
    Run { timeline: Some(timeline), ..run(round, rate) }
}

/// Checks that a text contains these words, in this order.
pub(crate) fn assert_in_order(text: &str, all: &[&str]) {
    let mut from = 0;
    for words in all {
        from += text[from..].find(words).unwrap_or_else(|| panic!("{words:?} is missing in\n{text}"));
    }
}
