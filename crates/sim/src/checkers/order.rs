//! Commits in the order of their numbers explain what every transaction read: its key had the value of the last commit before it. And no
//! commit is before one that was acknowledged when it began: with the reads behind a barrier that is linearizability.

use crate::client::{Transaction, Value, id_of};
use fulgurite_log::{Entry, GroupKind};
use fulgurite_types::Csn;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Order {
    ids: BTreeMap<Csn, u64>,
    /// The values of each key, by the commit from which on it has them.
    values: BTreeMap<u64, BTreeMap<Csn, Value>>,
    /// Transactions that did not happen, as their clients heard.
    refused: BTreeSet<u64>,
}

impl Order {
    /// An entry was agreed.
    pub fn agreed(&mut self, seed: u64, entry: &Entry, transactions: &BTreeMap<u64, Transaction>) {
        if entry.kind != GroupKind::Frames {
            return;
        }
        for (csn, body) in frames_of(entry) {
            let Some(id) = id_of(&body) else { panic!("seed {seed}: commit {csn} is of no transaction") };
            let Some(transaction) = transactions.get(&id) else {
                panic!("seed {seed}: commit {csn} is of transaction {id}, which got no number")
            };
            assert_eq!(transaction.csn, csn, "seed {seed}: transaction {id} has two numbers");
            assert!(!self.refused.contains(&id), "seed {seed}: commit {csn} was refused, and is there");
            let (key, read) = transaction.read;
            let before = self.at(key, csn.prev());
            assert_eq!(before, read, "seed {seed}: transaction {id}, commit {csn}, read key {key}");
            assert!(
                transaction.begun_after < csn,
                "seed {seed}: commit {csn} began after {} was acknowledged",
                transaction.begun_after
            );
            for (key, value) in &transaction.writes {
                self.values.entry(*key).or_default().insert(csn, *value);
            }
            self.ids.insert(csn, id);
        }
    }

    /// A client heard that its transaction did not happen.
    pub fn refused(&mut self, id: u64) {
        self.refused.insert(id);
    }

    /// The transaction of a commit.
    pub fn id_of(&self, csn: Csn) -> Option<u64> {
        self.ids.get(&csn).copied()
    }

    /// The value of a key as of a commit.
    pub fn at(&self, key: u64, csn: Csn) -> Value {
        let values = self.values.get(&key)?;
        values.range(..=csn).next_back().and_then(|(_, value)| *value)
    }
}

/// The commits of an entry, by the grammar of `docs/format/log.md`.
fn frames_of(entry: &Entry) -> Vec<(Csn, Vec<u8>)> {
    let (mut rest, mut frames) = (&entry.payload[..], Vec::new());
    while !rest.is_empty() {
        let number = |at: usize, len: usize| {
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&rest[at..at + len]);
            u64::from_le_bytes(bytes)
        };
        let (len, csn) = (number(4, 4) as usize, Csn(number(8, 8)));
        frames.push((csn, rest[40..40 + len].to_vec()));
        rest = &rest[40 + len..];
    }
    frames
}
