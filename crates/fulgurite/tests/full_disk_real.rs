//! Full disks on real file systems: `scripts/full_disk.sh` mounts them and runs these.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a neighbour on the same disk, and real time"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fulgurite::{Database, Durability, Error, Options, Result, Table};

/// The mounted file system.
fn home() -> PathBuf {
    PathBuf::from(
        std::env::var_os("FULGURITE_FULL_DISK").expect("FULGURITE_FULL_DISK names a mounted file system"),
    )
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

fn seconds() -> Duration {
    Duration::from_secs(number("FULGURITE_FULL_DISK_SECONDS", 20))
}

/// A new database in a directory of its own.
fn create(name: &str) -> (PathBuf, Database) {
    let path = home().join(name);
    _ = std::fs::remove_dir_all(&path);
    let db = Database::open(&path, Options::default()).unwrap();
    (path, db)
}

fn remove(path: &Path, db: Database) {
    db.close().unwrap_or_else(|error| panic!("closing: {error}"));
    std::fs::remove_dir_all(path).unwrap();
}

fn mib(name: &str) -> u64 {
    number(name, 320)
}

const ROW_BYTES: usize = 100;

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn put_rows(
    db: &Database,
    table: &Table,
    rows: impl Iterator<Item = u64>,
    len: usize,
    fill: u8,
) -> Result<()> {
    let mut txn = db.begin();
    txn.set_durability(Durability::None)?;
    for n in rows {
        txn.put(table, key(n), vec![fill; len])?;
    }
    txn.commit().map(|_| ())
}

fn load(db: &Database, table: &Table, rows: u64, len: usize) {
    for first in (0..rows).step_by(100) {
        put_rows(db, table, first..(first + 100).min(rows), len, 1)
            .unwrap_or_else(|error| panic!("loading row {first} of {rows}: {error}; {:?}", db.stats().room));
    }
}

fn sound(db: &Database) {
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

/// Live data of a quarter of the disk is overwritten at random, by two threads, without one refusal.
#[test]
#[ignore = "needs a file system of its own: scripts/full_disk.sh"]
fn a_quarter_of_the_disk_is_overwritten_without_a_refusal() {
    let (path, db) = create("overwrite");
    let rows = (mib("FULGURITE_FULL_DISK_MIB") << 20) / 4 / (ROW_BYTES as u64 + 36);
    let table = db.table("t").unwrap();
    load(&db, &table, rows, ROW_BYTES);
    let begun = Instant::now();
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (db, table, written) = (&db, &table, &written);
            scope.spawn(move || {
                let mut state = thread + 1;
                while begun.elapsed() < seconds() {
                    let picks = (0..100).map(|_| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        (state >> 20) % rows
                    });
                    let picks: Vec<u64> = picks.collect();
                    put_rows(db, table, picks.into_iter(), ROW_BYTES, state as u8).unwrap_or_else(|error| {
                        panic!("after {:?}: {error}; {:#?}", begun.elapsed(), db.stats())
                    });
                    written.fetch_add(100, Ordering::Relaxed);
                }
            });
        }
    });
    let stats = db.stats();
    eprintln!(
        "{} rows/s; waits for space: {}; {} checkpoints; commits: {}",
        written.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64(),
        stats.waits.space,
        stats.checkpoints,
        stats.latency.none
    );
    sound(&db);
    remove(&path, db);
}

/// Adds until it is refused; returns how many succeeded.
fn fill(mut add: impl FnMut(u64) -> Result<()>) -> u64 {
    for n in 0..10_000_000 {
        match add(n) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => return n,
            Err(error) => panic!("after {n}: {error}"),
        }
    }
    panic!("the disk never became full");
}

