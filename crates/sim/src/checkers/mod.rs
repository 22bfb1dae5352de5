//! What has to hold in every run, one rule in a file.

mod acknowledged;
mod agreed;
mod equal;
mod leaders;
mod order;
mod reads;

pub(crate) use self::acknowledged::Acknowledged;
pub(crate) use self::agreed::AgreedEntries;
pub(crate) use self::equal::check_equal;
pub(crate) use self::leaders::Leaders;
pub(crate) use self::order::Order;
pub(crate) use self::reads::Reads;

/// The state of all checkers.
#[derive(Default)]
pub(crate) struct Checkers {
    pub leaders: Leaders,
    pub agreed: AgreedEntries,
    pub order: Order,
    pub acknowledged: Acknowledged,
    pub reads: Reads,
}
