//! The cluster: its steps, and what is checked after them.

use crate::checkers::{Checkers, check_equal};
use crate::client::Transaction;
use crate::machine::{Machine, Shipped, Shipping};
use crate::members::Members;
use crate::network::Network;
use crate::random::Random;
use fulgurite::{Error, ErrorKind};
use fulgurite_env::sim::{CrashKind, Loss, SimEnv};
use fulgurite_log::LogError;
use fulgurite_replication::{NodeError, Replica, TermError};
use fulgurite_types::Csn;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A rule that the harness breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// None.
    None,
    /// A follower acknowledges what it does not have on disk.
    AcknowledgesBeforeTheSync,
    /// A node is appointed that does not have all that may be agreed.
    AppointsOneBehind,
    /// A node forgets its term.
    ForgetsTheTerm,
    /// A follower takes what it has durably for agreed, and applies it.
    TakesDurableForAgreed,
    /// A leader does not ask whether its term still holds before it reads.
    ReadsWithoutBarrier,
    /// A node with an older copy of its directory says that it was started often since.
    TrustsOldDirectories,
    /// What a follower applies is not on its disk yet: that ignores syncs, and the follower acknowledges nothing meanwhile.
    AppliesBeforeTheSync,
    /// A leader counts an entry of an older term as agreed as soon as a follower has it, and tells that.
    CountsOlderTerms,
    /// A leader takes a node for one that has all as soon as it sends to it.
    CountsAllEarly,
    /// Nodes go to the next members before they have heard that the ones they have are in force.
    ChangesMembersEarly,
}

impl Canary {
    pub(crate) fn reads_without_barrier(self) -> bool {
        self == Canary::ReadsWithoutBarrier
    }
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Commits that were acknowledged to clients.
    pub acknowledged: usize,
    /// Leaders that were appointed.
    pub leaders: usize,
    /// Reads that were checked.
    pub reads: usize,
    /// Openings after the first.
    pub restarts: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Nodes that were replaced by new ones.
    pub replaced: usize,
    /// Nodes that were away for too long, and filled from copies.
    pub filled: usize,
    /// How often members came into force that a rival operator wanted.
    pub rival_sets: usize,
    /// How often two operators left no set of members enough nodes, and the cluster was made anew.
    pub rebuilt: usize,
    /// A checksum over all that happened.
    pub trace: u64,
}

pub(crate) struct Cluster {
    pub seed: u64,
    pub random: Random,
    pub canary: Canary,
    pub machines: Vec<Machine>,
    pub network: Network,
    pub members: Members,
    pub term: u64,
    pub next_id: u64,
    /// Whether nodes keep little log for others, and clients write much.
    pub is_log_short: bool,
    /// Whether leaders change often, and send one entry at a time.
    is_stormy: bool,
    /// All that got a number, by their ids.
    pub transactions: BTreeMap<u64, Transaction>,
    /// The transactions that drop tables, by the names of these.
    pub dropped_by: BTreeMap<String, u64>,
    pub checkers: Checkers,
    /// Whether steps are taken in the middle of another.
    pub depth: u32,
    pub heals: bool,
    /// A copy of a node's directory, its path, and how often that had been started.
    copy: Option<(usize, Arc<SimEnv>, PathBuf, u64)>,
    restarts: u64,
    checkpoints: u64,
    trace: u64,
}

/// Takes a cluster of so many nodes through a life, heals it, and checks it.
///
/// # Panics
/// If a rule is broken.
pub fn run(seed: u64, nodes: u32, canary: Canary, steps: u32) -> Summary {
    let is_log_short = seed % 4 == 1;
    let is_stormy = seed % 8 == 3 || canary == Canary::CountsOlderTerms;
    let has_rival = seed % 8 == 5 && canary == Canary::None;
    let keeps = if is_log_short { 1 << 20 } else { 64 << 20 };
    let mut cluster = Cluster {
        seed,
        random: Random::new(seed),
        canary,
        machines: (1..=nodes).map(|number| Machine::new(number, nodes, seed, keeps, is_stormy)).collect(),
        network: Network::default(),
        members: Members::new(nodes, has_rival),
        is_log_short,
        is_stormy,
        term: 0,
        next_id: 1,
        transactions: BTreeMap::new(),
        dropped_by: BTreeMap::new(),
        checkers: Checkers::default(),
        depth: 0,
        heals: false,
        copy: None,
        restarts: 0,
        checkpoints: 0,
        trace: 0,
    };
    (0..steps).for_each(|_| cluster.step());
    cluster.heal();
    let Checkers { acknowledged, order, leaders, reads, .. } = &cluster.checkers;
    acknowledged.check(seed, order);
    check_equal(seed, cluster.kept().into_iter().map(|at| &cluster.machines[at]), order);
    let Members { replaced, filled, rival_sets, rebuilt, .. } = cluster.members;
    let (acknowledged, leaders, reads) = (acknowledged.count(), leaders.count(), reads.count());
    let Cluster { restarts, checkpoints, trace, .. } = cluster;
    Summary {
        acknowledged,
        leaders,
        reads,
        restarts,
        checkpoints,
        replaced,
        filled,
        rival_sets,
        rebuilt,
        trace,
    }
}

