//! The data model: how Redis's keys and values are kept in tables of the engine. `docs/format/redis.md` specifies the bytes.

mod counts;
mod head;
mod tables;
mod write;

pub(crate) use counts::{Counted, Counts};
pub(crate) use head::{Head, Kind};
pub(crate) use tables::{Model, expiry_key, head_key, split_expiry_key};
pub(crate) use write::{Old, Write};
