//! The options of each workload.

use std::time::Duration;

use super::options::{RunArgs, Wanted};
use super::parse::{sizes, twice};
use super::{Failure, Program};
use crate::cell::Limit;
use crate::engine::Direction;
use crate::figures::{View, workload_view};
use crate::plan::Plan;
use crate::spec::Spec;
use crate::workload::{
    Conflicts, DeleteQueue, Insert, JobQueue, Mix, Oltp, Order, OverwriteSteady, PageVsLog, QueueWork, Read,
    Scan, ScanLength, Sizes, TpccScale, UpdateSearch, Updates, Wisckey, Ycsb,
};

/// The time of a run without a limit of its own.
const TIME: Limit = Limit::Time(Duration::from_secs(5));
const FULGURITE: &[&str] = &["fulgurite"];

/// The defaults of most workloads.
fn wanted(name: &'static str, title: &str, specs: Vec<(String, Spec)>) -> Wanted {
    Wanted {
        name,
        title: title.to_string(),
        specs,
        engines: FULGURITE,
        threads: &[1, 8],
        limit: TIME,
        tickets: 0,
        notes: Vec::new(),
    }
}

fn planned(run: &RunArgs, program: &Program, wanted: Wanted) -> Result<(Plan, View), Failure> {
    let plan = run.plan(program, wanted)?;
    let view = workload_view(&plan.name, plan.data_points.iter().map(|data_point| data_point.name.as_str()));
    Ok((plan, view))
}

fn only(spec: Spec) -> Vec<(String, Spec)> {
    vec![(String::new(), spec)]
}

/// The given sizes, if the values are long enough.
fn checked(given: Option<Sizes>, default: Sizes, value_bytes_min: usize) -> Result<Sizes, Failure> {
    let sizes = given.unwrap_or(default);
    match sizes.value_bytes < value_bytes_min {
        true => Err(Failure::usage(format!(
            "--sizes: a value of this workload has at least {value_bytes_min} bytes"
        ))),
        false => Ok(sizes),
    }
}

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

/// Commits that share flushes: inserts, updates and searches, OLTP (Son, Yeom and Han 2017, Fig. 5, 6, Table 1).
///
/// Runs each scheme with each number of threads, several rounds of all of them in turn, each run in a process of its own
/// with a fresh database, and prints medians over the rounds with their spread: rates, latencies, where the time went,
/// locks and syncs, how many commits were consolidated in a group and how many requests one sync completed. The bare
/// device is measured in between: one 4 KiB block at a time, each durable before the next. After each run the rows are
/// counted.
///
/// The databases are in a directory of their own below DIR, which is removed at the end. The first SIGINT or SIGTERM
/// ends the run at hand and prints what there is, marked; a second one ends at once and leaves the directory behind.
#[derive(Debug, clap::Args)]
#[command(after_help = COMMIT_EXAMPLES)]
pub(super) struct CommitArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// What the threads do. insert: single inserts; update-search: half updates, half searches; oltp: the writing
    /// statements of sysbench OLTP, an index included.
    #[arg(long, value_enum, default_value_t = CommitWorkload::Insert)]
    workload: CommitWorkload,
    /// Bytes of each key and each value [default: 20,100; oltp: 20,188].
    #[arg(long, value_name = "KEY,VALUE", value_parser = sizes)]
    sizes: Option<Sizes>,
    /// update-search and oltp: the rows that are there beforehand, before --scale.
    #[arg(long, value_name = "ROWS", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Commits that each thread has in flight; 0: it waits for each.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    tickets: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CommitWorkload {
    Insert,
    UpdateSearch,
    Oltp,
}

