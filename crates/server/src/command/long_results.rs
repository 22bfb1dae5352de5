//! The members of a result of several sets, for a reply, which are found piece by piece.
//!
//! How many they are comes first in the reply. So they are found twice in one snapshot: to count them, which keeps the first piece, and
//! from its end on to send the others. Between two pieces no more than the last member is in memory.

use fulgurite::Snapshot;
use fulgurite_resp::{Encoder, Protocol};

use super::set_operations::{Operation, Results};
use crate::model::{Collection, Model, PIECE_BYTES, Source, TableKey, View, damaged_row, row_name};
use crate::stop::Result;

/// Members at one commit, in the order in which they are found. While it lives, the database keeps them.
#[derive(Clone, Debug)]
pub(crate) struct LongResults {
    snapshot: Snapshot,
    operation: Operation,
    sets: Vec<Option<Collection>>,
    /// The row of the last member that was found, in one of the sets.
    last: TableKey,
    /// How many are to come, those of the first piece included.
    left: usize,
    /// The first piece, and how many members it has.
    first: (Vec<u8>, usize),
}

impl LongResults {
    /// The result of an operation with sets of a view, on a thread that may wait. `None` in a transaction.
    pub(super) fn of(
        view: &View<'_>,
        operation: Operation,
        sets: &[Option<Collection>],
    ) -> Result<Option<LongResults>> {
        let (Source::Snapshot(snapshot), true) = (view.source, view.may_wait) else { return Ok(None) };
        let mut results = Results::of(view, operation, sets)?;
        let (mut count, mut first, mut last) = (0, (Vec::new(), 0), TableKey::new());
        while let Some(row) = results.next(view)? {
            count += 1;
            if first.0.len() < PIECE_BYTES {
                Encoder::new(&mut first.0, Protocol::default()).bulk(row_name(&row));
                first.1 += 1;
                last = TableKey::from_slice(&row);
            }
        }
        let (snapshot, sets) = (snapshot.clone(), sets.to_vec());
        Ok(Some(LongResults { snapshot, operation, sets, last, left: count, first }))
    }

    /// How many are to come.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Appends the next ones: so many that they have the length of a piece, but for the last one.
    pub fn read_piece(&mut self, model: &Model, protocol: Protocol, out: &mut Vec<u8>) -> Result<()> {
        let (first, members) = std::mem::take(&mut self.first);
        if members > 0 {
            out.extend_from_slice(&first);
            self.left -= members;
            return Ok(());
        }
        let end = out.len() + PIECE_BYTES;
        let source = Source::Snapshot(&self.snapshot);
        let view = View { source, model, may_wait: true, now_ms: 0, keyspace: 0 };
        let mut results = Results::of(&view, self.operation, &self.sets)?;
        results.start_after(&self.last);
        while self.left > 0 && out.len() < end {
            let row = results.next(&view)?.ok_or_else(|| damaged_row(&self.last))?;
            Encoder::new(out, protocol).bulk(row_name(&row));
            self.left -= 1;
            self.last = TableKey::from_slice(&row);
        }
        Ok(())
    }
}
