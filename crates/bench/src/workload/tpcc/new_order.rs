//! The new-order transaction: a customer orders up to fifteen items.

use std::hint::black_box;

use super::random::is_original;
use super::rows::{
    Customer, District, Item, Order, OrderLine, Stock, Warehouse, decoded, get, get_for_update, put,
};
use super::schema::{self, CustomerId, DistrictId, ITEM, OrderId};
use super::terminal::{Buffers, Terminal};
use crate::Result;
use crate::engine::{Transaction, Verdict};

/// The input of the terminal.
pub(super) struct NewOrder {
    pub customer: CustomerId,
    pub entered_ms: u64,
    /// In the order of processing.
    pub lines: Vec<Line>,
}

/// One of the items that are ordered.
pub(super) struct Line {
    /// From 1.
    pub number: u8,
    pub item: u32,
    pub supplier: u16,
    pub quantity: u8,
}

impl NewOrder {
    pub fn pick(terminal: &mut Terminal) -> NewOrder {
        let home = terminal.any_district(terminal.warehouse);
        let customer = terminal.any_customer(home);
        let lines = terminal.random.within(5, 15) as u8;
        let mut lines: Vec<Line> = (1..=lines).map(|number| Line::pick(terminal, number)).collect();
        let unused = terminal.scale.items + 1;
        if terminal.chance(1, 100) {
            lines.last_mut().expect("five at least").item = unused;
        }
        lines.sort_by_key(|line| (line.item == unused, line.supplier, line.item));
        NewOrder { customer, entered_ms: terminal.tick(), lines }
    }

    pub fn run(&self, open: &mut dyn Transaction, buffers: &mut Buffers) -> Result<Verdict> {
        let home = self.customer.home;
        let warehouse: Warehouse<'_> = get(open, &schema::warehouse_key(home.warehouse), &mut buffers.row)?;
        let warehouse_tax = warehouse.tax;

        let mut district: District<'_> = get_for_update(open, &home.key(), &mut buffers.row)?;
        let order = OrderId { district: home, order: district.next_order };
        let tax = i64::from(warehouse_tax) + i64::from(district.tax);
        district.next_order += 1;
        put(open, &home.key(), &district, &mut buffers.out)?;

        let customer: Customer<'_> = get(open, &self.customer.key(), &mut buffers.row)?;
        let discount = i64::from(customer.discount);
        self.put_order(open, order, &mut buffers.out)?;

        let mut sum = 0;
        for line in &self.lines {
            match line.sell(open, order, buffers)? {
                Some(amount) => sum += i64::from(amount),
                None => return Ok(Verdict::Rollback),
            }
        }
        let total = sum * (10_000 - discount) / 10_000 * (10_000 + tax) / 10_000;
        black_box(total);
        Ok(Verdict::Commit)
    }

    fn put_order(&self, open: &mut dyn Transaction, order: OrderId, out: &mut Vec<u8>) -> Result<()> {
        let home = self.customer.home.warehouse;
        let row = Order {
            customer: self.customer.customer,
            entered_ms: self.entered_ms,
            carrier: 0,
            lines: self.lines.len() as u8,
            all_local: self.lines.iter().all(|line| line.supplier == home).into(),
        };
        put(open, &order.key(), &row, out)?;
        open.put(schema::ORDERS_BY_CUSTOMER, &self.customer.order_key(order.order), &[])?;
        open.put(schema::NEW_ORDER, &order.key(), &[])
    }
}

impl Line {
    fn pick(terminal: &mut Terminal, number: u8) -> Line {
        let item = terminal.skews.item.pick(&mut terminal.random, 1, terminal.scale.items);
        let is_remote = terminal.chance(1, 100);
        let supplier = if is_remote { terminal.other_warehouse() } else { terminal.warehouse };
        Line { number, item, supplier, quantity: terminal.random.within(1, 10) as u8 }
    }

    /// Takes the item from the stock and writes the line; its amount, `None` if there is no such item.
    fn sell(&self, open: &mut dyn Transaction, order: OrderId, buffers: &mut Buffers) -> Result<Option<u32>> {
        let DistrictId { warehouse: home, district } = order.district;
        let Buffers { row, other, out, .. } = buffers;
        let item_key = schema::item_key(self.item);
        if !open.get(ITEM, &item_key, row)? {
            return Ok(None);
        }
        let item: Item<'_> = decoded(&item_key, row)?;

        let stock_key = schema::stock_key(self.supplier, self.item);
        let mut stock: Stock<'_> = get_for_update(open, &stock_key, other)?;
        stock.quantity = left(stock.quantity, self.quantity);
        stock.ytd += u32::from(self.quantity);
        stock.orders += 1;
        stock.remote_orders += u32::from(self.supplier != home);
        put(open, &stock_key, &stock, out)?;

        let amount = u32::from(self.quantity) * item.price;
        let line = OrderLine {
            item: self.item,
            supplier: self.supplier,
            delivered_ms: 0,
            quantity: self.quantity,
            amount,
            district_info: stock.district_info(district),
        };
        put(open, &order.line_key(self.number), &line, out)?;
        black_box(is_original(item.data) && is_original(stock.data));
        Ok(Some(amount))
    }
}

/// The stock after a sale: a stock that would fall below ten is first increased by 91.
fn left(stock: u16, taken: u8) -> u16 {
    let taken = u16::from(taken);
    if stock >= taken + 10 { stock - taken } else { stock + 91 - taken }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tpcc::Scale;

    #[test]
    fn stock_is_filled_up_before_less_than_ten_are_left() {
        assert_eq!(
            [(20, 10), (19, 10), (11, 1), (10, 1), (100, 5)].map(|(s, q)| left(s, q)),
            [10, 100, 10, 100, 95]
        );
    }

    #[test]
    fn orders_are_as_the_rules_want() {
        let scale = Scale { warehouses: 2, items: 1000, ..Scale::fraction(0.01) };
        let mut terminal = Terminal::new(scale, 0);
        let (mut unused, mut remote, mut lines) = (0, 0, 0);
        for _ in 0..20_000 {
            let input = NewOrder::pick(&mut terminal);
            assert!((5..=15).contains(&input.lines.len()) && input.customer.home.warehouse == 1);
            let mut numbers: Vec<u8> = input.lines.iter().map(|line| line.number).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(1..=input.lines.len() as u8));
            assert!(input.lines.iter().all(|line| (1..=10).contains(&line.quantity)));
            let (last, others) = input.lines.split_last().expect("five at least");
            assert!(others.iter().all(|line| (1..=1000).contains(&line.item)));
            unused += u32::from(last.item == 1001);
            assert!(last.item != 1001 || usize::from(last.number) == input.lines.len(), "the last one");
            remote += input.lines.iter().filter(|line| line.supplier != 1).count();
            lines += input.lines.len();
        }
        assert!((140..260).contains(&unused), "{unused}");
        let share = remote as f64 / lines as f64;
        assert!((0.008..0.012).contains(&share), "{share}");
    }
}
