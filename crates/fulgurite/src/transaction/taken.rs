//! The key ranges that a transaction has emptied by pops: later pops skip them at once, and do not step over each
//! deleted key.

use fulgurite_types::{KeySpan, TableId};

/// The most runs over all tables. More are not worth their seeks, because a pop mostly extends an existing run.
const RUNS_MAX: usize = 4;

/// A range of keys in which this transaction sees no entry: it popped some, and its snapshot has no others. That holds
/// until the transaction writes one of the keys, or undoes writes.
struct Run {
    table: TableId,
    keys: KeySpan,
    /// How many entries it popped there.
    taken: u64,
}

/// The runs of a transaction, the newest last.
#[derive(Default)]
pub(super) struct Taken(Vec<Run>);

impl Taken {
    /// The ranges within a range where the transaction may see entries, in key order.
    pub fn around(&self, table: TableId, range: KeySpan) -> Vec<KeySpan> {
        let mut left = vec![range];
        for run in self.0.iter().filter(|run| run.table == table) {
            let outside = |range: &KeySpan| {
                range.borrowed().without(run.keys.borrowed()).map(|rest| rest.map(KeySpan::owned))
            };
            left = left.iter().flat_map(outside).flatten().collect();
        }
        left
    }

    /// The transaction popped an entry, and sees no other one in this range.
    pub fn took(&mut self, table: TableId, keys: KeySpan) {
        let mut taken = 1;
        self.0.retain(|run| {
            let is_within = run.table == table && keys.covers(&run.keys);
            taken += if is_within { run.taken } else { 0 };
            !is_within
        });
        if self.0.len() == RUNS_MAX {
            let least = self.0.iter().enumerate().min_by_key(|(_, run)| run.taken);
            let least = least.map(|(index, _)| index).expect("there are some");
            self.0.remove(least);
        }
        self.0.push(Run { table, keys, taken });
    }

    /// The transaction writes this key.
    #[inline]
    pub fn written(&mut self, table: TableId, key: &[u8]) {
        if !self.0.is_empty() {
            self.end_at(table, key);
        }
    }

    #[cold]
    fn end_at(&mut self, table: TableId, key: &[u8]) {
        self.0.retain(|run| run.table != table || !run.keys.contains(key));
    }

    /// The transaction rolled back to a savepoint.
    pub fn undone(&mut self) {
        self.0.clear();
    }
}
