//! The bulk stream: large records, synced on demand, never scanned by recovery.

use crate::core::Core;
use crate::error::LogError;
use crate::format::{
    BULK_HEADER_BYTES, BulkHeader, BulkKind, GROUP_HEADER_BYTES, GroupHeader, GroupKind, SEGMENT_DATA_START,
    bulk_record_bytes,
};
use crate::log::Log;
use crate::segment::{SEALED, Segment, Stream};
use crate::stats::add;
use crate::store::From;
use fulgurite_types::sync::{AtomicU64, Mutex, MutexGuard};
use fulgurite_types::{Csn, Lsn};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// How many bytes are buffered before they are written.
const BUFFER_BYTES: usize = 1024 * 1024;

/// A thread that appends and finds this many bytes unsynced syncs them before it returns (INV-LOG-17).
const UNSYNCED_BYTES_MAX: u64 = if cfg!(feature = "shuttle") { 4096 } else { 4 * 1024 * 1024 };

#[derive(Default)]
struct State {
    segment: Option<Arc<Segment>>,
    /// The offset in the segment where `buffer` begins: all before is written.
    written: u32,
    buffer: Vec<u8>,
    /// Segments with writes that no sync has covered.
    unsynced: Vec<Arc<Segment>>,
    appended: BulkPosition,
}

/// A position in the bulk stream: all bytes that were appended before it. Later positions are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BulkPosition(u64);

impl State {
    fn append_at(&self) -> u32 {
        self.written + self.buffer.len() as u32
    }

    /// Has the next sync cover the open segment.
    fn note_unsynced(&mut self) {
        let Some(segment) = &self.segment else { return };
        if !self.unsynced.iter().any(|other| other.number == segment.number) {
            self.unsynced.push(Arc::clone(segment));
        }
    }

    fn room(&self) -> u32 {
        self.segment.as_ref().map_or(0, |segment| segment.bytes - self.append_at())
    }
}

pub(crate) struct BulkStream {
    /// Held during a sync, so that a second one waits for what the first is syncing.
    syncing: Mutex<()>,
    state: Mutex<State>,
    /// The [`BulkPosition`] up to which everything is durable.
    synced: AtomicU64,
    /// The [`BulkPosition`] that frames of the commit stream depend on (INV-LOG-16).
    required: AtomicU64,
}

impl BulkStream {
    pub fn new() -> BulkStream {
        BulkStream {
            syncing: Mutex::new(()),
            state: Mutex::default(),
            synced: AtomicU64::new(0),
            required: AtomicU64::new(0),
        }
    }

    /// Returns when no thread is writing or syncing.
    pub fn wait_for_writers(&self) {
        drop(self.syncing.lock());
        drop(self.state.lock());
    }

    /// How many bytes the open segment still takes.
    pub fn room(&self) -> u32 {
        self.state.lock().room()
    }

    /// The open segment, and the offset of the next record in it.
    pub fn append_point(&self) -> Option<(u32, u32)> {
        let state = self.state.lock();
        state.segment.as_ref().map(|segment| (segment.number, state.append_at()))
    }
}

impl Core {
    /// Calls `on_place` with the record's LSN while the stream is locked: before its segment can be left, sealed or
    /// freed.
    pub fn append_bulk(
        &self,
        kind: BulkKind,
        pieces: &[&[u8]],
        on_place: impl FnOnce(Lsn),
    ) -> Result<(Lsn, BulkPosition), LogError> {
        let body: usize = pieces.iter().map(|piece| piece.len()).sum();
        let max = self.options.bulk_bytes_max();
        let body_bytes = u32::try_from(body)
            .ok()
            .filter(|&bytes| bytes <= max)
            .ok_or(LogError::TooLarge { what: "a bulk record", bytes: body as u64, max: max.into() })?;
        let bytes = bulk_record_bytes(body_bytes);
        let mut state = self.bulk.state.lock();
        self.check_usable()?;
        // INV-LOG-18: chunks that users write ahead take nothing of the reserve, which is for checkpoints.
        let from = if kind == BulkKind::Chunk { From::Disk } else { From::DiskOrReserve };
        let is_for_checkpoints = state.segment.as_ref().is_some_and(|segment| segment.of_reserve);
        if state.room() < bytes || (is_for_checkpoints && from == From::Disk) {
            self.next_bulk_segment(&mut state, bytes, from)?;
        }
        let segment = state.segment.as_ref().expect("the stream has a segment with room by now");
        let lsn = Lsn::new(segment.number, state.append_at());
        on_place(lsn);
        let header = BulkHeader { kind, codec: 0, flags: 0, body_bytes, lsn };
        let end = state.buffer.len() + bytes as usize;
        state.buffer.extend_from_slice(&header.encode(self.database, pieces));
        for piece in pieces {
            state.buffer.extend_from_slice(piece);
        }
        state.buffer.resize(end, 0);
        state.appended.0 += u64::from(bytes);
        let mark = state.appended;
        if state.buffer.len() >= BUFFER_BYTES {
            self.write_bulk(&mut state)?;
        }
        drop(state);
        add(&self.stats.bulk_records, 1);
        add(&self.stats.bulk_bytes, u64::from(bytes));
        // Not left to the log thread: that may be in a user's callback, which may wait for this thread.
        if mark.0.saturating_sub(self.bulk.synced.load(SeqCst)) >= UNSYNCED_BYTES_MAX {
            self.sync_bulk(mark, || self.check_usable())?;
        }
        Ok((lsn, mark))
    }

