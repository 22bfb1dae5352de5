//! A flush that stages, and the thread that drains ([`crate::staging`] has the steps and the invariants).

use super::CommitStream;
use super::groups::Group;
use super::stamp::{self, Known};
use super::writer::GroupWriter;
use crate::error::LogError;
use crate::signal::Sleep;
use crate::staging::{Appender, Staging, ToStage};
use crate::stats::add;
use crate::stream::watermarks::Tip;
use crate::threads::{Dying, RETRY};
use fulgurite_types::Csn;
use fulgurite_types::sync::{MutexGuard, yield_now};
use std::sync::Arc;

/// So many bytes a drain writes with one call, or one group.
const WRITE_BYTES: usize = 1 << 20;

/// The thread that drains full buffers.
pub(crate) fn run(stream: &Arc<CommitStream>) {
    let shared = &stream.shared;
    let dying = Dying(shared);
    while !shared.is_closed() {
        let result = stream.drain(true);
        if let Err(error) = &result {
            tracing::debug!(%error, "staged commits could not be written to the log; it is tried again");
        }
        let failed = match result {
            Ok(true) => continue,
            Ok(false) => false,
            Err(_) => true,
        };
        shared.drainer.sleep(|| match stream.staging() {
            _ if shared.is_closed() => Sleep::No,
            _ if shared.poison.is_set() => Sleep::Rest,
            _ if failed => Sleep::Nap(RETRY),
            Some(staging) if staging.has_full_buffer() => Sleep::No,
            _ => Sleep::Rest,
        });
    }
    dying.live();
}

/// A flush that is staging groups.
struct Stage<'a> {
    stream: &'a CommitStream,
    staging: &'a Staging,
    appender: &'a mut Appender,
    /// What the groups' headers say.
    known: Known,
    /// Whether a buffer was filled up.
    filled: bool,
}

impl CommitStream {
    /// The staging, if the log has one.
    pub fn staging(&self) -> Option<&Staging> {
        self.staging.as_ref()
    }

    /// Whether acknowledged commits of the highest level are staged: staging makes them durable.
    fn is_durable_when_staged(&self) -> bool {
        self.staging().is_none_or(Staging::is_persistent)
    }

    /// The newest commit that a flush has covered.
    pub fn flushed(&self) -> Csn {
        if self.is_durable_when_staged() { self.progress.durable_csn() } else { self.progress.staged_csn() }
    }

    /// Stages the filled groups. False if there are none.
    pub(super) fn stage_filled(&self, staging: &Staging) -> Result<bool, LogError> {
        let mut appender = staging.appender();
        self.shared.check_not_ended()?;
        let (groups, known) = self.take_stamped()?;
        if groups.is_empty() {
            return Ok(false);
        }
        let mut stage = Stage { stream: self, staging, appender: &mut appender, known, filled: false };
        stage.all(&groups)?;
        if stage.filled {
            self.shared.drainer.wake_asleep();
        }
        drop(groups);
        self.groups.release();
        add(&self.shared.stats.stagings, 1);
        self.shared.count_staging();
        Ok(true)
    }

    /// Writes staged groups to their segments, and syncs: all of them, or those in full buffers. False if there were none.
    pub fn drain(&self, full_only: bool) -> Result<bool, LogError> {
        self.drain_with(self.writer.lock(), full_only)
    }

    fn drain_with(&self, mut writer: MutexGuard<'_, GroupWriter>, full_only: bool) -> Result<bool, LogError> {
        let Some(staging) = self.staging() else { return Ok(false) };
        self.shared.check_not_ended()?;
        let pieces = staging.to_drain(full_only);
        let Some(last) = pieces.last() else { return Ok(false) };
        let flushing = self.shared.flushing();
        let mut copy = Vec::new();
        for piece in &pieces {
            let mut from = 0;
            while from < piece.len {
                let copied = staging.copy_groups(piece, from, WRITE_BYTES, &mut copy);
                copied.map_err(|error| self.staging_failed(error))?;
                writer.write_staged(&piece.segment, piece.offset + from, &copy)?;
                from += copy.len() as u32;
            }
            if piece.ends_segment {
                writer.seal(&piece.segment)?;
            }
        }
        writer.sync()?;
        if !staging.is_persistent() {
            self.raise_durable(last.sequence);
            self.shared.request_completion();
        }
        self.progress.raise_synced_to(last.tip);
        staging.release(&pieces);
        add(&self.shared.stats.drains, 1);
        flushing.end();
        Ok(true)
    }

    /// What the memory refuses ends the log, as a failed write does.
    fn staging_failed(&self, error: LogError) -> LogError {
        let poison = &self.shared.poison;
        match error {
            LogError::Io { path, source, .. } | LogError::NoSpace { path, source } => {
                poison.set("staging", Some((&path, source)))
            }
            LogError::Damaged(damage) => {
                let path = self.staging().map_or_else(|| "".as_ref(), Staging::path);
                poison.set("staging", Some((path, std::io::Error::other(damage.to_string()))))
            }
            other => other,
        }
    }

