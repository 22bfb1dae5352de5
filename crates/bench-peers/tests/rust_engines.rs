//! What every engine must do, tried on each one that can be opened here.

use std::path::Path;
use std::sync::Arc;

use bench_peers::engines;
use fulgurite_bench::engine::{
    Direction, Ended, Engine, Level, Mode, Needs, Opening, Session, Store, Transaction, Verdict,
};
use fulgurite_bench::{Error, Result};
use tempfile::TempDir;

const TABLES: &[&str] = &["first", "second"];
const LEVELS: [Level; 2] = [Level::Sync, Level::Unsynced];
const TRANSACTIONS: Needs =
    Needs { transactions: true, snapshots: false, tickets: false, bounded_memory: false };

fn open(engine: &dyn Engine, dir: &TempDir, level: Level) -> Arc<dyn Store> {
    let opening = Opening { dir: dir.path(), tables: TABLES, cache_bytes: 64 << 20, level };
    engine.open(&opening).unwrap_or_else(|error| panic!("{}: {error}", engine.name()))
}

/// Runs `test` with a fresh store of each engine at each level.
fn with_each(mut test: impl FnMut(&str, &dyn Store)) {
    for engine in engines() {
        for level in LEVELS {
            if let Some(why) = engine.cannot(TRANSACTIONS, level) {
                println!("{} at {level} is left out: {why}", engine.name());
                continue;
            }
            let dir = TempDir::new().unwrap();
            let store = open(&*engine, &dir, level);
            test(&format!("{} at {level}", engine.name()), &*store);
            store.close().unwrap();
        }
    }
}

fn write(session: &mut dyn Session, mut run: impl FnMut(&mut dyn Transaction) -> Result<()>) {
    let ended = session.transact(Mode::Write, &mut |txn| run(txn).map(|()| Verdict::Commit)).unwrap();
    assert_eq!(ended, Ended::Committed);
}

fn get(session: &mut dyn Session, table: usize, key: &str) -> Option<String> {
    let mut value = b"left over".to_vec();
    let found = session.get(table, key.as_bytes(), &mut value).unwrap();
    let value = String::from_utf8(value).unwrap();
    assert!(found || value.is_empty());
    found.then_some(value)
}

fn scan(
    txn: &mut dyn Transaction,
    from: Option<&str>,
    direction: Direction,
    most: usize,
) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    txn.scan(0, from.map(str::as_bytes), direction, &mut |key, value| {
        assert_eq!(value, [b"value of ", key].concat());
        keys.push(String::from_utf8(key.to_vec()).unwrap());
        Ok(keys.len() < most)
    })?;
    Ok(keys)
}

fn put_keys(session: &mut dyn Session, keys: &[&str]) {
    write(session, |txn| {
        keys.iter().try_for_each(|key| txn.put(0, key.as_bytes(), format!("value of {key}").as_bytes()))
    });
}

#[test]
fn puts_and_deletes_are_read_in_their_table() {
    with_each(|name, store| {
        let mut session = store.session().unwrap();
        write(&mut *session, |txn| {
            txn.put(0, b"a", b"1")?;
            txn.put(1, b"a", b"2")?;
            txn.put(1, b"b", b"")?;
            txn.delete(0, b"absent")
        });
        assert_eq!(get(&mut *session, 0, "a").as_deref(), Some("1"), "{name}");
        assert_eq!(get(&mut *session, 1, "a").as_deref(), Some("2"), "{name}");
        assert_eq!(get(&mut *session, 1, "b").as_deref(), Some(""), "{name}");
        assert_eq!(get(&mut *session, 0, "b"), None, "{name}");
        write(&mut *session, |txn| {
            txn.delete(1, b"a")?;
            txn.put(0, b"a", b"3")
        });
        assert_eq!(get(&mut *session, 0, "a").as_deref(), Some("3"), "{name}");
        assert_eq!(get(&mut *session, 1, "a"), None, "{name}");
    });
}

#[test]
fn values_and_keys_may_be_long() {
    let (key, value) = (vec![b'k'; 480], vec![b'v'; 1 << 20]);
    with_each(|name, store| {
        let mut session = store.session().unwrap();
        write(&mut *session, |txn| txn.put(0, &key, &value));
        let mut found = Vec::new();
        assert!(session.get(0, &key, &mut found).unwrap() && found == value, "{name}");
        let mut entries = 0;
        let all = &mut |txn: &mut dyn Transaction| {
            txn.scan(0, None, Direction::Forward, &mut |shown_key, shown_value| {
                assert!(shown_key == key && shown_value == value, "{name}");
                entries += 1;
                Ok(true)
            })?;
            Ok(Verdict::Commit)
        };
        session.transact(Mode::Read, all).unwrap();
        assert_eq!(entries, 1, "{name}");
    });
}

