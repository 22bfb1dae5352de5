//! Staging: groups of the commit stream are copied to a file in memory that survives, and are acknowledged then. They are written to
//! their segments later, many with one write and one sync: that is a *drain*. The idea is Song, Lee and Lee's, *Boosting WiscKey
//! Key-Value Store Using NVDIMM-N* (2022): a buffer in such memory in front of the value log, or two, of which one is written while
//! the other fills up.
//!
//! ```text
//! stage     the flush leader copies the groups that it took to the current buffer, writes them back and fences once
//! publish   their bytes can be read here from now on; only then `written` rises past them
//! raise     `written`, and in persistent memory `durable`; the groups are released
//! drain     writes published pieces to their segments, and syncs; then raises `durable`, if the memory is volatile, and `synced`
//! release   the pieces are gone: their buffer is used again once it has none
//! ```
//!
//! INV-STG-1: a commit counts as staged once its group, and all before it, were written back and fenced here, or are synced in their
//! segments. In persistent memory that is durable; in volatile memory it survives the process alone, and only a sync is.
//!
//! INV-STG-2: bytes of a buffer are overwritten only when no piece is in it, so when all it held is synced in its segments. One thread
//! appends, the holder of the appender's lock. A reader copies under the lock of the pieces; the thread that drains reads pieces
//! that only it releases.
//!
//! INV-STG-3: a valid group in the file is the one of its LSN. Its header names database, epoch, segment and offset,
//! its checksum covers header and payload, and a database gives no segment number twice. A copy of the database may: so an opening clears
//! the buffers once its epoch has begun, and takes groups only from a file that has the id of their epoch. So recovery
//! may take any valid group of the newest epoch, whichever lap of a buffer left it there: one that was synced is in its segment, with
//! the same bytes.
//!
//! INV-STG-4: an epoch that stages names its opening's id in its start, and the file has that id, or had it before an opening that
//! ended before its own epoch began, and staged nothing. So an opening knows what may hold acknowledged commits, and refuses to do
//! without it; and it takes no file for its own that may hold another's.
//!
//! INV-STG-5: of the file only what was checked after it was copied, group by group, reaches a segment or counts at an opening: memory
//! fails, and other programs write to files. Once a page is lost, nothing is staged any more: a fence fails.
//!
//! # Why the leader copies
//! The groups' buffers could be in the file, and filling them the staging copy. But then members are acknowledged before their
//! group closes, so before it has a header: recovery would have to find the end inside an open group, by frames that carry neither
//! LSN nor epoch, and a committer that is suspended between filling and writing back would hold up all after it. A closed group
//! proves itself. The copy costs a few hundred bytes for a commit of a row, which are in the cache.

mod file;
mod summary;

pub use self::file::StagingId;
pub(crate) use self::file::{AtPath, StagingFile};
pub use self::summary::{StagingSummary, inspect_staging};

use crate::error::LogError;
use crate::format::{GROUP_HEADER_BYTES, GroupAt, GroupHeader};
use crate::segments::Segment;
use crate::stream::watermarks::Tip;
use fulgurite_types::sync::{AtomicU64, Mutex, MutexGuard};
use fulgurite_types::{Csn, Epoch, Lsn};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Staged bytes that are contiguous in the file and in a segment.
#[derive(Clone)]
pub(crate) struct Piece {
    pub segment: Arc<Segment>,
    pub offset: u32,
    /// Where they are in the file.
    at: usize,
    pub len: u32,
    buffer: u32,
    /// Whether they end with the segment's end record.
    pub ends_segment: bool,
    /// The last group up to here, and its end.
    pub sequence: u64,
    pub tip: Tip,
}

impl Piece {
    fn start(&self) -> Lsn {
        Lsn::new(self.segment.number, self.offset)
    }

    fn continues(&self, last: &Piece) -> bool {
        !last.ends_segment
            && last.buffer == self.buffer
            && last.at + last.len as usize == self.at
            && last.segment.number == self.segment.number
            && last.offset + last.len == self.offset
    }
}

