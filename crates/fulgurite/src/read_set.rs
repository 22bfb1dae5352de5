//! What a read-write transaction has read: what commit validates.

use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

use fulgurite_base::{Csn, TableId};

use crate::catalog::TableState;
use crate::deleted_ranges::DeletedRange;
use crate::live_reads::{LiveRead, LiveReads};
use crate::read_keys::{ReadKey, ReadKeys};
use crate::write_set::Budget;
use crate::{Error, Isolation, Result};

/// A range that was read.
pub(crate) struct ReadRange {
    pub table: Arc<TableState>,
    pub start: Bound<Box<[u8]>>,
    pub end: Bound<Box<[u8]>>,
}

impl ReadRange {
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (as_ref(&self.start), as_ref(&self.end))
    }

    /// What it takes in memory, in bytes, about.
    fn memory(&self) -> usize {
        let len = |bound: &Bound<Box<[u8]>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => 16 + key.len(),
            Bound::Unbounded => 0,
        };
        // The list doubles when it grows.
        2 * size_of::<ReadRange>() + len(&self.start) + len(&self.end)
    }

    fn covers(&self, table: TableId, key: &[u8]) -> bool {
        let after_start = match &self.start {
            Bound::Included(start) => **start <= *key,
            Bound::Excluded(start) => **start < *key,
            Bound::Unbounded => true,
        };
        let before_end = match &self.end {
            Bound::Included(end) => *key <= **end,
            Bound::Excluded(end) => *key < **end,
            Bound::Unbounded => true,
        };
        self.table.id == table && after_start && before_end
    }

    /// What this has in common with a range of the same table; `None` if that is nothing.
    fn meet(&self, other: &DeletedRange) -> Option<ReadRange> {
        let start = match &self.start {
            Bound::Included(start) | Bound::Excluded(start) if **start >= *other.start => self.start.clone(),
            _ => Bound::Included(other.start.clone()),
        };
        let end = match (&self.end, &other.end) {
            (Bound::Included(own), Some(end)) if *own < *end => self.end.clone(),
            (Bound::Excluded(own), Some(end)) if *own <= *end => self.end.clone(),
            (_, Some(end)) => Bound::Excluded(end.clone()),
            (_, None) => self.end.clone(),
        };
        let is_empty = match (&start, &end) {
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start >= end,
            _ => false,
        };
        (!is_empty).then(|| ReadRange { table: self.table.clone(), start, end })
    }
}

/// Of how many ends of tables a transaction may take in turn so that each has one range in its read set. Looking further back
/// would cost as much as there are ranges.
const GROWING_MAX: usize = 16;

/// Whether a range that ends at `end` has all keys of one that ends at `other`, both at an included key.
fn is_behind(end: Bound<&[u8]>, other: Bound<&[u8]>) -> bool {
    matches!((end, other), (Bound::Included(end), Bound::Included(other)) if other <= end)
}

/// Whether a range that starts at `start` has all keys of one that starts at `other`, both at an included key.
fn is_before(start: Bound<&[u8]>, other: Bound<&[u8]>) -> bool {
    matches!((start, other), (Bound::Included(start), Bound::Included(other)) if start <= other)
}

fn owned(bound: Bound<&[u8]>) -> Bound<Box<[u8]>> {
    bound.map(Box::<[u8]>::from)
}

fn as_ref(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The reads of one transaction.
///
/// Serializable, all of them are validated. Under snapshot isolation only those of what is written, too: a key that is
/// put is looked for here, and what lies in a range that is deleted is moved to what is validated.
pub(crate) struct ReadSet {
    isolation: Isolation,
    /// The newest commit above [`Durability::Async`](crate::Durability::Async) that had a number when the transaction
    /// began. Who wrote what is newer takes the risk that a crash undoes it.
    strong: Csn,
    live: LiveReads,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    keys: ReadKeys,
    ranges: Vec<ReadRange>,
    /// Parts of `ranges` that were deleted afterwards.
    deleted: Vec<ReadRange>,
    range_bytes: usize,
    needs: Csn,
}

impl Inner {
    fn bytes(&self) -> usize {
        self.keys.bytes() + self.range_bytes
    }
}

/// What commit validates of what was read.
pub(crate) struct Validated {
    isolation: Isolation,
    keys: ReadKeys,
    pub ranges: Vec<ReadRange>,
    live: Option<LiveRead>,
}

impl Validated {
    pub fn keys(&self) -> impl Iterator<Item = ReadKey<'_>> {
        let all = self.isolation == Isolation::Serializable;
        self.keys.iter().filter(move |key| all || key.is_validated)
    }

    /// Until when all that was read live is so; `u64::MAX` if nothing of it expires.
    pub fn live_until_ms(&self) -> u64 {
        self.live.as_ref().map_or(u64::MAX, |live| live.expires_at_ms)
    }

    /// Why a commit that would happen then or later fails.
    pub fn too_late(&self) -> Error {
        self.live.as_ref().expect("without one any time will do").conflict()
    }
}

