//! Random writes and syncs against a model that knows only what a disk promises: the states each sector may be in.

use std::collections::BTreeSet;

use fulgurite_env::sim::CrashKind::{Kill, PowerCut};
use fulgurite_env::sim::SimEnv;
use fulgurite_env::{Env, OpenOptions};
use proptest::prelude::*;

use super::{SECTOR, log, root, stamps};

const SECTORS: usize = 12;

#[derive(Clone, Debug)]
enum Step {
    Write { sector: usize, count: usize, dsync: bool },
    Cut { sectors: usize },
    Sync,
    Kill { seed: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..SECTORS, 1..5usize, prop::bool::weighted(0.3))
            .prop_map(|(sector, count, dsync)| Step::Write { sector, count, dsync }),
        1 => (0..SECTORS).prop_map(|sectors| Step::Cut { sectors }),
        2 => Just(Step::Sync),
        1 => any::<u64>().prop_map(|seed| Step::Kill { seed }),
    ]
}

/// What a sector and the length may be after a power cut; the last state is the cached one.
struct Model {
    sectors: Vec<Vec<u8>>,
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
            if grew {
                forget(&mut self.lens);
            }
            let durable = self.lens.remove(0).max(end);
            self.lens.retain(|len| *len >= end);
            self.lens.insert(0, durable);
        }
    }

    fn cut(&mut self, len: usize) {
        if len < self.len() {
            self.sectors[len..].iter_mut().for_each(|states| states.push(0));
        }
        self.lens.push(len);
    }

    fn sync(&mut self) {
        self.sectors.iter_mut().for_each(forget);
        forget(&mut self.lens);
    }

    fn allows(&self, found: &[u8]) -> bool {
        let in_range = self.lens.contains(&found.len());
        in_range && found.iter().zip(&self.sectors).all(|(stamp, states)| states.contains(stamp))
    }
}

fn forget<T>(states: &mut Vec<T>) {
    states.drain(..states.len() - 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn power_cuts_leave_only_what_the_promise_allows(steps in prop::collection::vec(step(), 1..40)) {
        let mut sim = SimEnv::new(1);
        let mut file = sim.disk().open(log(), OpenOptions::CreateNew).expect("create");
        sim.disk().sync_dir(root()).expect("sync_dir");
        let mut model = Model { sectors: vec![vec![0]; SECTORS + 5], lens: vec![0] };
        for (index, step) in steps.into_iter().enumerate() {
            let byte = index as u8 + 1;
            match step {
                Step::Write { sector, count, dsync } => {
                    let (data, offset) = (vec![byte; count * SECTOR], (sector * SECTOR) as u64);
                    let write = if dsync { file.write_at_dsync(&data, offset) } else { file.write_at(&data, offset) };
                    write.expect("write");
                    model.write(sector, count, byte, dsync);
                }
                Step::Cut { sectors } => {
                    file.set_len((sectors * SECTOR) as u64).expect("set_len");
                    model.cut(sectors);
                }
                Step::Sync => {
                    file.sync_data().expect("sync");
                    model.sync();
                }
                Step::Kill { seed } => {
                    sim = sim.crash(Kill, seed);
                    file = sim.disk().open(log(), OpenOptions::Write).expect("open");
                }
            }
            let cached = stamps(&sim);
            prop_assert_eq!(cached.len(), model.len());
            prop_assert!(cached.iter().zip(&model.sectors).all(|(stamp, states)| Some(stamp) == states.last()));
            for seed in 0..6 {
                let found = stamps(&sim.crash(PowerCut, seed));
                prop_assert!(model.allows(&found), "{found:?} of {:?} {:?}", model.sectors, model.lens);
            }
        }
    }
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
