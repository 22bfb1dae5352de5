//! Concurrent clients over sockets, with crashes in between: single keys are linearizable and transactions strictly serializable, and what
//! was acknowledged before a crash is there after it.

#[path = "linearizable/checker.rs"]
mod checker;
#[path = "linearizable/checker_tests.rs"]
mod checker_tests;
#[path = "linearizable/clients.rs"]
mod clients;
#[path = "linearizable/model.rs"]
mod model;
#[path = "linearizable/rounds.rs"]
mod rounds;
mod support;

use clients::Mix;
use fulgurite::env::{Env, RealEnv};
use rounds::{Rounds, Tally};

/// Many keys, each checked by itself.
fn single_keys() -> Mix {
    let keys = &["n0", "n1", "s0", "s1", "l0", "h0", "t0", "z0"];
    Mix {
        keys,
        clients: 6,
        operations: 60,
        pipeline: 4,
        has_transactions: false,
        flushes_in_exec: false,
        levels: vec![],
    }
}

/// Transactions and commands of several keys, and of few keys in all.
fn transactions() -> Mix {
    let keys = &["n0", "n1", "s0", "l0", "l1", "t0", "t1", "t2"];
    Mix {
        keys,
        clients: 4,
        operations: 25,
        pipeline: 3,
        has_transactions: true,
        flushes_in_exec: false,
        levels: vec![],
    }
}

/// Few sets, and what is stored of several: write skew.
fn sets() -> Mix {
    let keys = &["t0", "t1", "t2", "n0"];
    Mix {
        keys,
        clients: 3,
        operations: 40,
        pipeline: 1,
        has_transactions: true,
        flushes_in_exec: false,
        levels: vec![],
    }
}

/// The same with a client whose commits a crash may take back, or two.
fn mixed(levels: &[&'static str]) -> Mix {
    Mix { keys: &["n0", "s0", "l0", "t0", "t1"], pipeline: 2, levels: levels.to_vec(), ..transactions() }
}

fn flushing_transactions() -> Mix {
    Mix { flushes_in_exec: true, ..transactions() }
}

fn run(mix: Mix, seed: u64, seconds: u64) -> Tally {
    let clock = RealEnv::new();
    let now = || clock.clock().monotonic_ns() / 1_000_000_000;
    let until = now() + seconds;
    let lower_least = u64::from(!mix.levels.is_empty());
    let mut rounds = Rounds::new(seed, mix);
    // On a busy machine as long as it takes to see something.
    let is_enough = |tally: &Tally| tally.rounds > 4 && tally.crashes > 1 && tally.lower >= lower_least;
    while now() < until || (!is_enough(&rounds.tally) && rounds.tally.rounds < 1_000) {
        rounds.run();
    }
    rounds.tally
}

#[test]
fn single_keys_are_linearizable() {
    let tally = run(single_keys(), 1, 2);
    assert!(tally.rounds > 4 && tally.crashes > 1, "{tally:?}");
    println!("{tally:?}");
}

#[test]
fn transactions_are_strictly_serializable() {
    let tally = run(transactions(), 2, 2);
    assert!(tally.rounds > 4 && tally.crashes > 1, "{tally:?}");
    println!("{tally:?}");
    let tally = run(sets(), 3, 1);
    println!("{tally:?}");
}

/// What was acknowledged at a lower level may be lost, newest first, and nothing else; and it is, else this would show nothing.
#[test]
fn only_crashes_lose_and_only_what_was_not_synchronous() {
    let tally = run(mixed(&["none"]), 4, 2);
    assert!(tally.crashes > 1 && tally.lower > 0, "{tally:?}");
    println!("{tally:?}");
    let tally = run(mixed(&["none", "async 5", "none"]), 5, 2);
    println!("{tally:?}");
}

/// What a transaction that changes keyspaces wrote beside that is not seen without the change.
#[test]
fn transactions_that_flush_are_isolated() {
    let tally = run(flushing_transactions(), 6, 2);
    assert!(tally.rounds > 4 && tally.crashes > 1, "{tally:?}");
    println!("{tally:?}");
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
#[ignore = "as long as one likes; docs/testing.md has the command"]
fn long_histories() {
    let (seconds, seed) = (variable("FULGURITE_HISTORY_SECONDS", 60), variable("FULGURITE_HISTORY_SEED", 1));
    let mixes = [
        ("single keys", single_keys()),
        ("transactions", transactions()),
        ("transactions that flush", flushing_transactions()),
        ("sets", sets()),
        ("one client at none", mixed(&["none"])),
        ("three of four clients at lower levels", mixed(&["none", "async 5", "none"])),
    ];
    // Each in turns, a new database each time.
    let slice = 10;
    let turns = seconds.div_ceil(slice * mixes.len() as u64).max(1);
    let mut all = mixes.map(|(name, mix)| (name, mix, Tally::default()));
    for turn in 0..turns {
        for (name, mix, sum) in &mut all {
            println!("FULGURITE_HISTORY_SEED={} {name}", seed + turn);
            sum.add(run(mix.clone(), seed + turn, slice));
        }
    }
    for (name, _, sum) in all {
        println!("{name}: {sum:?}");
    }
}
