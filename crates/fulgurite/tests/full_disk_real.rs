//! Full disks on real file systems: `scripts/full_disk.sh` mounts them and runs these.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fulgurite::{Database, Durability, Options, Result, Table};

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
