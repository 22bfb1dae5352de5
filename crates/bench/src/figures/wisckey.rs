//! *WiscKey with a write buffer in persistent memory* (WiscKey+NVDIMM), which builds on Lu et al., *WiscKey* (2016).

use super::{Experiment, Figure, Settings, at_levels, bars, configuration, data_point};
use crate::engine::Level;
use crate::measurement::Limit;
use crate::plan::Configuration;
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::Micro;

fn experiment(settings: &Settings, configurations: Vec<Configuration>) -> Experiment {
    // Rows beforehand, and writes: a quarter of the paper's.
    let rows = settings.rows(65_536);
    let workload = Spec::Micro(Micro::wisckey(rows, rows));
    let data_points = vec![data_point("", workload, 1, Limit::Work)];
    Experiment::new(configurations, "fulgurite, sync", data_points)
        .rounds(2)
        .table(&TableSpec::WRITING)
        .plot("", bars("4 KiB values in random order: time of it all", "elapsed_seconds", false))
        .plot("-syncs", bars("4 KiB values in random order: share of the time in syncs", "sync_share", false))
        .plot("-latency", bars("4 KiB values in random order: latency of 1 KiB", "us_per_kib", true))
}

pub(super) const FIGURES: [Figure; 2] = [
    Figure {
        name: "wisckey-figure5",
        aliases: &["wisckey-figure7", "wisckey-figure8"],
        title: "4 KiB values in random order, with and without syncs, staged (WiscKey+NVDIMM, Fig. 5, 7, 8)",
        build: |settings| {
            let mut configurations = at_levels("fulgurite", &[Level::Sync, Level::Memory, Level::Staged]);
            for engine in ["rocksdb-blob", "rocksdb", "leveldb", "wiredtiger"] {
                configurations.extend(at_levels(engine, &[Level::Sync, Level::Unsynced]));
            }
            configurations.extend(at_levels("rocksdb", &[Level::Memory]));
            experiment(settings, configurations).note(
                "the paper writes 2,097,152 values to WiscKey: its \"WiscKey\" is sync here, its \"without fsync\" is \
                 unsynced (memory for fulgurite, which has no unsynced), its buffers in an NVDIMM are staged, in tmpfs",
            )
        },
    },
    Figure {
        name: "wisckey-figure6",
        aliases: &[],
        title: "4 KiB values in random order by the size of the staging buffer (WiscKey+NVDIMM, Fig. 6)",
        build: |settings| {
            let mut configurations = at_levels("fulgurite", &[Level::Sync]);
            for (buffers, name) in [(1, "single"), (2, "double")] {
                configurations.extend([1, 2, 4, 8].map(|mib| {
                    let engine = format!("fulgurite:staging={buffers}x{mib}MiB");
                    configuration(&format!("staged, {name} {mib} MiB"), &engine, Level::Staged)
                }));
            }
            configurations.extend(at_levels("fulgurite", &[Level::Memory]));
            experiment(settings, configurations)
        },
    },
];
