//! Clusters of databases from seeds. `FULGURITE_SIM_SEEDS` sets how many.

use fulgurite_sim::{Canary, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

const STEPS: u32 = 600;

fn nodes(seed: u64) -> u32 {
    if seed.is_multiple_of(3) { 5 } else { 3 }
}

#[test]
fn clusters_keep_what_was_acknowledged() {
    let seeds = std::env::var("FULGURITE_SIM_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    let first = std::env::var("FULGURITE_SIM_FIRST").map_or(0, |first| first.parse().unwrap());
    let (mut acknowledged, mut leaders, mut reads, mut restarts, mut checkpoints) = (0, 0, 0, 0, 0);
    let (mut replaced, mut filled, mut rival_sets, mut rebuilt) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        let summary = run(seed, nodes(seed), Canary::None, STEPS);
        acknowledged += summary.acknowledged;
        leaders += summary.leaders;
        reads += summary.reads;
        restarts += summary.restarts;
        checkpoints += summary.checkpoints;
        replaced += summary.replaced;
        filled += summary.filled;
        rival_sets += summary.rival_sets;
        rebuilt += summary.rebuilt;
    }
    println!(
        "{seeds} seeds: {acknowledged} commits were acknowledged, {leaders} leaders appointed, {reads} reads checked, \
         {restarts} restarts, {checkpoints} checkpoints, {replaced} nodes replaced, {filled} filled, {rival_sets} sets of a rival in force, \
         {rebuilt} clusters made anew"
    );
    let each = |count: usize| count as u64 > seeds;
    assert!(each(acknowledged) && each(leaders) && each(reads) && checkpoints > seeds, "the runs do nothing");
    assert!(seeds < 20 || (replaced > 0 && filled > 0), "no node is replaced or filled");
}

/// One seed is one run.
#[test]
fn a_seed_repeats() {
    for seed in 0..4 {
        assert_eq!(run(seed, nodes(seed), Canary::None, STEPS), run(seed, nodes(seed), Canary::None, STEPS));
    }
}

/// The checks that may catch a canary.
fn caught_by(canary: Canary) -> &'static [&'static str] {
    match canary {
        Canary::None => &[],
        Canary::AcknowledgesBeforeTheSync => &["no majority has", "another entry than was agreed"],
        Canary::AppointsOneBehind => {
            &["another entry than was agreed", "is lost", "INV-REP-3", "read key", "began after"]
        }
        Canary::ForgetsTheTerm => &["two nodes lead"],
        Canary::TakesDurableForAgreed => &["no majority has", "another entry than was agreed"],
        Canary::AppliesBeforeTheSync => &["has lost what it had applied"],
        Canary::CountsAllEarly => &["as one that all have"],
        Canary::CountsOlderTerms => &["another entry than was agreed"],
        Canary::ReadsWithoutBarrier => &["was acknowledged"],
        // The last is what a node says which has another entry under the same number.
        Canary::TrustsOldDirectories | Canary::ChangesMembersEarly => &[
            "no majority has",
            "two nodes lead",
            "another entry than was agreed",
            "is lost",
            "read key",
            "has to follow",
        ],
    }
}

#[test]
fn broken_rules_are_caught() {
    // Each with a seed a little before the first that finds it.
    let canaries = [
        (Canary::AcknowledgesBeforeTheSync, 0),
        (Canary::AppointsOneBehind, 0),
        (Canary::ForgetsTheTerm, 0),
        (Canary::TakesDurableForAgreed, 0),
        (Canary::ReadsWithoutBarrier, 30),
        (Canary::TrustsOldDirectories, 0),
        (Canary::AppliesBeforeTheSync, 30),
        (Canary::CountsAllEarly, 0),
        (Canary::CountsOlderTerms, 0),
        (Canary::ChangesMembersEarly, 225),
    ];
    for (canary, first) in canaries {
        let is_caught = |seed| match catch_unwind(AssertUnwindSafe(|| run(seed, 3, canary, STEPS))) {
            Ok(_) => false,
            Err(panic) => {
                let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                let is_caught = caught_by(canary).iter().any(|why| message.contains(why));
                // A power cut of a disk that ignored syncs may leave damage, which the node finds by itself.
                let is_damaged = canary == Canary::AppliesBeforeTheSync && message.contains("is damaged");
                assert!(is_caught || is_damaged, "{canary:?}: {message}");
                is_caught
            }
        };
        let caught = (first..first + 400).find(|seed| is_caught(*seed));
        println!("{canary:?} is caught with seed {caught:?}");
        assert!(caught.is_some(), "{canary:?} was not caught");
    }
}
