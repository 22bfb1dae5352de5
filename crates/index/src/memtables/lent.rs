//! What a cursor holds of a table's memtables, so that maintenance can take it back.
//!
//! A cursor that its user does not move would keep every memtable of its list in memory, also those that were merged
//! since and whose versions are found in the base. So the list lies in a slot that the memtables know, under a lock.
//! The cursor takes the lock only when it asks the memtables, once for several entries, and looks without it at those
//! that it was lent.
//!
//! **INV-IDX-10** *(what is lent stays)*: what a cursor was lent from the memtables stays until it asks them again, also
//! when they were taken back from it; then it takes a new list and looks at the base anew. Until then it goes by
//! the old list (INV-IDX-1): that has no entry for it between those that it was lent, and up to the last of them it is in
//! leaves from after that list. Under the slot's lock:
//!
//! - What is lent lies in memtables of the slot's list; after the list was taken back, the slot has a reference to the
//!   block of each lent node instead, until the cursor seeks or goes.
//! - Only the cursor changes what is lent, and only while the list is there.
//! - A slot is known to the memtables before it gets a list, and gets the current one: when a list was replaced, maintenance
//!   finds it in each slot that still has it.
//!
//! A cursor that goes leaves its slot, with the list, to a later one: a scan of a few rows neither allocates nor counts
//! references.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use fulgurite_types::Csn;

use super::block::BlockRef;
use super::list::{ListCell, MemtableList};
use super::node::NodeRef;
use super::sync::{AtomicPtr, AtomicUsize, Mutex, MutexGuard};

/// At most how many entries a cursor is lent at once.
pub(super) const LENT_MAX: usize = 4;

/// Entries in the order in which a cursor comes to them; `None`: the end.
pub(super) type Lent = [Option<NodeRef<'static>>; LENT_MAX];

/// What a cursor holds.
#[derive(Default)]
pub(super) struct Held {
    /// `None` before the first seek, and after it was taken back.
    pub list: Option<Arc<MemtableList>>,
    /// The place in each memtable, newest first.
    pub places: Vec<Option<NodeRef<'static>>>,
    pub lent: Lent,
    /// What keeps the lent nodes without the list.
    pinned: Vec<BlockRef>,
}

impl Held {
    /// Lets go of all; the list is for the caller to drop.
    fn release(&mut self) -> Option<Arc<MemtableList>> {
        self.places.clear();
        self.lent = Lent::default();
        self.pinned.clear();
        self.list.take()
    }
}

/// What a cursor uses, one at a time.
#[derive(Default)]
pub(super) struct Slot {
    held: Mutex<Held>,
    /// [`FREE`], [`USED`] or [`TAKEN_BACK`].
    state: AtomicUsize,
}

/// No cursor has it.
const FREE: usize = 0;
/// A cursor has it.
const USED: usize = 1;
/// A cursor has it, and its list was taken back: it may hold blocks.
const TAKEN_BACK: usize = 2;

impl Slot {
    pub fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    /// Locks it, with the current list. If that is another one than before, the cursor has nothing of the old one any more.
    pub fn lock_current(&self, lists: &ListCell) -> MutexGuard<'_, Held> {
        let mut held = self.lock();
        if held.list.as_ref().is_none_or(|list| !lists.is_current(list)) {
            held.release();
            let list = lists.keep();
            held.places.resize(list.newest_first().len(), None);
            held.list = Some(list);
            self.state.store(USED, Ordering::Relaxed);
        }
        held
    }

    /// Lets go of the list if it has memtables that were merged; what a cursor was lent stays.
    fn take_back(&self, merged: Csn) {
        let mut held = self.lock();
        if held.list.as_ref().is_some_and(|list| list.merged() >= merged) {
            return;
        }
        let list = if self.state.load(Ordering::Relaxed) == FREE {
            held.release()
        } else {
            if held.list.is_none() {
                return;
            }
            self.state.store(TAKEN_BACK, Ordering::Relaxed);
            held.places.clear();
            // The list is still held here, so these nodes are alive.
            let Held { lent, pinned, .. } = &mut *held;
            pinned.extend(lent.iter().flatten().map(|node| node.block()));
            held.list.take()
        };
        drop(held);
        drop(list);
    }
}

/// How many free slots are kept.
const FREE_MAX: usize = 8;

/// The slots of the cursors over a table's memtables.
#[derive(Default)]
pub(super) struct Slots {
    all: Mutex<Vec<Weak<Slot>>>,
    /// Each null, or from `Arc::into_raw`; which one a thread asks depends on the thread.
    free: [CachePadded<AtomicPtr<Slot>>; FREE_MAX],
}

impl Slots {
    /// A slot for a cursor that has not been sought yet.
    #[inline]
    pub fn take(&self) -> Arc<Slot> {
        let free = self.free[index_of_thread()].swap(ptr::null_mut(), Ordering::Acquire);
        let slot = if free.is_null() {
            self.add()
        } else {
            // SAFETY: a pointer in `free` came from `Arc::into_raw`, and the exchange gave its reference to this thread.
            unsafe { Arc::from_raw(free) }
        };
        slot.state.store(USED, Ordering::Relaxed);
        slot
    }

    #[cold]
    fn add(&self) -> Arc<Slot> {
        let slot = Arc::<Slot>::default();
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            // Those that are gone leave; at least half of the room is then free until the next time.
            all.retain(|slot| slot.strong_count() > 0);
            let used = all.len();
            all.reserve(used.max(FREE_MAX));
        }
        all.push(Arc::downgrade(&slot));
        slot
    }

    /// Leaves a slot to a later cursor. Takes no lock: a cursor may be dropped where other threads' locks are never
    /// given back, in a child of `fork`.
    #[inline]
    pub fn leave(&self, slot: Arc<Slot>) {
        if slot.state.load(Ordering::Relaxed) != USED {
            return;
        }
        slot.state.store(FREE, Ordering::Relaxed);
        let (free, slot) = (&self.free[index_of_thread()], Arc::into_raw(slot).cast_mut());
        if free.compare_exchange(ptr::null_mut(), slot, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: it is from `Arc::into_raw` above, and no other thread came to know it.
            drop(unsafe { Arc::from_raw(slot) });
        }
    }

    /// Takes back each list that has memtables at or below `merged`, which are in the base. Called after the
    /// list was replaced.
    pub fn take_back(&self, merged: Csn) {
        // Cursors come meanwhile; a later one gets a later list.
        let slots: Vec<Arc<Slot>> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        for slot in slots {
            slot.take_back(merged);
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for free in &mut self.free {
            let slot = free.load(Ordering::Acquire);
            if !slot.is_null() {
                // SAFETY: as in `take`; nothing looks any more (`&mut self`).
                drop(unsafe { Arc::from_raw(slot) });
            }
        }
    }
}

fn index_of_thread() -> usize {
    static THREADS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    INDEX.with(|index| {
        if index.get() == usize::MAX {
            index.set(THREADS.fetch_add(1, Ordering::Relaxed) % FREE_MAX);
        }
        index.get()
    })
}
