//! What a read-write transaction has read: what commit validates.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use fulgurite_base::{Csn, TableId, hash_key};

use crate::Isolation;
use crate::catalog::TableState;
use crate::write_set::DeletedRange;

/// Key hashes are hashed well already.
#[derive(Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A key that was read, with what validation needs.
pub(crate) struct ReadKey {
    pub table: Arc<TableState>,
    pub key: Box<[u8]>,
    pub hash: u64,
}

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
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Where the first key with a hash is noted: an index of `keys` (serializable), or a place in `seen`.
    hashes: HashMap<u64, usize, BuildHasherDefault<PassThrough>>,
    /// What is validated.
    keys: Vec<ReadKey>,
    seen: SeenKeys,
    ranges: Vec<ReadRange>,
    /// Parts of `ranges` that were deleted afterwards.
    deleted: Vec<ReadRange>,
    needs: Csn,
}

impl Inner {
    fn note(&mut self, isolation: Isolation, table: &Arc<TableState>, key: &[u8], hash: u64) {
        let first = self.hashes.get(&hash).copied();
        let place = match isolation {
            Isolation::Serializable => {
                let known = |at: usize| self.keys[at].table.id == table.id && *self.keys[at].key == *key;
                if first.is_some_and(known) {
                    return;
                }
                self.keys.push(ReadKey { table: table.clone(), key: key.into(), hash });
                self.keys.len() - 1
            }
            Isolation::Snapshot => {
                if first.is_some_and(|at| self.seen.at(at) == (table.id, key)) {
                    return;
                }
                self.seen.push(table.id, key)
            }
        };
        self.hashes.entry(hash).or_insert(place);
    }
}

/// Keys one behind the other: table, length, bytes. One allocation for many of them.
#[derive(Default)]
struct SeenKeys(Vec<u8>);

impl SeenKeys {
    const HEADER_BYTES: usize = 8;

    fn push(&mut self, table: TableId, key: &[u8]) -> usize {
        let at = self.0.len();
        self.0.extend_from_slice(&table.0.to_le_bytes());
        self.0.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.0.extend_from_slice(key);
        at
    }

    fn at(&self, at: usize) -> (TableId, &[u8]) {
        let number = |at: usize| u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"));
        let start = at + Self::HEADER_BYTES;
        (TableId(number(at)), &self.0[start..start + number(at + 4) as usize])
    }

    fn iter(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let (table, key) = (next < self.0.len()).then(|| self.at(next))?;
            next += Self::HEADER_BYTES + key.len();
            Some((table, key))
        })
    }
}

impl ReadSet {
    /// A read set of a transaction; `strong` was taken after its snapshot.
    pub fn new(isolation: Isolation, strong: Csn) -> ReadSet {
        ReadSet { isolation, strong, inner: RefCell::default() }
    }

    /// Notes a read of one key.
    pub fn key(&self, table: &Arc<TableState>, key: &[u8], hash: u64) {
        self.inner.borrow_mut().note(self.isolation, table, key, hash);
    }

    /// Notes a read of a key that commit must validate at any isolation level.
    pub fn key_for_update(&self, table: &Arc<TableState>, key: &[u8], hash: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.note(self.isolation, table, key, hash);
        if self.isolation == Isolation::Snapshot {
            inner.keys.push(ReadKey { table: table.clone(), key: key.into(), hash });
        }
    }

    /// Notes a read of a range.
    pub fn range(&self, table: &Arc<TableState>, start: Bound<&[u8]>, end: Bound<&[u8]>) {
        let (start, end) = (owned(start), owned(end));
        self.inner.borrow_mut().ranges.push(ReadRange { table: table.clone(), start, end });
    }

    /// Notes that a range is deleted: what was read of it was read and written.
    pub fn delete_range(&self, table: &Arc<TableState>, range: &DeletedRange) {
        if self.isolation == Isolation::Serializable {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        let Inner { keys, seen, ranges, deleted, .. } = &mut *inner;
        let of_table = seen.iter().filter(|(id, key)| *id == table.id && range.covers(key));
        keys.extend(of_table.map(|(id, key)| ReadKey {
            table: table.clone(),
            key: key.into(),
            hash: hash_key(id, key),
        }));
        let of_table = ranges.iter().filter(|read| read.table.id == table.id);
        deleted.extend(of_table.filter_map(|read| read.meet(range)));
    }

    /// Notes that a version of `csn` was seen.
    pub fn saw(&self, csn: Csn) {
        let mut inner = self.inner.borrow_mut();
        inner.needs = inner.needs.max(csn.min(self.strong));
    }

    /// What has to be durable before anything is told that depends on what was read. At or above the newest commit
    /// above [`Durability::Async`](crate::Durability::Async) among those that were seen, and before them.
    pub fn needs(&self) -> Csn {
        self.inner.borrow().needs
    }

    /// Whether the transaction read the key before; of two keys of one hash it may say so of the wrong one, which can
    /// only add a conflict.
    pub fn has_read(&self, table: TableId, key: &[u8], hash: u64) -> bool {
        let inner = self.inner.borrow();
        inner.hashes.contains_key(&hash) || inner.ranges.iter().any(|range| range.covers(table, key))
    }

    /// The keys and the ranges that commit validates.
    pub fn into_validated(self) -> (Vec<ReadKey>, Vec<ReadRange>) {
        let inner = self.inner.into_inner();
        match self.isolation {
            Isolation::Serializable => (inner.keys, inner.ranges),
            Isolation::Snapshot => (inner.keys, inner.deleted),
        }
    }
}
