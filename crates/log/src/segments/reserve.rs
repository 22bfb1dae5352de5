//! Files kept for a full disk: the next opening begins its epoch in one, and a checkpoint writes to them.
//!
//! # Names that come back (INV-LOG-20)
//!
//! A file goes from `K.new` to `M.seg` when it becomes a segment, and from `N.seg` to `X.new` when that segment is not
//! needed any more. After a rename the directory shows the new name. Which names are on the medium:
//!
//! | state | names on the medium |
//! |---|---|
//! | renamed, not synced; a killed process may have left this | the old or the new one |
//! | a sync succeeded after the rename | the new one |
//! | a sync failed after the rename | the old or the new one; whatever is synced later, the old one may stay |
//! | renamed and synced again after that failure | the newest, and maybe the old one: two names of one file |
//!
//! Where a rename is not atomic ([`fulgurite_env::Dir::rename`]), a crash may leave both names, too.
//!
//! A power cut brings back the names on the medium, with what the file holds then. A name of the last two states cannot
//! be removed, because the directory does not show it. So all of this holds:
//! 1. A file is written to only after the directory was synced, by the process that writes, since the file lost the
//!    name of a segment. Without a failed sync no name comes back after that.
//! 2. The first data of segment `M` is written after the process has renamed the file to `M.seg` and synced the
//!    directory. So data is never lost with its name.
//! 3. A header is replaced in one sector. The new one is durable before the file is cut, and before it gets the name of
//!    the segment. No two files get headers of the same number: recovery takes numbers above all names and headers.
//! 4. A file `N.seg` has the header of `N`, or by 3 a later one, of `M`. With that of `N` it is what it was when it lost
//!    the name: a segment that is not needed, perhaps with zeros in it, or with the start of the bulk stream in
//!    `M`. With that of `M` it is not segment `N`, and recovery does not take it for one. It loses that name if there is
//!    a segment `M`. Else, by 2, it holds nothing, or `M` was freed, and it is a file for the reserve, or is left alone.
//! 5. A file `X.new` whose header, or name, is that of a segment may be that segment: it loses the name. Of several files
//!    with the same header only one is kept.

use super::make::{Content, Maker, fail_if_taken};
use super::{Segment, Segments};
use crate::error::LogError;
use crate::format::{new_file_name, segment_file_name};
use crate::shared::Shared;
use crate::stats::Counters;
use fulgurite_env::OpenOptions;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many files the reserve keeps for openings. Each opening takes one; INV-LOG-18 says why two are enough for any
/// number of openings.
pub(crate) const OPENING_FILES: usize = 2;

impl Segments {
    /// Adds a file to the reserve if it has fewer than `wanted`. Returns whether it did. Poisons the log if another
    /// process makes segments here.
    pub fn keep_files(&self, maker: &mut Maker, wanted: usize, shared: &Shared) -> Result<bool, LogError> {
        self.fill_reserve(maker, wanted, &shared.stats).map_err(|error| fail_if_taken(error, shared))
    }

    /// Fills the reserve as far as the options ask and there is room. No segment is made meanwhile: that could take a
    /// file which was just kept.
    pub fn keep_all(&self, shared: &Shared) -> Result<(), LogError> {
        let mut maker = self.maker();
        shared.check_usable()?;
        while self.keep_files(&mut maker, self.options.reserve_segments, shared)? {}
        Ok(())
    }

    /// Adds a file to the reserve, if the options ask for more and there is room.
    pub fn keep_one_more(&self, shared: &Shared) -> Result<bool, LogError> {
        let mut maker = self.maker();
        shared.check_usable()?;
        self.keep_files(&mut maker, self.options.reserve_segments, shared)
    }

