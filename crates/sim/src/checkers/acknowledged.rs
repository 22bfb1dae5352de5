//! What was acknowledged is never lost, while a majority keeps its disks.

use super::Order;
use crate::client::Transaction;
use fulgurite_types::Csn;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Acknowledged {
    /// By its number: the transaction.
    all: BTreeMap<Csn, u64>,
}

impl Acknowledged {
    pub fn note(&mut self, transaction: &Transaction) {
        let csn = transaction.csn.expect("a ticket has it");
        let before = self.all.insert(csn, transaction.id);
        assert!(before.is_none(), "commit {csn} was acknowledged twice");
    }

    pub fn newest(&self) -> Csn {
        self.all.last_key_value().map_or(Csn::ZERO, |(csn, _)| *csn)
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Each of them is among the agreed commits.
    pub fn check(&self, seed: u64, order: &Order) {
        for (csn, id) in &self.all {
            assert_eq!(
                order.id_of(*csn),
                Some(*id),
                "seed {seed}: commit {csn} was acknowledged, and is lost"
            );
        }
    }
}
