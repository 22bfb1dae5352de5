//! Locks of keys: commands that write one key run one after the other, so that a hot key costs no conflicts.
//!
//! A command holds the locks of its keys until its commit has a number, and not over the wait for durability, but for an `EXEC` that changes
//! keyspaces, which holds all of them until these are installed. A lock knows the newest
//! commit of those that had it: a transaction that began before that would conflict, so it does not take the lock. The engine's
//! validation stays: what does not run here, such as another user of the database, is found by it.
//!
//! A lock is shared by the keys of one hash in so many. A command that takes long would hold up those of other keys, thousands of them a
//! second: so a long worker holds the lock only to note its keys there, and to take them out again (INV-SRV-8). All threads take locks,
//! and note keys, in the order of the locks.

use fulgurite::Csn;
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::runner::{LOCK_WAIT, Runner};
use crate::stop::Result;

const LOCKS: usize = 4096;

/// So often the locks of all keys are tried before they are waited for.
const ROUNDS_MAX: u32 = 8;

/// What a lock guards.
#[derive(Debug, Default)]
struct Keys {
    /// The newest commit of those that had the lock, or a key of it.
    newest: Csn,
    /// The hashes of keys that long workers have.
    long: Vec<u64>,
}

/// The index of a key's lock, and the key's hash.
type KeyHash = (usize, u64);

/// A lock.
#[derive(Default)]
struct Lock {
    keys: Mutex<Keys>,
    /// A long worker took keys out.
    left: Condvar,
}

impl Lock {
    /// Waits until no long worker has one of these keys.
    fn wait_for(&self, keys: &mut MutexGuard<'_, Keys>, hashes: &[u64]) {
        while keys.long.iter().any(|hash| hashes.contains(hash)) {
            self.left.wait(keys);
        }
    }
}

/// Locks of the keys of several commands, each of which is taken once.
pub(crate) struct HeldMore<'l> {
    guards: Vec<MutexGuard<'l, Keys>>,
    indices: Vec<u16>,
    /// A bit for each index.
    is_held: [u64; LOCKS / 64],
}

impl Default for HeldMore<'_> {
    fn default() -> Self {
        HeldMore { guards: Vec::new(), indices: Vec::new(), is_held: [0; LOCKS / 64] }
    }
}

impl HeldMore<'_> {
    /// The commands that have the locks were committed by then.
    pub fn note(&mut self, csn: Csn) {
        self.guards.iter_mut().for_each(|guard| guard.newest = csn.max(guard.newest));
    }
}

/// The locks of a server.
pub(crate) struct KeyLocks(Box<[Lock]>);

/// Locks, or keys of a long worker, that are held until this is dropped.
#[derive(Default)]
pub(crate) struct Held<'l> {
    guards: SmallVec<[MutexGuard<'l, Keys>; 2]>,
    long: Option<HeldLong<'l>>,
}

/// Keys of a long worker.
struct HeldLong<'l> {
    locks: &'l KeyLocks,
    hashes: SmallVec<[KeyHash; 4]>,
    newest: Csn,
}

impl Held<'_> {
    /// The command that has the locks was committed by then.
    pub fn note(&mut self, csn: Csn) {
        self.guards.iter_mut().for_each(|guard| guard.newest = csn.max(guard.newest));
        if let Some(long) = &mut self.long {
            long.newest = csn.max(long.newest);
        }
    }
}

impl Drop for HeldLong<'_> {
    fn drop(&mut self) {
        for (index, hash) in &self.hashes {
            let lock = &self.locks.0[*index];
            let mut keys = lock.keys.lock();
            keys.newest = self.newest.max(keys.newest);
            let found = keys.long.iter().position(|other| other == hash);
            keys.long.swap_remove(found.expect("it was noted"));
            lock.left.notify_all();
        }
    }
}

impl KeyLocks {
    pub fn new() -> KeyLocks {
        KeyLocks((0..LOCKS).map(|_| Lock::default()).collect())
    }

