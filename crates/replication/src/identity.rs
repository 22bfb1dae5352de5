//! Which cluster, which node, and which life of it a message is from. Without that, a node whose directory is an older copy, or two directories with one
//! number, would vote and acknowledge twice.
//!
//! - **INV-REP-9**: a node takes and counts nothing of another node's life before it durably remembers that life, and nothing of one to which the newest that
//!   it remembers did not lead: an earlier one, one of a copy, or of another directory. A node that hears of such a life of itself says nothing any more, also
//!   after it is started again.
//!
//! That finds an older copy of a directory once the node was started again after the copy was made, and the other side has heard of that start: also
//! after the copy was started more often, for a node keeps the nonces of its last [`STARTS_KEPT`] starts, and compares them with what others remember. It
//! cannot find other copies: one of a life of which no other node has heard is a node that was away.
//!
//! - **INV-REP-10**: a leader is appointed by a majority of members with nodes that all have this set of members, at this version; until one of these nodes has heard that a leader was
//!   appointed with them, by a majority of the members before, too, that have this set: those that stay, and the one that is removed. And a node goes from one
//!   set to the next, which has one member more or less, once it has heard that an entry was agreed of a leader that was appointed with the first, in that leader's own term
//!   (the single-server changes of Ongaro, 2014, section 4.1, by an operator, node by node). Majorities of two sets that follow each other have a node in common: so once that entry is agreed, no leader of a
//!   set before gets one agreed, and all leaders of the next have it, with all before. The second majority is for two operators at once: of four members two may go to one set of three, and two to another
//!   one, and two of three would be a majority of each; once one set had it, no other one can get it. (Raft needs none, for there the members are an entry, of which one leader has one.) What a leader
//!   has agreed is on a majority of its members that have heard of it: so the first majority is enough for the leader after it.

use std::fmt;
use std::sync::Arc;

use crate::error::TermError;

/// A cluster has at most so many members.
pub const MEMBERS_MAX: usize = 31;

/// A node keeps the nonces of so many of its last starts.
pub(crate) const STARTS_KEPT: usize = 32;

/// The identity of a cluster: a number that was drawn once, when it was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A cluster, as each of its nodes was made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its identity.
    pub id: ClusterId,
    /// How often the members were changed ([`Node::change_members`](crate::Node::change_members)).
    pub version: u64,
    /// The numbers of its nodes, from 1, each once; at most [`MEMBERS_MAX`]. A leader needs a majority of them.
    pub members: Vec<u32>,
    /// The members before; none in the first version. Until an entry was agreed with the members, a leader needs a majority of these, too (INV-REP-10).
    pub previous: Vec<u32>,
}

impl Cluster {
    /// A new cluster.
    pub fn new(id: ClusterId, members: impl Into<Vec<u32>>) -> Cluster {
        Cluster { id, version: 0, members: members.into(), previous: Vec::new() }
    }

    /// With one member more, or one less.
    pub(crate) fn change(&self, members: &[u32], node: u32) -> Result<Cluster, TermError> {
        let version = self.version.saturating_add(1);
        let (members, previous) = (members.to_vec(), self.members.clone());
        let after = Cluster { version, members, previous, ..self.clone() }.checked(node)?;
        let differs = |a: &[u32], b: &[u32]| a.iter().filter(|member| !b.contains(member)).count();
        if differs(&after.members, &self.members) + differs(&self.members, &after.members) != 1 {
            return Err(TermError::ManyMembers { from: self.members.clone(), to: after.members });
        }
        Ok(after)
    }

    /// Checks the members of which `node` is to be one, or was one of those before, and sorts them. A node that is removed has the set without itself as the others do:
    /// it counts for the majority of the members before.
    pub(crate) fn checked(&self, node: u32) -> Result<Cluster, TermError> {
        let (mut members, mut previous) = (self.members.clone(), self.previous.clone());
        members.sort_unstable();
        previous.sort_unstable();
        let is_set = |of: &[u32]| of.windows(2).all(|pair| pair[0] < pair[1]) && of.len() <= MEMBERS_MAX;
        let is_one = members.contains(&node) || previous.contains(&node);
        if !is_set(&members) || !is_set(&previous) || !is_one || members.is_empty() || members.contains(&0) {
            return Err(TermError::Members { node, members: self.members.clone() });
        }
        Ok(Cluster { members, previous, ..self.clone() })
    }

    /// The same for a node that is made, or leads.
    pub(crate) fn checked_with(&self, node: u32) -> Result<Cluster, TermError> {
        match self.members.contains(&node) {
            true => self.checked(node),
            false => Err(TermError::Members { node, members: self.members.clone() }),
        }
    }
}

/// A life of a node: one start of it, in one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The number of the node.
    pub node: u32,
    /// A number that was drawn when its directory was made.
    pub directory: u64,
    /// How often it was started, this time included.
    pub start: u64,
    /// A number that was drawn at this start.
    pub nonce: u64,
}

impl Life {
    /// Whether the one that is remembered is this life or one before it. `nonces`: those of the last starts, this one's last.
    pub(crate) fn continues(&self, nonces: &[u64], remembered: &Life) -> bool {
        let Some(before) = self.start.checked_sub(remembered.start) else { return false };
        let nonce = usize::try_from(before).ok().and_then(|before| nonces.iter().rev().nth(before));
        self.directory == remembered.directory && nonce.is_none_or(|nonce| *nonce == remembered.nonce)
    }
}

/// A life, and what proves which ones came before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lived {
    /// The life.
    pub life: Life,
    /// The nonces of the last starts of its directory, this one's last.
    pub nonces: Arc<[u64]>,
}

impl Lived {
    pub(crate) fn continues(&self, remembered: &Life) -> bool {
        self.life.continues(&self.nonces, remembered)
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Life { node, directory, start, .. } = self;
        write!(f, "start {start} of node {node} in directory {directory:016x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_compared_by_directory_start_and_nonce() {
        let life = Life { node: 2, directory: 7, start: 30, nonce: 9 };
        let nonces = [7, 8, 9];
        let is_fine = |known: Life| life.continues(&nonces, &known);
        assert!(is_fine(life) && is_fine(Life { start: 29, nonce: 8, ..life }));
        assert!(!is_fine(Life { start: 28, nonce: 8, ..life }), "of a copy");
        assert!(is_fine(Life { start: 27, nonce: 1, ..life }), "not kept");
        assert!(!is_fine(Life { nonce: 8, ..life }) && !is_fine(Life { start: 31, ..life }));
        assert!(!is_fine(Life { directory: 8, start: 2, ..life }));
    }

    #[test]
    fn members_are_a_set_with_the_node() {
        let check = |members: &[u32]| Cluster::new(ClusterId(1), members).checked(2);
        assert_eq!(check(&[3, 2, 1]).unwrap().members, [1, 2, 3]);
        let many: Vec<u32> = (1..=32).collect();
        for members in [&[][..], &[1, 3], &[1, 2, 2], &[0, 2], &many] {
            assert!(matches!(check(members), Err(TermError::Members { node: 2, .. })), "{members:?}");
        }
        assert!(check(&many[..31]).is_ok());
    }
}
