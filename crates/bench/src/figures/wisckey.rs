//! *WiscKey with a write buffer in persistent memory* (WiscKey+NVDIMM), which builds on Lu et al., *WiscKey* (2016).

use super::{ALL_IN_MEMORY, Experiment, Figure, Settings, View, bars, configuration, data_point};
use crate::cell::Limit;
use crate::engine::Level;
use crate::spec::Spec;
use crate::table::TableSpec;

/// Rows beforehand, and writes: a quarter of the paper's.
const ROWS: u64 = 65_536;

fn experiment(
    settings: &Settings,
    configurations: Vec<crate::plan::Configuration>,
    notes: Vec<String>,
) -> Experiment {
    let workload = Spec::WiscKey { base_rows: settings.rows(ROWS), writes: settings.rows(ROWS) };
    Experiment {
        configurations,
        baseline: "fulgurite, sync",
        data_points: vec![data_point("", workload, 1, Limit::Work, ALL_IN_MEMORY)],
        rounds: 2,
        notes,
        view: View::new(
            &TableSpec::WRITING,
            vec![
                (
                    "",
                    bars("4 KiB values in random order: time of it all", "elapsed_seconds", "seconds", false),
                ),
                (
                    "-syncs",
                    bars(
                        "4 KiB values in random order: share of the time in syncs",
                        "sync_share",
                        "share",
                        false,
                    ),
                ),
                (
                    "-latency",
                    bars("4 KiB values in random order: latency of 1 KiB", "us_per_kib", "us/KiB", true),
                ),
            ],
        ),
    }
}

pub(super) const FIGURE_5: Figure = Figure {
    name: "wisckey-figure5",
    aliases: &["wisckey-figure7", "wisckey-figure8"],
    title: "4 KiB values in random order, with and without syncs, staged (WiscKey+NVDIMM, Fig. 5, 7, 8)",
    build: |settings| {
        let mut configurations = vec![
            configuration("fulgurite, sync", "fulgurite", Level::Sync),
            configuration("fulgurite, memory", "fulgurite", Level::Memory),
            configuration("fulgurite, staged", "fulgurite", Level::Staged),
        ];
        for engine in ["rocksdb-blob", "rocksdb", "leveldb", "wiredtiger"] {
            configurations.push(configuration(&format!("{engine}, sync"), engine, Level::Sync));
            configurations.push(configuration(&format!("{engine}, unsynced"), engine, Level::Unsynced));
        }
        configurations.push(configuration("rocksdb, memory", "rocksdb", Level::Memory));
        let notes = vec![
            "the paper writes 2,097,152 values to WiscKey: its \"WiscKey\" is sync here, its \"without fsync\" is \
             unsynced (memory for fulgurite, which has no unsynced), its buffers in an NVDIMM are staged"
                .to_string(),
        ];
        experiment(settings, configurations, notes)
    },
};

pub(super) const FIGURE_6: Figure = Figure {
    name: "wisckey-figure6",
    aliases: &[],
    title: "4 KiB values in random order by the size of the staging buffer (WiscKey+NVDIMM, Fig. 6)",
    build: |settings| {
        let configurations = vec![
            configuration("fulgurite, sync", "fulgurite", Level::Sync),
            configuration("staged, 1 MiB", "fulgurite", Level::Staged),
            configuration("staged, 8 MiB", "fulgurite", Level::Staged),
        ];
        experiment(settings, configurations, Vec::new())
    },
};
