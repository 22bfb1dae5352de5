//! The walk forward along the chain from the replay point: it checks every group and delivers every frame.

use super::chain::Chain;
use super::inventory::{Found, Inventory};
use super::{RecoveredFrame, RecoverySink, ReplayFrom};
use crate::error::LogError;
use crate::format::{Agreed, ChunkRef, GroupAt, GroupHeader, GroupKind, Records, SEGMENT_DATA_START};
use crate::recovery::EpochSpan;
use crate::stream::entries::FoundEntries;
use crate::stream::watermarks::{ReplayIndex, Tip};
use fulgurite_types::{Csn, EntryId, Lsn};
use std::collections::VecDeque;

/// The result of the walk.
pub(crate) struct Walked {
    /// The end of the last valid group of the newest epoch.
    pub end: Lsn,
    /// The last CSN found.
    pub last_csn: Csn,
    /// The newest durable mark in valid groups of the newest epoch, or the checkpoint's durable CSN if that is newer.
    pub mark: Csn,
    /// The end of the last group that `mark` covers: later groups may be in a cache only.
    pub proven: Lsn,
    /// The walked ranges, in order.
    pub live: Vec<Range>,
    pub frames: u64,
    /// Bytes of groups with commits that the checkpoint does not cover, and how many epochs have such.
    pub uncovered_bytes: u64,
    pub uncovered_epochs: u32,
    /// When the newest commit that the checkpoint covers happened, if it was read.
    pub covered_time_ms: u64,
    pub read_bytes: u64,
    pub index: ReplayIndex,
    /// The bytes of the segment read last: the one that holds `end`.
    pub last_read: Vec<u8>,
    /// The entries of a replicated log.
    pub entries: FoundEntries,
    /// The last entry of each walked epoch.
    pub span_entries: Vec<EntryId>,
    /// Where the log is to be cut, once that was reached.
    pub cut: Option<Cut>,
}

/// Where a replicated log is to be cut.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    /// The last entry that stays, and its end.
    pub entry: EntryId,
    pub tip: Tip,
    /// Its epoch: how many walked ones came before.
    pub nth_span: usize,
}

/// A group with frames that are not known to be agreed: they are delivered once a later group says so.
struct Held {
    span: EpochSpan,
    header: GroupHeader,
    payload: Vec<u8>,
}

/// Bytes of one segment.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub start: Lsn,
    pub end: Lsn,
}

struct Walker<'a> {
    inventory: &'a Inventory,
    from: &'a ReplayFrom,
    sink: &'a mut dyn RecoverySink,
    total_bytes: u64,
    /// The last CSN, once a group was read.
    last: Option<Csn>,
    /// The last commits of groups of the newest epoch that no durable mark covers yet, and the ends of these groups.
    unproven: VecDeque<Tip>,
    /// The last entry, once a group was read.
    last_entry: Option<EntryId>,
    held: VecDeque<Held>,
    out: Walked,
}

pub(super) fn walk(
    inventory: &Inventory,
    chain: &Chain,
    from: &ReplayFrom,
    sink: &mut dyn RecoverySink,
) -> Result<Walked, LogError> {
    let range = inventory.segments.range(from.lsn.segment()..);
    let total_bytes = range.map(|(_, found)| u64::from(*found.header.as_ref().unwrap_or(&0))).sum();
    let mut walker = Walker {
        inventory,
        from,
        sink,
        total_bytes,
        last: None,
        unproven: VecDeque::new(),
        last_entry: None,
        held: VecDeque::new(),
        out: Walked {
            end: from.lsn,
            last_csn: from.csn,
            mark: Csn::ZERO,
            proven: from.lsn,
            live: Vec::new(),
            frames: 0,
            uncovered_bytes: 0,
            uncovered_epochs: 0,
            covered_time_ms: 0,
            read_bytes: 0,
            index: ReplayIndex::new(Tip { csn: from.csn, lsn: from.lsn }),
            last_read: Vec::new(),
            entries: FoundEntries::default(),
            span_entries: Vec::new(),
            cut: None,
        },
    };
    for (nth, span) in chain.spans.iter().enumerate() {
        let start = if nth == 0 { from.lsn } else { Lsn::new(span.start_segment, SEGMENT_DATA_START) };
        walker.span(span, start)?;
        walker.out.entries.last = walker.last_entry.unwrap_or_default();
        walker.out.span_entries.push(walker.out.entries.last);
    }
    walker.pass_over_held()?;
    // What was there before the log was replicated, and what the checkpoint has, is agreed.
    let Walked { entries, last_csn, .. } = &mut walker.out;
    let history = if entries.last.index == 0 { *last_csn } else { from.csn };
    entries.agreed.csn = entries.agreed.csn.max(history);
    entries.agreed = entries.agreed.min(Agreed { index: entries.last.index, csn: *last_csn });
    Ok(walker.out)
}

