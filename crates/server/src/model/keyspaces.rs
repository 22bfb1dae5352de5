//! Which keyspace each numbered database has. `FLUSHDB` gives a database an empty one, and `SWAPDB` exchanges two: neither touches a
//! key.
//!
//! A command takes all keyspaces once, when it begins, and has them until it ends. So one that runs while another keyspace is
//! given is as if it had run before: its reply comes after it began. A change is installed once it is durable, as no command may
//! show what a crash would undo.
//!
//! **A keyspace is reclaimed only when no command may write to it any more** (INV-SRV-2): when no database has it, and each command
//! that began before that was installed has ended. For that each thread notes the version as of which its command began
//! before it takes the keyspaces, and the reclaimer looks at the notes after the change; all four accesses are sequentially
//! consistent.
//!
//! **A command that sees a transaction which changed keyspaces uses those after it** (INV-SRV-6). What `EXEC` wrote beside the change is visible
//! once its commit has a number, and the change is installed later, when it is durable. So the keyspaces hold back what reads as of that
//! number or a later one, from before the commit until after the installation ([`Keyspaces::hold_back`]), and each command looks
//! after it has its snapshot ([`Keyspaces::show`]): whether it is held back, first, and then whether its keyspaces are still those that
//! databases have.
//!
//! **Between the commit of an `EXEC` that changes keyspaces and the installation of these no other command commits a write** (INV-SRV-7): one
//! that had begun before would write to a former keyspace, as if it had run before the `EXEC`, which has not seen it. So such an `EXEC` has the locks of all
//! keys from before its snapshot on. (`FLUSHDB` and `SWAPDB` by themselves see nothing, and need none.)

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crossbeam_utils::CachePadded;
use fulgurite::Csn;
use parking_lot::{Mutex, MutexGuard};

use crate::session::DATABASES;

/// The keyspace of each database.
pub(crate) type KeyspaceMap = [u32; DATABASES];

/// So many versions are remembered: 20 KiB.
const HISTORY_MAX: usize = 256;

/// No command runs.
const IDLE: u64 = u64::MAX;

/// No command is held back.
const NOTHING: u64 = u64::MAX;

/// The keyspaces, and which commands may still use former ones.
#[derive(Debug)]
pub(crate) struct Keyspaces {
    map: [AtomicU32; DATABASES],
    /// Odd while a change is being installed.
    version: AtomicU64,
    /// Held from before a change is written until it is installed.
    changing: Mutex<()>,
    /// The newest versions, and what databases had as of them.
    history: Mutex<VecDeque<(u64, KeyspaceMap)>>,
    /// The version since which no database has a keyspace.
    gone: Mutex<HashMap<u32, u64>>,
    /// By thread: the version as of which its command began.
    running: Box<[CachePadded<AtomicU64>]>,
    /// What reads as of this commit or a later one is held back.
    held_back_from: AtomicU64,
}

impl Keyspaces {
    pub fn new(map: KeyspaceMap, threads: usize) -> Keyspaces {
        Keyspaces {
            map: map.map(AtomicU32::new),
            version: AtomicU64::new(0),
            changing: Mutex::new(()),
            history: Mutex::default(),
            gone: Mutex::default(),
            running: (0..threads).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect(),
            held_back_from: AtomicU64::new(NOTHING),
        }
    }

