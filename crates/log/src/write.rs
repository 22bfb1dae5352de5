//! The flush leader's work: it takes the filled groups, stamps, writes and flushes them, and advances `durable`.
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
//! INV-LOG-1 in full: `durable` passes a byte only if its own write was data-synchronous, or a flush of the device
//! began after that write had completed, or the operator asserted that the device's cache survives a power cut. A
//! data-synchronous write may cover its own blocks only. So a durable write that follows an unflushed one is a plain
//! write and a flush.

use crate::core::Core;
use crate::error::LogError;
use crate::format::{GROUP_HEADER_BYTES, GroupHeader, GroupKind};
use crate::groups::Group;
use crate::segment::Segment;
use crate::stats::add;
use fulgurite_env::{AlignedBuf, DIRECT_BYTES, File};
use fulgurite_types::Csn;
use fulgurite_types::sync::{spin_loop, yield_now};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long a leader spins for a range that is being filled before it takes the groups that are filled.
const FILL_SPINS: u32 = if cfg!(feature = "shuttle") { 2 } else { 200 };

const PADDING: [u8; 8] = [0; 8];
const BLOCK: u32 = DIRECT_BYTES as u32;

/// State that only the writing thread touches.
pub(crate) struct Writer {
    /// Whole blocks on their way to the device. The first may begin with the end of the write before.
    staging: AlignedBuf,
    /// Segment and offset where the last direct write ended; `block` holds the block around it, up to that offset.
    tail: (u32, u32),
    block: Box<[u8]>,
    /// The segment written last, until a flush has covered all of it.
    unsynced: Option<Arc<Segment>>,
    /// Whether writes go around the page cache.
    direct: bool,
    /// The segment that refused a direct write: it is written through the page cache.
    refused: Option<u32>,
}

/// Whether a write must be durable when it returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    Now,
    Later,
}

impl Writer {
    pub fn new(direct: bool) -> Writer {
        Writer {
            staging: AlignedBuf::new(0),
            tail: (0, 0),
            block: vec![0; BLOCK as usize].into(),
            unsynced: None,
            direct,
            refused: None,
        }
    }
}

impl Core {
    /// Writes the filled groups, and flushes as far as their members' levels require. False if there was nothing.
    pub fn write_combined(&self, writer: &mut Writer, barrier: bool) -> Result<bool, LogError> {
        self.check_not_ended()?;
        let batch = self.take_batch()?;
        self.sync_required_bulk()?;
        let mut runs = batch.chunk_by(|a, b| a.segment.number == b.segment.number).peekable();
        self.end_left_segment(writer, runs.peek().map(|run| &run[0]))?;
        while let Some(run) = runs.next() {
            let next = runs.peek().map(|next| &next[0]);
            let asked = barrier || !self.options.power_safe_cache || run.iter().any(|group| group.barrier);
            let flush = if asked || next.is_some() { Flush::Now } else { Flush::Later };
            let mark = self.durable_csn();
            self.write_run(writer, run, next, mark, flush)?;
            self.raise_written(run, mark);
            self.raise_durable(u64::MAX);
            if flush == Flush::Now {
                self.raise_synced();
            }
            if next.is_some() {
                self.store.seal(&run[0].segment);
            }
        }
        if batch.is_empty() && barrier && writer.unsynced.is_some() {
            self.sync_written(writer)?;
            self.raise_synced();
            return Ok(true);
        }
        let count = batch.len();
        drop(batch);
        self.release();
        Ok(count > 0)
    }

    /// Writes the filled groups into the page cache, each with a call of its own. False if there was nothing.
    pub fn write_buffered(&self, writer: &mut Writer) -> Result<bool, LogError> {
        self.check_not_ended()?;
        let batch = self.take_batch()?;
        self.sync_required_bulk()?;
        for group in &batch {
            if group.ends.is_some() {
                // INV-LOG-2: the old segment is synced before anything in the next one can count as durable. The lock
                // keeps other syncs out: of two syncs of one file at once, either may get the other's error.
                let _alone = self.syncing.lock();
                self.poison.check()?;
                self.end_left_segment(writer, Some(group))?;
            }
            let (run, mark) = (std::slice::from_ref(group), self.durable_csn());
            self.write_run(writer, run, None, mark, Flush::Later)?;
            self.raise_written(run, mark);
        }
        let count = batch.len();
        drop(batch);
        self.release();
        Ok(count > 0)
    }

