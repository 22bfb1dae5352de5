//! The initial content of the tables, by clause 4.3.3 of the specification.

use super::super::rows::Random;
use super::Scale;
use super::random::{NAMES, Skews, Text, data, digits, last_name, letters, permutation, text};
use super::rows::{Address, Customer, District, History, Item, Order, OrderLine, Stock, Warehouse, put};
use super::schema::{self, CustomerId, DISTRICTS, DistrictId, OrderId};
use crate::Result;
use crate::engine::Transaction;

/// The time of the filling, 2026-01-01: the run begins a day later.
const FILLED_MS: u64 = 1_767_225_600_000;
pub(super) const BEGIN_MS: u64 = FILLED_MS + 86_400_000;

/// Cents that each customer has paid.
const PAID: u32 = 1000;
/// Cents that each district has taken.
const DISTRICT_YTD: i64 = 3_000_000;

/// Makes the rows, unit by unit. A unit is an item, the stock of an item, a warehouse, a district, a customer or an
/// order with all its rows; each has its own seed, and is always the same.
pub(super) struct Population {
    scale: Scale,
    skews: Skews,
    buffer: Vec<u8>,
    key: Vec<u8>,
    /// The customers of a district in the order of their orders.
    customers: Option<(DistrictId, Vec<u32>)>,
}

impl Population {
    pub fn new(scale: Scale) -> Population {
        let skews = Skews::load(super::SEED);
        Population { scale, skews, buffer: Vec::new(), key: Vec::new(), customers: None }
    }

    /// How many units there are.
    pub fn units(scale: &Scale) -> u64 {
        u64::from(scale.items) + u64::from(scale.warehouses) * warehouse_units(scale)
    }

    /// Puts the rows of a unit.
    pub fn put(&mut self, unit: u64, open: &mut dyn Transaction) -> Result<()> {
        let mut random = Random::new(super::SEED ^ unit << 8);
        let items = u64::from(self.scale.items);
        let Some(rest) = unit.checked_sub(items) else {
            return self.item(unit as u32 + 1, &mut random, open);
        };
        let warehouse = (rest / warehouse_units(&self.scale)) as u16 + 1;
        let rest = rest % warehouse_units(&self.scale);
        if rest == 0 {
            return self.warehouse(warehouse, &mut random, open);
        }
        let rest = rest - 1;
        let Some(rest) = rest.checked_sub(items) else {
            return self.stock(warehouse, rest as u32 + 1, &mut random, open);
        };
        let district = (rest / district_units(&self.scale)) as u8 + 1;
        let id = DistrictId { warehouse, district };
        let rest = (rest % district_units(&self.scale)) as u32;
        match (rest, rest.checked_sub(self.scale.customers_per_district + 1)) {
            (0, _) => self.district(id, &mut random, open),
            (customer, None) => self.customer(CustomerId { home: id, customer }, &mut random, open),
            (_, Some(order)) => self.order(OrderId { district: id, order: order + 1 }, &mut random, open),
        }
    }

    fn item(&mut self, item: u32, random: &mut Random, open: &mut dyn Transaction) -> Result<()> {
        let row = Item {
            image_id: random.within(1, 10_000) as u32,
            name: &text::<24>(random, 14),
            price: random.within(100, 10_000) as u32,
            data: &data(random),
        };
        put(open, &schema::item_key(item), &row, &mut self.buffer)
    }

    fn warehouse(&mut self, warehouse: u16, random: &mut Random, open: &mut dyn Transaction) -> Result<()> {
        let address = RandomAddress::new(random);
        let row = Warehouse {
            name: &text::<10>(random, 6),
            address: address.borrow(),
            tax: random.within(0, 2000) as u16,
            ytd: DISTRICT_YTD * i64::from(DISTRICTS),
        };
        put(open, &schema::warehouse_key(warehouse), &row, &mut self.buffer)
    }

    fn stock(
        &mut self,
        warehouse: u16,
        item: u32,
        random: &mut Random,
        open: &mut dyn Transaction,
    ) -> Result<()> {
        let row = Stock {
            quantity: random.within(10, 100) as u16,
            district_infos: &letters(random),
            ytd: 0,
            orders: 0,
            remote_orders: 0,
            data: &data(random),
        };
        put(open, &schema::stock_key(warehouse, item), &row, &mut self.buffer)
    }

    fn district(&mut self, id: DistrictId, random: &mut Random, open: &mut dyn Transaction) -> Result<()> {
        let address = RandomAddress::new(random);
        let row = District {
            name: &text::<10>(random, 6),
            address: address.borrow(),
            tax: random.within(0, 2000) as u16,
            ytd: DISTRICT_YTD,
            next_order: self.scale.orders_per_district + 1,
            next_history: self.scale.customers_per_district + 1,
        };
        put(open, &id.key(), &row, &mut self.buffer)
    }

