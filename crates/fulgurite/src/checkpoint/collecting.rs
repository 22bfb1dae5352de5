//! Garbage collection: the live bytes of segments that are mostly dead are moved, so that the segments become free.
//!
//! A segment is freed when nothing in it is live. Of values that are overwritten at random some live ones stay in every
//! segment, and so do nodes. A checkpoint therefore first chooses *victims* ([`crate::space::cleaning::victims`]), finds the
//! live records in each, and moves them: a node becomes dirty, so that the checkpoint writes it again; the bytes of a value are
//! copied to the bulk stream, and the leaf that refers to them becomes dirty. (FlashTKV's garbage collection does that in
//! transactions of its own, which abort others. Here nothing is written: a move keeps the version and its CSN, so it conflicts
//! with no transaction.)
//!
//! From a record to the key that refers to it: a commit's frame has its operations, the record of a chunk or of a moved value
//! says whose it is, and a node has its fences. Whether the key still refers to the bytes says the tree.
//!
//! **INV-MOVE-1.** *A victim is freed only when nothing refers to it.* Copies are synced with the bulk stream before a
//! superblock names the trees that refer to them (INV-CKPT-2), and the victim counts as live in both copies of the superblock
//! until two checkpoints name trees that do not refer to it (INV-SPACE-2). Victims of the commit stream are below both
//! replay positions, and no open spill pins a victim: so no memtable refers to bytes in it that no tree refers to.
//!
//! **INV-MOVE-2** is about readers that hold the former extents: [`crate::values`].
//!
//! **INV-MOVE-3.** *Bytes are verified before they are moved*: the value's checksum if it has one extent, else that of the record around the
//! bytes. A copy of damaged bytes would otherwise be found by no check of records.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_index::btree::table_of_node;
use fulgurite_index::{Base, LoadFor, OutOfLine};
use fulgurite_log::{
    Apart, BulkKind, CommitLog, OwnedBytes, ScanItem, ScanProblem, ValueOwner, visit_segment,
};
use fulgurite_types::sync::yield_now;
use fulgurite_types::{Csn, Lsn, TableId, seal_checksum, value_checksum};

use super::pacing::Pacer;
use super::{Boundary, Checkpointer, Shared};
use crate::body::{KIND_COMMIT, Op, Ops};
use crate::catalog::TableState;
use crate::error::OrError;
use crate::memory_charge::MemoryCharge;
use crate::space::cleaning::{Goal, Sparse, Victims, victims};
use crate::{Error, Result};

/// A victim whose live bytes could not all be moved is left alone until half of them are dead.
#[derive(Default)]
pub(super) struct Stuck(BTreeMap<u32, u64>);

impl Stuck {
    /// Whether a segment is left alone.
    pub fn holds(&self, segment: &Sparse) -> bool {
        self.0.get(&segment.number).is_some_and(|live| segment.live > live / 2)
    }
}

/// Beside the goal, this part of the log between two checkpoints may be dead, ...
const SLACK_SHARE: u64 = 8;
/// ... at most so many bytes.
const SLACK_BYTES_MAX: u64 = 8 << 20;

/// One checkpoint moves so many times at most what the log has grown since the last one began, ...
const MOVED_GROWTH: u64 = 2;
/// ... or this part of all live bytes, ...
const MOVED_SHARE: u64 = 48;
/// ... or what evictions have written meanwhile, of short rows in no order ten times the log, up to this one. The copies take space beside
/// the victims until the checkpoint has ended: if more is to be moved, another one follows at once.
const MOVED_EVICTED_SHARE: u64 = 16;

/// For a caller that waits, this one.
const MOVED_SHARE_WAITED: u64 = 16;

/// A list of the values of a victim may take as many bytes as the victim: then these are moved before more are noted.
const DECODED_TIMES: usize = 2;

/// Eviction makes room for a victim in so many steps, so that little counts that is not allocated yet.
const CHARGE_STEPS: usize = 8;

/// It begins no wait for that after this time.
const CHARGE_NS_MAX: u64 = 100_000_000;

/// Other threads get the processor after so many bytes.
const YIELD_BYTES: u64 = 64 << 10;

/// How long the segments may be, in percent of their live bytes. A little below the 1.3 that are promised: bytes that become dead until the next checkpoint ends come on top.
const GOAL_PERCENT: u64 = 126;
/// The same as long as nodes alone were moved: they are written with the others, and no victim is free before the end of the checkpoint.
const NODES_GOAL_PERCENT: u64 = 122;

