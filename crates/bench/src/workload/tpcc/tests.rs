//! The supplier on Fulgurite.

use std::collections::{BTreeMap, BTreeSet};

use super::customers::Choice;
use super::delivery::Delivery;
use super::new_order::{Line, NewOrder};
use super::order_status::OrderStatus;
use super::payment::Payment;
use super::random::{is_original, last_name};
use super::rows::{Customer, District, History, Item, Order, OrderLine, Row, Stock, Warehouse};
use super::schema::{
    CUSTOMER, CUSTOMER_BY_NAME, CustomerId, DISTRICT, DistrictId, HISTORY, ITEM, NEW_ORDER, ORDER_LINE,
    ORDERS, ORDERS_BY_CUSTOMER, OrderId, STOCK, WAREHOUSE, last_number, order_of_line, stock_key,
};
use super::stock_level::StockLevel;
use super::terminal::Buffers;
use super::{Done, Scale, Tpcc, Workload};
use crate::Result;
use crate::engine::{Transaction, Verdict};
use crate::testing::{Bed, is_near};

/// Small enough for a test, with two warehouses, so that some items are remote.
pub(super) const SMALL: Scale =
    Scale { warehouses: 2, items: 200, customers_per_district: 40, orders_per_district: 30 };

const HOME: DistrictId = DistrictId { warehouse: 1, district: 4 };

fn bed() -> Bed<Tpcc> {
    Bed::new(Tpcc { scale: SMALL, bounded: false })
}

/// Runs a transaction; returns whether it was committed.
fn write(bed: &Bed<Tpcc>, run: impl Fn(&mut dyn Transaction, &mut Buffers) -> Result<Verdict>) -> bool {
    let mut buffers = Buffers::default();
    bed.with_session(|session| session.write(|open| run(open, &mut buffers))).expect("it works")
}

fn read<T>(bed: &Bed<Tpcc>, run: impl Fn(&mut dyn Transaction, &mut Buffers) -> Result<T>) -> T {
    let mut buffers = Buffers::default();
    bed.with_session(|session| session.read(|open| run(open, &mut buffers))).expect("it works")
}

/// The bytes of a row.
fn bytes(bed: &Bed<Tpcc>, table: usize, key: &[u8]) -> Vec<u8> {
    bed.rows(table).into_iter().find(|(other, _)| other == key).expect("the row is there").1
}

/// A row of a type, with the bytes that it borrows from.
macro_rules! row {
    ($bed:expr, $type:ident, $table:expr, $key:expr) => {
        $type::decode(Box::leak(bytes($bed, $table, &$key).into_boxed_slice())).expect("a row")
    };
}

fn order_of(customer: CustomerId, items: &[(u32, u16, u8)]) -> NewOrder {
    let lines = items.iter().zip(1..).map(|(&(item, supplier, quantity), number)| Line {
        number,
        item,
        supplier,
        quantity,
    });
    NewOrder { customer, entered_ms: 77, lines: lines.collect() }
}

const BUYER: CustomerId = CustomerId { home: HOME, customer: 9 };

#[test]
fn filling_leaves_the_rows_it_says() {
    let bed = bed();
    let count = |table| bed.rows(table).len();
    assert_eq!([WAREHOUSE, DISTRICT, ITEM, STOCK].map(count), [2, 20, 200, 400]);
    assert_eq!([CUSTOMER, CUSTOMER_BY_NAME, HISTORY].map(count), [800; 3]);
    assert_eq!([ORDERS, ORDERS_BY_CUSTOMER, NEW_ORDER].map(count), [600, 600, 180]);
    let nothing = Done { kinds: vec![0; 5], rolled_back: vec![0; 5] };
    bed.check(Some(&nothing)).expect("all conditions hold");
    assert!(is_near(bed.bytes(), bed.workload.shape().loaded_bytes, 2), "{}", bed.bytes());
}

#[test]
fn filling_twice_makes_the_same_rows() {
    assert_eq!(bed().tables(), bed().tables());
}

