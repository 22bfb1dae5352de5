//! The workloads on the command line: their options, and what they run by default.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;

use super::Failure;
use super::options::{RunArgs, Wanted};
use super::parse::{check_unique, sizes};
use super::tail_latency::{self, TailLatencyArgs};
use crate::engine::Direction;
use crate::measurement::Limit;
use crate::spec::Spec;
use crate::workload::{
    Conflicts, DeleteQueue, Distribution, JobQueue, Load, Micro, MicroMix, Mix, MvccVsLock, Oltp, Order,
    QueueWork, Scan, ScanLength, Sizes, Tpcb, Tpcc, TpccScale, Updates, Ycsb,
};

const COMMIT_EXAMPLES: &str = "\
EXAMPLES:
  The three flush schemes side by side, with the threads and transactions of the paper:
    fulgurite-bench commit /mnt/disk

  A look in a minute:
    fulgurite-bench commit /mnt/disk --threads 1,8,64 --seconds 2 --rounds 2

  Updates and searches, as JSON for a program, and as a picture:
    fulgurite-bench commit /mnt/disk --workload update-search --json result.json --svg result.svg

  One thread, one scheme, beside what the bare device does:
    fulgurite-bench commit /mnt/disk --threads 1 --engine fulgurite:combined --operations 20000

  Commits that are not waited for one by one, 16 in flight for each thread:
    fulgurite-bench commit /mnt/disk --engine fulgurite --tickets 16

  What weaker durability would be worth:
    fulgurite-bench commit /mnt/disk --engine fulgurite --durability sync,async:10ms,memory";