/// So many records of nodes, ...
const NODES_MAX: usize = 64;
/// ... or so many bytes of them, are looked at together: the lock of a tree is taken twice for them, and held while they are looked up.
const NODES_BYTES: usize = 256 << 10;

/// Bytes of a value in a victim.
struct ValueAt<'b> {
    table: TableId,
    key: &'b [u8],
    lsn: Lsn,
    bytes: &'b [u8],
    /// It was moved to where it is.
    was_moved: bool,
}

/// The records of nodes of a victim that are looked at together, by table.
#[derive(Default)]
struct Nodes<'b> {
    records: BTreeMap<TableId, Vec<(Lsn, &'b [u8])>>,
    count: usize,
    bytes: usize,
}

impl<'b> Nodes<'b> {
    fn add(&mut self, lsn: Lsn, body: &'b [u8]) {
        let Ok(table) = table_of_node(body) else { return };
        self.records.entry(table).or_default().push((lsn, body));
        self.count += 1;
        self.bytes += body.len();
    }

    fn are_enough(&self) -> bool {
        self.count >= NODES_MAX || self.bytes >= NODES_BYTES
    }
}

/// The collection of one checkpoint.
struct Collection<'c> {
    checkpointer: &'c Checkpointer,
    /// The victim.
    segment: u32,
    /// Bytes of the values and nodes that were moved.
    moved_bytes: u64,
    /// Of these: of values, which are copied.
    copied_bytes: u64,
    /// Of these: since other threads got the processor.
    unyielded_bytes: u64,
}

/// What a checkpoint has moved.
pub(super) struct Moved {
    /// Bytes of values and nodes.
    pub bytes: u64,
    /// Of these: of values.
    pub copied: u64,
    /// Out of how many victims.
    pub tried: usize,
}

impl Moved {
    /// How many of a hundred bytes were copied; unknown if there were none.
    pub fn copied_percent(&self) -> Option<u64> {
        (self.copied * 100).checked_div(self.bytes)
    }
}

impl Checkpointer {
    /// The segments whose live bytes this checkpoint moves. While nothing is committed, none once the segments with live bytes
    /// take no less than `before`, at the checkpoint before: moving a few nodes writes those above them, too, and might go on for ever.
    pub(super) fn choose_victims(&mut self, at: &Boundary, before: u64) -> Vec<u32> {
        self.leaves_victims = false;
        let Shared { room, space, .. } = &self.shared;
        if room.must_stay_empty() || !(self.shared.options.collect || self.goal.is_some()) {
            return Vec::new();
        }
        let (room_bytes, _, _) = room.for_cleaning();
        let space = space.lock();
        let mut segments = space.collectable_segments(self.needed().replay.segment(), &at.bulk);
        let live_bytes = space.accounts.bytes_now();
        drop(space);
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        self.collectable_bytes = bytes;
        let all = segments.len();
        segments.retain(|segment| self.tries_all || !self.stuck.holds(segment));
        let stuck = all - segments.len();
        if let Some(percent) = self.goal {
            let allowance = live_bytes / MOVED_SHARE_WAITED;
            return victims(segments, &Goal { percent, slack: 0 }, allowance, room_bytes / 2).chosen;
        }
        if at.grown == 0 && bytes >= before {
            return Vec::new();
        }
        let all_live: u64 = segments.iter().map(|segment| segment.live).sum();
        let slack = (self.shared.growth.share() / SLACK_SHARE).min(SLACK_BYTES_MAX);
        let evicted_max = live_bytes / MOVED_EVICTED_SHARE;
        let evicted = (self.node_bytes().evicted - self.nodes_covered.evicted).min(evicted_max);
        let allowance = slack.max(MOVED_GROWTH * at.grown).max(evicted).max(live_bytes / MOVED_SHARE);
        let goal = if self.has_copied {
            Goal { percent: GOAL_PERCENT, slack }
        } else {
            // Newer segments count, which eviction has filled with live nodes.
            let newer = live_bytes.saturating_sub(all_live);
            Goal { percent: NODES_GOAL_PERCENT, slack: slack + newer / 100 * (NODES_GOAL_PERCENT - 100) }
        };
        let Victims { chosen: victims, is_too_little } = victims(segments, &goal, allowance, room_bytes / 2);
        self.leaves_victims = is_too_little && allowance == evicted_max;
        tracing::debug!(
            bytes,
            live = all_live,
            stuck,
            victims = victims.len(),
            allowance,
            "chose segments to collect"
        );
        victims
    }

