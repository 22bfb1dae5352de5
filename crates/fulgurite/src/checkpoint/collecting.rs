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
use fulgurite_log::{CommitLog, OwnedBytes, ScanItem, ValueOwner};
use fulgurite_types::sync::yield_now;
use fulgurite_types::{Csn, Lsn, TableId, seal_checksum, value_checksum};

use super::pacing::Pacer;
use super::{Boundary, Checkpointer, Shared};
use crate::body::{KIND_COMMIT, Op, Ops};
use crate::catalog::TableState;
use crate::error::OrError;
use crate::memory_charge::MemoryCharge;
use crate::space::cleaning::{Goal, Sparse, victims};
use crate::{Error, Result};

/// A victim whose live bytes could not all be moved is left alone until half of them are dead.
#[derive(Default)]
pub(super) struct Stuck(BTreeMap<u32, u64>);

impl Stuck {
    /// Whether a segment is left alone.
    fn holds(&self, segment: &Sparse) -> bool {
        self.0.get(&segment.number).is_some_and(|live| segment.live > live / 2)
    }
}

/// Beside the goal, this part of the log between two checkpoints may be dead, ...
const SLACK_SHARE: u64 = 8;
/// ... at most so many bytes.
const SLACK_BYTES_MAX: u64 = 8 << 20;

/// One checkpoint moves so many times at most what the log has grown since the last one, ...
const MOVED_GROWTH: u64 = 4;
/// ... or this part of all live bytes. The copies take space beside the victims until the checkpoint has ended.
const MOVED_SHARE: u64 = 32;

/// Values of so many bytes with their keys are looked up at a time, ...
const BATCH_BYTES_MAX: usize = 4 << 20;
/// ... or of this part of the memory budget.
const BATCH_SHARE: usize = 128;

/// A victim is decoded as a whole. Its records are copied, and of short ones what is noted of each takes as much again.
const DECODED_TIMES: usize = 3;

/// How long the segments may be, in percent of their live bytes. A little below the 1.3 that are promised: bytes that become dead until the next checkpoint ends come on top.
const GOAL_PERCENT: u64 = 120;

/// Bytes of a value in a victim.
struct ValueAt {
    table: TableId,
    key: Box<[u8]>,
    lsn: Lsn,
    len: u32,
}

/// The collection of one checkpoint.
struct Collection<'c> {
    checkpointer: &'c Checkpointer,
    batch: Vec<ValueAt>,
    batch_bytes: usize,
    batch_bytes_max: usize,
    /// Bytes of the values and nodes that were moved.
    moved_bytes: u64,
}

impl Checkpointer {
    /// The segments whose live bytes this checkpoint moves. While nothing is committed, none once the segments with live bytes
    /// take no less than at the checkpoint before: moving a few nodes writes those above them, too, and might go on for ever.
    pub(super) fn choose_victims(&mut self, at: &Boundary) -> Vec<u32> {
        let Shared { room, space, .. } = &self.shared;
        if room.must_stay_empty() {
            return Vec::new();
        }
        let (room_bytes, _, _) = room.for_cleaning();
        let space = space.lock();
        let mut segments = space.collectable_segments(self.needed().replay.segment(), at.bulk_before);
        let live_bytes = space.accounts.bytes_now();
        drop(space);
        let bytes = segments.iter().map(|segment| segment.bytes).sum();
        let before = std::mem::replace(&mut self.collectable_bytes, bytes);
        if at.grown == 0 && bytes >= before {
            return Vec::new();
        }
        segments.retain(|segment| !self.stuck.holds(segment));
        let slack = (self.shared.growth.share() / SLACK_SHARE).min(SLACK_BYTES_MAX);
        let allowance = slack.max(MOVED_GROWTH * at.grown).max(live_bytes / MOVED_SHARE);
        victims(segments, &Goal { percent: GOAL_PERCENT, slack }, allowance, room_bytes / 2)
    }

    /// Moves the live bytes out of the victims; returns how many there were. A victim that cannot be read stays.
    pub(super) fn collect(&mut self, victims: &[u32], pacer: &mut Pacer<'_>) -> Result<u64> {
        let batch_bytes_max = BATCH_BYTES_MAX.min(self.shared.tables.memory().budget_bytes() / BATCH_SHARE);
        let mut collection = Collection {
            checkpointer: self,
            batch: Vec::new(),
            batch_bytes: 0,
            batch_bytes_max,
            moved_bytes: 0,
        };
        for number in victims {
            let _decoded = collection.charge(*number);
            match collection.collect_segment(*number, pacer) {
                Ok(()) => {}
                // The rest of the victims stay until there is room.
                Err(Error::NoSpace { .. }) => break,
                Err(error) => {
                    if self.shared.log.poisoned().is_some() {
                        return Err(error);
                    }
                    tracing::warn!(%error, segment = *number, "a segment could not be collected");
                }
            }
        }
        let moved = collection.move_batch(pacer);
        let moved_bytes = collection.moved_bytes;
        match moved {
            Ok(()) | Err(Error::NoSpace { .. }) => Ok(moved_bytes),
            Err(error) => Err(error),
        }
    }

    /// The trees were written out: bytes that are still live in the victims could not be moved.
    pub(super) fn note_stuck(&mut self, victims: &[u32]) {
        let space = self.shared.space.lock();
        let live = victims.iter().map(|number| (*number, space.accounts.live_now(*number)));
        self.stuck.0.extend(live.filter(|(_, live)| *live > 0));
        self.stuck.0.retain(|number, _| space.accounts.live_now(*number) > 0);
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
    /// Counts a victim's bytes from before it is decoded, so that eviction makes room for it.
    fn charge(&self, number: u32) -> Option<Decoded<'c>> {
        let memory = self.checkpointer.memory.as_deref()?;
        let segments = self.checkpointer.shared.log.written_segments();
        let bytes = segments.iter().find(|segment| segment.number == number)?.bytes as usize;
        memory.set(DECODED_TIMES * bytes + self.batch_bytes_max);
        self.checkpointer.shared.tables.memory().wait_for_room(LoadFor::Maintenance);
        Some(Decoded(memory))
    }

