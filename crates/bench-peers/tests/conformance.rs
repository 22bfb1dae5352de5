//! What every engine has to do alike, so that benchmarks measure the same work.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use common::{
    child_with_store, each, each_store, each_without_syncs, engine, open, run, store_of_child, write,
};
use fulgurite::env::{Env, RealEnv};
use fulgurite_bench::engine::{
    Direction, Ended, Level, Mode, Needs, Opening, Range, Session, Store, Transaction, Verdict,
};
use fulgurite_bench::{Error, Result};

const ANY: Needs = Needs { transactions: false, snapshots: false, tickets: false, bounded_memory: false };
const TRANSACTIONS: Needs = Needs { transactions: true, ..ANY };
const SNAPSHOTS: Needs = Needs { snapshots: true, ..ANY };
const LEVELS: [Level; 3] = [Level::Sync, Level::Unsynced, Level::Memory];

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn got(session: &mut dyn Session, table: usize, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = b"left over".to_vec();
    let found = session.get(table, key, &mut value).unwrap();
    assert!(found || value.is_empty(), "what was there before has to go");
    found.then_some(value)
}

fn value_in(txn: &mut dyn Transaction, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut value = b"left over".to_vec();
    Ok(txn.get(table, key, &mut value)?.then_some(value))
}

fn entries_in(txn: &mut dyn Transaction, range: Range<'_>, most: usize) -> Result<Entries> {
    let mut entries = Entries::new();
    txn.scan(range, &mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        Ok(entries.len() < most)
    })?;
    Ok(entries)
}

fn entries(session: &mut dyn Session, range: Range<'_>, most: usize) -> Entries {
    let mut entries = Entries::new();
    run(session, Mode::Read, |txn| {
        entries = entries_in(txn, range, most)?;
        Ok(Verdict::Commit)
    });
    entries
}

fn all(session: &mut dyn Session, table: usize) -> Entries {
    entries(session, Range::all(table), usize::MAX)
}

/// Keys with bytes that are not valid in strings.
fn keys() -> Vec<Vec<u8>> {
    let short: [&[u8]; 9] = [b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"a\0b", b"ab", b"\xff", b"\xff\xff\0"];
    short.iter().map(|key| key.to_vec()).chain([vec![0xff; 480], vec![0; 480]]).collect()
}

fn value_of(key: &[u8], bytes: usize) -> Vec<u8> {
    key.iter().copied().cycle().zip(0u8..=250).map(|(byte, index)| byte ^ index).cycle().take(bytes).collect()
}

#[test]
fn puts_are_read() {
    each_store(ANY, |store| {
        let mut session = store.session().unwrap();
        for bytes in [1, 100, 511, 512, 4096, 65_537, 1 << 20, 0] {
            for key in keys() {
                write(&mut *session, |txn| txn.put(0, &key, &value_of(&key, bytes)));
            }
            for key in keys() {
                assert_eq!(got(&mut *session, 0, &key), Some(value_of(&key, bytes)));
                assert_eq!(got(&mut *session, 1, &key), None, "tables are apart");
                run(&mut *session, Mode::Read, |txn| {
                    assert_eq!(value_in(txn, 0, &key)?, Some(value_of(&key, bytes)));
                    assert_eq!(value_in(txn, 1, &key)?, None);
                    Ok(Verdict::Commit)
                });
            }
        }
        assert_eq!(got(&mut *session, 0, b"absent"), None);
        for key in keys() {
            write(&mut *session, |txn| txn.delete(0, &key));
            write(&mut *session, |txn| txn.delete(0, &key));
            assert_eq!(got(&mut *session, 0, &key), None);
        }
        assert_eq!(all(&mut *session, 0), []);
    });
}