    /// Waits until each lock was free once, and each key that a long worker has: what had one when this began has ended.
    pub fn pass(&self) {
        for lock in &self.0 {
            let mut keys = lock.keys.lock();
            let before = keys.long.clone();
            lock.wait_for(&mut keys, &before);
        }
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
            let (index, hash) = hash_of(database, key);
            let (word, bit) = (index / 64, 1 << (index % 64));
            if held.is_held[word] & bit != 0 {
                let at = held.indices.iter().position(|other| *other == index as u16);
                return !held.guards[at.expect("it is held")].long.contains(&hash);
            }
            let guard = self.0[index].keys.try_lock();
            let Some(guard) = guard.filter(|keys| keys.newest <= snapshot && !keys.long.contains(&hash))
            else {
                return false;
            };
            held.guards.push(guard);
            held.indices.push(index as u16);
            held.is_held[word] |= bit;
            true
        })
    }

    /// Locks all keys.
    pub fn lock_all<'l>(&'l self) -> Held<'l> {
        // Nothing is locked while it waits for keys of long workers, but if there are always new ones.
        for _ in 0..ROUNDS_MAX {
            self.pass();
            let mut guards = SmallVec::new();
            for lock in &self.0 {
                let keys = lock.keys.lock();
                if !keys.long.is_empty() {
                    break;
                }
                guards.push(keys);
            }
            if guards.len() == LOCKS {
                return Held { guards, long: None };
            }
        }
        let lock_and_wait = |lock: &'l Lock| {
            let mut keys = lock.keys.lock();
            while !keys.long.is_empty() {
                lock.left.wait(&mut keys);
            }
            keys
        };
        Held { guards: self.0.iter().map(lock_and_wait).collect(), long: None }
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
        let mut hashes: SmallVec<[KeyHash; 4]> = keys.map(|key| hash_of(database, key)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        if runner == Runner::LongWorker {
            return Ok(Held { guards: SmallVec::new(), long: Some(self.note_long(hashes)) });
        }
        // A worker does so once.
        let mut may_wait = runner.may_wait();
        let mut held = Held::default();
        for of_one in hashes.chunk_by(|(a, _), (b, _)| a == b) {
            let lock = &self.0[of_one[0].0];
            let has_long = |keys: &Keys| of_one.iter().any(|(_, hash)| keys.long.contains(hash));
            let mut keys = match lock.keys.try_lock() {
                None if std::mem::take(&mut may_wait) => lock.keys.try_lock_for(LOCK_WAIT),
                locked => locked,
            }
            .ok_or(runner.give_up())?;
            if has_long(&keys) && std::mem::take(&mut may_wait) {
                lock.left.wait_for(&mut keys, LOCK_WAIT);
            }
            if has_long(&keys) {
                return Err(runner.give_up());
            }
            held.guards.push(keys);
        }
        Ok(held)
    }

    /// Waits for keys that other long workers have, and notes them.
    fn note_long(&self, hashes: SmallVec<[KeyHash; 4]>) -> HeldLong<'_> {
        let mut held = HeldLong { locks: self, hashes: SmallVec::new(), newest: Csn::ZERO };
        for of_one in hashes.chunk_by(|(a, _), (b, _)| a == b) {
            let own: SmallVec<[u64; 4]> = of_one.iter().map(|(_, hash)| *hash).collect();
            let lock = &self.0[of_one[0].0];
            let mut keys = lock.keys.lock();
            lock.wait_for(&mut keys, &own);
            keys.long.extend_from_slice(&own);
            held.hashes.extend_from_slice(of_one);
        }
        held
    }
}

fn hash_of(database: usize, key: &[u8]) -> KeyHash {
    let hash = xxh3_64_with_seed(key, database as u64);
    (hash as usize % LOCKS, hash)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Two keys of one lock.
    fn keys_of_one_lock() -> [Vec<u8>; 2] {
        let key = |number: usize| number.to_string().into_bytes();
        let (index, _) = hash_of(0, &key(0));
        let other = (1..).map(key).find(|other| hash_of(0, other).0 == index).expect("one in 4,096");
        [key(0), other]
    }

    #[test]
    fn a_long_worker_holds_its_keys_and_no_others() {
        let locks = KeyLocks::new();
        let [own, other] = keys_of_one_lock();
        let lock = |key: &[u8], runner| locks.lock(0, [key].into_iter(), runner);
        let held = |key: &[u8], snapshot| {
            locks.try_lock_more(&mut HeldMore::default(), Csn(snapshot), 0, [key].into_iter())
        };
        let mut long = lock(&own, Runner::LongWorker).unwrap();
        for runner in [Runner::IoThread, Runner::Worker] {
            assert!(lock(&own, runner).is_err() && lock(&other, runner).is_ok(), "{runner:?}");
        }
        assert!(!held(&own, 9) && held(&other, 9));
        // The lock is held for another key already.
        let mut more = HeldMore::default();
        assert!(locks.try_lock_more(&mut more, Csn(9), 0, [&other[..]].into_iter()));
        assert!(!locks.try_lock_more(&mut more, Csn(9), 0, [&own[..]].into_iter()));
        drop(more);
        drop(lock(&other, Runner::LongWorker).unwrap());
        long.note(Csn(7));
        drop(long);
        assert!(lock(&own, Runner::IoThread).is_ok());
        assert!(!held(&own, 6) && held(&own, 7), "a transaction that began before its commit would conflict");
    }

    #[test]
    fn all_keys_and_those_of_another_long_worker_are_waited_for() {
        let locks = KeyLocks::new();
        let [own, other] = keys_of_one_lock();
        let both = || [&own[..], &other[..]].into_iter();
        let waits: [&(dyn Fn(&KeyLocks) + Sync); 3] =
            [&|locks| drop(locks.lock_all()), &|locks| locks.pass(), &|locks| {
                drop(locks.lock(0, both(), Runner::LongWorker).unwrap())
            }];
        for wait in waits {
            let long = locks.lock(0, [&own[..]].into_iter(), Runner::LongWorker).unwrap();
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    wait(&locks);
                    assert!(is_over.load(Ordering::SeqCst));
                });
                thread::park_timeout(Duration::from_millis(20));
                is_over.store(true, Ordering::SeqCst);
                drop(long);
            });
            let all = locks.lock_all();
            assert!(all.guards.iter().all(|keys| keys.long.is_empty()));
        }
    }
}
