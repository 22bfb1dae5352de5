//! `load`: filling an empty table, as the measured part.

use super::rows::{Sizes, write_key};
use super::sealed::{Seal, check_seals};
use super::shuffle::Shuffle;
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Store, Verdict};
use crate::{Error, Result};

/// Loads rows into an empty table, as `fillseq`, `fillrandom` and `fillbatch` of LevelDB's benchmark do.
///
/// The rows come in an order ([`Order`]) and are cut into batches; each transaction puts one batch, the last of which
/// may be smaller. Each thread has a contiguous share of the batches. A client is done when it has loaded its share;
/// the time until the last one is done is the result. Keys are the numbers of the rows in decimal.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Load {
    /// How long keys and values are: values at least [`Micro::VALUE_BYTES_MIN`](super::Micro::VALUE_BYTES_MIN).
    pub sizes: Sizes,
    /// At least one.
    pub rows: u64,
    /// Their order.
    pub order: Order,
    /// The rows of a transaction, at least one.
    pub batch: u64,
}

/// The order in which rows are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
pub enum Order {
    /// By their keys.
    Sorted,
    /// Each row once, in an order that looks random and is always the same.
    Random,
}

impl Load {
    fn batches(&self) -> u64 {
        self.rows.div_ceil(self.batch)
    }

    fn rows_of_batch(&self, batch: u64) -> u64 {
        self.batch.min(self.rows - batch * self.batch)
    }

    /// The first of the batches of a thread; those of the last thread end where those of thread `threads` would begin.
    fn first_batch(&self, thread: u32, threads: u32) -> u64 {
        let before = u128::from(self.batches()) * u128::from(thread) / u128::from(threads);
        before as u64
    }
}

impl Workload for Load {
    fn shape(&self) -> Shape {
        let Load { sizes, rows, order, batch } = *self;
        let order = if order == Order::Sorted { "sorted" } else { "random" };
        Shape {
            name: "load".into(),
            about: format!("{rows} rows in {order} order, {sizes}, {batch} rows a transaction"),
            tables: &["rows"],
            kinds: &["batch"],
            bytes_per_operation: batch.min(rows) * sizes.row_bytes(),
            ..Shape::default()
        }
    }

    fn work(&self, _: u32) -> Option<u64> {
        Some(self.batches())
    }

    fn fill(&self, store: &dyn Store, _: &mut Filling<'_>) -> Result<()> {
        store.settle()
    }

    fn client(&self, thread: u32, threads: u32) -> Client {
        let (workload, shuffle) = (*self, Shuffle::new(self.rows));
        let mut batches = self.first_batch(thread, threads)..self.first_batch(thread + 1, threads);
        let mut key = vec![0; self.sizes.key_bytes];
        let mut value = vec![0; self.sizes.value_bytes];
        Box::new(move |session| {
            let Some(batch) = batches.next() else { return Ok(Step::End) };
            let first = batch * workload.batch;
            session.write(|open| {
                for index in first..first + workload.rows_of_batch(batch) {
                    let row = match workload.order {
                        Order::Sorted => index,
                        Order::Random => shuffle.item_at(index),
                    };
                    write_key(&mut key, row);
                    Seal { row, write: batch }.write_over(&mut value);
                    open.put(0, &key, &value)?;
                }
                Ok(Verdict::Commit)
            })?;
            Ok(Step::Done(0))
        })
    }

    /// Each batch is complete or absent, and as many are present as were acknowledged.
    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        let mut key_of_row = vec![0; self.sizes.key_bytes];
        let mut found = vec![0; self.batches() as usize];
        check_seals(store, 0, "rows", |key, seal| {
            write_key(&mut key_of_row, seal.row);
            let rows = found.get_mut(seal.write as usize);
            rows.is_some_and(|rows| {
                *rows += 1;
                key == key_of_row && seal.row < self.rows
            })
        })?;
        for (batch, rows) in (0..).zip(&found) {
            let all = self.rows_of_batch(batch);
            if *rows != 0 && *rows != all {
                return Err(Error::Wrong(format!(
                    "{rows} of the {all} rows of transaction {batch} are there"
                )));
            }
        }
        let whole = found.iter().filter(|rows| **rows > 0).count() as u64;
        match done.map(Done::operations) {
            Some(expected) if expected != whole => {
                Err(Error::Wrong(format!("{whole} transactions are in the store instead of {expected}")))
            }
            _ => Ok(()),
        }
    }

    fn live_bytes(&self, done: &Done) -> Option<u64> {
        let rows = (done.operations() * self.batch).min(self.rows);
        Some(rows * self.sizes.row_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;
    use crate::workload::Micro;

    fn load(rows: u64, order: Order, batch: u64) -> Load {
        Load { sizes: Micro::SIZES, rows, order, batch }
    }

    const ORDERS: [Order; 2] = [Order::Sorted, Order::Random];

    #[test]
    fn all_rows_are_loaded_once() {
        for order in ORDERS {
            for (rows, batch, threads) in [(1, 1, 4), (1000, 1, 1), (1000, 7, 4), (1000, 5000, 4)] {
                let (bed, done) = Bed::checked(load(rows, order, batch), threads, u64::MAX);
                assert_eq!(done.operations(), rows.div_ceil(batch));
                assert_eq!(bed.workload.live_bytes(&done), Some(rows * 120));
            }
        }
    }

    #[test]
    fn a_load_may_end_early() {
        let bed = Bed::new(load(1000, Order::Random, 10));
        let (mut done, _) = bed.run(4, 3);
        assert_eq!(done.operations(), 12);
        bed.check(Some(&done)).expect("all acknowledged rows are there");
        done.kinds[0] += 1;
        assert!(bed.check(Some(&done)).is_err(), "a transaction is missing");
    }

    #[test]
    fn half_a_batch_is_noticed() {
        let (bed, done) = Bed::checked(load(100, Order::Sorted, 10), 1, u64::MAX);
        bed.tamper(|open| open.delete(0, b"00000000000000000055"));
        assert!(bed.check(Some(&done)).is_err());
        assert!(bed.check(None).is_err());
    }
}
