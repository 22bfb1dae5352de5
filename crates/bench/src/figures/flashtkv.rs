//! *FlashTKV: a high-throughput transactional key-value store on flash solid state drives* (log as data, MVCC).

use super::{Experiment, Figure, bars, configuration, data_point, engines};
use crate::engine::Level;
use crate::measurement::Limit;
use crate::plan::DataPoint;
use crate::plot::{Kind, PlotSpec};
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::{Conflicts, Micro, MvccVsLock, Tpcc, TpccScale, Updates};

/// The bytes of a pair of `page-vs-log`.
const PAIR_BYTES: u64 = 100;

const TPCC_ENGINES: &str = "fulgurite,bdb-mvcc,bdb,bdb-je,wiredtiger,rocksdb-txn,lmdb,sqlite,redb,fjall";

fn tpcc(warehouses: f64, bounded: bool) -> Spec {
    Spec::Tpcc(Tpcc { scale: TpccScale::fraction(warehouses), bounded })
}

/// The approximate size of a warehouse, bytes.
const WAREHOUSE_BYTES: u64 = 100 << 20;

fn tpcc_experiment(data_points: Vec<DataPoint>, note: &str) -> Experiment {
    let io_label = "Estimated time for files on the paper's device";
    Experiment::new(engines(TPCC_ENGINES), "bdb", data_points)
        .rounds(2)
        .note(note)
        .note("without keying and think times; rates of all five transactions together, and tpm of New-Order alone")
        .table(&TableSpec::TPC_C)
        .plot("", bars("TPC-C", "operations_per_second", false))
        .plot("-io", bars(io_label, "estimated_io_seconds", true))
}

pub(super) const FIGURES: [Figure; 5] = [
    Figure {
        name: "flashtkv-figure5",
        aliases: &[
            "flashtkv-figure5a",
            "flashtkv-figure5b",
            "flashtkv-figure5c",
            "table4",
            "flashtkv-table4",
        ],
        title: "Calls for files of pages and of logs, by the share of updates (FlashTKV, Fig. 5a to 5c, Table IV)",
        build: |settings| {
            let pairs = settings.rows(Micro::PAGE_VS_LOG_PAIRS);
            let mut data_points = Vec::new();
            for suffix in ["", " cached"] {
                let bounded = suffix.is_empty();
                for updates in Updates::ALL {
                    let name = format!("{updates:?}{suffix}");
                    let workload = Spec::Micro(Micro::page_vs_log(updates, pairs, bounded));
                    let mut data_point = data_point(&name, workload, 1, Limit::Operations(5_000));
                    data_point.load.warm_up = Limit::Operations(1_000);
                    if bounded {
                        data_point.cache_bytes = pairs * PAIR_BYTES / 5;
                    }
                    data_points.push(data_point);
                }
            }
            let calls = PlotSpec {
                kind: Kind::Stacked(&["reads", "random_writes", "sequential_writes", "syncs"]),
                ..bars("Calls for files", "reads", false)
            };
            let io_label = "Estimated time on the paper's device";
            Experiment::new(engines("fulgurite,bdb,bdb-je,wiredtiger"), "bdb", data_points)
                .rounds(2)
                .note(
                    "A1 to A5 have a cache of a fifth of the data, as in the paper; \"cached\" are the same with a cache \
                     for all of it",
                )
                .note(
                    "the page cache of the operating system is not switched off as in the paper: the counts are what \
                     counts, and the estimated time is what they would take on the paper's device",
                )
                .table(&TableSpec::IO)
                .plot("-a", calls)
                .plot("-b", bars(io_label, "estimated_io_seconds", true))
                .plot("-c", bars("Time that it took here", "elapsed_seconds", true))
        },
    },
    Figure {
        name: "flashtkv-figure6a",
        aliases: &["flashtkv-figure6", "flashtkv-figure6c", "table6", "flashtkv-table6", "tpcc-c"],
        title: "TPC-C with the same data and caches of different sizes, C1 to C3 (FlashTKV, Fig. 6a, 6c, Table VI)",
        build: |settings| {
            let (warehouses, time) = (settings.scale, settings.time(3.0));
            let data_bytes = (warehouses * WAREHOUSE_BYTES as f64) as u64;
            // The paper's 512 MB, 2 GB and 4 GB of 12 GB.
            let caches = [("C1", 4), ("C2", 17), ("C3", 33)].map(|(name, percent)| DataPoint {
                cache_bytes: data_bytes * percent / 100,
                ..data_point(name, tpcc(warehouses, true), 8, time)
            });
            let mut data_points = Vec::from(caches);
            data_points.push(data_point("in memory", tpcc(warehouses, false), 8, time));
            tpcc_experiment(
                data_points,
                "caches of 4, 17 and 33 % of the data, as in the paper, and one for all of it",
            )
        },
    },
    Figure {
        name: "flashtkv-figure6b",
        aliases: &["tpcc-d"],
        title: "TPC-C with the same cache and data of different sizes, D1 to D3 (FlashTKV, Fig. 6b, Table VI)",
        build: |settings| {
            let cache_bytes = (WAREHOUSE_BYTES as f64 * settings.scale * 0.33) as u64;
            let data_points = [("D1", 1.0), ("D2", 2.0), ("D3", 3.0)].map(|(name, factor)| DataPoint {
                cache_bytes,
                ..data_point(name, tpcc(settings.scale * factor, true), 8, settings.time(3.0))
            });
            tpcc_experiment(data_points.into(), "a cache of a third of D1's data, as in the paper").rounds(1)
        },
    },
    Figure {
        name: "flashtkv-figure7",
        aliases: &["flashtkv-figure7a", "table5", "flashtkv-table5", "figure7"],
        title: "Writers of their own keys beside readers of all: versions against locks (FlashTKV, Fig. 7a, Table V)",
        build: |settings| {
            let (writes, reads) = (settings.rows(500), settings.rows(50_000));
            let data_points = Conflicts::ALL.map(|conflicts| {
                let workload = Spec::MvccVsLock(MvccVsLock::new(conflicts, writes, reads));
                data_point(&format!("{conflicts:?}"), workload, 16, Limit::Work)
            });
            let engines = engines("fulgurite,bdb,bdb-mvcc,bdb-je,wiredtiger");
            let title = "Writers and readers: time of it all";
            Experiment::new(engines, "bdb", data_points.into())
                .note("Fig. 7b is the same on a magnetic disk, which this machine has not")
                .note("8 writers and 8 readers; the time until all have done their transactions")
                .table(&TableSpec::WRITING)
                .plot("", bars(title, "elapsed_seconds", true))
        },
    },
    Figure {
        name: "flashtkv-table7",
        aliases: &["table7"],
        title: "Aborted transactions of TPC-C with and without garbage collection (FlashTKV, Table VII)",
        build: |settings| {
            let mut configurations = engines("fulgurite,bdb-mvcc,wiredtiger");
            configurations.insert(1, configuration("fulgurite, without GC", "fulgurite:no-gc", Level::Sync));
            let workload = tpcc(settings.scale, false);
            // Long enough that most of what the log holds is dead, and collected.
            let data_points = vec![data_point("one warehouse", workload, 8, settings.time(15.0))];
            Experiment::new(configurations, "fulgurite", data_points)
                .rounds(5)
                .table(&TableSpec::TPC_C)
                .plot("", bars("Conflicts", "conflict_share", false))
        },
    },
];