    /// Continues in a segment that has room for a record of `bytes`.
    fn next_bulk_segment(&self, state: &mut State, bytes: u32, from: From) -> Result<(), LogError> {
        let next = self.take_bulk_segment(SEGMENT_DATA_START + GROUP_HEADER_BYTES + bytes, from)?;
        self.write_bulk(state)?;
        // The next sync seals the segment that is left, even if nothing was written to it since the last one.
        state.note_unsynced();
        next.hand_out(Stream::Bulk, self.epoch, Csn::ZERO);
        let header = GroupHeader {
            kind: GroupKind::BulkStart,
            database: self.database,
            epoch: self.epoch,
            segment: next.number,
            offset: SEGMENT_DATA_START,
            payload_bytes: 0,
            first_csn: Csn::ZERO,
            frames: 0,
            next_segment: 0,
            durable: self.durable_csn(),
        };
        state.written = SEGMENT_DATA_START;
        state.buffer.extend_from_slice(&header.encode(&[]));
        state.segment = Some(next);
        Ok(())
    }

    /// A ready segment, if the commit stream keeps enough and it is large enough, else a new one.
    fn take_bulk_segment(&self, bytes_min: u32, from: From) -> Result<Arc<Segment>, LogError> {
        let mut maker = self.store.maker();
        let (ready, taken) = {
            let mut groups = self.groups();
            (groups.take_ready(bytes_min, &self.credit), groups.segments_taken())
        };
        match ready {
            Some(segment) => {
                self.supply.wake_asleep();
                Ok(segment)
            }
            None => {
                let made = self.make_segment(&mut maker, taken, bytes_min, from)?;
                self.groups().count_taken();
                Ok(made)
            }
        }
    }

    /// Writes the buffer. A failure poisons the log: the buffered records have LSNs already.
    fn write_bulk(&self, state: &mut State) -> Result<(), LogError> {
        let Some(segment) = state.segment.clone().filter(|_| !state.buffer.is_empty()) else {
            return Ok(());
        };
        self.poison.check()?;
        let file = self.store.file(&segment);
        let result = file.and_then(|file| file.write_at(&state.buffer, state.written.into()));
        result.map_err(|error| self.fail("a bulk write", Some((&segment.path, error))))?;
        state.written = state.append_at();
        state.buffer.clear();
        segment.set_used(state.written);
        state.note_unsynced();
        Ok(())
    }

    /// Makes durable everything up to position `mark`, and all other bytes appended by then. A call that finds `mark`
    /// synced once it has the lock does nothing. `check` runs while the stream is locked.
    fn sync_bulk(
        &self,
        mark: BulkPosition,
        check: impl Fn() -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let _syncing = self.bulk.syncing.lock();
        let (unsynced, reached) = {
            let mut state = self.bulk.state.lock();
            check()?;
            if self.is_bulk_synced(mark) {
                return Ok(());
            }
            self.write_bulk(&mut state)?;
            (std::mem::take(&mut state.unsynced), state.appended)
        };
        for segment in unsynced {
            add(&self.stats.bulk_syncs, 1);
            let result = self.store.file(&segment).and_then(|file| file.sync_data());
            result.map_err(|error| self.fail("a bulk sync", Some((&segment.path, error))))?;
            if self.bulk_state_of(segment.number).is_none() {
                self.store.seal(&segment);
            }
        }
        self.poison.check()?;
        self.bulk.synced.fetch_max(reached.0, SeqCst);
        Ok(())
    }

    fn is_bulk_synced(&self, mark: BulkPosition) -> bool {
        self.bulk.synced.load(SeqCst) >= mark.0
    }

    /// INV-LOG-16. The thread that writes the commit stream calls it after it took groups and before it writes them. A
    /// committer raises `required` before it fills its frame, and this thread saw the groups filled, so it sees the
    /// positions of all their frames. All later commits wait for this sync: INV-LOG-17 bounds how many bytes it writes.
    pub fn sync_required_bulk(&self) -> Result<(), LogError> {
        let required = BulkPosition(self.bulk.required.load(SeqCst));
        if self.is_bulk_synced(required) {
            return Ok(());
        }
        // Not `check_usable`: a closing log still writes.
        self.sync_bulk(required, || self.poison.check())
    }

