//! Errors of a node and of its file of terms.

use crate::identity::{Cluster, ClusterId, Life, MEMBERS_MAX};
use crate::message::SentUpTo;
use fulgurite::Damage;
use fulgurite_log::LogError;
use fulgurite_types::{Csn, DatabaseId, EntryId};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// An error of a node's file of terms.
#[derive(Debug)]
#[non_exhaustive]
pub enum TermError {
    /// The file system refused an operation. After a failed [`TermFile::save`](crate::TermFile::save) the term and vote on disk are the old or
    /// the new ones: the file takes nothing more, open it again.
    Io {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Neither copy in the file is valid: this node may have voted. Fill it from another node, under another number.
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to another node or another database. It was not changed.
    NotOwn {
        /// The file.
        path: PathBuf,
        /// The node and the database that it belongs to.
        found: (u32, DatabaseId),
        /// Those that it was opened for.
        wanted: (u32, DatabaseId),
    },
    /// A term would fall, or a vote change in its term. Nothing was written.
    Stale {
        /// The term and the vote that are on record.
        kept: (u64, Option<u32>),
        /// Those that were to be saved.
        wanted: (u64, Option<u32>),
    },
    /// The members of a cluster are not a set of numbers from 1 with this node in it, or too many. Name each once.
    Members {
        /// The node.
        node: u32,
        /// The members that were named.
        members: Vec<u32>,
    },
    /// The members would change by more than one, or not at all: two majorities might have no node in common. Add or remove one, have a leader
    /// appointed, then the next.
    ManyMembers {
        /// The members.
        from: Vec<u32>,
        /// Those that were named.
        to: Vec<u32>,
    },
    /// The members would change before this node has heard that an entry was agreed of a leader that was appointed with the ones that it has.
    NotInForce {
        /// These.
        members: Vec<u32>,
        /// Their version.
        version: u64,
    },
    /// The directory is to be that of a new node, or one that is filled, and is no copy of another node's directory of that cluster, with its file of terms.
    NotACopy {
        /// The file of terms that is there.
        path: PathBuf,
        /// The node and the cluster that it is of.
        found: (u32, ClusterId),
        /// Those that were named.
        wanted: (u32, ClusterId),
    },
    /// The directory is to be that of a new node, and others have heard of one with its number: that may have promised and acknowledged what this one would not know.
    UsedNumber {
        /// The file of terms that knows it.
        path: PathBuf,
        /// The number.
        node: u32,
    },
    /// The node was moved to another directory, or is being moved ([`Replica::refill`](crate::Replica::refill)). End that; this directory is its former one.
    Moved {
        /// The file.
        path: PathBuf,
        /// The node.
        node: u32,
    },
    /// An earlier save failed, or another process has written the file: the term and the vote on disk are not known. Open the file again.
    Unknown,
}

fn vote(vote: Option<u32>) -> String {
    vote.map_or("no vote".into(), |node| format!("a vote for node {node}"))
}

impl fmt::Display for TermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TermError::Io { action, path, source } => {
                write!(
                    f,
                    "could not {action} {}: {source}; remove the cause and open it again",
                    path.display()
                )
            }
            TermError::Damaged { path } => write!(
                f,
                "{} is damaged: this node may have voted, so it must not vote again; fill it from another node, under another number",
                path.display()
            ),
            TermError::NotOwn { path, found, wanted } => write!(
                f,
                "{} belongs to node {} of database {}, not to node {} of database {}; give each node its own directory",
                path.display(),
                found.0,
                found.1,
                wanted.0,
                wanted.1
            ),
            TermError::Stale { kept, wanted } => write!(
                f,
                "term {} with {} is on record, so term {} with {} cannot be saved",
                kept.0,
                vote(kept.1),
                wanted.0,
                vote(wanted.1)
            ),
            TermError::Members { node, members } => write!(
                f,
                "{members:?} cannot be the members: name each once, from 1, node {node} among them, {MEMBERS_MAX} at most"
            ),
            TermError::ManyMembers { from, to } => write!(
                f,
                "{from:?} cannot become {to:?}: add or remove one member on each node, appoint a leader, then go on with the next"
            ),
            TermError::NotInForce { members, version } => write!(
                f,
                "this node has not heard that an entry was agreed with the members {members:?}, version {version}: appoint a leader with them, and \
                 have it send what is agreed, before they change again"
            ),
            TermError::NotACopy { path, found, wanted } => write!(
                f,
                "{} is of node {} of cluster {}; node {} of cluster {} needs a copy of the whole directory of another node of that cluster, \
                 or is here already: then open it",
                path.display(),
                found.0,
                found.1,
                wanted.0,
                wanted.1
            ),
            TermError::UsedNumber { path, node } => write!(
                f,
                "there was a node {node}, as {} says: give the new one a number that none had",
                path.display()
            ),
            TermError::Moved { path, node } => write!(
                f,
                "{} says that node {node} was moved to another directory: open it there, or, if that was cut off, fill it again with the same copy",
                path.display()
            ),
            TermError::Unknown => write!(
                f,
                "an earlier save failed, or another process has written the file, so the term on disk is not known; open the file again"
            ),
        }
    }
}

