//! `tpcc`: the order processing of a wholesale supplier.

mod check;
mod customers;
mod delivery;
mod new_order;
mod order_status;
mod payment;
mod populate;
mod random;
mod rows;
mod scale;
mod schema;
mod stock_level;
mod terminal;

#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod tests;

pub use self::scale::Scale;

use self::populate::Population;
use self::terminal::Terminal;
use super::rows::fill;
use super::{Client, Done, Filling, Shape, Workload};
use crate::Result;
use crate::engine::{Needs, Store};

/// The seed of all random numbers.
const SEED: u64 = 5_110_000;

/// The indexes of the transactions in [`Shape::kinds`].
const NEW_ORDER: usize = 0;
const PAYMENT: usize = 1;
const ORDER_STATUS: usize = 2;
const DELIVERY: usize = 3;
const STOCK_LEVEL: usize = 4;

/// TPC-C by its specification 5.11, on key-value tables. The requirements of a result beside the transactions are not
/// met here, so figures are no `tpmC`.
///
/// Nine tables, and indexes of the customers by last name and of the orders by customer. The rows are those of the
/// specification in a binary format; a district also counts the history rows of its payments, which are their keys.
///
/// Each thread is a terminal. The terminal of thread t works for warehouse t modulo the number of warehouses; its
/// stock-levels are of one district. It does one transaction after the other, without keying and think times, in the
/// order of a shuffled deck with ten new-orders, ten payments and one of each other kind.
///
/// - The lines of a new-order are processed in the order of their stock, so that engines with locks take them in one
///   order; the unused item of the one in a hundred that is rolled back comes last.
/// - A delivery delivers the oldest order of each of the ten districts at once and in one transaction; a district
///   without one is skipped.
/// - Order-status and stock-level only read.
/// - Dates are those of a clock of the terminal that ticks once a transaction that writes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tpcc {
    /// The rows.
    pub scale: Scale,
    /// Whether engines must keep to their memory limit.
    pub bounded: bool,
}

impl Workload for Tpcc {
    fn shape(&self) -> Shape {
        let Scale { warehouses, items, customers_per_district, orders_per_district } = self.scale;
        Shape {
            name: "tpcc".into(),
            about: format!(
                "{warehouses} warehouses with {items} items and 10 districts, {customers_per_district} customers and \
                 {orders_per_district} orders a district, no think times"
            ),
            tables: schema::TABLES,
            needs: Needs { transactions: true, bounded_memory: self.bounded, ..Needs::default() },
            kinds: &["new-order", "payment", "order-status", "delivery", "stock-level"],
            loaded_bytes: self.scale.loaded_bytes(),
            bytes_per_operation: scale::WRITTEN_BYTES,
            ..Shape::default()
        }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let mut population = Population::new(self.scale);
        let units = Population::units(&self.scale);
        let unit_bytes = self.scale.loaded_bytes() / units;
        fill(store, 0..units, unit_bytes, filling, |unit, open| population.put(unit, open))
    }

    fn client(&self, thread: u32, _: u32) -> Client {
        let mut terminal = Terminal::new(self.scale, thread);
        Box::new(move |session| terminal.step(session))
    }

    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        check::conditions(store)?;
        check::indexes(store)?;
        done.map_or(Ok(()), |done| check::counts(store, &self.scale, done))
    }

    /// To about a percent: the bytes that payments add to the data of customers are not known.
    fn live_bytes(&self, done: &Done) -> Option<u64> {
        let [orders, payments] = [NEW_ORDER, PAYMENT].map(|kind| done.kinds.get(kind).copied());
        Some(self.scale.loaded_bytes() + orders? * scale::ORDER_BYTES + payments? * scale::HISTORY_BYTES)
    }
}
