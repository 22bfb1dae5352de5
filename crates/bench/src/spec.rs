//! Workloads with their parameters as data, for plans and for other processes.

use serde::{Deserialize, Serialize};

use crate::engine::Direction;
use crate::workload::{
    DeleteQueue, Extent, Insert, LinkBench, Load, LoadOrder, MvccVsLock, Oltp, OverwriteSteady, PageVsLog, Read, Scan,
    Sizes, Tpcb, Tpcc, TpccScale, UpdateSearch, WiscKey, Workload, Ycsb, YcsbMix,
};

/// A workload and its parameters; each is described at the workload.
#[expect(missing_docs, reason = "the parameters are described at the workloads' constructors")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spec {
    /// [`Insert`].
    Insert(Sizes),
    /// [`UpdateSearch`], with its rows.
    UpdateSearch(Sizes, u64),
    /// [`Oltp`], with its rows.
    Oltp(Sizes, u64),
    /// [`Ycsb`].
    Ycsb { mix: YcsbMix, records: u64, value_bytes: usize },
    /// [`Tpcc`].
    Tpcc { scale: TpccScale, bounded: bool },
    /// [`Tpcb`].
    Tpcb { branches: u64, accounts_per_branch: u64 },
    /// [`LinkBench`].
    LinkBench { nodes: u64 },
    /// [`WiscKey`].
    WiscKey { base_rows: u64, writes: u64 },
    /// [`PageVsLog`].
    PageVsLog { rows: u64, update_percent: u64, bounded: bool },
    /// [`MvccVsLock`].
    MvccVsLock { read_range: u64 },
    /// [`Read`].
    Read { sizes: Sizes, rows: u64, miss_percent: u64 },
    /// [`Scan`].
    Scan { sizes: Sizes, rows: u64, extent: Extent, direction: Direction },
    /// [`Load`].
    Load { sizes: Sizes, rows: u64, order: LoadOrder, batch: u64 },
    /// [`DeleteQueue`].
    DeleteQueue { backlog: u64, value_bytes: usize },
    /// [`OverwriteSteady`].
    Overwrite { rows: u64, key_bytes: usize, value_bytes: usize },
}
