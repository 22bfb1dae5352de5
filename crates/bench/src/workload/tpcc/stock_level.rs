//! The stock-level transaction: how many recently ordered items have low stock.

use super::rows::{District, OrderLine, Stock, decoded, get};
use super::schema::{self, DistrictId, ORDER_LINE, OrderId};
use super::terminal::{Buffers, Terminal};
use crate::Result;
use crate::engine::{Range, Transaction};

/// How many orders it reads.
const ORDERS: u32 = 20;

/// The input of the terminal.
pub(super) struct StockLevel {
    pub district: DistrictId,
    pub threshold: u16,
}

impl StockLevel {
    pub fn pick(terminal: &mut Terminal) -> StockLevel {
        let Terminal { warehouse, district, .. } = *terminal;
        let threshold = terminal.random.within(10, 20) as u16;
        StockLevel { district: DistrictId { warehouse, district }, threshold }
    }

    /// The number of items whose stock is below the threshold.
    pub fn run(&self, open: &mut dyn Transaction, buffers: &mut Buffers) -> Result<u64> {
        let district: District<'_> = get(open, &self.district.key(), &mut buffers.row)?;
        let mut low = 0;
        for item in self.items(open, district.next_order)? {
            let key = schema::stock_key(self.district.warehouse, item);
            let stock: Stock<'_> = get(open, &key, &mut buffers.row)?;
            low += u64::from(stock.quantity < self.threshold);
        }
        Ok(low)
    }

    /// The items of the last orders, each once.
    fn items(&self, open: &mut dyn Transaction, next_order: u32) -> Result<Vec<u32>> {
        let first = OrderId { district: self.district, order: next_order.saturating_sub(ORDERS) };
        let end = OrderId { district: self.district, order: next_order }.key();
        let mut items = Vec::new();
        open.scan(Range::forward(ORDER_LINE, Some(&first.key())), &mut |key, value| {
            if key >= &end[..] {
                return Ok(false);
            }
            let line: OrderLine<'_> = decoded(key, value)?;
            items.push(line.item);
            Ok(true)
        })?;
        items.sort_unstable();
        items.dedup();
        Ok(items)
    }
}
