//! The end of a life: nothing fails any more.

use crate::cluster::Cluster;
use fulgurite_env::sim::CrashKind;
use fulgurite_replication::{Fenced, NodeError};

impl Cluster {
    /// All nodes can talk to each other again, but those that lost their disks, and the operator ends what it is at: all end with the same entries.
    pub fn heal(&mut self) {
        self.network.clear();
        // Above all terms, also if some nodes forgot theirs.
        self.term += 100;
        for at in 0..self.machines.len() {
            if self.machines[at].lost.is_none() {
                self.restart(at, CrashKind::PowerCut);
            }
        }
        self.heals = true;
        for round in 0.. {
            assert!(round < 40, "seed {}: it does not end", self.seed);
            self.change_members();
            self.refill();
            let Some(leader) = self.elect() else {
                if round > 10 && self.members.has_rival && self.members.rebuilt == 0 {
                    self.rebuild();
                }
                continue;
            };
            self.replicate(leader);
            if self.have_all(&self.kept(), leader) && self.members.are_settled() {
                return;
            }
        }
    }

    /// A leader of the newest members that are enough nodes'.
    fn elect(&mut self) -> Option<usize> {
        self.term += 2;
        let (term, kept) = (self.term, self.running());
        let fence = |cluster: &mut Cluster, term, nominee| -> Vec<Fenced> {
            let mut fenced = Vec::new();
            for at in &kept {
                let mut said = cluster.machines[*at].replica.fence(term, nominee);
                if let Err(NodeError::MustReopen { .. }) = said {
                    cluster.reopen(*at);
                    said = cluster.machines[*at].replica.fence(term, nominee);
                }
                fenced.push(said.expect("nothing fails any more"));
            }
            fenced
        };
        let seen = fence(self, term - 1, None);
        self.adopt_members(&seen);
        let seen = fence(self, term, None);
        let may_lead = |of: &&Fenced| of.cluster.members.contains(&of.life.node);
        let is_majority = |of: &&Fenced| {
            let same = seen.iter().filter(may_lead).filter(|fenced| fenced.cluster == of.cluster).count();
            2 * same > of.cluster.members.len()
        };
        let best = seen
            .iter()
            .filter(may_lead)
            .filter(is_majority)
            .max_by_key(|fenced| (fenced.cluster.version, fenced.last))?;
        let (cluster, nominee) = (best.cluster.clone(), best.life.node);
        self.term += 1;
        let mut fenced = fence(self, term + 1, Some(nominee));
        fenced.retain(|fenced| fenced.cluster == cluster);
        let leader = nominee as usize - 1;
        let replica = self.machines[leader].replica.clone();
        match replica.appoint(term + 1, &fenced) {
            Ok(()) => {}
            // More have to change their members first.
            Err(NodeError::NoMajorityBefore { .. }) => return None,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
        self.members.of_terms.insert(term + 1, (cluster.version, cluster.members.clone()));
        self.machines[leader].is_behind = false;
        replica.flush().expect("nothing fails any more");
        self.check(leader);
        Some(leader)
    }

    /// Sends all that a leader has to all others, but to those that have to be filled first.
    fn replicate(&mut self, leader: usize) {
        let term = self.machines[leader].replica.node().term();
        let (_, set) = &self.members.of_terms[&term];
        let mut followers = self.running();
        followers.retain(|at| *at != leader && set.contains(&(*at as u32 + 1)));
        for round in 0.. {
            assert!(round < 1000, "seed {}: it does not end", self.seed);
            for to in followers.clone() {
                self.send_to(leader, to);
                self.deliver_all();
            }
            self.running().into_iter().for_each(|at| self.maintain(at));
            if self.have_all(&followers, leader) || followers.iter().any(|at| self.machines[*at].is_behind) {
                return;
            }
        }
    }

    /// Whether these nodes have all of a leader, and have applied it.
    fn have_all(&self, nodes: &[usize], leader: usize) -> bool {
        let last = self.machines[leader].last();
        let is_done = |at: &usize| {
            let at = self.machines[*at].replica.positions();
            at.entries.agreed.index == last && at.applied == at.entries.agreed.csn
        };
        nodes.iter().chain([&leader]).all(is_done) && self.checkers.agreed.last() == last
    }
}
