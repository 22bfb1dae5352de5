//! The delivery transaction: a carrier takes the oldest order of each district.

use super::rows::{Customer, Order, OrderLine, get_for_update, put};
use super::schema::{CustomerId, DISTRICTS, DistrictId, NEW_ORDER, OrderId, last_number};
use super::terminal::{Buffers, Terminal};
use crate::engine::{Range, Transaction, Verdict};
use crate::{Error, Result};

/// The input of the terminal.
pub(super) struct Delivery {
    pub warehouse: u16,
    pub carrier: u8,
    pub date_ms: u64,
}

impl Delivery {
    pub fn pick(terminal: &mut Terminal) -> Delivery {
        let carrier = terminal.random.within(1, 10) as u8;
        Delivery { warehouse: terminal.warehouse, carrier, date_ms: terminal.tick() }
    }

    pub fn run(&self, open: &mut dyn Transaction, buffers: &mut Buffers) -> Result<Verdict> {
        for district in 1..=DISTRICTS {
            let district = DistrictId { warehouse: self.warehouse, district };
            if let Some(order) = oldest(open, district)? {
                self.deliver(open, order, buffers)?;
            }
        }
        Ok(Verdict::Commit)
    }

    fn deliver(&self, open: &mut dyn Transaction, id: OrderId, buffers: &mut Buffers) -> Result<()> {
        let Buffers { row, out, .. } = buffers;
        if !open.get_for_update(NEW_ORDER, &id.key(), row)? {
            // Another thread delivered it after the scan: this engine's scans do not lock.
            return Err(Error::Conflict);
        }
        open.delete(NEW_ORDER, &id.key())?;

        let mut order: Order = get_for_update(open, &id.key(), row)?;
        order.carrier = self.carrier;
        put(open, &id.key(), &order, out)?;

        let mut amount = 0;
        for number in 1..=order.lines {
            let mut line: OrderLine<'_> = get_for_update(open, &id.line_key(number), row)?;
            line.delivered_ms = self.date_ms;
            amount += i64::from(line.amount);
            put(open, &id.line_key(number), &line, out)?;
        }

        let customer = CustomerId { home: id.district, customer: order.customer };
        let mut owner: Customer<'_> = get_for_update(open, &customer.key(), row)?;
        owner.balance += amount;
        owner.deliveries += 1;
        put(open, &customer.key(), &owner, out)
    }
}

/// The oldest order of a district that is not delivered.
fn oldest(open: &mut dyn Transaction, district: DistrictId) -> Result<Option<OrderId>> {
    let mut oldest = None;
    let begin = OrderId { district, order: 0 }.key();
    open.scan(Range::forward(NEW_ORDER, Some(&begin)).for_update(), &mut |key, _| {
        oldest = last_number(key).filter(|_| key.starts_with(&district.key()));
        Ok(false)
    })?;
    Ok(oldest.map(|order| OrderId { district, order }))
}