enum Next {
    Segment(u32),
    End,
}

impl Walker<'_> {
    fn span(&mut self, span: &EpochSpan, start: Lsn) -> Result<(), LogError> {
        let mut buffer = std::mem::take(&mut self.out.last_read);
        let mut position = start;
        self.out.proven = start;
        let uncovered_before = self.out.uncovered_bytes;
        let why = |position: Lsn| format!("epoch {} continues in it at {position}", span.epoch);
        let mut found = self.inventory.named(position.segment(), || why(position))?;
        loop {
            match span.end.filter(|end| end.lsn.segment() == found.number) {
                Some(end) => found.read_between(&mut buffer, position.offset(), end.lsn.offset())?,
                None => found.read(&mut buffer)?,
            }
            self.out.index.mark();
            match self.segment(span, found, &buffer, &mut position)? {
                Next::Segment(number) => {
                    position = Lsn::new(number, SEGMENT_DATA_START);
                    found = self.inventory.named(number, || why(position))?;
                }
                Next::End => break,
            }
            self.out.read_bytes += buffer.len() as u64;
            self.sink.progress(self.out.read_bytes, self.total_bytes);
        }
        self.out.read_bytes += buffer.len() as u64;
        self.out.last_read = buffer;
        self.sink.progress(self.out.read_bytes, self.total_bytes);
        self.out.end = position;
        self.out.uncovered_epochs += u32::from(self.out.uncovered_bytes > uncovered_before);
        self.out.last_csn = self.last.unwrap_or(self.from.csn);
        let Some(Tip { csn, lsn: end }) = span.end else {
            return Ok(());
        };
        if self.out.last_csn < csn {
            let what = format!("epoch {} ends at {end} with commit {csn}", span.epoch);
            return Err(LogError::damaged(
                &found.path,
                end.offset().into(),
                lost(self.out.last_csn, csn),
                what,
            ));
        }
        // Frames after the declared end are dead, although their group lives.
        self.out.index.cut(csn, end);
        self.last = self.last.map(|_| csn);
        Ok(())
    }

    /// Walks one segment from `position`, and leaves that at the epoch's end, or after the segment's end record.
    fn segment(
        &mut self,
        span: &EpochSpan,
        found: &Found,
        bytes: &[u8],
        position: &mut Lsn,
    ) -> Result<Next, LogError> {
        let start = *position;
        let result = loop {
            if span.end.is_some_and(|end| *position == end.lsn) {
                break Next::End;
            }
            let Some((header, payload)) = self.group(span, found, bytes, *position)? else {
                break Next::End;
            };
            self.check_order(found, *position, &header)?;
            self.note_cut(&header, *position);
            self.check_entry(found, &header)?;
            if header.kind == GroupKind::Frames {
                self.deliver_agreed(span, found, &header, payload)?;
            }
            let before = header.entry.index - u64::from(is_numbered(&header));
            let bytes = header.header_bytes() + header.payload_bytes;
            if header.frames > 0 && header.last_csn() > self.from.csn {
                self.out.uncovered_bytes += u64::from(bytes);
            }
            self.out.index.group(header.first_csn, *position, bytes, before);
            *position = Lsn::new(found.number, header.end());
            if is_numbered(&header) && self.from.up_to_entry == Some(header.entry.index) {
                self.cut_at(header.entry, Tip { csn: header.last_csn(), lsn: *position });
            }
            if span.end.is_none() {
                self.prove(&header, *position);
            }
            if header.kind == GroupKind::SegmentEnd {
                if header.next_segment <= found.number {
                    return Err(self.damaged(found, header.offset, "the segment end names an older segment"));
                }
                break Next::Segment(header.next_segment);
            }
        };
        self.out.live.push(Range { start, end: *position });
        Ok(result)
    }

    /// The group at `position`. `None` at the newest epoch's first invalid group; in an older epoch that is damage.
    fn group<'b>(
        &self,
        span: &EpochSpan,
        found: &Found,
        bytes: &'b [u8],
        position: Lsn,
    ) -> Result<Option<(GroupHeader, &'b [u8])>, LogError> {
        let own =
            GroupAt { database: self.inventory.database, segment: found.number, offset: position.offset() };
        let at = bytes.get(position.offset() as usize..).unwrap_or_default();
        let what = match GroupHeader::decode_at(at, own) {
            Ok((header, payload)) if header.epoch == span.epoch => {
                let misplaced = match header.kind {
                    GroupKind::BulkStart => true,
                    GroupKind::EpochStart => position != Lsn::new(span.start_segment, SEGMENT_DATA_START),
                    _ => false,
                };
                let over = span.end.is_some_and(|end| Lsn::new(found.number, header.end()) > end.lsn);
                if misplaced || over {
                    return Err(self.damaged(found, position.offset(), "there is a group where none can be"));
                }
                return Ok(Some((header, payload)));
            }
            Ok((header, _)) => format!("the group is of epoch {}, not of {}", header.epoch, span.epoch),
            Err(error) => format!("there is no valid group: {error}"),
        };
        match span.end {
            None => Ok(None),
            Some(Tip { csn, .. }) => {
                let last = self.last.unwrap_or(self.from.csn);
                let csns = lost(last, csn);
                Err(LogError::damaged(&found.path, position.offset().into(), csns, what))
            }
        }
    }

    /// Checks that CSNs are dense.
    fn check_order(&mut self, found: &Found, position: Lsn, header: &GroupHeader) -> Result<(), LogError> {
        let fits = match self.last {
            Some(last) => header.first_csn == last.next(),
            None => header.first_csn <= self.from.csn.next() && header.first_csn > Csn::ZERO,
        };
        if !fits || header.first_csn.0.checked_add(header.frames.into()).is_none() {
            let last = self.last.unwrap_or(self.from.csn);
            let what = format!("commit {} follows commit {last} here", header.first_csn);
            return Err(LogError::damaged(&found.path, position.offset().into(), None, what));
        }
        self.last = Some(header.last_csn());
        Ok(())
    }

    fn cut_at(&mut self, entry: EntryId, tip: Tip) {
        self.out.cut = Some(Cut { entry, tip, nth_span: self.out.span_entries.len() });
    }

    /// Notes that the log is to be cut before this group, if no group read so far is the entry that stays: it may be the one before the
    /// first, or before the replay point.
    fn note_cut(&mut self, header: &GroupHeader, position: Lsn) {
        let Some(up_to) = self.from.up_to_entry else { return };
        if self.out.cut.is_some() || !is_numbered(header) || header.entry.index != up_to + 1 {
            return;
        }
        let first = (up_to == 0).then(EntryId::default);
        if let Some(entry) = self.last_entry.filter(|last| last.index == up_to).or(first) {
            self.cut_at(entry, Tip { csn: header.first_csn.prev(), lsn: position });
        }
    }

    /// Checks that entries follow each other (INV-REP-1), and notes which is agreed: a header says it, or a checkpoint covers it.
    fn check_entry(&mut self, found: &Found, header: &GroupHeader) -> Result<(), LogError> {
        let own = header.entry;
        let fits = match self.last_entry {
            None => true,
            Some(last) if is_numbered(header) => own.index == last.index + 1 && own.term >= last.term,
            Some(last) => own == last,
        };
        if !fits {
            let last = self.last_entry.unwrap_or_default();
            let what = format!("entry {own} is where entry {last} is the one before");
            return Err(self.damaged(found, header.offset, what));
        }
        self.last_entry = Some(own);
        let entries = &mut self.out.entries;
        entries.agreed = entries.agreed.max(header.agreed);
        if is_numbered(header) {
            entries.pending.push_back((own, header.last_csn()));
            if header.frames > 0 && header.first_csn <= self.from.csn {
                entries.agreed = entries.agreed.max(Agreed { index: own.index, csn: header.last_csn() });
            }
        }
        let agreed = entries.agreed.index;
        while entries.pending.pop_front_if(|(id, _)| id.index <= agreed).is_some() {}
        while let Some(held) = self.held.pop_front_if(|held| held.header.entry.index <= agreed) {
            let found = self.inventory.named(held.header.segment, || "it was just read".into())?;
            self.deliver(&held.span, found, &held.header, &held.payload)?;
        }
        Ok(())
    }

    /// Delivers frames now, or once they are agreed.
    fn deliver_agreed(
        &mut self,
        span: &EpochSpan,
        found: &Found,
        header: &GroupHeader,
        payload: &[u8],
    ) -> Result<(), LogError> {
        if header.entry.index <= self.out.entries.agreed.index {
            return self.deliver(span, found, header, payload);
        }
        self.held.push_back(Held { span: *span, header: *header, payload: payload.to_vec() });
        Ok(())
    }

    fn deliver(
        &mut self,
        span: &EpochSpan,
        found: &Found,
        header: &GroupHeader,
        payload: &[u8],
    ) -> Result<(), LogError> {
        let span_last = span.end.map_or(Csn::MAX, |end| end.csn);
        let last = span_last.min(self.from.up_to.unwrap_or(Csn::MAX));
        let mut expected = header.first_csn;
        for record in Records::new(payload) {
            let record = record.map_err(|error| self.damaged(found, header.offset, error.to_string()))?;
            if record.header.csn != expected {
                let what = format!("commit {} is where {expected} has to be", record.header.csn);
                return Err(self.damaged(found, header.offset, what));
            }
            expected = expected.next();
            if record.header.csn <= self.from.csn {
                self.out.covered_time_ms = record.header.commit_time_ms;
            }
            if record.header.csn > last {
                continue;
            }
            if record.header.csn <= self.from.csn {
                self.pass_over(record.header.csn, record.local);
                continue;
            }
            let csn = record.header.csn;
            let frame = RecoveredFrame {
                header: record.header,
                body: record.body,
                body_lsn: Lsn::new(found.number, header.offset + header.header_bytes() + record.body_at),
                local: record.local,
            };
            self.sink.frame(&frame).map_err(|source| LogError::Sink { csn, source })?;
            self.out.frames += 1;
        }
        if expected != header.last_csn().next() {
            let what = format!("the group promises commits up to {}", header.last_csn());
            return Err(self.damaged(found, header.offset, what));
        }
        Ok(())
    }

    /// Passes over the frames that stay and are not known to be agreed.
    fn pass_over_held(&mut self) -> Result<(), LogError> {
        let last = self.from.up_to_entry.unwrap_or(u64::MAX);
        for Held { span, header, payload } in std::mem::take(&mut self.held) {
            let span_last = span.end.map_or(Csn::MAX, |end| end.csn);
            for record in Records::new(&payload).take_while(|_| header.entry.index <= last) {
                let found = self.inventory.named(header.segment, || "it was just read".into())?;
                let record = record.map_err(|error| self.damaged(found, header.offset, error.to_string()))?;
                if record.header.csn <= span_last {
                    self.pass_over(record.header.csn, record.local);
                }
            }
        }
        Ok(())
    }

    fn pass_over(&mut self, csn: Csn, chunks: Vec<ChunkRef>) {
        if !chunks.is_empty() {
            self.sink.passed_over(csn, chunks);
        }
    }

    /// A durable mark proves every byte up to the end of the group with its CSN. It says nothing about later groups
    /// without frames, the one that carries it among them.
    fn prove(&mut self, header: &GroupHeader, end: Lsn) {
        if header.frames > 0 {
            self.unproven.push_back(Tip { csn: header.last_csn(), lsn: end });
        }
        self.out.mark = self.out.mark.max(header.durable);
        if self.from.epoch == header.epoch {
            self.out.mark = self.out.mark.max(self.from.durable_csn);
        }
        while let Some(tip) = self.unproven.front() {
            if tip.csn > self.out.mark {
                break;
            }
            self.out.proven = tip.lsn;
            self.unproven.pop_front();
        }
    }

    fn damaged(&self, found: &Found, offset: u32, what: impl Into<String>) -> LogError {
        LogError::damaged(&found.path, offset.into(), None, what)
    }
}

/// Whether a group is an entry of a replicated log.
fn is_numbered(header: &GroupHeader) -> bool {
    header.kind.is_entry() && header.entry.index > 0
}

fn lost(last: Csn, to: Csn) -> Option<(Csn, Csn)> {
    (last < to).then(|| (last.next(), to))
}
