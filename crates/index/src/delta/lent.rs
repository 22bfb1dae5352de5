//! What a cursor holds of a delta, so that maintenance can take it back.
//!
//! A cursor that nobody moves would keep every generation of its list in memory, also those that were folded since and
//! whose versions are found in the static part. So the list lies in a slot that the delta knows, under a lock. The
//! cursor takes the lock only when it asks the generations, once for several entries, and looks without it at those that
//! it was lent.
//!
//! **INV-IDX-10** *(what is lent stays)*: what a cursor was lent from the generations stays until it asks them again, also
//! when they were taken back from it; then it takes a new list and looks at the static part anew. Until then it goes by
//! the old list (INV-IDX-1): that has no entry for it between those that it was lent, and up to the last of them it is in
//! leaves from after that list. Under the slot's lock:
//!
//! - What is lent lies in generations of the slot's list; after the list was taken back, the slot has a reference to the
//!   block of each lent node instead, for as long as there is the slot.
//! - Only the cursor changes what is lent, and only while the list is there.
//! - A slot is known to the delta before it gets a list, and gets the current one: when a list was replaced, maintenance
//!   finds it in each slot that still has it.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fulgurite_base::Csn;

use super::block::BlockRef;
use super::list::{GenerationList, ListCell};
use super::node::NodeRef;
use super::sync::Mutex;

/// At most how many entries a cursor is lent at once.
pub(super) const LENT_MAX: usize = 4;

/// Entries in the order in which a cursor comes to them; `None`: the end.
pub(super) type Lent = [Option<NodeRef<'static>>; LENT_MAX];

/// What a cursor holds.
#[derive(Default)]
pub(super) struct Held {
    /// `None` after it was taken back.
    pub list: Option<Arc<GenerationList>>,
    /// The place in each generation, newest first.
    pub places: Vec<Option<NodeRef<'static>>>,
    pub lent: Lent,
    /// What keeps the lent nodes without the list.
    pinned: Vec<BlockRef>,
}

impl Held {
    /// Lets go of the list if it has generations that were folded; what was lent stays.
    fn take_back(&mut self, folded: Csn) -> Option<Arc<GenerationList>> {
        let list = self.list.take_if(|list| list.folded() < folded)?;
        self.places.clear();
        // The list is still held here, so these nodes are alive.
        self.pinned.extend(self.lent.iter().flatten().map(|node| node.block()));
        Some(list)
    }
}

/// A cursor's slot. Dropping it takes no lock: a drop may happen where other threads' locks are never given back, in a
/// child of `fork`.
pub(super) type Slot = Arc<Mutex<Held>>;

const SHARDS: usize = 8;

/// The slots of a delta's cursors.
#[derive(Default)]
pub(super) struct Slots([Mutex<Vec<Weak<Mutex<Held>>>>; SHARDS]);

impl Slots {
    /// A slot with the current list.
    pub fn take(&self, current: &ListCell) -> Slot {
        let slot = Slot::default();
        {
            let mut slots = self.0[shard_of_thread()].lock();
            if slots.len() == slots.capacity() {
                // Those that are gone leave; at least half of the room is then free until the next time.
                slots.retain(|slot| slot.strong_count() > 0);
                let used = slots.len();
                slots.reserve(used.max(SLOTS_MIN));
            }
            slots.push(Arc::downgrade(&slot));
        }
        let mut held = slot.lock();
        let list = current.keep();
        held.places.resize(list.newest_first().len(), None);
        held.list = Some(list);
        drop(held);
        slot
    }

    /// Takes back each list that has generations at or below `folded`, which are in the static part. Called after the
    /// list was replaced.
    pub fn take_back(&self, folded: Csn) {
        for shard in &self.0 {
            // Cursors come meanwhile; a later one gets a later list.
            let slots: Vec<Slot> = shard.lock().iter().filter_map(Weak::upgrade).collect();
            for slot in slots {
                let list = slot.lock().take_back(folded);
                drop(list);
            }
        }
    }
}

/// How many slots a shard has room for at least.
const SLOTS_MIN: usize = 8;

fn shard_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}
