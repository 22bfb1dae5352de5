//! Workloads with their parameters as data, for plans and for other processes.

use serde::{Deserialize, Serialize};

use crate::engine::Direction;
use crate::workload::{
    Conflicts, DeleteQueue, Insert, JobQueue, LinkBench, Load, Mix, MvccVsLock, MvccVsLockParameters, Oltp,
    Order, OverwriteSteady, PageVsLog, QueueWork, Read, Scan, ScanLength, Sizes, Tpcb, Tpcc, TpccScale,
    UpdateSearch, Updates, Wisckey, Workload, Ycsb,
};

/// A workload and its parameters; each is described at the workload.
#[expect(missing_docs, reason = "the parameters are described at the workloads' constructors")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spec {
    Insert(Sizes),
    UpdateSearch(Sizes, u64),
    Oltp(Sizes, u64),
    Ycsb { mix: Mix, records: u64, value_bytes: usize },
    Tpcc { scale: TpccScale, bounded: bool },
    Tpcb { branches: u32, accounts_per_branch: u32 },
    LinkBench { nodes: u64 },
    WiscKey { base_rows: u64, writes: u64 },
    PageVsLog { updates: Updates, pairs: u64, bounded: bool },
    MvccVsLock { conflicts: Conflicts, writes: u64, reads: u64 },
    Read { sizes: Sizes, rows: u64, miss_percent: u64 },
    Scan { sizes: Sizes, rows: u64, length: ScanLength, direction: Direction },
    Load { sizes: Sizes, rows: u64, order: Order, batch: u64 },
    DeleteQueue { queues: u32, backlog: u64, value_bytes: usize },
    JobQueue { jobs: u64, value_bytes: usize, work: QueueWork },
    Overwrite { rows: u64, key_bytes: usize, value_bytes: usize },
}

impl Spec {
    /// The workload.
    pub fn build(&self) -> Box<dyn Workload> {
        match *self {
            Spec::Insert(sizes) => Box::new(Insert::new(sizes)),
            Spec::UpdateSearch(sizes, rows) => Box::new(UpdateSearch::new(sizes, rows)),
            Spec::Oltp(sizes, rows) => Box::new(Oltp::new(sizes, rows)),
            Spec::Ycsb { mix, records, value_bytes } => Box::new(Ycsb::new(mix, records, value_bytes)),
            Spec::Tpcc { scale, bounded } => Box::new(Tpcc::new(scale, bounded)),
            Spec::Tpcb { branches, accounts_per_branch } => {
                Box::new(Tpcb::new(branches, accounts_per_branch))
            }
            Spec::LinkBench { nodes } => Box::new(LinkBench::new(nodes)),
            Spec::WiscKey { base_rows, writes } => {
                Box::new(Wisckey::new(base_rows, writes, Wisckey::VALUE_BYTES))
            }
            Spec::PageVsLog { updates, pairs, bounded } => {
                Box::new(PageVsLog::new(updates, PageVsLog::SIZES, pairs, bounded))
            }
            Spec::MvccVsLock { conflicts, writes, reads } => {
                let parameters = MvccVsLockParameters {
                    writes_per_thread: writes,
                    reads_per_thread: reads,
                    ..MvccVsLockParameters::default()
                };
                Box::new(MvccVsLock::new(conflicts, parameters))
            }
            Spec::Read { sizes, rows, miss_percent } => Box::new(Read::new(sizes, rows, miss_percent)),
            Spec::Scan { sizes, rows, length, direction } => {
                Box::new(Scan::new(sizes, rows, length, direction))
            }
            Spec::Load { sizes, rows, order, batch } => Box::new(Load::new(sizes, rows, order, batch)),
            Spec::DeleteQueue { queues, backlog, value_bytes } => {
                Box::new(DeleteQueue::new(queues, backlog, value_bytes))
            }
            Spec::JobQueue { jobs, value_bytes, work } => Box::new(JobQueue::new(jobs, value_bytes, work)),
            Spec::Overwrite { rows, key_bytes, value_bytes } => {
                Box::new(OverwriteSteady::new(Sizes { key_bytes, value_bytes }, rows))
            }
        }
    }
}
