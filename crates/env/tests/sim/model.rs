//! Random writes and syncs against a model that knows only a disk's promises: the possible states of each sector.

use std::collections::BTreeSet;

use fulgurite_env::sim::CrashKind::{self, Kill, OsCrash, PowerCut};
use fulgurite_env::sim::SimEnv;
use fulgurite_env::{AlignedBuf, DIRECT_BYTES, Env, File, OpenOptions};
use proptest::prelude::*;

use super::{SECTOR, log, root, stamps};

const SECTORS: usize = 12;
/// Sectors of a direct write's block.
const BLOCK: usize = DIRECT_BYTES / SECTOR;

#[derive(Clone, Debug)]
enum Step {
    Write { sector: usize, count: usize, dsync: bool },
    Direct { block: usize, count: usize, sync: bool },
    Cut { sectors: usize },
    Allocate { sectors: usize },
    Sync,
    Kill { seed: u64 },
    OsCrash { seed: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..SECTORS, 1..5usize, prop::bool::weighted(0.3))
            .prop_map(|(sector, count, dsync)| Step::Write { sector, count, dsync }),
        4 => (0..2usize, 1..3usize, prop::bool::weighted(0.3))
            .prop_map(|(block, count, sync)| Step::Direct { block, count, sync }),
        1 => (0..SECTORS).prop_map(|sectors| Step::Cut { sectors }),
        1 => (0..SECTORS).prop_map(|sectors| Step::Allocate { sectors }),
        2 => Just(Step::Sync),
        1 => any::<u64>().prop_map(|seed| Step::Kill { seed }),
        1 => any::<u64>().prop_map(|seed| Step::OsCrash { seed }),
    ]
}

/// The possible states of each sector and of the length after a power cut; the last state is the cached one. A crash of
/// the operating system leaves no state of a sector before the one with the number in `in_device`.
struct Model {
    sectors: Vec<Vec<u8>>,
    in_device: Vec<usize>,
    lens: Vec<usize>,
}

impl Model {
    fn len(&self) -> usize {
        *self.lens.last().expect("never empty")
    }

    fn write(&mut self, sector: usize, count: usize, byte: u8, dsync: bool) {
        let end = sector + count;
        self.sectors[sector..end].iter_mut().for_each(|states| states.push(byte));
        let grew = end > self.len();
        if grew {
            self.lens.push(end);
        }
        if dsync {
            self.sectors[sector..end].iter_mut().for_each(forget);
            self.in_device[sector..end].fill(0);
            if grew {
                forget(&mut self.lens);
            }
            let durable = self.lens.remove(0).max(end);
            self.lens.retain(|len| *len >= end);
            self.lens.insert(0, durable);
        }
    }

    fn write_direct(&mut self, sector: usize, count: usize, byte: u8, sync: bool) {
        let len_min = *self.lens.iter().min().expect("never empty");
        self.write(sector, count, byte, sync);
        for sector in sector..(sector + count).min(len_min) {
            self.in_device[sector] = self.sectors[sector].len() - 1;
        }
    }

    /// Adopts the content found after a crash of the operating system: reads see it, and it is in the device.
    fn adopt(&mut self, found: &[u8]) {
        let seen = found.iter().copied().chain(std::iter::repeat(0));
        for ((states, in_device), seen) in self.sectors.iter_mut().zip(&mut self.in_device).zip(seen) {
            states.push(seen);
            *in_device = states.len() - 1;
        }
        self.in_device[found.len()..].fill(0);
        self.lens.push(found.len());
    }

    fn cut(&mut self, len: usize) {
        if len < self.len() {
            self.sectors[len..].iter_mut().for_each(|states| states.push(0));
        }
        self.lens.push(len);
    }

    fn sync(&mut self) {
        self.sectors.iter_mut().for_each(forget);
        self.in_device.fill(0);
        forget(&mut self.lens);
    }

    fn allows(&self, kind: CrashKind, power_safe: bool, found: &[u8]) -> bool {
        let device_stays = kind == OsCrash || power_safe;
        let states = |sector: usize| match self.in_device[sector] {
            first if device_stays => &self.sectors[sector][first..],
            _ => &self.sectors[sector],
        };
        let in_range = self.lens.contains(&found.len());
        in_range && found.iter().enumerate().all(|(sector, stamp)| states(sector).contains(stamp))
    }
}

