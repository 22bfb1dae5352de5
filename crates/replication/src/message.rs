//! What nodes say to each other. No encoding: that is the network's.

use crate::identity::{Cluster, ClusterId, Life, Lived};
use fulgurite_log::{Entry, LogError, SentChunk};
use fulgurite_types::limits::LISTS_ORDINAL_MIN;
use fulgurite_types::{Csn, EntryId};
use std::sync::Arc;

/// From whom a message is, and to whom. Whatever carries messages makes sure that they arrive as they were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The cluster.
    pub cluster: ClusterId,
    /// The life of the node that sends it.
    pub from: Life,
    /// The nonces of its last starts, this one's last.
    pub nonces: Arc<[u64]>,
    /// The number of the node that gets it.
    pub to: u32,
    /// The newest life of that node that the sender remembers.
    pub known: Option<Life>,
}

/// A node's word that it takes nothing from leaders of older terms any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Its cluster, with the members that it has.
    pub cluster: Arc<Cluster>,
    /// The newest version of the members with which an entry was agreed, as it has heard.
    pub in_force: Option<u64>,
    /// Whether a leader was appointed with its members, as it has heard.
    pub is_settled: bool,
    /// The node.
    pub life: Life,
    /// The nonces of its last starts, this one's last.
    pub nonces: Arc<[u64]>,
    /// The term that it noted.
    pub term: u64,
    /// The only node that may lead in this term, as far as this one is concerned; `None`: no node.
    pub nominee: Option<u32>,
    /// The last entry of its log, which is durable.
    pub last: EntryId,
    /// The newest lives of other nodes that it remembers.
    pub lives: Vec<Life>,
}

/// Entries of a leader for a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The leader, and the follower.
    pub envelope: Envelope,
    /// The leader's term.
    pub term: u64,
    /// The entry before the first of these.
    pub previous: EntryId,
    /// How many chunks of the first entry, whether it is in this message or not, were sent before.
    pub chunks_before: u32,
    /// Chunks, in the order in which the entries refer to them. The last ones may be of the entry after these, which they begin.
    pub chunks: Vec<SentChunk>,
    /// Consecutive entries; none to ask how far the follower has come, to tell what is agreed, or if there are only chunks.
    pub entries: Vec<Entry>,
    /// The entry after these, if it has some of the chunks.
    pub begun: Option<EntryId>,
    /// The last agreed entry of its term that the leader knows; the default if none is.
    pub agreed: EntryId,
    /// The newest round of questions whether the leader's term still holds.
    pub round: u64,
    /// The newest lives of other nodes from which the leader has heard.
    pub lives: Vec<Lived>,
    /// The cluster, with the members with which the leader was appointed.
    pub cluster: Arc<Cluster>,
}

/// How far a follower has been sent the log, or has it: all entries up to an index, and some chunks of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentUpTo {
    /// The index of the last whole entry.
    pub index: u64,
    /// How many chunks of the entry after it.
    pub chunks: u32,
}

impl From<u64> for SentUpTo {
    fn from(index: u64) -> SentUpTo {
        SentUpTo { index, chunks: 0 }
    }
}

impl Append {
    /// Up to here the log is sent with this message: where the next one begins, if this one is not lost.
    pub fn end(&self) -> SentUpTo {
        let last = self.entries.last().map_or(self.previous, |entry| entry.id);
        let chunks = u32::try_from(self.begun_chunks().unwrap_or(0)).unwrap_or(0);
        SentUpTo { index: last.index, chunks }
    }

    /// How many chunks of the entry after these were sent with this message and before; `None` if its entries refer to more chunks than it has.
    fn begun_chunks(&self) -> Option<u64> {
        let counts = self.entries.iter().flat_map(|entry| &entry.chunks).map(|frame| u64::from(frame.count));
        (u64::from(self.chunks_before) + self.chunks.len() as u64).checked_sub(counts.sum())
    }

    /// Checks that the entries and the one that is begun refer to the chunks that it has, and to no others.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        let first = self.entries.first().map(|entry| &entry.chunks);
        let of_first =
            first.map_or(u64::MAX, |chunks| chunks.iter().map(|frame| u64::from(frame.count)).sum());
        let begun = self.begun_chunks();
        let all = u64::from(self.chunks_before) + self.chunks.len() as u64;
        if all <= LISTS_ORDINAL_MIN.into()
            && begun.is_some_and(|begun| (begun > 0) == self.begun.is_some())
            && u64::from(self.chunks_before) <= of_first
        {
            return self
                .entries
                .iter()
                .filter(|entry| !entry.chunks.is_empty())
                .try_for_each(Entry::validate);
        }
        let (leader, previous) = (self.envelope.from.node, self.previous);
        let what = "does not have the chunks to which its entries refer, or others";
        Err(LogError::Usage(format!("what node {leader} sent after entry {previous} {what}")))
    }

    /// Whether an entry of the leader's own term was agreed with its members: they are in force.
    pub(crate) fn says_in_force(&self) -> bool {
        self.agreed.index > 0 && self.agreed.term == self.term
    }

    /// Takes out what it has of the log.
    pub(crate) fn empty(&mut self) {
        (self.entries, self.chunks, self.chunks_before, self.begun) = (Vec::new(), Vec::new(), 0, None);
    }

    /// Whether it has nothing of the log.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.chunks.is_empty()
    }
}

impl Appended {
    /// How far the follower has the log: what is sent next begins there.
    pub fn up_to(&self) -> SentUpTo {
        SentUpTo { index: self.matched.index, chunks: self.chunks }
    }
}

/// A follower's acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The follower, and the leader.
    pub envelope: Envelope,
    /// The leader's term.
    pub term: u64,
    /// Up to here its log is that of the leader, and durable.
    pub matched: EntryId,
    /// It has so many chunks of the entry after that one. They may not be durable yet.
    pub chunks: u32,
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
