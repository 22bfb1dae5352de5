//! The whole disk: files, names and the changes in flight.

use std::collections::{BTreeMap, BTreeSet};

use super::content;
use super::fate::{Fate, Seq, torn};
use super::inode::{Inode, Reach};
use super::memory::Memory;
use super::names::{Change, Ino, Names};
use super::rng::Rng;

/// A submitted change that is not complete.
#[derive(Clone)]
pub(super) enum Flight {
    Write { ino: Ino, offset: u64, data: Bytes, reach: Reach },
    SetLen { ino: Ino, len: u64 },
    Name(Change),
}

/// Bytes in flight. Zeros take no memory, because files are preallocated with them.
#[derive(Clone)]
pub(super) enum Bytes {
    Zeros(usize),
    Some(Vec<u8>),
}

impl Bytes {
    pub(super) fn new(data: &[u8]) -> Bytes {
        if content::is_zero(data) { Bytes::Zeros(data.len()) } else { Bytes::Some(data.to_vec()) }
    }

    fn into_vec(self) -> Vec<u8> {
        match self {
            Bytes::Zeros(len) => vec![0; len],
            Bytes::Some(data) => data,
        }
    }
}

/// The state from which a crash image starts.
#[derive(Clone, Default)]
pub(super) struct Medium {
    pub(super) inodes: BTreeMap<Ino, Inode>,
    pub(super) names: Names,
    flights: BTreeMap<u64, Flight>,
    last: u64,
}

impl Medium {
    /// A new number; numbers order the changes.
    pub(super) fn next_seq(&mut self) -> Seq {
        self.last += 1;
        self.last
    }

    /// The number of the latest change.
    pub(super) fn last_seq(&self) -> Seq {
        self.last
    }

    /// Records a change as in flight.
    pub(super) fn submit(&mut self, flight: Flight) -> u64 {
        let id = self.next_seq();
        self.flights.insert(id, flight);
        id
    }

    /// Removes a change from those in flight: it is complete, or was given up.
    pub(super) fn land(&mut self, id: u64) {
        self.flights.remove(&id);
    }

    /// Adds an empty file that has no name yet.
    pub(super) fn new_inode(&mut self, inode: Inode) -> Ino {
        let ino = self.next_seq();
        self.inodes.insert(ino, inode);
        ino
    }

    /// A complete write of a subset of the sectors.
    pub(super) fn write_torn(&mut self, ino: Ino, (data, offset): (&[u8], u64), reach: Reach, rng: &mut Rng) {
        let sectors = content::sectors(offset, data.len() as u64);
        let seq = self.next_seq();
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let kept = torn(rng, (sectors.end - sectors.start) as usize);
        for (sector, kept) in sectors.zip(kept) {
            if kept {
                let start = (sector * content::SECTOR).max(offset);
                let end = ((sector + 1) * content::SECTOR).min(offset + data.len() as u64);
                let bytes = &data[(start - offset) as usize..(end - offset) as usize];
                inode.write(bytes, start, seq, reach);
            }
        }
    }

    /// Applies a complete change of names.
    pub(super) fn change_names(&mut self, change: Change) {
        let seq = self.next_seq();
        self.names.change(change, seq);
    }

    /// Decides the outcome of the changes in flight: any subset, in any order.
    pub(super) fn resolve_flights(&mut self, rng: &mut Rng) {
        let mut flights: Vec<Flight> = std::mem::take(&mut self.flights).into_values().collect();
        rng.shuffle(&mut flights);
        for flight in flights {
            match flight {
                Flight::Write { ino, offset, data, reach } => {
                    self.write_torn(ino, (&data.into_vec(), offset), reach, rng);
                }
                Flight::SetLen { ino, len } if rng.chance(128) => {
                    let seq = self.next_seq();
                    if let Some(inode) = self.inodes.get_mut(&ino) {
                        inode.set_len(len, seq);
                    }
                }
                Flight::Name(change) if rng.chance(128) => self.change_names(change),
                Flight::SetLen { .. } | Flight::Name(_) => {}
            }
        }
    }

    /// The medium after a power cut, once nothing is in flight.
    pub(super) fn power_cut(&self, rng: Rng, power_safe: bool) -> Medium {
        let mut fate = Fate::draw(rng, self.last);
        let names = self.names.power_cut(&mut fate);
        self.image(names, &mut fate, |inode, fate| inode.power_cut(fate, power_safe))
    }

    /// The medium after a crash of the operating system, once nothing is in flight.
    pub(super) fn os_crash(&mut self, rng: Rng) -> Medium {
        let mut fate = Fate::draw(rng, self.last);
        let names = self.names.os_crash(&mut fate);
        let seq = self.next_seq();
        self.image(names, &mut fate, |inode, fate| inode.os_crash(fate, seq))
    }

    fn image(&self, mut names: Names, fate: &mut Fate, left: impl Fn(&Inode, &mut Fate) -> Inode) -> Medium {
        let reachable = names.reachable();
        let mut inodes = BTreeMap::new();
        for (ino, inode) in &self.inodes {
            fate.next_file();
            if !reachable.contains(ino) {
                continue;
            }
            match inode.memory().map(|memory| memory.power_cut(fate, self.last + 1)) {
                None => _ = inodes.insert(*ino, left(inode, fate)),
                Some(Some(memory)) => _ = inodes.insert(*ino, Inode::of_memory(memory)),
                Some(None) => names.forget(*ino),
            }
        }
        Medium { inodes, names, flights: BTreeMap::new(), last: self.last }
    }

    /// The mapped files.
    pub(super) fn memories(&self) -> impl Iterator<Item = &Memory> {
        self.inodes.values().filter_map(Inode::memory)
    }

    /// The machine crashes: later stores into mapped files are in no image.
    pub(super) fn freeze_memories(&mut self) {
        self.inodes.values_mut().filter_map(Inode::memory_mut).for_each(Memory::freeze);
    }

    /// The process was killed: the image has mapped files of its own.
    pub(super) fn kill_memories(&mut self) {
        self.inodes.values_mut().filter_map(Inode::memory_mut).for_each(|memory| *memory = memory.killed());
    }

    /// Drops files that nothing can reach.
    pub(super) fn collect(&mut self) {
        let reachable = self.names.reachable();
        self.inodes.retain(|ino, inode| inode.open > 0 || reachable.contains(ino));
    }

    /// Closes all files, and links exactly those that have a name after the crash.
    pub(super) fn restart(&mut self) {
        let named: BTreeSet<Ino> = self.names.files().collect();
        for (ino, inode) in &mut self.inodes {
            inode.open = 0;
            inode.linked = named.contains(ino);
        }
        self.collect();
    }

    /// The sum of the lengths of files that have a name or are open.
    pub(super) fn used(&self) -> u64 {
        let taking = self.inodes.values().filter(|inode| inode.linked || inode.open > 0);
        taking.map(Inode::allocated).sum()
    }
}