fn forget<T>(states: &mut Vec<T>) {
    states.drain(..states.len() - 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn crashes_leave_only_what_the_promise_allows(
        steps in prop::collection::vec(step(), 1..40),
        power_safe in any::<bool>(),
    ) {
        let mut sim = SimEnv::new(1);
        sim.faults().power_safe_cache(power_safe);
        let mut file = sim.disk().open(log(), OpenOptions::CreateNew).expect("create");
        sim.disk().sync_dir(root()).expect("sync_dir");
        let (sectors, in_device) = (vec![vec![0]; 3 * BLOCK], vec![0; 3 * BLOCK]);
        let mut model = Model { sectors, in_device, lens: vec![0] };
        for (index, step) in steps.into_iter().enumerate() {
            let byte = index as u8 + 1;
            match step {
                Step::Write { sector, count, dsync } => {
                    let (data, offset) = (vec![byte; count * SECTOR], (sector * SECTOR) as u64);
                    let write = if dsync { file.write_at_dsync(&data, offset) } else { file.write_at(&data, offset) };
                    write.expect("write");
                    model.write(sector, count, byte, dsync);
                }
                Step::Direct { block, count, sync } => {
                    write_direct(&*file, byte, (block, count), sync);
                    model.write_direct(block * BLOCK, count * BLOCK, byte, sync);
                }
                Step::Cut { sectors } => {
                    file.set_len((sectors * SECTOR) as u64).expect("set_len");
                    model.cut(sectors);
                }
                Step::Allocate { sectors } => {
                    file.allocate((sectors * SECTOR) as u64).expect("allocate");
                    if sectors > model.len() {
                        model.lens.push(sectors);
                    }
                }
                Step::Sync => {
                    file.sync_data().expect("sync");
                    model.sync();
                }
                Step::Kill { seed } => {
                    sim = sim.crash(Kill, seed);
                    file = sim.disk().open(log(), OpenOptions::Write).expect("open");
                }
                Step::OsCrash { seed } => {
                    sim = sim.crash(OsCrash, seed);
                    file = sim.disk().open(log(), OpenOptions::Write).expect("open");
                    let found = stamps(&sim);
                    prop_assert!(model.allows(OsCrash, power_safe, &found), "{found:?} of {:?}", model.sectors);
                    model.adopt(&found);
                }
            }
            let cached = stamps(&sim);
            prop_assert_eq!(cached.len(), model.len());
            prop_assert!(cached.iter().zip(&model.sectors).all(|(stamp, states)| Some(stamp) == states.last()));
            for (seed, kind) in (0..6).flat_map(|seed| [(seed, PowerCut), (seed, OsCrash)]) {
                let found = stamps(&sim.crash(kind, seed));
                let allowed = model.allows(kind, power_safe, &found);
                prop_assert!(allowed, "{kind:?}: {found:?} of {:?} {:?}", model.sectors, model.lens);
            }
        }
    }
}

fn write_direct(file: &dyn File, byte: u8, (block, count): (usize, usize), sync: bool) {
    let mut buf = AlignedBuf::new(count * DIRECT_BYTES);
    buf.fill(byte);
    file.write_direct(&buf, (block * DIRECT_BYTES) as u64, sync).expect("direct write");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn every_combination_of_states_turns_up(rounds in prop::collection::vec((0..3usize, 1..3usize), 1..4)) {
        let (sim, file) = super::with_log(4, 100);
        let mut states = vec![BTreeSet::from([100]); 4];
        for (round, (sector, count)) in rounds.into_iter().enumerate() {
            file.write_at(&vec![round as u8 + 1; count * SECTOR], (sector * SECTOR) as u64).expect("write");
            for states in &mut states[sector..sector + count] {
                states.insert(round as u8 + 1);
            }
        }
        let possible: usize = states.iter().map(BTreeSet::len).product();
        let found: BTreeSet<_> = (0..20_000).map(|seed| stamps(&sim.crash(PowerCut, seed))).collect();
        prop_assert_eq!(found.len(), possible);
    }
}
