//! Operations on one thread, for `scripts/instructions.sh`, which counts the instructions of each.

use std::hint::black_box;

use fulgurite::{Database, Options, Result, Table, Transaction};

/// Rows of the table that is read and updated.
const ROWS: u64 = 20_000;
/// Rows in the queue.
const BACKLOG: u64 = 1_000;
/// Rows of a short scan, and puts of a transaction that loads.
const BATCH: u64 = 100;

type Key = [u8; 20];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("OPERATION DIR COUNT");
    let (operation, dir, count) = (next(), next(), next().parse().expect("COUNT is a number"));
    // No thread of maintenance: merging would be counted, or not.
    let db = Database::open(&dir, Options { background: false, ..Options::default() })?;
    let world = World { rows: db.create_table("rows")?, by_value: db.create_table("by_value")?, db };
    world.fill()?;
    match operation.as_str() {
        "put" => world.put(count),
        "load" => world.load(count),
        "transaction" => world.transaction(count),
        "queue" => world.queue(count),
        "get" => world.get(count),
        "short-scan" => world.scan(count, false),
        "long-scan" => world.scan(count, true),
        "reverse-scan" => world.scan_back(count),
        other => panic!("there is no operation {other:?}"),
    }
}

/// Only what this function calls is counted.
#[inline(never)]
#[unsafe(no_mangle)]
extern "Rust" fn counted(count: u64, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    (0..count).try_for_each(|_| work())
}

struct World {
    rows: Table,
    by_value: Table,
    db: Database,
}

impl World {
    /// Fills both tables, and merges them into their trees.
    fn fill(&self) -> Result<()> {
        for first in (0..ROWS).step_by(BATCH as usize) {
            let mut txn = self.db.begin();
            for row in first..first + BATCH {
                txn.put(&self.rows, key(row), value(row))?;
                txn.put(&self.by_value, entry(&value(row), &key(row)), b"")?;
            }
            txn.commit()?;
        }
        self.db.checkpoint().map(|_| ())
    }

    fn put(&self, count: u64) -> Result<()> {
        let mut random = Random(1);
        counted(count, &mut || self.rows.put(key(random.below(ROWS)), [3; 100]).map(|_| ()))
    }

    /// Durable transactions of new rows in random order.
    fn load(&self, count: u64) -> Result<()> {
        let table = self.db.create_table("load")?;
        let mut random = Random(1);
        counted(count, &mut || {
            let mut txn = self.db.begin();
            for _ in 0..BATCH {
                txn.put(&table, key(random.next()), [3; 100])?;
            }
            txn.commit().map(|_| ())
        })
    }

    /// Three reads and eight writes in two tables, as OLTP tests have them.
    fn transaction(&self, count: u64) -> Result<()> {
        let mut random = Random(1);
        counted(count, &mut || {
            let mut txn = self.db.begin();
            let (id, mut row) = self.read(&mut txn, &mut random)?;
            txn.delete(&self.by_value, entry(&row, &id))?;
            let more = u64::from_be_bytes(row[..8].try_into().expect("eight bytes")) + 1;
            row[..8].copy_from_slice(&more.to_be_bytes());
            self.write(&mut txn, &id, &row)?;

            let (id, row) = self.read(&mut txn, &mut random)?;
            txn.put(&self.rows, id, row)?;

            let (id, row) = self.read(&mut txn, &mut random)?;
            txn.delete(&self.by_value, entry(&row, &id))?;
            txn.delete(&self.rows, id)?;
            self.write(&mut txn, &id, &value(random.below(ROWS)))?;
            txn.commit().map(|_| ())
        })
    }

    fn read(&self, txn: &mut Transaction, random: &mut Random) -> Result<(Key, Vec<u8>)> {
        let id = key(random.below(ROWS));
        let row = txn.get_for_update(&self.rows, id)?.expect("no row is ever missing");
        Ok((id, row.to_vec()))
    }

    fn write(&self, txn: &mut Transaction, id: &Key, row: &[u8]) -> Result<()> {
        txn.put(&self.rows, id, row)?;
        txn.put(&self.by_value, entry(row, id), b"")
    }

    /// A push, and a pop of the first row that a scan finds behind the deleted ones.
    fn queue(&self, count: u64) -> Result<()> {
        let queue = self.db.create_table("queue")?;
        (0..BACKLOG).try_for_each(|at| queue.put(key(at), [1; 100]).map(|_| ()))?;
        let mut tail = BACKLOG;
        counted(count, &mut || {
            queue.put(key(tail), [1; 100])?;
            tail += 1;
            let snapshot = self.db.snapshot();
            let head = match snapshot.range(&queue, key(0)..)?.next_entry()? {
                Some((head, _)) => head.to_vec(),
                None => panic!("the queue is never empty"),
            };
            queue.delete(head).map(|_| ())
        })
    }

    fn get(&self, count: u64) -> Result<()> {
        let mut random = Random(1);
        counted(count, &mut || self.rows.get(key(random.below(ROWS))).map(|found| assert!(found.is_some())))
    }

    fn scan(&self, count: u64, is_long: bool) -> Result<()> {
        let mut random = Random(1);
        counted(count, &mut || {
            let (from, rows) = if is_long { (0, u64::MAX) } else { (random.below(ROWS - BATCH), BATCH) };
            let snapshot = self.db.snapshot();
            let mut range = snapshot.range(&self.rows, key(from)..)?;
            let mut seen = 0;
            while seen < rows
                && let Some(row) = range.next_entry()?
            {
                black_box(row);
                seen += 1;
            }
            assert_eq!(seen, rows.min(ROWS));
            Ok(())
        })
    }

    /// All rows, in reverse.
    fn scan_back(&self, count: u64) -> Result<()> {
        counted(count, &mut || {
            let snapshot = self.db.snapshot();
            let mut range = snapshot.range(&self.rows, ..)?;
            let mut seen = 0;
            while let Some(row) = range.next_entry_back()? {
                black_box(row);
                seen += 1;
            }
            assert_eq!(seen, ROWS);
            Ok(())
        })
    }
}

fn key(number: u64) -> Key {
    let mut key = [b'k'; 20];
    key[12..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![7; 188];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// The key of a row in the index.
fn entry(value: &[u8], id: &Key) -> Vec<u8> {
    [&value[..8], id].concat()
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
