//! The results of one run.

use serde::{Deserialize, Serialize};

use crate::engine::Counters;
use crate::io::IoCounts;

/// One run: a fresh store, one engine, one workload, one number of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The round it was part of, from 1.
    pub round: u32,
    /// Whether it was ended before its limit.
    pub interrupted: bool,
    /// Operations that completed, those that the workload rolled back included.
    pub operations: u64,
    /// From the start of the first thread to the end of the last one.
    pub elapsed_ns: u64,
    /// How often a transaction was retried.
    pub conflicts: u64,
    /// From the beginning of an operation to its end.
    pub latency: Latency,
    /// The operations by kind, in the order of the workload's kinds.
    pub kinds: Vec<KindRun>,
    /// The engine's counters for this time.
    pub counters: Counters,
    /// The file calls by kind, of the store or of the process, to the end of the measured part.
    pub io: IoCounts,
    /// Processor time of the process, nanoseconds.
    pub cpu_ns: u64,
    /// The share of the machine's processor time that was idle, 0 to 1; `None` if the run is too short.
    pub idle_share: Option<f64>,
    /// The share that other processes and the kernel used, 0 to 1.
    pub others_share: Option<f64>,
    /// The slowest thread's operations a second over the average thread's; only for a run that is limited by time.
    pub fairness: Option<f64>,
    /// The speed of the bare device just before: blocks of 4 KiB a second, each durable before the next.
    pub bare_writes_per_second: f64,
    /// Its speed just after.
    pub bare_writes_per_second_after: f64,
    /// Bytes written to the device from the beginning of the measured part until all of it was settled and written
    /// back, by other processes, too; `None` if the kernel does not report them.
    pub device_bytes: Option<u64>,
    /// Bytes of keys and values that committed transactions put, and of keys that they deleted.
    pub user_bytes: u64,
    /// Bytes of the keys and values in the store at the end, if the workload knows them.
    pub live_bytes: Option<u64>,
    /// Bytes that the files of the store take on the disk at the end, after settling.
    pub disk_bytes: u64,
    /// The peak memory of the process, filling included; `None` if the kernel does not report it.
    pub peak_memory_bytes: Option<u64>,
    /// The time that filling the store took.
    pub fill_ns: u64,
    /// Samples over time.
    pub samples: Vec<Sample>,
    /// Its seconds, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// A run second by second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The operations a second that were due; `None` if each began when the last one of its thread had ended.
    pub rate: Option<f64>,
    /// Operations that were due before the limit and had not begun some time after it; 0 if the run was interrupted.
    pub not_begun: u64,
    /// Bare writes, from the moments when they were due to their ends.
    pub bare: Option<Latency>,
    /// From the beginning of the measured part on; the last ones may be after the limit.
    pub seconds: Vec<Second>,
}

/// A second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Operations that were due in it, of those that completed.
    pub due: u64,
    /// Operations that completed in it.
    pub completed: u64,
    /// Of the operations that were due in it, from that moment to their end.
    pub latency: Latency,
    /// Of the bare writes that were due in it.
    pub bare: Option<Latency>,
    /// What the engine said; `None` if it says nothing, or did not return from the call.
    pub watched: Option<Watched>,
}

/// What an engine said of its checkpoints in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Bytes of the log above the last checkpoint, at the end.
    pub log_bytes: u64,
    /// Checkpoints that were completed.
    pub checkpoints: u64,
    /// How long the last one of these took; 0 if there was none.
    pub checkpoint_ns: u64,
    /// The longest call that asked for it.
    pub stats_ns_max: u64,
}

/// The operations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindRun {
    /// The kind's name.
    pub kind: String,
    /// How many completed and were not rolled back.
    pub operations: u64,
    /// How many the workload rolled back.
    pub rolled_back: u64,
    /// The latency of both.
    pub latency: Latency,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Their average.
    pub mean_ns: u64,
    /// Half of them are at most this.
    pub p50_ns: u64,
    /// 99 % of them are at most this.
    pub p99_ns: u64,
    /// 99.9 % of them are at most this.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// A sample at one moment of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the measured part began.
    pub at_ns: u64,
    /// Operations since then.
    pub operations: u64,
    /// Bytes that the files of the store take on the disk.
    pub disk_bytes: u64,
}
