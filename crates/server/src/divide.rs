//! Dividing sorted sets into blocks, once a command has asked for positions in one: afterwards such a command reads about the square root
//! of the members, where it passed all members before it.
//!
//! The worker that ran the command divides the set after its reply, in short transactions, each of which splits one block. So a set of any
//! size holds up those that write to it for the time of one step at most, and after each step its blocks are right (INV-ZSET-1), if not yet
//! even. After a crash the next command that passes many rows has the rest divided. None of it need be durable: it says nothing that the
//! rows of members do not say.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fulgurite::{Durability, Error};

use crate::model::{Kind, TableKey, Write};
use crate::runner::Runner;
use crate::shared::Shared;
use crate::stop::{Result, Stop};

/// Between two steps, so that a thread that waits for the key's lock gets it.
const PAUSE: Duration = Duration::from_micros(50);

/// So often one step is tried again: something else than commands, which have the key's lock, wrote the key.
const ATTEMPTS_MAX: u32 = 8;

/// Divides the sorted set of a key, if the key still has one. Nothing while another worker divides a set, so that there are workers for
/// other commands: the next command that passes many rows asks again. `stripe` is the calling thread's, on which no command runs.
pub(crate) fn divide(shared: &Shared, stripe: u32, database: usize, key: &[u8]) {
    let Some(_alone) = shared.dividing.try_lock() else { return };
    let (mut from, mut attempts) = (None, 0);
    while shared.sleep(PAUSE) {
        match divide_step(shared, stripe, database, key, from.clone()) {
            Ok(None) => return,
            Ok(next) => {
                (from, attempts) = (next, 0);
                shared.split_blocks.fetch_add(1, Relaxed);
            }
            Err(Stop::Conflict) if attempts < ATTEMPTS_MAX => attempts += 1,
            Err(stop) => {
                tracing::debug!(
                    ?stop,
                    "a sorted set could not be divided; the next command that would profit tries again"
                );
                return;
            }
        }
    }
}

/// Splits one block, the first from a key on that has too many members. Returns where to go on; `None`: there is no more to do.
fn divide_step(
    shared: &Shared,
    stripe: u32,
    database: usize,
    key: &[u8],
    from: Option<TableKey>,
) -> Result<Option<TableKey>> {
    let mut held = shared.locks.lock(database, [key].into_iter(), Runner::LongWorker)?;
    let running = shared.model.keyspaces.begin(stripe);
    let mut txn = shared.db.begin();
    if !shared.model.keyspaces.show(stripe, txn.snapshot_csn()) {
        return Err(Stop::Conflict);
    }
    txn.set_durability(Durability::None)?;
    let now_ms = shared.db.now_ms();
    let mut write = Write::new(&mut txn, &shared.model, Runner::LongWorker, now_ms, running.map[database]);
    let Some(mut change) = write.change(key, Kind::SortedSet)? else { return Ok(None) };
    let Some(next) = write.divide(&mut change.collection, from)? else { return Ok(None) };
    write.finish(key, &change)?;
    match txn.commit_numbered() {
        Ok(commit) => {
            held.note(commit.csn);
            Ok(Some(next))
        }
        Err(Error::Conflict(_)) => Err(Stop::Conflict),
        Err(error) => Err(error.into()),
    }
}