    fn check_not_ended(&self) -> Result<(), LogError> {
        self.poison.check()?;
        if self.ended.load(Ordering::Acquire) { Err(LogError::Closed) } else { Ok(()) }
    }

    /// Closes the open group and takes all filled groups; waits for at least one, if there are any. Ranges reserved
    /// meanwhile are left to the next leader.
    fn take_batch(&self) -> Result<Vec<Group>, LogError> {
        self.groups().close_open(&self.ring);
        let mut spins = 0;
        loop {
            self.poison.check()?;
            let mut groups = self.groups();
            let (count, is_more_coming) = groups.filled(&self.ring);
            if !is_more_coming || (count > 0 && spins >= FILL_SPINS) {
                return Ok(groups.take(count));
            }
            drop(groups);
            add(&self.stats.fill_waits, 1);
            spins += 1;
            if spins < FILL_SPINS { spin_loop() } else { yield_now() }
        }
    }

    /// Ends the segment that the stream left before group `first`, if it left one.
    fn end_left_segment(&self, writer: &mut Writer, first: Option<&Group>) -> Result<(), LogError> {
        let Some((first, (segment, offset))) = first.and_then(|first| Some((first, first.ends.as_ref()?)))
        else {
            return Ok(());
        };
        let end = self.segment_end(first, segment, *offset);
        self.write_pieces(writer, segment, &[IoSlice::new(&end)], *offset, Flush::Now)?;
        self.store.seal(segment);
        Ok(())
    }

    /// Writes groups of one segment, and its end record if `next` left it. `mark` is the durable mark of their headers.
    fn write_run(
        &self,
        writer: &mut Writer,
        run: &[Group],
        next: Option<&Group>,
        mark: Csn,
        flush: Flush,
    ) -> Result<(), LogError> {
        let first = &run[0];
        for group in run {
            self.stamp(group, mark);
        }
        let end = next.and_then(|next| {
            let (segment, offset) = next.ends.as_ref()?;
            Some(self.segment_end(next, segment, *offset))
        });
        let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(run.len() + 1);
        for group in run {
            let len = (group.end().0 - group.start().0) as usize;
            // SAFETY: the group is closed and filled, this thread is the leader, and the stamps are done.
            pieces.push(IoSlice::new(unsafe { group.buffer.read(0, len) }));
        }
        pieces.extend(end.as_ref().map(|end| IoSlice::new(end)));
        self.write_pieces(writer, &first.segment, &pieces, first.offset, flush)
    }

    /// Puts header and padding into a closed and filled group.
    fn stamp(&self, group: &Group, durable: Csn) {
        let len = group.len as usize;
        let padding = (group.end().0 - group.start().0) as usize - len;
        let header_bytes = GROUP_HEADER_BYTES as usize;
        // SAFETY: as in `write_run`; readers of reserved ranges never touch the header, or bytes behind the group's
        // end.
        unsafe {
            let payload = group.buffer.read(header_bytes, len - header_bytes);
            let header = self.header(group, group.kind, durable, 0).encode(payload);
            group.buffer.stamp(0, &header);
            group.buffer.stamp(len, &PADDING[..padding]);
        }
    }

    fn header(&self, group: &Group, kind: GroupKind, durable: Csn, next_segment: u32) -> GroupHeader {
        GroupHeader {
            kind,
            database: self.database,
            epoch: self.epoch,
            segment: group.segment.number,
            offset: group.offset,
            payload_bytes: group.len - GROUP_HEADER_BYTES,
            first_csn: group.first_csn,
            frames: group.frames,
            next_segment,
            durable,
        }
    }

    /// The end record of a segment: the stream continues in the segment of `next`, its first group.
    fn segment_end(&self, next: &Group, segment: &Segment, offset: u32) -> [u8; GROUP_HEADER_BYTES as usize] {
        let header = GroupHeader {
            segment: segment.number,
            offset,
            payload_bytes: 0,
            frames: 0,
            ..self.header(next, GroupKind::SegmentEnd, self.durable_csn(), next.segment.number)
        };
        header.encode(&[])
    }

