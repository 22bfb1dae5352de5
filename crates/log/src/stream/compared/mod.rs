//! Two schemes that exist to be compared with: the paper's baseline and the paper's own (Son, Yeom and Han, 2017). The
//! default path, [`super::leader`], never comes here.
//!
//! All schemes number, fill and write groups in the same way. These two write through the page cache, each group with a
//! call of its own, and sync apart. They differ in which commits a sync acknowledges.
//!
//! Their locks are the sync lock, then the queues of [`aggregated`], the secondary before the primary. They come after
//! the writer, and before all others.

mod aggregated;
mod own_lsn;

use self::aggregated::Aggregated;
use super::groups::GroupOf;
use super::{CommitStream, writer};
use crate::error::LogError;
use crate::stats::add;
use crate::stream::writer::{Flush, GroupWriter};
use fulgurite_types::Csn;
use fulgurite_types::sync::{Mutex, MutexGuard};

/// A scheme that writes through the page cache, and its sync lock.
pub(super) struct Buffered {
    kind: Kind,
    syncing: Mutex<()>,
}

enum Kind {
    OwnLsn,
    Aggregated(Aggregated),
}

impl Buffered {
    pub fn own_lsn() -> Buffered {
        Buffered { kind: Kind::OwnLsn, syncing: Mutex::new(()) }
    }

    pub fn aggregated() -> Buffered {
        Buffered { kind: Kind::Aggregated(Aggregated::default()), syncing: Mutex::new(()) }
    }

    /// Makes `csn` durable, or waits for the thread that does.
    pub fn wait(&self, stream: &CommitStream, csn: Csn) -> Result<(), LogError> {
        match &self.kind {
            Kind::OwnLsn => own_lsn::wait(self, stream, csn),
            Kind::Aggregated(scheme) => scheme.wait(self, stream, csn),
        }
    }

    /// Writes and flushes everything that is filled. False if there was nothing to do.
    pub fn flush(&self, stream: &CommitStream) -> Result<bool, LogError> {
        let flushing = stream.shared.flushing();
        let wrote = self.write_filled(stream, &mut stream.writer.lock());
        flushing.end();
        let wrote = wrote?;
        let lock = self.sync_lock(stream);
        if !wrote && stream.progress.written_csn() <= stream.durable_csn() {
            return Ok(false);
        }
        let last = stream.sync_written()?;
        self.end_sync(stream, lock, last);
        Ok(true)
    }

    /// Writes groups until the group of `last_csn` is written: the first half of a flush.
    fn write_up_to(&self, stream: &CommitStream, last_csn: Csn) -> Result<(), LogError> {
        let flushing = stream.shared.flushing();
        let mut writer = stream.writer.lock();
        let mut result = Ok(true);
        while result.is_ok() && stream.progress.written_csn() < last_csn {
            result = self.write_filled(stream, &mut writer);
        }
        drop(writer);
        flushing.end();
        result.map(|_| ())
    }

    /// Writes the filled groups, each with a call of its own. False if there was nothing.
    fn write_filled(&self, stream: &CommitStream, writer: &mut GroupWriter) -> Result<bool, LogError> {
        stream.shared.check_not_ended()?;
        let (groups, known) = stream.take_stamped()?;
        for group in &groups {
            if group.left.is_some() {
                // INV-LOG-2: the old segment is synced before anything in the next one can count as durable. The lock
                // keeps other syncs out: of two syncs of one file at once, either may get the other's error.
                let _alone = self.syncing.lock();
                stream.shared.poison.check()?;
                writer.end_left_segment(group, known)?;
            }
            let run = std::slice::from_ref(group);
            writer.write(run, None, known, Flush::Later)?;
            stream.raise_written(run, known);
        }
        let wrote = !groups.is_empty();
        drop(groups);
        stream.groups.release();
        Ok(wrote)
    }

    /// Takes the sync lock.
    fn sync_lock(&self, stream: &CommitStream) -> MutexGuard<'_, ()> {
        let shared = &stream.shared;
        if let Some(lock) = self.syncing.try_lock() {
            add(&shared.stats.sync_locks, 1);
            return lock;
        }
        let start_ns = shared.now_ns();
        let lock = self.syncing.lock();
        add(&shared.stats.sync_lock_ns, shared.now_ns().saturating_sub(start_ns));
        add(&shared.stats.sync_locks, 1);
        lock
    }

    /// Declares groups durable that a sync under `lock` covered, releases the lock, wakes their waiters, and completes.
    fn end_sync(&self, stream: &CommitStream, lock: MutexGuard<'_, ()>, up_to: u64) {
        let before = stream.durable_csn();
        stream.raise_durable(up_to);
        stream.progress.raise_synced();
        drop(lock);
        stream.wake_durable(before);
        stream.complete(before);
    }
}

impl CommitStream {
    /// The group of a commit, closed. `None` if it is durable.
    fn close_group_of(&self, csn: Csn) -> Result<Option<GroupOf>, LogError> {
        let group = self.groups.close_group_of(csn)?;
        Ok(group.or_else(|| self.progress.group_of(csn)))
    }

    /// Flushes everything that was written before the call, and returns the last group of it. The caller holds the sync
    /// lock.
    fn sync_written(&self) -> Result<u64, LogError> {
        let flushing = self.shared.flushing();
        let last = self.progress.last_written();
        let synced = self.shared.poison.check().and_then(|()| match &last.segment {
            Some(segment) => writer::sync(&self.shared, &self.segments, segment),
            None => Ok(()),
        });
        flushing.end();
        synced.map(|()| last.sequence)
    }

    /// Wakes the waiters of commits that became durable since `before`.
    fn wake_durable(&self, before: Csn) {
        add(&self.shared.stats.wakes, self.shared.parking.wake_range(before, self.durable_csn()));
    }

    /// Calls the completer if `durable` rose since `before`. The caller holds no lock and leads no flush.
    fn complete(&self, before: Csn) {
        if self.durable_csn() > before {
            self.shared.call_completer();
        }
    }

    /// Sleeps until `csn` is durable: another thread flushes it.
    fn wait_for_flusher(&self, csn: Csn) -> Result<(), LogError> {
        if self.durable_csn() >= csn {
            return Ok(());
        }
        let shared = &self.shared;
        add(&shared.stats.flush_waits, 1);
        let start_ns = shared.now_ns();
        // A group that was written before writing ended is still flushed.
        let is_closed = || shared.has_ended() && self.progress.written_csn() < csn;
        let is_over = || self.durable_csn() >= csn || shared.poison.is_set() || is_closed();
        while self.durable_csn() < csn {
            shared.poison.check()?;
            if is_closed() {
                return Err(LogError::Closed);
            }
            add(&shared.stats.parks, u64::from(shared.parking.park(csn, is_over)));
        }
        add(&shared.stats.flush_wait_ns, shared.now_ns().saturating_sub(start_ns));
        Ok(())
    }
}
