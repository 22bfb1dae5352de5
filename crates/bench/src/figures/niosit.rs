//! *NIOSIT: efficient data access for log-structured merge-tree style storage systems* (replies from the I/O thread).

use super::{ALL_IN_MEMORY, Experiment, Figure, View, configuration, data_point, rates};
use crate::engine::Level;
use crate::plot::X;
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::Mix;

pub(super) const FIGURE_9: Figure = Figure {
    name: "niosit-figure9",
    aliases: &["niosit-figure10", "niosit-figure11", "niosit-figure12"],
    title: "YCSB A and B with 100-byte records: through a server, and without one (NIOSIT, Fig. 9 to 12)",
    build: |settings| {
        let records = settings.rows(100_000);
        let mut data_points = Vec::new();
        for (name, mix) in [("A", Mix::A), ("B", Mix::B)] {
            for threads in settings.threads(&[1, 8, 32, 64]) {
                let workload = Spec::Ycsb { mix, records, value_bytes: 100 };
                data_points.push(data_point(name, workload, threads, settings.time(1.0), ALL_IN_MEMORY));
            }
        }
        Experiment {
            configurations: vec![
                configuration("fulgurite", "fulgurite", Level::Sync),
                configuration("server, queued", "fulgurite:server", Level::Sync),
                configuration("server, from the I/O thread", "fulgurite:server", Level::Sync),
                configuration("rocksdb", "rocksdb", Level::Sync),
                configuration("wiredtiger", "wiredtiger", Level::Sync),
            ],
            baseline: "fulgurite",
            data_points,
            rounds: 3,
            notes: vec!["without a server this is the ceiling for one: the store alone".to_string()],
            view: View::new(&TableSpec::FULL, vec![("", rates("YCSB A and B", X::DataPoints))]),
        }
    },
};