/// Two tables with keys of few different bytes, so that many share a prefix.
fn models() -> [BTreeMap<Vec<u8>, Vec<u8>>; 2] {
    let mut number = 1u64;
    let mut next = |below: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % below
    };
    let mut model = |rows: usize| {
        let row = |_| {
            let len = 1 + next(6);
            let key: Vec<u8> = (0..len).map(|_| [0, 1, b'a', 0xff][next(4) as usize]).collect();
            let value = value_of(&key, next(1000) as usize);
            (key, value)
        };
        (0..rows).map(row).collect()
    };
    [model(600), model(300)]
}

fn expected(
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    Range { from, direction, .. }: Range<'_>,
    most: usize,
) -> Entries {
    let mut entries: Entries = model.clone().into_iter().collect();
    match direction {
        Direction::Forward => entries.retain(|(key, _)| from.is_none_or(|from| &key[..] >= from)),
        Direction::Reverse => {
            entries.retain(|(key, _)| from.is_none_or(|from| &key[..] <= from));
            entries.reverse();
        }
    }
    entries.truncate(most);
    entries
}

#[test]
fn scans_are_ordered_and_complete() {
    let models = models();
    each_store(ANY, |store| {
        let mut session = store.session().unwrap();
        for (table, model) in models.iter().enumerate() {
            assert_eq!(all(&mut *session, table), [], "a new table is empty");
            assert_eq!(entries(&mut *session, Range::reverse(table, Some(b"a")), 1), []);
            for (key, value) in model {
                write(&mut *session, |txn| txn.put(table, key, value));
            }
        }
        let absent: [&[u8]; 7] =
            [b"\0\0\0\0\0\0\0", b"\0\0\0x", b"a\x02", b"b", b"\xff\xfe", &[0xff; 7], b"\x01\0\0\0\0\0\0"];
        let present = models[0].keys().step_by(25).map(|key| &key[..]);
        let bounds: Vec<Option<&[u8]>> = absent.into_iter().chain(present).map(Some).chain([None]).collect();
        for (table, model) in models.iter().enumerate() {
            for from in &bounds {
                for direction in [Direction::Forward, Direction::Reverse] {
                    for most in [1, 3, usize::MAX] {
                        let range = Range { direction, ..Range::forward(table, *from) };
                        let shown = entries(&mut *session, range, most);
                        assert!(shown == expected(model, range, most), "{range:?}, at most {most}");
                    }
                }
            }
        }
    });
}

#[test]
fn a_rollback_leaves_nothing() {
    each_store(ANY, |store| {
        let mut session = store.session().unwrap();
        write(&mut *session, |txn| txn.put(0, b"kept", b"old"));
        let change = |txn: &mut dyn Transaction| {
            txn.put(0, b"new", b"x")?;
            txn.put(1, b"new", b"x")?;
            txn.put(0, b"kept", b"new")?;
            txn.delete(0, b"kept")
        };
        let ended = run(&mut *session, Mode::Write, |txn| change(txn).map(|()| Verdict::Rollback));
        assert_eq!(ended, Ended::RolledBack);
        let failed = session.transact(Mode::Write, &mut |txn| {
            change(txn)?;
            Err(Error::Unsupported("luck"))
        });
        assert!(matches!(failed, Err(Error::Unsupported("luck"))));
        let ended = session.transact(Mode::Write, &mut |txn| {
            change(txn)?;
            Err(Error::Conflict)
        });
        assert!(matches!(ended, Ok(Ended::Conflict)));
        let failed = session.transact(Mode::Read, &mut |txn| {
            txn.scan(Range::all(0), &mut |_, _| Err(Error::Unsupported("luck")))?;
            Ok(Verdict::Commit)
        });
        assert!(matches!(failed, Err(Error::Unsupported("luck"))), "a visitor's error is passed on");
        assert_eq!(all(&mut *session, 0), [(b"kept".to_vec(), b"old".to_vec())]);
        assert_eq!(all(&mut *session, 1), []);
    });
}

