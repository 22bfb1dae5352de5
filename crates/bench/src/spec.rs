//! Workloads with their parameters as data, for plans and for other processes.

use serde::{Deserialize, Serialize};

use crate::workload::{
    DeleteQueue, JobQueue, LinkBench, Load, Micro, Mix, MvccVsLock, Niosit, NiositLoad, Oltp, QueueWork,
    Scan, TailLatency, Tpcb, Tpcc, Workload, Ycsb,
};

/// A workload and its parameters; each is described at the workload.
#[expect(missing_docs, reason = "the parameters are described at the workloads")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Spec {
    Micro(Micro),
    Oltp(Oltp),
    Scan(Scan),
    Load(Load),
    MvccVsLock(MvccVsLock),
    DeleteQueue(DeleteQueue),
    JobQueue { jobs: u64, work: QueueWork },
    Tpcb(Tpcb),
    Tpcc(Tpcc),
    LinkBench { nodes: u64 },
    TailLatency(TailLatency),
    Ycsb { mix: Mix, records: u64, value_bytes: usize },
    Niosit { load: NiositLoad, records: u64 },
}

impl Spec {
    /// The workload.
    pub fn build(&self) -> Box<dyn Workload> {
        match *self {
            Spec::Micro(micro) => Box::new(micro),
            Spec::Oltp(oltp) => Box::new(oltp),
            Spec::Scan(scan) => Box::new(scan),
            Spec::Load(load) => Box::new(load),
            Spec::MvccVsLock(mvcc_vs_lock) => Box::new(mvcc_vs_lock),
            Spec::DeleteQueue(queue) => Box::new(queue),
            Spec::JobQueue { jobs, work } => Box::new(JobQueue::new(jobs, work)),
            Spec::Tpcb(tpcb) => Box::new(tpcb),
            Spec::Tpcc(tpcc) => Box::new(tpcc),
            Spec::LinkBench { nodes } => Box::new(LinkBench::new(nodes)),
            Spec::TailLatency(tail_latency) => Box::new(tail_latency),
            Spec::Niosit { load, records } => Box::new(Niosit::new(load, records)),
            Spec::Ycsb { mix, records, value_bytes } => Box::new(Ycsb::new(mix, records, value_bytes)),
        }
    }
}