    fn write_pieces(
        &self,
        writer: &mut Writer,
        segment: &Arc<Segment>,
        pieces: &[IoSlice<'_>],
        offset: u32,
        flush: Flush,
    ) -> Result<(), LogError> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let end = offset + bytes as u32;
        assert!(end <= segment.bytes, "INV-LOG-5: no write passes a segment's end");
        let failed = |error| self.poison.set("a write", Some((&segment.path, error)));
        let file = self.store.file(segment).map_err(failed)?;
        let mut flush = flush;
        if !self.write_direct(writer, &*file, segment, pieces, offset, flush).map_err(failed)? {
            let written = self.timed(&self.stats.write_ns, || match pieces {
                [piece] => file.write_at(piece, offset.into()),
                _ => file.write_vectored_at(pieces, offset.into()),
            });
            written.map_err(failed)?;
            writer.unsynced = Some(Arc::clone(segment));
            if writer.direct {
                // INV-LOG-1: only bytes in the device's cache may count as durable without a flush; these are not
                // there.
                flush = Flush::Now;
            }
        }
        add(&self.stats.writes, 1);
        add(&self.stats.written_bytes, bytes as u64);
        segment.set_used(end);
        if flush == Flush::Now { self.sync_written(writer) } else { Ok(()) }
    }

    /// Writes around the page cache. False if the log does not write directly, or the segment refuses it.
    fn write_direct(
        &self,
        writer: &mut Writer,
        file: &dyn File,
        segment: &Arc<Segment>,
        pieces: &[IoSlice<'_>],
        offset: u32,
        flush: Flush,
    ) -> io::Result<bool> {
        if !writer.direct || writer.refused == Some(segment.number) {
            return Ok(false);
        }
        // An unsynced write is in the same file: a segment that the stream leaves is flushed.
        let at_once = flush == Flush::Now && writer.unsynced.is_none();
        let blocks = writer.stage(file, segment.number, pieces, offset)?;
        let counter = if at_once { &self.stats.sync_ns } else { &self.stats.write_ns };
        let from = u64::from(offset - offset % BLOCK);
        match self.timed(counter, || file.write_direct(&writer.staging[..blocks], from, at_once)) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                tracing::warn!(path = %segment.path.display(), %error,
                    "a segment refuses writes around the page cache; it is written through it");
                writer.refused = Some(segment.number);
                return Ok(false);
            }
            written => written?,
        }
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        writer.keep_tail(segment.number, offset + bytes as u32, blocks);
        add(&self.stats.syncs, u64::from(at_once));
        if !at_once {
            writer.unsynced = Some(Arc::clone(segment));
        }
        Ok(true)
    }

    /// Flushes all unflushed writes.
    fn sync_written(&self, writer: &mut Writer) -> Result<(), LogError> {
        match writer.unsynced.take() {
            Some(segment) => self.sync(&segment),
            None => Ok(()),
        }
    }

    pub fn sync(&self, segment: &Segment) -> Result<(), LogError> {
        let result = self.timed(&self.stats.sync_ns, || self.store.file(segment)?.sync_data());
        add(&self.stats.syncs, 1);
        result.map_err(|error| self.poison.set("a sync", Some((&segment.path, error))))
    }

    fn timed(
        &self,
        counter: &std::sync::atomic::AtomicU64,
        call: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let clock = self.env.clock();
        let start = clock.monotonic_ns();
        let result = call();
        let end = clock.monotonic_ns();
        let ns = end.saturating_sub(start);
        add(counter, ns);
        let average = self.watermarks.io_ns.load(Ordering::Relaxed);
        self.watermarks.io_ns.store(average - average / 8 + ns / 8, Ordering::Relaxed);
        self.watermarks.busy_ns.store(end, Ordering::Relaxed);
        result
    }

    /// Releases the groups that were taken, with their buffers.
    fn release(&self) {
        self.groups().release(&self.credit);
    }
}

impl Writer {
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
        if before > 0 && self.tail != (segment, offset) {
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
        self.tail = (segment, end);
    }
}