impl Error for TermError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TermError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// An error of a node. Those that are not of its log or its terms name both sides, and change nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// A message, a fence or an appointment of a term that is over for the node, or was used in it.
    StaleTerm {
        /// The node.
        node: u32,
        /// The term that was asked for.
        term: u64,
        /// The term that the node noted.
        noted: u64,
    },
    /// A leader was appointed without a majority that was fenced in its term, itself included.
    NoMajority {
        /// Its term.
        term: u64,
        /// How many members were fenced in it.
        fenced: usize,
        /// How many members there are.
        members: usize,
    },
    /// A leader was appointed with new members, and without a majority of the members before that has them, too: others may have changed to other ones.
    NoMajorityBefore {
        /// Its term.
        term: u64,
        /// How many of the members before have the new ones, and were fenced in that term.
        fenced: usize,
        /// The members before.
        previous: Vec<u32>,
    },
    /// A node was appointed although another one that was fenced has later entries, which may be agreed.
    Behind {
        /// Its last entry.
        last: EntryId,
        /// The other node, and its last entry.
        ahead: (u32, EntryId),
    },
    /// Entries are missing before those that a leader sent: it has to begin earlier.
    Gap {
        /// The node.
        node: u32,
        /// The entry before the first that was sent.
        previous: EntryId,
        /// The last entry of the node.
        last: EntryId,
    },
    /// The node has another entry before those that a leader sent, of another leader: this one has to begin earlier.
    Differs {
        /// The node.
        node: u32,
        /// The entry before the first that was sent.
        previous: EntryId,
        /// Up to this index the two logs are the same.
        begin_after: u64,
    },
    /// Chunks are missing before those that a leader sent: the node was opened again, or a message was lost. The leader begins at the first
    /// that is missing.
    ChunkGap {
        /// The node.
        node: u32,
        /// The entry that refers to the chunks.
        entry: EntryId,
        /// How many chunks of it were sent before.
        sent: u32,
        /// How many of them the node has.
        have: u32,
    },
    /// A message, or a promise, of another cluster.
    OtherCluster {
        /// The node, and its cluster.
        own: (u32, ClusterId),
        /// The other one.
        other: (u32, ClusterId),
    },
    /// The nodes have different members. Nothing is appointed: which nodes are a majority is not known.
    OtherMembers {
        /// The node, and its cluster.
        own: (u32, Arc<Cluster>),
        /// The other one.
        other: (u32, Arc<Cluster>),
    },
    /// A message for another node, or of one that is no member, came to this one.
    Misdirected {
        /// The node.
        node: u32,
        /// Which node sent it, and to which.
        sent: (u32, u32),
    },
    /// What comes is from an earlier life of a node than this one has heard of, or from another directory with its number. It is late; or
    /// the other node has an older copy of its directory, or there are two of that number.
    PastLife {
        /// The node that heard it.
        node: u32,
        /// The life that it comes from.
        life: Life,
        /// The one that is remembered.
        known: Life,
    },
    /// Another node has heard of a later life of this one, or of another directory with its number: this one's directory is an older copy, or
    /// there are two. It may lack what it promised and acknowledged, and says nothing any more.
    OldDirectory {
        /// This life.
        own: Life,
        /// The one that the other node remembers.
        known: Life,
        /// The other node.
        by: u32,
    },
    /// The log has entries of a term that the node's file does not know: the file was replaced, or is of an older copy. The node must not
    /// vote; fill it from another one, under another number.
    TermBehind {
        /// The node.
        node: u32,
        /// The term in the file.
        noted: u64,
        /// The last entry of the log.
        last: EntryId,
    },
    /// The node has other commits than the leader before the first entry: fill it from a copy of the leader's database.
    OtherHistory {
        /// The node.
        node: u32,
        /// The entry that was sent.
        entry: EntryId,
        /// Its first commit.
        first: Csn,
        /// The commit that has to follow on this node.
        next: Csn,
    },
    /// The node's log has to be opened again, at once and once: after it led, or cut after an entry, because the leader has others from there on.
    MustReopen {
        /// The node.
        node: u32,
        /// [`ReplayFrom::up_to_entry`](fulgurite_log::ReplayFrom::up_to_entry): nothing is cut without one.
        up_to: Option<u64>,
    },
    /// Another node says that it leads in the term in which this one does. The rules rule that out: a directory was copied.
    TwoLeaders {
        /// The term.
        term: u64,
        /// This node, and the other one.
        nodes: (u32, u32),
    },
    /// No entry of the leader's term is agreed yet: it does not know what was acknowledged before. Ask again once it is.
    NothingAgreed {
        /// The node.
        node: u32,
        /// Its term.
        term: u64,
    },
    /// The log was opened again since, with another [`Node`](crate::Node): ask that one.
    Retired {
        /// The node.
        node: u32,
    },
    /// This node does not lead, or not any more: ask the leader.
    NotLeading {
        /// The node.
        node: u32,
    },
    /// A directory was to be that of a new node, and its log has entries already: the node may have voted, and its file of terms is gone. Fill it
    /// from another one, under another number.
    Used {
        /// The node.
        node: u32,
        /// The last entry of its log.
        last: EntryId,
    },
    /// A node was to be filled from a copy that ends before what the node has: it would lack what it acknowledged. Copy the leader's database, now.
    OldCopy {
        /// The node.
        node: u32,
        /// The last entry of its log.
        last: EntryId,
        /// That of the copy.
        copied: EntryId,
    },
    /// The node's database is damaged: it may lack what it acknowledged, so it is not opened. Fill it from another node, under another number
    /// ([`Replica::join`](crate::Replica::join)).
    Damaged {
        /// The node.
        node: u32,
        /// What is damaged, and where.
        damage: Box<Damage>,
    },
    /// The node's database.
    Database(fulgurite::Error),
    /// The node's terms.
    Term(TermError),
    /// The node's log.
    Log(LogError),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::StaleTerm { node, term, noted } => {
                write!(f, "term {term} is over for node {node}, which noted term {noted}; use a higher one")
            }
            NodeError::NoMajority { term, fenced, members } => write!(
                f,
                "{fenced} of {members} members were fenced in term {term}; a leader needs a majority, itself included: fence more"
            ),
            NodeError::NoMajorityBefore { term, fenced, previous } => write!(
                f,
                "{fenced} of the members before, {previous:?}, have the new ones and were fenced in term {term}; until an entry is agreed with the \
                 new ones a leader needs a majority of both: change the members of more nodes, and fence them"
            ),
            NodeError::Behind { last, ahead } => write!(
                f,
                "the last entry is {last}, and node {} has entry {}, which may be agreed; appoint that node",
                ahead.0, ahead.1
            ),
            NodeError::TermBehind { node, noted, last } => write!(
                f,
                "node {node} noted term {noted}, and its log has entry {last}: the file of terms is not the one of this log; fill the \
                 node from another one, under another number"
            ),
            NodeError::MustReopen { node, up_to: Some(index) } => write!(
                f,
                "the log of node {node} has other entries than the leader after {index}; open it again, cut there"
            ),
            NodeError::MustReopen { node, up_to: None } => {
                write!(f, "node {node} led, and may have commits that are none; open its log again")
            }
            NodeError::TwoLeaders { term, nodes: (this, other) } => write!(
                f,
                "node {other} says that it leads in term {term}, in which node {this} does; one of them has a copied directory: stop both"
            ),
            NodeError::NothingAgreed { node, term } => {
                write!(f, "no entry of term {term}, in which node {node} leads, is agreed yet; ask again")
            }
            NodeError::Retired { node } => {
                write!(
                    f,
                    "the log of node {node} was opened again since this was taken from it; take it anew"
                )
            }
            NodeError::NotLeading { node } => write!(f, "node {node} does not lead; ask the leader"),
            NodeError::Used { node, last } => write!(
                f,
                "the log has entry {last} already, and no file of terms: it may have voted as node {node}; fill it from another one, under \
                 another number"
            ),
            NodeError::OldCopy { node, last, copied } => write!(
                f,
                "the copy ends with entry {copied}, and node {node} may have acknowledged entry {last}; fill it from a copy of the leader's \
                 database, made now"
            ),
            NodeError::Database(error) => error.fmt(f),
            NodeError::Term(error) => error.fmt(f),
            NodeError::Log(error) => error.fmt(f),
            sent => fmt_sent(sent, f),
        }
    }
}

