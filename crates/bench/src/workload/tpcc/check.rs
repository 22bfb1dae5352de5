//! Conditions that hold at any moment: the consistency conditions 1 to 4 of clause 3.3.2 of the specification.

use std::collections::BTreeMap;

use super::super::rows::{check_rows, count_rows, read_all};
use super::rows::{District, Order, Row, Warehouse};
use super::schema::{
    self, CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, DistrictId, HISTORY, NEW_ORDER, ORDER_LINE, ORDERS,
    ORDERS_BY_CUSTOMER, TABLES, WAREHOUSE,
};
use super::{Done, Scale};
use crate::engine::Store;
use crate::{Error, Result};

type ByDistrict<T> = BTreeMap<DistrictId, T>;

/// The rows of a table in one district.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    rows: u64,
    /// The smallest and the largest number of an order.
    first: u32,
    last: u32,
    /// How many lines the orders say they have.
    lines: u64,
}

/// The conditions 1 to 4.
pub(super) fn conditions(store: &dyn Store) -> Result<()> {
    let mut districts = ByDistrict::<(i64, u32)>::new();
    read_all(store, DISTRICT, |key, value| {
        let row: District<'_> = written(value)?;
        districts.insert(district_of(DISTRICT, key)?, (row.ytd, row.next_order));
        Ok(())
    })?;
    condition_1(store, &districts)?;

    let orders = numbers(store, ORDERS)?;
    let new_orders = numbers(store, NEW_ORDER)?;
    let mut lines = ByDistrict::<u64>::new();
    read_all(store, ORDER_LINE, |key, _| {
        *lines.entry(district_of(ORDER_LINE, key)?).or_default() += 1;
        Ok(())
    })?;
    for (id, (_, next_order)) in &districts {
        let [orders, waiting] = [&orders, &new_orders].map(|all| all.get(id).copied().unwrap_or_default());
        let lines = lines.get(id).copied().unwrap_or_default();
        condition_2(*id, *next_order, orders, waiting)?;
        condition_3(*id, waiting)?;
        condition_4(*id, orders, lines)?;
    }
    let stray = [orders.keys(), new_orders.keys()].into_iter().flatten().chain(lines.keys());
    match stray.into_iter().find(|id| !districts.contains_key(id)) {
        Some(DistrictId { warehouse, district }) => Err(Error::Wrong(format!(
            "there are orders of district {district} of warehouse {warehouse}, but not it"
        ))),
        None => Ok(()),
    }
}

/// A warehouse has taken as much as its districts together.
fn condition_1(store: &dyn Store, districts: &ByDistrict<(i64, u32)>) -> Result<()> {
    let mut sums = BTreeMap::<u16, i64>::new();
    for (id, (ytd, _)) in districts {
        *sums.entry(id.warehouse).or_default() += ytd;
    }
    let mut said = BTreeMap::<u16, i64>::new();
    read_all(store, WAREHOUSE, |key, value| {
        let row: Warehouse<'_> = written(value)?;
        let number = key.try_into().map(u16::from_be_bytes);
        said.insert(number.map_err(|_| strange(WAREHOUSE))?, row.ytd);
        Ok(())
    })?;
    match said.iter().find(|(warehouse, ytd)| sums.get(warehouse) != Some(ytd)) {
        Some((warehouse, ytd)) => Err(Error::Wrong(format!(
            "warehouse {warehouse} has taken {ytd} cents, and its districts {:?} (condition 1)",
            sums.get(warehouse)
        ))),
        None if said.len() != sums.len() => Err(Error::Wrong(format!(
            "{} warehouses are there, and districts of {} (condition 1)",
            said.len(),
            sums.len()
        ))),
        None => Ok(()),
    }
}

/// The newest order is the one before the next; so is the newest that is not delivered, if there is any.
fn condition_2(id: DistrictId, next_order: u32, orders: Numbers, waiting: Numbers) -> Result<()> {
    let newest = next_order.checked_sub(1);
    let is_same = |numbers: Numbers| Some(numbers.last) == newest;
    holds(is_same(orders) && (waiting.rows == 0 || is_same(waiting)), id, || {
        let (order, waits) = (orders.last, waiting.last);
        format!(
            "has {next_order} as its next order, {order} as its newest, {waits} undelivered (condition 2)"
        )
    })
}

/// The orders that are not delivered have all numbers from the first to the last.
fn condition_3(id: DistrictId, waiting: Numbers) -> Result<()> {
    let Numbers { rows, first, last, .. } = waiting;
    holds(rows == 0 || u64::from(last - first) + 1 == rows, id, || {
        format!("has {rows} undelivered orders from {first} to {last} (condition 3)")
    })
}

/// There are as many lines as the orders say.
fn condition_4(id: DistrictId, orders: Numbers, lines: u64) -> Result<()> {
    holds(orders.lines == lines, id, || {
        format!("has {lines} order lines, and orders with {} (condition 4)", orders.lines)
    })
}

fn holds(condition: bool, id: DistrictId, what: impl FnOnce() -> String) -> Result<()> {
    let DistrictId { warehouse, district } = id;
    match condition {
        true => Ok(()),
        false => Err(Error::Wrong(format!("district {district} of warehouse {warehouse} {}", what()))),
    }
}

/// Every customer and every order is in its index.
pub(super) fn indexes(store: &dyn Store) -> Result<()> {
    for (table, index) in [(CUSTOMER, CUSTOMER_BY_NAME), (ORDERS, ORDERS_BY_CUSTOMER)] {
        check_rows(store, index, TABLES[index], count_rows(store, table)?)?;
    }
    Ok(())
}

/// There are as many orders and payments as were made.
pub(super) fn counts(store: &dyn Store, scale: &Scale, done: &Done) -> Result<()> {
    let filled = [(ORDERS, scale.orders_per_district), (HISTORY, scale.customers_per_district)];
    for ((table, per_district), made) in filled.into_iter().zip([super::NEW_ORDER, super::PAYMENT]) {
        let made = done.kinds.get(made).copied().unwrap_or_default();
        check_rows(store, table, TABLES[table], scale.districts() * u64::from(per_district) + made)?;
    }
    Ok(())
}

/// The orders of each district in a table with the key of an order.
fn numbers(store: &dyn Store, table: usize) -> Result<ByDistrict<Numbers>> {
    let mut all = ByDistrict::<Numbers>::new();
    read_all(store, table, |key, value| {
        let number = schema::last_number(key).ok_or_else(|| strange(table))?;
        let lines = match table {
            ORDERS => written::<Order>(value)?.lines.into(),
            _ => 0,
        };
        let numbers = all.entry(district_of(table, key)?).or_default();
        if numbers.rows == 0 {
            numbers.first = number;
        }
        numbers.rows += 1;
        numbers.last = number;
        numbers.lines += lines;
        Ok(())
    })?;
    Ok(all)
}

fn district_of(table: usize, key: &[u8]) -> Result<DistrictId> {
    DistrictId::of_key(key).ok_or_else(|| strange(table))
}

/// The row as it was written.
fn written<'a, R: Row<'a>>(value: &'a [u8]) -> Result<R> {
    R::decode(value).ok_or_else(|| strange(R::TABLE))
}

fn strange(table: usize) -> Error {
    Error::Wrong(format!("the table `{}` has a row that was never written", TABLES[table]))
}