/// Bytes to stage: a group, or the end record of a segment.
pub(crate) struct ToStage<'a> {
    pub segment: &'a Arc<Segment>,
    pub offset: u32,
    pub bytes: &'a [u8],
    pub ends_segment: bool,
    /// The last group up to the end of these bytes.
    pub sequence: u64,
    pub tip: Tip,
}

struct Pieces {
    /// In log order, and all of them raised: they may be synced.
    ready: VecDeque<Piece>,
    /// Those after them, which can be read.
    fresh: Vec<Piece>,
}

/// Where the next group goes; its holder is the thread that appends.
pub(crate) struct Appender {
    buffer: u32,
    used: u32,
    /// What was stored and not published yet.
    stored: Vec<Piece>,
}

/// The staging of an open log.
pub(crate) struct Staging {
    file: StagingFile,
    appender: Mutex<Appender>,
    pieces: Mutex<Pieces>,
    /// Up to here everything is in its segment.
    synced: AtomicU64,
}

impl Staging {
    /// With nothing staged, everything up to `from` in its segment.
    pub fn new(file: StagingFile, from: Lsn) -> Staging {
        Staging {
            file,
            appender: Mutex::new(Appender { buffer: 0, used: 0, stored: Vec::new() }),
            pieces: Mutex::new(Pieces { ready: VecDeque::new(), fresh: Vec::new() }),
            synced: AtomicU64::new(from.0),
        }
    }

    /// Whether the staged commits survives a power cut.
    pub fn is_persistent(&self) -> bool {
        self.file.is_persistent()
    }

    /// Leaves the file to any opening of the database, which was closed, with all of it in the segments.
    pub fn free(&self) -> Result<(), LogError> {
        self.file.free()
    }

    /// The log has ended: another opening may use the file.
    pub fn end(&self) {
        self.file.release();
    }

    pub fn file_bytes(&self) -> u64 {
        self.file.bytes_total()
    }

    // Staging.

    /// The right to append. It comes before the lock of the writer.
    pub fn appender(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock()
    }

    /// Stores bytes in the current buffer, or in the next one. False if neither has room before something is synced. `filled` is
    /// set if a buffer was left.
    pub fn store(
        &self,
        appender: &mut Appender,
        what: &ToStage<'_>,
        filled: &mut bool,
    ) -> Result<bool, LogError> {
        let len = what.bytes.len() as u32;
        if self.file.header.buffer_bytes - appender.used < len {
            let next = (appender.buffer + 1) % self.file.header.buffers;
            *filled = true;
            if appender.stored.iter().any(|piece| piece.buffer == next) || self.holds(next) {
                return Ok(false);
            }
            (appender.buffer, appender.used) = (next, 0);
        }
        assert!(len <= self.file.header.buffer_bytes, "INV-STG-1: a group fits a buffer");
        let at = self.file.buffer_start(appender.buffer) + appender.used as usize;
        self.file.store(at, what.bytes);
        self.file.write_back(at, what.bytes.len())?;
        appender.used += len;
        appender.stored.push(Piece {
            segment: Arc::clone(what.segment),
            offset: what.offset,
            at,
            len,
            buffer: appender.buffer,
            ends_segment: what.ends_segment,
            sequence: what.sequence,
            tip: what.tip,
        });
        Ok(true)
    }

    /// Fences what was stored, and makes it readable. From then on it is staged (INV-STG-1).
    pub fn publish(&self, appender: &mut Appender) -> Result<(), LogError> {
        self.file.fence()?;
        self.pieces.lock().fresh.append(&mut appender.stored);
        Ok(())
    }

    /// What was published may be synced: `written` has passed it.
    pub fn make_ready(&self) {
        let mut pieces = self.pieces.lock();
        let Pieces { ready, fresh } = &mut *pieces;
        for piece in fresh.drain(..) {
            match ready.back_mut() {
                Some(last) if piece.continues(last) => {
                    last.len += piece.len;
                    (last.ends_segment, last.sequence, last.tip) =
                        (piece.ends_segment, piece.sequence, piece.tip);
                }
                _ => ready.push_back(piece),
            }
        }
    }

