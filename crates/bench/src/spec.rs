//! Workloads with their parameters as data, for plans and for other processes.

use serde::{Deserialize, Serialize};

use crate::workload::{Insert, Oltp, Sizes, UpdateSearch, Workload};

/// A workload and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spec {
    /// [`Insert`].
    Insert(Sizes),
    /// [`UpdateSearch`], with its rows.
    UpdateSearch(Sizes, u64),
    /// [`Oltp`], with its rows.
    Oltp(Sizes, u64),
}

impl Spec {
    /// The workload.
    pub fn build(&self) -> Box<dyn Workload> {
        match *self {
            Spec::Insert(sizes) => Box::new(Insert::new(sizes)),
            Spec::UpdateSearch(sizes, rows) => Box::new(UpdateSearch::new(sizes, rows)),
            Spec::Oltp(sizes, rows) => Box::new(Oltp::new(sizes, rows)),
        }
    }
}
