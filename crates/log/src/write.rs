//! What a leader does: takes the filled groups, stamps them, writes, syncs, raises `durable`, tells.

use crate::core::{Core, GROUP_BUFFER_BYTES};
use crate::error::LogError;
use crate::flush::Leadership;
use crate::format::{GROUP_HEADER_BYTES, GroupHeader, GroupKind};
use crate::segment::Segment;
use crate::slot::Group;
use crate::stats::add;
use fulgurite_base::{Csn, Lsn};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long a leader spins for a place that is being filled before it takes what is there.
const FILL_SPINS: u32 = 200;

const PADDING: [u8; 8] = [0; 8];

impl Core {
    /// Writes and syncs what is filled. False if there was nothing.
    pub fn flush(&self, leadership: &Leadership<'_>) -> Result<bool, LogError> {
        if self.ended.load(Ordering::Acquire) {
            return Err(LogError::Closed);
        }
        let batch = self.take_batch()?;
        let mut runs = batch.chunk_by(|a, b| a.segment.number == b.segment.number).peekable();
        if let Some(first) = runs.peek()
            && let Some((segment, offset)) = &first[0].ends
        {
            let end = self.segment_end(&first[0], segment, *offset);
            self.write_and_sync(segment, &[IoSlice::new(&end)], *offset)?;
            self.store.seal(segment);
        }
        while let Some(run) = runs.next() {
            self.flush_run(run, runs.peek().map(|next| &next[0]), leadership)?;
        }
        let count = batch.len();
        drop(batch);
        self.release(count);
        Ok(count > 0)
    }

    /// Closes the open group and takes all that is filled; waits for at least one group, if there are any.
    fn take_batch(&self) -> Result<Vec<Group>, LogError> {
        let mut slot = self.slot();
        slot.close_open();
        let mut spins = 0;
        loop {
            self.poison.check()?;
            let (count, unfilled) = slot.filled();
            let Some(unfilled) = unfilled else {
                return Ok(slot.take(count));
            };
            if count > 0 && spins >= FILL_SPINS {
                return Ok(slot.take(count));
            }
            drop(slot);
            add(&self.stats.fill_waits, 1);
            while !unfilled.is_filled() && !unfilled.is_poisoned() {
                spins += 1;
                if spins < FILL_SPINS {
                    std::hint::spin_loop();
                } else if count > 0 {
                    break;
                } else {
                    std::thread::yield_now();
                }
            }
            slot = self.slot();
        }
    }

    /// Writes the groups of one segment, and its end if `next` left it, syncs it and raises `durable`: INV-LOG-2, a
    /// segment is synced before a frame of the next one counts.
    fn flush_run(
        &self,
        run: &[Group],
        next: Option<&Group>,
        leadership: &Leadership<'_>,
    ) -> Result<(), LogError> {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let hint = self.durable_csn();
        for group in run {
            self.stamp(group, hint);
        }
        let end = next.and_then(|next| {
            let (segment, offset) = next.ends.as_ref()?;
            Some(self.segment_end(next, segment, *offset))
        });
        let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(run.len() + 1);
        for group in run {
            let len = (group.end().0 - group.start().0) as usize;
            // SAFETY: the group is closed and filled, this thread leads, and the stamps are done.
            pieces.push(IoSlice::new(unsafe { group.buffer.read(0, len) }));
        }
        pieces.extend(end.as_ref().map(|end| IoSlice::new(end)));
        self.write(&first.segment, &pieces, first.offset)?;
        self.marks.written.store(last.end().0, Ordering::Release);
        self.sync(&first.segment)?;
        self.raise_durable(run, hint);
        leadership.raised.set(true);
        if end.is_some() {
            self.store.seal(&first.segment);
        }
        // A hint raises nothing.
        let durable = self.durable_csn();
        let observer = if durable > hint { self.observer.read().clone() } else { None };
        if let Some(observer) = observer {
            observer(durable);
        }
        Ok(())
    }

    /// Writes header and padding into a group that is closed and filled.
    fn stamp(&self, group: &Group, durable: Csn) {
        let len = group.len as usize;
        let padding = (group.end().0 - group.start().0) as usize - len;
        let header_bytes = GROUP_HEADER_BYTES as usize;
        // SAFETY: as in `flush_run`; readers of places never touch the header or what lies behind the end.
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

    /// The end record of `segment` at `offset`, which `next` left for its own segment.
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

    fn write_and_sync(&self, segment: &Segment, pieces: &[IoSlice<'_>], offset: u32) -> Result<(), LogError> {
        self.write(segment, pieces, offset)?;
        self.sync(segment)
    }

    fn write(&self, segment: &Segment, pieces: &[IoSlice<'_>], offset: u32) -> Result<(), LogError> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(
            offset as usize + bytes <= segment.bytes as usize,
            "INV-LOG-5: nothing is written behind a segment's end"
        );
        let result = self.timed(&self.stats.write_ns, || {
            let file = self.store.file(segment)?;
            match pieces {
                [piece] => file.write_at(piece, offset.into()),
                _ => file.write_vectored_at(pieces, offset.into()),
            }
        });
        add(&self.stats.writes, 1);
        add(&self.stats.written_bytes, bytes as u64);
        segment.set_used(offset + bytes as u32);
        result.map_err(|error| self.poison.set("a write", Some((&segment.path, error))))
    }

    fn sync(&self, segment: &Segment) -> Result<(), LogError> {
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
        add(counter, end.saturating_sub(start));
        self.marks.busy_ns.store(end, Ordering::Relaxed);
        result
    }

    /// INV-LOG-1: only after the sync that began after the write had completed.
    fn raise_durable(&self, run: &[Group], hint: Csn) {
        let last = &run[run.len() - 1];
        let (csn, lsn): (Csn, Lsn) = (last.last_csn(), last.end());
        let mut index = self.index.lock();
        for group in run {
            if group.ends.is_some() {
                index.mark();
            }
            index.group(group.first_csn, group.start(), group.len);
        }
        index.set_tip(csn, lsn);
        self.marks.durable.store(lsn.0, Ordering::Release);
        self.marks.durable_csn.store(csn.0, Ordering::Release);
        self.marks.hinted_csn.store(hint.0, Ordering::Relaxed);
        drop(index);
        let moved = run.iter().any(|group| group.ends.is_some());
        if moved
            || self.signal.resting.load(Ordering::Relaxed)
                && self.signal.resting.swap(false, Ordering::SeqCst)
        {
            self.wake();
        }
        let hints = run.iter().filter(|group| group.kind == GroupKind::Hint).count();
        add(&self.stats.groups, run.len() as u64);
        add(&self.stats.hints, hints as u64);
    }

    /// Gives the buffers of the first `count` groups back.
    fn release(&self, count: usize) {
        let mut slot = self.slot();
        for _ in 0..count {
            let buffer: Arc<_> = slot.release();
            slot.recycle(buffer, GROUP_BUFFER_BYTES);
        }
    }
}
