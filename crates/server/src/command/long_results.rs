//! The members of a result of several sets, for a reply, which are found piece by piece.
//!
//! How many they are comes first in the reply. So they are found twice in one snapshot: to count them, which keeps the first piece, and
//! from its end on to send the others. Between two pieces the batches of rows that were read are in memory, about as much as a piece.

use fulgurite::Snapshot;
use fulgurite_resp::{Encoder, Protocol};

use super::set_operations::{Operation, Results};
use crate::model::{Collection, Model, PIECE_BYTES, Source, View, damaged_row, row_name};
use crate::runner::Runner;
use crate::stop::Result;

/// The result of more sets is one piece: a row of each is in memory.
const SETS_MAX: usize = 512;

/// Members at one commit, in the order in which they are found. While it lives, the database keeps them.
#[derive(Clone, Debug)]
pub(crate) struct LongResults {
    snapshot: Snapshot,
    /// Those after the first piece.
    rest: Results,
    /// How many are to come, those of the first piece included.
    left: usize,
    /// The first piece, and how many members it has.
    first: (Vec<u8>, usize),
}

impl LongResults {
    /// The result of an operation with sets of a view, on a long worker. `None` in a transaction.
    pub(super) fn of(
        view: &View<'_>,
        operation: Operation,
        sets: &[Option<Collection>],
    ) -> Result<Option<LongResults>> {
        let Source::Snapshot(snapshot) = view.source else { return Ok(None) };
        if !view.runner.may_take_long() || sets.len() > SETS_MAX {
            return Ok(None);
        }
        let mut results = Results::of(view, operation, sets)?;
        let mut first = (Vec::new(), 0);
        while first.0.len() < PIECE_BYTES
            && let Some(row) = results.next(view)?
        {
            Encoder::new(&mut first.0, Protocol::default()).bulk(row_name(&row));
            first.1 += 1;
        }
        let (rest, mut left) = (results.clone(), first.1);
        while results.next(view)?.is_some() {
            left += 1;
        }
        Ok(Some(LongResults { snapshot: snapshot.clone(), rest, left, first }))
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
        let view =
            View { source, model, runner: Runner::LongWorker, now_ms: 0, keyspace: 0, has_walked: None };
        while self.left > 0 && out.len() < end {
            let row = self.rest.next(&view)?.ok_or_else(|| damaged_row(b""))?;
            Encoder::new(out, protocol).bulk(row_name(&row));
            self.left -= 1;
        }
        Ok(())
    }
}
