//! No two nodes lead in one term.

use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Leaders(BTreeMap<u64, u32>);

impl Leaders {
    pub fn appointed(&mut self, seed: u64, term: u64, node: u32) {
        let before = self.0.insert(term, node);
        assert!(before.is_none(), "seed {seed}: two nodes lead in term {term}");
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}
