//! Locks of keys: commands that write one key run one after the other, so that a hot key costs no conflicts.
//!
//! A command holds the locks of its keys until its commit has a number, and not over the wait for durability, but for an `EXEC` that changes
//! keyspaces, which holds all of them until these are installed. A lock knows the newest
//! commit of those that had it: a transaction that began before that would conflict, so it does not take the lock. The engine's
//! validation stays: what does not run here, such as another user of the database, is found by it.

use fulgurite::Csn;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::runner::{LOCK_WAIT, Runner};
use crate::stop::Result;

const LOCKS: usize = 4096;

/// Locks of the keys of several commands, each of which is taken once.
#[derive(Default)]
pub(crate) struct HeldMore<'l> {
    guards: Vec<MutexGuard<'l, Csn>>,
    indices: SmallVec<[u16; 64]>,
}

impl HeldMore<'_> {
    /// The commands that have the locks were committed by then.
    pub fn note(&mut self, csn: Csn) {
        self.guards.iter_mut().for_each(|guard| **guard = csn.max(**guard));
    }
}

/// The locks of a server.
pub(crate) struct KeyLocks(Box<[Mutex<Csn>]>);

/// Locks that are held until this is dropped.
#[derive(Default)]
pub(crate) struct Held<'l>(SmallVec<[MutexGuard<'l, Csn>; 2]>);

impl Held<'_> {
    /// The command that has the locks was committed by then.
    pub fn note(&mut self, csn: Csn) {
        self.0.iter_mut().for_each(|guard| **guard = csn.max(**guard));
    }
}

impl KeyLocks {
    pub fn new() -> KeyLocks {
        KeyLocks((0..LOCKS).map(|_| Mutex::new(Csn::ZERO)).collect())
    }

    /// Waits until each lock was free once: what had one when this began has ended.
    pub fn pass(&self) {
        self.0.iter().for_each(|lock| drop(lock.lock()));
    }

    /// Locks keys of a numbered database beside those that are `held`, without a wait, for a transaction that sees the commits up to
    /// `snapshot`. False if another thread holds one of them, or has committed with it later: then the keys before it stay locked.
    pub fn try_lock_more<'l, 'k>(
        &'l self,
        held: &mut HeldMore<'l>,
        snapshot: Csn,
        database: usize,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        keys.all(|key| {
            let index = index_of(database, key);
            if held.indices.contains(&(index as u16)) {
                return true;
            }
            let guard = self.0[index].try_lock().filter(|newest| **newest <= snapshot);
            let Some(guard) = guard else { return false };
            held.guards.push(guard);
            held.indices.push(index as u16);
            true
        })
    }

    /// Locks all keys.
    pub fn lock_all(&self) -> Held<'_> {
        Held(self.0.iter().map(Mutex::lock).collect())
    }

    /// Locks keys of a numbered database, in an order that all threads keep.
    ///
    /// # Errors
    /// If another thread holds one of them: [`Stop::Blocked`] if the caller may not wait, [`Stop::Large`] if it may not wait longer.
    pub fn lock<'k>(
        &self,
        database: usize,
        keys: impl Iterator<Item = &'k [u8]>,
        runner: Runner,
    ) -> Result<Held<'_>> {
        let mut indices: SmallVec<[usize; 4]> = keys.map(|key| index_of(database, key)).collect();
        indices.sort_unstable();
        indices.dedup();
        let lock = |index: usize| match runner {
            Runner::IoThread => self.0[index].try_lock().ok_or(runner.give_up()),
            Runner::Worker => self.0[index].try_lock_for(LOCK_WAIT).ok_or(runner.give_up()),
            Runner::LongWorker => Ok(self.0[index].lock()),
        };
        indices.into_iter().map(lock).collect::<Result<_>>().map(Held)
    }
}

fn index_of(database: usize, key: &[u8]) -> usize {
    xxh3_64_with_seed(key, database as u64) as usize % LOCKS
}
