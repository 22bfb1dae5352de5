//! *FlashTKV: a high-throughput transactional key-value store on flash solid state drives* (log as data, MVCC).

use super::{ALL_IN_MEMORY, Experiment, Figure, View, bars, configuration, data_point, engines};
use crate::cell::Limit;
use crate::engine::Level;
use crate::plan::DataPoint;
use crate::plot::{Kind, PlotSpec, X};
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::{Conflicts, TpccScale, Updates};

/// 16-byte keys and 84-byte values: this many make 100 MB.
const PAIRS: u64 = 1_000_000;
/// The paper's buffer is a fifth of its data.
const PAIR_BYTES: u64 = 100;

pub(super) const FIGURE_5: Figure = Figure {
    name: "flashtkv-figure5",
    aliases: &["flashtkv-figure5a", "flashtkv-figure5b", "flashtkv-figure5c", "table4", "flashtkv-table4"],
    title: "Calls for files of pages and of logs, by the share of updates (FlashTKV, Fig. 5a to 5c, Table IV)",
    build: |settings| {
        let rows = settings.rows(PAIRS);
        let mixes = ["A1", "A2", "A3", "A4", "A5"].into_iter().zip(Updates::ALL);
        let at = |bounded: bool, cache_bytes: u64, suffix: &str| -> Vec<DataPoint> {
            let of_mix = |(name, updates): (&str, Updates)| {
                let workload = Spec::PageVsLog { updates, pairs: rows, bounded };
                let mut data_point = data_point(
                    &format!("{name}{suffix}"),
                    workload,
                    1,
                    Limit::Operations(5_000),
                    cache_bytes,
                );
                data_point.load.warm_up = Limit::Operations(1_000);
                data_point
            };
            mixes.clone().map(of_mix).collect()
        };
        let calls = &[
            ("reads", "reads"),
            ("random_writes", "random writes"),
            ("sequential_writes", "sequential writes"),
            ("syncs", "syncs"),
        ];
        Experiment {
            configurations: engines(&["fulgurite", "bdb", "bdb-je", "wiredtiger"], Level::Sync),
            baseline: "bdb",
            data_points: [
                at(true, rows * PAIR_BYTES / 5, ""),
                at(false, ALL_IN_MEMORY, " cached"),
            ]
            .concat(),
            rounds: 2,
            notes: vec![
                "A1 to A5 have a cache of a fifth of the data, as in the paper; \"cached\" are the same with a cache \
                 for all of it"
                    .to_string(),
                "the page cache of the operating system is not switched off as in the paper: the counts are what \
                 counts, and the estimated time is what they would take on the paper's device"
                    .to_string(),
            ],
            view: View::new(&TableSpec::IO, vec![
                    ("-a", PlotSpec {
                        title: "Calls for files",
                        x: X::DataPoints,
                        y: "reads",
                        y_label: "calls",
                        kind: Kind::Stacked(calls),
                        log_y: false,
                    }),
                    ("-b", bars("Estimated time on the paper's device", "estimated_io_seconds", "seconds", true)),
                    ("-c", bars("Time that it took here", "elapsed_seconds", "seconds", true)),
                ]),
        }
    },
};

const TPCC_ENGINES: [&str; 10] = [
    "fulgurite",
    "bdb-mvcc",
    "bdb",
    "bdb-je",
    "wiredtiger",
    "rocksdb-txn",
    "lmdb",
    "sqlite",
    "redb",
    "fjall",
];

fn tpcc(warehouses: f64, bounded: bool) -> Spec {
    Spec::Tpcc { scale: TpccScale::fraction(warehouses), bounded }
}

/// The approximate size of a warehouse, bytes.
const WAREHOUSE_BYTES: u64 = 100 << 20;

fn tpcc_experiment(data_points: Vec<DataPoint>, note: &str) -> Experiment {
    Experiment {
        configurations: engines(&TPCC_ENGINES, Level::Sync),
        baseline: "bdb",
        data_points,
        rounds: 2,
        notes: vec![
            note.to_string(),
            "without keying and think times; rates of all five transactions together, and tpm of New-Order alone".into(),
        ],
        view: View::new(&TableSpec::TPC_C, vec![
                ("", bars("TPC-C", "operations_per_second", "transactions/s", false)),
                ("-io", bars("Estimated time for files on the paper's device", "estimated_io_seconds", "seconds", true)),
            ]),
    }
}

