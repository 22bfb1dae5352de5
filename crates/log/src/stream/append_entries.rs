//! Entries of a replicated log: leading, appending what another node leads, agreement.

use super::CommitStream;
use super::entries::{Entries, EntryObserver, EntryPositions, Role};
use super::groups::WholeGroup;
use crate::error::LogError;
use crate::format::{GroupKind, Records};
use crate::sent_chunks::FrameChunks;
use fulgurite_types::sync::yield_now;
use fulgurite_types::{Csn, EntryId, Lsn};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How often a committer that waits for a quorum looks.
const QUORUM_LOOK: Duration = Duration::from_micros(500);

/// Chunks may have so many times the bytes of entries that wait to be agreed: they take no memory.
const UNAGREED_CHUNKS: u64 = 16;

/// An entry as it is sent from node to node: the payload of a group, without local records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub id: EntryId,
    /// [`GroupKind::Frames`], [`GroupKind::Blank`] or [`GroupKind::Members`].
    pub kind: GroupKind,
    /// The CSN of its first frame; without frames, of the next one.
    pub first_csn: Csn,
    /// How many frames it has.
    pub frames: u32,
    /// Its frames, or the members.
    pub payload: Vec<u8>,
    /// Which frames refer to chunks, in order. The chunks are sent before.
    pub chunks: Vec<FrameChunks>,
}

impl Entry {
    /// The last commit at or before it.
    pub fn last_csn(&self) -> Csn {
        Csn(self.first_csn.0.saturating_add(self.frames.into()).saturating_sub(1))
    }

    /// Checks that it is what it says, each frame with its checksums.
    ///
    /// # Errors
    /// [`LogError::Usage`] if not.
    pub fn validate(&self) -> Result<(), LogError> {
        self.check().map(|_| ())
    }

    /// The same. Returns when its last commit happened.
    pub(crate) fn check(&self) -> Result<u64, LogError> {
        let wrong = |what: String| LogError::Usage(format!("entry {} {what}", self.id));
        let is_in_range =
            self.first_csn > Csn::ZERO && self.first_csn.0.checked_add(self.frames.into()).is_some();
        if !self.kind.is_entry() || !is_in_range {
            return Err(wrong(format!(
                "is of kind {:?} and begins with commit {}",
                self.kind, self.first_csn
            )));
        }
        let (mut next, mut time_ms) = (self.first_csn, 0);
        if self.kind == GroupKind::Frames {
            for record in Records::new(&self.payload) {
                let record = record.map_err(|error| wrong(format!("does not decode: {error}")))?;
                if record.header.csn != next || !record.local.is_empty() {
                    return Err(wrong(format!("has commit {} where {next} has to be", record.header.csn)));
                }
                (next, time_ms) = (next.next(), record.header.commit_time_ms);
            }
        }
        let is_blank = self.kind == GroupKind::Blank;
        if next.prev() != self.last_csn()
            || (self.kind == GroupKind::Frames && self.frames == 0)
            || (is_blank && !self.payload.is_empty())
        {
            return Err(wrong(format!(
                "promises commits up to {}, and has {} up to {}",
                self.last_csn(),
                self.payload.len(),
                next.prev()
            )));
        }
        let of_frames = self.chunks.iter().map(|frame| frame.csn);
        if !of_frames.clone().is_sorted_by(|a, b| a < b)
            || of_frames.clone().any(|csn| csn < self.first_csn || csn >= next)
            || self.chunks.iter().any(|frame| frame.count == 0)
        {
            return Err(wrong("refers to chunks for commits that it does not have".into()));
        }
        Ok(time_ms)
    }
}

impl CommitStream {
    pub fn replicated(&self) -> Result<&Entries, LogError> {
        self.entries.as_ref().ok_or_else(|| LogError::Usage("the log is not replicated".into()))
    }

    pub fn role(&self) -> Option<Role> {
        self.entries.as_ref().map(Entries::role)
    }

    pub fn set_entry_observer(&self, observer: EntryObserver) -> Result<(), LogError> {
        *self.replicated()?.observer.write() = Some(observer);
        Ok(())
    }

    // The leader.

