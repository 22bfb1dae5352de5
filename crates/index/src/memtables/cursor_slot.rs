//! The references of cursors into a table's memtables, arranged so that maintenance can take them back.
//!
//! A cursor that is not moved would keep every memtable of its list in memory, even those that were merged meanwhile
//! and whose versions are in the base. So the list is in a slot that the memtables know, under a lock. The cursor locks
//! the slot only when it asks the memtables for entries, several at once: these are lent to it, and it reads them
//! without the lock.
//!
//! **INV-IDX-10** *(lent entries stay)*: the entries lent to a cursor stay valid until it asks the memtables again,
//! even if its list was taken back; the cursor then takes the current list and seeks the base anew. Until then it uses
//! the old list (INV-IDX-1): that list has no entry for the cursor between two lent ones, and the base cursor's leaves
//! up to the last lent entry were loaded after the list was taken. Under the slot's lock:
//!
//! - Lent nodes belong to memtables of the slot's list. After the list was taken back, the slot holds a reference to
//!   the block of each lent node instead, until the cursor seeks or its slot is freed.
//! - Only the cursor changes the lent entries, and only while the slot has its list.
//! - The memtables know a slot before it gets a list, and it gets the current one: after a list was replaced,
//!   maintenance finds it in each slot that still has it.
//!
//! A table's cursor leaves its slot, with the list, to a later cursor when it is dropped: a scan of a few rows neither
//! allocates nor counts references.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_utils::CachePadded;
use fulgurite_types::Csn;

use super::block::BlockRef;
use super::list::{CurrentList, MemtableList};
use super::node::NodeRef;
use crate::memory::{COUNTS_BYTES, IndexMemory, TableCharge};
use fulgurite_types::sync::{AtomicPtr, AtomicUsize, Mutex, MutexGuard};

/// At most how many entries are lent to a cursor at once.
pub(super) const LENT_MAX: usize = 4;

/// The lent entries in the cursor's order; `None`: the end.
pub(super) type Lent = [Option<NodeRef<'static>>; LENT_MAX];

/// What a slot's lock protects.
#[derive(Default)]
pub(super) struct Held {
    /// `None` before the first seek, and after the list was taken back.
    pub list: Option<Arc<MemtableList>>,
    /// The cursor's next node in each memtable, newest memtable first.
    pub next_nodes: Vec<Option<NodeRef<'static>>>,
    pub lent: Lent,
    /// Keeps the lent nodes after the list was taken back.
    pinned: Vec<BlockRef>,
}

impl Held {
    /// Releases everything; returns the list for the caller to drop.
    fn release(&mut self) -> Option<Arc<MemtableList>> {
        self.next_nodes.clear();
        self.lent = Lent::default();
        self.pinned.clear();
        self.list.take()
    }
}

/// A slot belongs to one cursor at a time.
pub(super) struct CursorSlot {
    held: Mutex<Held>,
    /// [`FREE`], [`USED`] or [`TAKEN_BACK`].
    state: AtomicUsize,
    /// How many cursors have used it.
    cursors: AtomicUsize,
    _charge: TableCharge,
}

/// What a slot takes, with its reference among all slots.
const SLOT_BYTES: usize =
    size_of::<CursorSlot>() + COUNTS_BYTES + size_of::<Weak<CursorSlot>>() + size_of::<Option<NodeRef<'_>>>();

/// No cursor uses it.
const FREE: usize = 0;
/// A cursor uses it.
const USED: usize = 1;
/// A cursor uses it, and its list was taken back: it may hold blocks.
const TAKEN_BACK: usize = 2;

impl CursorSlot {
    pub fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    /// Locks the slot and makes sure that it has the current list. If that replaces another list, nothing of the old
    /// one stays.
    pub fn lock_current(&self, lists: &CurrentList) -> MutexGuard<'_, Held> {
        let mut held = self.lock();
        if held.list.as_ref().is_none_or(|list| !lists.is_current(list)) {
            held.release();
            let list = lists.keep();
            held.next_nodes.resize(list.newest_first().len(), None);
            held.list = Some(list);
            self.state.store(USED, Ordering::Relaxed);
        }
        held
    }

    /// Takes the list back if it has memtables that were merged; lent entries stay.
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
            held.next_nodes.clear();
            // The slot still has the list, so these nodes are alive.
            let Held { lent, pinned, .. } = &mut *held;
            pinned.extend(lent.iter().flatten().map(|node| node.block()));
            held.list.take()
        };
        drop(held);
        drop(list);
    }
}

/// How many free slots are kept for threads.
const FREE_MAX: usize = 8;

/// A slot that has had so many cursors shows that the table is scanned often: its threads get places that they do not share.
const CURSORS_OF_SHARED_MAX: usize = 1024;

/// A place for a free slot: null or from `Arc::into_raw`.
type FreeSlot = AtomicPtr<CursorSlot>;

/// One for each thread, a kilobyte.
type FreeSlots = [CachePadded<FreeSlot>; FREE_MAX];

