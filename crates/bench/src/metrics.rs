//! The figures that are computed from a run, and their medians over the rounds.

use crate::engine::Counters;
use crate::io::IoCounts;
use crate::run::{Run, Watched};

/// T_RR of Table III of FlashTKV: the worst latency of a random read.
const READ_US: u64 = 103;
/// T_RW: that of a random write.
const RANDOM_WRITE_US: u64 = 388;
/// T_SW: that of a sequential write.
const SEQUENTIAL_WRITE_US: u64 = 108;

/// A figure of each run.
pub struct Metric {
    /// Its name in reports; the unit comes last.
    pub name: &'static str,
    /// Its name on columns and axes, unit included.
    pub label: &'static str,
    of: fn(&Run) -> Option<f64>,
}

/// A figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The one in the middle, or the average of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of some values; `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Summary> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Summary { median: (low + high) / 2.0, min, max })
    }
}

impl Metric {
    /// The metric of that name.
    ///
    /// # Panics
    /// If there is none.
    pub fn named(name: &str) -> &'static Metric {
        METRICS.iter().find(|metric| metric.name == name).expect("a metric of that name")
    }

    /// The figure of one run; `None` if it means nothing there.
    pub fn of(&self, run: &Run) -> Option<f64> {
        (self.of)(run)
    }
}

macro_rules! metrics {
    ($($name:literal, $label:literal => $of:expr,)*) => {
        /// All figures. What each means is said in the documentation of the benchmarks, under *Figures of a run*.
        pub const METRICS: &[Metric] = &[$(Metric { name: $name, label: $label, of: $of },)*];
    };
}

