//! New segments for the groups and for the bulk stream: made by [`Segments`](crate::segments::Segments), added to
//! [`Groups`](super::groups::Groups), or taken from them, all under the segment maker.

use super::CommitStream;
use crate::error::LogError;
use crate::segments::{From, Maker, Segment};
use crate::stream::groups::Supply;
use std::sync::Arc;

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
            let segment = self.make(&mut maker, taken, 0, From::Disk)?;
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

    /// Makes a segment, and notes whether the disk had room.
    fn make(
        &self,
        maker: &mut Maker,
        taken: u32,
        bytes_min: u32,
        from: From,
    ) -> Result<Arc<Segment>, LogError> {
        let made = self.segments.make(maker, taken, bytes_min, from, &self.shared);
        match &made {
            Ok(segment) if segment.of_reserve => {}
            Ok(_) => self.refusal.clear(),
            Err(LogError::NoSpace { .. }) => {
                let free_bytes = self.segments.dir().free_bytes().unwrap_or(u64::MAX);
                self.refusal.note(self.shared.now_ns(), free_bytes);
            }
            Err(_) => {}
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
        let segment = self.make(&mut maker, supply.taken, 0, From::Disk)?;
        self.groups.push_ready(segment);
        Ok(true)
    }

    /// A segment for the bulk stream: a ready one, if the commit stream keeps enough and it is large enough, else a new
    /// one.
    pub fn segment_for_bulk(&self, bytes_min: u32, from: From) -> Result<Arc<Segment>, LogError> {
        let mut maker = self.segments.maker();
        match self.groups.take_ready(bytes_min) {
            Ok(segment) => {
                self.shared.supplier.wake_asleep();
                Ok(segment)
            }
            Err(supply) => {
                let made = self.make(&mut maker, supply.taken, bytes_min, from)?;
                self.groups.count_taken();
                Ok(made)
            }
        }
    }
}
