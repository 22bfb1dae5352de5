//! The handle by which a test plans faults.

use std::time::Duration;

use super::plan::Loss;
use super::state::Shared;
use crate::{DeviceInfo, MemoryMedium};

/// Plans faults of a [`SimEnv`](super::SimEnv). Operations, writes and syncs are numbered from 1, so
/// `crash_at(op_count() + 1)` hits the next one.
#[derive(Clone, Copy, Debug)]
pub struct Faults<'a> {
    pub(super) shared: &'a Shared,
}

impl Faults<'_> {
    /// How many operations there were: writes, allocations, changes of a length, syncs of files and directories,
    /// creates, renames and removals, write-backs and fences of mapped files. A new directory counts as a create; reads and stores
    /// do not count.
    pub fn op_count(&self) -> u64 {
        self.shared.state.lock().plan.ops
    }

    /// How many writes there were, of any sort.
    pub fn write_count(&self) -> u64 {
        self.shared.state.lock().plan.writes
    }

    /// How many syncs of files and directories there were. A data-synchronous write is a write.
    pub fn sync_count(&self) -> u64 {
        self.shared.state.lock().plan.syncs
    }

    /// Crashes the machine in the middle of the `n`-th operation: that stays incomplete, and it and every later one
    /// fails with an error that [`is_crashed`](super::is_crashed) recognizes. [`SimEnv::crash`](super::SimEnv::crash)
    /// returns the remaining state.
    pub fn crash_at(&self, n: u64) {
        self.shared.state.lock().plan.crash_at = Some(n);
    }

    /// Crashes the machine now; changes in flight in other threads stay incomplete.
    pub fn crash_now(&self) {
        self.shared.state.lock().crash();
    }

    /// Whether the machine has crashed.
    pub fn has_crashed(&self) -> bool {
        self.shared.state.lock().plan.crashed
    }

    /// Fails the `n`-th write with `EIO`, once. Any part of it is written. Of a data-synchronous write any part of that
    /// is durable, and no later sync makes the rest durable.
    pub fn fail_write(&self, n: u64) {
        self.shared.state.lock().plan.failing_writes.insert(n);
    }

    /// Fails every write with `EIO`, as [`Faults::fail_write`] does, until switched off.
    pub fn fail_all_writes(&self, failing: bool) {
        self.shared.state.lock().plan.all_writes_fail = failing;
    }

    /// Fails the `n`-th sync with `EIO`, once. The writes that it covered are clean afterwards, as on ext4: reads still
    /// see them, later syncs succeed, and what did not reach the medium never will unless it is written again.
    pub fn fail_sync(&self, n: u64, loss: Loss) {
        self.shared.state.lock().plan.failing_syncs.insert(n, loss);
    }

    /// Whether syncs of files and directories, and data-synchronous writes, say that they succeed and make nothing durable, until the
    /// machine crashes: as on a device that ignores flushes.
    pub fn ignore_syncs(&self, ignored: bool) {
        self.shared.state.lock().plan.syncs_ignored = ignored;
    }

    /// Cancels the faults that [`Faults::fail_write`] and [`Faults::fail_sync`] planned and that have not happened yet,
    /// and [`Faults::fail_all_writes`].
    pub fn fail_nothing(&self) {
        let mut state = self.shared.state.lock();
        state.plan.failing_writes.clear();
        state.plan.all_writes_fail = false;
        state.plan.failing_syncs.clear();
    }

    /// Fails every write, allocation and create with `ENOSPC` until switched off. Nothing of them is written.
    pub fn disk_full(&self, full: bool) {
        self.shared.state.lock().plan.full = full;
    }

    /// Fails every query of the free space with `EIO` until switched off.
    pub fn space_unknown(&self, unknown: bool) {
        self.shared.state.lock().plan.space_unknown = unknown;
    }

    /// Bounds the sum of the lengths of all files that have a name or are open; `None` lifts the bound. A write that
    /// would go beyond writes what fits and fails with `ENOSPC`.
    pub fn space_bytes(&self, space: Option<u64>) {
        self.shared.state.lock().plan.settings.space = space;
    }

    /// What a query of the free space answers in place of the truth, as with a quota that the file system does not report.
    pub fn reports_space(&self, free_bytes: Option<u64>) {
        self.shared.state.lock().plan.settings.reported_space = free_bytes;
    }

    /// Whether a data-synchronous write makes only its own blocks durable (true, the default). Otherwise a buffered one
    /// syncs the whole file, and a direct one flushes the file's data in the device.
    pub fn fua(&self, only_own_blocks: bool) {
        self.shared.state.lock().plan.settings.fua = only_own_blocks;
    }

    /// Whether the device keeps its cache without power (false by default): then neither a power cut nor a failed sync
    /// loses a complete direct write.
    pub fn power_safe_cache(&self, power_safe: bool) {
        self.shared.state.lock().plan.settings.power_safe = power_safe;
    }

    /// Whether files take direct writes (true by default).
    pub fn direct_writes(&self, taken: bool) {
        self.shared.state.lock().plan.settings.direct_writes = taken;
    }

    /// Whether files take [`File::allocate`](crate::File::allocate) (true by default).
    pub fn allocation(&self, taken: bool) {
        self.shared.state.lock().plan.settings.allocation = taken;
    }

    /// How long a write takes, and a sync, or a write that is durable when it returns; 0 by default. The clock advances by that when one begins, beside the
    /// microsecond of any operation.
    pub fn latency(&self, write: Duration, sync: Duration) {
        self.shared.state.lock().plan.settings.latency = (write, sync);
    }

    /// What memory new mapped files are in (persistent by default); `None`: files are not mapped.
    pub fn mapped(&self, medium: Option<MemoryMedium>) {
        self.shared.state.lock().plan.settings.mapped = medium;
    }

    /// How many lines of mapped files were written back although nothing in them had changed since the last time.
    pub fn unneeded_write_backs(&self) -> u64 {
        self.shared.state.lock().medium.memories().map(|memory| memory.unneeded).sum()
    }

    /// The result of [`Disk::device`](crate::Disk::device), for every path. By default a device with a volatile cache,
    /// and with FUA as set by [`Faults::fua`]. Changes only the description, not the disk's behaviour.
    pub fn device(&self, info: DeviceInfo) {
        self.shared.state.lock().plan.settings.device = Some(info);
    }
}