/// What keeps a node from taking what a leader sent.
fn fmt_sent(error: &NodeError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        NodeError::Gap { node, previous, last } => {
            write!(f, "entry {previous} was sent to node {node}, which has none after {last}; begin there")
        }
        NodeError::ChunkGap { node, entry, sent, have } => write!(
            f,
            "what follows chunk {sent} of entry {entry} was sent to node {node}, which has {have} of them; begin there"
        ),
        NodeError::OtherHistory { node, entry, first, next } => write!(
            f,
            "entry {entry} begins with commit {first}, and on node {node} commit {next} has to follow; fill it from a copy of the \
                 leader's database"
        ),
        NodeError::Differs { node, previous, begin_after } => write!(
            f,
            "entry {previous} was sent to node {node}, which has another one there; begin after entry {begin_after}"
        ),
        NodeError::OtherCluster { own, other } => write!(
            f,
            "node {} is of cluster {}, and node {} of cluster {}; connect each cluster's own nodes",
            own.0, own.1, other.0, other.1
        ),
        NodeError::OtherMembers { own, other } => write!(
            f,
            "node {} has the members {:?}, version {}, and node {} has {:?}, version {}; change them on each node",
            own.0, own.1.members, own.1.version, other.0, other.1.members, other.1.version
        ),
        NodeError::Misdirected { node, sent: (from, to) } => write!(
            f,
            "a message of node {from} to node {to} came to node {node}; connect the cluster's own nodes, each to the others"
        ),
        NodeError::PastLife { node, life, known } => write!(
            f,
            "what came from {life} is not taken: node {node} knows {known}; if it is not just late, that directory is an older copy, or there \
             are two with one number: stop it, and fill it from another node, under another number"
        ),
        NodeError::OldDirectory { own, known, by } => write!(
            f,
            "this is {own}, and node {by} knows {known}: this directory is an older copy, or there are two with one number. It may lack \
             what it acknowledged: stop it, and fill it from another node, under another number"
        ),
        NodeError::Damaged { node, damage } => write!(
            f,
            "node {node} may lack what it acknowledged, for its database is damaged: {damage}; fill it from another node, under another number"
        ),
        other => write!(f, "{other:?}"),
    }
}

impl NodeError {
    /// Where the leader begins when it sends to the node next, if the node lacks what comes before that which was sent.
    pub fn begin_after(&self) -> Option<SentUpTo> {
        match self {
            NodeError::Gap { last, .. } => Some(last.index.into()),
            NodeError::Differs { begin_after, .. } => Some((*begin_after).into()),
            NodeError::ChunkGap { entry, have, .. } => {
                Some(SentUpTo { index: entry.index.saturating_sub(1), chunks: *have })
            }
            _ => None,
        }
    }
}

impl Error for NodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            NodeError::Damaged { damage, .. } => damage.source(),
            NodeError::Database(error) => error.source(),
            NodeError::Term(error) => error.source(),
            NodeError::Log(error) => error.source(),
            _ => None,
        }
    }
}
