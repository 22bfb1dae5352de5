//! `tail-latency`: overwrites of random rows, several in a transaction, in one table or spread over many.

use std::sync::LazyLock;

use super::rows::{Random, Sizes, expect_rows, fill, write_key};
use super::sealed::{Seal, Writes, check_seals};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::Result;
use crate::engine::{Store, Verdict};

/// Blind overwrites of rows that are all equally likely, a batch of them in each transaction.
///
/// Row n is in the written table n modulo their number; keys are the numbers of the rows within their table, in decimal.
/// The tables that are not written have one row each, so that each of them has content on disk.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TailLatency {
    /// Values have at least [`Micro::VALUE_BYTES_MIN`](super::Micro::VALUE_BYTES_MIN) bytes.
    pub sizes: Sizes,
    /// Rows of the written tables together: at least as many as there are such tables.
    pub rows: u64,
    /// The rows of a transaction, at least one.
    pub batch: u64,
    /// From 1 to [`TailLatency::TABLES_MAX`].
    pub tables: u32,
    /// How many of the tables are written, at least one.
    pub written: u32,
}

/// A row of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Position {
    table: usize,
    /// Its number within the table.
    row: u64,
}

/// The names of [`TailLatency::TABLES_MAX`] tables in one text, so that a shape can borrow them for ever.
static TEXT: LazyLock<String> = LazyLock::new(|| {
    (0..TailLatency::TABLES_MAX).map(|table| format!("t{table:05}")).collect::<Vec<_>>().join(" ")
});
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| TEXT.split(' ').collect());

impl TailLatency {
    /// The most tables.
    pub const TABLES_MAX: u32 = 100_000;

    fn names(&self) -> &'static [&'static str] {
        &NAMES[..self.tables as usize]
    }

    /// All rows, those of the tables that are not written included.
    fn loaded_rows(&self) -> u64 {
        self.rows + u64::from(self.tables - self.written)
    }

    /// The position of a row: those from `rows` on are in the tables that are not written.
    fn position(&self, row: u64) -> Position {
        let written = u64::from(self.written);
        match row.checked_sub(self.rows) {
            None => Position { table: (row % written) as usize, row: row / written },
            Some(after) => Position { table: (written + after) as usize, row: 0 },
        }
    }

    /// How many rows a table has.
    fn rows_of(&self, table: u32) -> u64 {
        match table < self.written {
            true => (self.rows - u64::from(table)).div_ceil(self.written.into()),
            false => 1,
        }
    }
}

impl Workload for TailLatency {
    fn shape(&self) -> Shape {
        let TailLatency { sizes, rows, batch, tables, written } = *self;
        let spread = match (tables, written) {
            (1, _) => String::new(),
            _ => format!(" in {written} of {tables} tables"),
        };
        let each = if batch == 1 { String::new() } else { format!(", {batch} rows a transaction") };
        Shape {
            name: "tail-latency".into(),
            about: format!("{rows} rows{spread}, {sizes}{each}"),
            tables: self.names(),
            kinds: &["overwrite"],
            loaded_bytes: self.loaded_rows() * sizes.row_bytes(),
            bytes_per_operation: batch * sizes.row_bytes(),
            is_steady: true,
            ..Shape::default()
        }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let mut key = vec![0; self.sizes.key_bytes];
        let mut value = vec![0; self.sizes.value_bytes];
        fill(store, 0..self.loaded_rows(), self.sizes.row_bytes(), filling, |row, open| {
            let position = self.position(row);
            write_key(&mut key, position.row);
            Seal { row, write: 0 }.write_over(&mut value);
            open.put(position.table, &key, &value)
        })
    }

    fn client(&self, thread: u32, _: u32) -> Client {
        let workload = *self;
        let (mut random, mut writes) = (Random::new(u64::from(thread) << 32), Writes::of(thread));
        let mut seals = Vec::with_capacity(workload.batch as usize);
        let mut key = vec![0; workload.sizes.key_bytes];
        let mut value = vec![0; workload.sizes.value_bytes];
        Box::new(move |session| {
            seals.clear();
            let batch = 0..workload.batch;
            seals.extend(batch.map(|_| Seal { row: random.below(workload.rows), write: writes.next() }));
            session.write(|open| {
                for seal in &seals {
                    let position = workload.position(seal.row);
                    write_key(&mut key, position.row);
                    seal.write_over(&mut value);
                    open.put(position.table, &key, &value)?;
                }
                Ok(Verdict::Commit)
            })?;
            Ok(Step::Done(0))
        })
    }