impl CommitArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let rows = self.run.scaled(self.rows)?;
        let (title, spec) = match self.workload {
            CommitWorkload::Insert => {
                ("Single inserts", Spec::Insert(checked(self.sizes, Insert::SIZES, 0)?))
            }
            CommitWorkload::UpdateSearch => (
                "Half updates, half searches",
                Spec::UpdateSearch(checked(self.sizes, UpdateSearch::SIZES, 0)?, rows),
            ),
            CommitWorkload::Oltp => (
                "OLTP transactions",
                Spec::Oltp(checked(self.sizes, Oltp::SIZES, Oltp::VALUE_BYTES_MIN)?, rows),
            ),
        };
        let wanted = Wanted {
            engines: &["fulgurite:own-lsn", "fulgurite:aggregated", "fulgurite:combined"],
            threads: &[8, 16, 32, 64, 128],
            limit: Limit::Operations(50_000),
            tickets: self.tickets,
            ..wanted("commit", title, only(spec))
        };
        planned(&self.run, program, wanted)
    }
}

/// The core workloads A to F of the Yahoo! Cloud Serving Benchmark.
///
/// A: half reads, half updates; B: 95 % reads; C: reads only; D: reads of the newest, and inserts; E: short scans, and
/// inserts; F: reads, and read-modify-writes. Keys are chosen as YCSB does: scrambled Zipfian, or latest for D.
#[derive(Debug, clap::Args)]
pub(super) struct YcsbArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Which of them.
    #[arg(long, value_name = "a,...", value_delimiter = ',', default_value = "a,b,c,d,e,f", value_enum)]
    mix: Vec<MixName>,
    /// Records that are there beforehand, before --scale.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Bytes of a record: ten fields of 100.
    #[arg(long, value_name = "N", default_value_t = Ycsb::VALUE_BYTES as u64,
          value_parser = clap::value_parser!(u64).range(Ycsb::VALUE_BYTES_MIN as u64..=1 << 20))]
    value_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum MixName {
    A,
    B,
    C,
    D,
    E,
    F,
}

impl YcsbArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        if let Some(mix) = twice(&self.mix) {
            return Err(Failure::usage(format!("--mix names {mix:?} twice")));
        }
        let (records, value_bytes) = (self.run.scaled(self.records)?, self.value_bytes as usize);
        let spec = |name: &MixName| {
            let mix = Mix::ALL[*name as usize];
            (format!("{name:?}"), Spec::Ycsb { mix, records, value_bytes })
        };
        planned(&self.run, program, wanted("ycsb", "YCSB", self.mix.iter().map(spec).collect()))
    }
}

/// TPC-C: five transactions on nine tables, by the rules of the specification, without keying and think times.
///
/// The consistency conditions 3.3.2.1 to 3.3.2.4 are checked after each run. Less than one warehouse, by --scale, is
/// that share of one's rows.
#[derive(Debug, clap::Args)]
pub(super) struct TpccArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Warehouses: about 100 MB each.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    warehouses: u16,
}

impl TpccArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let scale = TpccScale::fraction(f64::from(self.warehouses) * self.run.scale);
        planned(&self.run, program, wanted("tpcc", "TPC-C", only(Spec::Tpcc { scale, bounded: false })))
    }
}

/// TPC-B: each transaction changes an account, a teller and a branch, and notes that in the history.
///
/// After each run, accounts, tellers, branches and history have to have the same sum.
#[derive(Debug, clap::Args)]
pub(super) struct TpcbArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Branches.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    branches: u32,
    /// Accounts of a branch, before --scale.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    accounts: u64,
}

impl TpcbArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let accounts_per_branch = self.run.scaled(self.accounts)?.min(u32::MAX.into()) as u32;
        let spec = Spec::Tpcb { branches: self.branches, accounts_per_branch };
        planned(&self.run, program, wanted("tpcb", "TPC-B", only(spec)))
    }
}

/// The mix of LinkBench (Armstrong et al. 2013): nodes, links and counts of a social graph.
#[derive(Debug, clap::Args)]
pub(super) struct LinkBenchArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Nodes that are there beforehand, before --scale.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    nodes: u64,
}

impl LinkBenchArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let spec = Spec::LinkBench { nodes: self.run.scaled(self.nodes)? };
        planned(&self.run, program, wanted("linkbench", "The mix of LinkBench", only(spec)))
    }
}

