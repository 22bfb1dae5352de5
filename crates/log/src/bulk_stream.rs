//! The bulk stream: large records, synced on demand, never scanned by recovery.

mod closed;
mod long_record;

pub use closed::{ClosedLog, ReadBulk};

use crate::error::LogError;
use crate::format::{
    BULK_HEADER_BYTES, BULK_START_BYTES, BulkHeader, BulkKind, GroupHeader, SEGMENT_DATA_START,
    bulk_record_bytes,
};
use crate::log::Log;
use crate::segments::{SEALED, Segment, Segments, Stream};
use crate::shared::Shared;
use crate::stats::add;
use fulgurite_types::sync::{AtomicU64, Mutex, MutexGuard};
use fulgurite_types::{Csn, DatabaseId, Lsn};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// How many bytes an append point buffers before it writes them.
const BUFFER_BYTES: usize = 256 * 1024;

/// What the buffers of all append points of the bulk stream take, in bytes, beside a record that is longer than one of them.
pub const BULK_BUFFERS_BYTES: usize = (1 + Apart::COUNT) * BUFFER_BYTES;

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
    /// Whether the next record begins another segment, although this one may have room.
    is_left: bool,
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
        let open = self.segment.as_ref().filter(|_| !self.is_left);
        open.map_or(0, |segment| segment.bytes - self.append_at())
    }
}

pub(crate) struct BulkStream {
    shared: Arc<Shared>,
    segments: Arc<Segments>,
    /// Held during a sync, so that a second one waits for what the first is syncing.
    syncing: Mutex<()>,
    /// Held over writes, and while a segment is made.
    state: Mutex<State>,
    /// Held while a long record is written.
    long: Mutex<()>,
    /// The number of the open segment: reads of others do not wait for an appending thread.
    open_segment: AtomicU64,
    /// The [`BulkPosition`] up to which everything is durable.
    synced: AtomicU64,
    /// The [`BulkPosition`] that frames of the commit stream depend on (INV-LOG-16).
    required: AtomicU64,
}

/// A segment that the stream wants.
pub(crate) struct NextWanted {
    /// The least size in bytes.
    pub bytes_min: u32,
    /// Whether a file of the reserve will do if the disk is full.
    pub reserve: bool,
}

/// A segment in which the stream continues.
pub(crate) struct NextSegment {
    pub segment: Arc<Segment>,
    /// The durable mark of its first group.
    pub durable: Csn,
}

/// A record that was appended.
pub(crate) struct Appended {
    pub lsn: Lsn,
    /// The position after it.
    pub mark: BulkPosition,
}

impl BulkStream {
    pub fn new(shared: Arc<Shared>, segments: Arc<Segments>) -> BulkStream {
        BulkStream {
            shared,
            segments,
            syncing: Mutex::new(()),
            state: Mutex::default(),
            long: Mutex::new(()),
            open_segment: AtomicU64::new(u64::MAX),
            synced: AtomicU64::new(0),
            required: AtomicU64::new(0),
        }
    }

    /// Returns when no thread is writing or syncing.
    pub fn wait_for_writers(&self) {
        drop(self.long.lock());
        drop(self.syncing.lock());
        drop(self.state.lock());
    }

    /// How many bytes the open segment still takes.
    pub fn room(&self) -> u32 {
        self.state.lock().room()
    }

    /// The same; 0 while a thread appends or writes.
    pub fn room_unless_busy(&self) -> u32 {
        self.state.try_lock().map_or(0, |state| state.room())
    }

    /// Where the next record begins, if it fits.
    pub fn append_point(&self) -> Option<Lsn> {
        let state = self.state.lock();
        state.segment.as_ref().map(|segment| Lsn::new(segment.number, state.append_at()))
    }

