//! Random operations against a model: many tables, transactions, snapshots held across merges and checkpoints, expiry,
//! reopening, crashes. A failing list of operations is shortened before it is printed.
//!
//! `FULGURITE_MODEL_SEED=n` runs one seed, `FULGURITE_MODEL_RUNS=n` that many.

mod common;

use std::ops::Bound;

use common::oracle::Key;
use common::rng::Rng;
use common::session::{Action, Session, ValueSpec};
use common::verify::guarded;
use fulgurite::Options;
use fulgurite::env::sim::CrashKind;

const STEPS: u64 = 250;

fn key(rng: &mut Rng) -> Key {
    match rng.below(12) {
        0 => Vec::new(),
        1 => vec![0xff; rng.between(1, 3) as usize],
        2 => vec![b'k'; rng.between(100, 300) as usize],
        3 => format!("many {:05}", rng.below(300)).into_bytes(),
        _ => format!("k{}", rng.below(25)).into_bytes(),
    }
}

fn value(rng: &mut Rng) -> ValueSpec {
    let len = match rng.below(40) {
        0 => rng.between(130_500, 135_000),
        1 => rng.between(500_000, 600_000),
        2..=8 => rng.between(190, 4_000),
        _ => rng.below(60),
    };
    ValueSpec { seed: rng.next(), len: len as usize }
}

fn bound(rng: &mut Rng) -> Bound<Key> {
    match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(rng)),
        _ => Bound::Excluded(key(rng)),
    }
}

fn ordered(mut one: Bound<Key>, mut other: Bound<Key>) -> (Bound<Key>, Bound<Key>) {
    let key = |bound: &Bound<Key>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    if let (Some(a), Some(b)) = (key(&one), key(&other)) {
        if a > b {
            std::mem::swap(&mut one, &mut other);
        }
        if a == b {
            return (Bound::Included(a), Bound::Included(b));
        }
    }
    (one, other)
}

fn action(rng: &mut Rng) -> Action {
    let (txn, table) = (rng.below(3) as usize, rng.below(3) as usize);
    match rng.below(100) {
        0..=11 => Action::Begin(txn),
        12..=17 => Action::Get { txn, table, key: key(rng) },
        18 => Action::GetForUpdate { txn, table, key: key(rng) },
        19..=34 => {
            let expires_in_s = rng.one_in(5).then(|| rng.below(30));
            Action::Put { txn, table, key: key(rng), value: value(rng), expires_in_s }
        }
        35..=39 => Action::Delete { txn, table, key: key(rng) },
        40..=41 => Action::Insert { txn, table, key: key(rng), value: value(rng) },
        42..=43 => {
            let new = rng.one_in(2).then(|| value(rng));
            Action::Swap { txn, table, key: key(rng), right: !rng.one_in(3), value: new }
        }
        44..=46 => {
            let end = (!rng.one_in(4)).then(|| key(rng));
            Action::DeleteRange { txn, table, start: key(rng), end }
        }
        47..=50 => {
            let (start, end) = ordered(bound(rng), bound(rng));
            Action::Scan { txn, table, start, end, turns: rng.next() }
        }
        51 => Action::Prefix { txn, table, prefix: key(rng), back: rng.one_in(2) },
        52..=53 => Action::Savepoint(txn),
        54..=55 => Action::RollbackTo { txn, nth: rng.below(3) as usize },
        56..=67 => Action::Commit { txn, deferred: rng.one_in(4) },
        68 => Action::Rollback(txn),
        69..=71 => {
            let spec = ValueSpec { seed: rng.next(), len: rng.between(10, 250) as usize };
            Action::Many { table, first: rng.below(300), count: rng.between(1, 200), value: spec }
        }
        72..=74 => Action::Create(table),
        75 => Action::Drop(table),
        76 => Action::Rename { from: table, to: rng.below(3) as usize },
        77..=79 => Action::Snapshot(rng.below(4) as usize),
        80..=83 => Action::Look(rng.below(4) as usize),
        84 => Action::Forget(rng.below(4) as usize),
        85..=87 => Action::Maintain,
        88..=91 => Action::Checkpoint,
        92..=93 => Action::Advance { seconds: rng.between(1, 12) },
        94..=95 => Action::Compare,
        96 => Action::Check,
        97 if rng.one_in(3) => Action::Reopen,
        98 if rng.one_in(2) => {
            let kind = if rng.one_in(2) { CrashKind::PowerCut } else { CrashKind::Kill };
            Action::Crash { kind, seed: rng.next() }
        }
        _ => Action::Maintain,
    }
}

