//! Garbage collection: live values leave segments that are mostly dead, while readers hold where they were.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::rng::Rng;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Options, Table};

fn options() -> Options {
    Options {
        inline_bytes_max: 200,
        memtable_bytes_max: Some(64 << 10),
        checkpoint_log_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(env: &Arc<SimEnv>) -> Database {
    Database::open_with(env.clone(), "/data", options(), |_| {}).unwrap()
}

/// The value of a key in a round; some are inline, most in the commit's frame, some in chunks, some in two of these.
fn value(key: u32, round: u32) -> Vec<u8> {
    let len = match key % 50 {
        0 => 150_000,
        1 => 700_000,
        2..10 => 100,
        _ => 1000 + key as usize * 7 % 3000,
    };
    (0..len as u32).map(|at| (at ^ key.wrapping_mul(31) ^ round.wrapping_mul(101)) as u8).collect()
}

struct Rows {
    table: Table,
    rounds: BTreeMap<u32, u32>,
}

impl Rows {
    fn fill(db: &Database, count: u32) -> Rows {
        let table = db.create_table("t").unwrap();
        let mut rows = Rows { table, rounds: BTreeMap::new() };
        (0..count).for_each(|key| rows.put(key, 0));
        rows
    }

    fn put(&mut self, key: u32, round: u32) {
        self.table.put(key.to_be_bytes(), value(key, round)).unwrap();
        self.rounds.insert(key, round);
    }

    fn live_bytes(&self) -> u64 {
        self.rounds.iter().map(|(key, round)| value(*key, *round).len() as u64).sum()
    }

    fn check(&self) {
        for (key, round) in &self.rounds {
            let found = self.table.get(key.to_be_bytes()).unwrap().expect("it was put");
            assert!(*found == *value(*key, *round), "{key} {round}");
        }
    }
}

fn segment_bytes(db: &Database) -> u64 {
    db.stats().space.uses.values().map(|group| group.bytes).sum()
}

fn is_sound(db: &Database) {
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn overwritten_values_stay_in_bounded_space() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let mut rows = Rows::fill(&db, 1_000);
    let mut rng = Rng::new(7);
    let mut worst = 0;
    for round in 1..=12_000 {
        // Most of them again and again, some never.
        let key = rng.below(900) as u32;
        rows.put(key, round);
        while db.maintain().unwrap() {}
        worst = worst.max(segment_bytes(&db));
    }
    let live = rows.live_bytes();
    let moved = db.stats().log.moved_value_bytes;
    println!(
        "{worst} bytes at most for {live} live, {moved} moved, {} written",
        db.stats().log.written_bytes
    );
    assert!(moved > live / 2, "{moved}");
    // Segments of a mebibyte: two are open, two are ready, and each may end with half of one that a long chunk did not fit into.
    assert!(worst < live * 13 / 10 + (9 << 20), "{worst} for {live}");
    rows.check();
    is_sound(&db);
    drop(db);
    let env = env.crash(CrashKind::PowerCut, 3);
    let db = open(&env);
    rows.table = db.table("t").unwrap();
    rows.check();
    is_sound(&db);
}
