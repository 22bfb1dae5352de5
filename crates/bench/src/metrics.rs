//! The figures that are made of a run, and their medians over the rounds.

use crate::run::Run;

/// A figure that each run has.
pub struct Metric {
    /// What reports call it; the unit comes last.
    pub name: &'static str,
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
    /// Of some values; `None` of none.
    pub fn of(mut values: Vec<f64>) -> Option<Summary> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Summary { median: (low + high) / 2.0, min, max })
    }
}

impl Metric {
    /// The figure of one run; `None` where it means nothing.
    pub fn of(&self, run: &Run) -> Option<f64> {
        (self.of)(run)
    }
}

macro_rules! metrics {
    ($($name:literal => $of:expr,)*) => {
        /// All figures.
        ///
        /// Times of counters are per transaction: `sync_lock_us` is the time that committers waited for the right to
        /// sync, `sync_us` that of writing and syncing, `flush_wait_us` that of waiting for somebody else's sync.
        /// `consolidation` is commits in a group that is written as one, `aggregation` the requests for durability
        /// that one sync completed.
        pub const METRICS: &[Metric] = &[$(Metric { name: $name, of: $of },)*];
    };
}

metrics! {
    "transactions_per_second" => |run| ratio(run.transactions as f64 * 1e9, run.elapsed_ns),
    "of_bare_writes" => |run| {
        let rate = ratio(run.transactions as f64 * 1e9, run.elapsed_ns)?;
        (run.bare_writes_per_second > 0.0).then(|| rate / run.bare_writes_per_second)
    },
    "mean_latency_us" => |run| us(run.latency.mean_ns),
    "sync_lock_us" => |run| per_transaction_us(run, run.counters.sync_lock_ns),
    "sync_us" => |run| per_transaction_us(run, run.counters.sync_ns + run.counters.write_ns),
    "flush_wait_us" => |run| per_transaction_us(run, run.counters.flush_wait_ns),
    "sync_locks" => |run| Some(run.counters.sync_locks as f64),
    "syncs" => |run| Some(run.counters.syncs as f64),
    "consolidation" => |run| ratio(run.counters.commits as f64, run.counters.groups),
    "aggregation" => |run| ratio(run.counters.requests_completed as f64, run.counters.syncs),
    "p50_latency_us" => |run| us(run.latency.p50_ns),
    "p99_latency_us" => |run| us(run.latency.p99_ns),
    "p999_latency_us" => |run| us(run.latency.p999_ns),
    "max_latency_us" => |run| us(run.latency.max_ns),
    "cpu_us" => |run| per_transaction_us(run, run.cpu_ns),
    "idle_share" => |run| run.idle_share,
    "others_share" => |run| run.others_share,
    "fairness" => |run| run.fairness,
    "conflicts" => |run| Some(run.conflicts as f64),
    "flush_waits" => |run| Some(run.counters.flush_waits as f64),
    "parks" => |run| Some(run.counters.parks as f64),
    "wakes" => |run| Some(run.counters.wakes as f64),
    "writes" => |run| Some(run.counters.writes as f64),
    "written_bytes" => |run| ratio(run.counters.written_bytes as f64, run.transactions),
}

fn ratio(value: f64, by: u64) -> Option<f64> {
    (by > 0).then(|| value / by as f64)
}

fn us(ns: u64) -> Option<f64> {
    Some(ns as f64 / 1e3)
}

fn per_transaction_us(run: &Run, ns: u64) -> Option<f64> {
    ratio(ns as f64 / 1e3, run.transactions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_in_the_middle() {
        assert_eq!(Summary::of(vec![]), None);
        assert_eq!(Summary::of(vec![3.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Summary::of(vec![4.0, 1.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }
}