/// A disk is filled in many ways; then half is deleted, and as much is written again without a refusal, without a restart.
#[test]
#[ignore = "needs a file system of its own: scripts/full_disk.sh"]
fn what_fills_the_disk_can_be_deleted_and_written_again() {
    let ways: [(&str, usize, u64, u64); 6] = [
        ("rows", 100, 50, 1),
        ("transactions that are written ahead", 100, 4_000, 1),
        ("many tables", 100, 20, 40),
        ("values of 3 KB", 3_000, 5, 1),
        ("values of 60 KB", 60_000, 1, 1),
        ("values that are written ahead", 700_000, 1, 1),
    ];
    let only = std::env::var("FULGURITE_FULL_DISK_WAY").ok();
    for (way, len, batch, tables) in ways {
        if only.as_ref().is_some_and(|only| only != way) {
            continue;
        }
        let (path, db) = create("ways");
        let tables: Vec<Table> = (0..tables).map(|n| db.table(&format!("t{n}")).unwrap()).collect();
        let table = |n: u64| &tables[(n % tables.len() as u64) as usize];
        let begun = Instant::now();
        let filled = fill(|n| put_rows(&db, table(n), n * batch..(n + 1) * batch, len, 2));
        eprintln!("{way}: {filled} transactions in {:?}, {:?}", begun.elapsed(), db.stats().room);
        assert!(db.stats().room.puts_refused.is_some());
        for round in 0..number("FULGURITE_FULL_DISK_ROUNDS", 3) {
            // Half of the rows, in the order in which they were written: their keys are scattered.
            for n in 0..filled / 2 {
                let mut txn = db.begin();
                for row in n * batch..(n + 1) * batch {
                    txn.delete(table(n), key(row)).unwrap();
                }
                txn.commit()
                    .unwrap_or_else(|error| panic!("{way}, round {round}, {n}: {error}; {:#?}", db.stats()));
            }
            for n in 0..filled / 4 {
                put_rows(&db, table(n), n * batch..(n + 1) * batch, len, 3).unwrap_or_else(|error| {
                    panic!("{way}, round {round}, {n} of {filled}: {error}; {:#?}", db.stats())
                });
            }
        }
        let rows: usize = tables.iter().map(|table| table.range(..).unwrap().count()).sum();
        assert_eq!(rows as u64, (filled - filled / 2 + filled / 4) * batch, "{way}");
        sound(&db);
        drop(tables);
        remove(&path, db);
    }
}

/// Another program takes all free space, and gives it back.
#[test]
#[ignore = "needs a file system of its own: scripts/full_disk.sh"]
fn space_that_comes_back_is_used_without_a_restart() {
    let (path, db) = create("neighbour");
    let table = db.table("t").unwrap();
    load(&db, &table, 10_000, ROW_BYTES);
    let taken = home().join("neighbour.bin");
    for round in 0..5u8 {
        let mut file = std::fs::File::create(&taken).unwrap();
        let piece = vec![1; 64 << 10];
        while file.write_all(&piece).is_ok() {}
        // New rows: those that replace others can go on for ever, a checkpoint every few commits.
        let mut batches = (10_000..10_000_000).step_by(100);
        let refused = batches.find_map(|n| put_rows(&db, &table, n..n + 100, ROW_BYTES, round).err());
        assert!(matches!(refused, Some(Error::NoSpace { .. })), "round {round}: {refused:?}");
        for n in 0..50 {
            // The neighbour has taken what was kept for it: it may be refused.
            let deleted = table.delete(key(n));
            assert!(matches!(deleted, Ok(_) | Err(Error::NoSpace { .. })), "round {round}, {n}: {deleted:?}");
        }
        drop(file);
        std::fs::remove_file(&taken).unwrap();
        // Free space is looked at again after a second at the latest.
        std::thread::park_timeout(Duration::from_millis(1_100));
        for n in 0..100 {
            put_rows(&db, &table, n * 100..(n + 1) * 100, ROW_BYTES, round).unwrap();
        }
        assert!(db.stats().poisoned.is_none() && db.stats().room.puts_refused.is_none());
    }
    sound(&db);
    remove(&path, db);
}

