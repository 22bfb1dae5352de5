//! The first and the last entry of a table or range: reading them, and popping them, as from a queue or a stack.

use fulgurite_index::Io;
use fulgurite_types::{KeySpan, hash_key, key_after};

use super::Transaction;
use crate::claims::{Claim, Claiming};
use crate::error::OrError;
use crate::key_range::{given, span_of};
use crate::live_reads::ReadFor;
use crate::scan::{Range, RangeSnapshot};
use crate::snapshot::Snapshot;
use crate::{Isolation, KeyRange, Result, Table, Value};

/// The end of a range at which entries are read or popped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl End {
    fn next(self, range: &mut Range<'_>) -> Result<Option<(Value, Value)>> {
        match self {
            End::First => range.next().transpose(),
            End::Last => range.next_back().transpose(),
        }
    }
}

/// An entry to pop.
struct Unclaimed {
    key: Value,
    value: Value,
    /// `None`: the transaction has claimed the key already.
    claim: Option<Claim>,
    hash: u64,
}

impl Transaction {
    /// The entry of `range` with the smallest key, own writes included; `None` if there is none. Counts as a read of
    /// the range up to and including that key, not of the rest.
    ///
    /// # Errors
    /// Those of [`Transaction::range`] and of its entries; the transaction continues.
    pub fn first(&self, table: &Table, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        self.end_of(table, &range, End::First)
    }

    /// The entry of `range` with the greatest key; see [`Transaction::first`]. Counts as a read of the range from that
    /// key on.
    ///
    /// # Errors
    /// Those of [`Transaction::first`].
    pub fn last(&self, table: &Table, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        self.end_of(table, &range, End::Last)
    }

    /// Deletes the entry of `range` with the smallest key, and returns it; `None` if there is none.
    ///
    /// **It skips no entry, unlike [`Table::pop_first`]**, which skips those that other open transactions have popped.
    /// If another transaction commits the deletion of the entry first, this one's commit fails with
    /// [`Error::Conflict`](crate::Error::Conflict). Workers that accept any entry use
    /// [`Transaction::pop_first_unclaimed`]. The cost does not grow with the number of entries popped before.
    ///
    /// # Errors
    /// Those of [`Transaction::first`] and [`Transaction::delete`]: nothing was deleted, the transaction continues.
    pub fn pop_first(&mut self, table: &Table, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        self.pop(table, &range, End::First)
    }

    /// Deletes the entry of `range` with the greatest key, and returns it; see [`Transaction::pop_first`].
    ///
    /// # Errors
    /// Those of [`Transaction::pop_first`].
    pub fn pop_last(&mut self, table: &Table, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        self.pop(table, &range, End::Last)
    }

    /// Deletes and returns the entry of `range` with the smallest key that no other open transaction has popped, by
    /// this or any other pop; `None` if there is none. SQL calls this `SKIP LOCKED`: workers at one queue get an entry
    /// each, and none of them waits for or conflicts with the others.
    ///
    /// If this transaction does not commit, the entry stays in the table under its key, so entries may be popped out of
    /// order. An entry that was changed since this transaction began is skipped, too. `None` does not mean that the
    /// range is empty: the entries in it may be claimed. Only the returned entry counts as read, whatever the
    /// [`Isolation`].
    ///
    /// ```
    /// use fulgurite::{Database, Options};
    ///
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(&dir.path().join("data"), Options::default())?;
    /// let jobs = db.table("jobs")?;
    /// jobs.put("1", "write")?;
    /// jobs.put("2", "read")?;
    /// let (mut one, mut other) = (db.begin(), db.begin());
    /// assert_eq!(*one.pop_first_unclaimed(&jobs, ..)?.unwrap().1, *b"write");
    /// assert_eq!(*other.pop_first_unclaimed(&jobs, ..)?.unwrap().1, *b"read");
    /// other.commit()?;
    /// one.rollback();
    /// assert_eq!(*jobs.first(..)?.unwrap().1, *b"write");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::pop_first`].
    pub fn pop_first_unclaimed(
        &mut self,
        table: &Table,
        range: impl KeyRange,
    ) -> Result<Option<(Value, Value)>> {
        self.pop_unclaimed(table, span_of(&range)?, End::First)
    }