    /// Makes a segment of the smallest size from a file of the reserve: that takes no space. It is zeros for either
    /// stream, so that recovery gives the file back if nothing was written to it.
    pub(super) fn make_of_reserve(
        &self,
        maker: &mut Maker,
        stats: &Counters,
    ) -> Result<Arc<Segment>, LogError> {
        let number = maker.next_number()?;
        let bytes = self.options.segment_bytes_min;
        let name = segment_file_name(number);
        let kept = maker.reserve.pop().expect("the caller saw one");
        let made = self.with_descriptors(|| self.dir.open(&kept, OpenOptions::Write)).and_then(|file| {
            self.fill(&*file, (number, bytes), Content::Zeros, false, stats)?;
            // Not before: until then the header is that of a segment which may have been longer (INV-LOG-20).
            if file.len()? > bytes.into() {
                file.set_len(bytes.into())?;
            }
            self.dir.rename(&kept, &name)?;
            Ok(file)
        });
        let file = made.map_err(|source| {
            maker.reserve.push(kept);
            LogError::io("make segment", &self.path(number), source)
        })?;
        self.reserved.fetch_sub(1, Ordering::Relaxed);
        // If this fails, the name may exist but not be durable. The file holds no data, so the next recovery removes
        // it.
        self.dir.sync().map_err(|source| LogError::io("make segment", &self.path(number), source))?;
        let mut segment = Segment::new(number, bytes, self.path(number), Some(file));
        segment.of_reserve = true;
        segment.set_file_written(true);
        let segment = Arc::new(segment);
        self.add(Arc::clone(&segment));
        Ok(segment)
    }

    /// Adds a file to the reserve if it has fewer than `wanted`. Returns whether it did.
    pub(super) fn fill_reserve(
        &self,
        maker: &mut Maker,
        wanted: usize,
        stats: &Counters,
    ) -> Result<bool, LogError> {
        if maker.reserve.len() >= wanted {
            return Ok(false);
        }
        if let Some(mut spare) = maker.spare.pop() {
            if Arc::get_mut(&mut spare).is_some() && self.is_allocated(&spare) {
                self.keep_freed(maker, spare)?;
                return Ok(true);
            }
            let _ = self.dir.remove(&spare.name());
        }
        let bytes = u64::from(self.options.segment_bytes_min);
        let lacks_space = || self.free_bytes() < bytes;
        if lacks_space() && (!self.give_back_tails() || lacks_space()) {
            return Ok(false);
        }
        let number = maker.next_number()?;
        let name = new_file_name(number);
        let made = self.with_descriptors(|| self.dir.open(&name, OpenOptions::CreateNew));
        let made = made.and_then(|file| {
            let size = (number, self.options.segment_bytes_min);
            let filled = self.fill(&*file, size, Content::Zeros, false, stats);
            let filled = filled.and_then(|_| self.dir.sync());
            if filled.is_err() {
                let _ = self.dir.remove(&name);
            }
            filled
        });
        made.map_err(|source| LogError::io("keep", &self.dir.path().join(&name), source))?;
        self.keep(maker, name);
        Ok(true)
    }

    fn keep(&self, maker: &mut Maker, name: String) {
        maker.reserve.push(name);
        self.reserved.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the file of a freed segment to the reserve. The old name is durably gone before anything is written to the
    /// file. Once the file has its new name the segment is freed, even if the reserve does not get the file.
    pub(super) fn keep_freed(&self, maker: &mut Maker, segment: Arc<Segment>) -> Result<(), LogError> {
        let name = new_file_name(maker.next_number()?);
        let failed = |source| LogError::io("keep", &segment.path, source);
        if let Err(source) = self.dir.rename(&segment.name(), &name) {
            // The file still has its old name; a file with the new name belongs to another process.
            let error = failed(source);
            self.add(segment);
            return Err(error);
        }
        let cut = self.dir.sync().and_then(|()| {
            let file = self.with_descriptors(|| self.dir.open(&name, OpenOptions::Write))?;
            file.set_len(self.options.segment_bytes_min.into())
        });
        match cut {
            Ok(()) => self.keep(maker, name),
            Err(source) => {
                tracing::warn!(error = %failed(source), "a freed segment could not be kept for a full disk");
                // If it stays, the next recovery removes it.
                let _ = self.dir.remove(&name);
            }
        }
        Ok(())
    }

    /// Whether so little space is free that the reserve comes first.
    pub fn is_nearly_full(&self) -> bool {
        let reserve = self.options.reserve_segments as u64 * u64::from(self.options.segment_bytes_min);
        self.dir.free_bytes().is_ok_and(|free| free < 4 * reserve)
    }

    /// The bytes that the reserve counts for.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_files() as u64 * u64::from(self.options.segment_bytes_min)
    }

    /// The number of files in the reserve.
    pub fn reserve_files(&self) -> usize {
        self.reserved.load(Ordering::Relaxed) as usize
    }
}
