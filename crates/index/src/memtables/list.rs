//! The list of a table's memtables: replaced as a whole, and read without waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch as epoch;
use fulgurite_types::Csn;

use super::memtable::Memtable;
use super::node::NodeRef;
use crate::memory::COUNTS_BYTES;
use fulgurite_types::sync::AtomicPtr;

/// The memtables at one moment, newest first; never empty.
pub(super) struct MemtableList(Vec<Arc<Memtable>>);

/// What a list takes of one memtable.
pub(super) const MEMTABLE_LIST_BYTES: usize =
    size_of::<MemtableList>() + COUNTS_BYTES + size_of::<Arc<Memtable>>();

impl MemtableList {
    pub fn new(memtables: Vec<Arc<Memtable>>) -> MemtableList {
        assert!(!memtables.is_empty());
        debug_assert!(memtables.windows(2).all(|pair| pair[1].boundary() == pair[0].start()));
        MemtableList(memtables)
    }

    pub fn newest_first(&self) -> &[Arc<Memtable>] {
        &self.0
    }

    pub fn newest(&self) -> &Arc<Memtable> {
        &self.0[0]
    }

    pub fn oldest(&self) -> &Arc<Memtable> {
        &self.0[self.0.len() - 1]
    }

    /// The memtable whose interval contains the commit's CSN (INV-IDX-2).
    pub fn of_commit(&self, csn: Csn) -> &Memtable {
        let found = self.0.iter().find(|memtable| memtable.start() < csn);
        found.unwrap_or_else(|| panic!("INV-IDX-3: commit {csn} is older than what was merged"))
    }

    /// The newest version of `key` at or below `at`. Newer memtables hold newer commits, so the first hit is the
    /// newest.
    #[inline]
    pub fn find(&self, key: &[u8], hash: u64, at: Csn) -> Option<NodeRef<'_>> {
        self.0.iter().find_map(|memtable| memtable.find(key, hash, at))
    }

    /// Whether a memtable may have a version of the key; `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.0.iter().any(|memtable| memtable.may_contain(hash))
    }

    /// Versions at or below this CSN are in the base only.
    pub fn merged(&self) -> Csn {
        self.oldest().start()
    }
}

/// The current list. A reader pins an epoch for the length of a look-up, or takes a reference of its own.
pub(super) struct CurrentList(AtomicPtr<MemtableList>);

impl CurrentList {
    pub fn new(list: MemtableList) -> CurrentList {
        CurrentList(AtomicPtr::new(Arc::into_raw(Arc::new(list)).cast_mut()))
    }

    /// Runs `look` on the current list.
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&MemtableList) -> R) -> R {
        let _pinned = epoch::pin();
        // SAFETY: `CurrentList` owns a reference to the list that it points to, and `replace` gives the reference to a
        // replaced list back only after every epoch that was pinned before the replacement has ended.
        look(unsafe { &*self.0.load(Ordering::Acquire) })
    }

    /// A counted reference to the current list.
    pub fn keep(&self) -> Arc<MemtableList> {
        let _pinned = epoch::pin();
        let list = self.0.load(Ordering::Acquire);
        // SAFETY: `list` came from `Arc::into_raw`, and is alive as in `with`.
        unsafe {
            Arc::increment_strong_count(list);
            Arc::from_raw(list)
        }
    }

    /// Whether `list` is still the current one. The caller holds a reference, so no other list can have its address.
    #[inline]
    pub fn is_current(&self, list: &Arc<MemtableList>) -> bool {
        ptr_eq(self.0.load(Ordering::Acquire), list)
    }

    /// The address of the current list, only for comparisons.
    #[inline]
    pub fn as_ptr(&self) -> *const MemtableList {
        self.0.load(Ordering::Acquire)
    }

    /// Makes `list` the current one. Replacements must not overlap.
    pub fn replace(&self, list: MemtableList) {
        let pinned = epoch::pin();
        let old = self.0.swap(Arc::into_raw(Arc::new(list)).cast_mut(), Ordering::AcqRel);
        // SAFETY: its own reference to `old` is given back once, after every reader that may have loaded it without
        // a reference has unpinned. Lists may be dropped on any thread.
        unsafe { pinned.defer_unchecked(move || drop(Arc::from_raw(old))) };
        pinned.flush();
    }
}

fn ptr_eq(ptr: *mut MemtableList, list: &Arc<MemtableList>) -> bool {
    ptr.cast_const() == Arc::as_ptr(list)
}

impl Drop for CurrentList {
    fn drop(&mut self) {
        // SAFETY: no thread uses the list any more (`&mut self`), and `CurrentList` owns this reference.
        drop(unsafe { Arc::from_raw(*self.0.get_mut()) });
    }
}
