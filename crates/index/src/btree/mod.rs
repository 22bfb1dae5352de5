//! The B+tree (being written).

/// A resident leaf.
#[derive(Debug)]
pub struct Leaf;