    fn holds(&self, buffer: u32) -> bool {
        let pieces = self.pieces.lock();
        pieces.ready.iter().chain(&pieces.fresh).any(|piece| piece.buffer == buffer)
    }

    /// Whether a flush finds room without a wait: half of the buffer, or the next one. False while another thread appends.
    pub fn is_roomy(&self) -> bool {
        let Some(appender) = self.appender.try_lock() else { return false };
        let next = (appender.buffer + 1) % self.file.header.buffers;
        2 * appender.used <= self.file.header.buffer_bytes || !self.holds(next)
    }

    /// Whether anything is staged that is not in its segment.
    pub fn holds_any(&self) -> bool {
        let pieces = self.pieces.lock();
        !pieces.ready.is_empty() || !pieces.fresh.is_empty()
    }

    /// Whether a buffer is full that can be synced: the pieces are in more than one.
    pub fn has_full_buffer(&self) -> bool {
        let pieces = self.pieces.lock();
        let newest = pieces.fresh.last().or(pieces.ready.back()).map(|piece| piece.buffer);
        pieces.ready.front().is_some_and(|first| Some(first.buffer) != newest)
    }

    /// Bytes that are staged and not in their segments.
    pub fn staged_bytes(&self) -> u64 {
        let pieces = self.pieces.lock();
        pieces.ready.iter().chain(&pieces.fresh).map(|piece| u64::from(piece.len)).sum()
    }

    // Draining.

    /// The pieces to drain: all that may be, or those of full buffers.
    pub fn to_drain(&self, full_only: bool) -> Vec<Piece> {
        let pieces = self.pieces.lock();
        let newest = pieces.fresh.last().or(pieces.ready.back()).map(|piece| piece.buffer);
        pieces.ready.iter().take_while(|piece| !full_only || Some(piece.buffer) != newest).cloned().collect()
    }