metrics! {
    "operations_per_second", "op/s" => |run| ratio(run.operations as f64 * 1e9, run.elapsed_ns),
    "of_bare_writes", "of bare writes" => |run| {
        let rate = ratio(run.operations as f64 * 1e9, run.elapsed_ns)?;
        let bare = (run.bare_writes_per_second + run.bare_writes_per_second_after) / 2.0;
        (bare > 0.0).then(|| rate / bare)
    },
    "elapsed_seconds", "time s" => |run| Some(run.elapsed_ns as f64 / 1e9),
    "fill_seconds", "filling s" => |run| Some(run.fill_ns as f64 / 1e9),
    "mean_latency_us", "mean us" => |run| us(run.latency.mean_ns),
    "us_per_kib", "us/KiB" => |run| ratio(run.latency.mean_ns as f64 / 1e3 * run.operations as f64 * 1024.0, run.user_bytes),
    "p50_latency_us", "p50 us" => |run| us(run.latency.p50_ns),
    "p99_latency_us", "p99 us" => |run| us(run.latency.p99_ns),
    "p999_latency_us", "p99.9 us" => |run| us(run.latency.p999_ns),
    "max_latency_us", "max us" => |run| us(run.latency.max_ns),
    "target_rate", "target op/s" => |run| run.timeline.as_ref()?.rate,
    "not_begun", "not begun" => |run| Some(run.timeline.as_ref()?.not_begun as f64),
    "checkpoints", "checkpoints" => |run| Some(watched(run, |watched| watched.checkpoints)?.sum::<u64>() as f64),
    "log_above_checkpoint_mib", "log above checkpoint MiB" => |run| {
        watched(run, |watched| watched.log_bytes)?.max().map(mib)
    },
    "stats_max_us", "stats max us" => |run| us(watched(run, |watched| watched.stats_ns_max)?.max()?),
    "bare_p99_us", "bare p99 us" => |run| us(run.timeline.as_ref()?.bare?.p99_ns),
    "bare_max_us", "bare max us" => |run| us(run.timeline.as_ref()?.bare?.max_ns),
    "cpu_seconds", "CPU s" => |run| Some(run.cpu_ns as f64 / 1e9),
    "cpu_us", "CPU us/op" => |run| per_operation_us(run, run.cpu_ns),
    "idle_share", "CPU idle" => |run| run.idle_share,
    "others_share", "CPU of others" => |run| run.others_share,
    "fairness", "fairness" => |run| run.fairness,
    "conflicts", "conflicts" => |run| Some(run.conflicts as f64),
    "conflict_share", "conflicts, share" => |run| ratio(run.conflicts as f64, run.operations + run.conflicts),
    "rolled_back_share", "rolled back, share" => |run| {
        let rolled_back: u64 = run.kinds.iter().map(|kind| kind.rolled_back).sum();
        ratio(rolled_back as f64, run.operations)
    },
    "new_orders_per_minute", "new orders/min" => |run| {
        let kind = run.kinds.iter().find(|kind| kind.kind == "new-order")?;
        ratio(kind.operations as f64 * 60e9, run.elapsed_ns)
    },
    "peak_memory_mib", "peak memory MiB" => |run| run.peak_memory_bytes.map(mib),
    "device_mib", "to the device MiB" => |run| run.device_bytes.map(mib),
    "disk_mib", "on the disk MiB" => |run| Some(mib(run.disk_bytes)),
    "write_amplification", "write amp." => |run| ratio(run.device_bytes? as f64, run.user_bytes),
    "space_amplification", "space amp." => |run| ratio(run.disk_bytes as f64, run.live_bytes?),
    "syncs", "syncs" => |run| Some(run.io.syncs as f64),
    "syncs_per_operation", "syncs/op" => |run| ratio(run.io.syncs as f64, run.operations),
    "sync_share", "in syncs, share" => |run| ratio(run.io.sync_ns as f64, run.elapsed_ns),
    "reads", "reads" => |run| Some(run.io.reads as f64),
    "sequential_writes", "sequential writes" => |run| Some(run.io.sequential_writes as f64),
    "random_writes", "random writes" => |run| Some(run.io.random_writes as f64),
    "estimated_io_seconds", "estimated I/O s" => |run| {
        let IoCounts { reads, random_writes, sequential_writes, .. } = run.io;
        let us = reads * READ_US + random_writes * RANDOM_WRITE_US + sequential_writes * SEQUENTIAL_WRITE_US;
        Some(us as f64 / 1e6)
    },
    "written_mib_per_second", "written MiB/s" => |run| {
        let bytes = run.io.sequential_bytes + run.io.random_bytes;
        ratio(mib(bytes) * 1e9, run.elapsed_ns)
    },
    "writes_per_second", "writes/s" => |run| {
        ratio((run.io.sequential_writes + run.io.random_writes) as f64 * 1e9, run.elapsed_ns)
    },
    "kib_per_write", "KiB/write" => |run| {
        let bytes = run.io.sequential_bytes + run.io.random_bytes;
        ratio(bytes as f64 / 1024.0, run.io.sequential_writes + run.io.random_writes)
    },
    "sync_lock_us", "sync lock us" => |run| counted(run).and(per_operation_us(run, run.counters.sync_lock_ns)),
    "sync_us", "sync us" => |run| counted(run).and(per_operation_us(run, run.counters.sync_ns + run.counters.write_ns)),
    "flush_wait_us", "flush wait us" => |run| counted(run).and(per_operation_us(run, run.counters.flush_wait_ns)),
    "sync_locks", "sync locks" => |run| counted(run).and(Some(run.counters.sync_locks as f64)),
    "log_syncs", "log syncs" => |run| counted(run).and(Some(run.counters.syncs as f64)),
    "consolidation", "consolidation" => |run| ratio(run.counters.commits as f64, run.counters.groups),
    "aggregation", "aggregation" => |run| ratio(run.counters.requests_completed as f64, run.counters.syncs),
    "flush_waits", "flush waits" => |run| counted(run).and(Some(run.counters.flush_waits as f64)),
    "parks", "parks" => |run| counted(run).and(Some(run.counters.parks as f64)),
    "wakes", "wakes" => |run| counted(run).and(Some(run.counters.wakes as f64)),
    "log_writes", "log writes" => |run| counted(run).and(Some(run.counters.writes as f64)),
    "held_share", "held by memtables, share" => |run| {
        let Counters { held_reads, other_reads, .. } = run.counters;
        ratio(held_reads as f64, held_reads + other_reads)
    },
    "held_waiting_us", "held: waiting us" => |run| ratio(run.counters.held_waiting_ns as f64 / 1e3, run.counters.held_reads),
    "held_processing_us", "held: processing us" => |run| ratio(run.counters.held_processing_ns as f64 / 1e3, run.counters.held_reads),
    "other_waiting_us", "not held: waiting us" => |run| ratio(run.counters.other_waiting_ns as f64 / 1e3, run.counters.other_reads),
    "other_processing_us", "not held: processing us" => |run| ratio(run.counters.other_processing_ns as f64 / 1e3, run.counters.other_reads),
    "inline_share", "on I/O threads, share" => |run| {
        let Counters { inline_commands, worker_commands, .. } = run.counters;
        ratio(inline_commands as f64, inline_commands + worker_commands)
    },
    "switches_per_operation", "context switches/op" => |run| {
        served(run).and(ratio(run.counters.context_switches as f64, run.operations))
    },
    "log_bytes", "log bytes/op" => |run| counted(run).and(ratio(run.counters.written_bytes as f64, run.operations)),
}

