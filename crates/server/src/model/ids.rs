//! Ids of collections, none of which is given twice: a block of them is taken in the database, and given out from memory.

use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite::{Database, Durability, Error, Missing, Table};
use parking_lot::Mutex;

use crate::stop::{Result, Stop};

/// How many ids a block has. A restart leaves those that were not given.
const BLOCK: u64 = 1 << 20;

const NEXT_ID: &str = "next_id";

/// Gives ids.
#[derive(Debug)]
pub(crate) struct Ids {
    next: AtomicU64,
    /// Ids below are taken: the database says that the next block begins there.
    end: AtomicU64,
    taking: Mutex<()>,
}

impl Ids {
    /// None is taken yet: opening writes nothing, as the disk may be full.
    pub fn new() -> Ids {
        Ids { next: 0.into(), end: 0.into(), taking: Mutex::new(()) }
    }

    /// A new id. A thread that does not wait may find none left.
    pub fn give(&self, db: &Database, meta: &Table, may_wait: bool) -> Result<u64> {
        loop {
            let given = self.next.fetch_update(Ordering::Relaxed, Ordering::Acquire, |next| {
                (next < self.end.load(Ordering::Acquire)).then_some(next + 1)
            });
            match given {
                Ok(id) => return Ok(id),
                Err(_) if !may_wait => return Err(Stop::Blocked(Missing::Order)),
                Err(_) => {
                    let _taking = self.taking.lock();
                    if self.next.load(Ordering::Relaxed) == self.end.load(Ordering::Relaxed) {
                        let start = take_block(db, meta)?;
                        self.next.store(start, Ordering::Relaxed);
                        self.end.store(start + BLOCK, Ordering::Release);
                    }
                }
            }
        }
    }
}

/// Notes that a block is taken, and returns its first id. A commit that uses one of its ids comes later in the log: so after a crash
/// none is used that the database does not know as taken.
fn take_block(db: &Database, meta: &Table) -> Result<u64, Error> {
    let (start, _) = db.transact_deferred(|txn| {
        txn.set_durability(Durability::None)?;
        let found = txn.get_for_update(meta, NEXT_ID)?;
        let start = found.and_then(|bytes| bytes[..].try_into().ok()).map_or(1, u64::from_le_bytes);
        txn.put(meta, NEXT_ID, (start + BLOCK).to_le_bytes())?;
        Ok(start)
    })?;
    Ok(start)
}
