//! What commands read: keys and collections, all at one commit.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Bound;

use fulgurite::{Expiry, RangeLimits, Snapshot, Transaction, Value};

use super::content::{
    Bounds, NAME_BYTES_MAX, Section, member_key, members_from, section_bounds, split_member_key,
};
use super::head::{Collection, Kind};
use super::tables::{Model, head_key};
use super::text::INLINE_VALUE_BYTES_MAX;
use super::write::Old;
use crate::random::Random;
use crate::runner::Runner;
use crate::stop::{ErrorReply, Result, Stop};

/// Only a long worker reads more rows for one command.
pub(crate) const INLINE_ROWS_MAX: usize = 512;

/// Where a view reads.
#[derive(Clone, Copy)]
pub(crate) enum Source<'v> {
    /// A command that only reads.
    Snapshot(&'v Snapshot),
    /// A command that writes, or that `EXEC` runs: the heads that it reads are as they were when it commits, and live if they were.
    /// So is the content of collections, as each write to it writes the head, too.
    Transaction(&'v Transaction),
}

/// All keys at one commit.
#[derive(Clone, Copy)]
pub(crate) struct View<'v> {
    pub source: Source<'v>,
    pub model: &'v Model,
    /// Where the command runs.
    pub runner: Runner,
    pub now_ms: u64,
    pub keyspace: u32,
    /// Set by a read that passes many rows of a sorted set, and would pass few if the set were divided.
    pub has_walked: Option<&'v Cell<bool>>,
}

/// From which end rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Forward,
    Backward,
}

