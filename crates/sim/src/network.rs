//! Messages on their way: lost, doubled, late, in any order.

use crate::cluster::{Canary, Cluster};
use fulgurite_env::sim::CrashKind;
use fulgurite_log::LogError;
use fulgurite_replication::{Append, Appended, Life, Message, NodeError};
use fulgurite_types::{Csn, EntryId};
use parking_lot::Mutex;
use std::mem::take;
use std::sync::Arc;

/// What was sent and has not arrived.
#[derive(Default)]
pub(crate) struct OnTheWay(Mutex<Vec<Message>>);

impl fulgurite_replication::Network for OnTheWay {
    fn send(&self, message: Message) {
        self.0.lock().push(message);
    }
}

impl OnTheWay {
    pub fn take(&self) -> Vec<Message> {
        take(&mut self.0.lock())
    }
}

#[derive(Default)]
pub(crate) struct Network {
    messages: Arc<OnTheWay>,
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

    pub fn post(&self, messages: Vec<Message>) {
        self.messages.0.lock().extend(messages);
    }

    /// Loses what a machine has sent.
    pub fn drop_from(&self, machine: usize) {
        self.messages.0.lock().retain(|message| message.from() as usize != machine + 1);
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
        if self.canary == Canary::CountsAllEarly {
            self.machines[from].replica.database().note_other(to as u32 + 1, Csn::MAX);
        }
        match self.machines[from].replica.send(to as u32 + 1, &*self.network.messages) {
            Ok(_) => {}
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
        let count = self.network.messages.0.lock().len();
        if count == 0 {
            return;
        }
        let nth = self.random.below(count as u64) as usize;
        let is_doubled = self.random.one_in(6);
        let message = {
            let mut messages = self.network.messages.0.lock();
            if is_doubled { messages[nth].clone() } else { messages.swap_remove(nth) }
        };
        let (from, to) = (message.from() as usize - 1, message.to() as usize - 1);
        // A node with a slow disk takes most of them later.
        let is_late = matches!(message, Message::Append(_)) && self.machines[to].is_slow;
        if is_late && !is_doubled && !self.random.one_in(4) {
            return self.network.post(vec![message]);
        }
        let is_lost = self.random.one_in(8) || self.machines[from].ignores_syncs;
        if is_lost || !self.network.is_up(from, to) || self.machines[to].is_stopped {
            return;
        }
        self.receive(message);
    }

    fn receive(&mut self, mut message: Message) {
        let to = message.to() as usize - 1;
        self.forge_message(&mut message);
        if let Message::Append(append) = &message {
            if self.canary == Canary::AcknowledgesBeforeTheSync && self.random.one_in(3) {
                return self.acknowledge_early(to, append);
            }
        } else if let Message::Appended(appended) = &message {
            self.trace(appended.matched.index);
            let from = message.from() as usize - 1;
            self.machines[from].is_behind = false;
            self.count_older_term(from, to, appended.matched);
        }
        let messages = Arc::clone(&self.network.messages);
        if let Some(taken) = self.on(to, |replica| replica.receive(&message, &*messages)) {
            self.taken(to, taken);
        }
    }

    /// A replica has taken a message, or not.
    pub fn taken(&mut self, to: usize, taken: Result<(), NodeError>) {
        match taken {
            Ok(()) => {}
            Err(NodeError::MustReopen { .. }) => self.reopen(to),
            Err(NodeError::StaleTerm { .. }) => {}
            Err(error) => return self.failed(to, &error),
        }
        if self.canary == Canary::TakesDurableForAgreed {
            let log = self.machines[to].replica.node().log().clone();
            let durable = log.entry_positions().expect("it is replicated").durable;
            log.raise_agreed(durable).expect("it is replicated");
        }
        self.check(to);
    }

    /// A follower has an entry of a leader with an older term: in a cluster of three these two are a majority.
    fn count_older_term(&self, follower: usize, leader: usize, matched: EntryId) {
        let (follower, leader) = (&self.machines[follower].replica, &self.machines[leader].replica);
        let has_entry = || {
            leader.node().log().pending_entry(matched.index) == Some(matched)
                && leader.positions().entries.durable.index >= matched.index
        };
        let is_older = leader.node().leads().is_some_and(|term| term > matched.term);
        if self.canary == Canary::CountsOlderTerms && is_older && has_entry() {
            follower.node().log().raise_agreed(matched).expect("it is replicated");
        }
    }

    fn acknowledge_early(&self, to: usize, append: &Append) {
        let matched = append.entries.last().map_or(append.previous, |entry| entry.id);
        let envelope = self.machines[to].replica.node().envelope(append.envelope.from.node);
        let (term, round, csn) = (append.term, append.round, Default::default());
        let appended = Appended { envelope, term, matched, chunks: 0, csn, round };
        self.network.post(vec![Message::Appended(appended)]);
    }

    /// What a canary makes of a message.
    fn forge_message(&self, message: &mut Message) {
        if self.canary != Canary::TrustsOldDirectories {
            return;
        }
        match message {
            Message::Append(append) => (append.envelope.known, append.lives) = (None, Vec::new()),
            Message::Appended(Appended { envelope, .. }) => {
                let at = envelope.from.node as usize - 1;
                self.forge(at, &mut envelope.from, &mut envelope.nonces);
            }
            Message::Rejected(_) => {}
        }
    }

    /// What a canary says of a life.
    pub fn forge(&self, at: usize, life: &mut Life, nonces: &mut Arc<[u64]>) {
        if self.canary == Canary::TrustsOldDirectories && self.machines[at].lost.is_some() {
            life.start += 1 << 40;
            *nonces = Vec::new().into();
        }
    }

    /// Everything that is on its way arrives.
    pub fn deliver_all(&mut self) {
        loop {
            let messages = self.network.messages.take();
            if messages.is_empty() {
                return;
            }
            messages.into_iter().for_each(|message| self.receive(message));
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