    /// Begins to lead in `term`, with a blank entry.
    pub fn lead(self: &Arc<Self>, term: u64) -> Result<(), LogError> {
        let entries = self.replicated()?;
        let mut admission = self.admit_any(0, 0)?;
        let blank = WholeGroup { kind: GroupKind::Blank, frames: 0, time_ms: 0, payload: &[], entry: None };
        entries.lead(term, || self.groups.append_entry(&mut admission.admitted, &blank, None))?;
        admission.stream = None;
        Ok(())
    }

    /// Appends an entry with the members of the cluster, which the next flush numbers.
    pub fn propose_members(self: &Arc<Self>, members: &[u8]) -> Result<(), LogError> {
        let entries = self.replicated()?;
        let mut admission = self.admit_bytes(members.len())?;
        let whole =
            WholeGroup { kind: GroupKind::Members, frames: 0, time_ms: 0, payload: members, entry: None };
        entries.propose(|| self.groups.append_entry(&mut admission.admitted, &whole, None))?;
        admission.stream = None;
        Ok(())
    }

    /// Ends numbering. Commits without a number fail; the others are written, and agreed or not by others.
    pub fn fence(&self) -> Result<EntryId, LogError> {
        let last = self.replicated()?.fence();
        self.shared.wake_sleepers();
        // What waits for commits that have no number hears that they are none: not on this thread, which may hold locks.
        self.shared.request_completion();
        Ok(last)
    }

    // A follower.

    /// Appends an entry of a leader, which the next flush writes. `payload` is the entry's, with local records.
    pub fn append_entry(self: &Arc<Self>, entry: &Entry, payload: &[u8]) -> Result<(), LogError> {
        let entries = self.replicated()?;
        let time_ms = entry.check()?;
        let mut admission = self.admit_bytes(payload.len())?;
        let Entry { id, kind, frames, .. } = *entry;
        let whole = WholeGroup { kind, frames, time_ms, payload, entry: Some(id) };
        entries.append(id, entry.last_csn(), (payload.len() as u64, time_ms), || {
            self.groups.append_entry(&mut admission.admitted, &whole, Some(entry.first_csn))
        })?;
        admission.stream = None;
        Ok(())
    }

    /// Writes all groups that are appended by now, and returns when they are durable here.
    pub fn flush_entries(&self) -> Result<(), LogError> {
        let end = self.groups.fill_above(self.progress.written()).reserved;
        while self.progress.tip().lsn < end {
            let flushed = match self.flush(true) {
                // What has a number may only be staged.
                Err(LogError::NotLeader) if self.drain(false)? => true,
                flushed => flushed?,
            };
            if !flushed && !self.drain(false)? {
                self.shared.poison.check()?;
                yield_now();
            }
        }
        Ok(())
    }