fn actions(seed: u64) -> Vec<Action> {
    let mut rng = Rng::new(seed);
    let mut actions = vec![Action::Create(0), Action::Create(1)];
    actions.extend((0..STEPS).map(|_| action(&mut rng)));
    actions.extend([Action::Compare, Action::Check, Action::Reopen, Action::Check]);
    actions
}

/// Runs a list; an error has the step and the failure.
fn run(actions: &[Action], options: fn(u64) -> Options) -> Result<(), (usize, String)> {
    let mut at = 0;
    let outcome = guarded(|| {
        let mut session = Session::start(1, options);
        for (nth, action) in actions.iter().enumerate() {
            at = nth;
            session.step(action)?;
        }
        Ok(())
    });
    outcome.map_err(|what| (at, what))
}

/// Leaves out the steps that the failure does not need.
fn shorten(mut actions: Vec<Action>, mut what: String, options: fn(u64) -> Options) -> (Vec<Action>, String) {
    let mut chunk = actions.len() / 2;
    while chunk > 0 {
        let mut start = 0;
        while start < actions.len() {
            let mut fewer = actions.clone();
            fewer.drain(start..(start + chunk).min(actions.len()));
            match run(&fewer, options) {
                Err((at, error)) => {
                    fewer.truncate(at + 1);
                    (actions, what) = (fewer, error);
                }
                Ok(()) => start += chunk,
            }
        }
        chunk /= 2;
    }
    (actions, what)
}

/// Runs lists of many seeds; shows the shortest form of one that fails.
fn run_all(test: &str, runs: u64, options: fn(u64) -> Options, change: fn(&mut Vec<Action>)) {
    let seeds: Vec<u64> = match common::setting("FULGURITE_MODEL_SEED") {
        Some(seed) => vec![seed],
        None => (1..=common::setting("FULGURITE_MODEL_RUNS").unwrap_or(runs)).collect(),
    };
    for seed in seeds {
        let mut list = actions(seed);
        change(&mut list);
        if let Err((at, what)) = run(&list, options) {
            list.truncate(at + 1);
            let (list, short) = shorten(list, what.clone(), options);
            let list: Vec<String> = list.iter().map(|action| format!("    {action:?}")).collect();
            panic!(
                "seed {seed}, step {at}: {what}\nthe shortest list gives: {short}\n{}\nagain: FULGURITE_MODEL_SEED={seed} \
                 cargo test -p fulgurite --test model {test}",
                list.join("\n")
            );
        }
    }
}

#[test]
fn random_operations_read_like_the_model() {
    run_all("whatever_is_done", 120, |_| common::options(), |_| {});
}

/// Each read comes from disk, and each step leaves records that only memory refers to.
#[test]
fn whatever_is_done_nodes_may_be_evicted() {
    run_all("evicting", 120, |_| common::evicting(), |_| {});
}

/// Commits are staged in persistent memory: an open drains what a crash left.
#[test]
fn staged_commits_read_like_the_model() {
    run_all("staged_commits", 60, |_| common::staged(), |_| {});
}

/// Another combination of legal options at each of many openings.
#[test]
fn extreme_options_read_like_the_model() {
    run_all("extreme_options", 40, common::extremes::options, |list| {
        let mut rng = Rng::new(list.len() as u64);
        for at in (0..list.len()).step_by(25).skip(1) {
            let seed = rng.next();
            list[at] = match rng.below(3) {
                0 => Action::Reopen,
                1 => Action::Crash { kind: CrashKind::PowerCut, seed },
                _ => Action::Crash { kind: CrashKind::Kill, seed },
            };
        }
    });
}
