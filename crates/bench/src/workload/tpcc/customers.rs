//! Finding a customer.

use super::random::Text;
use super::rows::bad;
use super::schema::{CUSTOMER_BY_NAME, CustomerId, DistrictId, last_number};
use crate::Result;
use crate::engine::{Range, Transaction};

/// How a customer is found.
pub(super) enum Choice {
    Number(CustomerId),
    /// The one in the middle of those with this last name, in the order of their first names; the earlier of two.
    Name(DistrictId, Text<16>),
}

impl Choice {
    /// The customer; `key` is for scratch.
    pub fn find(&self, open: &mut dyn Transaction, key: &mut Vec<u8>) -> Result<CustomerId> {
        let (home, last) = match self {
            Choice::Number(customer) => return Ok(*customer),
            Choice::Name(home, last) => (*home, last),
        };
        home.name_prefix(last, key);
        let mut customers = Vec::new();
        open.scan(Range::forward(CUSTOMER_BY_NAME, Some(key)), &mut |entry, _| {
            let is_same = entry.starts_with(key);
            customers.extend(last_number(entry).filter(|_| is_same));
            Ok(is_same)
        })?;
        match customers.get(customers.len().saturating_sub(1) / 2) {
            Some(&customer) => Ok(CustomerId { home, customer }),
            None => Err(bad(CUSTOMER_BY_NAME, key, "is not there")),
        }
    }
}
