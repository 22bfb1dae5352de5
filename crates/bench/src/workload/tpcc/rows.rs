//! Rows, and their layout in the store: the fields one after another, numbers little-endian, text of varying length
//! after its length. Columns of the key are not in the row.
//!
//! Money is in cents, taxes and discounts in hundredths of a percent, dates in milliseconds since 1970. A row that was
//! read borrows its text from the buffer that it was read into.

use super::super::fields::Field;
use super::schema::{self, TABLES};
use crate::engine::Transaction;
use crate::{Error, Result};

/// The value type of a table.
pub(super) trait Row<'a>: Field<'a> {
    /// The number of the table.
    const TABLE: usize;

    /// Writes the row into `out`, whose former content is gone.
    fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        self.put(out);
    }

    /// Reads a row that `encode` wrote; `None` if the bytes are shorter or longer than a row.
    fn decode(mut bytes: &'a [u8]) -> Option<Self> {
        Self::take(&mut bytes).filter(|_| bytes.is_empty())
    }
}

/// Defines structs of fields in the order of the layout, and the tables of those that are rows.
macro_rules! records {
    (@ $name:ident [] $fields:tt $table:tt) => { records! { @ 'a [$name] $name $fields $table } };
    (@ $name:ident [$life:lifetime] $fields:tt $table:tt) => {
        records! { @ $life [$name<$life>] $name $fields $table }
    };
    (@ $life:lifetime [$type:ty] $name:ident [$($field:ident)*] [$($table:ident)?]) => {
        impl<$life> Field<$life> for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(bytes: &mut &$life [u8]) -> Option<Self> {
                Some($name { $($field: Field::take(bytes)?,)* })
            }
        }

        $(impl<$life> Row<$life> for $type {
            const TABLE: usize = schema::$table;
        })?
    };
    ($($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? $(in $table:ident)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        records! { @ $name [$($life)?] [$($field)*] [$($table)?] }
    )*};
}

records! {
    /// The address of a warehouse, a district or a customer.
    Address<'a> {
        street_1: &'a [u8],
        street_2: &'a [u8],
        city: &'a [u8],
        state: &'a [u8; 2],
        zip: &'a [u8; 9],
    }

    Warehouse<'a> in WAREHOUSE {
        name: &'a [u8],
        address: Address<'a>,
        tax: u16,
        ytd: i64,
    }

    District<'a> in DISTRICT {
        name: &'a [u8],
        address: Address<'a>,
        tax: u16,
        ytd: i64,
        next_order: u32,
        /// History rows are numbered in the district in which the payment was made. The specification has no key for
        /// them, and a table of keys and values needs one.
        next_history: u32,
    }

    Customer<'a> in CUSTOMER {
        first: &'a [u8],
        middle: &'a [u8; 2],
        last: &'a [u8],
        address: Address<'a>,
        phone: &'a [u8; 16],
        since_ms: u64,
        credit: &'a [u8; 2],
        credit_limit: i64,
        discount: u16,
        balance: i64,
        ytd_payment: i64,
        payments: u32,
        deliveries: u32,
        data: &'a [u8],
    }

    History<'a> in HISTORY {
        /// The customer's number, with the two fields after it.
        customer: u32,
        customer_district: u8,
        customer_warehouse: u16,
        date_ms: u64,
        amount: u32,
        data: &'a [u8],
    }

    Order in ORDERS {
        customer: u32,
        entered_ms: u64,
        /// 0 before the delivery.
        carrier: u8,
        lines: u8,
        /// 1 if all items are from the home warehouse, otherwise 0.
        all_local: u8,
    }

    OrderLine<'a> in ORDER_LINE {
        item: u32,
        supplier: u16,
        /// 0 before the delivery.
        delivered_ms: u64,
        quantity: u8,
        amount: u32,
        district_info: &'a [u8; 24],
    }

    Item<'a> in ITEM {
        image_id: u32,
        name: &'a [u8],
        price: u32,
        data: &'a [u8],
    }

    Stock<'a> in STOCK {
        quantity: u16,
        /// 24 letters for each district.
        district_infos: &'a [u8; 240],
        ytd: u32,
        orders: u32,
        remote_orders: u32,
        data: &'a [u8],
    }
}

impl<'a> Stock<'a> {
    /// The text for an order line of this district.
    pub fn district_info(&self, district: u8) -> &'a [u8; 24] {
        let (infos, _) = self.district_infos.as_chunks();
        &infos[usize::from(district) - 1]
    }
}

/// The row of a key that must be there, read into `buffer`.
pub(super) fn get<'a, R: Row<'a>>(
    open: &mut dyn Transaction,
    key: &[u8],
    buffer: &'a mut Vec<u8>,
) -> Result<R> {
    let found = open.get(R::TABLE, key, buffer)?;
    there(found, key, buffer)
}