    fn table(&self, id: TableId) -> Option<Arc<TableState>> {
        // A dropped table that was purged has no live record.
        self.checkpointer.shared.tables.by_id_or_dropped(id)
    }

    fn collect_segment(&mut self, number: u32, pacer: &mut Pacer<'_>) -> Result<()> {
        let scan = self.checkpointer.shared.log.scan_segment(number).or_error()?;
        for item in scan.items {
            match item {
                ScanItem::Frame { header, body_lsn, body, .. } if header.kind == KIND_COMMIT => {
                    self.collect_frame(body_lsn, &body);
                }
                ScanItem::Bulk { header, body } if header.kind.is_node() => {
                    self.move_node(header.lsn, &body, pacer)?;
                }
                ScanItem::Bulk { header, body } => {
                    // A chunk without an owner is of operations, or older than garbage collection.
                    if let Ok(Some(owned)) = OwnedBytes::decode(header.kind, &body) {
                        let ValueOwner { table, key } = owned.owner;
                        self.push(table, key, owned.lsn(header.lsn), owned.len());
                    }
                }
                _ => {}
            }
            if self.batch_bytes >= self.batch_bytes_max {
                self.move_batch(pacer)?;
            }
        }
        Ok(())
    }

    /// Which operations have a value outside of its leaf follows from no option: that may have differed at each opening.
    fn collect_frame(&mut self, body_lsn: Lsn, body: &[u8]) {
        let mut ops = Ops::new(body);
        while let Ok(Some((table, op, end))) = ops.next() {
            if let Op::Put { key, value, .. } = op
                && !value.is_empty()
            {
                self.push(table, key, body_lsn.advance((end - value.len()) as u32), value.len() as u32);
            }
        }
    }

    fn push(&mut self, table: TableId, key: &[u8], lsn: Lsn, len: u32) {
        self.batch_bytes += size_of::<ValueAt>() + key.len();
        self.batch.push(ValueAt { table, key: key.into(), lsn, len });
    }

    /// Makes a node dirty if one of its records is the one at `lsn`.
    fn move_node(&mut self, lsn: Lsn, body: &[u8], pacer: &mut Pacer<'_>) -> Result<()> {
        let Some(table) = table_of_node(body).ok().and_then(|id| self.table(id)) else { return Ok(()) };
        let tree = table.index.base();
        if let Some(bytes) = tree.rewrite_if_live(lsn, body).or_error()? {
            self.moved_bytes += bytes;
            self.keep_pace(&table, 0, pacer);
        }
        Ok(())
    }

    /// Moves the values of the batch that are live, in the order of their keys.
    fn move_batch(&mut self, pacer: &mut Pacer<'_>) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        batch.sort_unstable_by(|a, b| (a.table, &a.key).cmp(&(b.table, &b.key)));
        for found in batch {
            let Some(table) = self.table(found.table) else { continue };
            match self.move_value(&table, &found) {
                Ok(0) => {}
                Ok(bytes) => self.keep_pace(&table, bytes, pacer),
                Err(error @ (Error::Damaged(_) | Error::Io { .. })) => {
                    tracing::warn!(%error, "a value could not be moved");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Moves the bytes of a value if its key refers to them; returns how many bytes that were.
    fn move_value(&mut self, table: &TableState, found: &ValueAt) -> Result<u64> {
        let ValueAt { key, lsn, len, .. } = found;
        let tree = table.index.base();
        let Some((csn, value)) = tree.find_extent(key, *lsn).or_error()? else { return Ok(0) };
        let bytes = self.read_verified(table.id, key, csn, &value, (*lsn, *len))?;
        let log = &self.checkpointer.shared.log;
        let owner = ValueOwner { table: table.id, key };
        let to = log.append_moved(owner, csn, &bytes).or_error()?;
        self.checkpointer.shared.hooks.reached("value copied");
        // If the version was pruned since, the copy is dead.
        tree.relocate(key, csn, *lsn, to).or_error()?;
        self.moved_bytes += u64::from(*len);
        Ok(u64::from(*len))
    }

    fn read_verified(
        &self,
        table: TableId,
        key: &[u8],
        csn: Csn,
        value: &OutOfLine,
        (lsn, len): (Lsn, u32),
    ) -> Result<Vec<u8>> {
        let log = &self.checkpointer.shared.log;
        if value.extents.len() > 1 {
            return log.read_bytes_in_record(lsn, len).or_error();
        }
        let bytes = log.read_bytes(lsn, len).or_error()?;
        if seal_checksum(value_checksum(table, key, &[&bytes]), csn) != value.checksum {
            let what = format!("the {len} bytes of a value fail their checksum");
            return Err(Error::of_log(log.damage_at(lsn, what)));
        }
        Ok(bytes)
    }

    /// Notes bytes that were moved, and pauses as the pace of the checkpoint says.
    fn keep_pace(&self, table: &TableState, copied_bytes: u64, pacer: &mut Pacer<'_>) {
        table.index.base().memory().wait_for_room(LoadFor::Maintenance);
        pacer.wrote(copied_bytes);
        pacer.keep_pace(|| self.checkpointer.look());
        yield_now();
    }
}
