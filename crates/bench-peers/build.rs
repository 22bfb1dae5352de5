//! Nothing is built beside the crate.

fn main() {}
