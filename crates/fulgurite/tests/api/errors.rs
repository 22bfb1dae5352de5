//! The contents of errors: where damage is, what a transaction conflicted with, and what to do.

use crate::common;

use std::path::{Path, PathBuf};

use crate::common::PATH;
use fulgurite::env::SimEnv;
use fulgurite::{Contended, Csn, CsnRange, Damage, Database, Error, ErrorKind, Isolation, Options, Table};

/// Bytes of a chunk of a value.
const CHUNK_BYTES: usize = 508 * 1024;

/// A value of some chunks, each of which begins with a label, in a database with another value before it.
fn marked_value(chunks: usize) -> Vec<u8> {
    let mut value = vec![7; chunks * CHUNK_BYTES - 1000];
    for chunk in 0..chunks {
        value[chunk * CHUNK_BYTES..][..8].copy_from_slice(&mark(chunk));
    }
    value
}

fn mark(chunk: usize) -> [u8; 8] {
    *format!("c{chunk:07}").as_bytes().first_chunk().expect("eight bytes")
}

/// The segment with a chunk's bytes, and their offset in it.
fn find(env: &SimEnv, chunk: usize) -> (PathBuf, u64) {
    for (path, _) in env.list_raw() {
        let bytes = env.read_raw(&path).unwrap();
        if let Some(at) = bytes.windows(8).position(|window| window == mark(chunk)) {
            return (path, at as u64);
        }
    }
    panic!("chunk {chunk} is nowhere")
}

