//! An agreed entry is the same on every node and for ever, and the first time that one is seen a majority has it on disk.

use crate::machine::Machine;
use fulgurite_log::Entry;

#[derive(Default)]
pub(crate) struct AgreedEntries {
    /// From the first on.
    all: Vec<Entry>,
}

impl AgreedEntries {
    /// A node knows that this entry is agreed, with one of these sets of members. Returns whether it is new.
    pub fn check<'s>(
        &mut self,
        seed: u64,
        node: u32,
        entry: &Entry,
        (machines, mut sets): (&[Machine], impl Iterator<Item = &'s Vec<u32>>),
    ) -> bool {
        if let Some(known) = self.all.get(entry.id.index as usize - 1) {
            assert_eq!(known.id, entry.id, "seed {seed}: node {node} has another entry than was agreed");
            assert!(known == entry, "seed {seed}: node {node} has another entry than was agreed");
            return false;
        }
        assert_eq!(entry.id.index as usize, self.all.len() + 1, "seed {seed}: entries are dense");
        let has =
            |number: &&u32| machines.get(**number as usize - 1).is_some_and(|machine| machine.has(entry));
        let is_majority = |set: &Vec<u32>| 2 * set.iter().filter(has).count() > set.len();
        assert!(sets.any(is_majority), "seed {seed}: no majority has entry {}", entry.id);
        self.all.push(entry.clone());
        true
    }

    pub fn last(&self) -> u64 {
        self.all.len() as u64
    }
}
