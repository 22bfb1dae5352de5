//! Rows of a collection for a reply, which are read piece by piece if they are many.

use std::ops::Bound;

use fulgurite::{Snapshot, Value};
use fulgurite_resp::{Encoder, Protocol};

use super::content::{Bounds, split_score_key};
use super::long_text::PIECE_BYTES;
use super::tables::{Model, TableKey};
use super::view::{Order, Source, View, damaged_row, row_name};
use crate::runner::Runner;
use crate::stop::Result;

/// What a reply shows of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Name,
    Value,
    NameAndValue,
    /// The member in the key of a row by score.
    Member,
    /// The same, and its score: after it in RESP2, both in an array in RESP3.
    MemberAndScore,
}

impl Shown {
    pub fn append(self, row: &Value, value: &Value, reply: &mut Encoder<'_>) -> Result<()> {
        let scored = || split_score_key(row).ok_or_else(|| damaged_row(row));
        match self {
            Shown::Name => reply.bulk(row_name(row)),
            Shown::Value => reply.bulk(value),
            Shown::NameAndValue => {
                reply.bulk(row_name(row));
                reply.bulk(value);
            }
            Shown::Member => reply.bulk(scored()?.1),
            Shown::MemberAndScore => {
                let (score, name) = scored()?;
                if reply.protocol() == Protocol::Resp3 {
                    reply.array(2);
                }
                reply.bulk(name);
                reply.double(score);
            }
        }
        Ok(())
    }
}

/// Rows for a reply.
pub(crate) enum RowsToSend {
    All(Vec<(Value, Value)>),
    InPieces(LongRows),
}

/// Rows at one commit, in their order, which are read piece by piece. While it lives, the database keeps them.
#[derive(Clone, Debug)]
pub(crate) struct LongRows {
    snapshot: Snapshot,
    rest: Bounds,
    order: Order,
    /// How many of those in `rest` are to come.
    left: u64,
    shown: Shown,
}

impl LongRows {
    /// How many were not read yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Appends the next ones: so many that they have the length of a piece, but for the last one.
    pub fn read_piece(&mut self, model: &Model, protocol: Protocol, out: &mut Vec<u8>) -> Result<()> {
        let end = out.len() + PIECE_BYTES;
        let source = Source::Snapshot(&self.snapshot);
        let view =
            View { source, model, runner: Runner::LongWorker, now_ms: 0, keyspace: 0, has_walked: None };
        let (mut left, mut last) = (self.left, TableKey::new());
        view.each_row(self.rest.clone(), self.order, usize::MAX, |row, value| {
            self.shown.append(&row, &value, &mut Encoder::new(out, protocol))?;
            left -= 1;
            let goes_on = left > 0 && out.len() < end;
            if !goes_on {
                last = TableKey::from_slice(&row);
            }
            Ok(goes_on)
        })?;
        if left > 0 && out.len() < end {
            let (Bound::Included(from) | Bound::Excluded(from)) = &self.rest.0 else {
                return Err(damaged_row(b""));
            };
            return Err(damaged_row(from));
        }
        self.left = left;
        match self.order {
            Order::Forward => self.rest.0 = Bound::Excluded(last),
            Order::Backward => self.rest.1 = Bound::Excluded(last),
        }
        Ok(())
    }
}

impl View<'_> {
    /// The `count` rows between bounds, for a reply: read piece by piece if `in_pieces` says so.
    pub fn rows_to_send(
        &self,
        bounds: Bounds,
        count: u64,
        shown: Shown,
        in_pieces: bool,
    ) -> Result<RowsToSend> {
        self.check_rows(count)?;
        if in_pieces
            && count > 0
            && let Some(rows) = self.long_rows(bounds.clone(), Order::Forward, count, shown)
        {
            return Ok(RowsToSend::InPieces(rows));
        }
        let rows = self.rows(bounds, Order::Forward, usize::MAX)?;
        if rows.len() as u64 == count {
            return Ok(RowsToSend::All(rows));
        }
        Err(damaged_row(rows.first().map_or(&[][..], |(row, _)| row)))
    }

    /// The first `count` rows between bounds, from either end, which are read piece by piece. `None` in a transaction, and but on a long
    /// worker.
    pub fn long_rows(&self, bounds: Bounds, order: Order, count: u64, shown: Shown) -> Option<LongRows> {
        match self.source {
            Source::Snapshot(snapshot) if self.runner.may_take_long() => {
                Some(LongRows { snapshot: snapshot.clone(), rest: bounds, order, left: count, shown })
            }
            _ => None,
        }
    }
}
