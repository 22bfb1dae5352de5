//! One file a command; `load` has a folder of its own.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod delete;
pub(crate) mod drop;
pub(crate) mod dump;
mod dump_json;
mod dump_node;
pub(crate) mod export;
pub(crate) mod gc;
pub(crate) mod get;
pub(crate) mod man;
pub(crate) mod probe;
pub(crate) mod put;
pub(crate) mod rename;
pub(crate) mod reset_clock;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod staging;
pub(crate) mod stat;
mod stat_beside;
mod stat_memory;
pub(crate) mod tables;
