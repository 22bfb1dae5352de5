//! The plan of which operations fail, and how.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{DeviceInfo, MemoryMedium};

/// How much of the data that a failed sync covered is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing of it reached the medium.
    All,
    /// Some of it did: any state of each sector, by the seed.
    Some,
}

/// The kinds of counted operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A write of any sort.
    Write,
    /// A change of a file's length, or of the space that it takes.
    SetLen,
    /// An allocation without a write.
    Allocate,
    /// A sync of a file.
    Sync,
    /// A sync of a directory.
    SyncDir,
    /// A new name for a file or directory.
    Create,
    /// A rename or a removal.
    Unlink,
    /// Lines of a mapped file are written back.
    WriteBack,
    /// A thread waits until they are durable.
    Fence,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Proceed,
    /// The machine crashes in the middle of it.
    Crash,
    /// `EIO`.
    Fail(Loss),
    /// `ENOSPC`.
    Full,
}

/// The properties of the medium; they continue in crash images.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) space: Option<u64>,
    /// `None`: the truth.
    pub(super) reported_space: Option<u64>,
    pub(super) fua: bool,
    pub(super) power_safe: bool,
    pub(super) direct_writes: bool,
    pub(super) allocation: bool,
    /// `None`: the default description.
    pub(super) device: Option<DeviceInfo>,
    /// The medium of new mapped files; `None`: there are none.
    pub(super) mapped: Option<MemoryMedium>,
    /// How long a write takes, and one that has to be durable, or a sync.
    pub(super) latency: (Duration, Duration),
}

impl Settings {
    pub(super) fn latency_of(&self, syncs: bool) -> Duration {
        if syncs { self.latency.1 } else { self.latency.0 }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            space: None,
            reported_space: None,
            fua: true,
            power_safe: false,
            direct_writes: true,
            allocation: true,
            device: None,
            mapped: Some(MemoryMedium::Persistent),
            latency: Default::default(),
        }
    }
}

impl Settings {
    /// The result of [`Disk::device`](crate::Disk::device).
    pub(super) fn device(&self) -> DeviceInfo {
        self.device.clone().unwrap_or_else(|| DeviceInfo {
            file_system: "sim".to_owned(),
            device: Some("sim0".to_owned()),
            volatile_cache: Some(true),
            fua: Some(self.fua),
            rotational: Some(false),
        })
    }
}

/// Counters, settings and planned faults.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) ops: u64,
    pub(super) writes: u64,
    pub(super) syncs: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) crashed: bool,
    pub(super) failing_writes: BTreeSet<u64>,
    pub(super) all_writes_fail: bool,
    pub(super) failing_syncs: BTreeMap<u64, Loss>,
    /// Whether syncs make nothing durable.
    pub(super) syncs_ignored: bool,
    pub(super) full: bool,
    /// Whether asking for the free space fails.
    pub(super) space_unknown: bool,
    pub(super) settings: Settings,
}

impl Plan {
    /// No faults; the settings of the medium as given.
    pub(super) fn new(settings: Settings) -> Plan {
        Plan {
            ops: 0,
            writes: 0,
            syncs: 0,
            crash_at: None,
            crashed: false,
            failing_writes: BTreeSet::new(),
            all_writes_fail: false,
            failing_syncs: BTreeMap::new(),
            syncs_ignored: false,
            full: false,
            space_unknown: false,
            settings,
        }
    }

    /// Counts an operation and decides about it.
    pub(super) fn admit(&mut self, op: Op) -> Verdict {
        self.ops += 1;
        self.writes += u64::from(op == Op::Write);
        self.syncs += u64::from(matches!(op, Op::Sync | Op::SyncDir));
        if self.crash_at.is_some_and(|n| self.ops >= n) {
            self.crashed = true;
            return Verdict::Crash;
        }
        let takes_space = matches!(op, Op::Write | Op::Create | Op::Allocate);
        match op {
            Op::Write if self.failing_writes.remove(&self.writes) || self.all_writes_fail => {
                Verdict::Fail(Loss::Some)
            }
            Op::Sync | Op::SyncDir => {
                self.failing_syncs.remove(&self.syncs).map_or(Verdict::Proceed, Verdict::Fail)
            }
            _ if self.full && takes_space => Verdict::Full,
            _ => Verdict::Proceed,
        }
    }
}