#[test]
fn scans_go_both_ways_from_present_and_absent_keys() {
    let cases: &[(Option<&str>, Direction, usize, &[&str])] = &[
        (None, Direction::Forward, 99, &["b", "d", "f", "h"]),
        (None, Direction::Reverse, 99, &["h", "f", "d", "b"]),
        (Some("d"), Direction::Forward, 99, &["d", "f", "h"]),
        (Some("d"), Direction::Reverse, 99, &["d", "b"]),
        (Some("e"), Direction::Forward, 99, &["f", "h"]),
        (Some("e"), Direction::Reverse, 99, &["d", "b"]),
        (Some("a"), Direction::Forward, 99, &["b", "d", "f", "h"]),
        (Some("a"), Direction::Reverse, 99, &[]),
        (Some("i"), Direction::Forward, 99, &[]),
        (Some("i"), Direction::Reverse, 99, &["h", "f", "d", "b"]),
        (None, Direction::Forward, 2, &["b", "d"]),
        (Some("g"), Direction::Reverse, 1, &["f"]),
    ];
    with_each(|name, store| {
        let mut session = store.session().unwrap();
        put_keys(&mut *session, &["h", "b", "d", "f"]);
        for mode in [Mode::Read, Mode::Write] {
            for &(from, direction, most, expected) in cases {
                let check = &mut |txn: &mut dyn Transaction| {
                    assert_eq!(scan(txn, from, direction, most)?, expected, "{name}, {mode:?} {from:?}");
                    Ok(Verdict::Commit)
                };
                assert_eq!(session.transact(mode, check).unwrap(), Ended::Committed);
            }
        }
    });
}

#[test]
fn keys_sort_as_unsigned_bytes_and_many_are_scanned() {
    with_each(|name, store| {
        let mut session = store.session().unwrap();
        let keys: Vec<[u8; 2]> = (0..1000u16).map(|row| (row * 65).to_be_bytes()).collect();
        write(&mut *session, |txn| keys.iter().rev().try_for_each(|key| txn.put(1, key, &[7; 300])));
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut found = Vec::new();
            let all = &mut |txn: &mut dyn Transaction| {
                found.clear();
                txn.scan(1, None, direction, &mut |key, value| {
                    assert_eq!(value, [7; 300]);
                    found.push(<[u8; 2]>::try_from(key).unwrap());
                    Ok(true)
                })?;
                Ok(Verdict::Commit)
            };
            assert_eq!(session.transact(Mode::Read, all).unwrap(), Ended::Committed);
            if direction == Direction::Reverse {
                found.reverse();
            }
            assert!(found == keys, "{name}, {direction:?}: {} keys", found.len());
        }
    });
}

#[test]
fn a_transaction_sees_its_own_writes() {
    with_each(|name, store| {
        let mut session = store.session().unwrap();
        put_keys(&mut *session, &["b", "d"]);
        write(&mut *session, |txn| {
            let mut value = Vec::new();
            txn.put(0, b"c", b"value of c")?;
            txn.delete(0, b"b")?;
            assert!(txn.get(0, b"c", &mut value)? && value == b"value of c", "{name}");
            assert!(!txn.get(0, b"b", &mut value)?, "{name}");
            assert!(txn.get_for_update(0, b"d", &mut value)? && value == b"value of d", "{name}");
            assert_eq!(scan(txn, None, Direction::Forward, 9)?, ["c", "d"], "{name}");
            assert_eq!(scan(txn, Some("c"), Direction::Reverse, 9)?, ["c"], "{name}");
            Ok(())
        });
    });
}

#[test]
fn what_is_undone_leaves_nothing() {
    with_each(|name, store| {
        let mut session = store.session().unwrap();
        put_keys(&mut *session, &["a"]);
        let before = get(&mut *session, 0, "a");
        let mut run = |outcome: fn() -> Result<Verdict>| {
            session.transact(Mode::Write, &mut |txn| {
                txn.put(0, b"a", b"changed")?;
                txn.put(1, b"new", b"1")?;
                outcome()
            })
        };
        assert_eq!(run(|| Ok(Verdict::Rollback)).unwrap(), Ended::RolledBack, "{name}");
        assert_eq!(run(|| Err(Error::Conflict)).unwrap(), Ended::Conflict, "{name}");
        run(|| Err(Error::Wrong("on purpose".into()))).unwrap_err();
        assert_eq!(get(&mut *session, 0, "a"), before, "{name}");
        assert_eq!(get(&mut *session, 1, "new"), None, "{name}");
    });
}

#[test]
fn one_that_reads_cannot_write() {
    with_each(|name, store| {
        let mut session = store.session().unwrap();
        let put = session.transact(Mode::Read, &mut |txn| txn.put(0, b"a", b"1").map(|()| Verdict::Commit));
        assert!(matches!(put, Err(Error::Unsupported(_))), "{name}");
        assert_eq!(get(&mut *session, 0, "a"), None, "{name}");
    });
}