    /// Calls `on_append` with the record's LSN while the stream is locked: before its segment can be left, sealed or
    /// freed. `next` gives the next segment.
    pub fn append(
        &self,
        kind: BulkKind,
        pieces: &[&[u8]],
        reserve: bool,
        on_append: impl FnOnce(Lsn),
        next: impl FnOnce(&NextWanted) -> Result<NextSegment, LogError>,
    ) -> Result<Appended, LogError> {
        let body: usize = pieces.iter().map(|piece| piece.len()).sum();
        let max = self.shared.options.bulk_bytes_max();
        let whole_segment = self.shared.options.segment_body_max();
        let body_bytes = u32::try_from(body)
            .ok()
            .filter(|&bytes| bytes <= max)
            .ok_or(LogError::TooLarge { what: "a bulk record", bytes: body as u64, max: max.into() })?;
        if body_bytes > whole_segment {
            return self.append_long(kind, (pieces, body_bytes), on_append, next);
        }
        let bytes = bulk_record_bytes(body_bytes);
        let mut state = self.state.lock();
        self.shared.check_usable()?;
        // INV-LOG-18: chunks that users write ahead, and nodes that are written to be evicted, take nothing of the reserve, which
        // is for checkpoints.
        let is_for_checkpoints = state.segment.as_ref().is_some_and(|segment| segment.of_reserve);
        if state.room() < bytes || (is_for_checkpoints && !reserve) {
            let bytes_min = SEGMENT_DATA_START + BULK_START_BYTES + bytes;
            let next = next(&NextWanted { bytes_min, reserve })?;
            self.continue_in(next, &mut state)?;
        }
        let segment = state.segment.as_ref().expect("the stream has a segment with room by now");
        let lsn = Lsn::new(segment.number, state.append_at());
        on_append(lsn);
        let header = BulkHeader { kind, codec: 0, flags: 0, body_bytes, lsn };
        let end = state.buffer.len() + bytes as usize;
        let more = end.max(BUFFER_BYTES) - state.buffer.len();
        state.buffer.reserve_exact(more);
        state.buffer.extend_from_slice(&header.encode(self.shared.database, pieces));
        for piece in pieces {
            state.buffer.extend_from_slice(piece);
        }
        state.buffer.resize(end, 0);
        state.appended.0 += u64::from(bytes);
        let mark = state.appended;
        if state.buffer.len() >= BUFFER_BYTES {
            self.write(&mut state)?;
        }
        drop(state);
        self.count(kind, bytes);
        // Not left to the log thread: that may be in a user's callback, which may wait for this thread.
        if mark.0.saturating_sub(self.synced.load(SeqCst)) >= UNSYNCED_BYTES_MAX {
            self.sync_usable(mark)?;
        }
        Ok(Appended { lsn, mark })
    }

    fn count(&self, kind: BulkKind, bytes: u32) {
        let stats = &self.shared.stats;
        add(&stats.bulk_records, 1);
        add(&stats.bulk_bytes, bytes.into());
        match kind {
            BulkKind::InternalNode | BulkKind::LeafNode => add(&stats.node_bytes, bytes.into()),
            BulkKind::LeafDelta => add(&stats.leaf_delta_bytes, bytes.into()),
            BulkKind::Chunk | BulkKind::ValueChunk => add(&stats.chunk_bytes, bytes.into()),
            BulkKind::MovedValue => add(&stats.moved_value_bytes, bytes.into()),
            BulkKind::Checkpoint | BulkKind::MemtableRun => {}
        }
    }

    /// Leaves the open segment.
    fn continue_in(&self, next: NextSegment, state: &mut State) -> Result<(), LogError> {
        let NextSegment { segment: next, durable } = next;
        self.write(state)?;
        // The next sync seals the segment that is left, even if nothing was written to it since the last one.
        state.note_unsynced();
        self.open_segment.store(next.number.into(), SeqCst);
        next.hand_out(Stream::Bulk, self.shared.epoch, Csn::ZERO);
        let Shared { database, epoch, .. } = *self.shared;
        let header = GroupHeader::bulk_start(database, epoch, next.number, durable);
        state.written = SEGMENT_DATA_START;
        state.buffer.extend_from_slice(&header.encode(&[]));
        state.segment = Some(next);
        state.is_left = false;
        Ok(())
    }

