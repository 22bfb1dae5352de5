//! The ends of sealed segments that hold nothing: on a full disk their space is given back.
//!
//! A segment has all its space when it is made, so that no write to it has to find any. A process that is killed
//! leaves the segments to which it appended as they are, with a few kilobytes of data and a megabyte of zeros; some such
//! lives hold all the space that the next one needs to delete anything.
//!
//! - INV-LOG-19 *(no byte of a group or record changes)*: space is given back only once the log appends no more to the
//!   segment. It is that of all bytes after the last group or record: what follows may be zeros, or what a recycled file
//!   held. In a segment to which this life appended records it knows where it stopped. Else the end of the last record is
//!   looked for from the back, and that of the last group from the front through the whole segment, so that damage
//!   in the middle hides nothing; if a group or a record follows that is damaged, or seems to, or if there is damage before the last
//!   group, only zeros give back their space. A hole reads as zeros. So whatever a crash leaves of it, every group and
//!   record reads as before.
//! - INV-LOG-18 stays: the segment of an epoch without commits keeps its space, because it may become a file
//!   of the reserve; and the file of a freed segment enters the reserve only after all its space is allocated again, and
//!   synced, so that an opening on a full disk can write to it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite_env::{File, OpenOptions};
use fulgurite_types::{Csn, Lsn};

use super::make::take_space;
use super::{SEALED, Segment, Segments, Stream};
use crate::format::{
    BULK_HEADER_BYTES, BULK_START_BYTES, SEGMENT_DATA_START, bulk_record_bytes, check_record, last_header,
    looks_damaged,
};
use crate::scan::end_of_groups;

/// A hole begins at a multiple of this.
const BLOCK: u64 = 4096;
/// How much of a segment is looked through at once, and the least that is given back.
const LOOK_BYTES: u64 = 64 * 1024;

impl Segments {
    /// Gives back the space of the zeros at the ends of sealed segments, once for each segment. True if there was any.
    pub fn give_back_tails(&self) -> bool {
        let due = self.segments_with_tails();
        let mut given = 0;
        for segment in due {
            match self.give_back_tail(&segment) {
                Ok(bytes) => given += bytes,
                Err(error) if error.kind() == io::ErrorKind::Unsupported => break,
                // The segment keeps its space.
                Err(error) => {
                    tracing::debug!(path = %segment.path.display(), %error, "giving back zeros failed")
                }
            }
        }
        if given > 0 {
            tracing::info!(path = %self.dir().path().display(), bytes = given,
                "the disk is full: segments gave back the space of the zeros at their ends");
        }
        given > 0
    }

    /// The sealed segments that were not looked at yet. That of an epoch without commits is none of them: the next segment
    /// of its stream begins with the same commit.
    fn segments_with_tails(&self) -> Vec<Arc<Segment>> {
        let mut due = Vec::new();
        let mut next_csn = Csn::ZERO;
        for segment in self.table.lock().values().rev() {
            let first_csn = segment.first_csn();
            let may_hold_something = match segment.stream() {
                Some(Stream::Commit) => {
                    let next_csn = std::mem::replace(&mut next_csn, first_csn);
                    first_csn > Csn::ZERO && first_csn < next_csn
                }
                Some(Stream::Bulk) => true,
                None => false,
            };
            if may_hold_something && segment.state() == SEALED && !segment.tail_given_back.swap(true, Relaxed)
            {
                due.push(Arc::clone(segment));
            }
        }
        due
    }

    fn give_back_tail(&self, segment: &Segment) -> io::Result<u64> {
        let file = self.file(segment)?;
        let from = self.end_of_data(&*file, segment)?;
        if file.allocated_bytes()? < from + LOOK_BYTES {
            return Ok(0);
        }
        segment.set_file_written(false);
        file.punch_hole_from(from)?;
        Ok(u64::from(segment.bytes) - from)
    }

    /// Where the data of a segment ends, up to a block.
    fn end_of_data(&self, file: &dyn File, segment: &Segment) -> io::Result<u64> {
        let bytes = u64::from(segment.bytes);
        let end = match segment.bulk_end() {
            None => {
                let mut whole = vec![0; segment.bytes as usize];
                file.read_exact_at(&mut whole, 0)?;
                end_of_groups(&whole, self.database, segment.number)
            }
            Some(end) if end < segment.bytes => Some(end),
            Some(_) => self.end_of_records(file, segment)?,
        };
        match end {
            Some(end) => Ok(u64::from(end).next_multiple_of(BLOCK).min(bytes)),
            None => zeros_from(file, bytes),
        }
    }

    /// Where the last record of a segment of the bulk stream ends. `None` if something follows that may have been one.
    fn end_of_records(&self, file: &dyn File, segment: &Segment) -> io::Result<Option<u32>> {
        let lsn = |offset| Lsn::new(segment.number, offset);
        let mut end = segment.bytes;
        let mut block = Vec::new();
        let mut last = None;
        while end > SEGMENT_DATA_START && last.is_none() {
            let start = end.saturating_sub(LOOK_BYTES as u32).max(SEGMENT_DATA_START);
            // A header that begins in this piece may end after it.
            block.resize((segment.bytes.min(end + BULK_HEADER_BYTES) - start) as usize, 0);
            file.read_exact_at(&mut block, start.into())?;
            last = last_header(&block, lsn(start)).map(|offset| start + offset);
            end = start;
        }
        let Some(last) = last else {
            return Ok(Some(SEGMENT_DATA_START + BULK_START_BYTES));
        };
        block.resize((segment.bytes - last) as usize, 0);
        file.read_exact_at(&mut block, last.into())?;
        let Ok(header) = check_record(&block, lsn(last), self.database) else { return Ok(None) };
        let end = bulk_record_bytes(header.body_bytes);
        let rest = block.get(end as usize..).unwrap_or_default();
        Ok((!looks_damaged(rest, lsn(last + end), self.database)).then_some(last + end))
    }

    /// Whether all space that a file of the reserve takes is allocated to a freed segment. Where it is not, tries to
    /// allocate it.
    pub fn is_allocated(&self, segment: &Segment) -> bool {
        let bytes = u64::from(self.options.segment_bytes_min);
        if u64::from(segment.bytes) < bytes {
            return false;
        }
        let allocate = || -> io::Result<()> {
            let file = self.with_descriptors(|| self.dir().open(&segment.name(), OpenOptions::Write))?;
            if file.allocated_bytes()? >= bytes {
                return Ok(());
            }
            if !take_space(&*file, bytes)? {
                let from = zeros_from(&*file, bytes)?;
                file.write_at(&vec![0; usize::try_from(bytes - from).unwrap_or(0)], from)?;
            }
            file.sync_data()
        };
        allocate().is_ok()
    }
}

/// Where the zeros begin that end the first `bytes` of a file, up to a block.
fn zeros_from(file: &dyn File, bytes: u64) -> io::Result<u64> {
    let mut block = vec![0; LOOK_BYTES as usize];
    let mut end = bytes;
    while end > 0 {
        let start = end.saturating_sub(LOOK_BYTES);
        let piece = &mut block[..(end - start) as usize];
        file.read_exact_at(piece, start)?;
        if let Some(last) = piece.iter().rposition(|byte| *byte != 0) {
            return Ok((start + last as u64 + 1).next_multiple_of(BLOCK).min(bytes));
        }
        end = start;
    }
    Ok(0)
}
