//! A wrong row is found by each condition.

use super::Tpcc;
use super::rows::{District, Order, Row, Warehouse};
use super::schema::{
    CUSTOMER_BY_NAME, DISTRICT, DistrictId, HISTORY, NEW_ORDER, ORDER_LINE, ORDERS, ORDERS_BY_CUSTOMER,
    OrderId, WAREHOUSE,
};
use super::tests::SMALL;
use crate::testing::{Bed, Rows};

/// A store after some transactions.
fn bed() -> Bed<Tpcc> {
    let bed = Bed::new(Tpcc { scale: SMALL, bounded: false });
    let (done, _) = bed.run(2, 100);
    bed.check(Some(&done)).expect("nothing is wrong yet");
    bed
}

fn encoded<'a>(row: &impl Row<'a>) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.encode(&mut bytes);
    bytes
}

/// The rows of one district.
fn of_district(rows: Rows) -> Rows {
    let id = DistrictId { warehouse: 2, district: 3 };
    rows.into_iter().filter(|(key, _)| key.starts_with(&id.key())).collect()
}

#[test]
fn condition_1_money_of_warehouses_and_districts() {
    let bed = bed();
    let (key, bytes) = &bed.rows(WAREHOUSE)[1];
    let row = Warehouse::decode(bytes).expect("a warehouse");
    let wrong = encoded(&Warehouse { ytd: row.ytd + 1, ..row });
    bed.check_fails("(condition 1)", WAREHOUSE, (key, Some(bytes), Some(&wrong)));
    bed.check_fails("(condition 1)", WAREHOUSE, (key, Some(bytes), None));

    let (key, bytes) = &of_district(bed.rows(DISTRICT))[0];
    let row = District::decode(bytes).expect("a district");
    let wrong = encoded(&District { ytd: row.ytd - 1, ..row });
    bed.check_fails("(condition 1)", DISTRICT, (key, Some(bytes), Some(&wrong)));
}

#[test]
fn condition_2_the_newest_order_is_the_one_before_the_next() {
    let bed = bed();
    let (key, bytes) = &of_district(bed.rows(DISTRICT))[0];
    let row = District::decode(bytes).expect("a district");
    for next_order in [row.next_order + 1, row.next_order - 1, 0] {
        let wrong = encoded(&District { next_order, ..row });
        bed.check_fails("(condition 2)", DISTRICT, (key, Some(bytes), Some(&wrong)));
    }
    for table in [ORDERS, NEW_ORDER] {
        let rows = of_district(bed.rows(table));
        let (key, bytes) = rows.last().expect("an order");
        bed.check_fails("(condition 2)", table, (key, Some(bytes), None));
    }
}

#[test]
fn condition_3_orders_are_delivered_in_their_order() {
    let bed = bed();
    let rows = of_district(bed.rows(NEW_ORDER));
    let (key, _) = &rows[1];
    bed.check_fails("(condition 3)", NEW_ORDER, (key, Some(&[]), None));
    let district = DistrictId { warehouse: 2, district: 3 };
    let key = OrderId { district, order: 0 }.key();
    bed.check_fails("(condition 3)", NEW_ORDER, (&key, None, Some(&[])));
}

#[test]
fn condition_4_orders_have_as_many_lines_as_they_say() {
    let bed = bed();
    let (key, bytes) = &of_district(bed.rows(ORDER_LINE))[17];
    bed.check_fails("(condition 4)", ORDER_LINE, (key, Some(bytes), None));
    let (key, bytes) = &of_district(bed.rows(ORDERS))[4];
    let row = Order::decode(bytes).expect("an order");
    let wrong = encoded(&Order { lines: row.lines + 1, ..row });
    bed.check_fails("(condition 4)", ORDERS, (key, Some(bytes), Some(&wrong)));
    bed.check_fails("(condition 4)", ORDERS, (key, Some(bytes), None));
}

#[test]
fn districts_and_index_entries_that_are_missing_are_found() {
    let bed = bed();
    let stray = OrderId { district: DistrictId { warehouse: 2, district: 11 }, order: 1 }.key();
    bed.check_fails("but not it", NEW_ORDER, (&stray, None, Some(&[])));
    for (index, name) in
        [(CUSTOMER_BY_NAME, "`customer_by_name`"), (ORDERS_BY_CUSTOMER, "`orders_by_customer`")]
    {
        let (key, _) = &bed.rows(index)[3];
        bed.check_fails(name, index, (key, Some(&[]), None));
    }
}

#[test]
fn a_row_that_is_no_row_is_found() {
    let bed = bed();
    let (key, bytes) = &bed.rows(ORDERS)[0];
    bed.check_fails("a row that was never written", ORDERS, (key, Some(bytes), Some(&bytes[1..])));
    bed.check_fails("a row that was never written", ORDERS, (b"x", None, Some(bytes)));
}

#[test]
fn acknowledged_transactions_must_be_there() {
    let bed = Bed::new(Tpcc { scale: SMALL, bounded: false });
    let (done, _) = bed.run(2, 100);
    for (kind, table) in [(super::NEW_ORDER, "`orders`"), (super::PAYMENT, "`history`")] {
        let mut more = done.clone();
        more.kinds[kind] += 1;
        let error = bed.check(Some(&more)).expect_err("one is missing");
        assert!(error.to_string().contains(table), "{error}");
    }
    let (key, row) = &bed.rows(HISTORY)[0];
    bed.write(HISTORY, key, None);
    bed.check(Some(&done)).expect_err("a payment is lost");
    bed.check(None).expect("the count of a killed run is unknown");
    bed.write(HISTORY, key, Some(row));
    bed.check(Some(&done)).expect("it is there again");
}