/// A database that is full is left open by a process that ends, again and again; each opens, reads and deletes.
#[test]
#[ignore = "needs a file system of its own: scripts/full_disk.sh"]
fn a_full_database_opens_reads_and_deletes() {
    let (path, mut db) = create("reopen");
    let mut rows = 0;
    for round in 0..10u64 {
        let table = db.table("t").unwrap();
        rows += fill(|n| put_rows(&db, &table, (rows + n) * 20..(rows + n + 1) * 20, ROW_BYTES, 1));
        drop(table);
        if round % 2 == 0 {
            let room = db.stats().room;
            db.close().unwrap_or_else(|error| panic!("round {round}: {error}; {room:?}"));
        } else {
            drop(db);
        }
        db = Database::open(&path, Options::default())
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        let table = db.table("t").unwrap();
        assert_eq!(table.range(..).unwrap().count() as u64, rows * 20 - round * 20, "round {round}");
        for n in 0..20 {
            table.delete(key(round * 20 + n)).unwrap_or_else(|error| panic!("round {round}, {n}: {error}"));
        }
    }
    sound(&db);
    db.table("t").unwrap().delete_range(..).unwrap();
    remove(&path, db);
}

/// Does nothing unless it was started by the test below. Fills the disk, deletes a tenth, and writes on, for ever. After
/// each step it says which rows are there: the numbers of the first row, and of that after the last.
#[test]
#[ignore = "the process that the next test kills"]
fn fills_deletes_and_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os("FULGURITE_FULL_DISK_KILLED") else { return };
    let db = Database::open(path, Options::default()).unwrap();
    let table = db.table("t").unwrap();
    let (mut first, mut end) = bounds(&table);
    let mut out = std::io::stdout().lock();
    let mut say = |first: u64, end: u64| writeln!(out, "rows {first} {end}").and_then(|()| out.flush());
    loop {
        let mut txn = db.begin();
        (end..end + 20).for_each(|row| txn.put(&table, key(row), row.to_be_bytes().repeat(12)).unwrap());
        match txn.commit() {
            Ok(_) => end += 20,
            Err(Error::NoSpace { .. }) => {
                for _ in 0..(end - first) / 200 {
                    let mut txn = db.begin();
                    (first..first + 20).for_each(|row| txn.delete(&table, key(row)).unwrap());
                    txn.commit().unwrap_or_else(|error| panic!("deleting from {first}: {error}"));
                    first += 20;
                    say(first, end).unwrap();
                }
            }
            Err(error) => panic!("{error}"),
        }
        say(first, end).unwrap();
    }
}

/// The rows of the test below that a table has: the first, and that after the last. There is none missing between.
fn bounds(table: &Table) -> (u64, u64) {
    let row = |entry: Result<(fulgurite::Value, fulgurite::Value)>| {
        let entry = entry.unwrap();
        let row = u64::from_be_bytes(entry.0[8..].try_into().unwrap());
        assert_eq!(&entry.1[..], &row.to_be_bytes().repeat(12)[..], "row {row}");
        row
    };
    let mut rows: Vec<u64> = table.range(..).unwrap().map(row).collect();
    rows.sort_unstable();
    let (first, end) = (rows.first().copied().unwrap_or(0), rows.last().map_or(0, |last| last + 1));
    assert_eq!(rows.len() as u64, end - first, "rows {first} to {end}");
    (first, end)
}

/// A process that has filled the disk, and goes on there, is killed again and again: all that it acknowledged is there.
#[test]
#[ignore = "needs a file system of its own: scripts/full_disk.sh"]
fn a_process_that_is_killed_on_a_full_disk_loses_nothing() {
    let (path, db) = create("killed");
    db.close().unwrap();
    let mut moment = 7u64;
    for round in 0..number("FULGURITE_FULL_DISK_ROUNDS", 10) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "fills_deletes_and_writes_until_it_is_killed"])
            .env("FULGURITE_FULL_DISK_KILLED", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        moment = moment.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let deletes_seen = (moment >> 40) % 1_000;
        let (mut said, mut deletes, mut begun) = ((0, 0), 0, None);
        while deletes < deletes_seen {
            let line = lines.by_ref().find_map(|line| parse(&line.unwrap()));
            let Some(now) = line else { panic!("round {round}: the process ended by itself, at {said:?}") };
            deletes += u64::from(begun.is_some_and(|first| first != now.0));
            begun = Some(now.0);
            said = now;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            said = line.ok().and_then(|line| parse(&line)).unwrap_or(said);
        }
        let db = Database::open(&path, Options::default()).unwrap_or_else(|error| panic!("{round}: {error}"));
        let (first, end) = bounds(&db.table("t").unwrap());
        // What it did last it may not have said.
        assert!(first == said.0 || first == said.0 + 20, "round {round}: {first} {end}, {said:?}");
        assert!(end == said.1 || end == said.1 + 20, "round {round}: {first} {end}, {said:?}");
        sound(&db);
        drop(db);
    }
    std::fs::remove_dir_all(path).unwrap();
}