impl ReadSet {
    /// A read set of a transaction; `strong` was taken after its snapshot.
    pub fn new(isolation: Isolation, strong: Csn) -> ReadSet {
        ReadSet { isolation, strong, live: LiveReads::new(isolation), inner: RefCell::default() }
    }

    /// The memory that it takes, in bytes, about.
    pub fn bytes(&self) -> usize {
        self.inner.borrow().bytes()
    }

    /// Notes a read of one key. Fails if that outgrows the budget; then nothing is noted, and nothing may be told of it.
    pub fn key(&self, table: &Arc<TableState>, key: &[u8], hash: u64, budget: Budget) -> Result<()> {
        self.note(table, key, hash, false, budget)
    }

    /// Notes a read of a key that commit must validate at any isolation level. Fails as [`ReadSet::key`] does.
    pub fn key_for_update(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        hash: u64,
        budget: Budget,
    ) -> Result<()> {
        self.note(table, key, hash, true, budget)
    }

    fn note(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        hash: u64,
        is_validated: bool,
        budget: Budget,
    ) -> Result<()> {
        let Inner { keys, range_bytes, .. } = &mut *self.inner.borrow_mut();
        keys.note(table, key, hash, is_validated, budget.beside(*range_bytes))
    }

    /// Notes a read of a range. Fails as [`ReadSet::key`] does.
    pub fn range(
        &self,
        table: &Arc<TableState>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        budget: Budget,
    ) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        if inner.ranges.last().is_some_and(|last| last.table.id == table.id && last.bounds() == (start, end))
        {
            return Ok(());
        }
        let range = ReadRange { table: table.clone(), start: owned(start), end: owned(end) };
        budget.check(inner.bytes() + range.memory())?;
        inner.range_bytes += range.memory();
        inner.ranges.push(range);
        Ok(())
    }

    /// Notes a read of a range, in the place of a recent one that is a part of it: what is taken from one end of a table, key
    /// by key, is one range, also if it is taken from several ends in turn. Fails as [`ReadSet::key`] does.
    pub fn grown_range(
        &self,
        table: &Arc<TableState>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        budget: Budget,
    ) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        let Inner { ranges, range_bytes, .. } = &mut *inner;
        let grows = |range: &&mut ReadRange| {
            let (old_start, old_end) = range.bounds();
            range.table.id == table.id
                && ((start == old_start && is_behind(end, old_end))
                    || (end == old_end && is_before(start, old_start)))
        };
        if let Some(range) = ranges.iter_mut().rev().take(GROWING_MAX).find(grows) {
            let before = range.memory();
            (range.start, range.end) = (owned(start), owned(end));
            *range_bytes = *range_bytes + range.memory() - before;
            return Ok(());
        }
        drop(inner);
        self.range(table, start, end, budget)
    }

    /// Notes that a range is deleted: what was read of it was read and written.
    pub fn delete_range(&self, table: &Arc<TableState>, range: &DeletedRange) {
        if self.isolation == Isolation::Serializable {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        let Inner { keys, ranges, deleted, range_bytes, .. } = &mut *inner;
        keys.validate_if(|id, key| id == table.id && range.covers(key));
        let of_table = ranges.iter().filter(|read| read.table.id == table.id);
        for part in of_table.filter_map(|read| read.meet(range)) {
            *range_bytes += part.memory();
            deleted.push(part);
        }
    }

    /// Notes that a version of `csn` was seen.
    pub fn saw(&self, csn: Csn) {
        let mut inner = self.inner.borrow_mut();
        inner.needs = inner.needs.max(csn.min(self.strong));
    }

    /// Where it is noted what was read live and expires.
    pub fn live(&self) -> &LiveReads {
        &self.live
    }

    /// What has to be durable before anything is told that depends on what was read. At or above the newest commit
    /// above [`Durability::Async`](crate::Durability::Async) among those that were seen, and before them.
    pub fn needs(&self) -> Csn {
        self.inner.borrow().needs
    }

    /// Whether the transaction read the key before.
    pub fn has_read(&self, table: TableId, key: &[u8], hash: u64) -> bool {
        let inner = self.inner.borrow();
        inner.keys.contains(table, key, hash) || inner.ranges.iter().any(|range| range.covers(table, key))
    }

    /// The keys and the ranges that commit validates.
    pub fn into_validated(self) -> Validated {
        let Inner { keys, ranges, deleted, .. } = self.inner.into_inner();
        let ranges = if self.isolation == Isolation::Serializable { ranges } else { deleted };
        Validated { isolation: self.isolation, keys, ranges, live: self.live.into_first() }
    }
}