    /// Admits the payload of a group. Its limit is that of a frame and of a local record together, which no joined group exceeds either.
    fn admit_bytes(self: &Arc<Self>, bytes: usize) -> Result<super::Admission, LogError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let frame_bytes = bytes.min(self.frame_bytes_max);
        self.admit_any(frame_bytes, bytes - frame_bytes)
    }

    // Agreement.

    /// A quorum has entry `id`, and with it all before, durably. True if that is news, and this log has the entry.
    pub fn raise_agreed(&self, id: EntryId) -> Result<bool, LogError> {
        let entries = self.replicated()?;
        let Some((before, after)) = entries.raise_agreed(id) else { return Ok(false) };
        entries.set_chunk_bytes_at_agreed(self.shared.stats.chunk_bytes.load(Relaxed));
        self.shared.agreement.wake_range(before.csn, after.csn);
        self.announce_stable(entries);
        self.tell_positions(entries);
        // A mark group says it once the log is idle.
        self.shared.flusher.wake_resting();
        self.shared.call_completer();
        Ok(true)
    }

    /// Announces the stable CSN if it rose. Each of two threads that raise `durable` and `agreed` stores its own, then reads the other's
    /// under this lock: the second finds both.
    pub(super) fn announce_stable(&self, entries: &Entries) {
        let mut announced = entries.announced.lock();
        let stable = self.stable_csn();
        if stable > *announced {
            *announced = stable;
            self.shared.announce(stable);
        }
    }

    pub(super) fn tell_positions(&self, entries: &Entries) {
        let observer = entries.observer.read().clone();
        if let Some(observer) = observer {
            observer(self.positions_of(entries));
        }
    }

    fn positions_of(&self, entries: &Entries) -> EntryPositions {
        // Read in the order in which each bounds the next.
        let agreed = entries.agreed();
        let durable = self.progress.durable_entry();
        let last = entries.last();
        assert!(
            durable.index <= last.index && agreed.index <= last.index,
            "INV-REP-3: {agreed:?}, {durable}, {last}"
        );
        EntryPositions { last, durable, agreed }
    }

    pub fn positions(&self) -> Option<EntryPositions> {
        self.entries.as_ref().map(|entries| self.positions_of(entries))
    }

    /// The newest commit that may be acknowledged: durable here, and agreed.
    #[inline]
    pub fn stable_csn(&self) -> Csn {
        self.bounded(self.durable_csn())
    }

    /// The newest commit that nothing can undo.
    #[inline]
    pub fn floor_csn(&self) -> Csn {
        self.bounded(self.progress.synced_csn())
    }

    /// When the newest commit that this opening knows to be agreed happened, or an earlier time; `None` in a log that is not replicated.
    pub fn agreed_time_ms(&self) -> Option<u64> {
        self.entries.as_ref().map(Entries::agreed_time_ms)
    }

    /// The newest agreed entry; 0 in a log that is not replicated, in which all frames have that.
    pub fn agreed_index(&self) -> u64 {
        self.entries.as_ref().map_or(0, Entries::agreed_index)
    }

    /// Start and bytes of the group at `at`, if it is stamped and in memory.
    pub fn read_stamped(&self, at: Lsn) -> Option<(Lsn, Vec<u8>)> {
        self.entries.as_ref()?;
        self.groups.read_stamped(at)
    }

    #[inline]
    fn bounded(&self, csn: Csn) -> Csn {
        match &self.entries {
            None => csn,
            Some(entries) => csn.min(entries.agreed_csn()),
        }
    }

    /// Whether there is room for commits before the next ones are agreed.
    #[inline]
    pub fn has_quorum(&self) -> bool {
        let bytes_max = self.shared.options.unagreed_bytes_max;
        let has_room = |entries: &Entries| {
            entries.unagreed_bytes() <= bytes_max
                && entries.unagreed_chunk_bytes() <= UNAGREED_CHUNKS.saturating_mul(bytes_max)
        };
        self.entries.as_ref().is_none_or(has_room)
    }

    /// Whether there is, and room for chunks: no checkpoint frees those that were written since agreement rose last, while a commit waits to be
    /// agreed, also those of transactions that were given up.
    pub fn has_quorum_for_chunks(&self) -> bool {
        let Some(entries) = &self.entries else { return true };
        let written = self.shared.stats.chunk_bytes.load(Relaxed);
        let since = written.saturating_sub(entries.chunk_bytes_at_agreed());
        let bytes_max = UNAGREED_CHUNKS.saturating_mul(self.shared.options.unagreed_bytes_max);
        self.has_quorum() && (since <= bytes_max || self.reserved_csn() <= entries.agreed_csn())
    }

    /// Waits for that, so long at most; returns whether there is.
    pub fn wait_quorum(&self, limit: Duration) -> Result<bool, LogError> {
        let clock = self.shared.env.clock();
        let begin_ns = clock.monotonic_ns();
        while !self.has_quorum_for_chunks() {
            self.shared.check_usable()?;
            if self.entries.as_ref().is_some_and(|entries| !entries.leads()) {
                return Err(LogError::NotLeader);
            }
            if Duration::from_nanos(clock.monotonic_ns().saturating_sub(begin_ns)) >= limit {
                return Ok(false);
            }
            clock.sleep(QUORUM_LOOK);
        }
        Ok(true)
    }

    /// The newest commit that has a number, if this node led, so that no other gets one.
    pub fn refused_after(&self) -> Option<Csn> {
        self.entries.as_ref()?.last_csn_of_deposed()
    }

    /// Returns when a quorum has `csn`, which is durable here.
    pub fn wait_agreed(&self, csn: Csn) -> Result<(), LogError> {
        let Some(entries) = &self.entries else { return Ok(()) };
        let shared = &self.shared;
        while entries.agreed_csn() < csn {
            shared.poison.check()?;
            if shared.is_closed() {
                return Err(LogError::NotAgreed);
            }
            let is_over = || entries.agreed_csn() >= csn || shared.poison.is_set() || shared.is_closed();
            shared.agreement.park(csn, is_over);
        }
        Ok(())
    }
}