#[test]
fn a_transaction_sees_its_own_writes() {
    each_store(TRANSACTIONS, |store| {
        let mut session = store.session().unwrap();
        write(&mut *session, |txn| (0..10u8).try_for_each(|number| txn.put(0, &[number], b"old")));
        write(&mut *session, |txn| {
            let mut value = Vec::new();
            txn.put(0, &[3], b"new")?;
            txn.delete(0, &[4])?;
            txn.put(0, &[4, 4], b"more")?;
            txn.put(0, &[5], b"gone")?;
            txn.delete(0, &[5])?;
            assert_eq!(value_in(txn, 0, &[3])?.unwrap(), b"new");
            assert_eq!(value_in(txn, 0, &[4])?, None);
            assert!(txn.get_for_update(0, &[4, 4], &mut value)?);
            assert_eq!(value, b"more");
            assert!(!txn.get_for_update(0, &[5], &mut value)?);
            let expected = [(&[3][..], &b"new"[..]), (&[4, 4], b"more"), (&[6], b"old")];
            let mut expected = expected.map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(entries_in(txn, Range::forward(0, Some(&[3])), 3)?, expected);
            expected.reverse();
            assert_eq!(entries_in(txn, Range::reverse(0, Some(&[6])), 3)?, expected);
            let for_update = Range::reverse(0, Some(&[6])).for_update();
            assert_eq!(entries_in(txn, for_update, 3)?, expected);
            Ok(())
        });
        assert_eq!(all(&mut *session, 0).len(), 9);
    });
}

const THREADS: u64 = 4;

/// Runs `body` in each of [`THREADS`] threads, with the thread's number and session.
fn in_threads(store: &dyn Store, body: impl Fn(u64, &mut dyn Session) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let body = &body;
            scope.spawn(move || body(thread, &mut *store.session().unwrap()));
        }
    });
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// Increments one number in many threads; `read` reads it in a transaction.
fn increment(store: &dyn Store, read: fn(&mut dyn Transaction, &mut Vec<u8>) -> Result<bool>) {
    const TIMES: u64 = 200;
    write(&mut *store.session().unwrap(), |txn| txn.put(0, b"sum", &0u64.to_le_bytes()));
    in_threads(store, |_, session| {
        for _ in 0..TIMES {
            write(session, |txn| {
                let mut value = Vec::new();
                assert!(read(txn, &mut value)?);
                txn.put(0, b"sum", &(number(&value) + 1).to_le_bytes())
            });
        }
    });
    let sum = got(&mut *store.session().unwrap(), 0, b"sum").unwrap();
    assert_eq!(number(&sum), THREADS * TIMES);
}

#[test]
fn no_increment_is_lost() {
    each_store(TRANSACTIONS, |store| {
        increment(store, |txn, value| txn.get_for_update(0, b"sum", value));
        increment(store, |txn, value| txn.get(0, b"sum", value));
    });
}

/// Takes the first row of table 0; `None` if there is none.
fn take_first(session: &mut dyn Session) -> Option<Vec<u8>> {
    let mut first = None;
    write(session, |txn| {
        first = None;
        txn.scan(Range::all(0).for_update(), &mut |key, _| {
            first = Some(key.to_vec());
            Ok(false)
        })?;
        let Some(key) = &first else { return Ok(()) };
        if !txn.get_for_update(0, key, &mut Vec::new())? {
            // Another thread took the row after the scan: this engine's scans do not lock.
            return Err(Error::Conflict);
        }
        txn.delete(0, key)
    });
    first
}

/// Each row is taken once, and too fast for any thread to have waited for a lock timeout.
#[test]
fn rows_that_are_scanned_for_update_are_taken_once() {
    const ROWS: u64 = 400;
    each_store(TRANSACTIONS, |store| {
        write(&mut *store.session().unwrap(), |txn| {
            (0..ROWS).try_for_each(|row| txn.put(0, &row.to_be_bytes(), b"row"))
        });
        let env = RealEnv::new();
        let began_ns = env.clock().monotonic_ns();
        let taken = Mutex::new(Vec::new());
        in_threads(store, |_, session| {
            while let Some(row) = take_first(session) {
                taken.lock().unwrap().push(row);
            }
        });
        let seconds = (env.clock().monotonic_ns() - began_ns) / 1_000_000_000;
        assert!(seconds < 30, "{seconds} s");
        let mut taken = taken.into_inner().unwrap();
        taken.sort();
        assert_eq!(taken, (0..ROWS).map(|row| row.to_be_bytes().to_vec()).collect::<Vec<_>>());
    });
}

