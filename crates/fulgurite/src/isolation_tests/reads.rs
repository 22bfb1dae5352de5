//! What a transaction remembers of its reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_base::hash_key;

use super::support::*;
use crate::catalog::TableState;
use crate::read_keys::ReadKeys;
use crate::write_set::Budget;
use crate::{Error, Isolation};

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 16
}

/// Keys of all lengths, many of them twice, of two tables, against a map.
#[test]
fn read_keys_are_a_map_of_what_was_noted() {
    let (db, table) = one_table();
    let other = db.table("other").unwrap();
    let tables: [&Arc<TableState>; 2] = [&table.state, &other.state];
    let mut seed = 7;
    for keys in [3u64, 9, 60, 5000] {
        let mut model: BTreeMap<(u32, Vec<u8>), bool> = BTreeMap::new();
        let mut reads = ReadKeys::default();
        for _ in 0..2 * keys {
            let state = tables[random(&mut seed) as usize % 2];
            let n = random(&mut seed) % keys;
            let len = [0, 1, 8, 200, 65_535][if n % 997 == 1 { 4 } else { n as usize % 4 }];
            let mut key = n.to_be_bytes().repeat(len / 8 + 1);
            key.truncate(len);
            let is_validated = random(&mut seed).is_multiple_of(3);
            let hash = hash_key(state.id, &key);
            assert_eq!(reads.contains(state.id, &key, hash), model.contains_key(&(state.id.0, key.clone())));
            reads.note(state, &key, hash, is_validated, Budget::new(usize::MAX)).unwrap();
            *model.entry((state.id.0, key)).or_default() |= is_validated;
        }
        let check = |reads: &ReadKeys, model: &BTreeMap<(u32, Vec<u8>), bool>| {
            let noted: Vec<_> = reads.iter().collect();
            assert_eq!(noted.len(), model.len());
            for read in noted {
                assert_eq!(model.get(&(read.table.id.0, read.key.to_vec())), Some(&read.is_validated));
                assert!(reads.contains(read.table.id, read.key, read.hash()));
            }
        };
        check(&reads, &model);
        let selected = |id: u32, key: &[u8]| id == tables[0].id.0 && key.len() > 1;
        reads.validate_if(|id, key| selected(id.0, key));
        for ((id, key), is_validated) in &mut model {
            *is_validated |= selected(*id, key);
        }
        check(&reads, &model);
    }
}

/// Gets until they are refused; how many were not.
fn gets_that_fit(isolation: Isolation, bytes_max: usize) -> u64 {
    let env = fulgurite_env::SimEnv::new(1);
    let options =
        crate::Options { transaction_bytes_max: bytes_max, background: false, ..Default::default() };
    let db = open(&env, options);
    let table = db.table("t").unwrap();
    table.put(b"written", b"before").unwrap();
    let mut txn = db.begin_with(isolation);
    let refused = (0..10_000_000u64).find_map(|n| Some((n, txn.get(&table, n.to_be_bytes()).err()?)));
    let (fit, error) = refused.expect("they do not all fit");
    let Error::TooLarge { bytes, max } = error else { panic!("{error}") };
    assert!(bytes > max && max == bytes_max, "{bytes} of {max}");
    // It goes on: what it has read it may read again, and what fits it may write.
    assert!(txn.get(&table, 0u64.to_be_bytes()).unwrap().is_none());
    let error = txn.range(&table, b"a".as_slice()..).map(drop);
    assert!(matches!(error, Ok(()) | Err(Error::TooLarge { .. })), "{error:?}");
    assert!(matches!(txn.put(&table, b"k", vec![0; bytes_max / 2]), Err(Error::TooLarge { .. }) | Ok(())));
    match txn.commit() {
        Ok(_) => fit,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn reads_count_in_a_transactions_budget_and_take_little_of_it() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let bytes_max = 2 << 20;
        let fit = gets_that_fit(isolation, bytes_max);
        let each = bytes_max as u64 / fit;
        assert!((12..=32).contains(&each), "{isolation:?}: {fit} reads of 8 bytes fit, each takes {each}");
    }
}

/// What was read leaves less for what is written, and the other way.
#[test]
fn reads_and_writes_share_one_budget() {
    let env = fulgurite_env::SimEnv::new(1);
    let bytes_max = 1 << 20;
    let options =
        crate::Options { transaction_bytes_max: bytes_max, background: false, ..Default::default() };
    let db = open(&env, options);
    let table = db.table("t").unwrap();
    let fit = |reads: u64| {
        let mut txn = db.begin();
        (0..reads).for_each(|n| drop(txn.get(&table, n.to_be_bytes()).unwrap()));
        (0..1_000_000u64).take_while(|n| txn.put(&table, n.to_be_bytes(), b"").is_ok()).count()
    };
    let (alone, beside) = (fit(0), fit(20_000));
    assert!(alone - beside > 1_000, "{alone} alone, {beside} beside reads");
    let mut txn = db.begin();
    (0..alone as u64).for_each(|n| txn.put(&table, n.to_be_bytes(), b"").unwrap());
    let many = |n: u64| txn.get(&table, (1 << 32 | n).to_be_bytes()).is_err();
    assert!((0..1000).any(many), "nothing is left for reads");
    assert!(txn.get(&table, 0u64.to_be_bytes()).unwrap().is_some(), "own writes are no reads");
}

/// Ranges count too; the same one again does not.
#[test]
fn ranges_that_are_read_count_in_the_budget() {
    let env = fulgurite_env::SimEnv::new(1);
    let options = crate::Options { transaction_bytes_max: 1 << 20, background: false, ..Default::default() };
    let db = open(&env, options);
    let table = db.table("t").unwrap();
    let txn = db.begin();
    for _ in 0..100_000 {
        assert!(txn.range(&table, b"a".as_slice()..).unwrap().next().is_none());
    }
    let fits = |n: &u32| txn.range(&table, n.to_be_bytes().as_slice()..).is_ok();
    let fit = (0..1_000_000u32).take_while(fits).count();
    assert!((1_000..20_000).contains(&fit), "{fit}");
}
