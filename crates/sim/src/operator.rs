//! Operators: they fence nodes, and appoint leaders.

use crate::cluster::{Canary, Cluster};
use crate::machine::Machine;
use fulgurite_env::sim::CrashKind;
use fulgurite_replication::{Fenced, NodeError, TERM_FILE_NAME, TermError};

impl Cluster {
    /// Fences some nodes in a new term for a nominee, with other things happening in between. The reply of one may be lost.
    fn fence_some(&mut self, term: u64, nominee: Option<u32>) -> Vec<Fenced> {
        let mut fenced: Vec<Fenced> = Vec::new();
        for at in 0..self.machines.len() {
            if self.is_away(at) || self.random.one_in(5) {
                continue;
            }
            let path = self.machines[at].path.join(TERM_FILE_NAME);
            let before = self.machines[at].env.read_raw(&path).expect("each node has one");
            let mut said = self.on(at, |replica| replica.fence(term, nominee));
            if let Some(Err(NodeError::MustReopen { .. })) = said {
                self.reopen(at);
                said = self.on(at, |replica| replica.fence(term, nominee));
            }
            match said {
                None | Some(Err(NodeError::StaleTerm { .. })) => continue,
                Some(Ok(mut said)) => {
                    self.forge(at, &mut said.life, &mut said.nonces);
                    if self.canary == Canary::TrustsOldDirectories {
                        (said.lives, said.nonces) = (Vec::new(), Vec::new().into());
                    }
                    fenced.push(said);
                }
                Some(Err(error)) => {
                    self.failed(at, &error);
                    continue;
                }
            }
            if self.canary == Canary::ForgetsTheTerm && self.random.one_in(2) {
                self.machines[at].env.write_raw(&path, &before).expect("it is there");
                self.restart(at, CrashKind::Kill);
            }
            if self.depth == 0 && self.random.one_in(4) {
                self.depth += 1;
                (0..self.random.below(12)).for_each(|_| self.step());
                self.depth -= 1;
            }
        }
        if self.random.one_in(4) {
            fenced.pop();
        }
        fenced
    }

    /// Learns which node has the highest last entry, fences some for that one, and appoints it, if they allow it.
    pub fn change_leader(&mut self) {
        self.term += 2;
        let term = self.term;
        let mut seen = self.fence_some(term - 1, None);
        if self.random.one_in(2) {
            self.adopt_members(&seen);
        }
        // Of nodes with the same members.
        let nth = self.random.below(seen.len().max(1) as u64) as usize;
        let Some(cluster) = seen.get(nth).map(|fenced| fenced.cluster.clone()) else { return };
        seen.retain(|fenced| fenced.cluster == cluster);
        let by_last = |fenced: &&Fenced| fenced.last;
        let best = match self.canary {
            Canary::AppointsOneBehind => seen.iter().min_by_key(by_last),
            _ => seen.iter().max_by_key(by_last),
        };
        let Some(best) = best.map(|fenced| fenced.life.node) else { return };
        let mut nominees = vec![best];
        if self.random.one_in(3) {
            // Another operator wants another one in the same term.
            nominees.push(1 + self.any() as u32);
        }
        for nominee in nominees {
            let mut fenced = self.fence_some(term, Some(nominee));
            if self.canary == Canary::AppointsOneBehind {
                fenced.iter_mut().for_each(|fenced| fenced.last = Default::default());
            }
            if !self.random.one_in(8) {
                let own = self.machines[nominee as usize - 1].replica.node().cluster();
                fenced.retain(|fenced| fenced.cluster == own);
            }
            self.appoint(term, nominee, &fenced);
            // A promise for one is none for another.
            let other = 1 + self.any() as u32;
            if other != nominee {
                self.appoint(term, other, &fenced);
            }
        }
    }

    /// Whether no operator reaches a node.
    pub fn is_away(&self, at: usize) -> bool {
        let Machine { is_stopped, ignores_syncs, .. } = self.machines[at];
        is_stopped || ignores_syncs || !self.network.reaches(at)
    }

    fn appoint(&mut self, term: u64, nominee: u32, fenced: &[Fenced]) {
        let at = nominee as usize - 1;
        if self.is_away(at) {
            return;
        }
        match self.on(at, |replica| replica.appoint(term, fenced)) {
            None => {}
            Some(Ok(())) => {
                self.checkers.leaders.appointed(self.seed, term, nominee);
                let cluster = self.machines[at].replica.node().cluster();
                self.members.of_terms.insert(term, (cluster.version, cluster.members.clone()));
                self.machines[at].is_behind = false;
            }
            Some(Err(NodeError::NoMajority { fenced: count, members, .. })) => assert!(2 * count <= members),
            Some(Err(
                NodeError::StaleTerm { .. }
                | NodeError::Behind { .. }
                | NodeError::OtherMembers { .. }
                | NodeError::NoMajorityBefore { .. }
                | NodeError::Term(TermError::Members { .. })
                | NodeError::MustReopen { .. },
            )) => {}
            Some(Err(error)) => self.failed(at, &error),
        }
    }
}
