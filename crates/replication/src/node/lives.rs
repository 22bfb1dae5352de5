//! From which node and life a message is, and which members the nodes have.

use super::{Node, State};
use crate::error::NodeError;
use crate::identity::{Cluster, Life, Lived};
use crate::message::{Append, Envelope, Fenced};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Node {
    /// The cluster, with the members that this node has.
    pub fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(self.state.lock().terms.cluster())
    }

    /// Adds or removes one member, for the next appointment: a node that leads goes on with those with which it was appointed. The operator does
    /// so on each of the members that stay, and on the one that goes if it is there, which counts for the majority before; appoints a leader, and waits until that has an entry agreed,
    /// before the next change (INV-REP-10). A new node is made for the new members, which this returns ([`Replica::join`](crate::Replica::join)); one that is removed is stopped after that.
    ///
    /// # Errors
    /// [`NodeError::Term`] with [`TermError::Members`](crate::TermError::Members), [`TermError::ManyMembers`](crate::TermError::ManyMembers), or
    /// [`TermError::NotInForce`](crate::TermError::NotInForce): nothing was changed.
    pub fn change_members(&self, members: &[u32]) -> Result<Arc<Cluster>, NodeError> {
        let mut state = self.state.lock();
        self.check_usable(&state)?;
        state.terms.change_members(members)?;
        Ok(Arc::clone(state.terms.cluster()))
    }

    /// Takes the members that another node has, if they are later ones, and what that one has heard: for a node that was away, or did not hear in time that an
    /// entry was agreed with the members that it has. It may be needed for a majority that all has the later ones, and without that no leader can tell it.
    ///
    /// # Errors
    /// [`NodeError::Term`] with [`TermError::NotInForce`](crate::TermError::NotInForce) if the other one was made for its members and has heard of no entry that was agreed, or
    /// [`TermError::Members`](crate::TermError::Members) if this node is none of them; [`NodeError::OtherCluster`]. Nothing was changed.
    pub fn adopt_members(&self, of: &Fenced) -> Result<Arc<Cluster>, NodeError> {
        let mut state = self.state.lock();
        self.check_usable(&state)?;
        let own = state.terms.cluster().id;
        if of.cluster.id != own {
            let (own, other) = ((self.number, own), (of.life.node, of.cluster.id));
            return Err(NodeError::OtherCluster { own, other });
        }
        state.terms.adopt_members(&of.cluster, of.in_force, of.is_settled)?;
        Ok(Arc::clone(state.terms.cluster()))
    }

    /// This life of the node.
    pub fn life(&self) -> Life {
        self.state.lock().terms.life()
    }

    /// The newest lives of other nodes that this one remembers.
    pub fn lives(&self) -> Vec<Life> {
        self.state.lock().terms.lives()
    }

    /// What a message of this node to another one begins with.
    pub fn envelope(&self, to: u32) -> Envelope {
        self.envelope_in(&self.state.lock(), to)
    }

    pub(super) fn envelope_in(&self, state: &State, to: u32) -> Envelope {
        let terms = &state.terms;
        let (cluster, from, nonces) = (terms.cluster().id, terms.life(), Arc::clone(terms.nonces()));
        Envelope { cluster, from, nonces, to, known: terms.known(to) }
    }

    /// Checks from which life of which node a message is, and for which node; the sender first, for what an older copy says counts for nothing, but for what
    /// [`Node::hear_of_members`] hears.
    pub(super) fn check_envelope(&self, state: &mut State, envelope: &Envelope) -> Result<(), NodeError> {
        let Envelope { cluster, from, ref nonces, to, known } = *envelope;
        let own = state.terms.cluster().id;
        if cluster != own {
            return Err(NodeError::OtherCluster { own: (self.number, own), other: (from.node, cluster) });
        }
        let leading = state.leading.as_ref();
        let is_of_members = state.terms.has_member(from.node)
            || leading.is_some_and(|leading| leading.matched.contains_key(&from.node));
        if to != self.number || from.node == self.number || !is_of_members {
            return Err(NodeError::Misdirected { node: self.number, sent: (from.node, to) });
        }
        // A leader counts the members with which it was appointed, also if it has others now.
        let of_leader = || state.leading.as_ref().and_then(|leading| leading.lives.get(&from.node).copied());
        if let Some(known) = state.terms.known(from.node).or_else(of_leader)
            && !from.continues(nonces, &known)
        {
            return Err(NodeError::PastLife { node: self.number, life: from, known });
        }
        match known {
            Some(known) => self.check_own_life(state, known, from.node),
            None => Ok(()),
        }
    }

    /// A leader that this node does not know says that its members are in force: it was added while this one was away, or had others. That an entry of
    /// its own was agreed with them stays true, whichever of its lives says so.
    pub(super) fn hear_of_members(&self, state: &mut State, message: &Append) -> Result<(), NodeError> {
        let from = message.envelope.from.node;
        let is_for_this = message.envelope.to == self.number && from != self.number;
        let is_unknown = !state.terms.has_member(from) && message.cluster.members.contains(&from);
        if is_for_this && is_unknown && message.says_in_force() {
            state.terms.note_in_force(&message.cluster)?;
        }
        Ok(())
    }

    /// Remembers the life of a node from which a message came, and those from which that node has heard (INV-REP-9).
    pub(super) fn remember(
        &self,
        state: &mut State,
        envelope: &Envelope,
        heard: &[Lived],
    ) -> Result<(), NodeError> {
        let from = Lived { life: envelope.from, nonces: Arc::clone(&envelope.nonces) };
        let is_of_others = |lived: &&Lived| ![self.number, from.life.node].contains(&lived.life.node);
        // Most messages have none.
        let is_news = |lived: &&Lived| {
            let Life { node, .. } = lived.life;
            let continues = || state.terms.known(node).is_none_or(|known| lived.continues(&known));
            // The file forgets those of nodes that are no members for a while.
            let is_noted =
                state.lived.get(&node) == Some(*lived) && state.terms.known(node) == Some(lived.life);
            !is_noted && state.terms.remembers(node) && continues()
        };
        let heard = heard.iter().filter(is_of_others).chain([&from]);
        let news: Vec<Lived> = heard.filter(is_news).cloned().collect();
        if news.is_empty() {
            return Ok(());
        }
        let lives: Vec<Life> = news.iter().map(|lived| lived.life).collect();
        state.terms.remember(&lives)?;
        if let Some(leading) = &mut state.leading {
            leading.lives.extend(lives.iter().map(|life| (life.node, *life)));
        }
        state.lived.extend(news.into_iter().map(|lived| (lived.life.node, lived)));
        Ok(())
    }

    /// Fails, from now on, if another node knows of a life of this one to which its own did not lead.
    pub(super) fn check_own_life(&self, state: &mut State, known: Life, by: u32) -> Result<(), NodeError> {
        let own = state.terms.life();
        if own.continues(state.terms.nonces(), &known) {
            return Ok(());
        }
        (state.leading, state.nominee_in, state.is_old) = (None, None, Some((known, by)));
        self.log.fence()?;
        state.terms.condemn(known, by)?;
        Err(NodeError::OldDirectory { own, known, by })
    }

    /// Checks the promises that others gave for an appointment, and remembers their lives (INV-REP-9).
    pub(super) fn check_promises(&self, state: &mut State, promises: &[&Fenced]) -> Result<(), NodeError> {
        let own = Arc::clone(state.terms.cluster());
        for Fenced { cluster, life, .. } in promises {
            if cluster.id != own.id {
                let (own, other) = ((self.number, own.id), (life.node, cluster.id));
                return Err(NodeError::OtherCluster { own, other });
            }
            if *cluster != own {
                let (own, other) = ((self.number, own), (life.node, Arc::clone(cluster)));
                return Err(NodeError::OtherMembers { own, other });
            }
        }
        let known = promises.iter().flat_map(|by| by.lives.iter().map(|known| (*known, by.life.node)));
        let others = promises.iter().filter(|promise| promise.life.node != self.number);
        for Fenced { life, nonces, .. } in others.clone() {
            let own = state.terms.known(life.node).map(|known| (known, self.number));
            let heard = known.clone().filter(|(known, _)| known.node == life.node);
            let later = heard.chain(own).find(|(known, _)| !life.continues(nonces, known));
            if let Some((known, node)) = later {
                return Err(NodeError::PastLife { node, life: *life, known });
            }
        }
        for (known, by) in known.clone().filter(|(known, _)| known.node == self.number) {
            self.check_own_life(state, known, by)?;
        }
        // Those of nodes that did not promise, too, as others have heard of them, where this one knows none: it may be new. Nothing proves that they continue
        // what it knows.
        let is_unknown = |heard: &Life| heard.node != self.number && state.terms.known(heard.node).is_none();
        let mut lives: BTreeMap<u32, Life> = BTreeMap::new();
        for (heard, _) in known.clone().filter(|(heard, _)| is_unknown(heard)) {
            let newest = lives.entry(heard.node).or_insert(heard);
            if newest.start < heard.start {
                *newest = heard;
            }
        }
        lives.extend(others.clone().map(|promise| (promise.life.node, promise.life)));
        let lives: Vec<Life> = lives.into_values().collect();
        state.terms.remember(&lives)?;
        let lived = others.map(|promise| {
            let (life, nonces) = (promise.life, Arc::clone(&promise.nonces));
            (life.node, Lived { life, nonces })
        });
        state.lived.extend(lived);
        Ok(())
    }
}