fn damage_of<T: std::fmt::Debug>(outcome: fulgurite::Result<T>) -> Box<Damage> {
    match outcome {
        Err(error @ Error::Damaged(_)) => {
            assert_eq!(error.kind(), ErrorKind::Restore);
            let Error::Damaged(damage) = error else { unreachable!() };
            damage
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn damage_in_a_long_value_names_the_segment_that_is_damaged() {
    const CHUNKS: usize = 14;
    let env = SimEnv::new(1);
    let db = common::open(env.clone()).unwrap();
    let table = db.table("films").unwrap();
    table.put("before", vec![1; 100_000]).unwrap();
    let csn = table.put("film", marked_value(CHUNKS)).unwrap().csn;
    db.checkpoint().unwrap();
    let mut segments = Vec::new();
    for chunk in 0..CHUNKS {
        let (path, at) = find(&env, chunk);
        for offset in [at, at + CHUNK_BYTES as u64 / 2] {
            let flip = |byte: &mut u8| *byte ^= 4;
            env.corrupt(&path, offset, flip).unwrap();
            let damage = damage_of(table.get("film"));
            env.corrupt(&path, offset, flip).unwrap();
            assert_eq!(damage.path.as_ref(), Some(&path), "chunk {chunk}: {damage}");
            let begin = damage.offset.expect("it is known where the chunk begins");
            assert!(begin <= offset && offset < begin + CHUNK_BYTES as u64, "chunk {chunk}: {damage}");
            assert_eq!(damage.key.as_deref(), Some(b"film".as_slice()));
            assert_eq!(damage.table.as_deref(), Some("films"));
            assert_eq!(damage.csns, Some(CsnRange { first: csn, last: csn }));
            let text = Error::Damaged(damage).to_string();
            assert!(text.contains(&path.display().to_string()) && text.contains("\"film\""), "{text}");
        }
        segments.push(path);
    }
    segments.dedup();
    assert!(segments.len() > 2, "the value has to be in several segments: {segments:?}");
    assert!(table.get("film").unwrap().is_some_and(|value| value == marked_value(CHUNKS)));
}

#[test]
fn damage_in_a_value_of_the_commit_stream_names_file_and_offset() {
    let env = SimEnv::new(1);
    let db = common::open(env.clone()).unwrap();
    let table = db.table("t").unwrap();
    let mut value = vec![7; 3000];
    value[..8].copy_from_slice(&mark(0));
    let csn = table.put("k", value).unwrap().csn;
    table.put("after", "v").unwrap();
    db.checkpoint().unwrap();
    drop(table);
    db.close().unwrap();
    // Now the value is on the disk only.
    let db = common::open(env.clone()).unwrap();
    let table = db.table("t").unwrap();
    let (path, at) = find(&env, 0);
    env.corrupt(&path, at + 100, |byte| *byte ^= 1).unwrap();
    let damage = damage_of(table.get("k"));
    assert_eq!((damage.path, damage.offset), (Some(path), Some(at)));
    assert_eq!(damage.csns, Some(CsnRange { first: csn, last: csn }));
    assert_eq!(damage.key.as_deref(), Some(b"k".as_slice()));
}

#[test]
fn damage_that_stops_an_open_names_file_and_commits() {
    let env = SimEnv::new(1);
    let db = common::open(env.clone()).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..200u32 {
        table.put(n.to_be_bytes(), mark(n as usize)).unwrap();
    }
    let env = env.crash(fulgurite::env::sim::CrashKind::PowerCut, 1);
    drop((db, table));
    let (path, at) = find(&env, 100);
    env.corrupt(&path, at, |byte| *byte ^= 1).unwrap();
    let damage = damage_of(common::open(env.clone()));
    assert_eq!(damage.path, Some(path));
    let offset = damage.offset.expect("the group's offset is known");
    assert!(offset <= at && at < offset + 4096, "{damage}");
    let csns = damage.csns.expect("the durable mark after it proves them");
    assert!(csns.first.0 <= 102 && csns.last.0 >= 200, "{damage}");

    env.remove_raw(&Path::new(PATH).join("SUPERBLOCK")).unwrap();
    let damage = damage_of(common::open(env));
    assert_eq!(damage.path, Some(Path::new(PATH).join("SUPERBLOCK")));
}

fn one_table() -> (Database, Table) {
    let db = common::open(SimEnv::new(1)).unwrap();
    let table = db.table("accounts").unwrap();
    table.put("a", "1").unwrap();
    (db, table)
}

#[test]
fn a_conflict_says_on_which_key_and_against_which_commit() {
    let (db, table) = one_table();
    let mut txn = db.begin();
    txn.get(&table, "a").unwrap();
    txn.put(&table, "a", "2").unwrap();
    let won = table.put("a", [0xff, 0]).unwrap().csn;
    let Err(Error::Conflict(conflict)) = txn.commit() else { panic!("it lost") };
    assert_eq!(&*conflict.table, "accounts");
    assert_eq!((&conflict.on, conflict.csn), (&Contended::Key((*b"a").into()), won));
    let error = Error::Conflict(conflict);
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert!(error.to_string().contains("the key \"a\" of table `accounts`"), "{error}");

    let mut txn = db.begin_with(Isolation::Serializable);
    assert_eq!(txn.range(&table, "a".."c").unwrap().count(), 1);
    txn.put(&table, "z", "1").unwrap();
    table.put("b", "1").unwrap();
    let Err(Error::Conflict(conflict)) = txn.commit() else { panic!("it lost") };
    let Contended::Range { start, end } = &conflict.on else { panic!("{conflict:?}") };
    let bytes = |key: &str| Box::<[u8]>::from(key.as_bytes());
    assert_eq!(start, &std::ops::Bound::Included(bytes("a")));
    assert_eq!(end, &std::ops::Bound::Excluded(bytes("c")));
    assert!(conflict.to_string().contains("[\"a\", \"c\")"), "{conflict}");

    let gave_up = db.transact(|txn| {
        txn.get(&table, "a")?;
        table.put("a", "mine")?;
        txn.put(&table, "a", "never")
    });
    let Err(Error::TooManyConflicts { attempts: 101, last }) = gave_up else { panic!("{gave_up:?}") };
    assert_eq!(last.on, Contended::Key((*b"a").into()));
}

#[test]
fn a_range_of_one_commit_names_it_once() {
    let range = |first, last| CsnRange { first: Csn(first), last: Csn(last) }.to_string();
    assert_eq!((range(6, 6), range(6, 7)), ("commit 6".into(), "commits 6 to 7".into()));
}

#[test]
fn an_insert_that_finds_its_key_says_which() {
    let (_db, table) = one_table();
    let Err(Error::KeyExists { table, key }) = table.insert("a", "2") else { panic!("it is there") };
    assert_eq!((&*table, &*key), ("accounts", b"a".as_slice()));
}

/// A wrong call is not of the kind `Environment`.
#[test]
fn usage_errors_are_of_kind_request() {
    let missing =
        Database::open_with(SimEnv::new(1), PATH, Options { create: false, ..common::options() }, |_| {});
    let (db, table) = one_table();
    let (other, _) = one_table();
    let mut foreign = other.begin();
    let errors = [
        missing.err(),
        foreign.put(&table, "k", "v").err(),
        table.put(vec![0; 1 << 20], "v").err(),
        db.wait_durable(Csn(1 << 40)).err(),
        db.create_table("accounts").err(),
        db.open_table("none").err(),
        Options { leaf_bytes: 1, ..common::options() }.validate().err(),
    ];
    for error in errors {
        let error = error.expect("none of these can be served");
        assert_eq!(error.kind(), ErrorKind::Request, "{error}");
    }
}
