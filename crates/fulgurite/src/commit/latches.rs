//! Latches: hash stripes over keys, and a gate for each table. A commit holds them from its validation until it is
//! applied.
//!
//! INV-TXN-2: between the validation of a transaction and its apply, no commit with a smaller CSN can write what it
//! read. A writer of a key holds the key's stripe while it gets its number and is applied. A transaction that validates
//! a key holds the same stripe. A transaction that validates or deletes a range holds the table's gate exclusively;
//! writers and validators of keys share the gate.
//!
//! Lock order: gates by table, stripes by index, the deadlines, the log's groups.
//!
//! No commit reads from disk under a latch, but one whose tables were merged into during each of its attempts: what it
//! validates is read before (INV-TXN-16, `mod.rs`).

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::catalog::TableState;

const STRIPES: usize = 1024;

/// Their numbers are bits of so many words.
const WORDS: usize = STRIPES / u64::BITS as usize;

/// The stripes of a database.
pub(crate) struct Latches {
    stripes: Box<[CachePadded<Mutex<()>>]>,
}

/// How a transaction holds a table's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    Shared,
    Exclusive,
}

/// The latches that a commit needs.
#[derive(Default)]
pub(crate) struct LatchSet<'t> {
    /// Sorted by table.
    gates: SmallVec<[(&'t TableState, Gate); 2]>,
    /// A bit for each stripe: they are in order, and each is there once.
    stripes: [u64; WORDS],
    /// A bit for each word that has any.
    words: u16,
}

const _: () = assert!(WORDS == u16::BITS as usize);

impl<'t> LatchSet<'t> {
    /// Adds a table's gate. Of several requests the stronger one counts.
    pub fn gate(&mut self, table: &'t TableState, gate: Gate) {
        match self.gates.binary_search_by_key(&table.id, |(table, _)| table.id) {
            Ok(known) => self.gates[known].1 = self.gates[known].1.max(gate),
            Err(index) => self.gates.insert(index, (table, gate)),
        }
    }

    /// Adds the stripe of the key with this hash.
    pub fn key(&mut self, hash: u64) {
        let stripe = (hash >> 32) as usize % STRIPES;
        let (word, bit) = (stripe / u64::BITS as usize, stripe % u64::BITS as usize);
        self.stripes[word] |= 1 << bit;
        self.words |= 1 << word;
    }

    /// The indices of the stripes, in order.
    fn stripes(&self) -> impl Iterator<Item = usize> {
        bits(self.words.into()).flat_map(|word| bits(self.stripes[word]).map(move |bit| word * 64 + bit))
    }
}

/// The positions of the bits that are set, from the lowest on.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        lowest
    })
}

/// Gates and stripes that are held until this is dropped.
pub(crate) struct Held<'a> {
    _stripes: SmallVec<[MutexGuard<'a, ()>; 16]>,
    _shared: SmallVec<[RwLockReadGuard<'a, ()>; 2]>,
    _exclusive: Vec<RwLockWriteGuard<'a, ()>>,
}

impl Latches {
    pub fn new() -> Latches {
        Latches { stripes: (0..STRIPES).map(|_| CachePadded::new(Mutex::new(()))).collect() }
    }

    /// Acquires all latches of the set, in the lock order.
    pub fn acquire<'a>(&'a self, set: &LatchSet<'a>) -> Held<'a> {
        let mut shared = SmallVec::new();
        let mut exclusive = Vec::new();
        for &(table, gate) in &set.gates {
            match gate {
                Gate::Shared => shared.push(table.gate.read()),
                Gate::Exclusive => exclusive.push(table.gate.write()),
            }
        }
        let stripes = set.stripes().map(|index| self.stripes[index].lock()).collect();
        Held { _stripes: stripes, _shared: shared, _exclusive: exclusive }
    }

    /// Acquires all latches of the set, or none if another thread holds one of them.
    pub fn try_acquire<'a>(&'a self, set: &LatchSet<'a>) -> Option<Held<'a>> {
        let mut shared = SmallVec::new();
        let mut exclusive = Vec::new();
        for &(table, gate) in &set.gates {
            match gate {
                Gate::Shared => shared.push(table.gate.try_read()?),
                Gate::Exclusive => exclusive.push(table.gate.try_write()?),
            }
        }
        let stripes = set.stripes().map(|index| self.stripes[index].try_lock());
        Some(Held { _stripes: stripes.collect::<Option<_>>()?, _shared: shared, _exclusive: exclusive })
    }
}