    /// The running checkpoint is still to move `live_bytes`: what will be copies of values counts as written, so that commits are
    /// slowed for these from its beginning.
    pub(super) fn note_to_copy(&self, live_bytes: u64) {
        self.to_copy.set(live_bytes / 100 * self.copied_percent);
    }

    /// Moves the live bytes out of the victims, as long as there is room. One that cannot be read stays.
    pub(super) fn collect(&mut self, victims: &[u32], pacer: &mut Pacer<'_>) -> Result<Moved> {
        let mut collection = Collection::of(self);
        let mut bytes = Vec::new();
        let mut live_left = self.live_bytes_of(victims);
        for (tried, number) in victims.iter().enumerate() {
            let _decoded = collection.charge(*number);
            let (live, moved_before) = (self.live_bytes_of(&[*number]), collection.moved_bytes);
            collection.segment = *number;
            self.note_to_copy(live_left);
            live_left = live_left.saturating_sub(live);
            let read = self.shared.log.read_segment(*number, &mut bytes).or_error();
            match read.and_then(|()| collection.collect_segment(&bytes, pacer)) {
                Ok(()) => {
                    let moved = collection.moved_bytes - moved_before;
                    self.shared.progress.collected.moved_out_of(bytes.len() as u64, live, moved);
                }
                // This one and the rest stay until there is room.
                Err(Error::NoSpace { .. }) => return Ok(collection.outcome(tried)),
                Err(error) => {
                    if self.shared.log.poisoned().is_some() {
                        return Err(error);
                    }
                    collection.note_unreadable(&error);
                }
            }
        }
        Ok(collection.outcome(victims.len()))
    }

    /// The trees were written out: bytes that are still live in the victims could not be moved.
    pub(super) fn note_stuck(&mut self) {
        let space = self.shared.space.lock();
        let live = self.tried.iter().map(|number| (*number, space.accounts.live_now(*number)));
        self.stuck.0.extend(live.filter(|(_, live)| *live > 0));
        self.stuck.0.retain(|number, _| space.accounts.live_now(*number) > 0);
        for (segment, why) in self.shared.progress.collected.retain_unreadable(&self.stuck.0) {
            tracing::warn!(segment, why, "a segment could not be collected");
        }
    }
}

/// While it lives, the bytes of a victim count in the budget.
struct Decoded<'c>(&'c MemoryCharge);

impl Drop for Decoded<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

impl<'c> Collection<'c> {
    fn of(checkpointer: &'c Checkpointer) -> Collection<'c> {
        Collection { checkpointer, segment: 0, moved_bytes: 0, copied_bytes: 0, unyielded_bytes: 0 }
    }

    fn outcome(&self, tried: usize) -> Moved {
        Moved { bytes: self.moved_bytes, copied: self.copied_bytes, tried }
    }

    /// Counts a victim's bytes from before it is decoded, so that eviction makes room for it.
    fn charge(&self, number: u32) -> Option<Decoded<'c>> {
        let memory = self.checkpointer.memory.as_deref()?;
        let segments = self.checkpointer.shared.log.written_segments();
        let bytes = segments.iter().find(|segment| segment.number == number)?.bytes as usize;
        let now_ns = || self.checkpointer.shared.env.clock().monotonic_ns();
        let until_ns = now_ns() + CHARGE_NS_MAX;
        for step in 1..=CHARGE_STEPS {
            memory.set(DECODED_TIMES * bytes * step / CHARGE_STEPS);
            if now_ns() < until_ns {
                self.checkpointer.shared.tables.memory().wait_for_room(LoadFor::Maintenance);
            }
        }
        Some(Decoded(memory))
    }

    /// Something in the victim cannot be read. If something in it stays live, it stays, and others go on.
    fn note_unreadable(&self, error: &Error) {
        self.checkpointer.shared.progress.collected.note_unreadable(self.segment, error.to_string());
    }

    fn table(&self, id: TableId) -> Option<Arc<TableState>> {
        // A dropped table that was purged has no live record.
        self.checkpointer.shared.tables.by_id_or_dropped(id)
    }

