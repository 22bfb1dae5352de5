//! The writes of a transaction, private until it commits.

use std::sync::Arc;

use fulgurite_index::OutOfLine;
use fulgurite_types::{KeySpan, TableId, limits};
use smallvec::SmallVec;

use crate::body::{self, ChunksRef};
use crate::catalog::TableState;
use crate::deleted_ranges::{DeletedRanges, Joined};
use crate::operations::{Operations, ShortBytes};
use crate::space::need::{FRAME_BYTES, WriteCost};
use crate::{Error, Result};

/// The write of one key.
#[derive(Clone, Debug)]
pub(crate) struct WriteOp {
    pub value: WriteValue,
    /// 0: never.
    pub expires_at_ms: u64,
    /// Whether the transaction read the key before: then the first committer wins. A blind write never conflicts.
    pub read_before: bool,
    /// The key's hash, computed once.
    pub hash: u64,
}

impl WriteOp {
    /// Whether the transaction, whose time is `now_ms`, sees a value here.
    pub fn is_live_at(&self, now_ms: u64) -> bool {
        let expired = self.expires_at_ms != 0 && self.expires_at_ms <= now_ms;
        !expired && !matches!(self.value, WriteValue::Delete)
    }
}

/// The value to write.
#[derive(Clone, Debug)]
pub(crate) enum WriteValue {
    Delete,
    Inline(ShortBytes),
    /// Written ahead already.
    Chunks(Arc<(ChunksRef, OutOfLine)>),
}

/// The writes to one table.
pub(crate) struct TableWrites {
    pub table: Arc<TableState>,
    pub ops: Operations,
    /// Applied before all of `ops`: a range delete removes the earlier operations that it covers.
    pub ranges: DeletedRanges,
}

/// How to undo one step.
enum Undo {
    Op { table: TableId, key: Box<[u8]>, before: Option<WriteOp> },
    Range { table: TableId, joined: Joined },
}

/// All writes of a transaction.
#[derive(Default)]
pub(crate) struct WriteSet {
    /// By table; mostly there is one.
    pub tables: SmallVec<[TableWrites; 1]>,
    pub cost: Cost,
    /// How many times a key was written or a range deleted, undone or not.
    pub changes: u64,
    /// Newest last.
    undo: Vec<Undo>,
    savepoints: usize,
}

/// The memory and the log space of entries, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// About the bytes of memory, inline values included; `Options::transaction_bytes_max` bounds it.
    pub memory: usize,
    /// At most this many bytes of the operation list; [`body::check_operations`] bounds it, whatever the options.
    pub operations: usize,
}

impl Cost {
    /// The cost of an operation. A value that is inline now may be written as chunks at the commit.
    pub fn of(key: &[u8], op: &WriteOp) -> Cost {
        let inline = inline_len(op);
        let operations = body::op_bytes_max(key.len(), inline).max(body::chunks_op_bytes_max(key.len()));
        Cost { memory: ENTRY_OVERHEAD_BYTES + key.len() + inline, operations }
    }

    pub fn of_range(range: &KeySpan) -> Cost {
        let end = range.end.as_ref().map_or(0, |end| end.len());
        Cost {
            memory: ENTRY_OVERHEAD_BYTES + range.start.len() + end,
            operations: body::op_bytes_max(range.start.len(), end),
        }
    }

    /// The cost of the undo entry that a savepoint keeps for an overwritten key.
    fn of_undo(key: &[u8], before: Option<&WriteOp>) -> Cost {
        let memory = size_of::<Undo>() + key.len() + before.map_or(0, inline_len);
        Cost { memory, operations: 0 }
    }

    /// The cost of the undo entry that a savepoint keeps for joined ranges.
    fn of_joined(joined: &Joined) -> Cost {
        let replaced: usize = joined.replaced.iter().map(|range| Cost::of_range(range).memory).sum();
        Cost { memory: size_of::<Undo>() + Cost::of_range(&joined.range).memory + replaced, operations: 0 }
    }

    fn plus(self, other: Cost) -> Cost {
        Cost { memory: self.memory + other.memory, operations: self.operations + other.operations }
    }

    fn minus(self, other: Cost) -> Cost {
        Cost { memory: self.memory - other.memory, operations: self.operations - other.operations }
    }

    /// Fails for a transaction that exceeds its budget, or is longer than recovery accepts.
    fn check(self, budget: Budget) -> Result<()> {
        budget.check(self.memory)?;
        body::check_operations(self.operations)
    }
}