/// The slots of the cursors over a table's memtables.
pub(super) struct CursorSlots {
    all: Mutex<Vec<Weak<CursorSlot>>>,
    /// The place of all threads, while one is enough: most of many thousand tables seldom have a cursor.
    free: FreeSlot,
    /// Null or from `Box::into_raw`: made once a slot finds that place taken, or has had many cursors. A thread always uses
    /// the same one of these.
    spread: AtomicPtr<FreeSlots>,
    spread_charge: OnceLock<TableCharge>,
    memory: Arc<IndexMemory>,
}

impl CursorSlots {
    pub fn counted_in(memory: Arc<IndexMemory>) -> CursorSlots {
        CursorSlots {
            all: Mutex::default(),
            free: FreeSlot::default(),
            spread: AtomicPtr::default(),
            spread_charge: OnceLock::new(),
            memory,
        }
    }

    /// A slot for a cursor that has not been sought yet.
    #[inline]
    pub fn take(&self) -> Arc<CursorSlot> {
        let free = self.free_of_thread().swap(ptr::null_mut(), Ordering::Acquire);
        let slot = if free.is_null() {
            self.add()
        } else {
            // SAFETY: a pointer in `free` came from `Arc::into_raw`, and the swap moved its reference to this thread.
            unsafe { Arc::from_raw(free) }
        };
        slot.state.store(USED, Ordering::Relaxed);
        slot
    }

    /// Where this thread takes a free slot, and leaves it.
    #[inline]
    fn free_of_thread(&self) -> &FreeSlot {
        // SAFETY: what it points to came from `Box::into_raw`, and is freed when this is dropped.
        match unsafe { self.spread.load(Ordering::Acquire).as_ref() } {
            Some(spread) => &spread[index_of_thread()],
            None => &self.free,
        }
    }

    /// Makes a place for each thread, unless they are there. The slot in the place of all stays there until this is dropped.
    #[cold]
    fn spread(&self) {
        if !self.spread.load(Ordering::Acquire).is_null() {
            return;
        }
        let made = Box::into_raw(Box::<FreeSlots>::default());
        let was_null =
            self.spread.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Relaxed);
        if was_null.is_ok() {
            _ = self.spread_charge.set(TableCharge::new(&self.memory, size_of::<FreeSlots>()));
        } else {
            // SAFETY: the pointer is from `Box::into_raw` above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
    }

    #[cold]
    fn add(&self) -> Arc<CursorSlot> {
        let slot = Arc::new(CursorSlot {
            held: Mutex::default(),
            state: AtomicUsize::new(FREE),
            cursors: AtomicUsize::new(0),
            _charge: TableCharge::new(&self.memory, SLOT_BYTES),
        });
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            // Removes dropped slots; the reservation then leaves at least half of the room free until the next time.
            all.retain(|slot| slot.strong_count() > 0);
            let used = all.len();
            all.reserve_exact(used.max(1));
        }
        all.push(Arc::downgrade(&slot));
        slot
    }

    /// Leaves a slot to a later cursor. Takes no lock: a cursor may be dropped in a child of `fork`, where a lock that
    /// another thread held is never released.
    #[inline]
    pub fn leave(&self, slot: Arc<CursorSlot>) {
        if slot.state.load(Ordering::Relaxed) != USED {
            return;
        }
        slot.state.store(FREE, Ordering::Relaxed);
        // Only the cursor that has the slot counts.
        let cursors = slot.cursors.load(Ordering::Relaxed) + 1;
        slot.cursors.store(cursors, Ordering::Relaxed);
        if cursors == CURSORS_OF_SHARED_MAX {
            self.spread();
        }
        let (free, slot) = (self.free_of_thread(), Arc::into_raw(slot).cast_mut());
        if free.compare_exchange(ptr::null_mut(), slot, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: the pointer is from `Arc::into_raw` above, and no other thread has seen it.
            drop(unsafe { Arc::from_raw(slot) });
            self.spread();
        }
    }

    /// Takes back each list that has memtables at or below `merged`, which are in the base. Called after the list was
    /// replaced.
    pub fn take_back(&self, merged: Csn) {
        // A cursor that is made after this takes a newer list.
        let slots: Vec<Arc<CursorSlot>> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        for slot in slots {
            slot.take_back(merged);
        }
    }
}

impl Drop for CursorSlots {
    fn drop(&mut self) {
        let drop_free = |free: &FreeSlot| {
            let slot = free.swap(ptr::null_mut(), Ordering::Acquire);
            if !slot.is_null() {
                // SAFETY: as in `take`.
                drop(unsafe { Arc::from_raw(slot) });
            }
        };
        drop_free(&self.free);
        let spread = self.spread.swap(ptr::null_mut(), Ordering::Acquire);
        if !spread.is_null() {
            // SAFETY: it came from `Box::into_raw`, and no thread uses it any more (`&mut self`).
            let spread = unsafe { Box::from_raw(spread) };
            spread.iter().for_each(|free| drop_free(free));
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