    /// Writes the buffer. A failure poisons the log: the buffered records have LSNs already.
    fn write(&self, state: &mut State) -> Result<(), LogError> {
        let Some(segment) = state.segment.clone().filter(|_| !state.buffer.is_empty()) else {
            return Ok(());
        };
        self.shared.poison.check()?;
        let file = self.segments.file(&segment);
        let result = file.and_then(|file| file.write_at(&state.buffer, state.written.into()));
        result.map_err(|error| self.shared.fail("a bulk write", Some((&segment.path, error))))?;
        add(&self.shared.stats.bulk_written_bytes, state.buffer.len() as u64);
        state.written = state.append_at();
        state.buffer.clear();
        state.buffer.shrink_to(2 * BUFFER_BYTES);
        segment.set_used(state.written);
        state.note_unsynced();
        Ok(())
    }

    /// [`BulkStream::sync`], unless the log takes no more commits.
    fn sync_usable(&self, mark: BulkPosition) -> Result<(), LogError> {
        self.sync(mark, || self.shared.check_usable())
    }

    /// Makes durable everything up to position `mark`, and all other bytes appended by then. A call that finds `mark`
    /// synced once it has the lock does nothing. `check` runs while the stream is locked.
    fn sync(&self, mark: BulkPosition, check: impl Fn() -> Result<(), LogError>) -> Result<(), LogError> {
        let _syncing = self.syncing.lock();
        let (unsynced, reached) = {
            let mut state = self.state.lock();
            check()?;
            if self.is_synced(mark) {
                return Ok(());
            }
            self.write(&mut state)?;
            (std::mem::take(&mut state.unsynced), state.appended)
        };
        for segment in unsynced {
            add(&self.shared.stats.bulk_syncs, 1);
            let result = self.segments.file(&segment).and_then(|file| file.sync_data());
            result.map_err(|error| self.shared.fail("a bulk sync", Some((&segment.path, error))))?;
            let state = self.state.lock();
            let is_open = state.segment.as_ref().is_some_and(|open| open.number == segment.number);
            // It may have been written to, and left, since it was taken from the list.
            if !is_open && !state.unsynced.iter().any(|other| other.number == segment.number) {
                self.segments.seal(&segment);
            }
        }
        self.shared.poison.check()?;
        self.synced.fetch_max(reached.0, SeqCst);
        Ok(())
    }

    fn is_synced(&self, mark: BulkPosition) -> bool {
        self.synced.load(SeqCst) >= mark.0
    }

    /// Frames that are reserved from now on are written only after this stream was synced up to `mark`.
    pub fn require(&self, mark: BulkPosition) {
        self.required.fetch_max(mark.0, SeqCst);
    }

    /// Whether [`BulkStream::sync_required`] has anything to sync.
    pub fn needs_sync(&self) -> bool {
        !self.is_synced(BulkPosition(self.required.load(SeqCst)))
    }

    /// INV-LOG-16. The thread that writes the commit stream calls it after it took groups and before it writes them. A
    /// committer raises `required` before it fills its frame, and this thread saw the groups filled, so it sees the
    /// positions of all their frames. All later commits wait for this sync: INV-LOG-17 bounds how many bytes it writes.
    pub fn sync_required(&self) -> Result<(), LogError> {
        let required = BulkPosition(self.required.load(SeqCst));
        if self.is_synced(required) {
            return Ok(());
        }
        // Not `check_usable`: a closing log still writes.
        self.sync(required, || self.shared.poison.check())
    }

    /// Copies `lsn..lsn + len` from the bulk buffer, if it is all there.
    pub fn read_buffer(&self, segment: &Segment, lsn: Lsn, len: u32) -> Option<Vec<u8>> {
        // Nothing of a sealed segment is in the buffer. Most reads are of those, and need not wait for an appending
        // thread.
        if segment.state() == SEALED || self.open_segment.load(SeqCst) != u64::from(segment.number) {
            return None;
        }
        let state = self.state_of(lsn.segment())?;
        let at = lsn.offset().checked_sub(state.written)? as usize;
        state.buffer.get(at..at + len as usize).map(<[u8]>::to_vec)
    }

