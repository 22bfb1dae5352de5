//! The nodes of a tree, in memory and on disk.

pub(crate) mod compact;
pub(crate) mod delta;
pub(crate) mod entry;
pub(crate) mod format;
pub(crate) mod inner;
pub(crate) mod leaf;
pub(crate) mod leaf_check;
pub(crate) mod leaf_writer;
pub(crate) mod search;
