//! Disk space: the accounts of live bytes, the pins, and the segments that are being retired.

pub(crate) mod accounts;
pub(crate) mod budget;
pub(crate) mod cleaning;
pub(crate) mod growth;
pub(crate) mod need;
pub(crate) mod pins;
pub(crate) mod room;
pub(crate) mod view;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fulgurite_env::Env;
use fulgurite_log::{BulkBoundary, Log, SegmentInfo, Stream};
use fulgurite_types::{Csn, DiskReads, Lsn, Retired};

use self::accounts::Accounts;
use self::cleaning::Sparse;
use self::pins::{CheckPins, SpillPins};
use self::view::SegmentUse;
use crate::checkpoint::garbage::SegmentBytes;
use crate::{Error, Result};

/// What recovery may need: the smaller value of both copies of the superblock.
#[derive(Clone, Copy)]
pub(crate) struct Needed {
    pub replay: Lsn,
    pub covered: Csn,
    /// The commit after which both find all in the log.
    pub kept: Csn,
}

/// Which segments are live, pinned or dead. A dead segment is *retired* first: a read that began before may still hold
/// an LSN in it. Once no such read is left, it is given back to the log (INV-READ-1).
pub(crate) struct Space {
    pub accounts: Accounts,
    /// Dead, and not given back yet; found dead at this time in monotonic nanoseconds.
    retiring: BTreeMap<u32, u64>,
    /// Those of them that reads from disk may still use.
    read: Vec<(Retired, u32)>,
    /// Those of them that no read uses.
    unread: Vec<u32>,
    disk_reads: Arc<DiskReads>,
    spills: Arc<SpillPins>,
    checks: Arc<CheckPins>,
    log: Arc<Log>,
    env: Arc<dyn Env>,
    /// When the last checkpoint ended, or the database was opened if there was none, in monotonic nanoseconds.
    checkpoint_ns: u64,
    /// When the database was opened.
    opened_ns: u64,
    /// What both copies of the superblock covered when segments were retired last.
    covered: Csn,
}

impl Space {
    pub fn new(
        accounts: Accounts,
        spills: Arc<SpillPins>,
        log: Arc<Log>,
        env: Arc<dyn Env>,
        disk_reads: Arc<DiskReads>,
    ) -> Space {
        let opened_ns = env.clock().monotonic_ns();
        Space {
            accounts,
            retiring: BTreeMap::new(),
            read: Vec::new(),
            unread: Vec::new(),
            disk_reads,
            spills,
            checks: Arc::default(),
            log,
            env,
            checkpoint_ns: opened_ns,
            opened_ns,
            covered: Csn::ZERO,
        }
    }

    /// The pins of running checks.
    pub fn checks(&self) -> Arc<CheckPins> {
        self.checks.clone()
    }

    /// Whether a segment is dead, but not freed yet.
    pub fn is_retiring(&self, segment: u32) -> bool {
        self.retiring.contains_key(&segment)
    }

    /// Whether any segment is dead, but not freed yet.
    pub fn has_retiring(&self) -> bool {
        !self.retiring.is_empty()
    }

    /// About how many bytes checkpoints free: those of the segments that are dead once both copies of the superblock name
    /// a checkpoint that begins now. What such a checkpoint makes dead by writing it again, nodes and the record of the last
    /// one, does not count: it may have nothing to write.
    pub fn freeable_bytes(&self) -> u64 {
        self.dead_bytes(|_| true)
    }

    /// The same without those that only wait for readers.
    pub fn unretired_bytes(&self) -> u64 {
        self.dead_bytes(|segment| !self.is_retiring(segment))
    }

    fn dead_bytes(&self, counts: impl Fn(u32) -> bool) -> u64 {
        let boundary = self.log.bulk_boundary();
        let segments = self.log.written_segments();
        let current_commit = segments.iter().rfind(|segment| segment.stream == Some(Stream::Commit));
        let current_commit = current_commit.map_or(0, |segment| segment.number);
        let dead = segments.iter().filter(|segment| {
            let is_before = match segment.stream {
                Some(Stream::Commit) => segment.number < current_commit,
                Some(Stream::Bulk) => boundary.is_after(segment.number),
                None => false,
            };
            is_before
                && !segment.open
                && self.accounts.live_now(segment.number) == 0
                && !self.accounts.has_record_in(segment.number)
                && !self.spills.holds(segment.number)
                && !self.checks.hold(segment.number)
                && counts(segment.number)
        });
        dead.map(|segment| u64::from(segment.bytes)).sum()
    }

    /// The sealed segments of the bulk stream that hold live bytes, all from before the boundary, and that nothing pins.
    pub fn sparse_segments(&self, boundary: &BulkBoundary) -> Vec<Sparse> {
        self.sparse(|segment| segment.stream == Some(Stream::Bulk) && boundary.is_after(segment.number))
    }

