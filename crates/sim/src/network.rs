//! Messages on their way: lost, doubled, late, in any order.

use crate::cluster::{Canary, Cluster};
use fulgurite_env::sim::CrashKind;
use fulgurite_log::LogError;
use fulgurite_replication::{Append, Appended, Life, NodeError, SentUpTo};
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Network {
    /// For a follower.
    appends: Vec<(usize, Append)>,
    /// For a leader.
    replies: Vec<(usize, Appended)>,
    /// A link, from and to, on which nothing arrives.
    cut: Option<(usize, usize)>,
    /// A machine that nothing reaches, and from which nothing comes, operators included.
    isolated: Option<usize>,
}

impl Network {
    pub fn clear(&mut self) {
        *self = Network::default();
    }

    /// Whether a message arrives.
    pub fn is_up(&self, from: usize, to: usize) -> bool {
        self.cut != Some((from, to)) && self.isolated.is_none_or(|machine| machine != from && machine != to)
    }

    /// Whether an operator reaches a machine.
    pub fn reaches(&self, machine: usize) -> bool {
        self.isolated != Some(machine)
    }
}

impl Cluster {
    /// A leader sends entries to a follower.
    pub fn send(&mut self) {
        let (Some(from), to) = (self.leader(), self.any()) else { return };
        if from != to {
            self.send_to(from, to);
        }
    }

    pub fn send_to(&mut self, from: usize, to: usize) {
        let machine = &mut self.machines[from];
        let last = machine.last();
        let after = *machine.next.entry(to as u32 + 1).or_insert(last.into());
        match machine.replica.append_after(to as u32 + 1, after) {
            Ok(Some(mut append)) => {
                if self.canary == Canary::TrustsOldDirectories {
                    (append.envelope.known, append.lives) = (None, Vec::new());
                }
                self.network.appends.push((to, append));
            }
            Ok(None) => {}
            // A follower has what this leader had sent before it crashed, and does not have any more.
            Err(NodeError::Gap { last, .. }) => {
                machine.next.insert(to as u32 + 1, last.index.into());
            }
            Err(NodeError::Log(LogError::TooOld { .. })) => self.machines[to].is_behind = true,
            Err(error) => self.failed(from, &error),
        }
    }

    /// Links break, in one direction or all of a machine's, or are mended.
    pub fn change_links(&mut self) {
        self.network.cut = self.random.one_in(3).then(|| (self.any(), self.any()));
        self.network.isolated = self.random.one_in(2).then(|| self.leader().unwrap_or(0));
    }

    /// A message arrives, or is lost; some arrive twice.
    pub fn deliver(&mut self) {
        if self.network.appends.is_empty() || self.random.one_in(2) {
            return self.deliver_reply();
        }
        let nth = self.random.below(self.network.appends.len() as u64) as usize;
        let (to, append) = match self.random.one_in(6) {
            true => self.network.appends[nth].clone(),
            false => self.network.appends.swap_remove(nth),
        };
        let from = append.envelope.from.node as usize - 1;
        if self.random.one_in(8) || !self.network.is_up(from, to) || self.machines[to].is_stopped {
            return;
        }
        if self.canary == Canary::AcknowledgesBeforeTheSync && self.random.one_in(3) {
            let matched = append.entries.last().map_or(append.previous, |entry| entry.id);
            let envelope = self.machines[to].replica.node().envelope(append.envelope.from.node);
            let (term, round) = (append.term, append.round);
            self.network.replies.push((
                from,
                Appended { envelope, term, matched, chunks: 0, csn: Default::default(), round },
            ));
            return;
        }
        self.append(to, &append);
    }

    fn append(&mut self, to: usize, append: &Append) {
        let from = append.envelope.from.node as usize - 1;
        if let Some(reply) = self.on(to, |replica| replica.append(append)) {
            self.replied(to, from, reply);
        }
    }

    /// A follower has replied to a leader.
    pub fn replied(&mut self, to: usize, from: usize, reply: Result<Appended, NodeError>) {
        let next = match reply {
            Ok(mut appended) => {
                self.trace(appended.matched.index);
                self.machines[to].is_behind = false;
                let envelope = &mut appended.envelope;
                self.forge(to, &mut envelope.from, &mut envelope.nonces);
                let up_to = appended.up_to();
                self.network.replies.push((from, appended));
                Some(up_to)
            }
            Err(NodeError::StaleTerm { .. }) => None,
            Err(error) if self.is_of_the_lost(&error) => None,
            Err(NodeError::MustReopen { up_to, .. }) => {
                self.reopen(to);
                up_to.map(SentUpTo::from)
            }
            Err(error) => match error.begin_after() {
                Some(next) => Some(next),
                None => return self.failed(to, &error),
            },
        };
        if let Some(next) = next {
            self.machines[from].next.insert(to as u32 + 1, next);
        }
        if self.canary == Canary::TakesDurableForAgreed {
            let log = self.machines[to].replica.node().log().clone();
            let durable = log.entry_positions().expect("it is replicated").durable;
            log.raise_agreed(durable).expect("it is replicated");
        }
        self.check(to);
    }

    /// What a canary says of a life.
    pub fn forge(&self, at: usize, life: &mut Life, nonces: &mut Arc<[u64]>) {
        if self.canary == Canary::TrustsOldDirectories && self.machines[at].lost.is_some() {
            life.start += 1 << 40;
            *nonces = Vec::new().into();
        }
    }

    pub fn deliver_reply(&mut self) {
        if self.network.replies.is_empty() {
            return;
        }
        let nth = self.random.below(self.network.replies.len() as u64) as usize;
        let (to, appended) = match self.random.one_in(8) {
            true => self.network.replies[nth].clone(),
            false => self.network.replies.swap_remove(nth),
        };
        let is_up = self.network.is_up(appended.envelope.from.node as usize - 1, to);
        if self.random.one_in(8) || !is_up || self.machines[to].is_stopped {
            return;
        }
        match self.machines[to].replica.acknowledged(&appended) {
            Ok(_) => {}
            Err(error) => return self.failed(to, &error),
        }
        self.check(to);
    }

    /// Everything that is on its way arrives.
    pub fn deliver_all(&mut self) {
        while let Some((to, append)) = self.network.appends.pop() {
            self.append(to, &append);
        }
        while let Some((to, appended)) = self.network.replies.pop() {
            if let Err(error) = self.machines[to].replica.acknowledged(&appended) {
                self.failed(to, &error);
            }
            self.check(to);
        }
    }

    /// Opens a replica again, in place, or after a crash of its machine.
    pub fn reopen(&mut self, at: usize) {
        if self.random.one_in(2) {
            return self.restart(at, CrashKind::Kill);
        }
        self.acknowledge(at);
        let reopened = {
            let crash = self.random.one_in(4).then(|| 1 + self.random.below(60));
            let machine = &mut self.machines[at];
            if let Some(nth) = crash {
                machine.env.faults().crash_at(machine.env.faults().op_count() + nth);
            }
            machine.reopen()
        };
        if self.machines[at].env.faults().has_crashed() {
            return self.restart(at, CrashKind::PowerCut);
        }
        self.machines[at].env.faults().crash_at(u64::MAX);
        match reopened {
            Ok(()) => {
                self.acknowledge(at);
                self.machines[at].waiting.clear();
                self.check(at);
            }
            Err(error) => self.failed(at, &error),
        }
    }
}
