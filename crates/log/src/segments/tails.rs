//! The zeros at the ends of sealed segments: on a full disk their space is given back.
//!
//! A segment is filled with zeros when it is made, so that no write to it has to find space. A process that is killed
//! leaves the segments to which it appended as they are, with a few kilobytes of data and a megabyte of zeros; some such
//! lives hold all the space that the next one needs to delete anything.
//!
//! - INV-LOG-19 *(no byte changes)*: space is given back only for zeros after the last byte of a segment that is not
//!   zero, and only once the log appends no more to the segment. A hole reads as zeros. So whatever a crash leaves of it,
//!   every byte of the segment reads as before.
//! - INV-LOG-18 stays: the segment of an epoch without commits keeps its space, because it may become a file
//!   of the reserve; and the file of a freed segment enters the reserve only after all its space is allocated again, and
//!   synced, so that an opening on a full disk can write to it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite_env::{File, OpenOptions};
use fulgurite_types::Csn;

use super::{SEALED, Segment, Segments, Stream};

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
        let from = zeros_from(&*file, segment.bytes.into())?;
        if file.allocated_bytes()? < from + LOOK_BYTES {
            return Ok(0);
        }
        file.punch_hole_from(from)?;
        Ok(u64::from(segment.bytes) - from)
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
            if file.allocated_bytes()? < bytes {
                let from = zeros_from(&*file, bytes)?;
                file.write_at(&vec![0; usize::try_from(bytes - from).unwrap_or(0)], from)?;
                file.sync_data()?;
            }
            Ok(())
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