    fn state_of(&self, segment: u32) -> Option<MutexGuard<'_, State>> {
        let state = self.state.lock();
        let same = state.segment.as_ref().is_some_and(|open| open.number == segment);
        same.then_some(state)
    }
}

/// Records that live longer or shorter than the others of the bulk stream. Segments of their own become dead sooner, or stay live as
/// wholes, and less of them has to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Values that were moved have survived some time already, and live longer than what is new.
    MovedValues,
    /// Those that were moved more than once longer still.
    MovedAgain,
    /// A leaf delta record lives until the next one of its leaf.
    LeafDeltas,
    /// Nodes, where there are many values beside them: a node lives until it is written again, whatever becomes of those.
    Nodes,
}

impl Apart {
    pub(crate) const COUNT: usize = 4;
}

/// A record of the bulk stream, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkRecord {
    /// The kind of the body.
    pub kind: BulkKind,
    /// The body.
    pub body: Vec<u8>,
}

/// So many bytes of chunks are many.
const MANY_CHUNK_BYTES: u64 = 64 << 20;

/// How many bytes the first read of a record takes: most nodes fit.
pub(crate) const READ_AHEAD_BYTES: u32 = 8 * 1024;

impl Log {
    /// Appends a record, its body given in pieces, and returns its LSN. The record stays in memory until some
    /// hundred kilobytes are buffered, and is durable after [`Log::sync_bulk`]. If 4 MiB are not durable by now the call syncs
    /// them.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], [`LogError::NoSpace`], [`LogError::Io`]: nothing was appended. [`LogError::Poisoned`],
    /// [`LogError::Closed`]: reopen.
    pub fn append_bulk(&self, kind: BulkKind, pieces: &[&[u8]]) -> Result<Lsn, LogError> {
        self.append_record(kind, pieces, true, |_| ()).map(|appended| appended.lsn)
    }

    /// The same, but takes nothing of the files that the log keeps for checkpoints on a full disk: it fails before.
    ///
    /// # Errors
    /// As [`Log::append_bulk`].
    pub fn append_bulk_beside_reserve(&self, kind: BulkKind, pieces: &[&[u8]]) -> Result<Lsn, LogError> {
        self.append_record(kind, pieces, false, |_| ()).map(|appended| appended.lsn)
    }

    /// [`Log::append_bulk`]. Calls `on_append` with the record's LSN while its segment cannot be freed yet.
    pub(crate) fn append_record(
        &self,
        kind: BulkKind,
        pieces: &[&[u8]],
        reserve: bool,
        on_append: impl FnOnce(Lsn),
    ) -> Result<Appended, LogError> {
        self.bulk.append(kind, pieces, reserve, on_append, |wanted| self.next_for_bulk(wanted))
    }

    /// [`Log::append_bulk_beside_reserve`], to segments that hold nothing else of the bulk stream. One more segment is open for
    /// each sort of them.
    ///
    /// # Errors
    /// As [`Log::append_bulk`].
    pub fn append_bulk_apart(&self, apart: Apart, kind: BulkKind, pieces: &[&[u8]]) -> Result<Lsn, LogError> {
        let stream = &self.apart[apart as usize];
        let appended = stream.append(kind, pieces, false, |_| (), |wanted| self.next_for_bulk(wanted))?;
        Ok(appended.lsn)
    }

    /// The append points.
    pub(crate) fn bulk_streams(&self) -> impl Iterator<Item = &BulkStream> {
        std::iter::once(&*self.bulk).chain(&self.apart)
    }