    /// Deletes and returns the entry of `range` with the greatest key that no other open transaction has popped; see
    /// [`Transaction::pop_first_unclaimed`].
    ///
    /// # Errors
    /// Those of [`Transaction::pop_first`].
    pub fn pop_last_unclaimed(
        &mut self,
        table: &Table,
        range: impl KeyRange,
    ) -> Result<Option<(Value, Value)>> {
        self.pop_unclaimed(table, span_of(&range)?, End::Last)
    }

    fn end_of(&self, table: &Table, range: &impl KeyRange, end: End) -> Result<Option<(Value, Value)>> {
        self.engine.reads.step(&self.snapshot, || self.read_end(table, range, end))
    }

    fn read_end(&self, table: &Table, range: &impl KeyRange, end: End) -> Result<Option<(Value, Value)>> {
        let span = span_of(range)?;
        let mut found = None;
        for left in self.unemptied(table, &span, end)? {
            let range = self.unread_range(table, left)?;
            found = end.next(&mut range.noting(self.reads.live()))?;
            if found.is_some() {
                break;
            }
        }
        let mut read = given(range, &span);
        let after = found.as_ref().map(|(key, _)| key_after(key));
        match (&found, end) {
            (None, _) => {}
            (Some(_), End::First) => {
                read.span.end = after.as_deref();
                read.ends_with_key = true;
            }
            (Some((key, _)), End::Last) => {
                read.span.start = key;
                read.starts_after_key = false;
            }
        }
        self.reads.range(&table.state, read, self.budget_of_reads(read.span.start.len())?)?;
        Ok(found)
    }

    /// The ranges within a range where this transaction may find entries, starting at `end`. Records that the snapshot was
    /// seen.
    fn unemptied(&self, table: &Table, span: &KeySpan, end: End) -> Result<Vec<KeySpan>> {
        self.mine(table)?;
        table.state.check_seen(self.snapshot.csn)?;
        self.reads.saw(self.snapshot.csn);
        let mut ranges = self.taken.around(table.state.id, span.clone());
        if end == End::Last {
            ranges.reverse();
        }
        Ok(ranges)
    }

    /// Deletes the entry of `key`. No entry is left between it and the end of `span` or, if entries were skipped on
    /// the way to it, the key that was `passed` last.
    fn take(
        &mut self,
        table: &Table,
        span: &KeySpan,
        end: End,
        passed: Option<&[u8]>,
        key: &[u8],
    ) -> Result<()> {
        self.delete(table, key)?;
        let keys = match end {
            End::First => {
                let start = passed.map_or_else(|| span.start.clone(), key_after);
                KeySpan::new(start, Some(key_after(key)))
            }
            End::Last => KeySpan::new(key.into(), passed.map(Box::from).or_else(|| span.end.clone())),
        };
        self.taken.took(table.state.id, keys);
        Ok(())
    }