    /// Moves the live data out of the bytes of a segment.
    fn collect_segment(&mut self, segment: &[u8], pacer: &mut Pacer<'_>) -> Result<()> {
        let values_max = segment.len() / size_of::<ValueAt<'_>>();
        let (mut values, mut nodes) = (Vec::new(), Nodes::default());
        let mut outcome = Ok(());
        let problems = visit_segment(segment, |item| {
            if outcome.is_err() {
                return;
            }
            match item {
                ScanItem::Frame { header, body_lsn, body, .. } if header.kind == KIND_COMMIT => {
                    note_operations(&mut values, body_lsn, body);
                }
                ScanItem::Bulk { header, body } if header.kind.is_node() => {
                    nodes.add(header.lsn, body);
                    if nodes.are_enough() {
                        outcome = self.move_nodes(&mut nodes, pacer);
                    }
                }
                ScanItem::Bulk { header, body } => {
                    // A chunk without an owner is of operations, or older than garbage collection.
                    if let Ok(Some(owned)) = OwnedBytes::decode(header.kind, body) {
                        let (ValueOwner { table, key }, lsn) = (owned.owner, owned.lsn(header.lsn));
                        let was_moved = header.kind == BulkKind::MovedValue;
                        values.push(ValueAt { table, key, lsn, bytes: &body[owned.range], was_moved });
                    }
                }
                _ => {}
            }
            if values.len() >= values_max {
                outcome = self.move_values(&mut values, pacer);
            }
        });
        outcome
            .and_then(|()| self.move_nodes(&mut nodes, pacer))
            .and_then(|()| self.move_values(&mut values, pacer))?;
        match problems.into_iter().next() {
            None => Ok(()),
            Some(ScanProblem { offset, what }) => {
                let lsn = Lsn::new(self.segment, offset as u32);
                Err(Error::of_log(self.checkpointer.shared.log.damage_at(lsn, what)))
            }
        }
    }

    /// Moves the nodes whose records are live, table by table.
    fn move_nodes(&mut self, nodes: &mut Nodes<'_>, pacer: &mut Pacer<'_>) -> Result<()> {
        for (table, records) in std::mem::take(nodes).records {
            let Some(table) = self.table(table) else { continue };
            let scarce_room = !self.checkpointer.shared.room.is_plenty();
            let moved = match table.index.base().move_records(&records, scarce_room).or_error() {
                Err(error @ (Error::Damaged(_) | Error::Io { .. })) => {
                    // The others of them were moved.
                    self.note_unreadable(&error);
                    continue;
                }
                moved => moved?,
            };
            self.moved_bytes += moved.bytes;
            self.checkpointer.shared.progress.collected.copied_nodes(moved.copied);
            // A dead record costs a look, too.
            let looked_at = records.iter().map(|(_, body)| body.len() as u64).sum();
            self.keep_pace(&table, (looked_at, moved.copied), pacer)?;
        }
        Ok(())
    }

