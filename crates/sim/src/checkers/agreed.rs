//! An agreed entry is the same on every node and for ever, and the first time that one is seen a majority has it on disk.

use crate::machine::Machine;
use fulgurite_log::Entry;

#[derive(Default)]
pub(crate) struct AgreedEntries {
    /// From the first on.
    all: Vec<Entry>,
}

impl AgreedEntries {
    /// A node knows that this entry is agreed. Returns whether it is new.
    pub fn check(&mut self, seed: u64, node: u32, entry: &Entry, machines: &[Machine]) -> bool {
        if let Some(known) = self.all.get(entry.id.index as usize - 1) {
            assert_eq!(known.id, entry.id, "seed {seed}: node {node} has another entry than was agreed");
            assert!(known == entry, "seed {seed}: node {node} has another entry than was agreed");
            return false;
        }
        assert_eq!(entry.id.index as usize, self.all.len() + 1, "seed {seed}: entries are dense");
        let count = machines.iter().filter(|machine| machine.has(entry)).count();
        assert!(2 * count > machines.len(), "seed {seed}: no majority has entry {}", entry.id);
        self.all.push(entry.clone());
        true
    }

    pub fn last(&self) -> u64 {
        self.all.len() as u64
    }
}
