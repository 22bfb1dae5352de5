//! The policies: each chooses, among the leaves that it was given, the one to evict.

use std::collections::{BinaryHeap, VecDeque};

use crate::traces::{Kind, Step};

/// A policy. `at` is the position in the trace.
pub trait Policy {
    /// A leaf that is in memory is read.
    fn read(&mut self, leaf: u32, at: usize);
    /// A leaf comes into memory.
    fn load(&mut self, leaf: u32, at: usize);
    /// Chooses a leaf, which leaves memory.
    fn evict(&mut self) -> u32;
    /// A leaf left the tree.
    fn forget(&mut self, leaf: u32);
}

/// Evicts the leaf whose last read has the highest rank.
pub struct Ranked {
    /// The rank of each step.
    ranks: Vec<u32>,
    /// That of the last read of each leaf in memory.
    current: Vec<Option<u32>>,
    /// The highest first; those that are no longer current are stale.
    heap: BinaryHeap<(u32, u32)>,
}

impl Ranked {
    fn new(ranks: Vec<u32>, slots: usize) -> Ranked {
        Ranked { ranks, current: vec![None; slots], heap: BinaryHeap::new() }
    }

    /// Evicts the leaf that is read last in the future, which may be the one just loaded (Belady, 1966).
    pub fn optimum(steps: &[Step], slots: usize) -> Ranked {
        let mut next = vec![u32::MAX; steps.len()];
        let mut last = vec![u32::MAX; slots];
        for (at, step) in steps.iter().enumerate().rev().filter(|(_, step)| step.kind != Kind::Drop) {
            next[at] = std::mem::replace(&mut last[step.leaf as usize], at as u32);
        }
        Ranked::new(next, slots)
    }

    /// Evicts the leaf that was read longest ago.
    pub fn lru(steps: &[Step], slots: usize) -> Ranked {
        Ranked::new((0..steps.len() as u32).rev().collect(), slots)
    }
}

impl Policy for Ranked {
    fn read(&mut self, leaf: u32, at: usize) {
        self.current[leaf as usize] = Some(self.ranks[at]);
        self.heap.push((self.ranks[at], leaf));
    }

    fn load(&mut self, leaf: u32, at: usize) {
        self.read(leaf, at);
    }

    fn evict(&mut self) -> u32 {
        loop {
            let (rank, leaf) = self.heap.pop().expect("a leaf is in memory");
            if self.current[leaf as usize] == Some(rank) {
                self.forget(leaf);
                return leaf;
            }
        }
    }

    fn forget(&mut self, leaf: u32) {
        self.current[leaf as usize] = None;
    }
}

/// The order in which the hand of a clock visits leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Key,
    /// That in which they were loaded.
    Load,
}

/// What distinguishes one clock from another.
#[derive(Clone, Copy)]
pub struct Rules {
    pub order: Order,
    /// The counter of a leaf that was just loaded.
    pub loaded: u8,
    /// The counter after a read.
    pub read: fn(u8) -> u8,
    /// How many reads after the load do not count.
    pub free_reads: u8,
    /// Whether a leaf that comes back, after no more evictions than the cache has leaves, is loaded as if it were read.
    pub has_ghosts: bool,
    /// Whether a read does not count if no batch of evictions began since its leaf was loaded.
    pub marks_late: bool,
    /// Whether the hand takes only leaves that were not read since they were loaded, and leaves the others their counters,
    /// while those are more than a quarter.
    pub takes_new_first: bool,
}

impl Rules {
    /// `crates/index/src/btree/slot.rs`: `REFERENCED` is 2, `SPARED` alone is 1.
    pub const TWO_CHANCES: Rules = Rules {
        order: Order::Key,
        loaded: 0,
        read: |_| 2,
        free_reads: 0,
        has_ghosts: false,
        marks_late: false,
        takes_new_first: false,
    };
}

/// A leaf in memory.
#[derive(Clone, Copy)]
struct Resident {
    counter: u8,
    free_reads: u8,
    is_new: bool,
    /// The batch of evictions in which it was loaded.
    batch: u32,
}

/// A clock with counters: a leaf whose counter is not 0 stays when the hand comes by, and its counter is decremented.
pub struct Clock {
    rules: Rules,
    leaves_max: u32,
    residents: Vec<Option<Resident>>,
    new_len: u32,
    hand: usize,
    /// For [`Order::Load`]: the leaves, the next one first.
    queue: VecDeque<u32>,
    evictions: u32,
    /// For each leaf that was evicted, how many were before.
    evicted_at: Vec<Option<u32>>,
}

impl Clock {
    pub fn new(slots: usize, leaves_max: usize, rules: Rules) -> Clock {
        Clock {
            rules,
            leaves_max: leaves_max as u32,
            residents: vec![None; slots],
            new_len: 0,
            hand: 0,
            queue: VecDeque::new(),
            evictions: 0,
            evicted_at: vec![None; slots],
        }
    }

    /// A batch is a fifteenth of what may be in memory: a sixteenth of the cache.
    fn batch(&self) -> u32 {
        self.evictions / self.leaves_max.div_ceil(15)
    }

    fn next(&mut self) -> u32 {
        if self.rules.order == Order::Load {
            return self.queue.pop_front().expect("a leaf is in memory");
        }
        self.hand = (self.hand + 1) % self.residents.len();
        self.hand as u32
    }
}

