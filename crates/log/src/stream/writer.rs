//! Writes and flushes the groups that a leader took and stamped. It knows no watermark.
//!
//! Direct writes (around the page cache) are whole blocks, from a private aligned copy. Groups follow each other
//! without a gap, so a write begins with the block in which the last one ended. Its first bytes repeat that block byte
//! for byte, so a torn write cannot hurt acknowledged commits. One write is in flight at a time, so no block is in
//! two of them at once.
//!
//! A segment may refuse direct writes: the kernel no longer reports the file system's alignment, or `/proc` is gone
//! after a `chroot`. The leader then writes it through the page cache to its end, and syncs after each write, whatever
//! the device's cache keeps. The refused write may have reached the device in part; the leader writes the same bytes
//! again. It tries direct writes anew in the next segment.
//!
//! A data-synchronous write may cover its own blocks only. So a durable write that follows an unflushed one is a plain
//! write and a flush (INV-LOG-1).

use super::groups::Group;
use super::stamp::{self, Known};
use crate::error::LogError;
use crate::segments::{Segment, Segments};
use crate::shared::Shared;
use crate::stats::add;
use fulgurite_env::{AlignedBuf, DIRECT_BYTES, File};
use std::io::{self, IoSlice};
use std::sync::Arc;

const BLOCK: u32 = DIRECT_BYTES as u32;

/// Only the writing thread touches it.
pub(super) struct GroupWriter {
    shared: Arc<Shared>,
    segments: Arc<Segments>,
    /// Whole blocks on their way to the device. The first may begin with the end of the write before.
    staging: AlignedBuf,
    /// Where the last direct write ended; `block` holds the block around it, up to that offset.
    tail: Tail,
    block: Box<[u8]>,
    /// The segment written last, until a flush has covered all of it.
    unsynced: Option<Arc<Segment>>,
    /// Whether writes go around the page cache.
    direct: bool,
    /// The segment that refused a direct write: it is written through the page cache.
    refused: Option<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Tail {
    segment: u32,
    offset: u32,
}

/// Whether a write must be durable when it returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    Now,
    Later,
}

impl GroupWriter {
    pub fn new(shared: Arc<Shared>, segments: Arc<Segments>, direct: bool) -> GroupWriter {
        GroupWriter {
            shared,
            segments,
            staging: AlignedBuf::new(0),
            tail: Tail::default(),
            block: vec![0; BLOCK as usize].into(),
            unsynced: None,
            direct,
            refused: None,
        }
    }

    /// Writes stamped groups of one segment with one call, and the segment's end record if group `next` left it.
    pub fn write(
        &mut self,
        run: &[Group],
        next: Option<&Group>,
        known: Known,
        flush: Flush,
    ) -> Result<(), LogError> {
        let first = &run[0];
        let end =
            next.and_then(|next| Some(stamp::end_record(&self.shared, next, next.left.as_ref()?, known)));
        let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(run.len() + 1);
        pieces.extend(run.iter().map(|group| IoSlice::new(stamp::stamped(group))));
        pieces.extend(end.as_ref().map(|end| IoSlice::new(end)));
        self.write_pieces(&first.segment, &pieces, first.offset, flush)
    }

    /// Ends the segment that the stream left before group `first`, if it left one.
    pub fn end_left_segment(&mut self, first: &Group, known: Known) -> Result<(), LogError> {
        let Some(left) = &first.left else { return Ok(()) };
        let end = stamp::end_record(&self.shared, first, left, known);
        self.write_pieces(&left.segment, &[IoSlice::new(&end)], left.offset, Flush::Now)?;
        self.segments.seal(&left.segment);
        Ok(())
    }

    /// Writes staged groups of one segment, without a flush.
    pub fn write_staged(
        &mut self,
        segment: &Arc<Segment>,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), LogError> {
        self.write_pieces(segment, &[IoSlice::new(bytes)], offset, Flush::Later)
    }

    /// Flushes a segment that was written to its end record.
    pub fn seal(&mut self, segment: &Arc<Segment>) -> Result<(), LogError> {
        self.sync()?;
        self.segments.seal(segment);
        Ok(())
    }

    /// Whether a write was not flushed.
    pub fn is_unsynced(&self) -> bool {
        self.unsynced.is_some()
    }

    /// Flushes all unflushed writes.
    pub fn sync(&mut self) -> Result<(), LogError> {
        match self.unsynced.take() {
            Some(segment) => sync(&self.shared, &self.segments, &segment),
            None => Ok(()),
        }
    }

