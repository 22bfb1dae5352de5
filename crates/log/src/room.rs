//! The room that the streams have for all that is still to be written: free space, and files that the log has already.

use crate::log::Log;
use crate::options::LogOptions;
use crate::segments::OPENING_FILES;
use fulgurite_types::sync::Mutex;
use std::io;
use std::path::Path;

/// How long the log remembers that a segment could not be made although the file system reported enough free space.
const REFUSAL_NS: u64 = 1_000_000_000;

/// Where the streams find room, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRoom {
    /// Free on the disk of the segments, as the file system reports it. That disk may not be the one of the database's
    /// directory.
    pub reported_bytes: u64,
    /// The same; 0 if a segment could not be made for want of space lately: a quota does not show in the report.
    pub free_bytes: u64,
    /// Files of freed segments, to become new ones.
    pub spare_bytes: u64,
    /// The ready segments that the bulk stream may take: all but the first, which is for commits.
    pub ready_bytes: u64,
    /// Files of the reserve that a checkpoint may take.
    pub reserve_bytes: u64,
    /// The rest of the segment to which the bulk stream appends.
    pub open_bytes: u64,
    /// The most bytes that one of the next segments takes.
    pub segment_bytes: u64,
}

impl LogRoom {
    /// What a checkpoint may write, in whole segments of the smallest size.
    pub fn for_checkpoints(&self, options: &LogOptions) -> u64 {
        let whole = self.free_bytes - self.free_bytes % u64::from(options.segment_bytes_min);
        whole.saturating_add(self.spare_bytes + self.ready_bytes + self.reserve_bytes)
    }
}

/// The last segment that could not be made for want of space.
#[derive(Default)]
pub(crate) struct Refusal(Mutex<Option<Refused>>);

#[derive(Clone, Copy)]
struct Refused {
    at_ns: u64,
    /// What the file system reported then.
    free_bytes: u64,
}

impl Refusal {
    pub fn note(&self, at_ns: u64, free_bytes: u64) {
        *self.0.lock() = Some(Refused { at_ns, free_bytes });
    }

    pub fn clear(&self) {
        *self.0.lock() = None;
    }

    /// The free bytes to believe, if the file system reports `free_bytes`: none while a segment could not be made with as
    /// many. After a while, or with more of them, it is tried again.
    fn believe(&self, free_bytes: u64, now_ns: u64) -> u64 {
        let refused = *self.0.lock();
        let is_refused = refused.is_some_and(|refused| {
            free_bytes <= refused.free_bytes && now_ns.saturating_sub(refused.at_ns) < REFUSAL_NS
        });
        if is_refused { 0 } else { free_bytes }
    }
}

impl Log {
    /// The directory of the segments, for messages.
    pub fn path(&self) -> &Path {
        self.segments.dir().path()
    }

    /// Where the streams find room now. Waits for no write, no sync, and no segment that is being made: what those hold
    /// does not count.
    ///
    /// # Errors
    /// The file system does not report its free space.
    pub fn room(&self) -> io::Result<LogRoom> {
        let options = self.options();
        let free_bytes = self.segments.dir().free_bytes()?;
        let supply = self.stream.supply();
        let usable =
            self.segments.reserve_files().saturating_sub(OPENING_FILES.min(options.reserve_segments));
        let next = u64::from(self.segments.wanted_bytes(supply.taken));
        Ok(LogRoom {
            reported_bytes: free_bytes,
            free_bytes: self.stream.refusal.believe(free_bytes, self.shared.now_ns()),
            spare_bytes: self.segments.spare_bytes(),
            ready_bytes: supply.ready_bytes - supply.first_ready_bytes,
            reserve_bytes: usable as u64 * u64::from(options.segment_bytes_min),
            open_bytes: self.bulk.room_unless_busy().into(),
            segment_bytes: next.max(supply.largest_ready_bytes),
        })
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_not_believed_after_a_refusal_until_there_is_more_or_a_while_later() {
        let refusal = Refusal::default();
        assert_eq!(refusal.believe(100, 5), 100);
        refusal.note(5, 100);
        assert_eq!(refusal.believe(100, 6), 0);
        assert_eq!(refusal.believe(101, 6), 101);
        assert_eq!(refusal.believe(100, 5 + REFUSAL_NS), 100);
        refusal.note(7, 100);
        refusal.clear();
        assert_eq!(refusal.believe(100, 8), 100);
    }

    #[test]
    fn room_is_counted_in_whole_segments_of_the_smallest_size() {
        let options = LogOptions::default();
        let min = u64::from(options.segment_bytes_min);
        let room = LogRoom { free_bytes: 3 * min - 1, spare_bytes: 5, ready_bytes: 6, ..LogRoom::default() };
        assert_eq!(room.for_checkpoints(&options), 2 * min + 11);
        let unknown = LogRoom { free_bytes: u64::MAX, spare_bytes: min, ..LogRoom::default() };
        assert_eq!(unknown.for_checkpoints(&options), u64::MAX);
    }
}
