//! Commits in the order of their numbers explain what every transaction read: its key had the value of the last commit before it. And no
//! commit is before one that was acknowledged when it began: with the reads behind a barrier that is linearizability.

use crate::client::{Other, Transaction, Value, id_of};
use fulgurite_log::{Entry, GroupKind};
use fulgurite_types::Csn;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Order {
    ids: BTreeMap<Csn, u64>,
    numbers: BTreeMap<u64, Csn>,
    /// When each commit happened, in milliseconds since 1970, and when the value of a transaction expires.
    times: BTreeMap<Csn, u64>,
    expiries: BTreeMap<u64, u64>,
    /// The values of each key, by the commit from which on it has them.
    values: BTreeMap<u64, BTreeMap<Csn, Value>>,
    /// The other tables, with the transaction whose row each has.
    tables: BTreeMap<String, Value>,
    /// Transactions that did not happen, as their clients heard.
    refused: BTreeSet<u64>,
}

impl Order {
    /// An entry was agreed.
    pub fn agreed(
        &mut self,
        seed: u64,
        entry: &Entry,
        transactions: &BTreeMap<u64, Transaction>,
        dropped_by: &BTreeMap<String, u64>,
    ) {
        if entry.kind != GroupKind::Frames {
            return;
        }
        for (csn, time_ms, body) in frames_of(entry) {
            let Some(id) = id_of(&body) else { panic!("seed {seed}: commit {csn} is of no transaction") };
            // One that drops a table has the name that another one gave it.
            let id = match self.numbers.contains_key(&id) {
                true => dropped_by.get(&format!("#{id:012}")).copied().unwrap_or(id),
                false => id,
            };
            let Some(transaction) = transactions.get(&id) else {
                panic!("seed {seed}: commit {csn} is of transaction {id}, which got no number")
            };
            let known = transaction.csn.unwrap_or(csn);
            assert_eq!(known, csn, "seed {seed}: transaction {id} has two numbers");
            assert!(!self.numbers.contains_key(&id), "seed {seed}: transaction {id} is there twice");
            assert!(!self.refused.contains(&id), "seed {seed}: commit {csn} was refused, and is there");
            if let Some((key, read)) = transaction.read {
                // It saw what is live at its own time: what expired in between keeps it from committing.
                let before = self.at(key, csn.prev()).filter(|id| !self.has_expired(*id, time_ms));
                assert_eq!(before, read, "seed {seed}: transaction {id}, commit {csn}, read key {key}");
            }
            assert!(
                transaction.begun_after < csn,
                "seed {seed}: commit {csn} began after {} was acknowledged",
                transaction.begun_after
            );
            for (key, value) in &transaction.writes {
                self.values.entry(*key).or_default().insert(csn, *value);
            }
            if let Some(other) = &transaction.other {
                self.change_tables(seed, id, other);
            }
            self.ids.insert(csn, id);
            self.numbers.insert(id, csn);
            self.times.insert(csn, time_ms);
            if transaction.expires_at_ms > 0 {
                self.expiries.insert(id, transaction.expires_at_ms);
            }
        }
    }

    fn change_tables(&mut self, seed: u64, id: u64, other: &Other) {
        let own = format!("#{id:012}");
        let is_right = match other {
            Other::Create => self.tables.insert(own, None).is_none(),
            Other::Drop(table) => self.tables.remove(table).is_some(),
            Other::Rename(table) => {
                self.tables.remove(table).is_some_and(|row| self.tables.insert(own, row).is_none())
            }
            Other::Put(table) => self.tables.get_mut(table).map(|row| *row = Some(id)).is_some(),
        };
        assert!(is_right, "seed {seed}: transaction {id} does {other:?} to the tables {:?}", self.tables);
    }

    /// The other tables, with the transaction whose row each has.
    pub fn tables(&self) -> &BTreeMap<String, Value> {
        &self.tables
    }

    /// A client heard that its transaction did not happen.
    pub fn refused(&mut self, id: u64) {
        self.refused.insert(id);
    }

    /// The transaction of a commit.
    pub fn id_of(&self, csn: Csn) -> Option<u64> {
        self.ids.get(&csn).copied()
    }

    /// Whether the value of a transaction has expired at a time.
    fn has_expired(&self, id: u64, time_ms: u64) -> bool {
        self.expiries.get(&id).is_some_and(|expires_at_ms| *expires_at_ms <= time_ms)
    }

    /// Whether a reader in a snapshot at a commit may find this: at that commit's time, at which followers stand, or later.
    pub fn may_be(&self, key: u64, csn: Csn, found: Value, follows: bool) -> bool {
        let Some(id) = self.at(key, csn) else { return found.is_none() };
        let time_ms = self.times.range(..=csn).next_back().map_or(0, |(_, time_ms)| *time_ms);
        match found {
            _ if self.has_expired(id, time_ms) => found.is_none(),
            None => !follows && self.expiries.contains_key(&id),
            found => found == Some(id),
        }
    }

    /// The value of a key as of a commit, expired or not.
    pub fn at(&self, key: u64, csn: Csn) -> Value {
        let values = self.values.get(&key)?;
        values.range(..=csn).next_back().and_then(|(_, value)| *value)
    }
}

/// The commits of an entry with their times, by the grammar of `docs/format/log.md`.
fn frames_of(entry: &Entry) -> Vec<(Csn, u64, Vec<u8>)> {
    let (mut rest, mut frames) = (&entry.payload[..], Vec::new());
    while !rest.is_empty() {
        let number = |at: usize, len: usize| {
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&rest[at..at + len]);
            u64::from_le_bytes(bytes)
        };
        let (len, csn) = (number(4, 4) as usize, Csn(number(8, 8)));
        frames.push((csn, number(24, 8), rest[40..40 + len].to_vec()));
        rest = &rest[40 + len..];
    }
    frames
}
