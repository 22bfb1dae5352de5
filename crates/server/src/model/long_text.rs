//! Long strings that are sent piece by piece, and those that are stored piece by piece.

use std::ops::Range;

use fulgurite::Snapshot;

use super::head::{Head, Kind};
use super::tables::{Garbage, Model, garbage_key};
use super::text::{Fragmented, Text};
use super::view::{Source, View};
use super::write::{Old, Write};
use crate::runner::Runner;
use crate::stop::{Result, Stop};

/// So many bytes of a long string are read, or stored, at a time: several fragments.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// The bytes of a string for a reply.
pub(crate) enum Outgoing {
    Whole(Text),
    InPieces(LongText),
}

/// Bytes of a string in fragments at one commit, which are read piece by piece. While it lives, the database keeps them.
#[derive(Clone, Debug)]
pub(crate) struct LongText {
    snapshot: Snapshot,
    id: u64,
    /// What was not read yet.
    rest: Range<usize>,
    /// The first piece: what cannot be read of it is an error of the command.
    first: Vec<u8>,
}

impl LongText {
    /// How many bytes were not taken yet.
    pub fn left(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Appends the next piece. Each fragment of it is verified.
    pub fn read_piece(&mut self, model: &Model, out: &mut Vec<u8>) -> Result<()> {
        if !self.first.is_empty() {
            out.append(&mut std::mem::take(&mut self.first));
            return Ok(());
        }
        let piece = self.rest.start..self.rest.end.min(self.rest.start + PIECE_BYTES);
        self.rest.start = piece.end;
        let source = Source::Snapshot(&self.snapshot);
        View { source, model, runner: Runner::LongWorker, now_ms: 0, keyspace: 0, has_walked: None }
            .push_fragments(self.id, piece, out)
    }
}

impl View<'_> {
    /// The bytes of a range within a string, for a reply: read piece by piece if they are many and `in_pieces` says so.
    ///
    /// A command that writes reads all of them once before: it fails, and has written nothing, if one is damaged.
    pub fn text_to_send(&self, old: &Old, range: Range<usize>, in_pieces: bool) -> Result<Outgoing> {
        let range = range.start..range.end.min(old.text_len()?);
        if old.whole_text()?.is_some() || range.len() <= PIECE_BYTES || !in_pieces {
            return Ok(Outgoing::Whole(match range.len() {
                len if len == old.text_len()? => self.text(old)?,
                _ => Text::Assembled(self.text_range(old, range)?),
            }));
        }
        if !self.runner.may_take_long() {
            return Err(Stop::Large);
        }
        let id = old.fragmented()?.id;
        let open = |snapshot: &Snapshot| -> Result<LongText> {
            let snapshot = snapshot.clone();
            let mut text = LongText { snapshot, id, rest: range.clone(), first: Vec::new() };
            let mut first = Vec::with_capacity(PIECE_BYTES);
            text.read_piece(self.model, &mut first)?;
            text.first = first;
            Ok(text)
        };
        Ok(Outgoing::InPieces(match self.source {
            Source::Snapshot(snapshot) => open(snapshot)?,
            Source::Transaction(txn) => {
                // If the transaction commits, the content is still as it saw it: each change of it writes the head, too.
                let snapshot = self.model.db.snapshot_at(txn.snapshot_csn())?;
                let (mut checked, mut piece) = (open(&snapshot)?, Vec::with_capacity(PIECE_BYTES));
                while checked.left() > 0 {
                    piece.clear();
                    checked.read_piece(self.model, &mut piece)?;
                }
                open(&snapshot)?
            }
        }))
    }
}

impl Write<'_> {
    /// Names the content of an id as garbage: nothing refers to it yet.
    pub fn leave_id(&mut self, id: u64) -> Result<()> {
        Ok(self.txn.put(&self.model.tables.garbage, garbage_key(Garbage::Content(id)), b"")?)
    }

    /// Gives a key whose record was `old` the string whose fragments are stored, and were garbage so far.
    pub fn put_stored_text(
        &mut self,
        key: &[u8],
        old: Option<&Old>,
        stored: Fragmented,
        expires_at_ms: u64,
    ) -> Result<()> {
        self.txn.delete(&self.model.tables.garbage, garbage_key(Garbage::Content(stored.id)))?;
        self.put(key, old, Head { kind: Kind::FragmentedString, expires_at_ms }, &stored.encode())
    }
}
