//! The read set of a transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_types::hash_key;

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

/// Reads keys until a get is refused; returns how many were not.
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
    // The transaction continues: it may read the same keys again, and write what fits.
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

/// Reads leave less of the budget for writes, and writes for reads.
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

/// Ranges count, too. A range that is inside others, or joins them, does not count again.
#[test]
fn ranges_that_are_read_count_in_the_budget() {
    let env = fulgurite_env::SimEnv::new(1);
    let options = crate::Options { transaction_bytes_max: 1 << 20, background: false, ..Default::default() };
    let db = open(&env, options);
    let table = db.table("t").unwrap();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let txn = db.begin_with(isolation);
        let read = |from: u32, to: u32| {
            let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
            txn.range(&table, from.as_slice()..&to).map(|mut entries| assert!(entries.next().is_none()))
        };
        // Adjoining and nested ranges are one range.
        (0..100_000).for_each(|n| read(n, n + 1).unwrap());
        (0..100_000).for_each(|n| read(n / 2, n).unwrap());
        let fit = (50_000..1_000_000).take_while(|n| read(4 * n, 4 * n + 3).is_ok()).count() as u32;
        assert!((1_000..20_000).contains(&fit), "{fit}");
        // Filling the gaps joins the ranges, and frees their memory.
        read(0, 4 * (50_000 + fit)).unwrap();
        (0..1_000).for_each(|n| read(1_000_000_000 + 2 * n, 1_000_000_001 + 2 * n).unwrap());
    }
}

/// The CPU time of this thread, whatever else the machine does.
fn cpu_ns() -> i128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// A transaction that reads a short range and writes a key of it, again and again.
#[test]
fn the_cost_of_a_write_does_not_grow_with_the_ranges_that_were_read() {
    let env = fulgurite_env::SimEnv::new(1);
    let db = open(&env, crate::Options { background: false, ..Default::default() });
    let table = db.table("t").unwrap();
    let other = db.table("other").unwrap();
    let time = |count: u32| {
        let start = cpu_ns();
        let mut txn = db.begin();
        for n in 0..count {
            let key = (2 * n).to_be_bytes();
            assert!(txn.prefix(&table, key).unwrap().next().is_none());
            txn.put(&table, key, b"").unwrap();
            txn.put(&other, key, b"").unwrap();
        }
        txn.rollback();
        (cpu_ns() - start) / i128::from(count)
    };
    let best = |count| (0..5).map(|_| time(count)).min().unwrap();
    let (few, many) = (best(1_000), best(20_000));
    assert!(many < 6 * few, "{few} ns each of 1,000, {many} ns each of 20,000");
}

#[test]
fn savepoints_count_in_the_budget_where_something_is_written_between() {
    let env = fulgurite_env::SimEnv::new(1);
    let options = crate::Options { transaction_bytes_max: 1 << 20, background: false, ..Default::default() };
    let db = open(&env, options);
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    let first = txn.savepoint();
    for _ in 0..1_000_000 {
        let _ = txn.savepoint();
    }
    let fit = |savepoints: bool| {
        let mut txn = db.begin();
        let _ = txn.savepoint();
        let put = |n: &u32| {
            if savepoints {
                let _ = txn.savepoint();
            }
            txn.put(&table, n.to_be_bytes(), b"").is_ok()
        };
        (0..1_000_000).take_while(put).count()
    };
    let (without, with) = (fit(false), fit(true));
    assert!(with < without && with > without / 2, "{without} puts without savepoints, {with} with");
    txn.put(&table, b"k", b"v").unwrap();
    txn.rollback_to(first).unwrap();
    assert!(txn.get(&table, b"k").unwrap().is_none());
}