/// How much memory a transaction may take, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    max: usize,
    /// What other sets of the same transaction take already.
    taken: usize,
}

impl Budget {
    pub const fn new(max: usize) -> Budget {
        Budget { max, taken: 0 }
    }

    /// The same budget beside other sets that take `bytes`.
    pub fn beside(self, bytes: usize) -> Budget {
        Budget { taken: self.taken + bytes, ..self }
    }

    /// Fails if `bytes` are too many.
    pub fn check(self, bytes: usize) -> Result<()> {
        if self.taken.saturating_add(bytes) > self.max { Err(self.exceeded(bytes)) } else { Ok(()) }
    }

    pub fn exceeded(self, bytes: usize) -> Error {
        Error::TooLarge { bytes: self.taken.saturating_add(bytes), max: self.max }
    }
}

/// About the bookkeeping of one entry: its place in a list or a tree, the operation, the version that applying it makes.
const ENTRY_OVERHEAD_BYTES: usize = 160;

impl TableWrites {
    /// Whether there are no writes, as after a rollback to a savepoint.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.ranges.is_empty()
    }
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.tables.iter().all(TableWrites::is_empty)
    }

    /// About how many bytes of keys and values it puts.
    pub fn put_bytes(&self) -> usize {
        let ops = self.tables.iter().flat_map(|writes| writes.ops.iter());
        let bytes = ops.map(|(key, op)| match &op.value {
            WriteValue::Delete => 0,
            WriteValue::Inline(value) => key.len() + value.len(),
            WriteValue::Chunks(_) => usize::MAX / 2,
        });
        bytes.fold(0, usize::saturating_add)
    }

    /// Whether any key is put, and not only deleted.
    pub fn has_puts(&self) -> bool {
        let puts =
            |writes: &TableWrites| writes.ops.iter().any(|(_, op)| !matches!(op.value, WriteValue::Delete));
        self.tables.iter().any(puts)
    }

    /// What the commit takes of the disk, now and at the next checkpoint.
    pub fn cost_on_disk(&self) -> WriteCost {
        let keys: u64 = self.tables.iter().map(|writes| writes.ops.len() as u64).sum();
        let ranges: u64 = self.tables.iter().map(|writes| writes.ranges.iter().count() as u64).sum();
        WriteCost {
            entries: keys + WriteCost::RANGE_ENTRIES * ranges,
            memory: self.cost.memory as u64,
            log_bytes: (self.cost.operations + FRAME_BYTES) as u64,
        }
    }

    fn writes(&mut self, table: &Arc<TableState>) -> &mut TableWrites {
        let index = self.index_of(table.id).unwrap_or_else(|index| {
            let writes = TableWrites {
                table: table.clone(),
                ops: Operations::default(),
                ranges: DeletedRanges::default(),
            };
            self.tables.insert(index, writes);
            index
        });
        &mut self.tables[index]
    }

    /// The index of a table's writes, or `Err` with the index to insert them at.
    fn index_of(&self, table: TableId) -> std::result::Result<usize, usize> {
        self.tables.binary_search_by_key(&table, |writes| writes.table.id)
    }

    /// The writes to a table.
    pub fn of_table(&self, table: TableId) -> Option<&TableWrites> {
        self.index_of(table).ok().map(|index| &self.tables[index])
    }

    fn written(&mut self, table: TableId) -> &mut TableWrites {
        let index = self.index_of(table).expect("the table was written");
        &mut self.tables[index]
    }

    /// The transaction's own write of a key, if any: `Some(Some(_))` is an operation, `Some(None)` a range delete that
    /// covers the key.
    pub fn own(&self, table: TableId, key: &[u8], hash: u64) -> Option<Option<&WriteOp>> {
        let writes = self.of_table(table)?;
        if let Some(op) = writes.ops.find(key, hash) {
            return Some(Some(op));
        }
        writes.ranges.covering(key).map(|_| None)
    }

    /// Writes a key. Fails, changing nothing, if the entries would exceed the budget.
    pub fn put(&mut self, table: &Arc<TableState>, key: &[u8], op: WriteOp, budget: Budget) -> Result<()> {
        let cost = self.cost.plus(Cost::of(key, &op));
        let keeps_undo = self.savepoints > 0;
        // The operation that it replaces is searched beforehand only where its cost matters.
        if keeps_undo || cost.check(budget).is_err() {
            let before = self.of_table(table.id).and_then(|writes| writes.ops.get(key));
            let cost = before.map_or(cost, |before| cost.minus(Cost::of(key, before)));
            let undo = if keeps_undo { Cost::of_undo(key, before) } else { Cost::default() };
            cost.plus(undo).check(budget)?;
        }
        self.changes += 1;
        let writes = self.writes(table);
        let before = writes.ops.insert(key, |before| WriteOp {
            read_before: op.read_before || before.is_some_and(|before| before.read_before),
            ..op
        });
        self.cost = before.as_ref().map_or(cost, |before| cost.minus(Cost::of(key, before)));
        if keeps_undo {
            self.cost = self.cost.plus(Cost::of_undo(key, before.as_ref()));
            self.undo.push(Undo::Op { table: table.id, key: key.into(), before });
        }
        Ok(())
    }

    /// Deletes a range, and removes the operations that it covers. Fails, changing nothing, if the entries would exceed
    /// the budget.
    pub fn delete_range(&mut self, table: &Arc<TableState>, range: KeySpan, budget: Budget) -> Result<()> {
        // Joining it with other ranges does not raise the cost further.
        self.cost.plus(Cost::of_range(&range)).check(budget)?;
        self.changes += 1;
        let keep_undo = self.savepoints > 0;
        let writes = self.writes(table);
        let covered: Vec<Box<[u8]>> = writes.ops.range(range.borrowed()).map(|(key, _)| key.into()).collect();
        let mut removed = Vec::with_capacity(covered.len());
        for key in covered {
            let before = writes.ops.remove(&key);
            removed.push((key, before));
        }
        let joined = writes.ranges.add(range);
        self.cost = self.cost.plus(Cost::of_range(&joined.range));
        self.cost = joined.replaced.iter().fold(self.cost, |cost, range| cost.minus(Cost::of_range(range)));
        for (key, before) in removed {
            if let Some(before) = &before {
                self.cost = self.cost.minus(Cost::of(&key, before));
            }
            if keep_undo {
                self.cost = self.cost.plus(Cost::of_undo(&key, before.as_ref()));
                self.undo.push(Undo::Op { table: table.id, key, before });
            }
        }
        if keep_undo {
            self.cost = self.cost.plus(Cost::of_joined(&joined));
            self.undo.push(Undo::Range { table: table.id, joined });
        }
        Ok(())
    }

    /// Marks this point; returns the number to give to [`WriteSet::rollback_to`].
    pub fn savepoint(&mut self) -> usize {
        self.savepoints += 1;
        self.undo.len()
    }

    /// Undoes everything since `mark`.
    pub fn rollback_to(&mut self, mark: usize) {
        while self.undo.len() > mark {
            match self.undo.pop().expect("the list is longer than the mark") {
                Undo::Range { table, joined } => {
                    self.written(table).ranges.undo(&joined);
                    let cost = self.cost.minus(Cost::of_joined(&joined));
                    let cost =
                        joined.replaced.iter().fold(cost, |cost, range| cost.plus(Cost::of_range(range)));
                    self.cost = cost.minus(Cost::of_range(&joined.range));
                }
                Undo::Op { table, key, before } => {
                    self.cost = self.cost.minus(Cost::of_undo(&key, before.as_ref()));
                    if let Some(before) = &before {
                        self.cost = self.cost.plus(Cost::of(&key, before));
                    }
                    let ops = &mut self.written(table).ops;
                    let now = match before {
                        Some(op) => ops.insert(&key, |_| op),
                        None => ops.remove(&key),
                    };
                    if let Some(op) = now {
                        self.cost = self.cost.minus(Cost::of(&key, &op));
                    }
                }
            }
        }
    }
}

fn inline_len(op: &WriteOp) -> usize {
    match &op.value {
        WriteValue::Inline(bytes) => bytes.len(),
        WriteValue::Delete | WriteValue::Chunks(_) => 0,
    }
}

/// Fails for a key that no table can hold.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > limits::KEY_BYTES_MAX { Err(Error::KeyTooLong { len: key.len() }) } else { Ok(()) }
}

/// Fails for a value that no table can hold.
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > limits::VALUE_BYTES_MAX { Err(Error::ValueTooLong { len: value.len() }) } else { Ok(()) }
}
