//! A command with large arguments while it arrives: most are collected, the value of a `SET` is stored.

use std::sync::Arc;

use fulgurite_resp::{Arguments, Piece};

use crate::args::OwnedArgs;
use crate::arrivals::{Arrival, STORED_FROM_BYTES};
use crate::command;
use crate::model::{FRAGMENT_BYTES, PIECE_BYTES};
use crate::session::Session;
use crate::shared::Shared;

/// A command with large arguments that is arriving.
#[derive(Default)]
pub(super) struct Arriving {
    args: OwnedArgs,
    storing: Option<Box<Storing>>,
}

/// A value that is stored while it arrives. It travels to a worker and back with each piece.
pub(crate) struct Storing {
    arrival: Arrival,
    /// What arrived and is not stored.
    bytes: Vec<u8>,
    has_all: bool,
}

impl Storing {
    fn is_of(&self, piece: Piece<'_>) -> bool {
        self.arrival.argument == piece.argument
    }

    /// Stores what has arrived, as far as it is whole fragments: on a worker.
    pub fn store(&mut self, shared: &Shared) {
        let rest = if self.has_all { 0 } else { self.bytes.len() % FRAGMENT_BYTES };
        let stored = self.bytes.len() - rest;
        self.arrival.store(shared, &self.bytes[..stored]);
        self.bytes.drain(..stored);
    }
}

impl Arriving {
    /// How many bytes of it are in memory.
    pub fn bytes(&self) -> usize {
        self.args.bytes() + self.storing.as_ref().map_or(0, |storing| storing.bytes.len())
    }

    pub fn push(&mut self, arguments: Arguments<'_>) {
        arguments.iter().for_each(|argument| self.args.push(argument));
    }

    /// Takes bytes of a large argument. Returns what a worker has to store before it takes more.
    pub fn push_piece(
        &mut self,
        shared: &Shared,
        session: &Session,
        piece: Piece<'_>,
    ) -> Option<Box<Storing>> {
        if piece.offset_bytes == 0 && self.is_stored(session, piece) {
            let arrival = Arrival::new(piece.argument, &shared.arrivals);
            let bytes = Vec::with_capacity(2 * PIECE_BYTES);
            self.storing = Some(Box::new(Storing { arrival, bytes, has_all: false }));
        }
        let storing = match &mut self.storing {
            Some(storing) if storing.is_of(piece) => storing,
            _ => {
                self.args.push_piece(piece.bytes, piece.is_last());
                return None;
            }
        };
        storing.bytes.extend_from_slice(piece.bytes);
        storing.has_all = piece.is_last();
        if storing.has_all {
            self.args.push(b"");
        }
        let is_due = storing.has_all || storing.bytes.len() >= PIECE_BYTES;
        self.storing.take_if(|_| is_due)
    }

    /// Whether an argument is stored while it arrives: the value of a command that does nothing with it but store it. In a transaction
    /// it is queued in memory, as the other commands.
    fn is_stored(&self, session: &Session, piece: Piece<'_>) -> bool {
        piece.total_bytes >= STORED_FROM_BYTES
            && self.storing.is_none()
            && session.multi.is_none()
            && self.args.len() == piece.argument
            && self.args.get(0).and_then(command::find).and_then(command::stored_argument)
                == Some(piece.argument)
    }

    /// A worker stored what had arrived.
    pub fn go_on(&mut self, storing: Box<Storing>) {
        self.storing = Some(storing);
    }

    /// All of it has arrived.
    pub fn finish(self) -> OwnedArgs {
        let mut args = self.args;
        args.arrival = self.storing.map(|storing| Arc::new(storing.arrival));
        args
    }
}