/// What the killed process said.
fn parse(line: &str) -> Option<(u64, u64)> {
    let (first, end) = line.strip_prefix("rows ")?.split_once(' ')?;
    Some((first.parse().ok()?, end.parse().ok()?))
}

/// The log is on the full disk, by a link; the rest is not.
#[test]
#[ignore = "needs a file system of its own: scripts/full_disk.sh"]
fn the_log_has_a_disk_of_its_own() {
    let elsewhere = tempfile::tempdir().unwrap();
    let log = home().join("log-alone");
    _ = std::fs::remove_dir_all(&log);
    std::fs::create_dir(&log).unwrap();
    let path = elsewhere.path().join("db");
    std::fs::create_dir(&path).unwrap();
    std::os::unix::fs::symlink(&log, path.join("log")).unwrap();
    let db = Database::open(&path, Options::default()).unwrap();
    let table = db.table("t").unwrap();
    let filled = fill(|n| put_rows(&db, &table, n * 50..(n + 1) * 50, ROW_BYTES, 2));
    let room = db.stats().room;
    assert!(room.puts_refused.is_some() && room.home_free_bytes > room.free_bytes, "{room:?}");
    for n in 0..filled / 2 {
        let mut txn = db.begin();
        (n * 50..(n + 1) * 50).for_each(|row| txn.delete(&table, key(row)).unwrap());
        txn.commit().unwrap_or_else(|error| panic!("{n} of {filled}: {error}"));
    }
    for n in 0..filled / 4 {
        put_rows(&db, &table, n * 50..(n + 1) * 50, ROW_BYTES, 3)
            .unwrap_or_else(|error| panic!("{n} of {filled}: {error}"));
    }
    sound(&db);
    db.close().unwrap();
    std::fs::remove_dir_all(log).unwrap();
}

/// The file system becomes read-only below an open database, as after an error: writes say so, reads go on.
#[test]
#[ignore = "makes the file system read-only: scripts/full_disk.sh"]
fn a_disk_that_becomes_read_only_is_read() {
    let Some(trigger) = std::env::var_os("FULGURITE_READ_ONLY_TRIGGER") else { return };
    let (path, db) = create("read-only");
    let table = db.table("t").unwrap();
    load(&db, &table, 1_000, ROW_BYTES);
    db.checkpoint().unwrap();
    std::fs::write(trigger, "1").unwrap();
    let write =
        |fill| put_rows(&db, &table, 0..100, ROW_BYTES, fill).and_then(|()| db.checkpoint().map(|_| ()));
    let why = write(1).unwrap_err().to_string();
    eprintln!("{why}");
    assert!(why.contains("Read-only file system"), "{why}");
    assert!(matches!(write(2), Err(Error::Poisoned { .. })), "{:?}", write(2));
    assert!(db.stats().poisoned.is_some_and(|why| why.contains("Read-only file system")));
    assert_eq!(table.range(..).unwrap().count(), 1_000);
    assert!(db.close().is_err());
    let read_only = Options { read_only: true, ..Options::default() };
    let db = Database::open(&path, read_only).unwrap();
    assert_eq!(db.table("t").unwrap().range(..).unwrap().count(), 1_000);
}
