//! The payment transaction: a customer pays, in any warehouse.

use super::customers::Choice;
use super::rows::{Customer, District, History, Warehouse, get_for_update, put};
use super::schema::{self, CustomerId, DistrictId};
use super::terminal::{Buffers, Terminal};
use crate::Result;
use crate::engine::{Transaction, Verdict};

/// The longest data of a customer, in bytes.
const DATA_BYTES_MAX: usize = 500;

/// The input of the terminal.
pub(super) struct Payment {
    /// Where the payment is made.
    pub at: DistrictId,
    pub customer: Choice,
    /// Cents.
    pub amount: u32,
    pub date_ms: u64,
}

impl Payment {
    pub fn pick(terminal: &mut Terminal) -> Payment {
        let district = terminal.any_district(terminal.warehouse);
        let is_remote = terminal.chance(15, 100) && terminal.scale.warehouses > 1;
        let home = match is_remote {
            true => {
                let warehouse = terminal.other_warehouse();
                terminal.any_district(warehouse)
            }
            false => district,
        };
        let customer = terminal.choose_customer(home);
        let amount = terminal.random.within(100, 500_000) as u32;
        Payment { at: district, customer, amount, date_ms: terminal.tick() }
    }

    pub fn run(&self, open: &mut dyn Transaction, buffers: &mut Buffers) -> Result<Verdict> {
        let Buffers { row, other, out, key } = buffers;
        let amount = i64::from(self.amount);

        let warehouse_key = schema::warehouse_key(self.at.warehouse);
        let mut warehouse: Warehouse<'_> = get_for_update(open, &warehouse_key, row)?;
        warehouse.ytd += amount;
        put(open, &warehouse_key, &warehouse, out)?;

        let mut district: District<'_> = get_for_update(open, &self.at.key(), other)?;
        let history_key = self.at.history_key(district.next_history);
        district.ytd += amount;
        district.next_history += 1;
        put(open, &self.at.key(), &district, out)?;
        let names = [warehouse.name, b"    ", district.name].concat();

        let customer = self.customer.find(open, key)?;
        self.pay(open, customer, [row, out])?;

        let payment = History {
            customer: customer.customer,
            customer_district: customer.home.district,
            customer_warehouse: customer.home.warehouse,
            date_ms: self.date_ms,
            amount: self.amount,
            data: &names,
        };
        put(open, &history_key, &payment, out)?;
        Ok(Verdict::Commit)
    }

    fn pay(&self, open: &mut dyn Transaction, id: CustomerId, [row, out]: [&mut Vec<u8>; 2]) -> Result<()> {
        let mut customer: Customer<'_> = get_for_update(open, &id.key(), row)?;
        customer.balance -= i64::from(self.amount);
        customer.ytd_payment += i64::from(self.amount);
        customer.payments += 1;
        let data;
        if customer.credit == b"BC" {
            data = self.noted(id, customer.data);
            customer.data = &data;
        }
        put(open, &id.key(), &customer, out)
    }

    /// The data of a customer with bad credit: this payment, then the former data, as far as it fits.
    fn noted(&self, id: CustomerId, before: &[u8]) -> Vec<u8> {
        let CustomerId { home, customer } = id;
        let DistrictId { warehouse, district } = self.at;
        let (units, cents) = (self.amount / 100, self.amount % 100);
        let payment = format!(
            "{customer} {} {} {district} {warehouse} {units}.{cents:02} ",
            home.district, home.warehouse
        );
        let mut data = payment.into_bytes();
        data.extend_from_slice(before);
        data.truncate(DATA_BYTES_MAX);
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tpcc::Scale;

    #[test]
    fn payments_are_as_the_rules_want() {
        let mut terminal = Terminal::new(Scale { warehouses: 3, ..Scale::fraction(0.01) }, 1);
        let (mut remote, mut named) = (0, 0);
        for _ in 0..10_000 {
            let input = Payment::pick(&mut terminal);
            assert_eq!(input.at.warehouse, 2);
            assert!((100..=500_000).contains(&input.amount));
            let home = match input.customer {
                Choice::Number(customer) => customer.home,
                Choice::Name(home, _) => home,
            };
            named += u32::from(matches!(input.customer, Choice::Name(..)));
            remote += u32::from(home.warehouse != 2);
            assert!(home.warehouse != 2 || home == input.at);
        }
        assert!((1350..1650).contains(&remote) && (5800..6200).contains(&named), "{remote} {named}");
    }

    #[test]
    fn bad_credit_is_noted_in_front_and_cut_off() {
        let district = DistrictId { warehouse: 2, district: 3 };
        let id = CustomerId { home: DistrictId { warehouse: 4, district: 5 }, customer: 6 };
        let payment = Payment { at: district, customer: Choice::Number(id), amount: 12_305, date_ms: 0 };
        assert_eq!(payment.noted(id, b"old"), b"6 5 4 3 2 123.05 old");
        let data = payment.noted(id, &[b'x'; 500]);
        assert!(data.len() == 500 && data.ends_with(b"x") && data.starts_with(b"6 5 4 "));
    }
}
