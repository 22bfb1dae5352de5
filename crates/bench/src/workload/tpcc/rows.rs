//! Rows, and their layout in the store: the fields one after another, numbers little-endian, text of varying length
//! after its length. Columns of the key are not in the row.
//!
//! Money is in cents, taxes and discounts in hundredths of a percent, dates in milliseconds since 1970. A row that was
//! read borrows its text from the buffer that it was read into.

use super::schema::{self, TABLES};
use crate::engine::Transaction;
use crate::{Error, Result};

/// A field of a row.
pub(super) trait Field<'a>: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// Takes the field from the front of `bytes`.
    fn take(bytes: &mut &'a [u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Field<'_> for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                bytes.split_off(..size_of::<$type>())?.try_into().ok().map(<$type>::from_le_bytes)
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 i64 }

/// Text of a fixed length.
impl<'a, const N: usize> Field<'a> for &'a [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(*self);
    }

    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        bytes.split_off(..N)?.try_into().ok()
    }
}

/// Text of varying length, below 2^14: its length in one byte if it is below 128, otherwise in two, of which the first
/// has the upper bits and its highest bit set.
impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        let length = self.len() as u16;
        if length >= 128 {
            out.push(0x80 | (length >> 8) as u8);
        }
        out.push(length as u8);
        out.extend_from_slice(self);
    }

    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let first = u8::take(bytes)?;
        let length = match first & 0x80 {
            0 => first.into(),
            _ => u16::from_be_bytes([first & 0x7f, u8::take(bytes)?]),
        };
        bytes.split_off(..length.into())
    }
}

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

macro_rules! record {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        record! { @ $name [$($life)?] [$($field)*] }
    };
    (@ $name:ident [] $fields:tt) => { record! { @ 'a [$name] $name $fields } };
    (@ $name:ident [$life:lifetime] $fields:tt) => { record! { @ $life [$name<$life>] $name $fields } };
    (@ $life:lifetime [$type:ty] $name:ident [$($field:ident)*]) => {
        impl<$life> Field<$life> for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(bytes: &mut &$life [u8]) -> Option<Self> {
                Some($name { $($field: Field::take(bytes)?,)* })
            }
        }
    };
}

record! {
    /// The address of a warehouse, a district or a customer.
    Address<'a> {
        street_1: &'a [u8],
        street_2: &'a [u8],
        city: &'a [u8],
        state: &'a [u8; 2],
        zip: &'a [u8; 9],
    }
}

record! {
    Warehouse<'a> {
        name: &'a [u8],
        address: Address<'a>,
        tax: u16,
        ytd: i64,
    }
}

record! {
    District<'a> {
        name: &'a [u8],
        address: Address<'a>,
        tax: u16,
        ytd: i64,
        next_order: u32,
        /// History rows are numbered in the district in which the payment was made. The specification has no key for
        /// them, and a table of keys and values needs one.
        next_history: u32,
    }
}

record! {
    Customer<'a> {
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
}

record! {
    History<'a> {
        /// The customer's number, with the two fields after it.
        customer: u32,
        customer_district: u8,
        customer_warehouse: u16,
        date_ms: u64,
        amount: u32,
        data: &'a [u8],
    }
}

record! {
    Order {
        customer: u32,
        entered_ms: u64,
        /// 0 before the delivery.
        carrier: u8,
        lines: u8,
        /// 1 if all items are from the home warehouse, otherwise 0.
        all_local: u8,
    }
}

record! {
    OrderLine<'a> {
        item: u32,
        supplier: u16,
        /// 0 before the delivery.
        delivered_ms: u64,
        quantity: u8,
        amount: u32,
        district_info: &'a [u8; 24],
    }
}

record! {
    Item<'a> {
        image_id: u32,
        name: &'a [u8],
        price: u32,
        data: &'a [u8],
    }
}

record! {
    Stock<'a> {
        quantity: u16,
        /// 24 letters for each district.
        district_infos: &'a [u8; 240],
        ytd: u32,
        orders: u32,
        remote_orders: u32,
        data: &'a [u8],
    }
}

macro_rules! tables {
    ($($type:ty: $table:ident,)*) => {$(
        impl<'a> Row<'a> for $type {
            const TABLE: usize = schema::$table;
        }
    )*};
}

tables! {
    Warehouse<'a>: WAREHOUSE,
    District<'a>: DISTRICT,
    Customer<'a>: CUSTOMER,
    History<'a>: HISTORY,
    Order: ORDERS,
    OrderLine<'a>: ORDER_LINE,
    Item<'a>: ITEM,
    Stock<'a>: STOCK,
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
    match open.get(R::TABLE, key, buffer)? {
        true => decoded(key, buffer),
        false => Err(bad(R::TABLE, key, "is not there")),
    }
}

/// Like [`get`], for a row that is going to be written.
pub(super) fn get_for_update<'a, R: Row<'a>>(
    open: &mut dyn Transaction,
    key: &[u8],
    buffer: &'a mut Vec<u8>,
) -> Result<R> {
    match open.get_for_update(R::TABLE, key, buffer)? {
        true => decoded(key, buffer),
        false => Err(bad(R::TABLE, key, "is not there")),
    }
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