impl View<'_> {
    /// The head record of a key, also of one that has expired and is not reclaimed yet.
    pub fn stored(&self, key: &[u8]) -> Result<Option<Old>> {
        self.runner.step();
        let row = head_key(self.keyspace, key);
        let heads = &self.model.tables.heads;
        let found = match (self.source, self.runner.may_wait()) {
            (Source::Snapshot(snapshot), true) => snapshot.get(heads, &row)?,
            (Source::Snapshot(snapshot), false) => snapshot.try_get(heads, &row)?,
            (Source::Transaction(txn), true) => txn.get_for_update(heads, &row)?,
            (Source::Transaction(txn), false) => txn.try_get_for_update(heads, &row)?,
        };
        let Some(old) = found.map(|record| Old::decode(record, self.runner)).transpose()? else {
            return Ok(None);
        };
        if let Source::Transaction(txn) = self.source
            && old.head.expires_at_ms != 0
            && old.head.is_live(self.now_ms)
        {
            txn.commit_before(heads, &row, Expiry::at_unix_ms(old.head.expires_at_ms))?;
        }
        Ok(Some(old))
    }

    /// The record of a key that exists.
    pub fn live(&self, key: &[u8]) -> Result<Option<Old>> {
        Ok(self.stored(key)?.filter(|old| old.head.is_live(self.now_ms)))
    }

    /// The collection of a key, if that exists.
    ///
    /// # Errors
    /// `WRONGTYPE` if it is of another kind.
    pub fn collection(&self, key: &[u8], kind: Kind) -> Result<Option<Collection>> {
        self.live(key)?.map(|old| old.collection(kind)).transpose()
    }

    /// A row of the content of collections.
    pub fn row(&self, row: &[u8]) -> Result<Option<Value>> {
        self.runner.step();
        let content = &self.model.tables.content;
        let found = match (self.source, self.runner.may_wait()) {
            (Source::Snapshot(snapshot), true) => snapshot.get(content, row)?,
            (Source::Snapshot(snapshot), false) => snapshot.try_get(content, row)?,
            (Source::Transaction(txn), true) => txn.get(content, row)?,
            (Source::Transaction(txn), false) => txn.try_get(content, row)?,
        };
        found.as_deref().map_or(Ok(()), |value| self.check_bytes(value))?;
        Ok(found)
    }

    /// Fails but on a long worker if a value is long: what a command does with it takes as long as it is.
    fn check_bytes(&self, value: &[u8]) -> Result<()> {
        let is_long = value.len() > INLINE_VALUE_BYTES_MAX;
        if is_long && !self.runner.may_take_long() { Err(Stop::Large) } else { Ok(()) }
    }

    /// The value of a field, or the record of a member.
    pub fn member(&self, collection: &Collection, name: &[u8]) -> Result<Option<Value>> {
        if name.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        self.row(&member_key(collection.id, self.model.hash_seed, name))
    }

    /// At most so many rows between bounds, from either end. Only on a long worker any, if they would be many.
    pub fn rows(&self, bounds: Bounds, order: Order, max: usize) -> Result<Vec<(Value, Value)>> {
        let mut rows = Vec::new();
        self.each_row(bounds, order, max, |key, value| {
            rows.push((key, value));
            Ok(true)
        })?;
        Ok(rows)
    }

    /// Calls `row` with each row between bounds, from either end, until it returns false, or so many are read. Only a long worker
    /// reads more than [`INLINE_ROWS_MAX`].
    pub fn each_row(
        &self,
        bounds: Bounds,
        order: Order,
        max: usize,
        mut row: impl FnMut(Value, Value) -> Result<bool>,
    ) -> Result<()> {
        let content = &self.model.tables.content;
        let limits = RangeLimits { entries: max.min(INLINE_ROWS_MAX), ..RangeLimits::default() };
        if self.runner.may_wait() {
            let mut range = match self.source {
                Source::Snapshot(snapshot) => snapshot.range(content, bounds)?,
                Source::Transaction(txn) => txn.range(content, bounds)?,
            };
            let mut bytes = 0;
            for number in 0..max {
                let entry = match order {
                    Order::Forward => range.next(),
                    Order::Backward => range.next_back(),
                };
                let Some(entry) = entry else { break };
                let is_too_much = number >= limits.entries || bytes >= limits.bytes;
                if is_too_much && !self.runner.may_take_long() {
                    return Err(Stop::Large);
                }
                let (key, value) = entry?;
                self.runner.step();
                self.check_bytes(&value)?;
                bytes += key.len() + value.len();
                if !row(key, value)? {
                    break;
                }
            }
            return Ok(());
        }
        let read = match (self.source, order) {
            (Source::Snapshot(snapshot), Order::Forward) => snapshot.try_range(content, bounds, limits)?,
            (Source::Snapshot(snapshot), Order::Backward) => {
                snapshot.try_range_back(content, bounds, limits)?
            }
            (Source::Transaction(txn), Order::Forward) => txn.try_range(content, bounds, limits)?,
            (Source::Transaction(txn), Order::Backward) => txn.try_range_back(content, bounds, limits)?,
        };
        let count = read.entries.len();
        for (key, value) in read.entries {
            self.check_bytes(&value)?;
            if !row(key, value)? {
                return Ok(());
            }
        }
        match read.missing {
            _ if count == max || read.rest.is_none() => Ok(()),
            Some(missing) => Err(Stop::Blocked(missing)),
            None => Err(Stop::Large),
        }
    }

    /// Fails but on a long worker if a command has so many rows to read or to write that it takes long.
    pub fn check_rows(&self, rows: u64) -> Result<()> {
        if self.runner.may_take_long() || rows <= INLINE_ROWS_MAX as u64 { Ok(()) } else { Err(Stop::Large) }
    }

    /// All fields or members of a collection, in the order of their hashes, each with its value. It calls `member` until that returns false.
    pub fn each_member(
        &self,
        collection: &Collection,
        mut member: impl FnMut(&[u8], Value) -> Result<bool>,
    ) -> Result<()> {
        self.check_rows(collection.count)?;
        let bounds = section_bounds(collection.id, Section::Members);
        self.each_row(bounds, Order::Forward, usize::MAX, |key, value| match split_member_key(&key) {
            Some((_, name)) => member(name, value),
            None => Err(damaged_row(&key)),
        })
    }
}

/// Some members, and where a scan goes on: 0 at the end.
pub(crate) struct Scanned {
    pub members: Vec<(Value, Value)>,
    pub cursor: u64,
}

/// Members that are chosen again and again take at most so many bytes.
const AGAIN_BYTES_MAX: usize = 512 << 20;

/// How many rows are read around a random place.
const RANDOM_ROWS: usize = 32;

