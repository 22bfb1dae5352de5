//! New segments for the groups and for the bulk stream: made by [`Segments`](crate::segments::Segments), added to
//! [`Groups`](super::groups::Groups), or taken from them, all under the segment maker.

use super::CommitStream;
use crate::bulk_stream::NextWanted;
use crate::error::LogError;
use crate::segments::{Content, From, Maker, Segment, Wanted};
use crate::stream::groups::Supply;
use fulgurite_types::Csn;
use std::sync::Arc;

fn for_commits(taken: u32) -> Wanted {
    Wanted { taken, bytes_min: 0, from: From::Disk, content: Content::Written }
}

impl CommitStream {
    /// Makes segments until there is room for `charge`.
    pub(super) fn make_room(&self, charge: u32) -> Result<(), LogError> {
        let mut maker = self.segments.maker();
        loop {
            self.shared.check_usable()?;
            if self.groups.has_room(charge) {
                return Ok(());
            }
            let taken = self.groups.supply().taken;
            let segment = self.make(&mut maker, for_commits(taken))?;
            self.groups.push_ready(segment);
        }
    }

    /// Whether fewer segments are ready than the options ask for.
    pub fn is_short_of_segments(&self) -> bool {
        self.ready_segments() < self.shared.options.ready_segments
    }

    pub fn ready_segments(&self) -> usize {
        self.supply().ready
    }

    pub fn supply(&self) -> Supply {
        self.groups.supply()
    }

    /// Makes a segment, and notes whether the disk had the room that it reports.
    fn make(&self, maker: &mut Maker, wanted: Wanted) -> Result<Arc<Segment>, LogError> {
        let from = wanted.from;
        let made = self.segments.make(maker, wanted, &self.shared);
        if from == From::Disk {
            match maker.refused_with() {
                Some(free_bytes) => self.refusal.note(self.shared.now_ns(), free_bytes),
                None => self.refusal.clear(),
            }
        }
        made
    }

    /// Makes one segment ready, if there are too few.
    pub fn make_ready(&self) -> Result<bool, LogError> {
        if !self.is_short_of_segments() {
            return Ok(false);
        }
        let mut maker = self.segments.maker();
        self.shared.check_usable()?;
        let supply = self.groups.supply();
        if supply.ready >= self.shared.options.ready_segments {
            return Ok(false);
        }
        let segment = self.make(&mut maker, for_commits(supply.taken))?;
        self.groups.push_ready(segment);
        Ok(true)
    }

    /// A segment for the bulk stream, with a number above those that it had. The ready ones are for the commit stream. But on a full disk one of them gives its space to the bulk stream, if the commit stream keeps enough,
    /// before a file of the reserve does.
    pub fn segment_for_bulk(&self, wanted: &NextWanted, durable: Csn) -> Result<Arc<Segment>, LogError> {
        let &NextWanted { bytes_min, reserve } = wanted;
        let mut maker = self.segments.maker();
        let content = Content::BulkStart(self.shared.epoch, durable);
        let mut from = From::Disk;
        let made = loop {
            let taken = self.groups.supply().taken;
            let wanted = Wanted { taken, bytes_min, from, content };
            match self.make(&mut maker, wanted) {
                Err(LogError::NoSpace { .. }) if from == From::Disk && self.give_up_ready(&mut maker) => {}
                Err(LogError::NoSpace { .. }) if from == From::Disk && reserve => from = From::Reserve,
                made => break made?,
            }
        };
        self.groups.count_taken();
        Ok(made)
    }

    /// Makes the file of a ready segment a spare one, if the commit stream keeps enough.
    fn give_up_ready(&self, maker: &mut Maker) -> bool {
        let ready = self.groups.take_ready();
        let is_taken = ready.is_some();
        if let Some(segment) = ready {
            self.segments.give_up(maker, segment);
            self.shared.supplier.wake_asleep();
        }
        is_taken
    }
}
