//! Values of several keys, or of several fields of a hash, for a reply, which are read piece by piece.

use std::ops::Deref;

use fulgurite::Snapshot;
use fulgurite_resp::{Encoder, Protocol};

use super::head::Collection;
use super::long_text::{LongText, Outgoing, PIECE_BYTES};
use super::tables::Model;
use super::text::INLINE_VALUE_BYTES_MAX;
use super::view::{Source, View};
use crate::args::{Args, OwnedArgs};
use crate::runner::Runner;
use crate::stop::{Result, Stop};

/// Values for a reply, in the order of their names.
pub(crate) enum ValuesToSend<T> {
    All(Vec<Option<T>>),
    InPieces(LongValues),
}

/// Values at one commit and one time, in the order of their names. While it lives, the database keeps them.
#[derive(Clone, Debug)]
pub(crate) struct LongValues {
    snapshot: Snapshot,
    now_ms: u64,
    keyspace: u32,
    /// The hash that has the fields; `None`: they are strings of keys.
    hash: Option<Collection>,
    names: OwnedArgs,
    /// The first name of which nothing was read yet.
    next: usize,
    /// The string that the last piece ended in.
    text: Option<LongText>,
}

/// What a name has.
enum Found {
    Nothing,
    Whole,
    Long(LongText),
    /// It is longer than what is left of the piece: the next one begins with it.
    TooLong,
}

impl LongValues {
    /// How many names, and bytes of a string that was begun, are to come.
    pub fn left(&self) -> usize {
        self.names.len() - self.next + self.text.as_ref().map_or(0, LongText::left)
    }

    /// Appends the next values, of at most the length of a piece, or one that is longer. A string is longer only if no more of it is left.
    pub fn read_piece(&mut self, model: &Model, protocol: Protocol, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        if self.next > 0 {
            out.reserve_exact(PIECE_BYTES);
        }
        while out.len() - start < PIECE_BYTES {
            if let Some(text) = &mut self.text {
                text.read_piece(model, out)?;
                if text.left() > 0 {
                    break;
                }
                Encoder::new(out, protocol).crlf();
                self.text = None;
                continue;
            }
            let Some(name) = self.names.get(self.next) else { break };
            let room = if out.len() == start { usize::MAX } else { PIECE_BYTES - (out.len() - start) };
            match self.append(name, room, model, &mut Encoder::new(out, protocol))? {
                Found::Nothing => Encoder::new(out, protocol).null(),
                Found::Whole => {}
                Found::Long(text) => self.text = Some(text),
                Found::TooLong => break,
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Appends the value of a name, or the header of a long string, if there is room for it.
    fn append(&self, name: &[u8], room: usize, model: &Model, reply: &mut Encoder<'_>) -> Result<Found> {
        let (now_ms, keyspace) = (self.now_ms, self.keyspace);
        let view = View {
            source: Source::Snapshot(&self.snapshot),
            model,
            runner: Runner::LongWorker,
            now_ms,
            keyspace,
            has_walked: None,
        };
        if let Some(hash) = &self.hash {
            let Some(value) = view.member(hash, name)? else { return Ok(Found::Nothing) };
            if value.len() > room {
                return Ok(Found::TooLong);
            }
            reply.bulk(&value);
            return Ok(Found::Whole);
        }
        let Some(old) = view.live(name)?.filter(|old| old.check_text().is_ok()) else {
            return Ok(Found::Nothing);
        };
        if old.text_len()? > room {
            return Ok(Found::TooLong);
        }
        Ok(match view.text_to_send(&old, 0..usize::MAX, true)? {
            Outgoing::Whole(text) => {
                reply.bulk(&text);
                Found::Whole
            }
            Outgoing::InPieces(text) => {
                reply.bulk_header(text.left());
                Found::Long(text)
            }
        })
    }
}

impl View<'_> {
    /// The strings of keys, or the values of fields of a hash, for a reply: read piece by piece, or by `read` in a transaction and on a
    /// thread that is no long worker.
    pub fn values_to_send<T: Deref<Target = [u8]>>(
        &self,
        hash: Option<&Collection>,
        names: &[&[u8]],
        read: impl Fn(&[u8]) -> Result<Option<T>>,
    ) -> Result<ValuesToSend<T>> {
        if let Source::Snapshot(snapshot) = self.source
            && self.runner.may_take_long()
        {
            return Ok(ValuesToSend::InPieces(LongValues {
                snapshot: snapshot.clone(),
                now_ms: self.now_ms,
                keyspace: self.keyspace,
                hash: hash.copied(),
                names: OwnedArgs::copy(&Args::of_slices(names)),
                next: 0,
                text: None,
            }));
        }
        let (mut found, mut bytes) = (Vec::with_capacity(names.len()), 0);
        for name in names {
            let value = read(name)?;
            bytes += value.as_ref().map_or(0, |value| value.len());
            if !self.runner.may_take_long() && bytes > INLINE_VALUE_BYTES_MAX {
                return Err(Stop::Large);
            }
            found.push(value);
        }
        Ok(ValuesToSend::All(found))
    }
}