    /// A customer, its index entry and its payment.
    fn customer(&mut self, id: CustomerId, random: &mut Random, open: &mut dyn Transaction) -> Result<()> {
        let name = match id.customer {
            first @ 1..=NAMES => first - 1,
            _ => self.skews.name.pick(random, 0, NAMES - 1),
        };
        let (first, last) = (text::<16>(random, 8), last_name(name));
        let address = RandomAddress::new(random);
        let row = Customer {
            first: &first,
            middle: b"OE",
            last: &last,
            address: address.borrow(),
            phone: &digits(random),
            since_ms: FILLED_MS,
            credit: if random.below(10) == 0 { b"BC" } else { b"GC" },
            credit_limit: 5_000_000,
            discount: random.within(0, 5000) as u16,
            balance: -i64::from(PAID),
            ytd_payment: PAID.into(),
            payments: 1,
            deliveries: 0,
            data: &text::<500>(random, 300),
        };
        put(open, &id.key(), &row, &mut self.buffer)?;
        id.name_key(&last, &first, &mut self.key);
        open.put(schema::CUSTOMER_BY_NAME, &self.key, &[])?;

        let payment = History {
            customer: id.customer,
            customer_district: id.home.district,
            customer_warehouse: id.home.warehouse,
            date_ms: FILLED_MS,
            amount: PAID,
            data: &text::<24>(random, 12),
        };
        put(open, &id.home.history_key(id.customer), &payment, &mut self.buffer)
    }

    /// An order, its index entry and its lines; of the last three in ten, which are not delivered, also the new order.
    fn order(&mut self, id: OrderId, random: &mut Random, open: &mut dyn Transaction) -> Result<()> {
        let customer = self.customer_of(id);
        let delivered = id.order <= self.scale.delivered_per_district();
        let carrier = random.within(1, 10) as u8;
        let row = Order {
            customer,
            entered_ms: FILLED_MS,
            carrier: if delivered { carrier } else { 0 },
            lines: random.within(5, 15) as u8,
            all_local: 1,
        };
        put(open, &id.key(), &row, &mut self.buffer)?;
        let owner = CustomerId { home: id.district, customer };
        open.put(schema::ORDERS_BY_CUSTOMER, &owner.order_key(id.order), &[])?;
        if !delivered {
            open.put(schema::NEW_ORDER, &id.key(), &[])?;
        }
        for number in 1..=row.lines {
            let amount = random.within(1, 999_999) as u32;
            let line = OrderLine {
                item: random.within(1, self.scale.items.into()) as u32,
                supplier: id.district.warehouse,
                delivered_ms: if delivered { FILLED_MS } else { 0 },
                quantity: 5,
                amount: if delivered { 0 } else { amount },
                district_info: &letters(random),
            };
            put(open, &id.line_key(number), &line, &mut self.buffer)?;
        }
        Ok(())
    }

    /// The customer of an order: each customer once, in a random order, and again in the same order if there are more
    /// orders.
    fn customer_of(&mut self, id: OrderId) -> u32 {
        let DistrictId { warehouse, district } = id.district;
        if self.customers.as_ref().is_none_or(|(of, _)| *of != id.district) {
            let seed = !super::SEED ^ u64::from(warehouse) << 16 ^ u64::from(district);
            let order = permutation(&mut Random::new(seed), self.scale.customers_per_district);
            self.customers = Some((id.district, order));
        }
        let (_, customers) = self.customers.as_ref().expect("set above");
        customers[(id.order as usize - 1) % customers.len()]
    }
}

/// The warehouse, its stock, its districts.
fn warehouse_units(scale: &Scale) -> u64 {
    1 + u64::from(scale.items) + u64::from(DISTRICTS) * district_units(scale)
}

/// The district, its customers, its orders.
fn district_units(scale: &Scale) -> u64 {
    1 + u64::from(scale.customers_per_district) + u64::from(scale.orders_per_district)
}

struct RandomAddress {
    /// Both streets, and the city.
    texts: [Text<20>; 3],
    state: [u8; 2],
    zip: [u8; 9],
}

impl RandomAddress {
    fn new(random: &mut Random) -> RandomAddress {
        let mut zip = *b"000011111";
        zip[..4].copy_from_slice(&digits::<4>(random));
        let state = [(); 2].map(|()| b'A' + random.below(26) as u8);
        RandomAddress { texts: [(); 3].map(|()| text(random, 10)), state, zip }
    }

    fn borrow(&self) -> Address<'_> {
        let [street_1, street_2, city] = &self.texts;
        Address { street_1, street_2, city, state: &self.state, zip: &self.zip }
    }
}
