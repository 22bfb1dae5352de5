//! What commands did, and how long they took: each thread counts for itself, and `INFO` adds these counts up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use fulgurite::Missing;
use parking_lot::Mutex;

/// Why a command goes to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// By the server's [`Dispatch`](crate::Dispatch), whatever the data.
    Dispatch,
    /// A memtable may hold one of its keys.
    Filter,
    Node,
    Value,
    Room,
    Merging,
    Chunks,
    Latch,
    Order,
    /// It is large.
    Size,
}

/// The reasons, as `INFO` names them.
const REASONS: [&str; Reason::Size as usize + 1] =
    ["dispatch", "filter", "node", "value", "room", "merging", "chunks", "latch", "order", "size"];

impl From<Missing> for Reason {
    fn from(missing: Missing) -> Reason {
        match missing {
            Missing::Node => Reason::Node,
            Missing::Value => Reason::Value,
            Missing::Room => Reason::Room,
            Missing::Merging => Reason::Merging,
            Missing::Chunks => Reason::Chunks,
            Missing::Latch => Reason::Latch,
            _ => Reason::Order,
        }
    }
}

/// A command that ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub name: &'static str,
    /// From its locks to the end of its commit.
    pub processing_ns: u64,
    /// Of a read of one record: whether a memtable held it.
    pub in_memtables: Option<bool>,
    /// The code of its error reply.
    pub error: Option<&'static str>,
}

/// How many commands ran, and how long that took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub calls: u64,
    /// From the moment when they were parsed to that when they began.
    pub waiting_ns: u64,
    pub processing_ns: u64,
}

impl Times {
    fn add(&mut self, more: Times) {
        self.calls += more.calls;
        self.waiting_ns += more.waiting_ns;
        self.processing_ns += more.processing_ns;
    }
}

/// The counts of one command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// On I/O threads, and on workers.
    pub inline: Times,
    pub at_workers: Times,
    /// Reads of one record that a memtable held, and of one that none did.
    pub in_memtables: Times,
    pub not_in_memtables: Times,
    /// How many were refused before they began, and how many ended with an error.
    pub rejected: u64,
    pub failed: u64,
    handed_on: [u64; REASONS.len()],
}

impl Tally {
    pub fn all(&self) -> Times {
        let mut all = self.inline;
        all.add(self.at_workers);
        all
    }

    /// How many were handed to workers, by the reason.
    pub fn handed_on(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(self.handed_on)
    }

    fn add(&mut self, more: &Tally) {
        self.inline.add(more.inline);
        self.at_workers.add(more.at_workers);
        self.in_memtables.add(more.in_memtables);
        self.not_in_memtables.add(more.not_in_memtables);
        self.rejected += more.rejected;
        self.failed += more.failed;
        self.handed_on.iter_mut().zip(more.handed_on).for_each(|(sum, more)| *sum += more);
    }
}

/// The counts of all commands, and of the error replies by their codes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub commands: BTreeMap<&'static str, Tally>,
    pub errors: BTreeMap<&'static str, u64>,
}

/// The counts of one thread.
#[derive(Debug, Default)]
struct ThreadTallies {
    /// A thread runs few different commands: their names are found by address in less time than they are hashed. One that has two
    /// addresses has two tallies, which are added up for `INFO`.
    names: Vec<&'static str>,
    /// By the index of the name.
    commands: Vec<Tally>,
    errors: BTreeMap<&'static str, u64>,
}

impl ThreadTallies {
    fn of(&mut self, name: &'static str) -> &mut Tally {
        let index = self.names.iter().position(|known| std::ptr::eq(*known, name)).unwrap_or_else(|| {
            self.names.push(name);
            self.commands.push(Tally::default());
            self.names.len() - 1
        });
        &mut self.commands[index]
    }

    fn note_error(&mut self, code: &'static str) {
        *self.errors.entry(code).or_default() += 1;
    }
}

/// Counts of the commands that were run.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// By I/O threads.
    pub inline: CachePadded<AtomicU64>,
    /// By workers.
    pub at_workers: CachePadded<AtomicU64>,
    /// How often a command that writes was left for later, as commits are slowed.
    pub left_for_later: AtomicU64,
    /// Replies that ended in the middle, as a piece could not be read: their connections were closed.
    pub cut_replies: AtomicU64,
    /// By the stripe of a thread. Others lock them for `INFO` alone.
    threads: Vec<CachePadded<Mutex<ThreadTallies>>>,
}

impl Tallies {
    pub fn new(threads: usize) -> Tallies {
        let threads = (0..threads).map(|_| CachePadded::default()).collect();
        Tallies {
            inline: CachePadded::default(),
            at_workers: CachePadded::default(),
            left_for_later: AtomicU64::new(0),
            cut_replies: AtomicU64::new(0),
            threads,
        }
    }

    /// Commands ran. The last one is what a client sent, and waited so long for a worker; `None`: an I/O thread ran them.
    pub fn note_ran(&self, stripe: u32, all: &[Ran], waited_ns: Option<u64>) {
        let mut tallies = self.threads[stripe as usize].lock();
        for (index, ran) in all.iter().enumerate() {
            let waiting_ns = waited_ns.filter(|_| index + 1 == all.len()).unwrap_or(0);
            let times = Times { calls: 1, waiting_ns, processing_ns: ran.processing_ns };
            let tally = tallies.of(ran.name);
            if waited_ns.is_some() { &mut tally.at_workers } else { &mut tally.inline }.add(times);
            match ran.in_memtables {
                Some(true) => tally.in_memtables.add(times),
                Some(false) => tally.not_in_memtables.add(times),
                None => {}
            }
            if let Some(code) = ran.error {
                tally.failed += 1;
                tallies.note_error(code);
            }
        }
    }

    /// A command was refused; `None`: there is no such command.
    pub fn note_rejected(&self, stripe: u32, name: Option<&'static str>, code: &'static str) {
        let mut tallies = self.threads[stripe as usize].lock();
        if let Some(name) = name {
            tallies.of(name).rejected += 1;
        }
        tallies.note_error(code);
    }

    /// A command is handed to a worker.
    pub fn note_handed_on(&self, stripe: u32, name: &'static str, reason: Reason) {
        let mut tallies = self.threads[stripe as usize].lock();
        tallies.of(name).handed_on[reason as usize] += 1;
    }

    /// Begins anew: `CONFIG RESETSTAT`.
    pub fn reset(&self) {
        let all = [&*self.inline, &*self.at_workers, &self.cut_replies];
        all.into_iter().for_each(|count| count.store(0, Relaxed));
        self.threads.iter().for_each(|tallies| *tallies.lock() = ThreadTallies::default());
    }

    /// The counts of all threads.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for tallies in &self.threads {
            let tallies = tallies.lock();
            for (&name, tally) in tallies.names.iter().zip(&tallies.commands) {
                sums.commands.entry(name).or_default().add(tally);
            }
            for (&code, count) in &tallies.errors {
                *sums.errors.entry(code).or_default() += count;
            }
        }
        sums
    }
}