    /// The entries of a range. Does not count as a read.
    pub(super) fn unread_range(&self, table: &Table, span: KeySpan) -> Result<Range<'_>> {
        let own = self.writes.of_table(table.state.id);
        Range::new(&self.engine, &table.state, span, own, RangeSnapshot::Borrowed(&self.snapshot))
    }

    fn pop(&mut self, table: &Table, range: &impl KeyRange, end: End) -> Result<Option<(Value, Value)>> {
        let Some((key, value)) = self.end_of(table, range, end)? else { return Ok(None) };
        self.take(table, &span_of(range)?, end, None, &key)?;
        let id = self.identity();
        let savepoints = self.savepoints.made();
        // If another transaction has claimed the key, the first of the two to commit wins.
        if let Claiming::Done(claim) = Claim::try_new(&table.state, &key, id, savepoints) {
            self.claims.push(claim);
        }
        Ok(Some((key, value)))
    }

    fn pop_unclaimed(&mut self, table: &Table, span: KeySpan, end: End) -> Result<Option<(Value, Value)>> {
        self.engine.reads.begin_step(&self.snapshot)?;
        let popped = self.pop_next_unclaimed(table, span, end);
        self.engine.reads.end_step(&self.snapshot, popped)
    }

    fn pop_next_unclaimed(
        &mut self,
        table: &Table,
        span: KeySpan,
        end: End,
    ) -> Result<Option<(Value, Value)>> {
        let id = self.identity();
        let savepoints = self.savepoints.made();
        let mut passed = None;
        let mut popped = None;
        for left in self.unemptied(table, &span, end)? {
            popped = self.next_unclaimed(table, left, end, (id, savepoints), &mut passed)?;
            if popped.is_some() {
                break;
            }
        }
        let Some(Unclaimed { key, value, claim, hash }) = popped else { return Ok(None) };
        self.reads.key(&table.state, &key, hash, self.budget_of_reads(key.len())?)?;
        if self.isolation == Isolation::Serializable && self.writes.own(table.state.id, &key, hash).is_none()
        {
            // A serializable transaction may commit only before the entry expires.
            self.version(&table.state, &key, hash, ReadFor::Reading)?;
        }
        self.take(table, &span, end, passed.as_deref(), &key)?;
        self.claims.extend(claim);
        Ok(Some((key, value)))
    }

    /// The next entry of a range, from one end, that can be claimed. `passed` gets the key of the last one skipped.
    fn next_unclaimed(
        &self,
        table: &Table,
        range: KeySpan,
        end: End,
        (id, savepoints): (u64, u64),
        passed: &mut Option<Value>,
    ) -> Result<Option<Unclaimed>> {
        let mut range = self.unread_range(table, range)?;
        while let Some((key, value)) = end.next(&mut range)? {
            let claim = match Claim::try_new(&table.state, &key, id, savepoints) {
                Claiming::Done(claim) => Some(claim),
                Claiming::Own => None,
                Claiming::Taken => {
                    *passed = Some(key);
                    continue;
                }
            };
            self.engine.hooks.reached("entry claimed");
            // A claim ends after its transaction was applied, so this check sees what the last claimer of the key
            // wrote.
            let hash = hash_key(table.state.id, &key);
            if table.state.index.newest_csn(&key, hash, self.snapshot.csn, Io::Allowed).or_error()?.is_none()
            {
                return Ok(Some(Unclaimed { key, value, claim, hash }));
            }
            *passed = Some(key);
        }
        Ok(None)
    }
}

impl Snapshot {
    /// The entry of `range` with the smallest key; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`Snapshot::range`] and of its entries.
    pub fn first(&self, table: &Table, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        End::First.next(&mut self.range(table, range)?)
    }

    /// The entry of `range` with the greatest key; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`Snapshot::range`] and of its entries.
    pub fn last(&self, table: &Table, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        End::Last.next(&mut self.range(table, range)?)
    }
}

impl Table {
    /// The entry of `range` with the smallest key, in a new snapshot; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`Table::range`] and of its entries.
    pub fn first(&self, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        End::First.next(&mut self.range(range)?)
    }

    /// The entry of `range` with the greatest key, in a new snapshot; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`Table::range`] and of its entries.
    pub fn last(&self, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        End::Last.next(&mut self.range(range)?)
    }

    /// Deletes and returns the entry of `range` with the smallest key that no open transaction has popped; `None` if
    /// there is none. By default the deletion is durable when this returns.
    ///
    /// **It skips entries that open transactions have popped, unlike [`Transaction::pop_first`]**: it is the
    /// single-call form of [`Transaction::pop_first_unclaimed`].
    ///
    /// If the work on an entry may fail, pop the entry inside a transaction that does the work, too.
    ///
    /// # Errors
    /// [`Error::TooManyConflicts`](crate::Error::TooManyConflicts), and those of [`Transaction::pop_first`] and
    /// [`Transaction::commit`]. After [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) the entry may be gone.
    pub fn pop_first(&self, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        self.pop(span_of(&range)?, End::First)
    }

    /// Deletes and returns the entry of `range` with the greatest key; see [`Table::pop_first`].
    ///
    /// # Errors
    /// Those of [`Table::pop_first`].
    pub fn pop_last(&self, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        self.pop(span_of(&range)?, End::Last)
    }

    fn pop(&self, span: KeySpan, end: End) -> Result<Option<(Value, Value)>> {
        let popped = self.retry_single(|txn| txn.pop_unclaimed(self, span.clone(), end));
        popped.map(|(entry, _)| entry)
    }
}