impl View<'_> {
    /// About `count` members in the order of their hashes, from a cursor on: the hash of the next one. Whatever happens between two
    /// calls, a member that stays is in one of them. Members of one hash, should there be several, come together.
    pub fn scan_members(&self, collection: &Collection, cursor: u64, count: usize) -> Result<Scanned> {
        let bounds = members_from(collection.id, cursor);
        let mut members = self.rows(bounds, Order::Forward, count + 1)?;
        if members.len() <= count {
            return Ok(Scanned { members, cursor: 0 });
        }
        let mut next = row_hash(&members[count].0)?;
        if next == row_hash(&members[0].0)? {
            let end = members_from(collection.id, next + 1).0;
            let Bound::Included(end) = end else { unreachable!("it begins with a key") };
            let from = members_from(collection.id, next).0;
            members = self.rows((from, Bound::Excluded(end)), Order::Forward, usize::MAX)?;
            next += 1;
        } else {
            while row_hash(&members.last().expect("the first has another hash").0)? == next {
                members.pop();
            }
        }
        Ok(Scanned { members, cursor: next })
    }

    /// So many different members, about each choice as likely as any other; all if there are no more.
    pub fn random_members(
        &self,
        collection: &Collection,
        count: u64,
        random: &mut Random,
    ) -> Result<Vec<(Value, Value)>> {
        if collection.count <= INLINE_ROWS_MAX as u64 || count > collection.count / 4 {
            self.check_rows(collection.count)?;
            let mut all =
                self.rows(section_bounds(collection.id, Section::Members), Order::Forward, usize::MAX)?;
            let chosen = all.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            for index in 0..chosen {
                let other = index + random.below((all.len() - index) as u64) as usize;
                all.swap(index, other);
            }
            all.truncate(chosen);
            return Ok(all);
        }
        self.check_rows(count.saturating_mul(RANDOM_ROWS as u64))?;
        let (mut names, mut chosen) = (HashSet::new(), Vec::new());
        while (chosen.len() as u64) < count {
            let member = self.random_member(collection, random)?;
            if names.insert(member.0.to_vec()) {
                chosen.push(member);
            }
        }
        Ok(chosen)
    }

    /// So many members, one of them perhaps several times.
    pub fn random_members_again(
        &self,
        collection: &Collection,
        count: u64,
        random: &mut Random,
    ) -> Result<Vec<(Value, Value)>> {
        self.check_rows(count)?;
        let mut left = AGAIN_BYTES_MAX;
        let mut take = |member: (Value, Value)| {
            let bytes = member.0.len() + member.1.len() + size_of::<(Value, Value)>();
            left = left
                .checked_sub(bytes)
                .ok_or(ErrorReply::new("ERR", "value is out of range: the reply would be too long"))?;
            Ok(member)
        };
        if collection.count <= INLINE_ROWS_MAX as u64 || count > collection.count / 4 {
            let all = self.random_members(collection, u64::MAX, random)?;
            return (0..count).map(|_| take(all[random.below(all.len() as u64) as usize].clone())).collect();
        }
        self.check_rows(count.saturating_mul(RANDOM_ROWS as u64))?;
        (0..count).map(|_| take(self.random_member(collection, random)?)).collect()
    }

    /// One of the members after a random place. Their hashes are spread evenly, so those that follow a wide gap are chosen
    /// more often; that one of several is taken evens it out.
    fn random_member(&self, collection: &Collection, random: &mut Random) -> Result<(Value, Value)> {
        let from = members_from(collection.id, random.next() >> 1);
        let mut rows = self.rows(from, Order::Forward, RANDOM_ROWS)?;
        if rows.len() < RANDOM_ROWS {
            let first = section_bounds(collection.id, Section::Members);
            rows.extend(self.rows(first, Order::Forward, RANDOM_ROWS - rows.len())?);
        }
        let index = random.below(rows.len() as u64) as usize;
        Ok(rows.swap_remove(index))
    }
}

/// The hash in the key of a member's row.
fn row_hash(row: &Value) -> Result<u64> {
    Ok(split_member_key(row).ok_or_else(|| damaged_row(row))?.0)
}

/// The name in the key of a member's row.
pub(crate) fn row_name(row: &[u8]) -> &[u8] {
    split_member_key(row).map_or(&[], |(_, name)| name)
}

/// The error for a row that is none.
pub(crate) fn damaged_row(row: &[u8]) -> Stop {
    tracing::error!(row = %row.escape_ascii(), "a row of table `redis:content` is damaged");
    ErrorReply::new("ERR", "a row of the collection is damaged: run `fulgurite check`").into()
}