#[test]
fn customers_are_as_the_rules_want() {
    let rows = bed().rows(CUSTOMER);
    let mut bad_credit = 0;
    for (key, bytes) in &rows {
        let row = Customer::decode(bytes).expect("a customer");
        assert_eq!(row.last, &*last_name(last_number(key).expect("a customer") - 1));
        assert!((8..=16).contains(&row.first.len()) && (300..=500).contains(&row.data.len()));
        assert!(row.discount <= 5000 && row.address.zip.ends_with(b"11111"));
        assert_eq!((row.balance, row.ytd_payment, row.payments, row.deliveries), (-1000, 1000, 1, 0));
        bad_credit += u32::from(row.credit == b"BC");
    }
    assert!((50..110).contains(&bad_credit), "{bad_credit} of 800");
}

#[test]
fn names_after_the_thousandth_are_skewed() {
    let scale = Scale { warehouses: 1, items: 1, customers_per_district: 1500, orders_per_district: 0 };
    let rows = Bed::new(Tpcc { scale, bounded: false }).rows(CUSTOMER);
    let mut counts = BTreeMap::<Vec<u8>, u32>::new();
    for (_, bytes) in rows {
        *counts.entry(Customer::decode(&bytes).expect("a customer").last.to_vec()).or_default() += 1;
    }
    assert_eq!(counts.len(), 1000);
    assert!(counts.values().all(|count| *count >= 10), "each once in each district");
    assert!(counts.values().any(|count| *count > 30), "15 would be even");
}

#[test]
fn orders_are_as_the_rules_want() {
    let bed = bed();
    let mut customers = BTreeSet::new();
    for (key, bytes) in bed.rows(ORDERS) {
        let row = Order::decode(&bytes).expect("an order");
        let is_delivered = last_number(&key).expect("an order") <= 21;
        assert!((5..=15).contains(&row.lines) && (row.carrier != 0) == is_delivered && row.carrier <= 10);
        assert!((1..=40).contains(&row.customer) && row.all_local == 1);
        assert!(customers.insert((DistrictId::of_key(&key), row.customer)), "each orders once at most");
    }
    for (key, bytes) in bed.rows(ORDER_LINE) {
        let row = OrderLine::decode(&bytes).expect("a line");
        let is_delivered = order_of_line(&key).expect("a line") <= 21;
        assert_eq!((row.amount == 0, row.delivered_ms != 0), (is_delivered, is_delivered));
        assert!((1..=200).contains(&row.item) && row.quantity == 5 && row.amount <= 999_999);
    }
}

#[test]
fn items_and_stock_are_as_the_rules_want() {
    let bed = bed();
    let mut originals = 0;
    for (_, bytes) in bed.rows(ITEM) {
        let row = Item::decode(&bytes).expect("an item");
        assert!((100..=10_000).contains(&row.price) && (14..=24).contains(&row.name.len()));
        originals += u32::from(is_original(row.data));
    }
    for (_, bytes) in bed.rows(STOCK) {
        let row = Stock::decode(&bytes).expect("stock");
        assert!((10..=100).contains(&row.quantity) && (26..=50).contains(&row.data.len()));
        assert_eq!((row.ytd, row.orders, row.remote_orders), (0, 0, 0));
        originals += u32::from(is_original(row.data));
    }
    assert!((35..90).contains(&originals), "{originals} of 600");
}

