//! Sang-Won Lee, *Towards 0-Latency Durability* (talk, NVRAMOS 2014).

use super::{
    ALL_IN_MEMORY, Experiment, Figure, View, configuration, data_point, engines, over_threads, rates,
};
use std::time::Duration;

use crate::engine::Level;
use crate::plan::Configuration;
use crate::plot::{Kind, PlotSpec, X};
use crate::spec::Spec;
use crate::table::TableSpec;

fn levels(engine: &str) -> Vec<Configuration> {
    [Level::Sync, Level::NoBarrier, Level::Async(Duration::from_millis(10)), Level::Memory, Level::Staged]
        .into_iter()
        .map(|level| configuration(&format!("{engine}, {level}"), engine, level))
        .collect()
}

/// As many as the most clients, so that not all of them wait for the same branch.
const BRANCHES: u32 = 120;

fn tpcb(accounts_per_branch: u64) -> Spec {
    Spec::Tpcb { branches: BRANCHES, accounts_per_branch: accounts_per_branch.min(u32::MAX.into()) as u32 }
}

pub(super) const TPCB: Figure = Figure {
    name: "slides-tpcb",
    aliases: &["tpcb-levels"],
    title: "TPC-B by durability, with what is written to the log's device (0-latency durability: WAL devices)",
    build: |settings| {
        let mut configurations = levels("fulgurite");
        for engine in ["wiredtiger", "bdb", "rocksdb-txn"] {
            configurations.push(configuration(&format!("{engine}, sync"), engine, Level::Sync));
            configurations.push(configuration(&format!("{engine}, unsynced"), engine, Level::Unsynced));
        }
        configurations.push(configuration("rocksdb-txn, memory", "rocksdb-txn", Level::Memory));
        let threads = settings.threads(&[10, 20, 40, 80, 120]);
        Experiment {
            configurations,
            baseline: "fulgurite, sync",
            data_points: over_threads(&threads, &tpcb(settings.rows(1000)), settings.time(1.0), ALL_IN_MEMORY),
            rounds: 3,
            notes: vec![
                "the talk compares a disk, an SSD and one with a durable cache, with asynchronous commits and a RAM \
                 disk as what is ideal; here it is one device at each level of durability"
                    .to_string(),
            ],
            view: View::new(&TableSpec::WAL, vec![("", rates("TPC-B", X::Threads))]),
        }
    },
};

pub(super) const POLLING: Figure = Figure {
    name: "slides-polling",
    aliases: &["polling", "slides-table2"],
    title: "TPC-B: blocking against polling while a commit is on its way (0-latency durability, Table 2)",
    build: |settings| {
        let threads = settings.threads(&[80, 100, 120]);
        Experiment {
            configurations: engines(&["fulgurite:block", "fulgurite:spin-then-block"], Level::Sync),
            baseline: "fulgurite:block",
            data_points: over_threads(
                &threads,
                &tpcb(settings.rows(1000)),
                settings.time(2.0),
                ALL_IN_MEMORY,
            ),
            rounds: 5,
            notes: vec!["the talk polled with a device of about 100 us on 40 cores".to_string()],
            view: View::new(&TableSpec::WAL, vec![("", rates("Waits of a commit", X::Threads))]),
        }
    },
};

pub(super) const LINKBENCH: Figure = Figure {
    name: "slides-linkbench",
    aliases: &["linkbench-levels"],
    title: "The mix of LinkBench by durability (0-latency durability: storage options)",
    build: |settings| {
        let mut configurations = levels("fulgurite");
        for engine in ["wiredtiger", "rocksdb-txn", "bdb", "lmdb", "sqlite"] {
            configurations.push(configuration(&format!("{engine}, sync"), engine, Level::Sync));
            configurations.push(configuration(&format!("{engine}, unsynced"), engine, Level::Unsynced));
        }
        configurations.push(configuration("rocksdb-txn, memory", "rocksdb-txn", Level::Memory));
        let workload = Spec::LinkBench { nodes: settings.rows(20_000) };
        Experiment {
            configurations,
            baseline: "fulgurite, sync",
            data_points: over_threads(&settings.threads(&[32]), &workload, settings.time(3.0), ALL_IN_MEMORY),
            rounds: 3,
            notes: vec![
                "the talk switches the write barrier and the double write of MySQL off; here nothing is written twice \
                 for the sake of torn pages, and the barrier is the difference between sync and no-barrier"
                    .to_string(),
            ],
            view: View::new(&TableSpec::FULL, vec![(
                    "",
                    PlotSpec {
                        title: "The mix of LinkBench",
                        x: X::DataPoints,
                        y: "operations_per_second",
                        y_label: "operations/s",
                        kind: Kind::Bars,
                        log_y: false,
                    },
                )]),
        }
    },
};

pub(super) const YCSB: Figure = Figure {
    name: "slides-ycsb",
    aliases: &["slides-rocksdb"],
    title: "Random overwrites of 800-byte documents with and without syncs (0-latency durability: YCSB on RocksDB)",
    build: |settings| {
        let mut configurations = levels("fulgurite");
        configurations.push(configuration("rocksdb, sync", "rocksdb", Level::Sync));
        configurations.push(configuration("rocksdb, unsynced", "rocksdb", Level::Unsynced));
        configurations.push(configuration("rocksdb, memory", "rocksdb", Level::Memory));
        let workload = Spec::Overwrite { rows: settings.rows(100_000), key_bytes: 12, value_bytes: 800 };
        Experiment {
            configurations,
            baseline: "rocksdb, sync",
            data_points: vec![data_point("", workload, 1, settings.time(3.0), ALL_IN_MEMORY)],
            rounds: 3,
            notes: vec!["the talk has a million documents; a tenth of them is here at scale 1".to_string()],
            view: View::new(
                &TableSpec::FULL,
                vec![("", super::bars("Overwrites", "operations_per_second", "operations/s", true))],
            ),
        }
    },
};
