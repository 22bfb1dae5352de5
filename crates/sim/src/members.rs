//! An operator replaces nodes one after the other, and fills those that were away for too long. A node is replaced that has lost its disk, or any other: the
//! operator adds a new one with a copy of another's database to the members of each node, has a leader appointed with them, and removes the
//! old one. Each node refuses to go further than it may, so the operator does not wait for any of that, and tries again.
//!
//! In some runs a rival operator changes the members, too, to another set of the same version. One of them comes into force; if neither has
//! enough nodes, the cluster is made anew at the end, of copies of the node that has most.

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
    /// Whether there is a rival operator, and its set of the newest version, with the node that it removes, while none of that version is in force.
    pub has_rival: bool,
    rival: Option<(Vec<u32>, u32)>,
    /// The version and the set with which a leader of each term was appointed.
    pub of_terms: BTreeMap<u64, (u64, Vec<u32>)>,
    /// The newest version with which an entry of the leader's own term was agreed.
    pub in_force: u64,
    pub replaced: usize,
    pub filled: usize,
    /// How often the rival's set came into force, and how often the cluster was made anew.
    pub rival_sets: usize,
    pub rebuilt: usize,
}

impl Members {
    pub fn new(nodes: u32, has_rival: bool) -> Members {
        Members { sets: vec![(1..=nodes).collect()], has_rival, ..Members::default() }
    }

    pub fn newest(&self) -> &[u32] {
        self.sets.last().expect("there is the first")
    }

    pub fn version(&self) -> u64 {
        self.sets.len() as u64 - 1
    }

    /// The cluster with a set of members of a version.
    fn at(&self, id: ClusterId, version: u64, members: Vec<u32>) -> fulgurite_replication::Cluster {
        let previous = version.checked_sub(1).map_or(Vec::new(), |before| self.sets[before as usize].clone());
        fulgurite_replication::Cluster { id, version, members, previous }
    }

    /// Whether no node is being replaced.
    pub fn are_settled(&self) -> bool {
        self.version().is_multiple_of(2) && self.in_force == self.version()
    }