    /// A command, or several that are one transaction, begins on a thread.
    pub fn begin(&self, thread: u32) -> Running<'_> {
        let began = &*self.running[thread as usize];
        Running { map: self.note(began), began }
    }

    /// The command of a thread begins again.
    pub fn begin_again(&self, thread: u32) -> KeyspaceMap {
        self.note(&self.running[thread as usize])
    }

    fn note(&self, began: &AtomicU64) -> KeyspaceMap {
        loop {
            let version = self.version.load(SeqCst);
            began.store(version, SeqCst);
            let map = self.current();
            if version.is_multiple_of(2) && self.version.load(SeqCst) == version {
                return map;
            }
            std::hint::spin_loop();
        }
    }

    /// Whether the command of a thread has the keyspaces that databases have now.
    pub fn is_current(&self, thread: u32) -> bool {
        self.version_of(thread) == self.version.load(SeqCst)
    }

    /// The version of the keyspaces that the command of a thread has: two more with each change.
    pub fn version_of(&self, thread: u32) -> u64 {
        self.running[thread as usize].load(SeqCst)
    }

    /// Whether the command of a thread, which reads as of commit `csn`, has the keyspaces that belong to what it sees.
    pub fn show(&self, thread: u32, csn: Csn) -> bool {
        csn.0 < self.held_back_from.load(SeqCst) && self.is_current(thread)
    }

    /// Waits until no command is held back. The caller does not have the lock.
    pub fn wait_until_shown(&self) {
        if self.held_back_from.load(SeqCst) != NOTHING {
            drop(self.changing.lock());
        }
    }

    /// Holds all commands back, until it is known from which commit on. The caller has the lock.
    pub fn hold_back(&self) -> HeldBack<'_> {
        self.held_back_from.store(0, SeqCst);
        HeldBack(self)
    }

    /// The keyspaces that a database has had after `version`, up to that of the command of a thread; `None` if there were too many changes
    /// to know.
    pub fn since(&self, version: u64, database: usize, thread: u32) -> Option<Vec<u32>> {
        let versions = version + 1..=self.version_of(thread);
        let history = self.history.lock();
        let later = history.iter().filter(|(version, _)| versions.contains(version));
        let keyspaces: Vec<u32> = later.map(|(_, map)| map[database]).collect();
        // Each change adds two.
        (keyspaces.len() as u64 == (versions.end() - version) / 2).then_some(keyspaces)
    }

    pub fn current(&self) -> KeyspaceMap {
        self.map.each_ref().map(|keyspace| keyspace.load(SeqCst))
    }

    /// The keyspace that a database has now; not for what depends on it.
    pub fn of(&self, database: usize) -> u32 {
        self.map[database].load(SeqCst)
    }

    /// Keeps all others from changing the keyspaces.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Gives databases these keyspaces: commands that begin from now on use them. The caller has the lock.
    pub fn install(&self, changes: &[(usize, u32)]) {
        let version = self.version.load(SeqCst) + 2;
        let before = self.current();
        let mut map = before;
        changes.iter().for_each(|&(database, keyspace)| map[database] = keyspace);
        let gone = before.into_iter().filter(|keyspace| !map.contains(keyspace));
        self.gone.lock().extend(gone.map(|keyspace| (keyspace, version)));
        let mut history = self.history.lock();
        if history.len() == HISTORY_MAX {
            history.pop_front();
        }
        history.push_back((version, map));
        drop(history);
        self.version.store(version - 1, SeqCst);
        for (keyspace, new) in self.map.iter().zip(map) {
            keyspace.store(new, SeqCst);
        }
        self.version.store(version, SeqCst);
    }

    /// Whether no command may write to a keyspace any more, nor begin to.
    pub fn is_unused(&self, keyspace: u32) -> bool {
        // First the map: a keyspace that is not in it any more is among those that are gone.
        if self.current().contains(&keyspace) {
            return false;
        }
        let since = self.gone.lock().get(&keyspace).copied().unwrap_or(0);
        self.running.iter().all(|began| began.load(SeqCst) >= since)
    }

    /// A keyspace was reclaimed.
    pub fn forget(&self, keyspace: u32) {
        self.gone.lock().remove(&keyspace);
    }
}

/// Holds commands back until it is dropped.
pub(crate) struct HeldBack<'k>(&'k Keyspaces);

impl HeldBack<'_> {
    /// The transaction that changes keyspaces has this number.
    pub fn from(&self, csn: Csn) {
        self.0.held_back_from.store(csn.0, SeqCst);
    }
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.held_back_from.store(NOTHING, SeqCst);
    }
}