    /// Moves the values that are live, in the order of their keys.
    fn move_values(&mut self, values: &mut Vec<ValueAt<'_>>, pacer: &mut Pacer<'_>) -> Result<()> {
        values.sort_unstable_by(|a, b| (a.table, a.key).cmp(&(b.table, b.key)));
        for found in values.drain(..) {
            let Some(table) = self.table(found.table) else { continue };
            match self.move_value(&table, &found) {
                Ok(0) => {}
                Ok(bytes) => self.keep_pace(&table, (bytes, bytes), pacer)?,
                Err(error @ (Error::Damaged(_) | Error::Io { .. })) => {
                    self.note_unreadable(&error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Moves the bytes of a value if its key refers to them; returns how many bytes that were.
    fn move_value(&mut self, table: &TableState, found: &ValueAt<'_>) -> Result<u64> {
        let ValueAt { key, lsn, bytes, .. } = *found;
        let tree = table.index.base();
        let Some((csn, value)) = tree.find_extent(key, lsn).or_error()? else { return Ok(0) };
        let log = &self.checkpointer.shared.log;
        if !is_intact(table.id, found, csn, &value) {
            let what = format!("the {} bytes of a value fail their checksum", bytes.len());
            return Err(Error::of_log(log.damage_at(lsn, what)));
        }
        let owner = ValueOwner { table: table.id, key };
        let is_plenty = self.checkpointer.shared.room.is_plenty();
        let apart = if found.was_moved { Apart::MovedAgain } else { Apart::MovedValues };
        let to = log.append_moved(owner, csn, bytes, is_plenty.then_some(apart)).or_error()?;
        self.checkpointer.shared.hooks.reached("value copied");
        // If the version was pruned since, the copy is dead.
        tree.relocate(key, csn, lsn, to).or_error()?;
        let copied = bytes.len() as u64;
        self.moved_bytes += copied;
        self.copied_bytes += copied;
        let to_copy = &self.checkpointer.to_copy;
        to_copy.set(to_copy.get().saturating_sub(copied));
        Ok(copied)
    }

    /// Notes the bytes that were looked at, or moved, and how many were copied already; pauses as the pace of the checkpoint says. Fails
    /// where the leaves that it makes dirty have no room in memory.
    fn keep_pace(
        &mut self,
        table: &TableState,
        (bytes, copied): (u64, u64),
        pacer: &mut Pacer<'_>,
    ) -> Result<()> {
        self.unyielded_bytes += bytes;
        pacer.wrote(copied);
        if self.unyielded_bytes >= YIELD_BYTES {
            self.unyielded_bytes = 0;
            let memory = table.index.base().memory();
            memory.wait_for_room(LoadFor::Maintenance);
            pacer.keep_pace(|| self.checkpointer.look());
            yield_now();
            if memory.is_exceeded() && self.checkpointer.shared.room.is_short() {
                let what = "garbage collection ends: what it moves has no room in memory".into();
                return Err(Error::NoSpace { what });
            }
        }
        Ok(())
    }
}

/// Notes the values of a commit. Which of them are outside of their leaf follows from no option: that may have differed at each
/// opening.
fn note_operations<'b>(values: &mut Vec<ValueAt<'b>>, body_lsn: Lsn, body: &'b [u8]) {
    let mut ops = Ops::new(body);
    while let Ok(Some((table, op, end))) = ops.next() {
        if let Op::Put { key, value, .. } = op
            && !value.is_empty()
        {
            let lsn = body_lsn.advance((end - value.len()) as u32);
            values.push(ValueAt { table, key, lsn, bytes: value, was_moved: false });
        }
    }
}

/// Whether the bytes are those to which the value refers (INV-MOVE-3). The record around them was verified.
fn is_intact(table: TableId, found: &ValueAt<'_>, csn: Csn, value: &OutOfLine) -> bool {
    let ValueAt { key, lsn, bytes, .. } = *found;
    match &value.extents[..] {
        [extent] => {
            extent.len as usize == bytes.len()
                && seal_checksum(value_checksum(table, key, &[bytes]), csn) == value.checksum
        }
        extents => extents.iter().any(|extent| extent.lsn == lsn && extent.len as usize == bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_env::SimEnv;

    use crate::{Database, Options, SegmentUse};

    /// INV-READ-1: a read from disk that began before the victims were dead may still hold a place in them.
    #[test]
    fn victims_stay_until_the_reads_that_began_before_have_ended() {
        let options = Options {
            inline_bytes_max: 200,
            checkpoint_log_bytes: 1 << 20,
            background: false,
            ..Options::default()
        };
        let db = Database::open_with(SimEnv::new(1), "/data", options, |_| {}).unwrap();
        let table = db.table("t").unwrap();
        // Of each four rows three are overwritten.
        for (round, kept) in [(1, 0), (2, 1)] {
            let rows = (0..4_000_u32).filter(|n| n % 4 >= kept);
            rows.for_each(|n| _ = table.put(n.to_be_bytes(), [round; 2_000]).unwrap());
        }
        while db.maintain().unwrap() {}
        let engine = db.engine();
        let read = engine.disk_reads.begin();
        let before = db.stats().segment_bytes;
        db.collect(1.2, |_| {}).unwrap();
        let of_readers = || db.stats().space.uses.get(&SegmentUse::Reader).copied().unwrap_or_default();
        let (kept, bytes) = (of_readers(), db.stats().segment_bytes);
        assert!(kept.bytes > 4 << 20 && bytes >= before, "{kept:?}, {bytes} bytes of {before}");
        drop(read);
        while engine.free_retired().unwrap() {}
        assert_eq!(of_readers().count, 0);
        assert!(db.stats().segment_bytes <= bytes - kept.bytes + (4 << 20), "{:?}", db.stats().space);
    }
}
