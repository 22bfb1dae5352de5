//! An operator replaces nodes one after the other, and fills those that were away for too long. A node is replaced that has lost its disk, or any other: the
//! operator adds a new one with a copy of another's database to the members of each node, has a leader appointed with them, and removes the
//! old one. Each node refuses to go further than it may, so the operator does not wait for any of that, and tries again.

use crate::cluster::{Canary, Cluster};
use crate::machine::Machine;
use fulgurite_replication::{ClusterId, Fenced, NodeError, TermError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many nodes are replaced in a run, at most.
const REPLACED_MAX: usize = 2;

/// The sets of members.
#[derive(Default)]
pub(crate) struct Members {
    /// By their versions. Each second one has a node more.
    pub sets: Vec<Vec<u32>>,
    /// The one that goes next.
    gone: u32,
    /// The version with which a leader of each term was appointed.
    pub of_terms: BTreeMap<u64, u64>,
    /// The newest version with which an entry of the leader's own term was agreed.
    pub in_force: u64,
    pub replaced: usize,
    pub filled: usize,
}

impl Members {
    pub fn new(nodes: u32) -> Members {
        Members { sets: vec![(1..=nodes).collect()], ..Members::default() }
    }

    pub fn newest(&self) -> &[u32] {
        self.sets.last().expect("there is the first")
    }

    pub fn version(&self) -> u64 {
        self.sets.len() as u64 - 1
    }

    /// The cluster with the members of a version.
    fn at(&self, id: ClusterId, version: u64) -> fulgurite_replication::Cluster {
        let set = |version: u64| self.sets[version as usize].clone();
        let previous = version.checked_sub(1).map_or(Vec::new(), set);
        fulgurite_replication::Cluster { id, version, members: set(version), previous }
    }

    /// Whether no node is being replaced.
    pub fn are_settled(&self) -> bool {
        self.version().is_multiple_of(2) && self.in_force == self.version()
    }

    /// The sets of the leaders which may have an entry of this term agreed: if a leader says so first, its own.
    pub fn of_leaders(&self, term: u64, leads: Option<u64>) -> impl Iterator<Item = &Vec<u32>> {
        let of_one = leads.filter(|leads| self.of_terms.contains_key(leads));
        let terms = of_one.unwrap_or(term)..=of_one.unwrap_or(u64::MAX);
        self.of_terms.range(terms).map(|(_, version)| &self.sets[*version as usize])
    }
}

impl Cluster {
    fn machine(&self, number: u32) -> Option<&Machine> {
        self.machines.get(number as usize - 1)
    }

    /// Nodes of the newest set that are there and have their disks.
    pub fn kept(&self) -> Vec<usize> {
        let is_kept = |number: &&u32| self.machine(**number).is_some_and(|machine| machine.lost.is_none());
        self.members.newest().iter().filter(is_kept).map(|number| *number as usize - 1).collect()
    }

    /// All that have their disks and were not stopped, also if they are about to be removed.
    pub fn running(&self) -> Vec<usize> {
        (0..self.machines.len()).filter(|at| self.machines[*at].lost.is_none()).collect()
    }

    /// The operator goes on with what it is at, or begins to replace a node.
    pub fn change_members(&mut self) {
        let (version, newest) = (self.members.version(), self.members.newest().to_vec());
        let has_newest = |machine: &Machine| machine.version() == version && !machine.is_stopped;
        let is_known = self.machines.iter().any(has_newest);
        if version % 2 == 1 {
            let new = *newest.last().expect("the new one");
            if self.machine(new).is_none() {
                self.join(new);
            } else if is_known && (self.heals || self.random.one_in(3)) {
                let gone = self.members.gone;
                self.members.sets.push(newest.into_iter().filter(|number| *number != gone).collect());
                self.members.replaced += 1;
            }
        } else if is_known && !self.heals {
            if version > 0 && self.random.one_in(2) && self.members.in_force == version {
                self.machines[self.members.gone as usize - 1].stop();
            }
            self.begin_to_replace(newest);
        }
        self.push_members();
    }

    fn begin_to_replace(&mut self, mut newest: Vec<u32>) {
        if self.members.replaced == REPLACED_MAX {
            return;
        }
        let nth = self.random.below(newest.len() as u64) as usize;
        let is_lost = |number: &&u32| self.machine(**number).is_some_and(|machine| machine.lost.is_some());
        let lost = newest.iter().find(is_lost).copied();
        let Some(gone) = lost.or_else(|| self.random.one_in(8).then(|| newest[nth])) else { return };
        newest.push(self.machines.len() as u32 + 1);
        self.members.gone = gone;
        self.members.sets.push(newest);
    }

    /// A new machine gets a copy of another one's disk.
    fn join(&mut self, number: u32) {
        let kept = self.kept();
        let source = kept[self.random.below(kept.len() as u64) as usize];
        let crash = self.crash_in(60);
        let id = self.machines[source].replica.node().cluster().id;
        let members = self.members.at(id, self.members.version());
        if let Some(joined) = self.machines[source].joined(&members, number, crash) {
            self.machines.push(joined);
            self.trace(number.into());
            self.check(number as usize - 1);
        }
    }

    /// Some nodes go to the next members, or take those that another one has.
    fn push_members(&mut self) {
        for at in 0..self.machines.len() {
            let (number, version) = (at as u32 + 1, self.machines[at].version());
            let Some(next) = self.members.sets.get(version as usize + 1).cloned() else { continue };
            let is_away = self.machines[at].is_stopped || !self.network.reaches(at);
            // One that is removed counts for the majority of the members before.
            let is_one = next.contains(&number) || self.members.sets[version as usize].contains(&number);
            if is_away || !is_one || (!self.heals && self.random.one_in(2)) {
                continue;
            }
            let changed = match self.canary {
                Canary::ChangesMembersEarly => {
                    let forged = self.forged(at, version + 1);
                    self.on(at, |replica| replica.node().adopt_members(&forged))
                }
                _ => self.on(at, |replica| replica.node().change_members(&next)),
            };
            self.changed(at, changed.map(|changed| changed.map(|_| ())));
        }
    }

    /// A word that the members before these are in force.
    fn forged(&self, at: usize, version: u64) -> Fenced {
        let node = self.machines[at].replica.node();
        Fenced {
            cluster: Arc::new(self.members.at(node.cluster().id, version)),
            in_force: Some(version - 1),
            is_settled: true,
            life: node.life(),
            nonces: Vec::new().into(),
            term: 0,
            nominee: None,
            last: Default::default(),
            lives: Vec::new(),
        }
    }

    /// A node has changed its members, or not.
    fn changed(&mut self, at: usize, changed: Option<Result<(), NodeError>>) {
        match changed {
            None | Some(Err(NodeError::Term(TermError::NotInForce { .. } | TermError::Members { .. }))) => {}
            Some(Err(NodeError::MustReopen { .. })) => self.reopen(at),
            Some(Err(error)) => self.failed(at, &error),
            Some(Ok(())) => self.trace(self.machines[at].version()),
        }
    }

    /// Nodes that have older members than another one hear of these.
    pub fn adopt_members(&mut self, fenced: &[Fenced]) {
        // A new one knows of none that is in force.
        let mut newest = fenced.iter().max_by_key(|fenced| (fenced.in_force, fenced.cluster.version));
        if !self.heals && self.random.one_in(3) {
            newest = fenced.get(self.random.below(fenced.len().max(1) as u64) as usize);
        }
        let Some(newest) = newest else { return };
        for at in 0..self.machines.len() {
            let is_away = self.machines[at].is_stopped || !self.network.reaches(at);
            if is_away || (!self.heals && self.random.one_in(3)) {
                continue;
            }
            let changed = self.on(at, |replica| replica.node().adopt_members(newest));
            self.changed(at, changed.map(|changed| changed.map(|_| ())));
        }
    }

    /// A node that lacks what no log has any more is filled from a copy of a leader's disk, or any other's.
    pub fn refill(&mut self) {
        let mut behind = self.running();
        behind.retain(|at| self.machines[*at].is_behind);
        if behind.is_empty() {
            return;
        }
        let at = behind[self.random.below(behind.len() as u64) as usize];
        let kept = self.kept();
        let any = kept[self.random.below(kept.len() as u64) as usize];
        let source = if self.heals || self.random.one_in(2) { self.leader().unwrap_or(any) } else { any };
        if source == at || self.machines[source].lost.is_some() || !self.network.reaches(at) {
            return;
        }
        self.acknowledge(at);
        let (crash, seed) = (self.crash_in(80), self.restarts_with(1));
        let (left, right) = self.machines.split_at_mut(at.max(source));
        let (machine, other) = match at < source {
            true => (&mut left[at], &right[0]),
            false => (&mut right[0], &left[source]),
        };
        if machine.refill(other, seed, crash) {
            self.members.filled += 1;
        }
        self.trace(at as u64);
        self.check(at);
    }
}