/// What the engine said in each second; `None` if it said nothing.
fn watched(run: &Run, of: fn(&Watched) -> u64) -> Option<impl Iterator<Item = u64>> {
    let mut of_seconds =
        run.timeline.as_ref()?.seconds.iter().filter_map(move |second| second.watched.as_ref().map(of));
    let first = of_seconds.next()?;
    Some(std::iter::once(first).chain(of_seconds))
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// `None` for a run whose engine counts no commits.
fn counted(run: &Run) -> Option<()> {
    (run.counters.commits > 0).then_some(())
}

/// `None` for a run without a server.
fn served(run: &Run) -> Option<()> {
    (run.counters.inline_commands + run.counters.worker_commands > 0).then_some(())
}

fn ratio(value: f64, by: u64) -> Option<f64> {
    (by > 0).then(|| value / by as f64)
}

fn us(ns: u64) -> Option<f64> {
    Some(ns as f64 / 1e3)
}

fn per_operation_us(run: &Run, ns: u64) -> Option<f64> {
    ratio(ns as f64 / 1e3, run.operations)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(Summary::of(vec![]), None);
        assert_eq!(Summary::of(vec![3.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Summary::of(vec![4.0, 1.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn names_and_labels_are_unique() {
        for of in [|metric: &Metric| metric.name, |metric: &Metric| metric.label] {
            let names: BTreeSet<&str> = METRICS.iter().map(of).collect();
            assert_eq!(names.len(), METRICS.len());
        }
    }

    #[test]
    fn figures_of_seconds() {
        let mut run = crate::report_tests::paced(1, 1_000);
        let figures = |run: &Run| {
            let names =
                "target_rate checkpoints log_above_checkpoint_mib stats_max_us bare_p99_us bare_max_us";
            names.split(' ').map(|name| Metric::named(name).of(run)).collect::<Vec<_>>()
        };
        assert_eq!(figures(&run), [1_000.0, 1.0, 4.0, 30.0, 2_000.0, 50_000.0].map(Some));
        run.timeline = None;
        assert_eq!(figures(&run), [None; 6]);
    }

    #[test]
    fn figures_of_kinds_and_calls() {
        let mut run = crate::report_tests::run(1, 1_000);
        let figure = |run: &Run, name: &str| Metric::named(name).of(run);
        assert_eq!(figure(&run, "new_orders_per_minute"), Some(490.0 * 60.0));
        assert_eq!(figure(&run, "rolled_back_share"), Some(0.01));
        assert_eq!(figure(&run, "conflict_share"), Some(0.2));
        assert_eq!(figure(&run, "estimated_io_seconds"), Some(0.3078));
        run.kinds.clear();
        assert_eq!(figure(&run, "new_orders_per_minute"), None);
    }
}
