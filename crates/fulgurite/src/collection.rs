//! Garbage collection at a caller's request, and figures of all that was collected. How it works: [`crate::checkpoint`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::{Error, Result};

/// The least and the largest ratio that [`Database::collect`](crate::Database::collect) takes.
const UNTIL: std::ops::RangeInclusive<f64> = 1.02..=100.0;

/// After so many rounds that have not made the segments shorter there is nothing more to gain.
const VAIN_ROUNDS_MAX: u32 = 3;

/// How far a [`Database::collect`](crate::Database::collect) is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CollectProgress {
    /// Bytes of the segments with live data that can be collected: not those to which the log appends, that replay would need, or
    /// that something pins.
    pub segment_bytes: u64,
    /// Live bytes in them.
    pub live_bytes: u64,
    /// Bytes of values and nodes that were moved so far.
    pub moved_bytes: u64,
}

impl CollectProgress {
    /// How many times their live bytes the segments take.
    pub fn ratio(&self) -> f64 {
        if self.live_bytes == 0 { 1.0 } else { self.segment_bytes as f64 / self.live_bytes as f64 }
    }
}

/// What a [`Database::collect`](crate::Database::collect) did.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// db.table("users")?.put("alice", "1")?;
/// let report = db.collect(1.1, |progress| eprintln!("{:.2}", progress.ratio()))?;
/// println!("from {:.2} to {:.2}, {} bytes moved", report.before.ratio(), report.after.ratio(), report.after.moved_bytes);
/// # assert!(report.is_reached);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CollectReport {
    /// After its first checkpoint, which finds the dead bytes.
    pub before: CollectProgress,
    /// At its end.
    pub after: CollectProgress,
    /// Bytes of all segments when it was called, ready ones included.
    pub segment_bytes_before: u64,
    /// At its end.
    pub segment_bytes_after: u64,
    /// Whether the ratio that was asked for is reached. If not, nothing more could be moved that would have made the segments
    /// shorter.
    pub is_reached: bool,
}

/// What garbage collection has done since the database was opened: part of [`Stats`](crate::Stats).
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let collection = db.stats().collection;
/// println!("{} bytes moved out of {} segments", collection.moved_bytes, collection.victims);
/// for (segment, why) in &collection.unreadable {
///     eprintln!("segment {segment} stays: {why}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionStats {
    /// Segments whose live data was moved.
    pub victims: u64,
    /// Their bytes.
    pub victim_bytes: u64,
    /// Bytes that were live in them.
    pub victim_live_bytes: u64,
    /// How many of them were up to 10 % live, up to 20 %, and so on.
    pub victims_by_tenths: [u64; 10],
    /// Bytes of values that were copied.
    pub moved_value_bytes: u64,
    /// Bytes of the records of nodes that were copied: of leaves that are not in memory.
    pub copied_node_bytes: u64,
    /// Bytes of values and of nodes that were moved. Nodes that are in memory are written with the checkpoint, as a whole or by their changes.
    pub moved_bytes: u64,
    /// Leaves that were purged of expired rows, or of versions that only ended snapshots saw, although no write touched them.
    pub purged_leaves: u64,
    /// Segments that could not be read, or that hold a value that could not, and why. They stay; all else is collected.
    pub unreadable: BTreeMap<u32, String>,
}

/// The same, while it changes.
#[derive(Default)]
pub(crate) struct Collected {
    victims: AtomicU64,
    victim_bytes: AtomicU64,
    victim_live_bytes: AtomicU64,
    victims_by_tenths: [AtomicU64; 10],
    copied_node_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    unreadable: Mutex<BTreeMap<u32, String>>,
    /// The same, before it is known whether anything in them stays live: the end of a segment may be torn.
    suspected: Mutex<BTreeMap<u32, String>>,
}

impl Collected {
    /// The live bytes of a segment were moved.
    pub fn moved_out_of(&self, bytes: u64, live: u64, moved: u64) {
        self.victims.fetch_add(1, Relaxed);
        self.victim_bytes.fetch_add(bytes, Relaxed);
        self.victim_live_bytes.fetch_add(live, Relaxed);
        self.moved_bytes.fetch_add(moved, Relaxed);
        let tenth = (live * 10).div_ceil(bytes.max(1)).clamp(1, 10) - 1;
        self.victims_by_tenths[tenth as usize].fetch_add(1, Relaxed);
    }

    /// Records of nodes were copied.
    pub fn copied_nodes(&self, bytes: u64) {
        self.copied_node_bytes.fetch_add(bytes, Relaxed);
    }

    /// Something in a segment could not be read.
    pub fn note_unreadable(&self, segment: u32, why: String) {
        self.suspected.lock().entry(segment).or_insert(why);
    }

    /// Keeps the unreadable segments in `stuck`, which hold live bytes that could not be moved. Returns the new ones.
    pub fn retain_unreadable(&self, stuck: &BTreeMap<u32, u64>) -> BTreeMap<u32, String> {
        let mut unreadable = self.unreadable.lock();
        unreadable.retain(|segment, _| stuck.contains_key(segment));
        let mut new = std::mem::take(&mut *self.suspected.lock());
        new.retain(|segment, _| stuck.contains_key(segment) && !unreadable.contains_key(segment));
        unreadable.extend(new.clone());
        new
    }