/// A command that runs; dropped when it has ended.
pub(crate) struct Running<'k> {
    /// The keyspaces that it uses.
    pub map: KeyspaceMap,
    began: &'k AtomicU64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.began.store(IDLE, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyspace_is_unused_once_all_commands_that_may_know_it_have_ended() {
        let map: KeyspaceMap = std::array::from_fn(|database| database as u32);
        let keyspaces = Keyspaces::new(map, 2);
        let command = keyspaces.begin(0);
        assert_eq!(command.map[3], 3);
        keyspaces.install(&[(3, 16)]);
        let later = keyspaces.begin(1);
        assert_eq!(later.map[3], 16);
        assert!(!keyspaces.is_unused(3), "the command of thread 0 uses it");
        assert!(!keyspaces.is_unused(16));
        drop(command);
        assert!(keyspaces.is_unused(3), "thread 1 began later");
        drop(later);
    }

    #[test]
    fn what_sees_a_transaction_that_changes_keyspaces_is_held_back_until_they_are_installed() {
        let keyspaces = Keyspaces::new(std::array::from_fn(|database| database as u32), 2);
        let command = keyspaces.begin(0);
        assert!(keyspaces.show(0, Csn(9)));
        let held_back = keyspaces.hold_back();
        assert!(!keyspaces.show(0, Csn(9)), "its number is not known");
        held_back.from(Csn(10));
        assert!(keyspaces.show(0, Csn(9)) && !keyspaces.show(0, Csn(10)) && !keyspaces.show(0, Csn(11)));
        keyspaces.install(&[(3, 16)]);
        drop(held_back);
        assert!(!keyspaces.show(0, Csn(11)), "it has former keyspaces");
        drop(command);
        let later = keyspaces.begin(0);
        assert!(keyspaces.show(0, Csn(11)));
        drop(later);
    }

    #[test]
    fn the_keyspaces_that_a_database_had_are_known_for_a_while() {
        let keyspaces = Keyspaces::new(std::array::from_fn(|database| database as u32), 1);
        let version = keyspaces.begin(0);
        let before = keyspaces.version_of(0);
        assert_eq!(keyspaces.since(before, 3, 0), Some(vec![]));
        drop(version);
        keyspaces.install(&[(3, 16)]);
        keyspaces.install(&[(2, 16), (3, 2)]);
        let command = keyspaces.begin(0);
        keyspaces.install(&[(3, 17)]);
        assert_eq!(keyspaces.since(before, 3, 0), Some(vec![16, 2]), "the command began before the last one");
        assert_eq!(keyspaces.since(before + 2, 2, 0), Some(vec![16]));
        drop(command);
        (0..HISTORY_MAX as u32).for_each(|more| keyspaces.install(&[(3, 18 + more)]));
        let _later = keyspaces.begin(0);
        assert_eq!(keyspaces.since(before, 3, 0), None);
        assert_eq!(keyspaces.since(before + 6, 3, 0).unwrap().len(), HISTORY_MAX);
    }

    /// A thread looks again and again whether a keyspace is unused, while another takes it away under a command that has it.
    #[test]
    fn no_keyspace_is_unused_while_a_command_has_it() {
        let keyspaces = Keyspaces::new(std::array::from_fn(|database| database as u32), 2);
        let (current, is_done) = (AtomicU32::new(3), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for next in 16..200_000 {
                    let command = keyspaces.begin(0);
                    (0..20).for_each(|_| std::hint::spin_loop());
                    keyspaces.install(&[(3, next)]);
                    (0..100).for_each(|_| std::hint::spin_loop());
                    let before = current.swap(next, SeqCst);
                    drop(command);
                    keyspaces.forget(before);
                }
                is_done.store(true, SeqCst);
            });
            scope.spawn(|| {
                while !is_done.load(SeqCst) {
                    let keyspace = current.load(SeqCst);
                    let is_unused = keyspaces.is_unused(keyspace);
                    // Its command had not ended if `current` is the same after the look.
                    assert!(!is_unused || current.load(SeqCst) != keyspace, "INV-SRV-2");
                }
            });
        });
    }
}
