//! What a read-write transaction has read: what commit validates.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use fulgurite_base::{Csn, TableId};

use crate::Isolation;
use crate::catalog::TableState;

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
}

fn as_ref(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The reads of one transaction. Under snapshot isolation only hashes of keys are kept, to tell blind writes from
/// others: two keys of one hash can at worst add a conflict.
pub(crate) struct ReadSet {
    isolation: Isolation,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    hashes: HashSet<u64, BuildHasherDefault<PassThrough>>,
    keys: Vec<ReadKey>,
    ranges: Vec<ReadRange>,
    needs: Csn,
}

impl ReadSet {
    pub fn new(isolation: Isolation) -> ReadSet {
        ReadSet { isolation, inner: RefCell::default() }
    }

    /// Notes a read of one key.
    pub fn key(&self, table: &Arc<TableState>, key: &[u8], hash: u64) {
        let mut inner = self.inner.borrow_mut();
        if inner.hashes.insert(hash) && self.isolation == Isolation::Serializable {
            inner.keys.push(ReadKey { table: table.clone(), key: key.into(), hash });
        }
    }

    /// Notes a read of a key that commit must validate at any isolation level.
    pub fn key_for_update(&self, table: &Arc<TableState>, key: &[u8], hash: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.hashes.insert(hash);
        inner.keys.push(ReadKey { table: table.clone(), key: key.into(), hash });
    }

    /// Notes a read of a range.
    pub fn range(&self, table: &Arc<TableState>, start: Bound<&[u8]>, end: Bound<&[u8]>) {
        let owned = |bound: Bound<&[u8]>| bound.map(Box::<[u8]>::from);
        self.inner.borrow_mut().ranges.push(ReadRange {
            table: table.clone(),
            start: owned(start),
            end: owned(end),
        });
    }

    /// Notes that a version of `csn` was seen.
    pub fn saw(&self, csn: Csn) {
        let mut inner = self.inner.borrow_mut();
        inner.needs = inner.needs.max(csn);
    }

    /// The newest commit that was seen.
    pub fn needs(&self) -> Csn {
        self.inner.borrow().needs
    }

    /// Whether the transaction read the key before.
    pub fn has_read(&self, table: TableId, key: &[u8], hash: u64) -> bool {
        let inner = self.inner.borrow();
        inner.hashes.contains(&hash) || inner.ranges.iter().any(|range| range.covers(table, key))
    }

    /// The keys and the ranges that commit validates.
    pub fn into_validated(self) -> (Vec<ReadKey>, Vec<ReadRange>) {
        let inner = self.inner.into_inner();
        let ranges = if self.isolation == Isolation::Serializable { inner.ranges } else { Vec::new() };
        (inner.keys, ranges)
    }
}
