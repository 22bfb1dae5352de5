//! Begins an epoch: a new segment whose first group names the epoch before, and where that ended.

use super::{EpochSpan, Opened};
use crate::error::LogError;
use crate::format::{
    EpochStart, GROUP_HEADER_BYTES, GroupFormat, GroupHeader, GroupKind, SEGMENT_DATA_START, align8,
};
use crate::options::LogOptions;
use crate::segments::{Content, From, Segment, Segments, Stream, Wanted};
use crate::staging::StagingFile;
use crate::stats::Counters;
use crate::stream::entries::FoundEntries;
use crate::stream::groups::AppendPoint;
use crate::stream::watermarks::{ReplayIndex, Tip};
use fulgurite_env::Dir;
use fulgurite_types::{DatabaseId, Lsn};
use std::sync::Arc;

/// An epoch whose start is durable, and from which a log is made.
pub(crate) struct Begun {
    pub segments: Segments,
    segment: Arc<Segment>,
    start: EpochStart,
    entries: FoundEntries,
    append_at: u32,
}

/// Begins `start.epoch` in segment `number`, made from a file of the `reserve` if there is one. Returns after the start
/// is durable (INV-LOG-8).
pub(crate) fn begin_epoch(
    dir: Arc<dyn Dir>,
    database: DatabaseId,
    options: &LogOptions,
    number: u32,
    reserve: Vec<String>,
    start: &EpochStart,
    entries: FoundEntries,
) -> Result<Begun, LogError> {
    let segments = Segments::new(dir, database, options.clone(), number, reserve);
    let wanted = Wanted { taken: 0, bytes_min: 0, from: From::WholeReserve, content: Content::Zeros };
    let made = segments.make_unshared(&mut segments.maker(), wanted, &Counters::default());
    let segment = made?;
    segments.set_epoch_start(segment.number);
    let first_csn = start.previous_csn.next();
    segment.hand_out(Stream::Commit, start.epoch, first_csn);
    let payload = start.encode();
    let header = GroupHeader {
        format: GroupFormat::Replicable,
        kind: GroupKind::EpochStart,
        database,
        epoch: start.epoch,
        segment: segment.number,
        offset: SEGMENT_DATA_START,
        payload_bytes: payload.len() as u32,
        first_csn,
        frames: 0,
        next_segment: 0,
        durable: start.previous_csn,
        entry: entries.last,
        agreed: entries.agreed,
    };
    let mut bytes = header.encode(&payload).to_vec();
    bytes.extend_from_slice(&payload);
    bytes.resize(align8(GROUP_HEADER_BYTES + payload.len() as u32) as usize, 0);
    let written = segments.file(&segment).and_then(|file| {
        file.write_at(&bytes, SEGMENT_DATA_START.into())?;
        file.sync_data()
    });
    written.map_err(|source| LogError::io("begin an epoch in", &segment.path, source))?;
    let append_at = SEGMENT_DATA_START + bytes.len() as u32;
    segment.set_used(append_at);
    Ok(Begun { segments, segment, start: *start, entries, append_at })
}

impl Begun {
    /// Adds the existing segments to the table, and frees those of epochs that this one passes over.
    pub fn take_over(&self, segments: Vec<Arc<Segment>>, passed_over: &[u32]) {
        for segment in segments {
            self.segments.add(segment);
        }
        for &number in passed_over {
            if let Err(error) = self.segments.free(number, false) {
                // The next opening frees it.
                tracing::debug!(%error, "the segment of an epoch without commits could not be given back");
            }
        }
    }

    /// The log that appends to this epoch. `spans` are the epochs before, `index` is recovery's, `staging` is bound to this opening.
    pub fn into_opened(
        self,
        mut spans: Vec<EpochSpan>,
        index: Option<ReplayIndex>,
        staging: Option<StagingFile>,
    ) -> Opened {
        let EpochStart { epoch, previous_csn, previous_end, .. } = self.start;
        let last = self.entries.last;
        let begin = Lsn::new(self.segment.number, SEGMENT_DATA_START);
        let tip = Tip { csn: previous_csn, lsn: Lsn::new(self.segment.number, self.append_at) };
        spans.push(EpochSpan { epoch, start_segment: self.segment.number, end: None });
        let mut index = index.unwrap_or_else(|| ReplayIndex::new(tip));
        index.cut(previous_csn, previous_end);
        index.mark();
        index.group(previous_csn.next(), begin, self.append_at - SEGMENT_DATA_START, last.index);
        index.set_tip(tip, last);
        let at = AppendPoint {
            epoch,
            segment: self.segment,
            offset: self.append_at,
            next_csn: previous_csn.next(),
        };
        Opened {
            entries: self.entries,
            segments: self.segments,
            at,
            spans,
            index,
            staging,
            staged_tail: None,
        }
    }
}
