//! Latches: hash stripes over keys, and a gate for each table. Held from validation until the commit is applied.
//!
//! INV-TXN-2: between the validation of a transaction and its apply nobody with a smaller CSN can write what it
//! read: every writer of a key holds the key's stripe while it is numbered and applied, whoever validates a key holds
//! its stripe too, and whoever validates or deletes a range holds the table's gate alone. Lock order: gates by table,
//! stripes by index; then the deadlines; then the log's slot. Nothing waits for a disk under a latch but a validation that has to read the
//! base for a transaction older than what has been merged.

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::catalog::TableState;

const STRIPES: usize = 1024;

/// From so many on, those that are listed twice are taken out.
const STRIPES_MAX: usize = 8 * STRIPES;

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

/// What a commit latches. That of a small one needs no memory of its own.
#[derive(Default)]
pub(crate) struct LatchSet<'t> {
    /// By table.
    gates: SmallVec<[(&'t TableState, Gate); 2]>,
    stripes: SmallVec<[u16; 8]>,
}

impl<'t> LatchSet<'t> {
    /// Passes a table's gate; the stronger of several requests holds.
    pub fn gate(&mut self, table: &'t TableState, gate: Gate) {
        match self.gates.binary_search_by_key(&table.id, |(table, _)| table.id) {
            Ok(known) => self.gates[known].1 = self.gates[known].1.max(gate),
            Err(place) => self.gates.insert(place, (table, gate)),
        }
    }

    /// Latches the key with this hash.
    pub fn key(&mut self, hash: u64) {
        if self.stripes.len() == STRIPES_MAX {
            self.stripes.sort_unstable();
            self.stripes.dedup();
        }
        self.stripes.push((hash >> 32) as u16 % STRIPES as u16);
    }
}

/// Gates and stripes that are held.
pub(crate) struct Held<'a> {
    _stripes: SmallVec<[MutexGuard<'a, ()>; 4]>,
    _shared: SmallVec<[RwLockReadGuard<'a, ()>; 2]>,
    _exclusive: Vec<RwLockWriteGuard<'a, ()>>,
}

impl Latches {
    pub fn new() -> Latches {
        Latches { stripes: (0..STRIPES).map(|_| CachePadded::new(Mutex::new(()))).collect() }
    }

    /// Takes everything in one sorted pass.
    pub fn acquire<'a>(&'a self, set: &'a mut LatchSet<'_>) -> Held<'a> {
        set.stripes.sort_unstable();
        set.stripes.dedup();
        let (mut shared, mut exclusive) = (SmallVec::new(), Vec::new());
        for (table, gate) in &set.gates {
            match gate {
                Gate::Shared => shared.push(table.gate.read()),
                Gate::Exclusive => exclusive.push(table.gate.write()),
            }
        }
        let stripes = set.stripes.iter().map(|&index| self.stripes[usize::from(index)].lock()).collect();
        Held { _stripes: stripes, _shared: shared, _exclusive: exclusive }
    }
}