pub(super) const FIGURE_6A: Figure = Figure {
    name: "flashtkv-figure6a",
    aliases: &["flashtkv-figure6", "flashtkv-figure6c", "table6", "flashtkv-table6", "tpcc-c"],
    title: "TPC-C with the same data and caches of different sizes, C1 to C3 (FlashTKV, Fig. 6a, 6c, Table VI)",
    build: |settings| {
        let warehouses = settings.scale;
        let data_bytes = (warehouses * WAREHOUSE_BYTES as f64) as u64;
        // The paper's 512 MB, 2 GB and 4 GB of 12 GB.
        let at = |name: &str, percent: u64| {
            data_point(name, tpcc(warehouses, true), 8, settings.time(3.0), data_bytes * percent / 100)
        };
        let cached = data_point("in memory", tpcc(warehouses, false), 8, settings.time(3.0), ALL_IN_MEMORY);
        let data_points = vec![at("C1", 4), at("C2", 17), at("C3", 33), cached];
        tpcc_experiment(
            data_points,
            "caches of 4, 17 and 33 % of the data, as in the paper, and one for all of it",
        )
    },
};

pub(super) const FIGURE_6B: Figure = Figure {
    name: "flashtkv-figure6b",
    aliases: &["tpcc-d"],
    title: "TPC-C with the same cache and data of different sizes, D1 to D3 (FlashTKV, Fig. 6b, Table VI)",
    build: |settings| {
        let cache_bytes = (WAREHOUSE_BYTES as f64 * settings.scale * 0.33) as u64;
        let at = |name: &str, factor: f64| {
            let workload = tpcc(settings.scale * factor, true);
            data_point(name, workload, 8, settings.time(3.0), cache_bytes)
        };
        let data_points = vec![at("D1", 1.0), at("D2", 2.0), at("D3", 3.0)];
        let mut experiment = tpcc_experiment(data_points, "a cache of a third of D1's data, as in the paper");
        experiment.rounds = 1;
        experiment
    },
};

pub(super) const FIGURE_7: Figure = Figure {
    name: "flashtkv-figure7",
    aliases: &["flashtkv-figure7a", "table5", "flashtkv-table5", "figure7"],
    title: "Writers of their own keys beside readers of all: versions against locks (FlashTKV, Fig. 7a, Table V)",
    build: |settings| {
        let at = |(name, conflicts): (&str, Conflicts)| {
            let workload =
                Spec::MvccVsLock { conflicts, writes: settings.rows(500), reads: settings.rows(50_000) };
            data_point(name, workload, 16, Limit::Work, ALL_IN_MEMORY)
        };
        Experiment {
            configurations: engines(&["fulgurite", "bdb", "bdb-mvcc", "bdb-je", "wiredtiger"], Level::Sync),
            baseline: "bdb",
            data_points: ["B1", "B2", "B3"].into_iter().zip(Conflicts::ALL).map(at).collect(),
            rounds: 3,
            notes: vec![
                "Fig. 7b is the same on a magnetic disk, which this machine has not".to_string(),
                "8 writers and 8 readers; the time until all have done their transactions".into(),
            ],
            view: View::new(
                &TableSpec::WRITING,
                vec![("", bars("Writers and readers: time of it all", "elapsed_seconds", "seconds", true))],
            ),
        }
    },
};

pub(super) const TABLE_7: Figure = Figure {
    name: "flashtkv-table7",
    aliases: &["table7"],
    title: "Aborted transactions of TPC-C with and without garbage collection (FlashTKV, Table VII)",
    build: |settings| {
        let workload = tpcc(settings.scale, false);
        Experiment {
            configurations: vec![
                configuration("fulgurite", "fulgurite", Level::Sync),
                configuration("fulgurite, with GC", "fulgurite:gc", Level::Sync),
                configuration("bdb-mvcc", "bdb-mvcc", Level::Sync),
                configuration("wiredtiger", "wiredtiger", Level::Sync),
            ],
            baseline: "fulgurite",
            data_points: vec![data_point("C3", workload, 8, settings.time(3.0), ALL_IN_MEMORY)],
            rounds: 3,
            notes: Vec::new(),
            view: View::new(
                &TableSpec::TPC_C,
                vec![("", bars("Conflicts", "conflict_share", "share of all attempts", false))],
            ),
        }
    },
};
