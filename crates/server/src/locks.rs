//! Locks of keys: commands that write one key run one after the other, so that a hot key costs no conflicts.
//!
//! A command holds the locks of its keys until its commit has a number, and never over the wait for durability. The engine's
//! validation stays: what does not run here, such as another user of the database, is found by it.

use fulgurite::Missing;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::stop::{Result, Stop};

const LOCKS: usize = 1024;

/// Locks of the keys of several commands, each of which is taken once.
#[derive(Default)]
pub(crate) struct HeldMore<'l> {
    guards: Vec<MutexGuard<'l, ()>>,
    indices: SmallVec<[u16; 64]>,
}

/// The locks of a server.
pub(crate) struct KeyLocks(Box<[Mutex<()>]>);

/// Locks that are held until this is dropped.
pub(crate) type Held<'l> = SmallVec<[MutexGuard<'l, ()>; 2]>;

impl KeyLocks {
    pub fn new() -> KeyLocks {
        KeyLocks((0..LOCKS).map(|_| Mutex::new(())).collect())
    }

    /// Waits until each lock was free once: what had one when this began has ended.
    pub fn pass(&self) {
        self.0.iter().for_each(|lock| drop(lock.lock()));
    }

    /// Locks keys of a numbered database beside those that are `held`, without a wait. False if another thread holds one of them: then
    /// the keys before it stay locked.
    pub fn try_lock_more<'l, 'k>(
        &'l self,
        held: &mut HeldMore<'l>,
        database: usize,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        keys.all(|key| {
            let index = index_of(database, key);
            if held.indices.contains(&(index as u16)) {
                return true;
            }
            let Some(guard) = self.0[index].try_lock() else { return false };
            held.guards.push(guard);
            held.indices.push(index as u16);
            true
        })
    }

    /// Locks keys of a numbered database, in an order that all threads keep.
    ///
    /// # Errors
    /// [`Stop::Blocked`] if another thread holds one of them and the caller may not wait.
    pub fn lock<'k>(
        &self,
        database: usize,
        keys: impl Iterator<Item = &'k [u8]>,
        may_wait: bool,
    ) -> Result<Held<'_>> {
        let mut indices: SmallVec<[usize; 4]> = keys.map(|key| index_of(database, key)).collect();
        indices.sort_unstable();
        indices.dedup();
        let lock = |index: usize| {
            if may_wait { Some(self.0[index].lock()) } else { self.0[index].try_lock() }
        };
        indices.into_iter().map(lock).collect::<Option<_>>().ok_or(Stop::Blocked(Missing::Latch))
    }
}

fn index_of(database: usize, key: &[u8]) -> usize {
    xxh3_64_with_seed(key, database as u64) as usize % LOCKS
}
