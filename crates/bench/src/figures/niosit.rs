//! *NIOSIT: efficient data access for log-structured merge-tree style storage systems* (replies from the I/O thread).

use super::{ALL_IN_MEMORY, Experiment, Figure, configuration, data_point, engines, rates};
use crate::engine::Level;
use crate::plot::X;
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::NiositLoad;

/// The server: a label, and the options of its engine.
const SERVERS: [(&str, &str); 5] = [
    ("queue", "fulgurite:server+queue"),
    ("filter", "fulgurite:server+filter"),
    ("inline", "fulgurite:server+inline"),
    ("queue DELTA GET", "fulgurite:server+queue+memtables"),
    ("filter DELTA GET", "fulgurite:server+filter+memtables"),
];

/// The memory for a record: it stays there, also with the versions that a run writes.
const RECORD_BYTES: u64 = 1_600;

pub(super) const FIGURES: [Figure; 1] = [Figure {
    name: "niosit",
    aliases: &[
        "niosit-figure6",
        "niosit-figure7",
        "niosit-figure8",
        "niosit-figure9",
        "niosit-figure10",
        "niosit-figure11",
        "niosit-figure12",
    ],
    title: "Reads and durable writes of 100-byte records over sockets, by dispatch (NIOSIT, Fig. 6 to 12)",
    build: |settings| {
        let records = settings.rows(100_000);
        let mut data_points = Vec::new();
        for (name, load) in
            [("A", NiositLoad::A), ("B", NiositLoad::B), ("connection", NiositLoad::Connection)]
        {
            for threads in settings.threads(&[1, 50, 100, 300]) {
                let workload = Spec::Niosit { load, records };
                let mut data_point = data_point(name, workload, threads, settings.time(2.0));
                data_point.cache_bytes = ALL_IN_MEMORY.max(records * RECORD_BYTES);
                data_points.push(data_point);
            }
        }
        let mut configurations: Vec<_> =
            SERVERS.iter().map(|(label, engine)| configuration(label, engine, Level::Sync)).collect();
        configurations.extend(engines("fulgurite,rocksdb,wiredtiger"));
        Experiment::new(configurations, "queue", data_points)
            .note("without a server (fulgurite, rocksdb, wiredtiger): the store alone, the ceiling for a server")
            .note("the clients of a server have the same processors")
            .table(&TableSpec::SERVER)
            .plot("", rates("YCSB A and B, and connections", X::DataPoints))
    },
}];
