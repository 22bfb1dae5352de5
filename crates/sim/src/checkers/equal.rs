//! After healing all databases have the same rows, those of the agreed commits, and are sound.

use super::Order;
use crate::client::{FILLERS, KEYS, ROW, TABLE, Value, filler, id_of, key, value};
use crate::machine::Machine;
use fulgurite_types::Csn;
use std::collections::BTreeMap;

pub(crate) fn check_equal<'m>(seed: u64, machines: impl Iterator<Item = &'m Machine>, order: &Order) {
    let mut fillers = None;
    for machine in machines {
        let (node, db) = (machine.replica.number(), machine.replica.database());
        let table = db.open_table(TABLE).expect("it is in the history of all");
        let rows = table.range(..).expect("an open database").map(|row| {
            let (key, value) = row.expect("nothing is damaged");
            (key.to_vec(), value.to_vec())
        });
        let rows: BTreeMap<_, _> = rows.collect();
        let is_of_keys = |row: &Vec<u8>| (0..KEYS).any(|number| key(number)[..] == row[..]);
        let others: BTreeMap<_, _> = rows.iter().filter(|(row, _)| !is_of_keys(row)).collect();
        let is_filler = |row: &&Vec<u8>| (0..FILLERS).any(|number| filler(number)[..] == row[..]);
        assert!(others.keys().all(is_filler), "seed {seed}: node {node} has other rows");
        let others: Vec<_> = others.into_iter().map(|(row, value)| (row.clone(), value.clone())).collect();
        let first = fillers.get_or_insert_with(|| others.clone());
        assert!(*first == others, "seed {seed}: node {node} has other long rows");
        for number in 0..KEYS {
            let found = rows.get(&key(number)[..]);
            let id = found.map(|found| id_of(found).expect("each value names its transaction"));
            let is_right = order.may_be(number, Csn::MAX, id, machine.follows())
                && id.is_none_or(|id| found == Some(&value(id)));
            let last = order.at(number, Csn::MAX);
            assert!(is_right, "seed {seed}: node {node} has {id:?} for key {number}, not {last:?}");
        }
        let tables =
            db.tables().expect("an open database").into_iter().filter(|table| *table.name() != *TABLE);
        let found: BTreeMap<String, Value> = tables
            .map(|table| {
                let row = table.get(ROW).expect("nothing is damaged");
                (table.name().to_string(), row.and_then(|row| id_of(&row)))
            })
            .collect();
        assert_eq!(found, *order.tables(), "seed {seed}: node {node} has other tables");
        let report = db.check(|_| {}).expect("an open database");
        assert!(report.problems.is_empty(), "seed {seed}: node {node} is damaged: {report:?}");
    }
}