#[test]
fn a_new_order_takes_the_next_number_and_the_stock() {
    let bed = bed();
    let before = row!(&bed, Stock, STOCK, stock_key(1, 3));
    let remote = row!(&bed, Stock, STOCK, stock_key(2, 5));
    let input = order_of(BUYER, &[(3, 1, 4), (3, 1, 2), (5, 2, 1)]);
    assert!(write(&bed, |open, buffers| input.run(open, buffers)));

    let id = OrderId { district: HOME, order: 31 };
    assert_eq!(row!(&bed, District, DISTRICT, HOME.key()).next_order, 32);
    let order = row!(&bed, Order, ORDERS, id.key());
    assert_eq!(order, Order { customer: 9, entered_ms: 77, carrier: 0, lines: 3, all_local: 0 });
    let after = row!(&bed, Stock, STOCK, stock_key(1, 3));
    assert_eq!((after.ytd, after.orders, after.remote_orders), (6, 2, 0), "the same item twice");
    assert_eq!((before.quantity + 182 - after.quantity) % 91, 6);
    let sold = row!(&bed, Stock, STOCK, stock_key(2, 5));
    assert_eq!((sold.ytd, sold.orders, sold.remote_orders, sold.data), (1, 1, 1, remote.data));
    let price = row!(&bed, Item, ITEM, 3u32.to_be_bytes()).price;
    let line = row!(&bed, OrderLine, ORDER_LINE, id.line_key(1));
    assert_eq!((line.item, line.quantity, line.amount, line.delivered_ms), (3, 4, 4 * price, 0));
    assert_eq!(line.district_info, before.district_info(4));
    bed.check(None).expect("all conditions hold");

    let status = OrderStatus { customer: Choice::Number(BUYER) };
    assert_eq!(read(&bed, |open, buffers| status.run(open, buffers)), Some(id), "the newest");
}

#[test]
fn an_order_of_an_unused_item_leaves_no_trace() {
    let bed = bed();
    let before = bed.tables();
    let input = order_of(BUYER, &[(3, 1, 4), (5, 2, 2), (201, 1, 1)]);
    assert!(!write(&bed, |open, buffers| input.run(open, buffers)));
    assert_eq!(bed.tables(), before);
}

#[test]
fn a_payment_is_noted_everywhere() {
    let bed = bed();
    let elsewhere = DistrictId { warehouse: 2, district: 1 };
    let credit_of = |customer| {
        let key = CustomerId { home: elsewhere, customer }.key();
        *row!(&bed, Customer, CUSTOMER, key).credit
    };
    let number = |credit| (1..=40).find(|number| credit_of(*number) == credit).expect("one of forty");
    for (made, customer) in [(1, number(*b"GC")), (2, number(*b"BC"))] {
        let id = CustomerId { home: elsewhere, customer };
        let before = row!(&bed, Customer, CUSTOMER, id.key());
        let payment = Payment { at: HOME, customer: Choice::Number(id), amount: 1234, date_ms: 5 };
        assert!(write(&bed, |open, buffers| payment.run(open, buffers)));

        let after = row!(&bed, Customer, CUSTOMER, id.key());
        assert_eq!((after.balance, after.ytd_payment, after.payments), (-2234, 2234, 2));
        assert_eq!(after.data == before.data, made == 1, "only bad credit is noted");
        let note = format!("{customer} 1 2 4 1 12.34 ");
        assert_eq!(after.data.starts_with(note.as_bytes()), made == 2);
        let row = row!(&bed, History, HISTORY, HOME.history_key(40 + made));
        assert_eq!((row.customer, row.customer_district, row.customer_warehouse), (customer, 1, 2));
        assert_eq!((row.amount, row.date_ms), (1234, 5));
        let district = row!(&bed, District, DISTRICT, HOME.key());
        assert_eq!(district.ytd, 3_000_000 + 1234 * i64::from(made));
        let warehouse = row!(&bed, Warehouse, WAREHOUSE, [0, 1]);
        assert_eq!(row.data, [warehouse.name, b"    ", district.name].concat());
    }
    bed.check(None).expect("all conditions hold");
}

#[test]
fn the_middle_one_of_customers_with_a_name_is_taken() {
    let bed = bed();
    let name = b"CALLYCALLYCALLY";
    let mut expected = Vec::new();
    for (index, first) in ["m", "b", "z", "c"].iter().enumerate() {
        let mut key = Vec::new();
        let customer = 100 + index as u32;
        CustomerId { home: HOME, customer }.name_key(name, first.as_bytes(), &mut key);
        bed.write(CUSTOMER_BY_NAME, &key, Some(&[]));
        let choice = Choice::Name(HOME, last_name(777));
        expected.push(read(&bed, |open, buffers| choice.find(open, &mut buffers.key)).customer - 100);
    }
    assert_eq!(expected, [0, 1, 0, 3], "m; b of b m; m of b m z; c of b c m z");
}

