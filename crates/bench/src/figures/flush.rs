//! Son, Yeom and Han, *Design and implementation of an efficient flushing scheme for cloud key-value storage* (2017).

use super::{ALL_IN_MEMORY, Experiment, Figure, Settings, View, engines, over_threads, rates};
use crate::engine::Level;
use crate::plan::Configuration;
use crate::plot::X;
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::{Insert, Oltp, UpdateSearch};

/// The schemes of the paper: the one that it found (each committer syncs for itself up to its own LSN), and the one
/// that it proposes; and ours. After them come stores as they are.
const SCHEMES: [&str; 3] = ["fulgurite:own-lsn", "fulgurite:aggregated", "fulgurite"];
const THREADS: [u32; 5] = [8, 16, 32, 64, 128];

fn configurations(peers: &[&str]) -> Vec<Configuration> {
    engines(&[&SCHEMES, peers].concat(), Level::Sync)
}

fn experiment(
    settings: &Settings,
    title: &'static str,
    workload: Spec,
    peers: &[&str],
    seconds: f64,
    table: &'static TableSpec,
) -> Experiment {
    Experiment {
        configurations: configurations(peers),
        baseline: SCHEMES[0],
        data_points: over_threads(&settings.threads(&THREADS), &workload, settings.time(seconds), ALL_IN_MEMORY),
        rounds: 3,
        notes: vec![
            "fulgurite:own-lsn is the scheme that the paper found in WiredTiger, fulgurite:aggregated the one it \
             proposes, fulgurite ours"
                .to_string(),
        ],
        view: View::new(table, vec![("", rates(title, X::Threads))]),
    }
}

pub(super) const FIGURE_5A: Figure = Figure {
    name: "flush-figure5a",
    aliases: &["figure5a"],
    title: "Single inserts, each durable: schemes of flushing, and peers (flush aggregation, Fig. 5a)",
    build: |settings| {
        let peers = ["wiredtiger", "rocksdb", "bdb", "bdb-je", "lmdb", "leveldb", "redb", "fjall", "sqlite"];
        let workload = Spec::Insert(Insert::SIZES);
        experiment(settings, "Single inserts", workload, &peers, 1.0, &TableSpec::FULL)
    },
};

pub(super) const FIGURE_5B: Figure = Figure {
    name: "flush-figure5b",
    aliases: &["figure5b"],
    title: "Half updates, half searches (flush aggregation, Fig. 5b)",
    build: |settings| {
        let peers = ["wiredtiger", "rocksdb", "bdb", "lmdb"];
        let workload = Spec::UpdateSearch(UpdateSearch::SIZES, settings.rows(100_000));
        experiment(settings, "Half updates, half searches", workload, &peers, 1.0, &TableSpec::FULL)
    },
};

pub(super) const FIGURE_6: Figure = Figure {
    name: "flush-figure6",
    aliases: &["figure6"],
    title: "Transactions like those of sysbench OLTP (flush aggregation, Fig. 6)",
    build: |settings| {
        let peers = ["wiredtiger", "rocksdb-txn", "bdb", "lmdb"];
        let workload = Spec::Oltp(Oltp::SIZES, settings.rows(100_000));
        experiment(settings, "OLTP transactions", workload, &peers, 1.0, &TableSpec::FULL)
    },
};

pub(super) const TABLE_1: Figure = Figure {
    name: "flush-table1",
    aliases: &["table1"],
    title: "Where the time of an insert goes, by scheme (flush aggregation, Table 1)",
    build: |settings| {
        let workload = Spec::Insert(Insert::SIZES);
        experiment(settings, "Single inserts", workload, &[], 2.0, &TableSpec::TABLE_1)
    },
};
