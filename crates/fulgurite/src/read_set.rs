//! What a read-write transaction has read: what commit validates.

use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

use fulgurite_types::{Csn, TableId};
use smallvec::SmallVec;

use crate::catalog::TableState;
use crate::deleted_ranges::DeletedRange;
use crate::live_reads::{LiveRead, LiveReads};
use crate::read_keys::{ReadKey, ReadKeys};
use crate::read_ranges::ReadRanges;
use crate::write_set::Budget;
use crate::{Error, Isolation, Result};

/// The ranges of one table that were read.
struct TableRanges {
    table: Arc<TableState>,
    all: ReadRanges,
    /// Parts of them that were deleted afterwards.
    deleted: ReadRanges,
}

/// The reads of one transaction.
///
/// Serializable, all of them are validated. Under snapshot isolation only those of what is written, too: a key that is
/// put is looked for here, and what lies in a range that is deleted is moved to what is validated.
pub(crate) struct ReadSet {
    isolation: Isolation,
    /// The newest commit above [`Durability::Async`](crate::Durability::Async) that had a number when the transaction
    /// began. Who wrote what is newer takes the risk that a crash undoes it.
    synchronous: Csn,
    live: LiveReads,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    keys: ReadKeys,
    /// By table; mostly there is one.
    ranges: SmallVec<[TableRanges; 1]>,
    range_bytes: usize,
    needs: Csn,
}

impl Inner {
    fn bytes(&self) -> usize {
        self.keys.bytes() + self.range_bytes
    }

    /// Where the ranges of a table are, or belong.
    fn place(&self, table: TableId) -> std::result::Result<usize, usize> {
        self.ranges.binary_search_by_key(&table, |ranges| ranges.table.id)
    }

    fn has_range_with(&self, table: TableId, key: &[u8]) -> bool {
        self.place(table).is_ok_and(|place| self.ranges[place].all.contains(key))
    }
}

/// What commit validates of what was read.
pub(crate) struct Validated {
    isolation: Isolation,
    keys: ReadKeys,
    ranges: SmallVec<[TableRanges; 1]>,
    live: Option<LiveRead>,
}

impl Validated {
    pub fn keys(&self) -> impl Iterator<Item = ReadKey<'_>> {
        let all = self.isolation == Isolation::Serializable;
        self.keys.iter().filter(move |key| all || key.is_validated)
    }

    /// The tables with ranges, and those.
    pub fn ranges(&self) -> impl Iterator<Item = (&Arc<TableState>, &ReadRanges)> {
        let all = self.isolation == Isolation::Serializable;
        self.ranges
            .iter()
            .map(move |ranges| (&ranges.table, if all { &ranges.all } else { &ranges.deleted }))
            .filter(|(_, ranges)| !ranges.is_empty())
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
    /// A read set of a transaction; `synchronous` was taken after its snapshot.
    pub fn new(isolation: Isolation, synchronous: Csn) -> ReadSet {
        ReadSet { isolation, synchronous, live: LiveReads::new(isolation), inner: RefCell::default() }
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

    /// Notes a read of a range. Fails as [`ReadSet::key`] does. What is taken from one end of a table, key by key, is one
    /// range.
    pub fn range(
        &self,
        table: &Arc<TableState>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        budget: Budget,
    ) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        let place = inner.place(table.id).or_else(|place| {
            budget.check(inner.bytes() + size_of::<TableRanges>())?;
            let (all, deleted) = (ReadRanges::default(), ReadRanges::default());
            inner.ranges.insert(place, TableRanges { table: table.clone(), all, deleted });
            inner.range_bytes += size_of::<TableRanges>();
            Ok::<_, Error>(place)
        })?;
        let others = inner.bytes() - inner.ranges[place].all.bytes();
        let all = &mut inner.ranges[place].all;
        let before = all.bytes();
        let added = all.add((start, end), budget.beside(others));
        inner.range_bytes = inner.range_bytes - before + inner.ranges[place].all.bytes();
        added
    }

    /// Notes that a range is deleted: what was read of it was read and written.
    pub fn delete_range(&self, table: &Arc<TableState>, range: &DeletedRange) {
        if self.isolation == Isolation::Serializable {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        inner.keys.validate_if(|id, key| id == table.id && range.covers(key));
        let Ok(place) = inner.place(table.id) else { return };
        let TableRanges { all, deleted, .. } = &mut inner.ranges[place];
        let before = deleted.bytes();
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        for part in all.common((Bound::Included(&range.start), end)) {
            deleted.add(part, Budget::new(usize::MAX)).expect("anything fits");
        }
        let after = deleted.bytes();
        inner.range_bytes = inner.range_bytes - before + after;
    }

    /// Notes that a version of `csn` was seen.
    pub fn saw(&self, csn: Csn) {
        let mut inner = self.inner.borrow_mut();
        inner.needs = inner.needs.max(csn.min(self.synchronous));
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
        inner.keys.contains(table, key, hash) || inner.has_range_with(table, key)
    }

    /// The keys and the ranges that commit validates.
    pub fn into_validated(self) -> Validated {
        let Inner { keys, ranges, .. } = self.inner.into_inner();
        Validated { isolation: self.isolation, keys, ranges, live: self.live.into_first() }
    }
}
