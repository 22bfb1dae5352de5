//! When versions are in order; and that a merge takes all of them in order, linked or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_types::{Csn, Lsn, TableId, hash_key};
use proptest::prelude::*;

use super::linking::{AT_ONCE_MAX, MUCH};
use super::{Block, BlockBuilder, BlockOp, Memtables};
use crate::base::MergeSource;
use crate::memory::IndexMemory;
use crate::version::VersionFlags;

const TABLE: TableId = TableId(1);

fn block<'k>(keys: impl IntoIterator<Item = &'k [u8]>, payload: &[u8]) -> Block {
    let mut builder = BlockBuilder::new(TABLE, 0, 0);
    for key in keys {
        builder.push(BlockOp {
            key,
            hash: hash_key(TABLE, key),
            flags: VersionFlags(0),
            expires_at_ms: 0,
            payload,
            value_offset: None,
            checksum: 0,
        });
    }
    builder.finish()
}

/// Writes a key each time, from commit `from` on.
fn write(memtables: &Memtables, from: u64, count: u64) {
    for csn in from..from + count {
        let key = (csn * 7919 % 100_000).to_be_bytes();
        memtables.apply(block([&key[..]], b"value"), Csn(csn), Lsn::NULL);
    }
}

fn unlinked(memtables: &Memtables) -> u64 {
    memtables.list.with(|list| list.newest_first().iter().map(|memtable| memtable.unlinked()).sum())
}

/// The keys of the oldest memtable, each with the CSNs of its versions, as a merge takes them.
fn merged(memtables: &Memtables) -> Vec<(Vec<u8>, Vec<u64>)> {
    let memtable = memtables.oldest_immutable().expect("it is frozen");
    let mut source = memtable.merge_source(1 << 20);
    let mut taken = Vec::new();
    while let Some(key) = source.peek_key() {
        let key = key.to_vec();
        let mut versions = Vec::new();
        source.take_versions(&mut versions);
        assert!(versions.iter().all(|version| *version.payload == *b"value"));
        taken.push((key, versions.iter().map(|version| version.csn.0).collect()));
    }
    assert_eq!(source.taken(), memtable.entries());
    taken
}

#[test]
fn a_table_is_linked_ahead_while_it_is_walked() {
    let memory = Arc::new(IndexMemory::default());
    let memtables = Memtables::counted_in(Arc::clone(&memory));
    write(&memtables, 1, MUCH + 1);
    memtables.link_much();
    assert!(!memory.has_much_to_link() && unlinked(&memtables) > MUCH, "no walk has come");
    assert!(!memtables.try_order(), "a walk that must not wait is refused");
    assert!(memory.has_much_to_link(), "... and the next one is to find them in order");
    memtables.link_ahead();
    assert!(!memory.has_much_to_link() && unlinked(&memtables) == 0 && memtables.try_order());
    write(&memtables, 20_000, MUCH);
    assert!(memory.has_much_to_link());
    assert!(memtables.freeze(Csn(30_000)));
    memtables.link_much();
    assert!(unlinked(&memtables) >= MUCH, "the oldest one is being merged");
    memtables.order();
    assert!(!memory.has_much_to_link());
    for boundary in 31_001..31_020 {
        memtables.freeze(Csn(boundary));
    }
    write(&memtables, 40_000, MUCH + 1);
    memtables.link_much();
    assert!(!memory.has_much_to_link() && unlinked(&memtables) > MUCH, "no walk has come for long");
    drop(memtables);
    assert!(!memory.has_much_to_link());
    assert_eq!(memory.memtable_bytes(), 0);
}

/// In a first memtable all prefixes are those of what the keys share, and versions of a key are far apart.
#[test]
fn a_merge_of_a_first_memtable_sorts_keys_that_begin_alike() {
    let memtables = Memtables::new();
    let mut expected = BTreeMap::<Vec<u8>, Vec<u64>>::new();
    for csn in 1..=3_000u64 {
        let key = format!("a beginning of many bytes:{}:its end", csn * 7919 % 997).into_bytes();
        memtables.apply(block([&key[..]], b"value"), Csn(csn), Lsn::NULL);
        expected.entry(key).or_default().insert(0, csn);
    }
    memtables.freeze(Csn(3_000));
    assert_eq!(merged(&memtables), expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn what_is_only_written_is_linked_ahead_once_it_is_very_much() {
    let memory = Arc::new(IndexMemory::default());
    let memtables = Memtables::counted_in(Arc::clone(&memory));
    let keys: Vec<[u8; 8]> = (0..64 * MUCH).map(|key| key.to_be_bytes()).collect();
    memtables.apply(block(keys.iter().map(|key| &key[..]), b""), Csn(1), Lsn::NULL);
    assert!(memory.has_much_to_link());
    memtables.link_much();
    assert_eq!(unlinked(&memtables), 64 * MUCH, "the only one is the oldest one, too");
    memtables.link_ahead();
    assert!(!memory.has_much_to_link() && unlinked(&memtables) == 0);
}

#[test]
fn a_memtable_that_is_merged_counts_its_order_meanwhile() {
    let memory = Arc::new(IndexMemory::default());
    let memtables = Memtables::counted_in(Arc::clone(&memory));
    write(&memtables, 1, 1_000);
    memtables.freeze(Csn(1_000));
    let before = memory.memtable_bytes();
    let memtable = memtables.oldest_immutable().expect("it is frozen");
    let source = memtable.merge_source(1 << 20);
    assert!(memory.memtable_bytes() >= before + 16 * 1_000);
    drop(source);
    assert_eq!(memory.memtable_bytes(), before);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Keys share beginnings of every length, those of the second memtable other ones than the first one's had.
    #[test]
    fn a_merge_takes_all_versions_in_order(
        commits in proptest::collection::vec(
            proptest::collection::btree_set((0usize..24, 0u8..6), 1..20), 0..120,
        ),
        other in 0u8..3,
        walks in proptest::collection::vec(any::<bool>(), 2),
        many in any::<bool>(),
    ) {
        let memtables = Memtables::new();
        let mut boundary = 0;
        for (round, walks) in walks.into_iter().enumerate() {
            let mut expected = BTreeMap::<Vec<u8>, Vec<u64>>::new();
            let mut csn = boundary;
            for keys in &commits {
                csn += 1;
                let fill = b'k' + other * round as u8;
                let key = |(len, end): &(usize, u8)| [&vec![fill; *len][..], &[*end]].concat();
                let keys: Vec<Vec<u8>> = keys.iter().map(key).collect();
                memtables.apply(block(keys.iter().map(|key| &key[..]), b"value"), Csn(csn), Lsn::NULL);
                for key in keys {
                    expected.entry(key).or_default().insert(0, csn);
                }
            }
            // So many that a merge sorts them itself.
            if many {
                for _ in 0..=AT_ONCE_MAX {
                    csn += 1;
                    memtables.apply(block([&b"often"[..]], b"value"), Csn(csn), Lsn::NULL);
                    expected.entry(b"often".to_vec()).or_default().insert(0, csn);
                }
            }
            if walks {
                memtables.order();
            }
            boundary = csn + 1;
            memtables.freeze(Csn(boundary));
            prop_assert_eq!(merged(&memtables), expected.into_iter().collect::<Vec<_>>());
            let memtable = memtables.oldest_immutable().expect("it is frozen");
            memtables.drop_oldest(&memtable);
        }
    }
}