    /// Copies groups of a piece that the caller, the thread that drains, has not released: those from byte `from` on, `max` bytes of them
    /// or one. The result is checked, for nothing else may reach a segment: memory fails, and other programs write to files.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if they are not what was staged.
    pub fn copy_groups(
        &self,
        piece: &Piece,
        from: u32,
        max: usize,
        copy: &mut Vec<u8>,
    ) -> Result<(), LogError> {
        let at = piece.at + from as usize;
        let rest = self.file.bytes(at, (piece.len - from) as usize);
        let start = piece.offset + from;
        let first = GroupHeader::decode_unchecked(rest).map_or(0, |header| header.payload_bytes as usize);
        let max = max.max(first.saturating_add(GROUP_HEADER_BYTES as usize + 8)).min(rest.len());
        copy.clear();
        copy.extend_from_slice(&rest[..max]);
        let mut whole = 0;
        while whole < copy.len() {
            let database = self.file.header.database;
            let own = GroupAt { database, segment: piece.segment.number, offset: start + whole as u32 };
            let group = GroupHeader::decode_at(&copy[whole..], own).map(|(header, _)| header.end() - start);
            match group {
                Ok(end) if end as usize <= copy.len() => whole = end as usize,
                // The next call takes the one of which only a part fits.
                _ if whole > 0 && copy.len() < rest.len() => break,
                _ => {
                    self.file.check()?;
                    let what =
                        format!("the group at {} is not what was staged", Lsn::new(own.segment, own.offset));
                    return Err(LogError::damaged(self.path(), (at + whole) as u64, None, what));
                }
            }
        }
        copy.truncate(whole);
        self.file.check()
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Forgets pieces that [`Staging::to_drain`] returned: their bytes are synced in their segments.
    pub fn release(&self, synced: &[Piece]) {
        let Some(last) = synced.last() else { return };
        let mut pieces = self.pieces.lock();
        for piece in synced {
            let first = pieces.ready.front_mut().expect("INV-STG-2: one thread drains");
            assert!(first.at == piece.at && first.len >= piece.len, "INV-STG-2: pieces are synced in order");
            if first.len == piece.len {
                pieces.ready.pop_front();
            } else {
                first.at += piece.len as usize;
                first.offset += piece.len;
                first.len -= piece.len;
            }
        }
        self.synced.store(last.tip.lsn.0, Release);
    }

    // Reading.

    /// Copies `lsn..lsn + len`, if it is staged; otherwise it is in its segment, or in a group in memory.
    pub fn read(&self, lsn: Lsn, len: u32) -> Result<Option<Vec<u8>>, LogError> {
        if lsn.0 < self.synced.load(Acquire) {
            return Ok(None);
        }
        let pieces = self.pieces.lock();
        let holds = |piece: &&Piece| {
            piece.start() <= lsn && lsn.0 + u64::from(len) <= piece.start().0 + u64::from(piece.len)
        };
        let nth = pieces.ready.partition_point(|piece| piece.start() <= lsn);
        let ready = nth.checked_sub(1).and_then(|nth| pieces.ready.get(nth)).filter(holds);
        let Some(piece) = ready.or_else(|| pieces.fresh.iter().find(holds)) else { return Ok(None) };
        let at = piece.at + (lsn.0 - piece.start().0) as usize;
        let bytes = self.file.bytes(at, len as usize).to_vec();
        self.file.check()?;
        Ok(Some(bytes))
    }
}

/// What a staging file holds of an epoch, copied from it: recovery sees it in the segments, a read-only log reads from it.
#[derive(Debug, Default)]
pub(crate) struct StagedTail {
    /// By LSN.
    groups: BTreeMap<Lsn, Vec<u8>>,
    /// Of these, and of valid groups behind bytes that are not.
    headers: Vec<GroupHeader>,
    /// What the memory did not deliver: groups may be missing anywhere.
    pub lost: Option<String>,
    /// Whether everything that was stored survives while the memory does: then a group proves all before it.
    is_volatile: bool,
}

impl StagedTail {
    pub fn of(file: &StagingFile, epoch: Epoch) -> StagedTail {
        let groups = file.groups(epoch).into_iter();
        // The copies are checked, should the memory have delivered other bytes this time.
        let copies = groups.map(|group| (group.start, group.bytes.to_vec()));
        let groups = copies.take_while(|(_, bytes)| file.is_group(bytes, epoch)).collect();
        let headers = file.headers(epoch);
        let lost = file.check().err().map(|error| error.to_string());
        StagedTail { groups, headers, lost, is_volatile: !file.is_persistent() }
    }

    /// The newest commit in a group that a walk to `last` has not reached, where that proves that something before it is missing.
    pub fn proven_beyond(&self, last: Csn) -> Option<Csn> {
        let commits = self.headers.iter().filter(|_| self.is_volatile).map(GroupHeader::last_csn);
        commits.max().filter(|newest| *newest > last)
    }

    /// The headers of all valid groups of the epoch, those behind damage included.
    pub fn headers(&self) -> &[GroupHeader] {
        &self.headers
    }

    pub fn groups(&self) -> impl Iterator<Item = (Lsn, &Vec<u8>)> {
        self.groups.iter().map(|(start, bytes)| (*start, bytes))
    }

    /// Where the first group begins.
    pub fn first(&self) -> Option<Lsn> {
        self.groups.keys().next().copied()
    }

    /// Copies `lsn..lsn + len`, if it is inside a group.
    pub fn read(&self, lsn: Lsn, len: u32) -> Option<Vec<u8>> {
        let (start, bytes) = self.groups.range(..=lsn).next_back()?;
        let at = usize::try_from(lsn.0 - start.0).ok()?;
        Some(bytes.get(at..at.checked_add(len as usize)?)?.to_vec())
    }
}
