//! Values that are stored while they arrive: neither the connection nor a worker ever has more of one than a piece.
//!
//! The fragments are written under a fresh id, each batch in a transaction of its own, which does not wait to be durable. The first one
//! names the id as garbage, too; the command's own transaction deletes that record and writes a head that refers to the id. Commits
//! are durable in their order, so at every crash either the head is there and all fragments are, or the id is garbage.
//!
//! **INV-SRV-4.** *An id is reclaimed only if its record of garbage is there when the reclaiming commits, and no value arrives under
//! it.* The reclaimer reads the record for an update in its transaction, and looks at [`Arrivals`] after it has begun that: an id that
//! has left them by then has a head whose commit has its number, so the reclaimer does not find the record, or conflicts; or it
//! stays garbage.

use std::collections::HashSet;
use std::sync::Arc;

use fulgurite::{Durability, Error};
use parking_lot::Mutex;

use crate::model::{Fragmented, Write};
use crate::runner::Runner;
use crate::shared::Shared;
use crate::stop::{ErrorReply, Result, Stop};

/// A value of a command that is shorter is collected in memory.
pub(crate) const STORED_FROM_BYTES: usize = 1 << 20;

/// The ids under which values arrive, or results are stored.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<HashSet<u64>>);

impl Arrivals {
    pub fn contains(&self, id: u64) -> bool {
        self.0.lock().contains(&id)
    }

    /// Contents arrive under this id from now on; false if they did already.
    pub fn insert(&self, id: u64) -> bool {
        self.0.lock().insert(id)
    }

    pub fn remove(&self, id: u64) {
        self.0.lock().remove(&id);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A value that is stored while it arrives. Unless a command takes it, its fragments are garbage once this is dropped.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The index of the argument.
    pub argument: usize,
    arrivals: Arc<Arrivals>,
    id: Option<u64>,
    /// How many bytes are stored.
    len: usize,
    failure: Option<ErrorReply>,
}

impl Arrival {
    pub fn new(argument: usize, arrivals: &Arc<Arrivals>) -> Arrival {
        Arrival { argument, arrivals: arrivals.clone(), id: None, len: 0, failure: None }
    }

    /// Stores the next bytes: whole fragments, but for the last call. Once that has failed, the rest of the value is left out.
    pub fn store(&mut self, shared: &Shared, bytes: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        let stored = loop {
            match self.try_store(shared, bytes) {
                Err(Stop::Conflict) => std::thread::yield_now(),
                stored => break stored,
            }
        };
        match stored {
            Ok(()) => self.len += bytes.len(),
            Err(stop) => {
                self.failure = Some(match stop {
                    Stop::Reply(error) => error,
                    _ => ErrorReply::new("ERR", "the value could not be stored"),
                });
                // What is stored of it may be reclaimed now.
                self.leave();
            }
        }
    }

    fn try_store(&mut self, shared: &Shared, bytes: &[u8]) -> Result<()> {
        let id = match self.id {
            Some(id) => id,
            None => {
                let id = shared.model.new_id(Runner::LongWorker)?;
                self.arrivals.insert(id);
                *self.id.insert(id)
            }
        };
        let mut txn = shared.db.begin();
        txn.set_durability(Durability::None)?;
        let mut write = Write::new(&mut txn, &shared.model, Runner::LongWorker, 0, 0);
        if self.len == 0 {
            write.leave_id(id)?;
        }
        write.put_fragments(id, self.len, bytes)?;
        match txn.commit_numbered() {
            Ok(_) => Ok(()),
            Err(Error::Conflict(_)) => Err(Stop::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    /// The string whose fragments are stored.
    ///
    /// # Errors
    /// Why they could not be.
    pub fn stored(&self) -> Result<Fragmented> {
        match (&self.failure, self.id) {
            (None, Some(id)) => Ok(Fragmented { id, len: self.len as u64 }),
            (failure, _) => Err(failure.clone().expect("a value has bytes").into()),
        }
    }

    fn leave(&self) {
        if let Some(id) = self.id {
            self.arrivals.remove(id);
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.leave();
    }
}
