//! Typical uses of such stores, on all engines.

use std::time::Duration;

use super::{Experiment, Figure, bars, data_point, engines, over_time};
use crate::engine::Direction;
use crate::measurement::Limit;
use crate::spec::Spec;
use crate::workload::{
    DeleteQueue, JobQueue, Load, Micro, MicroMix, Mix, Oltp, Order, QueueWork, Scan, ScanLength, Sizes, Tpcc,
    TpccScale,
};

/// Every engine, once.
const ENGINES: &str = "fulgurite,rocksdb,rocksdb-txn,rocksdb-blob,wiredtiger,bdb,bdb-mvcc,\
     bdb-je,lmdb,leveldb,redb,fjall,sqlite,fulgurite:lsm";

pub(super) const FIGURES: [Figure; 4] = [
    Figure {
        name: "peers",
        aliases: &["all"],
        title: "Every engine with every kind of work, each commit durable",
        build: |settings| {
            let rows = settings.rows(100_000);
            let sizes = Micro::SIZES;
            let micro = |mix| Spec::Micro(Micro { sizes, rows, mix });
            let scan = |length, direction| Spec::Scan(Scan { sizes, rows, length, direction });
            let load = |order| Spec::Load(Load { sizes, rows: 2 * rows, order, batch: 100 });
            let mixes = ["a", "b", "c", "d", "e", "f"].into_iter().zip(Mix::ALL);
            let ycsb = mixes.map(|(name, mix)| {
                let workload = Spec::Ycsb { mix, records: rows / 2, value_bytes: 1000 };
                (format!("ycsb {name}"), workload, 8)
            });
            let scale = TpccScale::fraction(settings.scale);
            let queue = DeleteQueue { queues: 8, backlog: DeleteQueue::BACKLOG };
            let commits = [
                ("insert, 1 thread", micro(MicroMix::Insert), 1),
                ("insert, 32 threads", micro(MicroMix::Insert), 32),
                ("oltp, 32 threads", Spec::Oltp(Oltp { sizes: Oltp::SIZES, rows }), 32),
            ];
            let others = [
                ("tpc-c", Spec::Tpcc(Tpcc { scale, bounded: false }), 8),
                ("read", micro(MicroMix::Read { miss_percent: 0 }), 2),
                ("short scans", scan(ScanLength::Short, Direction::Forward), 2),
                ("long scans", scan(ScanLength::Long, Direction::Forward), 1),
                ("long reverse scans", scan(ScanLength::Long, Direction::Reverse), 1),
                ("load, sorted", load(Order::Sorted), 1),
                ("load, random", load(Order::Random), 1),
                ("delete queue", Spec::DeleteQueue(queue), 8),
            ];
            let owned = |(name, workload, threads): (&str, Spec, u32)| (name.to_string(), workload, threads);
            let all = commits.map(owned).into_iter().chain(ycsb).chain(others.map(owned));
            let data_points = all.map(|(name, workload, threads)| {
                let is_load = matches!(workload, Spec::Load(_));
                let limit = if is_load { Limit::Work } else { settings.time(0.8) };
                data_point(&name, workload, threads, limit)
            });
            Experiment::new(engines(ENGINES), "fulgurite", data_points.collect())
                .rounds(2)
                .note("loads commit 100 rows at a time")
                .plot("", bars("Rates of all engines", "operations_per_second", true))
        },
    },
    Figure {
        name: "delete-queue-over-time",
        aliases: &["queue"],
        title: "A queue over time: what rows that were deleted cost the next look at its head",
        build: |settings| {
            let peers = "fulgurite,rocksdb,leveldb,wiredtiger,lmdb,bdb,fjall";
            let queues = Spec::DeleteQueue(DeleteQueue { queues: 2, backlog: settings.rows(10_000) });
            Experiment::new(engines(peers), "fulgurite", vec![data_point("", queues, 2, settings.time(10.0))])
                .rounds(1)
                .plot("", over_time("Puts and takes a second over time", "operations_per_second"))
        },
    },
    Figure {
        name: "job-queue-peers",
        aliases: &["jobs"],
        title: "One queue and many workers: jobs put and taken a second, each commit durable",
        build: |settings| {
            let jobs = settings.rows(JobQueue::JOBS);
            // A slower peer is cut after this time.
            let within = settings.seconds.unwrap_or(Duration::from_secs(600));
            let mut data_points = Vec::new();
            for (name, work) in [("enqueue", QueueWork::Enqueue), ("take", QueueWork::Take)] {
                for threads in settings.threads(&[1, 4, 16]) {
                    let workload = Spec::JobQueue { jobs, work };
                    let limit = Limit::WorkWithin(within);
                    data_points.push(data_point(&format!("{name}, {threads}"), workload, threads, limit));
                }
            }
            Experiment::new(engines("fulgurite,redb,lmdb,sqlite,fjall"), "fulgurite", data_points)
                .rounds(1)
                .note(format!("a run that takes more than {} s is cut", within.as_secs_f64()))
                .plot("", bars("Jobs a second", "operations_per_second", true))
        },
    },
    Figure {
        name: "overwrite-over-time",
        aliases: &["space"],
        title: "Random overwrites over time: what the files grow to",
        build: |settings| {
            let peers = "fulgurite,rocksdb,leveldb,wiredtiger,lmdb,bdb,bdb-je,redb,fjall,sqlite";
            let sizes = Sizes { key_bytes: 20, value_bytes: 1000 };
            let workload = Micro { sizes, rows: settings.rows(100_000), mix: Micro::OVERWRITE };
            let data_points = vec![data_point("", Spec::Micro(workload), 4, settings.time(10.0))];
            Experiment::new(engines(peers), "fulgurite", data_points)
                .rounds(1)
                .plot("", over_time("Bytes on the disk over time", "disk_mib"))
        },
    },
];