/// 8-byte keys and 4 KiB values, written in random order (WiscKey with a buffer in persistent memory, Fig. 5 to 8).
#[derive(Debug, clap::Args)]
pub(super) struct WiscKeyArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Pairs that are there beforehand, before --scale.
    #[arg(long, value_name = "N", default_value_t = Wisckey::PAIRS, value_parser = clap::value_parser!(u64).range(1..))]
    pairs: u64,
    /// Writes of all threads together, before --scale.
    #[arg(long, value_name = "N", default_value_t = Wisckey::WRITES,
          value_parser = clap::value_parser!(u64).range(1..))]
    writes: u64,
}

impl WiscKeyArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let spec =
            Spec::WiscKey { base_rows: self.run.scaled(self.pairs)?, writes: self.run.scaled(self.writes)? };
        let wanted = Wanted {
            threads: &[1],
            limit: Limit::Work,
            ..wanted("wisckey", "4 KiB values in random order", only(spec))
        };
        planned(&self.run, program, wanted)
    }
}

/// Reads and updates in transactions of ten, A1 to A5, with the calls for files by kind (FlashTKV, Fig. 5).
#[derive(Debug, clap::Args)]
pub(super) struct PageVsLogArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Pairs that are there beforehand, before --scale.
    #[arg(long, value_name = "N", default_value_t = PageVsLog::PAIRS, value_parser = clap::value_parser!(u64).range(1..))]
    pairs: u64,
    /// Only engines that keep to --cache, which should be less than the data then.
    #[arg(long)]
    bounded: bool,
}

impl PageVsLogArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let pairs = self.run.scaled(self.pairs)?;
        let spec = |updates: Updates| {
            (format!("{updates:?}"), Spec::PageVsLog { updates, pairs, bounded: self.bounded })
        };
        let specs = Updates::ALL.into_iter().map(spec).collect();
        let wanted = Wanted {
            threads: &[1],
            limit: Limit::Operations(10_000),
            ..wanted("page-vs-log", "Ten reads and updates a transaction", specs)
        };
        planned(&self.run, program, wanted)
    }
}

/// Writers of their own keys beside readers of all, by how much they share, B1 to B3 (FlashTKV, Fig. 7).
#[derive(Debug, clap::Args)]
pub(super) struct MvccVsLockArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Transactions of each writer, before --scale.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    writes: u64,
    /// Reads of each reader, before --scale.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    reads: u64,
}

impl MvccVsLockArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let (writes, reads) = (self.run.scaled(self.writes)?, self.run.scaled(self.reads)?);
        let spec =
            |conflicts: Conflicts| (format!("{conflicts:?}"), Spec::MvccVsLock { conflicts, writes, reads });
        let specs = Conflicts::ALL.into_iter().map(spec).collect();
        let wanted = Wanted {
            threads: &[8],
            limit: Limit::Work,
            ..wanted("mvcc-vs-lock", "Writers beside readers", specs)
        };
        planned(&self.run, program, wanted)
    }
}

/// How large the table is.
#[derive(Debug, clap::Args)]
struct TableArgs {
    /// Bytes of each key and each value.
    #[arg(long, value_name = "KEY,VALUE", default_value = "20,100", value_parser = sizes)]
    sizes: Sizes,
    /// The rows, before --scale.
    #[arg(long, value_name = "ROWS", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
}

/// Random reads, each of one row; with --cold, of a store that the page cache does not hold.
#[derive(Debug, clap::Args)]
pub(super) struct ReadArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    table: TableArgs,
    /// How many of a hundred reads look for a key that is not there.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    misses: u64,
}

impl ReadArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let sizes = checked(Some(self.table.sizes), Read::SIZES, Read::VALUE_BYTES_MIN)?;
        let spec = Spec::Read { sizes, rows: self.run.scaled(self.table.rows)?, miss_percent: self.misses };
        planned(&self.run, program, wanted("read", "DataPoint reads", only(spec)))
    }
}

/// Scans: of a hundred rows from a random one, or of the whole table; forward and reverse. An operation is one scan.
#[derive(Debug, clap::Args)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    table: TableArgs,
}