#[test]
fn a_delivery_takes_the_oldest_order_of_each_district() {
    let bed = bed();
    let oldest = OrderId { district: HOME, order: 22 };
    let customer = row!(&bed, Order, ORDERS, oldest.key()).customer;
    let key = CustomerId { home: HOME, customer }.key();
    let delivery = Delivery { warehouse: 1, carrier: 7, date_ms: 99 };
    for delivered in 1..=10 {
        assert!(write(&bed, |open, buffers| delivery.run(open, buffers)));
        bed.check(None).expect("all conditions hold");
        let left = bed.rows(NEW_ORDER).len();
        assert_eq!(left, 180 - 10 * delivered.min(9), "the tenth finds nothing");
    }
    let order = row!(&bed, Order, ORDERS, oldest.key());
    assert_eq!(order.carrier, 7);
    let lines = (1..=order.lines).map(|number| row!(&bed, OrderLine, ORDER_LINE, oldest.line_key(number)));
    let amounts: Vec<i64> =
        lines.filter(|line| line.delivered_ms == 99).map(|line| line.amount.into()).collect();
    assert_eq!(amounts.len(), usize::from(order.lines));
    let owner = row!(&bed, Customer, CUSTOMER, key);
    assert_eq!((owner.balance, owner.deliveries), (amounts.iter().sum::<i64>() - 1000, 1));
    assert!(bed.rows(NEW_ORDER).iter().all(|(key, _)| key.starts_with(&[0, 2])));
}

#[test]
fn stock_level_counts_items_once() {
    let bed = bed();
    let last = |key: &[u8]| (11..=30).contains(&order_of_line(key).expect("a line"));
    let lines = bed.rows(ORDER_LINE);
    let lines = lines.iter().filter(|(key, _)| key.starts_with(&HOME.key()) && last(key));
    let items: BTreeSet<u32> = lines.map(|(_, line)| OrderLine::decode(line).expect("a line").item).collect();
    let stock = bed.rows(STOCK);
    let quantity = |item: u32| Stock::decode(&stock[item as usize - 1].1).expect("stock").quantity;
    for threshold in [10, 20, 60, 101] {
        let low = items.iter().filter(|item| quantity(**item) < threshold).count() as u64;
        let input = StockLevel { district: HOME, threshold };
        assert_eq!(read(&bed, |open, buffers| input.run(open, buffers)), low);
    }
}

#[test]
fn a_customer_without_orders_has_no_newest_order() {
    let bed = bed();
    let ordered: BTreeSet<u32> = bed
        .rows(ORDERS)
        .iter()
        .filter(|(key, _)| key.starts_with(&HOME.key()))
        .map(|(_, bytes)| Order::decode(bytes).expect("an order").customer)
        .collect();
    for customer in 1..=40 {
        let status = OrderStatus { customer: Choice::Number(CustomerId { home: HOME, customer }) };
        let newest = read(&bed, |open, buffers| status.run(open, buffers));
        assert_eq!(newest.is_some(), ordered.contains(&customer));
    }
}

#[test]
fn four_threads_keep_the_conditions() {
    let bed = bed();
    let (done, counts) = bed.run(4, 23 * 40);
    assert_eq!(done.kinds[super::NEW_ORDER] + done.rolled_back[super::NEW_ORDER], 4 * 400);
    assert_eq!(done.kinds[1..], [4 * 400, 4 * 40, 4 * 40, 4 * 40]);
    assert!((4..40).contains(&done.rolled_back[0]) && done.rolled_back[1..] == [0; 4], "{done:?}");
    bed.check(Some(&done)).expect("all conditions hold");
    let live = bed.workload.live_bytes(&done).expect("it is known");
    assert!(is_near(bed.bytes(), live, 3), "{} for {live}", bed.bytes());
    let written = counts.user_bytes / (4 * 23 * 40);
    assert!(is_near(written, bed.workload.shape().bytes_per_operation, 15), "{written}");
}
