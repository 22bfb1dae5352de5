//! *NIOSIT: efficient data access for log-structured merge-tree style storage systems* (replies from the I/O thread).

use super::{Experiment, Figure, configuration, data_point, engines, rates};
use crate::engine::Level;
use crate::plot::X;
use crate::spec::Spec;
use crate::workload::Mix;

pub(super) const FIGURES: [Figure; 1] = [Figure {
    name: "niosit-figure9",
    aliases: &["niosit-figure10", "niosit-figure11", "niosit-figure12"],
    title: "YCSB A and B with 100-byte records: through a server, and without one (NIOSIT, Fig. 9 to 12)",
    build: |settings| {
        let records = settings.rows(100_000);
        let mut data_points = Vec::new();
        for (name, mix) in [("A", Mix::A), ("B", Mix::B)] {
            for threads in settings.threads(&[1, 8, 32, 64]) {
                let workload = Spec::Ycsb { mix, records, value_bytes: 100 };
                data_points.push(data_point(name, workload, threads, settings.time(1.0)));
            }
        }
        let mut configurations = engines("fulgurite,rocksdb,wiredtiger");
        let servers = ["server, queued", "server, from the I/O thread"];
        configurations
            .splice(1..1, servers.map(|label| configuration(label, "fulgurite:server", Level::Sync)));
        Experiment::new(configurations, "fulgurite", data_points)
            .note("without a server this is the ceiling for one: the store alone")
            .plot("", rates("YCSB A and B", X::DataPoints))
    },
}];
