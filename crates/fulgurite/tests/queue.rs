//! A queue: rows are put at its end and deleted at its head. A scan from the beginning meets the deleted rows that are not removed yet;
//! there have to be few, however many have passed.

use std::time::Duration;

use fulgurite::env::{Env, RealEnv};
use fulgurite::{Database, Durability, Options, Table};

/// Rows of a transaction.
const BATCH: u64 = 100;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// The scan of the first ten rows: the first one, and the middle one of a hundred and one.
fn scan_of_ten(table: &Table, first: u64) -> (Duration, Duration) {
    let env = RealEnv::new();
    let mut times: Vec<_> = (0..101)
        .map(|_| {
            let begun_ns = env.clock().monotonic_ns();
            let rows: Vec<_> = table.range(..).unwrap().take(10).map(|row| row.unwrap().0).collect();
            let took = Duration::from_nanos(env.clock().monotonic_ns() - begun_ns);
            assert!(rows.iter().zip(first..).all(|(row, n)| **row == key(n)) && rows.len() == 10);
            took
        })
        .collect();
    let first = times[0];
    times.sort();
    (first, times[times.len() / 2])
}

/// Has `rows` of 100 bytes pass through a queue that is `length` long; returns the scans of its head, nearly the longest and the one at the end.
fn pass(rows: u64, length: u64) -> (Duration, (Duration, Duration)) {
    let dir = tempfile::tempdir().unwrap();
    let durability = Durability::Async { interval: Duration::from_millis(100) };
    let options = Options { durability, memory_bytes: Some(256 << 20), ..Options::default() };
    let db = Database::open(dir.path().join("data"), options).unwrap();
    let table = db.table("queue").unwrap();
    let mut firsts = Vec::new();
    for first in (0..rows + length).step_by(BATCH as usize) {
        let mut txn = db.begin();
        for n in first..(first + BATCH).min(rows + length) {
            txn.put(&table, key(n), [n as u8; 100]).unwrap();
        }
        if first >= length {
            let head: Vec<_> =
                table.range(..).unwrap().take(BATCH as usize).map(|row| row.unwrap().0).collect();
            assert_eq!(*head[0], key(first - length));
            for row in &head {
                txn.delete(&table, row).unwrap();
            }
        }
        txn.commit().unwrap();
        if first > length && (first / BATCH).is_multiple_of((rows / BATCH / 20).max(1)) {
            firsts.push(scan_of_ten(&table, first + BATCH - length).0);
        }
    }
    let end = scan_of_ten(&table, rows);
    // The thread may lose its turn in two of them.
    firsts.sort();
    let most = firsts.iter().rev().nth(2).copied().expect("there are about twenty");
    println!(
        "{rows} rows through {length}: the scan of the first ten took {most:?} or less but twice, {end:?} at the end"
    );
    (most, end)
}

/// `FULGURITE_QUEUE_ROWS` sets how many rows pass; with ten million or more the scan has to take less than 100 us at the end.
#[test]
fn a_scan_of_the_head_is_fast_however_many_rows_have_passed() {
    let rows = std::env::var("FULGURITE_QUEUE_ROWS").map_or(400_000, |rows| rows.parse().unwrap());
    let (most, end) = pass(rows, rows / 20);
    assert!(most < Duration::from_millis(20), "{most:?} in between");
    let end_max = if rows >= 10_000_000 { 100 } else { 2_000 };
    assert!(end.1 < Duration::from_micros(end_max), "{end:?} at the end");
}
