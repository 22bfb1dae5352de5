//! Latches: hash stripes over keys, and a gate for each table. Held from validation until the commit is applied.
//!
//! INV-TXN-2: between the validation of a transaction and its apply nobody with a smaller CSN can write what it
//! read: every writer of a key holds the key's stripe while it is numbered and applied, whoever validates a key holds
//! its stripe too, and whoever validates or deletes a range holds the table's gate alone. Lock order: gates by table,
//! stripes by index; then the log's slot. Nothing waits for a disk under a latch but a validation that has to read the
//! static part for a transaction older than what has been folded.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use fulgurite_base::TableId;
use parking_lot::{Mutex, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::catalog::TableState;

const STRIPES: usize = 1024;

/// The stripes of a database.
pub(crate) struct Latches {
    stripes: Box<[CachePadded<Mutex<()>>]>,
}

/// How a transaction passes a table's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    Shared,
    Exclusive,
}

/// What a commit latches.
#[derive(Default)]
pub(crate) struct LatchSet {
    gates: BTreeMap<TableId, (Arc<TableState>, Gate)>,
    stripes: Vec<u16>,
}

impl LatchSet {
    /// Passes a table's gate; the stronger of several requests holds.
    pub fn gate(&mut self, table: &Arc<TableState>, gate: Gate) {
        let entry = self.gates.entry(table.id).or_insert_with(|| (table.clone(), gate));
        entry.1 = entry.1.max(gate);
    }

    /// Latches the key with this hash.
    pub fn key(&mut self, hash: u64) {
        self.stripes.push((hash >> 32) as u16 % STRIPES as u16);
    }
}

/// Gates and stripes that are held.
pub(crate) struct Held<'a> {
    _stripes: Vec<MutexGuard<'a, ()>>,
    _shared: Vec<RwLockReadGuard<'a, ()>>,
    _exclusive: Vec<RwLockWriteGuard<'a, ()>>,
}

impl Latches {
    pub fn new() -> Latches {
        Latches { stripes: (0..STRIPES).map(|_| CachePadded::new(Mutex::new(()))).collect() }
    }

    /// Takes everything in one sorted pass.
    pub fn acquire<'a>(&'a self, set: &'a mut LatchSet) -> Held<'a> {
        set.stripes.sort_unstable();
        set.stripes.dedup();
        let (mut shared, mut exclusive) = (Vec::new(), Vec::new());
        for (table, gate) in set.gates.values() {
            match gate {
                Gate::Shared => shared.push(table.gate.read()),
                Gate::Exclusive => exclusive.push(table.gate.write()),
            }
        }
        let stripes = set.stripes.iter().map(|&index| self.stripes[usize::from(index)].lock()).collect();
        Held { _stripes: stripes, _shared: shared, _exclusive: exclusive }
    }
}
