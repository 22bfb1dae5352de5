//! Each fuzz target, for a bounded number of changed seeds. `FULGURITE_FUZZ_CASES` sets the number.

use fulgurite_fuzz::{Outcome, TARGETS, Target, open_changed};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// A change of an input; positions are taken modulo its length.
#[derive(Clone, Debug)]
enum Change {
    Byte(Index, u8),
    Bit(Index, u8),
    Number(Index, u8, u64),
    Remove(Index, u8),
    Repeat(Index, u8),
    Insert(Index, Vec<u8>),
    Truncate(Index),
    /// Part of another seed from here on.
    Cross(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let number = prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(u64::from(u32::MAX)),
        Just(1 << 31),
        Just(1 << 63),
        0..100_000u64,
        any::<u64>()
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Change::Bit(at, bit)),
        (any::<Index>(), 1..9u8, number).prop_map(|(at, len, number)| Change::Number(at, len, number)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, len)| Change::Remove(at, len)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, len)| Change::Repeat(at, len)),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        any::<Index>().prop_map(Change::Truncate),
        (any::<Index>(), any::<Index>(), any::<Index>())
            .prop_map(|(at, other, from)| Change::Cross(at, other, from)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change, seeds: &[Vec<u8>]) {
    if bytes.is_empty() {
        return;
    }
    match change {
        Change::Byte(at, byte) => *at.get_mut(bytes) = *byte,
        Change::Bit(at, bit) => *at.get_mut(bytes) ^= 1 << bit,
        Change::Number(at, len, number) => {
            let at = at.index(bytes.len());
            let end = (at + usize::from(*len)).min(bytes.len()).min(at + 8);
            bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        }
        Change::Remove(at, len) => {
            let at = at.index(bytes.len());
            bytes.drain(at..(at + usize::from(*len)).min(bytes.len()));
        }
        Change::Repeat(at, len) => {
            let at = at.index(bytes.len());
            let copied = bytes[at..(at + usize::from(*len)).min(bytes.len())].to_vec();
            bytes.splice(at..at, copied);
        }
        Change::Insert(at, new) => {
            let at = at.index(bytes.len());
            bytes.splice(at..at, new.iter().copied());
        }
        Change::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        Change::Cross(at, other, from) => {
            let other = other.get(seeds);
            if !other.is_empty() {
                bytes.truncate(at.index(bytes.len()));
                bytes.extend_from_slice(&other[from.index(other.len())..]);
            }
        }
    }
}

fn smoke(target: &Target, cases: u32) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    seeds.iter().for_each(|seed| (target.run)(seed));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let inputs = (any::<Index>(), prop::collection::vec(change(), 0..6));
    let outcome = runner.run(&inputs, |(seed, changes)| {
        let mut bytes = seed.get(&seeds).clone();
        changes.iter().for_each(|change| apply(&mut bytes, change, &seeds));
        (target.run)(&bytes);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("the target {}: {error}", target.name);
    }
}

/// The changes neither always spare what opening reads nor always hit it.
#[test]
fn some_changed_directories_are_opened_and_some_are_refused() {
    let mut counts = [0, 0];
    for nth in 0..200u8 {
        let change = [nth, nth / 3, nth.wrapping_mul(37), nth.wrapping_mul(91), 1, 40, 0, nth | 1];
        let modes = [nth & 1, nth & 2];
        match open_changed(&[&modes[..], &change].concat()) {
            Outcome::Ignored => panic!("the input is long enough"),
            Outcome::Refused => counts[0] += 1,
            Outcome::Opened => counts[1] += 1,
        }
    }
    assert!(counts.iter().all(|&count| count >= 20), "refused, opened: {counts:?}");
}

/// A target that finds what a changed input holds fails.
#[test]
#[should_panic = "the target canary"]
fn a_target_that_is_wrong_fails() {
    let seeds = || vec![b"0123456789".to_vec()];
    let run = |bytes: &[u8]| assert!(bytes.len() == 10 && bytes.starts_with(b"01"), "it was changed");
    smoke(&Target { name: "canary", run, seeds }, 200);
}

fn cases(default: u32) -> u32 {
    std::env::var("FULGURITE_FUZZ_CASES").map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn decoders() {
    for target in TARGETS.iter().filter(|target| target.name != "directory") {
        smoke(target, cases(3_000));
    }
}

#[test]
fn directories() {
    smoke(&fulgurite_fuzz::target("directory"), cases(1_000));
}
