//! What nodes say to each other. No encoding: that is the network's.

use fulgurite_log::Entry;
use fulgurite_types::{Csn, EntryId};

/// A node's word that it takes nothing from leaders of older terms any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The node.
    pub node: u32,
    /// The term that it noted.
    pub term: u64,
    /// The only node that may lead in this term, as far as this one is concerned; `None`: no node.
    pub nominee: Option<u32>,
    /// The last entry of its log, which is durable.
    pub last: EntryId,
}

/// Entries of a leader for a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The leader.
    pub leader: u32,
    /// Its term.
    pub term: u64,
    /// The entry before the first of these.
    pub previous: EntryId,
    /// Consecutive entries; none to ask how far the follower has come, or to tell what is agreed.
    pub entries: Vec<Entry>,
    /// The last agreed entry of its term that the leader knows; the default if none is.
    pub agreed: EntryId,
    /// The newest round of questions whether the leader's term still holds.
    pub round: u64,
}

/// A follower's acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The follower.
    pub node: u32,
    /// The leader's term.
    pub term: u64,
    /// Up to here its log is that of the leader, and durable.
    pub matched: EntryId,
    /// It has all commits up to this one.
    pub csn: Csn,
    /// The round of the leader's message: its term still held on this node when that came.
    pub round: u64,
}

/// A read at the leader that is to show all that was acknowledged before it began, by any leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBarrier {
    /// The leader's term.
    pub term: u64,
    /// The round of questions that it waits for.
    pub round: u64,
    /// The last commit that may have been acknowledged: the read begins once this is visible ([`Database::wait_applied`](fulgurite::Database::wait_applied)).
    pub csn: Csn,
}
