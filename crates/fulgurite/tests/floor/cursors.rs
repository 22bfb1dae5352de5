//! Idle cursors, while everything that they have before them is overwritten and evicted.

use fulgurite::{Database, Range, Table};

use super::process::{FLOOR, MIB, Random, Scenario, eventually, is_sound, open, scattered, value};

const ROW_BYTES: usize = 1_000;
const CURSORS: u64 = 100;
/// How many rows each returns before, and after.
const STEPS: u64 = 300;

fn allowed() -> usize {
    // A cursor keeps a leaf of 8 KiB at each end that was used, of which full records and changes may be longer.
    FLOOR + FLOOR / 10 + CURSORS as usize * (16 << 10) + 8 * MIB
}

/// Every third row is deleted in round 2.
fn put_all(db: &Database, table: &Table, rows: u64, round: u64) {
    let mut rows: Vec<u64> = (0..rows).collect();
    if round > 0 {
        rows.sort_unstable_by_key(|n| scattered(*n ^ round));
    }
    for batch in rows.chunks(100) {
        db.transact(|txn| {
            batch.iter().try_for_each(|&n| match round == 2 && n % 3 == 0 {
                true => txn.delete(table, n.to_be_bytes()),
                false => txn.put(table, n.to_be_bytes(), value(n, round, ROW_BYTES)),
            })
        })
        .unwrap();
    }
}

/// A cursor in the middle of a scan.
struct Idle {
    cursor: Range<'static>,
    round: u64,
    next: u64,
    is_reverse: bool,
}

impl Idle {
    fn begin(table: &Table, rows: u64, random: &mut Random, round: u64) -> Idle {
        let first = STEPS * 2 + random.below(rows - STEPS * 4);
        let is_reverse = random.below(2) == 0;
        let cursor = match is_reverse {
            true => table.range(..=first.to_be_bytes()),
            false => table.range(first.to_be_bytes()..),
        };
        let mut idle = Idle { cursor: cursor.unwrap(), round, next: first, is_reverse };
        idle.advance(STEPS);
        idle
    }

    fn advance(&mut self, rows: u64) {
        for _ in 0..rows {
            let entry =
                if self.is_reverse { self.cursor.next_entry_back() } else { self.cursor.next_entry() };
            let (key, found) = entry.unwrap().unwrap();
            assert_eq!(key, self.next.to_be_bytes());
            assert!(found == value(self.next, self.round, ROW_BYTES), "row {}", self.next);
            self.next = if self.is_reverse { self.next - 1 } else { self.next + 1 };
        }
    }
}

#[test]
fn cursors_that_are_idle_while_everything_is_overwritten() {
    let scenario = Scenario::begin();
    let rows = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("rows").unwrap();
    scenario.step("rows are loaded", &db, allowed(), || put_all(&db, &table, rows, 0));
    let mut random = Random(2);
    let mut begin = |round| (0..CURSORS / 2).map(|_| Idle::begin(&table, rows, &mut random, round)).collect();
    let mut idle: Vec<Idle> = begin(0);
    scenario.step("and overwritten under 50 cursors", &db, allowed(), || put_all(&db, &table, rows, 1));
    idle.extend::<Vec<Idle>>(begin(1));
    scenario.step("and overwritten and deleted under 100 cursors", &db, allowed(), || {
        put_all(&db, &table, rows, 2);
        db.checkpoint().unwrap();
    });
    scenario
        .step("the cursors continue", &db, allowed(), || idle.iter_mut().for_each(|one| one.advance(STEPS)));
    let keeps = db.stats().memory.lent_bytes;
    drop(idle);
    println!("the cursors kept {keeps} bytes");
    assert!(eventually(|| db.stats().memory.lent_bytes < 1 << 20), "{:?}", db.stats().memory);
    assert_eq!(table.range(..).unwrap().map(Result::unwrap).count() as u64, rows - rows.div_ceil(3));
    is_sound(&db);
}
