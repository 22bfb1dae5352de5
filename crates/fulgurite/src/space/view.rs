//! What the bytes of the segments are: live, dead, or kept, and for what since when.

use std::collections::BTreeMap;
use std::time::Duration;

use fulgurite_log::{SegmentInfo, Stream};
use fulgurite_types::{Csn, TableId};

use crate::space::Space;

/// The reason for which a segment is on disk: the first of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SegmentUse {
    /// It is ready: a stream of the log takes it next.
    Ready,
    /// The log appends to it, or this opening of the database began in it.
    Open,
    /// It holds live data. Its other bytes are dead, and are freed with it.
    Live,
    /// All live data in it belong to dropped tables that a snapshot still sees. (The versions of other tables that only a
    /// snapshot sees are in their leaves, and count as live.)
    Snapshot,
    /// Replay would need it after a crash: log that the checkpoints do not cover yet.
    Replay,
    /// An open transaction wrote values or operations ahead to it.
    Transaction,
    /// The same, and the transaction is committed, but not covered by both checkpoints yet.
    Uncovered,
    /// A check that runs may read it.
    Check,
    /// A checkpoint that a copy of the superblock names refers to it, or has its record there; the next checkpoints end
    /// that.
    Checkpoint,
    /// Reads that began before it was dead may still use it.
    Reader,
    /// Nothing needs it: the next checkpoint frees it.
    Dead,
}

impl SegmentUse {
    /// Whether dead bytes are kept for a thread, a snapshot or a check, which may take long.
    pub fn is_pin(self) -> bool {
        use SegmentUse::{Check, Checkpoint, Reader, Snapshot, Transaction, Uncovered};
        matches!(self, Snapshot | Transaction | Uncovered | Check | Checkpoint | Reader)
    }
}

/// Segments that are on disk for the same reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentGroup {
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Live bytes in them.
    pub live_bytes: u64,
    /// The time since the first of them was made, or since the database was opened if that was later.
    pub oldest_age: Duration,
    /// Of a reason that is a pin: how long the first of them has been pinned without a pause.
    pub pinned_for: Option<Duration>,
}

/// The bytes of the segments: part of [`Stats`](crate::Stats). All groups together are all segments.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// db.table("users")?.put("alice", "1")?;
/// let space = db.stats().space;
/// println!("{} bytes live, {} dead, {} pinned", space.live_bytes(), space.dead_bytes(), space.pinned_bytes());
/// for (reason, group) in &space.uses {
///     println!("{reason:?}: {} segments, {} bytes, for {:?}", group.count, group.bytes, group.pinned_for);
/// }
/// # assert!(space.uses.values().map(|group| group.bytes).sum::<u64>() > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceStats {
    /// The segments by the reason for which they are on disk.
    pub uses: BTreeMap<SegmentUse, SegmentGroup>,
    /// The segments that the commit stream took.
    pub commit: SegmentGroup,
    /// The segments that the bulk stream took.
    pub bulk: SegmentGroup,
}

impl SpaceStats {
    /// Live bytes as the nodes in memory refer to them.
    pub fn live_bytes(&self) -> u64 {
        self.uses.values().map(|group| group.live_bytes).sum()
    }

    /// Bytes that nothing needs: beside live ones in segments that stay for these, and in segments that the next
    /// checkpoint frees.
    pub fn dead_bytes(&self) -> u64 {
        let dead = |reason| self.uses.get(&reason).map_or(0, |group| group.bytes - group.live_bytes);
        dead(SegmentUse::Live) + dead(SegmentUse::Dead)
    }

    /// Bytes that only a pin keeps, live ones of dropped tables included.
    pub fn pinned_bytes(&self) -> u64 {
        let pinned = self.uses.iter().filter(|(reason, _)| reason.is_pin());
        pinned.map(|(_, group)| group.bytes).sum()
    }
}

/// What a view needs beside the space.
pub(crate) struct Viewed<'v> {
    /// Every segment.
    pub segments: &'v [SegmentInfo],
    /// The dropped tables, with the commits that dropped them.
    pub dropped: &'v [(TableId, Csn)],
    /// The oldest snapshot.
    pub oldest_snapshot: Option<Csn>,
    /// How long the oldest snapshot has been open.
    pub snapshot_age: Option<Duration>,
    /// The first segment that replay would need.
    pub replay_segment: u32,
}