    fn next_for_bulk(&self, wanted: &NextWanted) -> Result<NextSegment, LogError> {
        let durable = self.stream.durable_csn();
        Ok(NextSegment { segment: self.stream.segment_for_bulk(wanted, durable)?, durable })
    }

    /// Bytes that an append point still has in its buffer.
    pub(crate) fn read_bulk_buffer(&self, segment: &Segment, lsn: Lsn, len: u32) -> Option<Vec<u8>> {
        self.bulk_streams().find_map(|stream| stream.read_buffer(segment, lsn, len))
    }

    /// Whether many bytes of chunks, and more than of nodes, were appended since the log was opened. A small database would notice
    /// one more open segment.
    pub fn has_many_chunks(&self) -> bool {
        let chunk_bytes = self.shared.stats.chunk_bytes.load(Relaxed);
        chunk_bytes > MANY_CHUNK_BYTES && chunk_bytes > self.node_record_bytes()
    }

    /// The records of nodes and of leaves' changes in [`LogStats`](crate::LogStats) alone.
    pub fn node_record_bytes(&self) -> u64 {
        let stats = &self.shared.stats;
        stats.node_bytes.load(Relaxed) + stats.leaf_delta_bytes.load(Relaxed)
    }

    /// Returns when everything appended before is durable.
    ///
    /// # Errors
    /// [`LogError::Poisoned`]: whether it is durable stays unknown.
    pub fn sync_bulk(&self) -> Result<(), LogError> {
        for stream in self.bulk_streams() {
            let appended = stream.state.lock().appended;
            stream.sync_usable(appended)?;
        }
        Ok(())
    }

    /// Returns when everything up to position `mark` is durable; at once if it is.
    ///
    /// # Errors
    /// As [`Log::sync_bulk`].
    pub fn sync_bulk_to(&self, mark: BulkPosition) -> Result<(), LogError> {
        self.bulk.sync_usable(mark)
    }

    /// Reads and verifies the record that begins at `lsn`.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if there is no such record or no such segment.
    pub fn read_bulk(&self, lsn: Lsn) -> Result<BulkRecord, LogError> {
        let segment = self.segments.segment_of(lsn)?;
        let room = segment.room(lsn.offset());
        let first = match self.read_bulk_buffer(&segment, lsn, BULK_HEADER_BYTES) {
            Some(header) => header,
            None => self.segments.read(&segment, lsn.offset(), READ_AHEAD_BYTES.min(room))?,
        };
        let rest = |from: Lsn, len| self.read_bytes(from, len);
        read_record(self.bulk.shared.database, &segment.path, lsn, room, first, rest)
    }
}

/// Verifies the record at `lsn` that begins with the bytes `first`, and reads what they lack of it.
pub(crate) fn read_record(
    database: DatabaseId,
    path: &Path,
    lsn: Lsn,
    room: u32,
    first: Vec<u8>,
    rest: impl FnOnce(Lsn, u32) -> Result<Vec<u8>, LogError>,
) -> Result<BulkRecord, LogError> {
    let damaged = |what: String| LogError::damaged(path, lsn.offset().into(), None, what);
    let mut bytes = first;
    let header = BulkHeader::decode(&bytes, lsn).map_err(|error| damaged(error.to_string()))?;
    if header.body_bytes > room.saturating_sub(BULK_HEADER_BYTES) {
        return Err(damaged("the record is longer than its segment".into()));
    }
    let whole = BULK_HEADER_BYTES + header.body_bytes;
    let have = bytes.len() as u32;
    if have < whole {
        bytes.extend(rest(lsn.advance(have), whole - have)?);
    }
    bytes.truncate(whole as usize);
    let (head, body) = bytes.split_at(BULK_HEADER_BYTES as usize);
    header.check(database, head, body).map_err(|error| damaged(error.to_string()))?;
    bytes.drain(..BULK_HEADER_BYTES as usize);
    Ok(BulkRecord { kind: header.kind, body: bytes })
}

const _: () = assert!(BULK_START_BYTES.is_multiple_of(crate::format::GROUP_ALIGN));
