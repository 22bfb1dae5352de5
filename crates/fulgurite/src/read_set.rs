//! The reads of a read-write transaction, for validation at commit.

use std::cell::RefCell;
use std::sync::Arc;

use fulgurite_types::{Csn, KeySpan, TableId};
use smallvec::SmallVec;

use crate::catalog::TableState;
use crate::key_range::GivenRange;
use crate::live_reads::{LiveRead, LiveReads};
use crate::read_keys::{ReadKey, ReadKeys};
use crate::read_ranges::ReadRanges;
use crate::write_set::Budget;
use crate::{Error, Isolation, Result};

/// The ranges of one table that were read.
struct TableRanges {
    table: Arc<TableState>,
    all: ReadRanges,
    /// What the transaction deleted of them afterwards.
    deleted: ReadRanges,
}

/// The reads of one transaction.
///
/// A serializable transaction validates all of them. Under snapshot isolation commit validates only the reads of keys
/// that the transaction writes, too: a put looks its key up here, and a range delete marks the reads inside its range.
pub(crate) struct ReadSet {
    isolation: Isolation,
    /// The newest commit above [`Durability::Async`](crate::Durability::Async) that had a number when the transaction
    /// began. Newer commits in its snapshot are asynchronous: their writers accepted that a crash may undo them.
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

    /// The index of a table's ranges, or `Err` with the index to insert them at.
    fn index_of(&self, table: TableId) -> std::result::Result<usize, usize> {
        self.ranges.binary_search_by_key(&table, |ranges| ranges.table.id)
    }

    fn has_range_with(&self, table: TableId, key: &[u8]) -> bool {
        self.index_of(table).is_ok_and(|index| self.ranges[index].all.contains(key))
    }
}

/// The reads of a transaction at its commit; gives those to validate.
pub(crate) struct Validated {
    isolation: Isolation,
    synchronous: Csn,
    inner: Inner,
    live: Option<LiveRead>,
}

impl Validated {
    pub fn keys(&self) -> impl Iterator<Item = ReadKey<'_>> {
        let all = self.isolation == Isolation::Serializable;
        self.inner.keys.iter().filter(move |key| all || key.is_validated)
    }

    /// The ranges to validate, by table.
    pub fn ranges(&self) -> impl Iterator<Item = (&Arc<TableState>, &ReadRanges)> {
        let all = self.isolation == Isolation::Serializable;
        self.inner
            .ranges
            .iter()
            .map(move |ranges| (&ranges.table, if all { &ranges.all } else { &ranges.deleted }))
            .filter(|(_, ranges)| !ranges.is_empty())
    }

    /// When the first value that was read live expires, in milliseconds; `u64::MAX` if none does.
    pub fn live_until_ms(&self) -> u64 {
        self.live.as_ref().map_or(u64::MAX, |live| live.expires_at_ms)
    }

    /// The reads of a transaction that does not commit yet.
    pub fn into_reads(self) -> ReadSet {
        let Validated { isolation, synchronous, inner, live } = self;
        ReadSet { isolation, synchronous, live: LiveReads::with(isolation, live), inner: RefCell::new(inner) }
    }

    /// The error of a commit that would happen at or after that time.
    pub fn too_late(&self) -> Error {
        self.live.as_ref().expect("without one any time will do").conflict()
    }
}

impl ReadSet {
    /// A read set of a transaction; `synchronous` was read after its snapshot was taken.
    pub fn new(isolation: Isolation, synchronous: Csn) -> ReadSet {
        ReadSet { isolation, synchronous, live: LiveReads::new(isolation), inner: RefCell::default() }
    }

    /// About how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        self.inner.borrow().bytes()
    }

    /// Records a read of one key. Fails if that would exceed the budget; then nothing is recorded, and the caller must
    /// not return the value.
    pub fn key(&self, table: &Arc<TableState>, key: &[u8], hash: u64, budget: Budget) -> Result<()> {
        self.note(table, key, hash, false, budget)
    }

    /// Records a read of a key that commit must validate at any isolation level. Fails like [`ReadSet::key`].
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

    /// Records a read of a range. Fails like [`ReadSet::key`]. Adjoining ranges become one: entries that are popped one
    /// by one from the end of a table take the memory of one range.
    pub fn range(&self, table: &Arc<TableState>, range: GivenRange<'_>, budget: Budget) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        let index = inner.index_of(table.id).or_else(|index| {
            budget.check(inner.bytes() + size_of::<TableRanges>())?;
            let (all, deleted) = (ReadRanges::default(), ReadRanges::default());
            inner.ranges.insert(index, TableRanges { table: table.clone(), all, deleted });
            inner.range_bytes += size_of::<TableRanges>();
            Ok::<_, Error>(index)
        })?;
        let others = inner.bytes() - inner.ranges[index].all.bytes();
        let all = &mut inner.ranges[index].all;
        let before = all.bytes();
        let added = all.add(range, budget.beside(others));
        inner.range_bytes = inner.range_bytes - before + inner.ranges[index].all.bytes();
        added
    }

    /// Records a range delete: what was read inside the range now counts as read and written.
    pub fn delete_range(&self, table: &Arc<TableState>, range: KeySpan<&[u8]>) {
        if self.isolation == Isolation::Serializable {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        inner.keys.validate_if(|id, key| id == table.id && range.contains(key));
        let Ok(index) = inner.index_of(table.id) else { return };
        let TableRanges { all, deleted, .. } = &mut inner.ranges[index];
        let before = deleted.bytes();
        for common in all.common(GivenRange::new(range)) {
            deleted.add(common, Budget::new(usize::MAX)).expect("anything fits");
        }
        let after = deleted.bytes();
        inner.range_bytes = inner.range_bytes - before + after;
    }

    /// Records that a version of commit `csn` was seen.
    pub fn saw(&self, csn: Csn) {
        let mut inner = self.inner.borrow_mut();
        inner.needs = inner.needs.max(csn.min(self.synchronous));
    }

    /// The values that were read live and expire.
    pub fn live(&self) -> &LiveReads {
        &self.live
    }

    /// The CSN up to which commits have to be durable before any result that depends on the reads may leave the
    /// process. At or above the newest commit above [`Durability::Async`](crate::Durability::Async) that was seen.
    pub fn needs(&self) -> Csn {
        self.inner.borrow().needs
    }

    /// Whether the transaction read the key before.
    pub fn has_read(&self, table: TableId, key: &[u8], hash: u64) -> bool {
        let inner = self.inner.borrow();
        inner.keys.contains(table, key, hash) || inner.has_range_with(table, key)
    }

    /// The reads, from which commit takes those that it validates.
    pub fn into_validated(self) -> Validated {
        let ReadSet { isolation, synchronous, live, inner } = self;
        Validated { isolation, synchronous, inner: inner.into_inner(), live: live.into_first() }
    }
}
