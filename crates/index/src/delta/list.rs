//! The list of a delta's generations, replaced as a whole: readers take it without waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch as epoch;
use fulgurite_types::Csn;

use super::generation::Generation;
use super::node::NodeRef;
use super::sync::AtomicPtr;

/// The generations at one moment, newest first; never empty.
pub(super) struct GenerationList(Vec<Arc<Generation>>);

impl GenerationList {
    pub fn new(generations: Vec<Arc<Generation>>) -> GenerationList {
        assert!(!generations.is_empty());
        debug_assert!(generations.windows(2).all(|pair| pair[1].boundary() == pair[0].start()));
        GenerationList(generations)
    }

    pub fn newest_first(&self) -> &[Arc<Generation>] {
        &self.0
    }

    pub fn newest(&self) -> &Arc<Generation> {
        &self.0[0]
    }

    pub fn oldest(&self) -> &Arc<Generation> {
        &self.0[self.0.len() - 1]
    }

    /// The generation to which a commit goes (INV-IDX-2).
    pub fn of_commit(&self, csn: Csn) -> &Generation {
        let found = self.0.iter().find(|generation| generation.start() < csn);
        found.unwrap_or_else(|| panic!("INV-IDX-3: commit {csn} is older than what was folded"))
    }

    /// The newest version of `key` at or below `at`. Newer generations hold newer commits, so the first hit is it.
    #[inline]
    pub fn find(&self, key: &[u8], hash: u64, at: Csn) -> Option<NodeRef<'_>> {
        self.0
            .iter()
            .filter(|generation| generation.may_contain(hash))
            .find_map(|generation| generation.find(key, at))
    }

    /// Everything at or below is in the static part only.
    pub fn folded(&self) -> Csn {
        self.oldest().start()
    }
}

/// The current list. A reader pins an epoch for the length of a look, or takes a reference of its own.
pub(super) struct ListCell(AtomicPtr<GenerationList>);

impl ListCell {
    pub fn new(list: GenerationList) -> ListCell {
        ListCell(AtomicPtr::new(Arc::into_raw(Arc::new(list)).cast_mut()))
    }

    /// Looks at the current list.
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&GenerationList) -> R) -> R {
        let _pinned = epoch::pin();
        // SAFETY: the cell owns a reference to the list that it points to, and `replace` gives a replaced one back only
        // after every epoch that was pinned before the replacement has ended.
        look(unsafe { &*self.0.load(Ordering::Acquire) })
    }

    /// The current list, kept.
    pub fn keep(&self) -> Arc<GenerationList> {
        let _pinned = epoch::pin();
        let list = self.0.load(Ordering::Acquire);
        // SAFETY: `list` came from `Arc::into_raw`, and is alive as in `with`.
        unsafe {
            Arc::increment_strong_count(list);
            Arc::from_raw(list)
        }
    }

    /// Whether `list` is still the current one. The caller holds it, so no other list can have its address.
    #[inline]
    pub fn is_current(&self, list: &Arc<GenerationList>) -> bool {
        ptr_eq(self.0.load(Ordering::Acquire), list)
    }

    /// Where the current list is: only to compare.
    #[inline]
    pub fn as_ptr(&self) -> *const GenerationList {
        self.0.load(Ordering::Acquire)
    }

    /// Makes `list` the current one. Replacements must not overlap.
    pub fn replace(&self, list: GenerationList) {
        let pinned = epoch::pin();
        let old = self.0.swap(Arc::into_raw(Arc::new(list)).cast_mut(), Ordering::AcqRel);
        // SAFETY: the cell's reference to `old` is given back once, after every reader that may have loaded it without
        // a reference has unpinned. Lists may be dropped on any thread.
        unsafe { pinned.defer_unchecked(move || drop(Arc::from_raw(old))) };
        pinned.flush();
    }
}

fn ptr_eq(ptr: *mut GenerationList, list: &Arc<GenerationList>) -> bool {
    ptr.cast_const() == Arc::as_ptr(list)
}

impl Drop for ListCell {
    fn drop(&mut self) {
        // SAFETY: nobody looks any more (`&mut self`), and the cell owns this reference.
        drop(unsafe { Arc::from_raw(*self.0.get_mut()) });
    }
}
