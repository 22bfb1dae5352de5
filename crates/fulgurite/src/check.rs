//! Verification of a whole database.

/// How far a check has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// What is being looked at: a table, or the log.
    pub what: String,
    /// Entries or bytes looked at so far.
    pub done: u64,
    /// About how many there are.
    pub total: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Tables, the catalog included.
    pub tables: u64,
    /// Entries in leaves.
    pub entries: u64,
    /// Node records.
    pub node_records: u64,
    /// Values outside the leaves, each read and verified.
    pub values: u64,
    /// Their bytes.
    pub value_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Frames in the kept log.
    pub frames: u64,
    /// One sentence for each thing that is wrong; empty: the database is sound.
    pub problems: Vec<String>,
}