    fn write_pieces(
        &mut self,
        segment: &Arc<Segment>,
        pieces: &[IoSlice<'_>],
        offset: u32,
        mut flush: Flush,
    ) -> Result<(), LogError> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let end = offset + bytes as u32;
        assert!(end <= segment.bytes, "INV-LOG-5: no write passes a segment's end");
        let file = self.segments.file(segment).map_err(|error| self.failed(segment, error))?;
        let written = self.write_direct(&*file, segment, pieces, offset, flush);
        if !written.map_err(|error| self.failed(segment, error))? {
            let start_ns = self.shared.now_ns();
            let written = match pieces {
                [piece] => file.write_at(piece, offset.into()),
                _ => file.write_vectored_at(pieces, offset.into()),
            };
            self.shared.count_io(start_ns, &self.shared.stats.write_ns);
            written.map_err(|error| self.failed(segment, error))?;
            self.unsynced = Some(Arc::clone(segment));
            if self.direct {
                // INV-LOG-1: only bytes in the device's cache may count as durable without a flush; these are not
                // there.
                flush = Flush::Now;
            }
        }
        add(&self.shared.stats.writes, 1);
        add(&self.shared.stats.written_bytes, bytes as u64);
        segment.set_used(end);
        if flush == Flush::Now { self.sync() } else { Ok(()) }
    }

    fn failed(&self, segment: &Segment, error: io::Error) -> LogError {
        self.shared.poison.set("a write", Some((&segment.path, error)))
    }

    /// Writes around the page cache. False if the log does not write directly, or the segment refuses it.
    fn write_direct(
        &mut self,
        file: &dyn File,
        segment: &Arc<Segment>,
        pieces: &[IoSlice<'_>],
        offset: u32,
        flush: Flush,
    ) -> io::Result<bool> {
        if !self.direct || self.refused == Some(segment.number) {
            return Ok(false);
        }
        // An unsynced write is in the same file: a segment that the stream leaves is flushed.
        let at_once = flush == Flush::Now && self.unsynced.is_none();
        let blocks = self.stage(file, segment.number, pieces, offset)?;
        let stats = &self.shared.stats;
        let from = u64::from(offset - offset % BLOCK);
        let start_ns = self.shared.now_ns();
        let written = file.write_direct(&self.staging[..blocks], from, at_once);
        self.shared.count_io(start_ns, if at_once { &stats.sync_ns } else { &stats.write_ns });
        match written {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                tracing::warn!(path = %segment.path.display(), %error,
                    "a segment refuses writes around the page cache; it is written through it");
                self.refused = Some(segment.number);
                return Ok(false);
            }
            written => written?,
        }
        add(&stats.syncs, u64::from(at_once));
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.keep_tail(segment.number, offset + bytes as u32, blocks);
        if !at_once {
            self.unsynced = Some(Arc::clone(segment));
        }
        Ok(true)
    }

    /// Stages the bytes before `offset` in its block, the pieces, and zeros up to a whole block. Returns the length.
    fn stage(
        &mut self,
        file: &dyn File,
        segment: u32,
        pieces: &[IoSlice<'_>],
        offset: u32,
    ) -> io::Result<usize> {
        let before = (offset % BLOCK) as usize;
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let blocks = (before + bytes).next_multiple_of(DIRECT_BYTES);
        if self.staging.len() < blocks {
            self.staging = AlignedBuf::new(blocks.next_power_of_two());
        }
        if before > 0 && self.tail != (Tail { segment, offset }) {
            file.read_exact_at(&mut self.block[..before], u64::from(offset - before as u32))?;
        }
        self.staging[..before].copy_from_slice(&self.block[..before]);
        let mut at = before;
        for piece in pieces {
            self.staging[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        self.staging[at..blocks].fill(0);
        Ok(blocks)
    }

    /// Keeps the last block of the staged write.
    fn keep_tail(&mut self, segment: u32, end: u32, blocks: usize) {
        let used = (end % BLOCK) as usize;
        let last = blocks - DIRECT_BYTES;
        self.block[..used].copy_from_slice(&self.staging[last..last + used]);
        self.tail = Tail { segment, offset: end };
    }
}

/// Flushes a segment of the commit stream.
pub(super) fn sync(shared: &Shared, segments: &Segments, segment: &Segment) -> Result<(), LogError> {
    let start_ns = shared.now_ns();
    let result = segments.file(segment).and_then(|file| file.sync_data());
    shared.count_io(start_ns, &shared.stats.sync_ns);
    add(&shared.stats.syncs, 1);
    result.map_err(|error| shared.poison.set("a sync", Some((&segment.path, error))))
}