/// The workloads with their own options; those of [`RunArgs`] are added to each.
#[derive(clap::Subcommand)]
pub(super) enum WorkloadArgs {
    /// Commits that share flushes: inserts, updates and searches, OLTP (Son, Yeom and Han 2017, Fig. 5, 6, Table 1).
    ///
    /// Runs each scheme with each number of threads, several rounds of all of them in turn, each run in a process of its
    /// own with a fresh database, and prints medians over the rounds with their spread: rates, latencies, where the time
    /// went, locks and syncs, how many commits were consolidated in a group and how many requests one sync completed. The
    /// bare device is measured in between: one 4 KiB block at a time, each durable before the next. After each run the
    /// rows are counted.
    ///
    /// The databases are in a directory of their own below DIR, which is removed at the end. The first SIGINT or SIGTERM
    /// ends the run at hand and prints what there is, marked; a second one ends at once and leaves the directory behind.
    #[command(after_help = COMMIT_EXAMPLES)]
    Commit {
        /// What the threads do. insert: single inserts; update-search: half updates, half searches; oltp: the writing
        /// statements of sysbench OLTP, an index included.
        #[arg(long, value_enum, default_value_t = CommitWorkload::Insert)]
        workload: CommitWorkload,
        /// Bytes of each key and each value [default: 20,100; oltp: 20,188].
        #[arg(long, value_name = "KEY,VALUE", value_parser = sizes)]
        sizes: Option<Sizes>,
        /// update-search and oltp: the rows that are there beforehand, before --scale.
        #[arg(long, value_name = "ROWS", default_value_t = 100_000, value_parser = positive())]
        rows: u64,
        /// Commits that each thread has in flight; 0: it waits for each.
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
        tickets: u32,
    },
    /// The core workloads A to F of the Yahoo! Cloud Serving Benchmark.
    ///
    /// A: half reads, half updates; B: 95 % reads; C: reads only; D: reads of the newest, and inserts; E: short scans, and
    /// inserts; F: reads, and read-modify-writes. Keys are chosen as YCSB does: scrambled Zipfian, or latest for D.
    Ycsb {
        /// Which of them.
        #[arg(long, value_name = "a,...", value_delimiter = ',', default_value = "a,b,c,d,e,f", value_enum)]
        mix: Vec<Mix>,
        /// Records that are there beforehand, before --scale.
        #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = positive())]
        records: u64,
        /// Bytes of a record: ten fields of 100.
        #[arg(long, value_name = "N", default_value_t = Ycsb::VALUE_BYTES as u64,
              value_parser = clap::value_parser!(u64).range(Ycsb::VALUE_BYTES_MIN as u64..=1 << 20))]
        value_bytes: u64,
    },
    /// TPC-C: five transactions on nine tables, by the rules of the specification, without keying and think times.
    ///
    /// The consistency conditions 3.3.2.1 to 3.3.2.4 are checked after each run. Less than one warehouse, by --scale, is
    /// that share of one's rows.
    Tpcc {
        /// Warehouses: about 100 MB each.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        warehouses: u16,
    },
    /// TPC-B: each transaction changes an account, a teller and a branch, and notes that in the history.
    ///
    /// After each run, accounts, tellers, branches and history have to have the same sum.
    Tpcb {
        /// Branches.
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        branches: u32,
        /// Accounts of a branch, before --scale.
        #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive())]
        accounts: u64,
    },
    /// The mix of LinkBench (Armstrong et al. 2013): nodes, links and counts of a social graph.
    Linkbench {
        /// Nodes that are there beforehand, before --scale.
        #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = positive())]
        nodes: u64,
    },
    /// 8-byte keys and 4 KiB values, written in random order (WiscKey with a buffer in persistent memory, Fig. 5 to 8).
    Wisckey {
        /// Pairs that are there beforehand, before --scale.
        #[arg(long, value_name = "N", default_value_t = Micro::WISCKEY_PAIRS, value_parser = positive())]
        pairs: u64,
        /// Writes of all threads together, before --scale.
        #[arg(long, value_name = "N", default_value_t = Micro::WISCKEY_WRITES, value_parser = positive())]
        writes: u64,
    },
    /// Reads and updates in transactions of ten, A1 to A5, with the calls for files by kind (FlashTKV, Fig. 5).
    PageVsLog {
        /// Pairs that are there beforehand, before --scale.
        #[arg(long, value_name = "N", default_value_t = Micro::PAGE_VS_LOG_PAIRS, value_parser = positive())]
        pairs: u64,
        /// Only engines that keep to --cache, which should be less than the data then.
        #[arg(long)]
        bounded: bool,
    },
    /// Writers of their own keys beside readers of all, by how much they share, B1 to B3 (FlashTKV, Fig. 7).
    MvccVsLock {
        /// Transactions of each writer, before --scale.
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = positive())]
        writes: u64,
        /// Reads of each reader, before --scale.
        #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = positive())]
        reads: u64,
    },
    /// Random gets, each of one row; with --cold, of a store that the page cache does not hold.
    Read {
        #[command(flatten)]
        table: TableArgs,
        /// How many of a hundred reads look for a key that is not there.
        #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
        misses: u64,
    },
    /// Scans: of a hundred rows from a random one, or of the whole table; forward and reverse. An operation is one scan.
    Scan {
        #[command(flatten)]
        table: TableArgs,
    },
    /// Filling an empty table, in the order of the keys and in random order. An operation is one batch.
    Load {
        #[command(flatten)]
        table: TableArgs,
        /// Rows of a transaction.
        #[arg(long, value_name = "ROWS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        batch: u64,
        /// Only this order [default: both].
        #[arg(long, value_name = "ORDER")]
        order: Option<Order>,
    },
    /// Queues: each thread puts rows at the end of its own, and takes them from its head by a scan from the beginning.
    DeleteQueue {
        /// Rows in each queue, before --scale.
        #[arg(long, value_name = "ROWS", default_value_t = DeleteQueue::BACKLOG, value_parser = positive())]
        backlog: u64,
    },
    /// One queue and many workers, which put jobs at its end, or take them from its head, one in a transaction.
    JobQueue {
        /// Jobs, before --scale.
        #[arg(long, value_name = "JOBS", default_value_t = JobQueue::JOBS, value_parser = positive())]
        jobs: u64,
    },
    /// Random overwrites of the same rows for as long as the limit says, with what the files take over time.
    OverwriteSteady {
        #[command(flatten)]
        table: TableArgs,
        /// Rows of a transaction.
        #[arg(long, value_name = "ROWS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        batch: u64,
        /// Which rows are overwritten.
        #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
        distribution: Distribution,
        /// The shortest value: lengths are from here to that of --sizes, as many of twice a length as of the length, and each row
        /// keeps its own. At least 24; all values have the length of --sizes if it is not given.
        #[arg(long, value_name = "BYTES")]
        least_value: Option<usize>,
    },
    /// Latency over time at a fixed rate, an open loop: durable overwrites of random rows, second by second.
    ///
    /// Commits are due at fixed times, whether or not the ones before have ended, and their latency counts from then: a
    /// stall delays all that is due meanwhile, and all of it is measured (no coordinated omission). For each second the
    /// report has p50, p99, p99.9 and the longest latency; of Fulgurite also completed checkpoints, the log above the last
    /// one, and the longest call of `stats()`, which a thread of its own makes (--ask-every). The picture shows p99 and the
    /// longest latency over time, with checkpoints as ticks.
    #[command(after_help = tail_latency::EXAMPLES)]
    TailLatency(TailLatencyArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CommitWorkload {
    Insert,
    UpdateSearch,
    Oltp,
}

/// How large the table is.
#[derive(clap::Args)]
pub(super) struct TableArgs {
    /// Bytes of each key and each value.
    #[arg(long, value_name = "KEY,VALUE", default_value = "20,100", value_parser = sizes)]
    sizes: Sizes,
    /// The rows, before --scale.
    #[arg(long, value_name = "ROWS", default_value_t = 1_000_000, value_parser = positive())]
    rows: u64,
}

impl TableArgs {
    /// The rows at the scale of a run, and their sizes, if the values have room for a seal.
    fn scaled(&self, run: &RunArgs) -> Result<(u64, Sizes), Failure> {
        Ok((run.scaled(self.rows)?, checked(self.sizes, Micro::VALUE_BYTES_MIN)?))
    }
}

fn positive() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

/// The sizes, if the values are long enough.
fn checked(sizes: Sizes, value_bytes_min: usize) -> Result<Sizes, Failure> {
    match sizes.value_bytes < value_bytes_min {
        true => Err(Failure::usage(format!(
            "--sizes {},{}: a value of this workload has at least {value_bytes_min} bytes",
            sizes.key_bytes, sizes.value_bytes
        ))),
        false => Ok(sizes),
    }
}

fn named<T>(
    specs: impl IntoIterator<Item = (&'static str, T)>,
    spec: impl Fn(T) -> Spec,
) -> Vec<(String, Spec)> {
    specs.into_iter().map(|(name, variant)| (name.to_string(), spec(variant))).collect()
}

impl WorkloadArgs {
    /// What to run, where the options of `run` do not say otherwise.
    pub(super) fn wanted(&self, run: &RunArgs) -> Result<Wanted, Failure> {
        let wanted = |name, title: &str, specs| Wanted {
            name,
            title: title.to_string(),
            specs,
            engines: &["fulgurite"],
            threads: &[1, 8],
            limit: Limit::Time(Duration::from_secs(5)),
            warm_up: None,
            tickets: 0,
            pacing: None,
        };
        let only = |spec: Spec| vec![(String::new(), spec)];
        let until_done = |threads, wanted| Wanted { threads, limit: Limit::Work, ..wanted };
        Ok(match *self {
            WorkloadArgs::Commit { workload, sizes, rows, tickets } => {
                let rows = run.scaled(rows)?;
                let micro = |mix| Spec::Micro(Micro { sizes: sizes.unwrap_or(Micro::SIZES), rows, mix });
                let (title, spec) = match workload {
                    CommitWorkload::Insert => ("Single inserts", micro(MicroMix::Insert)),
                    CommitWorkload::UpdateSearch => {
                        ("Half updates, half searches", micro(MicroMix::UpdateSearch))
                    }
                    CommitWorkload::Oltp => {
                        let sizes = checked(sizes.unwrap_or(Oltp::SIZES), Oltp::VALUE_BYTES_MIN)?;
                        ("OLTP transactions", Spec::Oltp(Oltp { sizes, rows }))
                    }
                };
                Wanted {
                    engines: &["fulgurite:own-lsn", "fulgurite:aggregated", "fulgurite:combined"],
                    threads: &[8, 16, 32, 64, 128],
                    limit: Limit::Operations(50_000),
                    tickets,
                    ..wanted("commit", title, only(spec))
                }
            }
            WorkloadArgs::Ycsb { ref mix, records, value_bytes } => {
                check_unique("mix", &mix.iter().map(|mix| format!("{mix:?}")).collect::<Vec<_>>())?;
                let (records, value_bytes) = (run.scaled(records)?, value_bytes as usize);
                let spec = |mix: &Mix| (format!("{mix:?}"), Spec::Ycsb { mix: *mix, records, value_bytes });
                wanted("ycsb", "YCSB", mix.iter().map(spec).collect())
            }
            WorkloadArgs::Tpcc { warehouses } => {
                let scale = TpccScale::fraction(f64::from(warehouses) * run.scale);
                wanted("tpcc", "TPC-C", only(Spec::Tpcc(Tpcc { scale, bounded: false })))
            }
            WorkloadArgs::Tpcb { branches, accounts } => {
                let accounts_per_branch = run.scaled(accounts)?.min(u32::MAX.into()) as u32;
                wanted("tpcb", "TPC-B", only(Spec::Tpcb(Tpcb { branches, accounts_per_branch })))
            }
            WorkloadArgs::Linkbench { nodes } => {
                let spec = Spec::LinkBench { nodes: run.scaled(nodes)? };
                wanted("linkbench", "The mix of LinkBench", only(spec))
            }
            WorkloadArgs::Wisckey { pairs, writes } => {
                let spec = Spec::Micro(Micro::wisckey(run.scaled(pairs)?, run.scaled(writes)?));
                until_done(&[1], wanted("wisckey", "4 KiB values in random order", only(spec)))
            }
            WorkloadArgs::PageVsLog { pairs, bounded } => {
                let pairs = run.scaled(pairs)?;
                let spec = |updates| {
                    (format!("{updates:?}"), Spec::Micro(Micro::page_vs_log(updates, pairs, bounded)))
                };
                let specs = Updates::ALL.into_iter().map(spec).collect();
                Wanted {
                    threads: &[1],
                    limit: Limit::Operations(10_000),
                    ..wanted("page-vs-log", "Ten reads and updates a transaction", specs)
                }
            }
            WorkloadArgs::MvccVsLock { writes, reads } => {
                let (writes, reads) = (run.scaled(writes)?, run.scaled(reads)?);
                let spec = |conflicts| {
                    let workload = MvccVsLock::new(conflicts, writes, reads);
                    (format!("{conflicts:?}"), Spec::MvccVsLock(workload))
                };
                let specs = Conflicts::ALL.into_iter().map(spec).collect();
                until_done(&[8], wanted("mvcc-vs-lock", "Writers beside readers", specs))
            }
            WorkloadArgs::Read { ref table, misses } => {
                let (rows, sizes) = table.scaled(run)?;
                let mix = MicroMix::Read { miss_percent: misses };
                wanted("read", "Point reads", only(Spec::Micro(Micro { sizes, rows, mix })))
            }
            WorkloadArgs::Scan { ref table } => {
                let (rows, sizes) = table.scaled(run)?;
                let variants = [
                    ("short", (ScanLength::Short, Direction::Forward)),
                    ("short reverse", (ScanLength::Short, Direction::Reverse)),
                    ("long", (ScanLength::Long, Direction::Forward)),
                    ("long reverse", (ScanLength::Long, Direction::Reverse)),
                ];
                let spec = |(length, direction)| Spec::Scan(Scan { sizes, rows, length, direction });
                Wanted { threads: &[1], ..wanted("scan", "Scans", named(variants, spec)) }
            }
            WorkloadArgs::Load { ref table, batch, order } => {
                let (rows, sizes) = table.scaled(run)?;
                let orders = [("sorted", Order::Sorted), ("random", Order::Random)];
                let orders = orders.into_iter().filter(|(_, each)| order.is_none_or(|only| only == *each));
                let spec = |order| Spec::Load(Load { sizes, rows, order, batch });
                let limit = Limit::WorkWithin(Duration::from_secs(600));
                Wanted { threads: &[1], limit, ..wanted("load", "Filling a table", named(orders, spec)) }
            }
            WorkloadArgs::DeleteQueue { backlog } => {
                let queues = run.threads.iter().copied().max().unwrap_or(8);
                let spec = Spec::DeleteQueue(DeleteQueue { queues, backlog: run.scaled(backlog)? });
                let wanted = wanted("delete-queue", "Queues of rows that come and go", only(spec));
                Wanted { threads: &[8], ..wanted }
            }
            WorkloadArgs::JobQueue { jobs } => {
                let jobs = run.scaled(jobs)?;
                let works = [("enqueue", QueueWork::Enqueue), ("take", QueueWork::Take)];
                let specs = named(works, |work| Spec::JobQueue { jobs, work });
                Wanted {
                    threads: &[1, 4, 16],
                    limit: Limit::WorkWithin(Duration::from_secs(600)),
                    ..wanted("job-queue", "One queue and many workers", specs)
                }
            }
            WorkloadArgs::TailLatency(ref args) => {
                args.wanted(run, wanted("tail-latency", "Overwrites at a fixed rate", Vec::new()))?
            }
            WorkloadArgs::OverwriteSteady { ref table, batch, distribution, least_value } => {
                let (rows, sizes) = table.scaled(run)?;
                if let Some(least) = least_value {
                    checked(Sizes { value_bytes: least, ..sizes }, Micro::VALUE_BYTES_MIN)?;
                    if least > sizes.value_bytes {
                        let most = sizes.value_bytes;
                        return Err(Failure::usage(format!(
                            "--least-value {least} is above {most}, the value of --sizes"
                        )));
                    }
                }
                let mix = MicroMix::Overwrite { batch, distribution, least_value_bytes: least_value };
                let spec = Spec::Micro(Micro { sizes, rows, mix });
                Wanted {
                    threads: &[4],
                    limit: Limit::Time(Duration::from_secs(30)),
                    ..wanted("overwrite-steady", "Random overwrites", only(spec))
                }
            }
        })
    }
}
