//! Range deletes (being written).
use fulgurite_base::Csn;

/// The range deletes of a table.
#[derive(Debug, Default)]
pub struct RangeDeletes;

impl RangeDeletes {
    /// The CSN of the newest range delete at or below `at` that covers `key`.
    pub fn covering(&self, _key: &[u8], _at: Csn) -> Option<Csn> {
        None
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        true
    }
}