impl Space {
    /// Finds for each segment why it is on disk.
    pub fn view(&self, viewed: &Viewed<'_>) -> SpaceStats {
        let now_ns = self.env.clock().monotonic_ns();
        let mut stats = SpaceStats::default();
        let (seen, gone) = self.live_of_dropped(viewed);
        let of = |bytes: &BTreeMap<u32, u64>, segment: &SegmentInfo| {
            bytes.get(&segment.number).copied().unwrap_or(0)
        };
        for segment in viewed.segments {
            let live_bytes = self.accounts.live_now(segment.number).min(segment.bytes.into());
            let live_bytes = live_bytes.saturating_sub(of(&gone, segment));
            let of_snapshots = of(&seen, segment);
            let (reason, since_ns) = self.reason_of(segment, live_bytes, of_snapshots, viewed.replay_segment);
            let ago = |ns: u64| Duration::from_nanos(now_ns.saturating_sub(ns));
            let one = SegmentGroup {
                count: 1,
                bytes: segment.bytes.into(),
                live_bytes,
                oldest_age: ago(segment.made_ns.max(self.opened_ns)),
                pinned_for: match reason {
                    SegmentUse::Snapshot => viewed.snapshot_age,
                    _ => since_ns.map(ago),
                },
            };
            stats.uses.entry(reason).or_default().add(&one);
            match segment.stream {
                Some(Stream::Commit) => stats.commit.add(&one),
                Some(Stream::Bulk) => stats.bulk.add(&one),
                None => {}
            }
        }
        stats
    }

    /// The bytes of dropped tables, by segment: of those that a snapshot sees, and of those that the next checkpoint
    /// removes.
    fn live_of_dropped(&self, viewed: &Viewed<'_>) -> (BTreeMap<u32, u64>, BTreeMap<u32, u64>) {
        let (mut seen, mut gone) = (BTreeMap::new(), BTreeMap::new());
        for (table, dropped) in viewed.dropped {
            let is_seen = viewed.oldest_snapshot.is_some_and(|oldest| oldest < *dropped);
            let bytes_of = if is_seen { &mut seen } else { &mut gone };
            for (segment, bytes) in self.accounts.live_now_of(*table) {
                *bytes_of.entry(segment).or_default() += bytes;
            }
        }
        (seen, gone)
    }

    /// Why a segment is on disk, and since when if that is a pin. `of_snapshots` of its live bytes are those of dropped
    /// tables.
    fn reason_of(
        &self,
        segment: &SegmentInfo,
        live_bytes: u64,
        of_snapshots: u64,
        replay_segment: u32,
    ) -> (SegmentUse, Option<u64>) {
        let number = segment.number;
        if segment.stream.is_none() {
            (SegmentUse::Ready, None)
        } else if segment.open {
            (SegmentUse::Open, None)
        } else if live_bytes > of_snapshots {
            (SegmentUse::Live, None)
        } else if live_bytes > 0 {
            (SegmentUse::Snapshot, None)
        } else if segment.stream == Some(Stream::Commit) && number >= replay_segment {
            (SegmentUse::Replay, None)
        } else if let Some((reason, since_ns)) = self.spills.pinned(number) {
            (reason, Some(since_ns.max(self.opened_ns)))
        } else if let Some(since_ns) = self.checks.held_since(number) {
            (SegmentUse::Check, Some(since_ns))
        } else if let Some(since_ns) = self.retiring.get(&number) {
            (SegmentUse::Reader, Some(*since_ns))
        } else if self.accounts.is_in_a_copy(number) {
            (SegmentUse::Checkpoint, Some(self.checkpoint_ns))
        } else {
            (SegmentUse::Dead, None)
        }
    }
}

impl SegmentGroup {
    fn add(&mut self, other: &SegmentGroup) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.live_bytes += other.live_bytes;
        self.oldest_age = self.oldest_age.max(other.oldest_age);
        self.pinned_for = self.pinned_for.max(other.pinned_for);
    }
}
