//! Checkpoints in steps: writes, merges, range deletes, drops and crashes between any two of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_types::TableId;
use parking_lot::Mutex;

use super::support::{Random, open};
use crate::{Database, Error, Options};

const TABLES: [&str; 3] = ["a", "b", "c"];
const KEYS: u64 = 3_000;

type Model = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>;

fn options() -> Options {
    Options {
        leaf_bytes: 512,
        inline_bytes_max: 60,
        memtable_bytes_max: Some(64 << 10),
        background: false,
        // Dirty leaves are written between the steps of a checkpoint, too.
        research: crate::ResearchOptions { evict_everything: true, ..Default::default() },
        ..Options::default()
    }
}

/// What was committed, each commit durable.
struct World {
    env: Arc<SimEnv>,
    db: Database,
    model: Mutex<(Model, Random)>,
}

impl World {
    /// A few commits of any kind, and now and then a merge of all that they wrote.
    fn work(&self) {
        let (model, random) = &mut *self.model.lock();
        for _ in 0..random.below(8) {
            let name = TABLES[random.below(3) as usize];
            let table = self.db.table(name).unwrap();
            let rows = model.entry(name).or_default();
            let from = random.below(KEYS);
            let key = |n: u64| format!("{n:06}").into_bytes();
            match random.below(20) {
                0 => {
                    self.db.drop_table(name).unwrap();
                    model.remove(name);
                }
                1 => {
                    let to = from + random.below(KEYS / 4);
                    table.delete_range(key(from)..key(to)).unwrap();
                    rows.retain(|own, _| *own < key(from) || *own >= key(to));
                }
                _ => {
                    // Some batches fill leaves until they are cut, some empty them until they are joined.
                    let deletes = random.below(4) == 0;
                    let mut txn = self.db.begin();
                    for n in from..from + random.below(60) {
                        if deletes {
                            txn.delete(&table, key(n)).unwrap();
                            rows.remove(&key(n));
                        } else {
                            let value = vec![random.below(256) as u8; random.below(90) as usize];
                            txn.put(&table, key(n), &value).unwrap();
                            rows.insert(key(n), value);
                        }
                    }
                    txn.commit().unwrap();
                }
            }
        }
        if random.below(3) > 0 {
            let engine = self.db.engine();
            // The catalog's memtable is frozen by checkpoints only.
            for table in engine.tables.all().iter().filter(|table| table.id != TableId::CATALOG) {
                engine.log.at_reserved(|csn| table.index.freeze(csn));
            }
            while engine.merge_all().unwrap() {}
        }
        (0..random.below(6)).for_each(|_| _ = self.db.engine().evict_round().unwrap());
    }

    /// Commits that the close finds unmerged, unless merges gave up before.
    fn work_before_merges_give_up(&self) {
        if !self.db.engine().merger.gives_up() {
            self.work();
            self.db.engine().merger.give_up_after(Duration::ZERO, 0);
        }
    }

    /// What a crash now leaves is all that was committed, and it is sound; also after another checkpoint, and a crash
    /// after that.
    fn crash(&self) {
        let (model, random) = &mut *self.model.lock();
        let kind = if random.below(2) == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
        let mut env = self.env.crash(kind, random.below(u64::MAX));
        for life in 0..3 {
            let db = open(&env, options());
            for name in TABLES {
                let mut rows = BTreeMap::new();
                if let Ok(table) = db.open_table(name) {
                    rows = table
                        .range(..)
                        .unwrap()
                        .map(|row| row.unwrap())
                        .map(|(key, value)| (key.to_vec(), value.to_vec()))
                        .collect();
                }
                assert_eq!(rows, model.get(name).cloned().unwrap_or_default(), "table {name}, life {life}");
            }
            assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new(), "life {life}");
            if life == 0 {
                db.checkpoint().unwrap();
            }
            env = env.crash(CrashKind::PowerCut, random.below(u64::MAX));
        }
    }
}

fn life(seed: u64) {
    let env = SimEnv::new(seed);
    let db = open(&env, options());
    let world = Arc::new(World { env, db, model: Mutex::new((Model::new(), Random(seed))) });
    for _ in 0..6 {
        (0..5).for_each(|_| world.work());
        let between = Arc::downgrade(&world);
        for spot in ["checkpoint boundary", "checkpoint step"] {
            let between = between.clone();
            world.db.engine().hooks.set(spot, move || {
                let world = between.upgrade().expect("the checkpoint runs in it");
                world.work();
                let crashes = world.model.lock().1.below(6) == 0;
                if crashes {
                    world.crash();
                }
            });
        }
        world.db.checkpoint().unwrap();
        world.db.engine().hooks.clear();
        assert_eq!(world.db.check(|_| {}).unwrap().problems, Vec::<String>::new());
        world.crash();
    }
}

/// A close begins between two steps, and does not wait for merges.
fn closes(seed: u64) {
    let env = SimEnv::new(seed);
    let db = open(&env, options());
    let world = Arc::new(World { env, db, model: Mutex::new((Model::new(), Random(seed))) });
    for _ in 0..1 + seed % 3 {
        (0..5).for_each(|_| world.work());
        world.db.checkpoint().unwrap();
    }
    (0..5).for_each(|_| world.work());
    let between = Arc::downgrade(&world);
    world.db.engine().hooks.set("checkpoint step", move || {
        let world = between.upgrade().expect("the checkpoint runs in it");
        let begins = world.model.lock().1.below(8) == 0;
        if begins && !world.db.engine().merger.gives_up() {
            world.work();
            world.db.engine().merger.give_up_after(Duration::ZERO, 0);
        }
    });
    match world.db.checkpoint() {
        Ok(_) => world.work_before_merges_give_up(),
        outcome => assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}"),
    }
    world.db.engine().hooks.clear();
    world.db.clone().close().unwrap();
    world.crash();
}

#[test]
fn a_close_between_the_steps_of_a_checkpoint_loses_nothing() {
    (1..=5 * seeds()).for_each(closes);
}

#[test]
fn crashes_between_the_steps_of_a_checkpoint_lose_nothing() {
    (1..=seeds()).for_each(life);
}

fn seeds() -> u64 {
    std::env::var("FULGURITE_STEP_SEEDS").map_or(2, |seeds| seeds.parse().expect("a number"))
}