/// Waits for the other writer, but not for one that itself waits until this one is done.
fn meet((count, changed): &(Mutex<u32>, Condvar)) {
    let mut count = count.lock().unwrap();
    *count += 1;
    changed.notify_all();
    let alone = |count: &mut u32| *count < 2;
    // A writer that comes later than this counts as one that waited.
    let (mut count, waited) = changed.wait_timeout_while(count, Duration::from_millis(500), alone).unwrap();
    if waited.timed_out() {
        *count = GAVE_UP;
    }
}

const GAVE_UP: u32 = 100;

fn they_met((count, _): &(Mutex<u32>, Condvar)) -> bool {
    *count.lock().unwrap() < GAVE_UP
}

/// A second writer begins before the first one commits, and writes the same key without reading it for update.
#[test]
fn the_later_of_two_writers_conflicts_or_waits() {
    each_store(TRANSACTIONS, |store| {
        write(&mut *store.session().unwrap(), |txn| txn.put(0, b"key", b"none"));
        let readers = (Mutex::new(0), Condvar::new());
        let append = |own: &[u8]| {
            let mut session = store.session().unwrap();
            let mut attempts = 0;
            write(&mut *session, |txn| {
                let mut value = Vec::new();
                txn.get(0, b"key", &mut value)?;
                attempts += 1;
                if attempts == 1 {
                    meet(&readers);
                }
                value.extend_from_slice(own);
                txn.put(0, b"key", &value)
            });
            attempts
        };
        let attempts = std::thread::scope(|scope| {
            let other = scope.spawn(|| append(b", b"));
            append(b", a") + other.join().unwrap()
        });
        let met = they_met(&readers);
        assert!(attempts > 2 || !met, "both had read the same value, so one had to run again");
        let value = got(&mut *store.session().unwrap(), 0, b"key").unwrap();
        assert!(value == b"none, a, b" || value == b"none, b, a", "{value:?}");
    });
}

/// The threads write neighbouring keys into an empty table, so that they split the same pages.
#[test]
fn many_threads_fill_a_table() {
    const ROWS: u64 = 1500;
    each_store(ANY, |store| {
        in_threads(store, |thread, session| {
            for row in 0..ROWS {
                let key = (row * THREADS + thread).to_be_bytes();
                write(session, |txn| txn.put(0, &key, &value_of(&key, 400)));
            }
        });
        let rows = all(&mut *store.session().unwrap(), 0);
        let expected = (0..THREADS * ROWS).map(|row| row.to_be_bytes());
        assert!(rows.into_iter().eq(expected.map(|key| (key.to_vec(), value_of(&key, 400)))));
    });
}

#[test]
fn a_transaction_that_reads_sees_one_state() {
    const COMMITS: u64 = 400;
    each_store(SNAPSHOTS, |store| {
        let set = |session: &mut dyn Session, value: u64| {
            write(session, |txn| (0..2).try_for_each(|table| txn.put(table, b"key", &value.to_le_bytes())));
        };
        set(&mut *store.session().unwrap(), 0);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut session = store.session().unwrap();
                    while !is_over.load(Relaxed) {
                        run(&mut *session, Mode::Read, |txn| {
                            let value = value_in(txn, 0, b"key")?.unwrap();
                            let scanned = entries_in(txn, Range::all(1), 1)?;
                            assert_eq!(scanned[0].1, value);
                            assert_eq!(value_in(txn, 0, b"key")?.unwrap(), value);
                            Ok(Verdict::Commit)
                        });
                        std::thread::yield_now();
                    }
                });
            }
            let mut session = store.session().unwrap();
            (1..=COMMITS).for_each(|value| set(&mut *session, value));
            is_over.store(true, Relaxed);
        });
    });
}

