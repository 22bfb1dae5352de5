//! Mapped files: what a power cut leaves of stores that were written back, fenced, or neither.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fulgurite_env::sim::CrashKind::{self, Kill, OsCrash, PowerCut};
use fulgurite_env::sim::is_crashed;
use fulgurite_env::{
    Env, LINE_BYTES, MAPPED_BYTES, MappedFile, MemoryMedium, OpenOptions, SimEnv, WORD_BYTES,
};
use proptest::prelude::*;

use super::SEEDS;

fn path() -> &'static Path {
    Path::new("/memory")
}

fn mapped(bytes: usize) -> (Arc<SimEnv>, Arc<dyn MappedFile>) {
    let sim = SimEnv::new(1);
    let file = sim.disk().create_mapped(path(), bytes as u64).expect("create");
    (sim, file)
}

/// Stores by address, as the users of the file do.
fn store(file: &dyn MappedFile, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= file.len());
    // SAFETY: the range is within the file, and the test has no other thread that accesses it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), file.as_ptr().add(offset), bytes.len()) };
}

/// The numbers of some words after a crash, over many seeds.
fn outcomes(sim: &SimEnv, kind: CrashKind, offsets: &[usize]) -> BTreeSet<Vec<u64>> {
    let words = |seed| {
        let after = sim.crash(kind, seed);
        let file = after.disk().open_mapped(path(), OpenOptions::Read).expect("the file is there");
        offsets.iter().map(|offset| file.load_word(*offset)).collect()
    };
    (0..SEEDS).map(words).collect()
}

