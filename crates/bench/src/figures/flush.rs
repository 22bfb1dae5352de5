//! Son, Yeom and Han, *Design and implementation of an efficient flushing scheme for cloud key-value storage* (2017).

use super::{Experiment, Figure, Settings, engines, over_threads, rates};
use crate::plot::X;
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::{Micro, MicroMix, Oltp};

/// The schemes of the paper: the one that it found (each committer syncs for itself up to its own LSN), and the one
/// that it proposes; and ours. After them come stores as they are.
const SCHEMES: &str = "fulgurite:own-lsn,fulgurite:aggregated,fulgurite";

fn experiment(
    settings: &Settings,
    title: &'static str,
    workload: &Spec,
    peers: &str,
    seconds: f64,
) -> Experiment {
    let threads = settings.threads(&[8, 16, 32, 64, 128]);
    let data_points = over_threads(&threads, workload, settings.time(seconds));
    Experiment::new(engines(&format!("{SCHEMES},{peers}")), "fulgurite:own-lsn", data_points)
        .note(
            "fulgurite:own-lsn is the scheme that the paper found in WiredTiger, fulgurite:aggregated the one it \
             proposes, fulgurite ours",
        )
        .plot("", rates(title, X::Threads))
}

fn micro(rows: u64, mix: MicroMix) -> Spec {
    Spec::Micro(Micro { sizes: Micro::SIZES, rows, mix })
}

pub(super) const FIGURES: [Figure; 4] = [
    Figure {
        name: "flush-figure5a",
        aliases: &["figure5a"],
        title: "Single inserts, each durable: schemes of flushing, and peers (flush aggregation, Fig. 5a)",
        build: |settings| {
            let peers = "wiredtiger,rocksdb,bdb,bdb-je,lmdb,leveldb,redb,fjall,sqlite";
            experiment(settings, "Single inserts", &micro(1, MicroMix::Insert), peers, 1.0)
        },
    },
    Figure {
        name: "flush-figure5b",
        aliases: &["figure5b"],
        title: "Half updates, half searches (flush aggregation, Fig. 5b)",
        build: |settings| {
            let workload = micro(settings.rows(100_000), MicroMix::UpdateSearch);
            let peers = "wiredtiger,rocksdb,bdb,lmdb";
            experiment(settings, "Half updates, half searches", &workload, peers, 1.0)
        },
    },
    Figure {
        name: "flush-figure6",
        aliases: &["figure6"],
        title: "Transactions like those of sysbench OLTP (flush aggregation, Fig. 6)",
        build: |settings| {
            let workload = Spec::Oltp(Oltp { sizes: Oltp::SIZES, rows: settings.rows(100_000) });
            let peers = "wiredtiger,rocksdb-txn,bdb,lmdb";
            experiment(settings, "OLTP transactions", &workload, peers, 1.0)
        },
    },
    Figure {
        name: "flush-table1",
        aliases: &["table1"],
        title: "Where the time of an insert goes, by scheme (flush aggregation, Table 1)",
        build: |settings| {
            experiment(settings, "Single inserts", &micro(1, MicroMix::Insert), "", 2.0)
                .table(&TableSpec::TABLE_1)
        },
    },
];