    fn check(&self, store: &dyn Store, _: Option<&Done>) -> Result<()> {
        let mut expected = vec![0; self.sizes.key_bytes];
        for (table, name) in (0..self.tables).zip(self.names()) {
            let found = check_seals(store, table as usize, name, |key, seal| {
                let position = self.position(seal.row);
                write_key(&mut expected, position.row);
                let is_written = seal.row < self.rows;
                let is_loaded = seal.row < self.loaded_rows() && seal.write == 0;
                position.table == table as usize && key == expected && (is_written || is_loaded)
            })?;
            expect_rows(name, found, self.rows_of(table))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;

    const SMALL: TailLatency = TailLatency {
        sizes: Sizes { key_bytes: 20, value_bytes: 100 },
        rows: 100,
        batch: 3,
        tables: 5,
        written: 3,
    };

    #[test]
    fn rows_are_spread_over_the_written_tables() {
        let (bed, done) = Bed::checked(SMALL, 2, 200);
        assert_eq!(done.kinds, [400]);
        assert_eq!(bed.tables().iter().map(Vec::len).collect::<Vec<_>>(), [34, 33, 33, 1, 1]);
        assert_eq!((SMALL.live_bytes(&done), bed.bytes()), (Some(102 * 120), 102 * 120));
        let is_overwritten = |(_, value): &(Vec<u8>, Vec<u8>)| Seal::of(value).expect("whole").write > 0;
        let overwritten = bed.tables().into_iter().map(|rows| rows.iter().any(is_overwritten));
        assert_eq!(overwritten.collect::<Vec<_>>(), [true, true, true, false, false]);
    }

    #[test]
    fn a_transaction_writes_a_batch() {
        let bed = Bed::new(SMALL);
        assert_eq!(bed.run(1, 10).1.user_bytes, 10 * SMALL.shape().bytes_per_operation);
        let shape = TailLatency { tables: 1, written: 1, batch: 1, ..SMALL }.shape();
        assert_eq!(
            (shape.about.as_str(), shape.tables.len()),
            ("100 rows, 20-byte keys, 100-byte values", 1)
        );
        assert!(SMALL.shape().about.contains("100 rows in 3 of 5 tables"), "{}", SMALL.shape().about);
    }

    #[test]
    fn a_row_that_is_lost_torn_or_foreign_is_noticed() {
        let (bed, _) = Bed::checked(SMALL, 1, 10);
        let value = |row, write| {
            let mut value = vec![0; 100];
            Seal { row, write }.write_over(&mut value);
            value
        };
        let key = |row| {
            let mut key = vec![0; 20];
            write_key(&mut key, row);
            key
        };
        let (untouched, of_row_0) = (value(100, 0), bed.rows(0).remove(0).1);
        let written = "what was never written there";
        bed.check_fails("holds 33 rows instead of 34", 0, (&key(0), Some(&of_row_0), None));
        bed.check_fails("holds 0 rows instead of 1", 3, (&key(0), Some(&untouched), None));
        // Of another table, of another row of the table, torn.
        bed.check_fails(written, 0, (&key(0), Some(&of_row_0), Some(&value(1, 9))));
        bed.check_fails(written, 0, (&key(0), Some(&of_row_0), Some(&value(3, 9))));
        bed.check_fails(written, 0, (&key(0), Some(&of_row_0), Some(&[1; 100])));
        bed.check_fails(written, 3, (&key(0), Some(&untouched), Some(&value(100, 9))));
    }

    #[test]
    fn there_are_names_for_as_many_tables_as_are_allowed() {
        let names = TailLatency { tables: TailLatency::TABLES_MAX, ..SMALL }.names();
        assert_eq!((names.len(), names[0], names[99_999]), (100_000, "t00000", "t99999"));
    }
}