impl Cluster {
    pub fn trace(&mut self, what: u64) {
        self.trace = (self.trace.rotate_left(5) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// A machine that was not stopped for good.
    pub fn any(&mut self) -> usize {
        let running: Vec<usize> =
            (0..self.machines.len()).filter(|at| !self.machines[*at].is_stopped).collect();
        running[self.random.below(running.len() as u64) as usize]
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |machine: &Machine| !machine.is_stopped && machine.replica.node().leads().is_some();
        (0..self.machines.len()).filter(|at| leads(&self.machines[*at])).collect()
    }

    /// After how many operations something crashes, if it does.
    pub fn crash_in(&mut self, operations: u64) -> Option<u64> {
        (!self.heals && self.random.one_in(4)).then(|| 1 + self.random.below(operations))
    }

    /// A number that no other crash of the run has.
    pub fn restarts_with(&mut self, more: u64) -> u64 {
        self.restarts += more;
        self.seed + self.restarts
    }

    /// A leader, if any node takes itself for one.
    pub fn leader(&mut self) -> Option<usize> {
        let leaders = self.leaders();
        let nth = self.random.below(leaders.len().max(1) as u64) as usize;
        leaders.get(nth).copied()
    }

    pub fn newest_acknowledged(&self) -> Csn {
        self.checkers.acknowledged.newest()
    }

    pub fn restart(&mut self, at: usize, kind: CrashKind) {
        // What was acknowledged on the way is.
        self.acknowledge(at);
        // What a disk has that ignores syncs is for the next power cut.
        let ignored_syncs = self.machines[at].ignores_syncs;
        let kind = if ignored_syncs { CrashKind::PowerCut } else { kind };
        if ignored_syncs {
            self.network.drop_from(at);
        }
        let (again, seed) = (self.random.one_in(4).then(|| 1 + self.random.below(60)), self.restarts_with(1));
        self.machines[at].restart(kind, seed, again);
        self.check(at);
    }

    /// Does something on a replica. Now and then its machine crashes in the middle: then there is no outcome.
    pub fn on<T>(
        &mut self,
        at: usize,
        what: impl FnOnce(&Replica) -> Result<T, NodeError>,
    ) -> Option<Result<T, NodeError>> {
        let crash = (!self.heals && self.random.one_in(80)).then(|| 1 + self.random.below(8));
        let Machine { env, replica, .. } = &self.machines[at];
        if let Some(nth) = crash {
            env.faults().crash_at(env.faults().op_count() + nth);
        }
        let outcome = what(replica);
        if env.faults().has_crashed() {
            self.restart(at, CrashKind::PowerCut);
            return None;
        }
        env.faults().crash_at(u64::MAX);
        Some(outcome)
    }

    /// A call failed. After a failure of the disk the machine is started again; anything else is a fault of the program.
    pub fn failed(&mut self, at: usize, error: &NodeError) {
        if self.is_of_the_lost(error) {
            return;
        }
        let is_of_disk = match error {
            NodeError::Database(Error::NoQuorum { .. } | Error::NotLeader { .. } | Error::Conflict(_)) => {
                return;
            }
            NodeError::Database(error) => {
                matches!(error.kind(), ErrorKind::Reopen | ErrorKind::Environment | ErrorKind::Space)
            }
            NodeError::Log(LogError::NotLeader) => return,
            // Of a node that was removed, or is not known to be added.
            NodeError::Misdirected { .. } => return,
            NodeError::Log(LogError::Poisoned(_) | LogError::Io { .. } | LogError::Closed) => true,
            NodeError::Term(TermError::Io { .. } | TermError::Unknown) => true,
            _ => false,
        };
        assert!(is_of_disk, "seed {}: node {}: {error}", self.seed, at + 1);
        self.restart(at, CrashKind::Kill);
    }

    pub fn step(&mut self) {
        for machine in &self.machines {
            machine.env.advance(machine.drift);
        }
        // Operators look for a leader, and replace one that they do not reach.
        let has_leader = self.leaders().into_iter().any(|at| self.network.reaches(at));
        if self.depth == 0 && !has_leader && self.random.one_in(12) {
            return self.change_leader();
        }
        if self.depth == 0 && self.is_stormy && self.random.one_in(8) {
            return self.change_leader();
        }
        match self.random.below(80) {
            0..8 => self.commit(),
            8..14 => self.flush(),
            14..30 => self.send(),
            30..58 => (0..2).for_each(|_| self.deliver()),
            58 if self.depth == 0 && self.random.one_in(2) => self.change_leader(),
            59 => self.read(),
            60..62 | 70..73 => self.begin_read(),
            62 if self.random.one_in(3) => {
                let (at, power_cut) = (self.any(), self.random.one_in(2));
                self.restart(at, if power_cut { CrashKind::PowerCut } else { CrashKind::Kill });
            }
            63 => self.checkpoint(),
            64 => self.change_links(),
            65 if self.random.one_in(4) => self.break_disk(),
            73 if self.random.one_in(6) => {
                let (at, is_slow) = (self.any(), self.random.one_in(2));
                self.machines[at].slow_down(is_slow);
            }
            66 if self.random.one_in(3) => self.copy_directory(),
            67 => self.restore_directory(),
            74 if self.canary == Canary::AppliesBeforeTheSync => self.ignore_syncs(),
            68 if self.depth == 0 && self.canary != Canary::CountsOlderTerms => self.change_members(),
            69 if self.depth == 0 => self.refill(),
            _ => {
                let at = self.any();
                self.maintain(at);
                self.end_reads(at);
            }
        }
    }

    fn flush(&mut self) {
        let Some(at) = self.leader() else { return };
        let shipping = Arc::clone(&self.machines[at].shipping);
        if self.random.one_in(2) {
            *shipping.lock() = Some(self.plan_shipping(at));
        }
        let outcome = self.on(at, Replica::flush);
        let shipped = shipping.lock().take();
        if let Some(Err(error)) = outcome {
            self.failed(at, &error);
        }
        let Shipped { taken, replies } = shipped.and_then(|shipping| shipping.shipped).unwrap_or_default();
        for (number, taken) in taken {
            let to = number as usize - 1;
            if self.machines[to].env.faults().has_crashed() {
                self.restart(to, CrashKind::PowerCut);
            } else {
                self.taken(to, taken);
            }
        }
        self.network.post(replies);
        self.check(at);
    }

    /// What a leader sends while it writes, to nodes that it reaches.
    fn plan_shipping(&mut self, at: usize) -> Shipping {
        let leader = Arc::clone(&self.machines[at].replica);
        let mut to = Vec::new();
        for other in (0..self.machines.len()).filter(|other| *other != at) {
            let Machine { is_stopped, ignores_syncs, .. } = self.machines[other];
            let is_away = is_stopped || ignores_syncs || !self.network.is_up(at, other);
            if self.random.one_in(3) || is_away {
                continue;
            }
            to.push(Arc::clone(&self.machines[other].replica));
        }
        let crash = (!self.heals && self.random.one_in(12)).then(|| 1 + self.random.below(3));
        let crash = crash.map(|nth| (Arc::clone(&self.machines[at].env), nth));
        Shipping { leader, to, crash, shipped: None }
    }

    /// What the threads of a database do.
    pub fn maintain(&mut self, at: usize) {
        for _ in 0..4 {
            match self.on(at, |replica| Ok(replica.database().maintain()?)) {
                Some(Ok(true)) => {}
                Some(Err(error)) => return self.failed(at, &error),
                _ => break,
            }
        }
        self.check(at);
    }

    fn checkpoint(&mut self) {
        let at = self.any();
        match self.on(at, |replica| Ok(replica.database().checkpoint()?)) {
            Some(Ok(report)) => {
                self.checkpoints += 1;
                self.trace(report.covered.0);
            }
            Some(Err(error)) => self.failed(at, &error),
            None => {}
        }
        self.check(at);
    }

    /// A copy is made of a node's directory.
    fn copy_directory(&mut self) {
        let at = self.any();
        let Machine { env, replica, lost, path, .. } = &self.machines[at];
        if lost.is_none() {
            let copy = env.crash(CrashKind::Kill, self.seed ^ 0xc0_9e);
            self.copy = Some((at, copy, path.clone(), replica.node().life().start));
        }
    }

    /// The copy comes in the place of the directory, if all other members have heard of a later start of the node: else none can find it. One
    /// at a time, and none while another is being replaced, so that a majority keeps its disks.
    fn restore_directory(&mut self) {
        let Some((at, _, _, start)) = &self.copy else { return };
        let (number, start) = (*at as u32 + 1, *start);
        let has_heard = |at: usize| {
            let replica = &self.machines[at].replica;
            let lives = replica.node().lives();
            replica.number() == number || lives.iter().any(|life| life.node == number && life.start > start)
        };
        let kept = self.kept();
        let is_whole = self.members.are_settled() && kept.len() == self.members.newest().len();
        if !is_whole || !kept.contains(at) || !kept.iter().all(|at| has_heard(*at)) {
            return;
        }
        let (at, copy, path, _) = self.copy.take().expect("it is there");
        self.acknowledge(at);
        let seed = self.restarts_with(1) ^ 0xc0_9e << 20;
        self.machines[at].restore(copy, path, seed);
        self.trace(at as u64);
    }

    /// Whether an error only says that a node has an older copy of its directory.
    pub fn is_of_the_lost(&self, error: &NodeError) -> bool {
        match error {
            NodeError::OldDirectory { own, .. } => self.machines[own.node as usize - 1].lost.is_some(),
            NodeError::PastLife { .. } => true,
            _ => false,
        }
    }

    /// One of the next writes or syncs of a node fails.
    fn break_disk(&mut self) {
        let (at, is_write, nth) = (self.any(), self.random.one_in(2), 1 + self.random.below(6));
        let faults = self.machines[at].env.faults();
        if is_write {
            faults.fail_write(faults.write_count() + nth);
        } else {
            faults.fail_sync(faults.sync_count() + nth, Loss::Some);
        }
    }

    /// The disk of a follower ignores syncs from now on, until it crashes.
    fn ignore_syncs(&mut self) {
        let at = self.any();
        let machine = &mut self.machines[at];
        if machine.replica.node().leads().is_none() && machine.lost.is_none() {
            machine.ignores_syncs = true;
            machine.env.faults().ignore_syncs(true);
        }
    }

    /// What a node has for agreed is what all others have.
    pub fn check(&mut self, at: usize) {
        let machine = &self.machines[at];
        let (replica, node) = (&machine.replica, machine.replica.number());
        let log = replica.node().log().clone();
        log.watermarks().validate();
        let positions = replica.positions();
        let (mut checked, agreed) = (machine.checked, positions.entries.agreed.index);
        let leads = replica.node().leads();
        let seed = self.seed;
        assert!(
            positions.applied <= log.reserved_csn(),
            "seed {seed}: node {node} applied what it does not have"
        );
        let (last, applied) = (log.reserved_csn(), machine.applied);
        assert!(
            machine.lost.is_some() || last >= applied,
            "seed {seed}: node {node} has lost what it had applied: it has commits up to {last}, and had {applied}"
        );
        if agreed > checked {
            // The first ones may have been freed.
            let mut reader = loop {
                match log.entries(checked) {
                    Ok(reader) => break reader,
                    Err(LogError::TooOld { .. }) if checked < self.checkers.agreed.last().min(agreed) => {
                        checked += 1
                    }
                    Err(error) => panic!("seed {seed}: node {node}: {error}"),
                }
            };
            while checked < agreed {
                let entry = reader.next().expect("it can be read").expect("it has what is agreed");
                let sets = self.members.of_leaders(entry.id.term, leads);
                if self.checkers.agreed.check(seed, node, &entry, (&self.machines, sets)) {
                    self.checkers.order.agreed(seed, &entry, &self.transactions, &self.dropped_by);
                    if let Some((version, set)) = self.members.of_terms.get(&entry.id.term).cloned() {
                        self.in_force(version, &set);
                    }
                }
                checked = entry.id.index;
            }
        }
        self.machines[at].checked = agreed;
        self.machines[at].applied = applied.max(positions.applied.min(positions.entries.agreed.csn));
        self.trace(agreed);
        self.acknowledge(at);
    }
}
