//! The order-status transaction: the state of a customer's newest order.

use std::hint::black_box;

use super::customers::Choice;
use super::rows::{Customer, Order, OrderLine, bad, decoded, get};
use super::schema::{CustomerId, ORDER_LINE, ORDERS_BY_CUSTOMER, OrderId, last_number};
use super::terminal::{Buffers, Terminal};
use crate::Result;
use crate::engine::{Range, Transaction};

/// The input of the terminal.
pub(super) struct OrderStatus {
    pub customer: Choice,
}

impl OrderStatus {
    pub fn pick(terminal: &mut Terminal) -> OrderStatus {
        let home = terminal.any_district(terminal.warehouse);
        OrderStatus { customer: terminal.choose_customer(home) }
    }

    /// The newest order; `None` for a customer without orders.
    pub fn run(&self, open: &mut dyn Transaction, buffers: &mut Buffers) -> Result<Option<OrderId>> {
        let customer = self.customer.find(open, &mut buffers.key)?;
        let row: Customer<'_> = get(open, &customer.key(), &mut buffers.row)?;
        black_box(row.balance);
        let newest = newest_order(open, customer)?;
        if let Some(id) = newest {
            let order: Order = get(open, &id.key(), &mut buffers.row)?;
            black_box((order, lines_amount(open, id, &order)?));
        }
        Ok(newest)
    }
}

fn newest_order(open: &mut dyn Transaction, customer: CustomerId) -> Result<Option<OrderId>> {
    let mut newest = None;
    let end = customer.order_key(u32::MAX);
    open.scan(Range::reverse(ORDERS_BY_CUSTOMER, Some(&end)), &mut |key, _| {
        newest = last_number(key).filter(|_| key.starts_with(&customer.key()));
        Ok(false)
    })?;
    Ok(newest.map(|order| OrderId { district: customer.home, order }))
}

/// The sum of an order's lines, cents.
fn lines_amount(open: &mut dyn Transaction, id: OrderId, order: &Order) -> Result<u64> {
    let (mut lines, mut amount) = (0, 0);
    open.scan(Range::forward(ORDER_LINE, Some(&id.line_key(1))), &mut |key, value| {
        if !key.starts_with(&id.key()) {
            return Ok(false);
        }
        let line: OrderLine<'_> = decoded(key, value)?;
        lines += 1;
        amount += u64::from(line.amount);
        Ok(lines < order.lines)
    })?;
    match lines == order.lines {
        true => Ok(amount),
        false => Err(bad(ORDER_LINE, &id.line_key(lines + 1), "is not there")),
    }
}
