//! The number of rows, and of bytes.

use super::schema::DISTRICTS;

/// The initial number of rows of TPC-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Scale {
    /// At least 1.
    pub warehouses: u16,
    /// At least 1. Each warehouse has a row of stock for each.
    pub items: u32,
    /// At least 1. Each has made one payment.
    pub customers_per_district: u32,
    /// Three in ten of them are not delivered.
    pub orders_per_district: u32,
}

impl Scale {
    /// The specification's rows for this many warehouses.
    pub fn full(warehouses: u16) -> Scale {
        Scale { warehouses, items: 100_000, customers_per_district: 3000, orders_per_district: 3000 }
    }

    /// The rows for this many warehouses, to the next whole one, at least one; with less than one warehouse, that share
    /// of one's rows, which the specification does not allow.
    pub fn fraction(warehouses: f64) -> Scale {
        let full = Scale::full(warehouses.round().clamp(1.0, u16::MAX.into()) as u16);
        let fraction = warehouses.clamp(0.0, 1.0);
        let shrunk = |rows: u32, min: u32| ((f64::from(rows) * fraction) as u32).max(min);
        Scale {
            warehouses: full.warehouses,
            items: shrunk(full.items, 100),
            customers_per_district: shrunk(full.customers_per_district, 30),
            orders_per_district: shrunk(full.orders_per_district, 30),
        }
    }

    pub(super) fn districts(&self) -> u64 {
        u64::from(self.warehouses) * u64::from(DISTRICTS)
    }

    pub(super) fn delivered_per_district(&self) -> u32 {
        (u64::from(self.orders_per_district) * 7 / 10) as u32
    }

    /// Bytes of all keys and values, as rows of average length have them.
    pub(super) fn loaded_bytes(&self) -> u64 {
        let [warehouses, items] = [self.warehouses.into(), u64::from(self.items)];
        let customers = self.districts() * u64::from(self.customers_per_district);
        let orders = self.districts() * u64::from(self.orders_per_district);
        let waiting = self.districts() * u64::from(self.orders_per_district - self.delivered_per_district());
        warehouses * WAREHOUSE_BYTES
            + self.districts() * DISTRICT_BYTES
            + items * ITEM_BYTES
            + warehouses * items * STOCK_BYTES
            + customers * (CUSTOMER_BYTES + HISTORY_BYTES)
            + orders * ORDER_BYTES
            + waiting * NEW_ORDER_BYTES
    }
}

const ADDRESS_BYTES: u64 = 3 * (1 + 15) + 2 + 9;
const WAREHOUSE_BYTES: u64 = 2 + (1 + 8) + ADDRESS_BYTES + 2 + 8;
const DISTRICT_BYTES: u64 = 3 + (1 + 8) + ADDRESS_BYTES + 2 + 8 + 4 + 4;
/// With the index entry; names have 12 letters, and a length more than 127 takes two bytes.
const CUSTOMER_BYTES: u64 =
    CUSTOMER_ENTRY_BYTES + 7 + CUSTOMER_NAMES_BYTES + ADDRESS_BYTES + 16 + CUSTOMER_NUMBERS_BYTES + 402;
const CUSTOMER_NAMES_BYTES: u64 = (1 + 12) + 2 + (1 + 12);
const CUSTOMER_NUMBERS_BYTES: u64 = 8 + 2 + 8 + 2 + 8 + 8 + 4 + 4;
const CUSTOMER_ENTRY_BYTES: u64 = 3 + 13 + 13 + 4;
const ITEM_BYTES: u64 = 4 + 4 + (1 + 19) + 4 + (1 + 38);
const STOCK_BYTES: u64 = 6 + 2 + 240 + 4 + 4 + 4 + (1 + 38);
const NEW_ORDER_BYTES: u64 = 7;
/// A payment's row. The population's has text of 18 letters, a payment's two names of 8 and four blanks.
pub(super) const HISTORY_BYTES: u64 = 7 + 4 + 1 + 2 + 8 + 4 + (1 + 19);
/// With the index entry and ten lines.
pub(super) const ORDER_BYTES: u64 = (7 + 15) + 11 + LINES * LINE_BYTES;
const LINE_BYTES: u64 = 8 + 4 + 2 + 8 + 1 + 4 + 24;
const LINES: u64 = 10;

/// The bytes that a transaction writes, averaged over the deck: ten new-orders, ten payments, a delivery of ten orders.
pub(super) const WRITTEN_BYTES: u64 = (10
    * (DISTRICT_BYTES + ORDER_BYTES + NEW_ORDER_BYTES + LINES * STOCK_BYTES)
    + 10 * (WAREHOUSE_BYTES + DISTRICT_BYTES + CUSTOMER_BYTES - CUSTOMER_ENTRY_BYTES + HISTORY_BYTES)
    + 10 * (NEW_ORDER_BYTES + ORDER_BYTES - 11 + CUSTOMER_BYTES - CUSTOMER_ENTRY_BYTES))
    / 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_warehouse_is_one_with_fewer_rows() {
        assert_eq!(Scale::fraction(1.0), Scale::full(1));
        assert_eq!(Scale::fraction(2.6), Scale::full(3));
        assert_eq!(Scale::fraction(1e9).warehouses, u16::MAX);
        let tenth =
            Scale { warehouses: 1, items: 10_000, customers_per_district: 300, orders_per_district: 300 };
        assert_eq!(Scale::fraction(0.1), tenth);
        assert_eq!(Scale::fraction(0.0).items, 100);
    }

    #[test]
    fn three_in_ten_orders_wait() {
        assert_eq!(Scale::full(1).delivered_per_district(), 2100);
        assert_eq!(Scale { orders_per_district: 1, ..Scale::full(1) }.delivered_per_district(), 0);
    }
}