    /// The sets of the leaders which may have an entry of this term agreed: if a leader says so first, its own.
    pub fn of_leaders(&self, term: u64, leads: Option<u64>) -> impl Iterator<Item = &Vec<u32>> {
        let of_one = leads.filter(|leads| self.of_terms.contains_key(leads));
        let terms = of_one.unwrap_or(term)..=of_one.unwrap_or(u64::MAX);
        self.of_terms.range(terms).map(|(_, (_, set))| set)
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
        let has_newest = |machine: &Machine| {
            let cluster = machine.replica.node().cluster();
            !machine.is_stopped && cluster.version == version && cluster.members == newest
        };
        let is_known = self.members.rival.is_none() && self.machines.iter().any(has_newest);
        if version % 2 == 1 {
            let new = *newest.last().expect("the new one");
            let rivals = self.members.rival.as_ref().map(|(set, _)| *set.last().expect("its new one"));
            if self.machine(new).is_none() {
                self.join(new, newest);
            } else if let Some(new) = rivals.filter(|new| self.machine(*new).is_none() && !self.heals) {
                let (set, _) = self.members.rival.clone().expect("it has a set");
                self.join(new, set);
            } else if is_known && (self.heals || self.random.one_in(3)) {
                let gone = self.members.gone;
                self.members.replaced += 1;
                self.end_rival();
                let others = newest.iter().copied().filter(|number| *number != gone);
                let nth = self.random.below(newest.len() as u64 - 1) as usize;
                let rivals = others.clone().nth(nth).filter(|_| self.has_rival());
                let without = |gone| newest.iter().copied().filter(|number| *number != gone).collect();
                self.members.rival = rivals.map(|gone| (without(gone), gone));
                self.members.sets.push(others.collect());
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
        self.end_rival();
        self.members.gone = gone;
        let number = self.machines.len() as u32 + 1;
        if self.has_rival() {
            let set = newest.iter().copied().chain([number + 1]).collect();
            self.members.rival = Some((set, gone));
        }
        newest.push(number);
        self.members.sets.push(newest);
    }

    fn has_rival(&mut self) -> bool {
        self.members.has_rival && !self.heals && self.random.one_in(2)
    }

    /// What the rival wanted is over: a node that it alone added is none.
    fn end_rival(&mut self) {
        let Some((set, _)) = self.members.rival.take() else { return };
        let new = *set.last().expect("the new one");
        if !self.members.newest().contains(&new) && !self.members.version().is_multiple_of(2) {
            let at = new as usize - 1;
            self.machines.get_mut(at).into_iter().for_each(Machine::stop);
        }
    }

    /// An entry of a leader with these members was agreed.
    pub fn in_force(&mut self, version: u64, set: &[u32]) {
        if version < self.members.in_force {
            return;
        }
        if version == self.members.in_force {
            let known = &self.members.sets[version as usize];
            assert_eq!(known, set, "seed {}: two sets of members are in force", self.seed);
            return;
        }
        self.members.in_force = version;
        if version != self.members.version() {
            return;
        }
        if let Some((rivals, gone)) = self.members.rival.clone().filter(|(rivals, _)| rivals == set) {
            let own = self.members.sets.pop().expect("the newest");
            self.members.sets.push(rivals);
            // Now the other one is the rival.
            self.members.rival = Some((own, gone));
            if version.is_multiple_of(2) {
                self.members.gone = gone;
            }
            self.members.rival_sets += 1;
        }
        assert_eq!(self.members.newest(), set, "seed {}: members that no operator wanted", self.seed);
        self.end_rival();
    }

    /// A new machine gets a copy of another one's disk.
    fn join(&mut self, number: u32, set: Vec<u32>) {
        let next = self.machines.len() as u32 + 1;
        if next < number {
            // The one that the other operator wanted was never made.
            let others = set.iter().copied().filter(|other| *other != number).chain([next]);
            self.join(next, others.collect());
            self.machines.last_mut().filter(|last| last.replica.number() == next).map(Machine::stop);
            return;
        }
        let kept = self.kept();
        let source = kept[self.random.below(kept.len() as u64) as usize];
        let crash = self.crash_in(60);
        let id = self.machines[source].replica.node().cluster().id;
        let members = self.members.at(id, self.members.version(), set);
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
            let Some(mut next) = self.members.sets.get(version as usize + 1).cloned() else { continue };
            if let Some((rivals, _)) = &self.members.rival
                && version + 1 == self.members.version()
                && self.random.one_in(2)
            {
                next = rivals.clone();
            }
            // One that is removed counts for the majority of the members before.
            let own = self.machines[at].replica.node().cluster();
            let is_one = next.contains(&number) || own.members.contains(&number);
            if self.is_away(at) || !is_one || (!self.heals && self.random.one_in(2)) {
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
            cluster: Arc::new(self.members.at(
                node.cluster().id,
                version,
                self.members.sets[version as usize].clone(),
            )),
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
            // It went to the other operator's members before, and has not heard that they are not in force.
            Some(Err(NodeError::Term(TermError::ManyMembers { .. }))) if self.members.has_rival => {}
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
            if self.is_away(at) || (!self.heals && self.random.one_in(3)) {
                continue;
            }
            let changed = self.on(at, |replica| replica.node().adopt_members(newest));
            self.changed(at, changed.map(|changed| changed.map(|_| ())));
        }
    }

    /// Two operators have left neither set enough nodes: all nodes stop for good, and others are made of copies of the one that has most.
    pub fn rebuild(&mut self) {
        let running = self.running();
        let last = |at: &usize| self.machines[*at].replica.positions().entries.last;
        let source = running.iter().copied().max_by_key(last).expect("one is there");
        let (count, first) = (self.members.sets[0].len() as u32, self.machines.len() as u32 + 1);
        let set: Vec<u32> = (first..first + count).collect();
        self.members.rival = None;
        self.members.sets.push(set.clone());
        if !self.members.version().is_multiple_of(2) {
            self.members.sets.push(set.clone());
        }
        let id = self.machines[source].replica.node().cluster().id;
        let version = self.members.version();
        let cluster =
            fulgurite_replication::Cluster { id, version, members: set.clone(), previous: Vec::new() };
        for number in set {
            let joined =
                self.machines[source].joined(&cluster, number, None).expect("nothing crashes any more");
            self.machines.push(joined);
            self.check(number as usize - 1);
        }
        running.into_iter().for_each(|at| self.machines[at].stop());
        self.members.rebuilt += 1;
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