#[test]
fn threads_that_count_lose_no_count() {
    const THREADS: u64 = 4;
    const TURNS: u64 = 200;
    with_each(|name, store| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut session = store.session().unwrap();
                    for _ in 0..TURNS {
                        while session.transact(Mode::Write, &mut count).unwrap() == Ended::Conflict {}
                    }
                });
            }
        });
        let mut session = store.session().unwrap();
        let mut value = Vec::new();
        assert!(session.get(0, b"counter", &mut value).unwrap());
        assert_eq!(number(&value), THREADS * TURNS, "{name}");
    });
}

fn count(txn: &mut dyn Transaction) -> Result<Verdict> {
    let mut value = Vec::new();
    let before = if txn.get_for_update(0, b"counter", &mut value)? { number(&value) } else { 0 };
    txn.put(0, b"counter", &(before + 1).to_be_bytes())?;
    Ok(Verdict::Commit)
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

#[test]
fn readers_that_need_it_see_one_state() {
    let snapshots = Needs { snapshots: true, ..TRANSACTIONS };
    for engine in engines().iter().filter(|engine| engine.cannot(snapshots, Level::Unsynced).is_none()) {
        let dir = TempDir::new().unwrap();
        let store = open(&**engine, &dir, Level::Unsynced);
        put_keys(&mut *store.session().unwrap(), &["a"]);
        let mut reader = store.session().unwrap();
        let read = &mut |txn: &mut dyn Transaction| {
            assert_eq!(scan(txn, None, Direction::Forward, 9)?, ["a"]);
            std::thread::scope(|scope| {
                scope.spawn(|| put_keys(&mut *store.session().unwrap(), &["b"]));
            });
            assert_eq!(scan(txn, None, Direction::Forward, 9)?, ["a"], "{}", engine.name());
            Ok(Verdict::Commit)
        };
        assert_eq!(reader.transact(Mode::Read, read).unwrap(), Ended::Committed);
        drop(reader);
        store.close().unwrap();
    }
}

#[test]
fn what_was_closed_is_there_again() {
    for engine in engines() {
        for level in LEVELS {
            if engine.cannot(TRANSACTIONS, level).is_some() {
                continue;
            }
            let dir = TempDir::new().unwrap();
            for round in ["a", "b", "c"] {
                let store = open(&*engine, &dir, level);
                put_keys(&mut *store.session().unwrap(), &[round]);
                store.settle().unwrap();
                store.close().unwrap();
            }
            let store = open(&*engine, &dir, level);
            let mut session = store.session().unwrap();
            let check = &mut |txn: &mut dyn Transaction| {
                let keys = scan(txn, None, Direction::Forward, 9)?;
                assert_eq!(keys, ["a", "b", "c"], "{} at {level}", engine.name());
                Ok(Verdict::Commit)
            };
            session.transact(Mode::Read, check).unwrap();
            drop(session);
            store.close().unwrap();
        }
    }
}

/// Like a process that dies: what is only in memory is not in the copy.
#[test]
fn what_is_durable_is_in_the_files() {
    for engine in engines() {
        for level in LEVELS {
            if engine.cannot(TRANSACTIONS, level).is_some() {
                continue;
            }
            let (dir, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
            let store = open(&*engine, &dir, level);
            let mut session = store.session().unwrap();
            put_keys(&mut *session, &["a", "b"]);
            put_keys(&mut *session, &["c"]);
            if level != Level::Sync {
                store.settle().unwrap();
            }
            copy_files(dir.path(), copy.path());
            drop(session);
            store.close().unwrap();
            let store = open(&*engine, &copy, level);
            let mut session = store.session().unwrap();
            let check = &mut |txn: &mut dyn Transaction| {
                let keys = scan(txn, None, Direction::Forward, 9)?;
                assert_eq!(keys, ["a", "b", "c"], "{} at {level}", engine.name());
                Ok(Verdict::Commit)
            };
            session.transact(Mode::Read, check).unwrap();
            drop(session);
            store.close().unwrap();
        }
    }
}

fn copy_files(from: &Path, to: &Path) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the files of other stores are copied, not those of a database"
    )]
    let entries = std::fs::read_dir(from).unwrap();
    for entry in entries {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_files(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn an_engine_says_what_it_is() {
    for engine in engines() {
        println!("{}: {}; isolation: {}", engine.name(), engine.about(), engine.isolation());
        assert!(engine.about().contains(|letter: char| letter.is_ascii_digit()), "{}", engine.name());
        let tickets = Needs { tickets: true, ..Needs::default() };
        assert!(engine.cannot(tickets, Level::Sync).is_some());
        assert!(engine.cannot(Needs::default(), Level::NoBarrier).is_some());
    }
}
