//! Replies that leave in pieces.
//!
//! **INV-SRV-5.** *All bytes of a reply that leaves in pieces are of one snapshot; each piece is verified before it leaves, and nothing
//! else of the connection leaves between the first and the last.* A connection whose session has such a reply runs no command. When
//! little of its output is unsent, a worker reads the next piece: so a reply takes two pieces of memory, however long it is,
//! and a reader that takes nothing has nothing read. What a piece needs to be durable is what the header needs, before it (INV-SRV-1).

use std::ops::Deref;
use std::sync::Arc;

use fulgurite_resp::Encoder;

use crate::command::LongResults;
use crate::context::Context;
use crate::long_exec::LongExec;
use crate::model::{
    Bounds, Collection, Counts, Kind, LongKeys, LongRows, LongText, LongValues, PIECE_BYTES, RowsToSend,
    Shown, ValuesToSend,
};
use crate::runner::Pool;
use crate::session::Session;
use crate::shared::Shared;
use crate::stop::Result;

/// A connection with more unsent bytes gets no further piece.
pub(crate) const UNSENT_BYTES_MAX: usize = PIECE_BYTES;

/// What is left of a reply of which the beginning is in the output.
#[derive(Clone, Debug)]
pub(crate) struct LongReply {
    content: Content,
    /// Counts those that there are.
    _counted: Option<Arc<()>>,
}

/// What the pieces are of.
#[derive(Clone, Debug)]
enum Content {
    /// The bytes of a bulk string.
    Text(LongText),
    /// The elements of an aggregate.
    Rows(LongRows),
    /// The elements of an array.
    Values(LongValues),
    /// The same.
    Keys(LongKeys),
    /// The members of a set.
    Results(LongResults),
    /// The replies of the commands of a transaction.
    Exec(LongExec),
}

impl LongReply {
    /// How many bytes, rows, values or keys are to come.
    pub fn left(&self) -> usize {
        match &self.content {
            Content::Text(text) => text.left(),
            Content::Rows(rows) => rows.left() as usize,
            Content::Values(values) => values.left(),
            Content::Keys(keys) => keys.left(),
            Content::Results(results) => results.left(),
            Content::Exec(exec) => exec.left(),
        }
    }

    /// Which threads read its pieces: strings, rows and values are as many bytes as a piece has, others may be searched for.
    pub fn pool(&self) -> Pool {
        match &self.content {
            Content::Text(_) | Content::Rows(_) | Content::Values(_) => Pool::Workers,
            Content::Keys(_) | Content::Results(_) | Content::Exec(_) => Pool::Long,
        }
    }

    /// Appends the next piece. Returns whether it was the last one.
    pub fn read_piece(
        &mut self,
        shared: &Shared,
        session: &mut Session,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let (model, protocol) = (&shared.model, session.protocol);
        match &mut self.content {
            Content::Text(text) => {
                out.reserve_exact(text.left().min(PIECE_BYTES) + 2);
                text.read_piece(model, out)?;
                if text.left() == 0 {
                    Encoder::new(out, protocol).crlf();
                }
            }
            Content::Rows(rows) => rows.read_piece(model, protocol, out)?,
            Content::Values(values) => values.read_piece(model, protocol, out)?,
            Content::Keys(keys) => keys.read_piece(model, protocol, out)?,
            Content::Results(results) => results.read_piece(model, protocol, out)?,
            Content::Exec(exec) => exec.read_piece(shared, session, counts, out)?,
        }
        Ok(self.left() == 0)
    }
}

impl Context<'_> {
    /// Whether its reply may leave in pieces: not that of a command of a transaction that writes.
    pub fn takes_pieces(&self) -> bool {
        !self.is_in_exec()
    }

    /// Replies with a string, the first piece of it at once.
    pub fn reply_long_text(&mut self, text: LongText) -> Result<()> {
        self.reply().bulk_header(text.left());
        self.begin_long_reply(Content::Text(text))
    }

    /// Replies with rows of the collection of a key, in their order. `header` begins the reply, and gets how many there are.
    pub fn reply_rows(
        &mut self,
        key: &[u8],
        kind: Kind,
        shown: Shown,
        header: fn(&mut Encoder<'_>, usize),
        range: impl Fn(&Collection) -> (Bounds, u64),
    ) -> Result<()> {
        let in_pieces = self.takes_pieces();
        let found = self.read_collection(key, kind, |view, collection| {
            let (bounds, count) = range(collection);
            view.rows_to_send(bounds, count, shown, in_pieces)
        })?;
        match found {
            Some(RowsToSend::InPieces(rows)) => self.reply_long_rows(rows, header),
            Some(RowsToSend::All(rows)) => {
                let mut reply = self.reply();
                header(&mut reply, rows.len());
                rows.iter().try_for_each(|(row, value)| shown.append(row, value, &mut reply))
            }
            None => {
                header(&mut self.reply(), 0);
                Ok(())
            }
        }
    }

    /// Replies with rows, the first piece of them at once. `header` begins the reply, and gets how many there are.
    pub fn reply_long_rows(
        &mut self,
        rows: LongRows,
        header: impl FnOnce(&mut Encoder<'_>, usize),
    ) -> Result<()> {
        header(&mut self.reply(), rows.left() as usize);
        self.begin_long_reply(Content::Rows(rows))
    }

    /// Replies with an array of values, nil where there is none.
    pub fn reply_values<T: Deref<Target = [u8]>>(&mut self, found: ValuesToSend<T>) -> Result<()> {
        let values = match found {
            ValuesToSend::InPieces(values) => {
                self.reply().array(values.left());
                return self.begin_long_reply(Content::Values(values));
            }
            ValuesToSend::All(values) => values,
        };
        let mut reply = self.reply();
        reply.array(values.len());
        for value in &values {
            match value {
                Some(value) => reply.bulk(value),
                None => reply.null(),
            }
        }
        Ok(())
    }

    /// Replies with an array of keys.
    pub fn reply_long_keys(&mut self, keys: LongKeys) -> Result<()> {
        self.reply().array(keys.left());
        self.begin_long_reply(Content::Keys(keys))
    }

    /// Replies with the members of a result of sets.
    pub fn reply_long_results(&mut self, results: LongResults) -> Result<()> {
        self.reply().set(results.left());
        self.begin_long_reply(Content::Results(results))
    }

    /// Replies with an array of the replies of commands.
    pub fn reply_long_exec(&mut self, exec: LongExec) -> Result<()> {
        self.reply().array(exec.left());
        self.begin_long_reply(Content::Exec(exec))
    }

    /// Appends the first piece of a reply. The others follow it.
    fn begin_long_reply(&mut self, content: Content) -> Result<()> {
        // One that is in the reply of `EXEC` is counted with that.
        let counted = self.snapshot.is_none().then(|| self.shared.long_replies.clone());
        let mut reply = LongReply { content, _counted: counted };
        if !reply.read_piece(self.shared, self.session, self.counts, self.out)? {
            self.session.long_reply = Some(Box::new(reply));
        }
        Ok(())
    }
}
