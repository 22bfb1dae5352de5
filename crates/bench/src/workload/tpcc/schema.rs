//! Tables and keys. Numbers in keys are big-endian, so that keys are in the order of their numbers.

use super::super::fields::concat;

/// The tables by number: nine of the specification, and two indexes.
pub(super) const TABLES: &[&str] = &[
    "warehouse",
    "district",
    "customer",
    "customer_by_name",
    "history",
    "new_order",
    "orders",
    "orders_by_customer",
    "order_line",
    "item",
    "stock",
];

pub(super) const WAREHOUSE: usize = 0;
pub(super) const DISTRICT: usize = 1;
pub(super) const CUSTOMER: usize = 2;
/// Key: the district, the last name and the first name, each ended by a zero byte, the customer. No value.
pub(super) const CUSTOMER_BY_NAME: usize = 3;
pub(super) const HISTORY: usize = 4;
/// Orders that are not delivered. No value.
pub(super) const NEW_ORDER: usize = 5;
pub(super) const ORDERS: usize = 6;
/// Key: the customer, the order. No value.
pub(super) const ORDERS_BY_CUSTOMER: usize = 7;
pub(super) const ORDER_LINE: usize = 8;
pub(super) const ITEM: usize = 9;
pub(super) const STOCK: usize = 10;

/// Districts of a warehouse, numbered from 1.
pub(super) const DISTRICTS: u8 = 10;

/// A district of a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DistrictId {
    pub warehouse: u16,
    pub district: u8,
}

/// A customer of a district.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CustomerId {
    pub home: DistrictId,
    pub customer: u32,
}

/// An order of a district.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderId {
    pub district: DistrictId,
    pub order: u32,
}

impl DistrictId {
    pub fn key(self) -> [u8; 3] {
        let [high, low] = self.warehouse.to_be_bytes();
        [high, low, self.district]
    }

    /// The district that a key begins with.
    pub fn of_key(key: &[u8]) -> Option<DistrictId> {
        let &[high, low, district] = key.first_chunk()?;
        Some(DistrictId { warehouse: u16::from_be_bytes([high, low]), district })
    }

    /// The key of one of its rows: customers, orders and history rows are numbered in their district.
    fn row_key(self, number: u32) -> [u8; 7] {
        concat([&self.key(), &number.to_be_bytes()])
    }

    /// The key of its history row with this number.
    pub fn history_key(self, number: u32) -> [u8; 7] {
        self.row_key(number)
    }

    /// The prefix of the keys of [`CUSTOMER_BY_NAME`] with this last name, into `key`.
    pub fn name_prefix(self, last: &[u8], key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.key());
        key.extend_from_slice(last);
        key.push(0);
    }
}

impl CustomerId {
    pub fn key(self) -> [u8; 7] {
        self.home.row_key(self.customer)
    }

    /// The key in [`CUSTOMER_BY_NAME`], into `key`.
    pub fn name_key(self, last: &[u8], first: &[u8], key: &mut Vec<u8>) {
        self.home.name_prefix(last, key);
        key.extend_from_slice(first);
        key.push(0);
        key.extend_from_slice(&self.customer.to_be_bytes());
    }

    /// The key of one of its orders in [`ORDERS_BY_CUSTOMER`].
    pub fn order_key(self, order: u32) -> [u8; 11] {
        concat([&self.key(), &order.to_be_bytes()])
    }
}

impl OrderId {
    /// The key in [`ORDERS`] and in [`NEW_ORDER`].
    pub fn key(self) -> [u8; 7] {
        self.district.row_key(self.order)
    }

    /// The key of one of its lines.
    pub fn line_key(self, number: u8) -> [u8; 8] {
        concat([&self.key(), &[number]])
    }
}

pub(super) fn warehouse_key(warehouse: u16) -> [u8; 2] {
    warehouse.to_be_bytes()
}

pub(super) fn item_key(item: u32) -> [u8; 4] {
    item.to_be_bytes()
}

pub(super) fn stock_key(warehouse: u16, item: u32) -> [u8; 6] {
    concat([&warehouse.to_be_bytes(), &item.to_be_bytes()])
}

/// The number that a key ends with: a customer, an order.
pub(super) fn last_number(key: &[u8]) -> Option<u32> {
    key.last_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The number of the order that the key of a line belongs to.
#[cfg(test)]
pub(super) fn order_of_line(key: &[u8]) -> Option<u32> {
    last_number(key.split_last()?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn district(warehouse: u16, district: u8) -> DistrictId {
        DistrictId { warehouse, district }
    }

    #[test]
    fn keys_are_in_the_order_of_their_numbers() {
        let ids = [(1, 1, 255), (1, 1, 256), (1, 2, 1), (1, 10, 1), (2, 1, 1), (256, 1, 1)];
        let orders = ids.map(|(w, d, order)| OrderId { district: district(w, d), order });
        assert!(orders.map(OrderId::key).is_sorted());
        assert!(orders.map(|order| order.line_key(15)).is_sorted());
        assert!(orders[0].line_key(15) < orders[1].line_key(1));
        assert!(stock_key(1, 100_000) < stock_key(2, 1));
        assert!(warehouse_key(255) < warehouse_key(256) && item_key(255) < item_key(256));
        let customer = |customer| CustomerId { home: district(1, 1), customer };
        assert!(customer(1).order_key(u32::MAX) < customer(2).order_key(0));
    }

    #[test]
    fn names_are_in_the_order_of_last_then_first_then_number() {
        let home = district(1, 2);
        let names: [(&[u8], &[u8], u32); 5] = [
            (b"BAR", b"z", 9),
            (b"BARA", b"a", 1),
            (b"BARA", b"ab", 1),
            (b"BARA", b"ab", 300),
            (b"C", b"", 0),
        ];
        let keys = names.map(|(last, first, customer)| {
            let mut key = Vec::new();
            CustomerId { home, customer }.name_key(last, first, &mut key);
            assert_eq!((DistrictId::of_key(&key), last_number(&key)), (Some(home), Some(customer)));
            key
        });
        assert!(keys.is_sorted());
        let mut prefix = Vec::new();
        home.name_prefix(b"BAR", &mut prefix);
        assert_eq!(keys.iter().filter(|key| key.starts_with(&prefix)).count(), 1);
    }

    #[test]
    fn numbers_are_read_back_from_keys() {
        let order = OrderId { district: district(700, 10), order: 3001 };
        assert_eq!(DistrictId::of_key(&order.key()), Some(order.district));
        assert_eq!(last_number(&order.key()), Some(3001));
        assert_eq!(order_of_line(&order.line_key(7)), Some(3001));
        assert_eq!(DistrictId::of_key(&[1, 2]), None);
    }
}