#[test]
fn what_was_written_back_and_fenced_survives_and_the_rest_in_any_part() {
    let (sim, file) = mapped(MAPPED_BYTES);
    store(&*file, 0, &[1; 3 * LINE_BYTES]);
    file.write_back(0..LINE_BYTES).expect("write back");
    file.fence().expect("fence");
    file.write_back(LINE_BYTES..LINE_BYTES + 1).expect("write back, without a fence");
    let one = u64::from_le_bytes([1; 8]);
    let fenced = outcomes(&sim, PowerCut, &[0, LINE_BYTES - WORD_BYTES]);
    assert_eq!(fenced, BTreeSet::from([vec![one, one]]));
    for line in [1, 2] {
        // Also two words of one line.
        let words = [line * LINE_BYTES, line * LINE_BYTES + WORD_BYTES];
        for kind in [PowerCut, OsCrash] {
            assert_eq!(outcomes(&sim, kind, &words).len(), 4, "each is old or new");
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_and_makes_nothing_durable() {
    let (sim, file) = mapped(MAPPED_BYTES);
    store(&*file, 0, &[1; 16]);
    file.write_back(0..16).expect("write back");
    let one = u64::from_le_bytes([1; 8]);
    assert_eq!(outcomes(&sim, Kill, &[0, 8]), BTreeSet::from([vec![one, one]]));
    let killed = sim.crash(Kill, 1);
    assert_eq!(outcomes(&killed, PowerCut, &[0]).len(), 2);
    // The thread that begins to write the same line back in the next process does it anew.
    let again = killed.disk().open_mapped(path(), OpenOptions::Write).expect("open");
    again.fence().expect("fence");
    assert_eq!(outcomes(&killed, PowerCut, &[0]).len(), 2);
    again.write_back(0..8).expect("write back");
    again.fence().expect("fence");
    assert_eq!(outcomes(&killed, PowerCut, &[0]), BTreeSet::from([vec![one]]));
    // The image has memory of its own.
    store(&*file, 0, &[2; 8]);
    assert_eq!(again.load_word(0), one);
}

#[test]
fn a_word_may_have_any_value_since_it_was_durable() {
    let (sim, file) = mapped(MAPPED_BYTES);
    file.store_word(8, 1);
    file.write_back(8..16).expect("write back");
    file.fence().expect("fence");
    for word in 2..5 {
        file.store_word(8, word);
    }
    assert_eq!(outcomes(&sim, PowerCut, &[8]), (1..5).map(|word| vec![word]).collect());
    // Of stores by address only the last one before the line was written back is known.
    store(&*file, 8, &9_u64.to_le_bytes());
    file.write_back(8..16).expect("write back");
    file.store_word(8, 10);
    assert!(outcomes(&sim, PowerCut, &[8]).contains(&vec![9]));
    file.fence().expect("fence");
    assert_eq!(outcomes(&sim, PowerCut, &[8]), BTreeSet::from([vec![9], vec![10]]));
}

#[test]
fn a_fence_is_for_its_own_thread_and_an_older_one_undoes_nothing() {
    let (sim, file) = mapped(MAPPED_BYTES);
    file.store_word(0, 1);
    file.write_back(0..8).expect("write back");
    let other = Arc::clone(&file);
    let fence = Box::new(move || other.fence().expect("fence"));
    assert!(sim.spawn("other", fence).expect("spawn").join());
    assert_eq!(outcomes(&sim, PowerCut, &[0]).len(), 2, "no thread has waited for it");
    let other = Arc::clone(&file);
    let newer = move || {
        other.store_word(0, 2);
        other.write_back(0..8).expect("write back");
        other.fence().expect("fence");
    };
    assert!(sim.spawn("newer", Box::new(newer)).expect("spawn").join());
    file.fence().expect("fence");
    assert_eq!(outcomes(&sim, PowerCut, &[0]), BTreeSet::from([vec![2]]));
}

#[test]
fn memory_of_the_machine_survives_the_process_only() {
    let (sim, _) = mapped(MAPPED_BYTES);
    sim.faults().mapped(Some(MemoryMedium::Volatile));
    let file = sim.disk().create_mapped(Path::new("/volatile"), MAPPED_BYTES as u64).expect("create");
    assert_eq!(file.medium(), MemoryMedium::Volatile);
    file.store_word(0, 7);
    let open = |after: &SimEnv| after.disk().open_mapped(Path::new("/volatile"), OpenOptions::Write);
    for seed in 0..20 {
        assert_eq!(open(&sim.crash(Kill, seed)).expect("open").load_word(0), 7);
        for kind in [OsCrash, PowerCut] {
            let after = sim.crash(kind, seed);
            assert_eq!(open(&after).expect_err("it is gone").kind(), ErrorKind::NotFound);
            after.disk().open_mapped(path(), OpenOptions::Write).expect("the other one is not");
        }
    }
    sim.faults().mapped(None);
    let refused = sim.disk().create_mapped(Path::new("/other"), MAPPED_BYTES as u64);
    assert_eq!(refused.expect_err("no such memory").kind(), ErrorKind::Unsupported);
}

#[test]
fn each_write_back_and_each_fence_is_a_point_to_crash_at() {
    for at in 1..=3 {
        let (sim, file) = mapped(MAPPED_BYTES);
        sim.faults().crash_at(sim.faults().op_count() + at);
        file.store_word(0, 1);
        let steps = [file.write_back(0..8), file.fence(), file.write_back(64..72)];
        let first = steps.iter().position(Result::is_err).expect("it crashed");
        assert_eq!(first as u64 + 1, at);
        assert!(steps[first..].iter().all(|step| is_crashed(step.as_ref().expect_err("crashed"))));
        // A crashed machine stores nothing.
        store(&*file, 0, &[5; 8]);
        file.store_word(8, 5);
        assert!(outcomes(&sim, PowerCut, &[8]).iter().all(|words| words[0] == 0));
        let expected = if at == 3 { vec![vec![1]] } else { vec![vec![0], vec![1]] };
        assert_eq!(outcomes(&sim, PowerCut, &[0]), expected.into_iter().collect());
        assert_eq!(outcomes(&sim, Kill, &[0]), BTreeSet::from([vec![1]]));
    }
}

#[test]
fn write_backs_for_nothing_are_counted() {
    let (sim, file) = mapped(MAPPED_BYTES);
    file.store_word(0, 1);
    file.write_back(0..8).expect("write back");
    assert_eq!(sim.faults().unneeded_write_backs(), 0);
    file.write_back(0..LINE_BYTES + 1).expect("the first line again, and a clean one");
    assert_eq!(sim.faults().unneeded_write_backs(), 2);
    file.fence().expect("fence");
    file.write_back(0..8).expect("write back");
    assert_eq!(sim.faults().unneeded_write_backs(), 3);
    file.store_word(16, 1);
    file.write_back(0..8).expect("the same line, but it has changed");
    assert_eq!(sim.faults().unneeded_write_backs(), 3);
}

#[test]
fn tests_read_and_damage_it_and_a_copy_is_a_file_of_its_own() {
    let (sim, file) = mapped(2 * MAPPED_BYTES);
    store(&*file, MAPPED_BYTES, b"bytes");
    assert_eq!(sim.read_raw(path()).expect("read")[MAPPED_BYTES..][..5], *b"bytes");
    assert_eq!(sim.read_durable(path()).expect("read")[MAPPED_BYTES..][..5], [0; 5]);
    sim.corrupt(path(), MAPPED_BYTES as u64, |byte| *byte = b'B').expect("corrupt");
    assert_eq!(sim.read_raw(path()).expect("read")[MAPPED_BYTES..][..5], *b"Bytes");
    let copy = Path::new("/copy");
    sim.write_raw(copy, &sim.read_raw(path()).expect("read")).expect("write");
    let copied = sim.disk().open_mapped(copy, OpenOptions::Write).expect("open");
    copied.store_word(MAPPED_BYTES, 0);
    assert_eq!(file.load_word(MAPPED_BYTES).to_le_bytes()[..5], *b"Bytes");
}

#[derive(Clone, Debug)]
enum Step {
    Store(usize, u64),
    StoreByAddress(usize, u64),
    WriteBack(usize),
    Fence,
}

fn step() -> impl Strategy<Value = Step> {
    let word = 0..20_usize;
    prop_oneof![
        (word.clone(), 1..1000_u64).prop_map(|(at, word)| Step::Store(at, word)),
        (word.clone(), 1..1000_u64).prop_map(|(at, word)| Step::StoreByAddress(at, word)),
        word.prop_map(Step::WriteBack),
        Just(Step::Fence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// After a power cut each word has its durable value or a later one; after a kill, its last one.
    #[test]
    fn no_word_has_a_value_that_it_cannot_have(steps in prop::collection::vec(step(), 1..40), seed in 0..1000_u64) {
        const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
        let (sim, file) = mapped(MAPPED_BYTES);
        // Of each word the values since it was durable, that first; and how many of them a write-back has covered.
        let mut words: Vec<(Vec<u64>, usize)> = vec![(vec![0], 1); 24];
        for step in steps {
            match step {
                Step::Store(at, word) => {
                    file.store_word(at * WORD_BYTES, word);
                    words[at].0.push(word);
                }
                Step::StoreByAddress(at, word) => {
                    store(&*file, at * WORD_BYTES, &word.to_le_bytes());
                    words[at].0.push(word);
                }
                Step::WriteBack(at) => {
                    file.write_back(at * WORD_BYTES..(at + 1) * WORD_BYTES).expect("write back");
                    let line = at / LINE_WORDS * LINE_WORDS;
                    words[line..line + LINE_WORDS].iter_mut().for_each(|(values, covered)| *covered = values.len());
                }
                Step::Fence => {
                    file.fence().expect("fence");
                    for (values, covered) in &mut words {
                        values.drain(..*covered - 1);
                        *covered = 1;
                    }
                }
            }
        }
        for (kind, from_last) in [(PowerCut, false), (OsCrash, false), (Kill, true)] {
            for seed in seed..seed + 8 {
                let after = sim.crash(kind, seed);
                let file = after.disk().open_mapped(path(), OpenOptions::Read).expect("open");
                for (at, (values, _)) in words.iter().enumerate() {
                    let word = file.load_word(at * WORD_BYTES);
                    let allowed = if from_last { &values[values.len() - 1..] } else { &values[..] };
                    prop_assert!(allowed.contains(&word), "{at}: {word}, allowed {allowed:?} after {kind:?}");
                }
            }
        }
    }
}
