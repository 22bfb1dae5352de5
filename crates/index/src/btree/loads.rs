//! The nodes that are being loaded: of all threads that miss one, one reads it, and the others wait for that.

use std::collections::BTreeSet;
use std::ptr;

use fulgurite_types::sync::{Condvar, Mutex};

use super::slot::Slot;

/// The loads of one tree.
#[derive(Default)]
pub(crate) struct Loads {
    /// The addresses of the slots whose nodes are being loaded; their loaders keep the slots.
    slots: Mutex<BTreeSet<usize>>,
    /// Signalled when a load ends.
    ended: Condvar,
}

/// While it lives, no other thread loads the slot's node.
pub(crate) struct Load<'a> {
    loads: &'a Loads,
    slot: usize,
}

impl Loads {
    /// Begins a load. If another thread loads the node already, waits until that has ended, and returns `None`.
    pub(crate) fn begin(&self, slot: &Slot) -> Option<Load<'_>> {
        let slot = ptr::from_ref(slot).addr();
        let mut slots = self.slots.lock();
        if slots.insert(slot) {
            return Some(Load { loads: self, slot });
        }
        while slots.contains(&slot) {
            self.ended.wait(&mut slots);
        }
        None
    }

    /// Waits until no other thread loads the node, and keeps them from it.
    pub(crate) fn begin_alone(&self, slot: &Slot) -> Load<'_> {
        loop {
            if let Some(load) = self.begin(slot) {
                return load;
            }
        }
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.loads.slots.lock().remove(&self.slot);
        self.loads.ended.notify_all();
    }
}