impl Policy for Clock {
    fn read(&mut self, leaf: u32, _at: usize) {
        let batch = self.batch();
        let resident = self.residents[leaf as usize].as_mut().expect("it is in memory");
        if self.rules.marks_late && resident.batch == batch {
            return;
        }
        if resident.free_reads > 0 {
            resident.free_reads -= 1;
            return;
        }
        resident.counter = (self.rules.read)(resident.counter);
        self.new_len -= u32::from(std::mem::replace(&mut resident.is_new, false));
    }

    fn load(&mut self, leaf: u32, _at: usize) {
        let is_back = self.evicted_at[leaf as usize].is_some_and(|at| self.evictions - at <= self.leaves_max);
        let is_new = !(self.rules.has_ghosts && is_back);
        let counter = if is_new { self.rules.loaded } else { (self.rules.read)(self.rules.loaded) };
        self.residents[leaf as usize] =
            Some(Resident { counter, free_reads: self.rules.free_reads, is_new, batch: self.batch() });
        self.new_len += u32::from(is_new);
        self.queue.extend((self.rules.order == Order::Load).then_some(leaf));
    }

    fn evict(&mut self) -> u32 {
        let takes_new = self.rules.takes_new_first && self.new_len > self.leaves_max / 4;
        loop {
            let leaf = self.next();
            let Some(resident) = &mut self.residents[leaf as usize] else { continue };
            if resident.counter == 0 && (resident.is_new || !takes_new) {
                self.evicted_at[leaf as usize] = Some(self.evictions);
                self.evictions += 1;
                self.forget(leaf);
                return leaf;
            }
            if !takes_new {
                resident.counter -= 1;
            }
            self.queue.extend((self.rules.order == Order::Load).then_some(leaf));
        }
    }

    fn forget(&mut self, leaf: u32) {
        let resident = self.residents[leaf as usize].take();
        self.new_len -= u32::from(resident.is_some_and(|resident| resident.is_new));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
}

/// So many reads after the load take a leaf from the small queue to the main one.
const READS_MIN: u8 = 2;

/// S3-FIFO (Yang and others, SOSP 2023): a small queue of a tenth, a main queue with counters up to 3, and the names of
/// as many evicted leaves as the main queue has.
pub struct S3Fifo {
    small_max: usize,
    ghosts_max: u32,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// The queue and the counter of each leaf in memory.
    state: Vec<Option<(Queue, u8)>>,
    small_len: usize,
    /// How many leaves became ghosts, and how many there were when each did.
    ghosts: u32,
    ghost_at: Vec<Option<u32>>,
}

impl S3Fifo {
    pub fn new(slots: usize, leaves_max: usize) -> S3Fifo {
        let small_max = leaves_max / 10;
        let (small, main) = (VecDeque::new(), VecDeque::new());
        let (state, ghost_at) = (vec![None; slots], vec![None; slots]);
        let ghosts_max = (leaves_max - small_max) as u32;
        S3Fifo { small_max, ghosts_max, small, main, state, small_len: 0, ghosts: 0, ghost_at }
    }

    /// Evicts from the small queue, unless all its leaves go to the main one.
    fn evict_small(&mut self) -> Option<u32> {
        while let Some(leaf) = self.small.pop_front() {
            let Some((_, counter)) = self.state[leaf as usize] else { continue };
            self.small_len -= 1;
            if counter < READS_MIN {
                self.state[leaf as usize] = None;
                self.ghosts += 1;
                self.ghost_at[leaf as usize] = Some(self.ghosts);
                return Some(leaf);
            }
            self.state[leaf as usize] = Some((Queue::Main, 0));
            self.main.push_back(leaf);
        }
        None
    }

    fn evict_main(&mut self) -> Option<u32> {
        while let Some(leaf) = self.main.pop_front() {
            match &mut self.state[leaf as usize] {
                None => {}
                Some((_, 0)) => {
                    self.state[leaf as usize] = None;
                    return Some(leaf);
                }
                Some((_, counter)) => {
                    *counter -= 1;
                    self.main.push_back(leaf);
                }
            }
        }
        None
    }
}

impl Policy for S3Fifo {
    fn read(&mut self, leaf: u32, _at: usize) {
        let (_, counter) = self.state[leaf as usize].as_mut().expect("it is in memory");
        *counter = (*counter + 1).min(3);
    }

    fn load(&mut self, leaf: u32, _at: usize) {
        let is_ghost =
            self.ghost_at[leaf as usize].take().is_some_and(|at| self.ghosts - at < self.ghosts_max);
        let queue = if is_ghost { Queue::Main } else { Queue::Small };
        self.state[leaf as usize] = Some((queue, 0));
        match queue {
            Queue::Main => self.main.push_back(leaf),
            Queue::Small => {
                self.small.push_back(leaf);
                self.small_len += 1;
            }
        }
    }

    fn evict(&mut self) -> u32 {
        let from_small = if self.small_len >= self.small_max { self.evict_small() } else { None };
        from_small.or_else(|| self.evict_main()).or_else(|| self.evict_small()).expect("a leaf is in memory")
    }

    fn forget(&mut self, leaf: u32) {
        if let Some((Queue::Small, _)) = self.state[leaf as usize].take() {
            self.small_len -= 1;
        }
    }
}