    /// The same, with those of the commit stream that replay does not need: before `replay_segment`.
    pub fn collectable_segments(&self, replay_segment: u32, boundary: &BulkBoundary) -> Vec<Sparse> {
        self.sparse(|segment| match segment.stream {
            Some(Stream::Commit) => segment.number < replay_segment,
            Some(Stream::Bulk) => boundary.is_after(segment.number),
            None => false,
        })
    }

    /// The bytes of the segments that may come to be freed, without those that are ready, pinned by an open transaction, a check, a
    /// reader, or for other nodes, or stuck, and without those that wait for a checkpoint, because nothing but a copy of the superblock needs them, unless
    /// it is the running one whose `victims` they are.
    pub fn segment_bytes(&self, is_stuck: impl Fn(&Sparse) -> bool, victims: &[u32]) -> SegmentBytes {
        let mut sum = SegmentBytes::default();
        for segment in self.log.written_segments() {
            let SegmentInfo { number, bytes, stream, .. } = segment;
            let is_pinned = || {
                let of_transaction = matches!(self.spills.pinned(number), Some((SegmentUse::Transaction, _)));
                of_transaction
                    || self.spills.is_kept(number, self.covered)
                    || self.checks.hold(number)
                    || self.is_retiring(number)
            };
            if stream.is_none() || is_pinned() {
                continue;
            }
            let found = Sparse { number, bytes: bytes.into(), live: self.accounts.live_now(number) };
            if found.live == 0 && self.accounts.is_in_a_copy(number) && !victims.contains(&number) {
                continue;
            }
            sum.live += found.live;
            sum.all += if is_stuck(&found) { found.live } else { found.bytes };
        }
        sum
    }

    fn sparse(&self, is_old: impl Fn(&SegmentInfo) -> bool) -> Vec<Sparse> {
        let sealed = self.log.written_segments().into_iter().filter(|segment| {
            is_old(segment)
                && !segment.open
                && !self.spills.holds(segment.number)
                && !self.checks.hold(segment.number)
        });
        let sparse = sealed.map(|segment| Sparse {
            number: segment.number,
            bytes: segment.bytes.into(),
            live: self.accounts.live_now(segment.number),
        });
        sparse.filter(|segment| segment.live > 0).collect()
    }

    /// The commit after which the segments with chunks of commits have about so many bytes.
    pub fn chunks_before(&self, bytes: u64) -> Csn {
        let segments = self.log.written_segments().into_iter();
        let bytes_by: HashMap<u32, u64> =
            segments.map(|segment| (segment.number, segment.bytes.into())).collect();
        let bytes_of = |number| bytes_by.get(&number).copied().unwrap_or(0);
        self.spills.csn_before(bytes, bytes_of)
    }

    /// A checkpoint has ended: retires the segments that nothing needs; returns how many. `boundary`: [`Accounts::may_free`].
    pub fn retire(&mut self, needed: Needed, boundary: &BulkBoundary) -> u64 {
        self.checkpoint_ns = self.env.clock().monotonic_ns();
        let dead = self.dead_segments(needed, boundary);
        let retired = dead.len() as u64;
        let now = self.disk_reads.retire();
        self.read.extend(dead.into_iter().map(|number| (now, number)));
        retired
    }

    /// The same for opening: there is no reader yet to wait for.
    pub fn retire_before_serving(&mut self, needed: Needed) {
        let dead = self.dead_segments(needed, &self.log.bulk_boundary());
        self.unread.extend(dead);
    }

    /// The segments that nothing needs and that were not found before.
    fn dead_segments(&mut self, needed: Needed, boundary: &BulkBoundary) -> Vec<u32> {
        self.log.drop_before(needed.kept);
        self.covered = needed.covered;
        // The chunks of commits that are kept for other nodes stay with them (INV-REP-8).
        self.spills.release_up_to(needed.covered.min(needed.kept));
        self.spills.release_ended();
        let segments = self.log.segments();
        let now_ns = self.env.clock().monotonic_ns();
        self.retiring.retain(|number, _| segments.iter().any(|segment| segment.number == *number));
        let dead = segments.into_iter().filter(|segment| {
            self.accounts.may_free(segment, needed.replay, boundary, &self.spills)
                && !self.checks.hold(segment.number)
                && self.retiring.insert(segment.number, now_ns).is_none()
        });
        dead.map(|segment| segment.number).collect()
    }

    /// Gives the retired segments that no reader uses back to the log. One that cannot be removed is tried again later.
    pub fn give_back(&mut self) -> Result<()> {
        let disk_reads = &*self.disk_reads;
        let ended = self.read.extract_if(.., |(retired, _)| disk_reads.have_ended(*retired));
        self.unread.extend(ended.map(|(_, number)| number));
        let numbers = std::mem::take(&mut self.unread);
        let mut outcome = Ok(());
        for number in numbers {
            match self.log.free_segment(number) {
                Ok(()) => {
                    self.retiring.remove(&number);
                }
                Err(error) => {
                    self.unread.push(number);
                    outcome = Err(Error::of_log(error));
                }
            }
        }
        outcome
    }
}
