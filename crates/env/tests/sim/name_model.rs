//! Random changes of names against a model that tries every subset of the unsynced ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fulgurite_env::sim::CrashKind::PowerCut;
use fulgurite_env::sim::SimEnv;
use fulgurite_env::{Env, OpenOptions};
use proptest::prelude::*;

use super::root;

/// The files' lengths identify them.
type Names = BTreeMap<usize, u64>;

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Remove(usize),
    Rename(usize, usize),
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..4usize;
    prop_oneof![
        4 => name.clone().prop_map(Step::Create),
        2 => name.clone().prop_map(Step::Remove),
        3 => (name.clone(), name).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => Just(Step::Sync),
    ]
}

/// An unsynced change: the new state of each name that it touches.
type Change = Vec<(usize, Option<u64>)>;

fn path(name: usize) -> PathBuf {
    root().join(format!("f{name}"))
}

/// Every state in which the surviving changes of each name are a prefix.
fn allowed(durable: &Names, pending: &[Change]) -> BTreeSet<Names> {
    let subsets = 0..1u32 << pending.len();
    let state = |kept: u32| {
        let mut names = durable.clone();
        let mut lost = BTreeSet::new();
        for (index, change) in pending.iter().enumerate() {
            if kept & (1 << index) == 0 {
                lost.extend(change.iter().map(|(name, _)| *name));
            } else if change.iter().any(|(name, _)| lost.contains(name)) {
                return None;
            } else {
                for (name, file) in change {
                    match file {
                        Some(file) => names.insert(*name, *file),
                        None => names.remove(name),
                    };
                }
            }
        }
        Some(names)
    };
    subsets.filter_map(state).collect()
}

fn found(sim: &SimEnv) -> Names {
    let name = |path: PathBuf| path.display().to_string().trim_start_matches("/f").parse().expect("a number");
    sim.list_raw().into_iter().map(|(path, len)| (name(path), len)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn power_cuts_leave_a_prefix_of_each_name(steps in prop::collection::vec(step(), 1..9)) {
        let sim = SimEnv::new(1);
        let disk = sim.disk();
        let (mut cached, mut durable) = (Names::new(), Names::new());
        let mut pending: Vec<Change> = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            let change = match step {
                Step::Create(name) if !cached.contains_key(&name) => {
                    let file = disk.open(&path(name), OpenOptions::CreateNew).expect("create");
                    file.set_len(index as u64 + 1).expect("set_len");
                    file.sync_data().expect("sync");
                    vec![(name, Some(index as u64 + 1))]
                }
                Step::Remove(name) if cached.contains_key(&name) => {
                    disk.remove(&path(name)).expect("remove");
                    vec![(name, None)]
                }
                Step::Rename(from, to) if from != to && cached.contains_key(&from) => {
                    disk.rename(&path(from), &path(to)).expect("rename");
                    vec![(from, None), (to, cached.get(&from).copied())]
                }
                Step::Sync => {
                    disk.sync_dir(root()).expect("sync_dir");
                    durable = cached.clone();
                    pending.clear();
                    continue;
                }
                _ => continue,
            };
            for (name, file) in &change {
                match file {
                    Some(file) => cached.insert(*name, *file),
                    None => cached.remove(name),
                };
            }
            pending.push(change);
        }
        prop_assert_eq!(&found(&sim), &cached);
        let allowed = allowed(&durable, &pending);
        let outcomes: BTreeSet<Names> = (0..500).map(|seed| found(&sim.crash(PowerCut, seed))).collect();
        prop_assert!(outcomes.is_subset(&allowed), "{outcomes:?} of {allowed:?}");
        prop_assert!(pending.is_empty() || outcomes.len() > 1 || allowed.len() == 1);
    }
}
