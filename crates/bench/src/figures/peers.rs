//! Typical uses of such stores, on all engines.

use std::time::Duration;

use super::{ALL_IN_MEMORY, Experiment, Figure, View, bars, data_point, engines, over_time};
use crate::cell::Limit;
use crate::engine::{Direction, Level};
use crate::plan::DataPoint;
use crate::spec::Spec;
use crate::table::TableSpec;
use crate::workload::{Insert, JobQueue, Mix, Oltp, Order, QueueWork, ScanLength, TpccScale};

/// Every engine, once.
const ENGINES: [&str; 14] = [
    "fulgurite",
    "rocksdb",
    "rocksdb-txn",
    "rocksdb-blob",
    "wiredtiger",
    "bdb",
    "bdb-mvcc",
    "bdb-je",
    "lmdb",
    "leveldb",
    "redb",
    "fjall",
    "sqlite",
    "fulgurite:lsm",
];

pub(super) const PEERS: Figure = Figure {
    name: "peers",
    aliases: &["all"],
    title: "Every engine with every kind of work, each commit durable",
    build: |settings| {
        let rows = settings.rows(100_000);
        let sizes = Insert::SIZES;
        let timed = |name: &str, workload: Spec, threads: u32| {
            data_point(name, workload, threads, settings.time(0.8), ALL_IN_MEMORY)
        };
        let whole = |name: &str, workload: Spec| data_point(name, workload, 1, Limit::Work, ALL_IN_MEMORY);
        let ycsb = |mix: Mix| Spec::Ycsb { mix, records: rows / 2, value_bytes: 1000 };
        let load = |order: Order| Spec::Load { sizes, rows: 2 * rows, order, batch: 100 };
        let scan = |length: ScanLength, direction: Direction| Spec::Scan { sizes, rows, length, direction };
        let mut data_points: Vec<DataPoint> = vec![
            timed("insert, 1 thread", Spec::Insert(sizes), 1),
            timed("insert, 32 threads", Spec::Insert(sizes), 32),
            timed("oltp, 32 threads", Spec::Oltp(Oltp::SIZES, rows), 32),
        ];
        let mixes = [
            ("ycsb a", Mix::A),
            ("ycsb b", Mix::B),
            ("ycsb c", Mix::C),
            ("ycsb d", Mix::D),
            ("ycsb e", Mix::E),
            ("ycsb f", Mix::F),
        ];
        data_points.extend(mixes.map(|(name, mix)| timed(name, ycsb(mix), 8)));
        data_points.extend([
            timed("tpc-c", Spec::Tpcc { scale: TpccScale::fraction(settings.scale), bounded: false }, 8),
            timed("read", Spec::Read { sizes, rows, miss_percent: 0 }, 2),
            timed("short scans", scan(ScanLength::Short, Direction::Forward), 2),
            timed("long scans", scan(ScanLength::Long, Direction::Forward), 1),
            timed("long reverse scans", scan(ScanLength::Long, Direction::Reverse), 1),
            whole("load, sorted", load(Order::Sorted)),
            whole("load, random", load(Order::Random)),
            timed("delete queue", Spec::DeleteQueue { queues: 8, backlog: 1000, value_bytes: 100 }, 8),
        ]);
        Experiment {
            configurations: engines(&ENGINES, Level::Sync),
            baseline: "fulgurite",
            data_points,
            rounds: 2,
            notes: vec!["loads commit 100 rows at a time".to_string()],
            view: View::new(
                &TableSpec::FULL,
                vec![("", bars("Rates of all engines", "operations_per_second", "operations/s", true))],
            ),
        }
    },
};

pub(super) const DELETE_QUEUE: Figure = Figure {
    name: "delete-queue-over-time",
    aliases: &["queue"],
    title: "A queue over time: what rows that were deleted cost the next look at its head",
    build: |settings| Experiment {
        configurations: engines(
            &["fulgurite", "rocksdb", "leveldb", "wiredtiger", "lmdb", "bdb", "fjall"],
            Level::Sync,
        ),
        baseline: "fulgurite",
        data_points: vec![data_point(
            "",
            Spec::DeleteQueue { queues: 2, backlog: settings.rows(10_000), value_bytes: 100 },
            2,
            settings.time(10.0),
            ALL_IN_MEMORY,
        )],
        rounds: 1,
        notes: Vec::new(),
        view: View::new(
            &TableSpec::FULL,
            vec![("", over_time("Puts and takes a second over time", "operations_per_second"))],
        ),
    },
};

pub(super) const JOB_QUEUE: Figure = Figure {
    name: "job-queue-peers",
    aliases: &["jobs"],
    title: "One queue and many workers: jobs put and taken a second, each commit durable",
    build: |settings| {
        let jobs = settings.rows(JobQueue::JOBS);
        let within = settings.seconds.unwrap_or(JOBS_WITHIN);
        let data_points = [("enqueue", QueueWork::Enqueue), ("take", QueueWork::Take)].into_iter();
        let data_points = data_points.flat_map(|(name, work)| {
            let spec = Spec::JobQueue { jobs, value_bytes: JobQueue::VALUE_BYTES, work };
            let data_point = move |threads: u32| {
                let limit = Limit::WorkWithin(within);
                data_point(&format!("{name}, {threads}"), spec.clone(), threads, limit, ALL_IN_MEMORY)
            };
            settings.threads(&[1, 4, 16]).into_iter().map(data_point)
        });
        Experiment {
            configurations: engines(&["fulgurite", "redb", "lmdb", "sqlite", "fjall"], Level::Sync),
            baseline: "fulgurite",
            data_points: data_points.collect(),
            rounds: 1,
            notes: vec![format!("a run that takes more than {} s is cut", within.as_secs_f64())],
            view: View::new(
                &TableSpec::FULL,
                vec![("", bars("Jobs a second", "operations_per_second", "jobs/s", true))],
            ),
        }
    },
};

/// A slower peer is cut after this time.
const JOBS_WITHIN: Duration = Duration::from_secs(600);

pub(super) const OVERWRITE: Figure = Figure {
    name: "overwrite-over-time",
    aliases: &["space"],
    title: "Random overwrites over time: what the files grow to",
    build: |settings| Experiment {
        configurations: engines(
            &[
                "fulgurite",
                "rocksdb",
                "leveldb",
                "wiredtiger",
                "lmdb",
                "bdb",
                "bdb-je",
                "redb",
                "fjall",
                "sqlite",
            ],
            Level::Sync,
        ),
        baseline: "fulgurite",
        data_points: vec![data_point(
            "",
            Spec::Overwrite { rows: settings.rows(100_000), key_bytes: 20, value_bytes: 1000 },
            4,
            settings.time(10.0),
            ALL_IN_MEMORY,
        )],
        rounds: 1,
        notes: Vec::new(),
        view: View::new(&TableSpec::FULL, vec![("", over_time("Bytes on the disk over time", "disk_mib"))]),
    },
};