/// Like [`get`], for a row that is going to be written.
pub(super) fn get_for_update<'a, R: Row<'a>>(
    open: &mut dyn Transaction,
    key: &[u8],
    buffer: &'a mut Vec<u8>,
) -> Result<R> {
    let found = open.get_for_update(R::TABLE, key, buffer)?;
    there(found, key, buffer)
}

fn there<'a, R: Row<'a>>(found: bool, key: &[u8], value: &'a [u8]) -> Result<R> {
    if found { decoded(key, value) } else { Err(bad(R::TABLE, key, "is not there")) }
}

/// Writes a row, encoded in `buffer`.
pub(super) fn put<'a, R: Row<'a>>(
    open: &mut dyn Transaction,
    key: &[u8],
    row: &R,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    row.encode(buffer);
    open.put(R::TABLE, key, buffer)
}

/// The row of `key`.
pub(super) fn decoded<'a, R: Row<'a>>(key: &[u8], value: &'a [u8]) -> Result<R> {
    R::decode(value).ok_or_else(|| bad(R::TABLE, key, "is not as it was written"))
}

/// An error about the row of a key.
pub(super) fn bad(table: usize, key: &[u8], what: &str) -> Error {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    Error::engine("reading", format!("in the table `{}` the row with the key {key} {what}", TABLES[table]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Address<'_> =
        Address { street_1: b"one", street_2: b"", city: b"town", state: b"XY", zip: b"123411111" };

    /// Each is read as it was written; no part of it and no more than it is a row.
    macro_rules! round_trips {
        ($($row:expr => $type:ident,)*) => {$({
            let row = $row;
            let mut bytes = vec![7; 3];
            row.encode(&mut bytes);
            assert_eq!($type::decode(&bytes), Some(row));
            for end in 0..bytes.len() {
                assert_eq!($type::decode(&bytes[..end]), None, "{} of {} bytes", end, bytes.len());
            }
            bytes.push(0);
            assert_eq!($type::decode(&bytes), None);
        })*};
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let long = [b'x'; 500];
        round_trips! {
            Warehouse { name: b"w", address: ADDRESS, tax: 2000, ytd: -30_000_000 } => Warehouse,
            District { name: b"", address: ADDRESS, tax: 1, ytd: i64::MIN, next_order: 3001, next_history: 9 } =>
                District,
            Customer {
                first: b"first", middle: b"OE", last: b"BARBARBAR", address: ADDRESS, phone: b"0123456789012345",
                since_ms: 1, credit: b"BC", credit_limit: 5_000_000, discount: 5000, balance: -1000,
                ytd_payment: 1000, payments: 1, deliveries: 0, data: &long,
            } => Customer,
            History {
                customer: 3000, customer_district: 10, customer_warehouse: 700, date_ms: u64::MAX, amount: 500_000,
                data: &long[..127],
            } => History,
            Order { customer: 1, entered_ms: 2, carrier: 10, lines: 15, all_local: 0 } => Order,
            OrderLine {
                item: 100_000, supplier: 65_535, delivered_ms: 0, quantity: 10, amount: 999_999,
                district_info: &[b'd'; 24],
            } => OrderLine,
            Item { image_id: 1, name: b"name", price: 10_000, data: &long[..128] } => Item,
            Stock {
                quantity: 91, district_infos: &[b's'; 240], ytd: 1, orders: 2, remote_orders: 3, data: &long[..129],
            } => Stock,
        }
    }

    #[test]
    fn the_bytes_of_a_row_are_these() {
        let mut bytes = Vec::new();
        Order { customer: 0x0102, entered_ms: 3, carrier: 4, lines: 5, all_local: 1 }.encode(&mut bytes);
        assert_eq!(bytes, [2, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 5, 1]);
        Item { image_id: 1, name: b"ab", price: 2, data: &[9; 300] }.encode(&mut bytes);
        assert_eq!(bytes[..13], [1, 0, 0, 0, 2, b'a', b'b', 2, 0, 0, 0, 0x81, 0x2c]);
    }

    #[test]
    fn each_district_has_its_own_info() {
        let mut infos = [0; 240];
        for (index, byte) in infos.iter_mut().enumerate() {
            *byte = (index / 24 + 1) as u8;
        }
        let data = b"";
        let stock = Stock { quantity: 0, district_infos: &infos, ytd: 0, orders: 0, remote_orders: 0, data };
        for district in 1..=10 {
            assert_eq!(stock.district_info(district), &[district; 24]);
        }
    }
}
