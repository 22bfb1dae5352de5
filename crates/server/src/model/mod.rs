//! The data model: how Redis's keys and values are kept in tables of the engine. `docs/format/redis.md` specifies the bytes.

mod block_starts;
mod content;
mod counts;
mod head;
mod ids;
mod keyspaces;
mod long_keys;
mod long_rows;
mod long_text;
mod long_values;
mod ranks;
mod staging;
mod tables;
mod text;
mod view;
mod write;

pub(crate) use content::{
    Bounds, NAME_BYTES_MAX, Section, content_bounds, element_key, section_bounds, split_element_key,
    split_score_key,
};
pub(crate) use counts::{Counted, Counts};
pub(crate) use head::{Collection, Head, Kind};
pub(crate) use keyspaces::{HeldBack, KeyspaceMap, Running};
pub(crate) use long_keys::{LongKeys, keyspace_bounds};
pub(crate) use long_rows::{LongRows, RowsToSend, Shown};
pub(crate) use long_text::{LongText, Outgoing, PIECE_BYTES};
pub(crate) use long_values::{LongValues, ValuesToSend};
pub(crate) use ranks::{Edge, Span, decode_member};
pub(crate) use staging::Staging;
pub(crate) use tables::{
    Garbage, LookUp, Model, TableKey, expiry_key, garbage_key, head_key, split_expiry_key, split_head_key,
};
pub(crate) use text::{FRAGMENT_BYTES, Fragmented, INLINE_VALUE_BYTES_MAX, Text};
pub(crate) use view::{INLINE_ROWS_MAX, Order, Source, View, damaged_row, row_name};
pub(crate) use write::{Adds, DAMAGED, Old, Write};

#[cfg(test)]
pub(crate) use content::member_key;