    /// Returns when `reached` says that what was staged up to `csn` was synced far enough.
    pub(super) fn wait_for_drain(&self, csn: Csn, reached: impl Fn() -> Csn) -> Result<(), LogError> {
        if reached() >= csn {
            return Ok(());
        }
        while reached() < csn {
            self.shared.poison.check()?;
            let writer = self.writer.lock();
            if reached() >= csn {
                break;
            }
            match self.drain_with(writer, false) {
                // Another thread may have synced it before the log ended.
                Err(error) if reached() < csn => return Err(error),
                Ok(false) if reached() < csn => {
                    self.groups.check_reserved(csn)?;
                    yield_now();
                }
                _ => {}
            }
        }
        self.shared.serve_completion();
        Ok(())
    }

    /// Makes the staged commits in volatile memory durable, unless another thread drains. True if it wrote something.
    pub(super) fn try_drain(&self) -> Result<bool, LogError> {
        if self.is_durable_when_staged() {
            return Ok(false);
        }
        let Some(writer) = self.writer.try_lock() else { return Ok(false) };
        let synced = self.drain_with(writer, false)?;
        self.shared.serve_completion();
        Ok(synced)
    }

    /// Gives up the staging file; nothing is staged any more. `is_noted`: the close is on record, so any opening may take the file.
    pub fn release_staging(&self, is_noted: bool) -> Result<(), LogError> {
        let Some(staging) = self.staging() else { return Ok(()) };
        let _appender = staging.appender();
        let _writer = self.writer.lock();
        self.shared.set_ended();
        let freed = if is_noted { staging.free() } else { Ok(()) };
        staging.end();
        freed
    }

    /// Drains everything, then ends all writing. No thread stages meanwhile.
    pub(super) fn end_staging(&self, staging: &Staging) -> Result<(), LogError> {
        let appender = staging.appender();
        while self.drain(false)? {}
        let writer = self.writer.lock();
        self.shared.set_ended();
        drop(writer);
        drop(appender);
        Ok(())
    }
}

impl Stage<'_> {
    /// Stages groups in their order, and raises the watermarks.
    fn all(&mut self, groups: &[Group]) -> Result<(), LogError> {
        let mut raised = 0;
        let mut after = None;
        for (nth, group) in groups.iter().enumerate() {
            let shared = &self.stream.shared;
            if let Some(left) = &group.left {
                let record = stamp::end_record(shared, group, left, self.known);
                let (sequence, tip) = after.unwrap_or_else(|| self.stream.progress.last_staged());
                let (segment, offset) = (&left.segment, left.offset);
                let end = ToStage { segment, offset, bytes: &record, ends_segment: true, sequence, tip };
                raised = self.one(&end, groups, raised, nth)?;
            }
            let tip = Tip { csn: group.last_csn(), lsn: group.end() };
            after = Some((group.sequence, tip));
            let whole = ToStage {
                segment: &group.segment,
                offset: group.offset,
                bytes: stamp::stamped(group),
                ends_segment: false,
                sequence: group.sequence,
                tip,
            };
            raised = self.one(&whole, groups, raised, nth)?;
        }
        self.raise(&groups[raised..])
    }

    /// Stores bytes of group `nth`. If all buffers are full, it raises the groups before that, drains, and tries again. Returns how many groups
    /// are raised.
    fn one(
        &mut self,
        what: &ToStage<'_>,
        groups: &[Group],
        raised: usize,
        nth: usize,
    ) -> Result<usize, LogError> {
        let mut raised = raised;
        let mut is_stuck = false;
        loop {
            if self
                .staging
                .store(self.appender, what, &mut self.filled)
                .map_err(|error| self.stream.staging_failed(error))?
            {
                return Ok(raised);
            }
            self.raise(&groups[raised..nth])?;
            raised = nth;
            add(&self.stream.shared.stats.staging_waits, 1);
            // Another thread may have emptied a buffer meanwhile.
            if !self.stream.drain(true)? && is_stuck {
                self.stream.drain(false)?;
            }
            is_stuck = true;
        }
    }

    /// Publishes what was stored, and raises the watermarks past these groups.
    fn raise(&mut self, groups: &[Group]) -> Result<(), LogError> {
        self.staging.publish(self.appender).map_err(|error| self.stream.staging_failed(error))?;
        if !groups.is_empty() {
            self.stream.raise_written(groups, self.known);
            if self.staging.is_persistent() {
                self.stream.raise_durable(u64::MAX);
            }
        }
        self.staging.make_ready();
        Ok(())
    }
}

impl crate::stream::watermarks::Progress {
    /// The sequence number of the last group that was staged or written, and where it ends.
    fn last_staged(&self) -> (u64, Tip) {
        let last = self.last_written();
        (last.sequence, Tip { csn: last.csn, lsn: self.written() })
    }
}
