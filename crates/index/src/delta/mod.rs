//! The delta (being written).

/// Keeps a commit's block alive.
#[derive(Clone, Debug)]
pub struct BlockRef;
