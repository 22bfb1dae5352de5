//! A read at any node sees the agreed commits up to its snapshot, and nothing else; one behind a barrier sees all that was acknowledged before
//! it began.

use super::Order;
use crate::client::Value;
use fulgurite_types::Csn;

#[derive(Default)]
pub(crate) struct Reads {
    count: usize,
}

impl Reads {
    /// A node found this value for a key, in a snapshot at this commit, while it followed or not.
    pub fn check(
        &mut self,
        seed: u64,
        (at, csn, follows): (usize, Csn, bool),
        (key, found): (u64, Value),
        order: &Order,
    ) {
        self.count += 1;
        let (node, last) = (at + 1, order.at(key, csn));
        assert!(
            order.may_be(key, csn, found, follows),
            "seed {seed}: node {node} read key {key} as of commit {csn}: {found:?}, not {last:?}"
        );
    }

    /// A read behind a barrier was at a commit, and began after another one was acknowledged.
    pub fn check_newest(&self, seed: u64, at: usize, csn: Csn, acknowledged: Csn) {
        let node = at + 1;
        assert!(
            csn >= acknowledged,
            "seed {seed}: node {node} read as of {csn}, after {acknowledged} was acknowledged"
        );
    }

    pub fn count(&self) -> usize {
        self.count
    }
}
