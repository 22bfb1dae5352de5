//! After healing all databases have the same rows, those of the agreed commits, and are sound.

use super::Order;
use crate::client::{KEYS, TABLE, id_of, key, value};
use crate::machine::Machine;
use fulgurite_types::Csn;

pub(crate) fn check_equal<'m>(seed: u64, machines: impl Iterator<Item = &'m Machine>, order: &Order) {
    let expected: Vec<(Vec<u8>, Vec<u8>)> = (0..KEYS)
        .filter_map(|number| Some((key(number).to_vec(), value(order.at(number, Csn::MAX)?))))
        .collect();
    for machine in machines {
        let (node, db) = (machine.replica.number(), machine.replica.database());
        let table = db.open_table(TABLE).expect("it is in the history of all");
        let rows: Vec<_> = table
            .range(..)
            .expect("an open database")
            .map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).expect("nothing is damaged"))
            .collect();
        let ids =
            |rows: &[(Vec<u8>, Vec<u8>)]| rows.iter().map(|(_, value)| id_of(value)).collect::<Vec<_>>();
        assert!(rows == expected, "seed {seed}: node {node} has {:?}, not {:?}", ids(&rows), ids(&expected));
        let report = db.check(|_| {}).expect("an open database");
        assert!(report.problems.is_empty(), "seed {seed}: node {node} is damaged: {report:?}");
    }
}