    /// Copies `lsn..lsn + len` from the bulk buffer, if it is all there.
    pub fn read_bulk_buffer(&self, segment: &Segment, lsn: Lsn, len: u32) -> Option<Vec<u8>> {
        // Nothing of a sealed segment is in the buffer. Most reads are of those, and need not wait for an appending
        // thread.
        if segment.state() == SEALED {
            return None;
        }
        let state = self.bulk_state_of(lsn.segment())?;
        let at = lsn.offset().checked_sub(state.written)? as usize;
        state.buffer.get(at..at + len as usize).map(<[u8]>::to_vec)
    }

    fn bulk_state_of(&self, segment: u32) -> Option<MutexGuard<'_, State>> {
        let state = self.bulk.state.lock();
        let same = state.segment.as_ref().is_some_and(|open| open.number == segment);
        same.then_some(state)
    }
}

/// A record of the bulk stream, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkRecord {
    /// The kind of the body.
    pub kind: BulkKind,
    /// The body.
    pub body: Vec<u8>,
}

/// How many bytes the first read of a record takes: most nodes fit.
const READ_AHEAD_BYTES: u32 = 8 * 1024;

impl Log {
    /// Appends a record, its body given in pieces, and returns its LSN. The record stays in memory until about a
    /// megabyte is buffered, and is durable after [`Log::sync_bulk`]. If 4 MiB are not durable by now the call syncs
    /// them.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], [`LogError::NoSpace`], [`LogError::Io`]: nothing was appended. [`LogError::Poisoned`],
    /// [`LogError::Closed`]: reopen.
    pub fn append_bulk(&self, kind: BulkKind, pieces: &[&[u8]]) -> Result<Lsn, LogError> {
        self.core.append_bulk(kind, pieces, |_| ()).map(|(lsn, _)| lsn)
    }

    /// Returns when everything appended before is durable.
    ///
    /// # Errors
    /// [`LogError::Poisoned`]: whether it is durable stays unknown.
    pub fn sync_bulk(&self) -> Result<(), LogError> {
        let appended = self.core.bulk.state.lock().appended;
        self.core.sync_bulk(appended, || self.core.check_usable())
    }

    /// Returns when everything up to position `mark` is durable; at once if it is.
    ///
    /// # Errors
    /// As [`Log::sync_bulk`].
    pub fn sync_bulk_to(&self, mark: BulkPosition) -> Result<(), LogError> {
        self.core.sync_bulk(mark, || self.core.check_usable())
    }

    /// Has the bulk stream synced up to position `mark` before any frame is written that is reserved after this call:
    /// for a frame that names chunks which its committer does not sync. The thread that writes the frame's group syncs
    /// them.
    pub fn require_bulk(&self, mark: BulkPosition) {
        self.core.bulk.required.fetch_max(mark.0, SeqCst);
    }

    /// Reads and verifies the record that begins at `lsn`.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if there is no such record or no such segment.
    pub fn read_bulk(&self, lsn: Lsn) -> Result<BulkRecord, LogError> {
        let segment = self.core.segment(lsn)?;
        let damaged = |what: String| LogError::damaged(&segment.path, lsn.offset().into(), None, what);
        let ahead = READ_AHEAD_BYTES.min(segment.bytes.saturating_sub(lsn.offset()));
        let mut bytes = match self.core.read_bulk_buffer(&segment, lsn, BULK_HEADER_BYTES) {
            Some(header) => header,
            None => self.core.read_file(&segment, lsn.offset(), ahead)?,
        };
        let header = BulkHeader::decode(&bytes, lsn).map_err(|error| damaged(error.to_string()))?;
        let bytes_max = self.core.segment_room(&segment, lsn);
        if header.body_bytes > bytes_max.saturating_sub(BULK_HEADER_BYTES) {
            return Err(damaged("the record is longer than its segment".into()));
        }
        let whole = BULK_HEADER_BYTES + header.body_bytes;
        if (bytes.len() as u32) < whole {
            let have = bytes.len() as u32;
            bytes.extend(self.read_bytes(lsn.advance(have), whole - have)?);
        }
        bytes.truncate(whole as usize);
        let (head, body) = bytes.split_at(BULK_HEADER_BYTES as usize);
        header.check(self.core.database, head, body).map_err(|error| damaged(error.to_string()))?;
        bytes.drain(..BULK_HEADER_BYTES as usize);
        Ok(BulkRecord { kind: header.kind, body: bytes })
    }
}

const _: () = assert!(GROUP_HEADER_BYTES.is_multiple_of(crate::format::GROUP_ALIGN));
