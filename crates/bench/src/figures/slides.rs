//! Sang-Won Lee, *Towards 0-Latency Durability* (talk, NVRAMOS 2014).

use std::time::Duration;

use super::{Experiment, Figure, at_levels, bars, data_point, engines, over_threads, rates};
use crate::engine::Level;
use crate::plan::Configuration;
use crate::plot::X;
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::{Micro, Sizes, Tpcb};

const LEVELS: [Level; 5] =
    [Level::Sync, Level::NoBarrier, Level::Async(Duration::from_millis(10)), Level::Memory, Level::Staged];

/// Fulgurite at all levels, and peers with and without syncs, one of them also in memory.
fn configurations(peers: &[&str], in_memory: &str) -> Vec<Configuration> {
    let mut configurations = at_levels("fulgurite", &LEVELS);
    configurations.extend(peers.iter().flat_map(|engine| at_levels(engine, &[Level::Sync, Level::Unsynced])));
    configurations.extend(at_levels(in_memory, &[Level::Memory]));
    configurations
}

/// As many branches as the most clients, so that not all of them wait for the same one.
fn tpcb(accounts_per_branch: u64) -> Spec {
    Spec::Tpcb(Tpcb { branches: 120, accounts_per_branch: accounts_per_branch.min(u32::MAX.into()) as u32 })
}

pub(super) const FIGURES: [Figure; 4] = [
    Figure {
        name: "slides-tpcb",
        aliases: &["tpcb-levels"],
        title: "TPC-B by durability, with what is written to the log's device (0-latency durability: WAL devices)",
        build: |settings| {
            let threads = settings.threads(&[10, 20, 40, 80, 120]);
            let data_points = over_threads(&threads, &tpcb(settings.rows(1000)), settings.time(1.0));
            let configurations = configurations(&["wiredtiger", "bdb", "rocksdb-txn"], "rocksdb-txn");
            Experiment::new(configurations, "fulgurite, sync", data_points)
                .note(
                    "the talk compares a disk, an SSD and one with a durable cache, with asynchronous commits and a RAM \
                     disk as what is ideal; here it is one device at each level of durability",
                )
                .table(&TableSpec::WAL)
                .plot("", rates("TPC-B", X::Threads))
        },
    },
    Figure {
        name: "slides-polling",
        aliases: &["polling", "slides-table2"],
        title: "TPC-B: blocking against polling while a commit is on its way (0-latency durability, Table 2)",
        build: |settings| {
            let threads = settings.threads(&[80, 100, 120]);
            let data_points = over_threads(&threads, &tpcb(settings.rows(1000)), settings.time(2.0));
            let engines = engines("fulgurite:block,fulgurite:spin-then-block");
            Experiment::new(engines, "fulgurite:block", data_points)
                .rounds(5)
                .note("the talk polled with a device of about 100 us on 40 cores")
                .table(&TableSpec::WAL)
                .plot("", rates("Waits of a commit", X::Threads))
        },
    },
    Figure {
        name: "slides-linkbench",
        aliases: &["linkbench-levels"],
        title: "The mix of LinkBench by durability (0-latency durability: storage options)",
        build: |settings| {
            let peers = ["wiredtiger", "rocksdb-txn", "bdb", "lmdb", "sqlite"];
            let workload = Spec::LinkBench { nodes: settings.rows(20_000) };
            let data_points = over_threads(&settings.threads(&[32]), &workload, settings.time(3.0));
            Experiment::new(configurations(&peers, "rocksdb-txn"), "fulgurite, sync", data_points)
                .note(
                    "the talk switches the write barrier and the double write of MySQL off; here nothing is written \
                     twice for the sake of torn pages, and the barrier is the difference between sync and no-barrier",
                )
                .plot("", rates("The mix of LinkBench", X::DataPoints))
        },
    },
    Figure {
        name: "slides-ycsb",
        aliases: &["slides-rocksdb"],
        title: "Random overwrites of 800-byte documents with and without syncs (0-latency durability: YCSB on RocksDB)",
        build: |settings| {
            let sizes = Sizes { key_bytes: 12, value_bytes: 800 };
            let workload = Micro { sizes, rows: settings.rows(100_000), mix: Micro::OVERWRITE };
            let data_points = vec![data_point("", Spec::Micro(workload), 1, settings.time(3.0))];
            Experiment::new(configurations(&["rocksdb"], "rocksdb"), "rocksdb, sync", data_points)
                .note("the talk has a million documents; a tenth of them is here at scale 1")
                .plot("", bars("Overwrites", "operations_per_second", true))
        },
    },
];
