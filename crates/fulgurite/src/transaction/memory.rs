//! What open transactions take of the memory budget: their keys, values and reads, charged by the operation that adds them.
//! So no commit waits for memory that only commits give back (INV-MEM-1): what does not fit is refused before.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fulgurite_index::IndexMemory;

use crate::{Error, Result};

/// All open transactions together take at most this part of the budget.
pub(crate) const TRANSACTIONS_SHARE: usize = 4;

/// A transaction is charged in units of so many bytes, ...
const UNIT_BYTES: usize = 4 << 10;

/// ... except for its first ones: most transactions are small, and none of those touches what all share.
const FREE_BYTES: usize = 2 << 10;

/// So many bytes are granted to each, whatever the others take.
const GRANTED_BYTES: usize = 64 << 10;

/// The memory of all open transactions.
pub(crate) struct TransactionMemory {
    index: Arc<IndexMemory>,
    bytes: AtomicUsize,
    max: AtomicUsize,
}

impl TransactionMemory {
    pub fn new(index: Arc<IndexMemory>) -> TransactionMemory {
        TransactionMemory { index, bytes: AtomicUsize::new(0), max: AtomicUsize::new(usize::MAX) }
    }

    /// Begins to bound them by their share of a memory budget.
    pub fn bound_by(&self, budget: usize) {
        self.max.store(budget / TRANSACTIONS_SHARE, Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.index.others().fetch_add(bytes, Relaxed);
        self.index.look();
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.index.others().fetch_sub(bytes, Relaxed);
    }
}

/// What one transaction is charged with, until it is dropped.
#[derive(Default)]
pub(super) struct TransactionCharge {
    bytes: Cell<usize>,
    /// Set with the first charge.
    memory: RefCell<Option<Arc<TransactionMemory>>>,
}

impl TransactionCharge {
    /// Charges the transaction with `needed` bytes in all.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if other transactions do not leave so much. Nothing is charged.
    #[inline]
    pub fn raise(&self, needed: usize, memory: &Arc<TransactionMemory>) -> Result<()> {
        if needed <= self.bytes.get().max(FREE_BYTES) { Ok(()) } else { self.try_raise(needed, memory) }
    }

    #[cold]
    fn try_raise(&self, needed: usize, memory: &Arc<TransactionMemory>) -> Result<()> {
        let max = self.left(memory);
        if needed > max {
            return Err(Error::TooLarge { bytes: needed, max });
        }
        self.raise_anyway(needed, memory);
        Ok(())
    }

    /// How many bytes the transaction may take, with those that it takes already. Several that ask at the same moment may
    /// all be granted the last ones.
    pub fn left(&self, memory: &TransactionMemory) -> usize {
        let others = memory.bytes().saturating_sub(self.bytes.get());
        memory.max.load(Relaxed).saturating_sub(others).max(GRANTED_BYTES)
    }

    /// Like [`TransactionCharge::raise`], for what is not to be refused any more.
    pub fn raise_anyway(&self, needed: usize, memory: &Arc<TransactionMemory>) {
        let bytes = needed.next_multiple_of(UNIT_BYTES);
        let more = bytes.saturating_sub(self.bytes.get());
        if more > 0 {
            self.memory.borrow_mut().get_or_insert_with(|| memory.clone()).add(more);
            self.bytes.set(self.bytes.get() + more);
        }
    }

    /// The transaction takes `needed` bytes only: it was rolled back to a savepoint.
    pub fn lower(&self, needed: usize) {
        let less = self.bytes.get().saturating_sub(needed.next_multiple_of(UNIT_BYTES));
        if let Some(memory) = &*self.memory.borrow() {
            memory.subtract(less);
            self.bytes.set(self.bytes.get() - less);
        }
    }
}

impl Drop for TransactionCharge {
    fn drop(&mut self) {
        self.lower(0);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn transactions_share_a_part_of_the_budget_and_each_is_granted_a_little() {
        let index = Arc::new(IndexMemory::default());
        let memory = Arc::new(TransactionMemory::new(index.clone()));
        memory.bound_by(TRANSACTIONS_SHARE << 20);
        let (first, second) = (TransactionCharge::default(), TransactionCharge::default());
        first.raise(FREE_BYTES, &memory).unwrap();
        assert_eq!((memory.bytes(), index.used_bytes()), (0, 0));
        first.raise((1 << 20) - UNIT_BYTES + 1, &memory).unwrap();
        assert_eq!((memory.bytes(), index.used_bytes()), (1 << 20, 1 << 20));
        first.raise(1 << 20, &memory).unwrap();
        let Err(Error::TooLarge { bytes, max }) = first.raise((1 << 20) + 1, &memory) else { panic!() };
        assert_eq!((bytes, max, memory.bytes()), ((1 << 20) + 1, 1 << 20, 1 << 20));
        second.raise(GRANTED_BYTES, &memory).unwrap();
        let Err(Error::TooLarge { max, .. }) = second.raise(GRANTED_BYTES + 1, &memory) else { panic!() };
        assert_eq!(max, GRANTED_BYTES);
        first.lower(UNIT_BYTES + 1);
        assert_eq!(memory.bytes(), 2 * UNIT_BYTES + GRANTED_BYTES);
        second.raise((1 << 20) - 2 * UNIT_BYTES, &memory).unwrap();
        second.raise_anyway(3 << 20, &memory);
        assert_eq!(index.used_bytes(), 2 * UNIT_BYTES + (3 << 20));
        drop((first, second));
        assert_eq!((memory.bytes(), index.used_bytes()), (0, 0));
    }
}