#[test]
fn closing_and_opening_keeps_everything() {
    let models = models();
    for level in LEVELS {
        each(ANY, level, |engine| {
            let dir = tempfile::tempdir().unwrap();
            let store = open(engine, dir.path(), level);
            let mut session = store.session().unwrap();
            for (table, model) in models.iter().enumerate() {
                write(&mut *session, |txn| {
                    model.iter().try_for_each(|(key, value)| txn.put(table, key, value))
                });
            }
            drop(session);
            store.settle().unwrap();
            write(&mut *store.session().unwrap(), |txn| txn.put(1, b"last", b"one"));
            store.close().unwrap();
            drop(store);
            let store = open(engine, dir.path(), level);
            let mut session = store.session().unwrap();
            assert_eq!(got(&mut *session, 1, b"last").unwrap(), b"one");
            write(&mut *session, |txn| txn.delete(1, b"last"));
            for (table, model) in models.iter().enumerate() {
                assert!(all(&mut *session, table).into_iter().eq(model.clone()), "table {table}");
            }
            drop(session);
            store.close().unwrap();
        });
    }
}

/// Commits without end and prints a line after each commit.
#[test]
fn child_that_is_killed() {
    let Some(store) = store_of_child() else { return };
    let mut session = store.session().unwrap();
    let mut out = std::io::stdout();
    for number in 0u64.. {
        write(&mut *session, |txn| {
            (0..2).try_for_each(|table| txn.put(table, &number.to_be_bytes(), &value_of(b"v", 300)))
        });
        writeln!(out, "\nacknowledged {number}").unwrap();
        out.flush().unwrap();
    }
}

/// Lets a process commit and kills it; the store has to have all commits that it acknowledged.
fn kill(name: &str, level: Level) {
    const COMMITS: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let mut process = child_with_store("child_that_is_killed", name, dir.path(), level);
    let mut process = process.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(|line| line.ok());
    let acknowledged = lines.filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok());
    let enough = acknowledged.take_while(|number| *number < COMMITS).last();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(enough, Some(COMMITS - 1), "the process died by itself");
    let store = open(&*engine(name), dir.path(), level);
    let mut session = store.session().unwrap();
    let [first, second] = [0, 1].map(|table| all(&mut *session, table));
    assert!(first == second, "a commit is there as a whole or not at all");
    assert!(first.len() as u64 > COMMITS);
    let numbers = first.iter().map(|(key, _)| u64::from_be_bytes(key[..].try_into().unwrap()));
    assert!(numbers.eq(0..first.len() as u64));
    drop(session);
    store.close().unwrap();
}

#[test]
fn a_killed_process_loses_no_acknowledged_commit() {
    each(ANY, Level::Sync, |engine| kill(engine.name(), Level::Sync));
}

/// Unsynced, engines write a commit before they acknowledge it: the operating system has it.
#[test]
fn a_killed_process_loses_nothing_that_was_written() {
    each(ANY, Level::Unsynced, |engine| kill(engine.name(), Level::Unsynced));
}

/// An engine may store a single table differently from several.
#[test]
fn a_single_table_is_kept() {
    each_without_syncs(ANY, |engine, level| {
        let dir = tempfile::tempdir().unwrap();
        let opening = Opening { dir: dir.path(), tables: &["only"], cache_bytes: 32 << 20, level };
        let store = engine.open(&opening).unwrap();
        write(&mut *store.session().unwrap(), |txn| {
            (0..9).try_for_each(|number: u8| txn.put(0, &[number], &value_of(&[number], 100)))
        });
        store.close().unwrap();
        drop(store);
        let store = engine.open(&opening).unwrap();
        let expected = (0..9).map(|number| (vec![number], value_of(&[number], 100)));
        assert!(all(&mut *store.session().unwrap(), 0).into_iter().eq(expected));
        store.close().unwrap();
    });
}