    pub fn read(&self, moved_value_bytes: u64, purged_leaves: u64) -> CollectionStats {
        CollectionStats {
            victims: self.victims.load(Relaxed),
            victim_bytes: self.victim_bytes.load(Relaxed),
            victim_live_bytes: self.victim_live_bytes.load(Relaxed),
            victims_by_tenths: self.victims_by_tenths.each_ref().map(|count| count.load(Relaxed)),
            moved_value_bytes,
            copied_node_bytes: self.copied_node_bytes.load(Relaxed),
            moved_bytes: self.moved_bytes.load(Relaxed),
            purged_leaves,
            unreadable: self.unreadable.lock().clone(),
        }
    }
}

/// A ratio in percent, if it is one that can be asked for.
fn percent_of(until: f64) -> Result<u64> {
    if UNTIL.contains(&until) {
        return Ok((until * 100.0).round() as u64);
    }
    let violation = format!(
        "collect until {until} times the live bytes: allowed is {} to {}; below, each byte that becomes free costs fifty that are \
         written",
        UNTIL.start(),
        UNTIL.end()
    );
    Err(Error::BadOptions { violations: vec![violation] })
}

impl Engine {
    /// Writes checkpoints that collect until the segments take `until` times their live bytes, or nothing more is gained.
    pub fn collect(&self, until: f64, mut progress: impl FnMut(CollectProgress)) -> Result<CollectReport> {
        let percent = percent_of(until)?;
        let moved_before = self.progress.collected.moved_bytes.load(Relaxed);
        let segment_bytes = || self.log.written_segments().iter().map(|one| u64::from(one.bytes)).sum();
        let segment_bytes_before = segment_bytes();
        self.checkpoint()?;
        while self.checkpointer.lock().is_purging() {
            self.checkpoint()?;
        }
        let before = self.collectable(moved_before);
        let mut at = before;
        let (mut least, mut in_vain, mut is_first) = (before.segment_bytes, 0, true);
        progress(at);
        while !is_reached(&at, percent) && in_vain < VAIN_ROUNDS_MAX {
            let moved = self.collecting_checkpoint(percent, std::mem::take(&mut is_first))?;
            at = self.collectable(moved_before);
            progress(at);
            let is_vain = !moved || at.segment_bytes >= least;
            in_vain = if is_vain { in_vain + 1 } else { 0 };
            least = least.min(at.segment_bytes);
        }
        Ok(CollectReport {
            before,
            after: at,
            segment_bytes_before,
            segment_bytes_after: segment_bytes(),
            is_reached: is_reached(&at, percent),
        })
    }

    /// Writes a checkpoint that collects until the segments take `percent` of their live bytes. Returns whether it moved anything. With
    /// `tries_all` it tries those again out of which not all could be moved.
    fn collecting_checkpoint(&self, percent: u64, tries_all: bool) -> Result<bool> {
        let _hurry = self.pacing.hurry();
        let _quiet = self.pipeline.quiet();
        let mut checkpointer = self.checkpointer.lock();
        self.check_open()?;
        let moved_before = self.progress.collected.moved_bytes.load(Relaxed);
        let written = checkpointer.checkpoint_until(percent, tries_all, &self.merger);
        self.room.checkpoint_ended();
        drop(checkpointer);
        written?;
        self.free_retired()?;
        Ok(self.progress.collected.moved_bytes.load(Relaxed) > moved_before)
    }

    fn collectable(&self, moved_before: u64) -> CollectProgress {
        let replay_segment = self.progress.replay_segment.load(Relaxed);
        let boundary = self.log.bulk_boundary();
        let segments = self.space.lock().collectable_segments(replay_segment, &boundary);
        CollectProgress {
            segment_bytes: segments.iter().map(|segment| segment.bytes).sum(),
            live_bytes: segments.iter().map(|segment| segment.live).sum(),
            moved_bytes: self.progress.collected.moved_bytes.load(Relaxed) - moved_before,
        }
    }
}

fn is_reached(at: &CollectProgress, percent: u64) -> bool {
    u128::from(at.segment_bytes) * 100 <= u128::from(at.live_bytes) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_that_cannot_be_reached_is_refused() {
        assert_eq!((percent_of(1.1).unwrap(), percent_of(1.02).unwrap()), (110, 102));
        for until in [0.9, 1.0, 1.01, 101.0, f64::NAN, f64::INFINITY] {
            let error = percent_of(until).unwrap_err().to_string();
            assert!(error.contains("1.02 to 100") && error.contains(&until.to_string()), "{error}");
        }
    }

    #[test]
    fn victims_are_counted_by_how_live_they_were() {
        let collected = Collected::default();
        for live in [0, 1, 100, 101, 999, 1000] {
            collected.moved_out_of(1000, live, live);
        }
        let stats = collected.read(7, 8);
        assert_eq!((stats.victims, stats.victim_bytes, stats.victim_live_bytes), (6, 6000, 2201));
        assert_eq!(stats.victims_by_tenths, [3, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
    }
}