impl ScanArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let sizes = checked(Some(self.table.sizes), Scan::SIZES, Scan::VALUE_BYTES_MIN)?;
        let rows = self.run.scaled(self.table.rows)?;
        let specs = [
            ("short", ScanLength::Short, Direction::Forward),
            ("short reverse", ScanLength::Short, Direction::Reverse),
            ("long", ScanLength::Long, Direction::Forward),
            ("long reverse", ScanLength::Long, Direction::Reverse),
        ]
        .map(|(name, length, direction)| (name.to_string(), Spec::Scan { sizes, rows, length, direction }));
        let wanted = Wanted { threads: &[1], ..wanted("scan", "Scans", specs.to_vec()) };
        planned(&self.run, program, wanted)
    }
}

/// Filling an empty table, in the order of the keys and in random order. An operation is one batch.
#[derive(Debug, clap::Args)]
pub(super) struct LoadArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Rows of a transaction.
    #[arg(long, value_name = "ROWS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch: u64,
}

impl LoadArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let sizes = checked(Some(self.table.sizes), Insert::SIZES, crate::workload::Load::VALUE_BYTES_MIN)?;
        let rows = self.run.scaled(self.table.rows)?;
        let specs = [("sorted", Order::Sorted), ("random", Order::Random)];
        let specs = specs
            .map(|(name, order)| (name.to_string(), Spec::Load { sizes, rows, order, batch: self.batch }));
        let wanted =
            Wanted { threads: &[1], limit: Limit::Work, ..wanted("load", "Filling a table", specs.to_vec()) };
        planned(&self.run, program, wanted)
    }
}

/// Queues: each thread puts rows at the end of its own, and takes them from its head by a scan from the beginning.
#[derive(Debug, clap::Args)]
pub(super) struct DeleteQueueArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Rows in each queue, before --scale.
    #[arg(long, value_name = "ROWS", default_value_t = DeleteQueue::BACKLOG,
          value_parser = clap::value_parser!(u64).range(1..))]
    backlog: u64,
}

impl DeleteQueueArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let spec = Spec::DeleteQueue {
            queues: self.run.threads.iter().copied().max().unwrap_or(8),
            backlog: self.run.scaled(self.backlog)?,
            value_bytes: DeleteQueue::VALUE_BYTES,
        };
        let wanted =
            Wanted { threads: &[8], ..wanted("delete-queue", "Queues of rows that come and go", only(spec)) };
        planned(&self.run, program, wanted)
    }
}

/// One queue and many workers, which put jobs at its end, or take them from its head, one in a transaction.
#[derive(Debug, clap::Args)]
pub(super) struct JobQueueArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Jobs, before --scale.
    #[arg(long, value_name = "JOBS", default_value_t = JobQueue::JOBS,
          value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
}

impl JobQueueArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let (jobs, value_bytes) = (self.run.scaled(self.jobs)?, JobQueue::VALUE_BYTES);
        let specs = [("enqueue", QueueWork::Enqueue), ("take", QueueWork::Take)];
        let specs = specs.map(|(name, work)| (name.to_string(), Spec::JobQueue { jobs, value_bytes, work }));
        let wanted = Wanted {
            threads: &[1, 4, 16],
            limit: Limit::WorkWithin(Duration::from_secs(600)),
            ..wanted("job-queue", "One queue and many workers", specs.to_vec())
        };
        planned(&self.run, program, wanted)
    }
}

/// Random overwrites of the same rows for as long as the limit says, with what the files take over time.
#[derive(Debug, clap::Args)]
pub(super) struct OverwriteArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    table: TableArgs,
}

impl OverwriteArgs {
    pub(super) fn view(&self, program: &Program) -> Result<(Plan, View), Failure> {
        let sizes = checked(Some(self.table.sizes), Insert::SIZES, OverwriteSteady::VALUE_BYTES_MIN)?;
        let Sizes { key_bytes, value_bytes } = sizes;
        let spec = Spec::Overwrite { rows: self.run.scaled(self.table.rows)?, key_bytes, value_bytes };
        let wanted = Wanted {
            threads: &[4],
            limit: Limit::Time(Duration::from_secs(30)),
            ..wanted("overwrite-steady", "Random overwrites", only(spec))
        };
        planned(&self.run, program, wanted)
    }
}
