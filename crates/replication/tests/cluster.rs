//! Three or five nodes, each with a log on a simulated disk, and a network that loses, doubles, delays and reorders messages. Everything runs on one
//! thread from one seed. Checked all the time: no two nodes number in one term, an agreed entry is the same everywhere and for ever, and
//! what was acknowledged to a client is in it. Canaries break one rule each, and have to be caught.

use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_env::{Dir, Env};
use fulgurite_log::{
    CommitLog, Durability, Entry, GroupKind, Log, LogError, LogOptions, RecoveredFrame, RecoverySink,
    ReplayFrom, frame_bytes,
};
use fulgurite_replication::{
    self as replication, Append, Appended, ClusterId, Fenced, Node, NodeError, TERM_FILE_NAME, TermFile,
};
use fulgurite_types::{Csn, DatabaseId, crc32c};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ID: DatabaseId = DatabaseId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

/// A rule that the harness breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Canary {
    None,
    /// A follower acknowledges what it does not have on disk.
    AcknowledgesBeforeTheSync,
    /// A node is appointed that does not have all that may be agreed.
    AppointsOneBehind,
    /// A node forgets its term.
    ForgetsTheTerm,
    /// A log is cut below what is agreed, to follow a leader that lacks it.
    CutsBelowAgreed,
    /// A log is cut as soon as it differs from the leader's, as far as it is not known to be the same.
    CutsWhatDiffers,
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes_min: 128 << 10,
        segment_bytes_max: 128 << 10,
        buffer_bytes: 256 << 10,
        ready_segments: 1,
        background: false,
        mark_idle: Duration::from_millis(10),
        replicated: true,
        ..LogOptions::default()
    }
}

fn log_dir() -> &'static Path {
    Path::new("/db/log")
}

fn dir(env: &SimEnv) -> Arc<dyn Dir> {
    env.disk().open_dir(Path::new("/db")).unwrap()
}

#[derive(Default)]
struct Frames(Vec<(u64, Vec<u8>)>);

impl RecoverySink for Frames {
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.push((frame.header.csn.0, frame.body.to_vec()));
        Ok(())
    }
}

/// A machine with a node.
struct Machine {
    env: Arc<SimEnv>,
    node: Node,
    /// What its node has committed and not acknowledged yet, in this life.
    waiting: Vec<(Csn, Vec<u8>)>,
    /// Up to here its agreed entries are checked.
    checked: u64,
    /// Per other node: the index after which it gets entries next.
    next: BTreeMap<u32, u64>,
}

impl Machine {
    fn new(number: u32, nodes: u32, seed: u64) -> Machine {
        let env = SimEnv::new(seed * 31 + u64::from(number));
        env.disk().create_dir_all(log_dir()).unwrap();
        env.disk().sync_dir(Path::new("/")).unwrap();
        env.disk().sync_dir(Path::new("/db")).unwrap();
        let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, log_dir(), ID, options()).unwrap();
        let cluster = replication::Cluster::new(ClusterId(seed.into()), (1..=nodes).collect::<Vec<_>>());
        TermFile::create(&dir(&env), ID, &cluster, number, env.random_u64(), 0).unwrap();
        let terms = TermFile::open(&dir(&env), ID, number, env.random_u64()).unwrap();
        Machine::with(env, Node::new(number, log, terms).unwrap())
    }

    fn with(env: Arc<SimEnv>, node: Node) -> Machine {
        Machine { env, node, waiting: Vec::new(), checked: 0, next: BTreeMap::new() }
    }

    /// Restarts it after a crash. It crashes again at operation `again` of the opening, if that has so many.
    fn restart(
        &mut self,
        kind: CrashKind,
        seed: u64,
        up_to_entry: Option<u64>,
        again: Option<u64>,
    ) -> Frames {
        let (env, number) = (self.env.crash(kind, seed), self.node.number());
        if let Some(nth) = again {
            env.faults().crash_at(env.faults().op_count() + nth);
        }
        let from = ReplayFrom { up_to_entry, ..ReplayFrom::beginning() };
        let mut frames = Frames::default();
        let shared = Arc::clone(&env) as Arc<dyn Env>;
        let log = Log::open(shared, log_dir(), ID, options(), &from, &mut frames);
        if let Ok((_, report)) = &log {
            assert_eq!(frames.0.len() as u64, report.agreed.csn.0, "all that is agreed is replayed");
        }
        let nonce = env.random_u64();
        let terms = env.disk().open_dir(Path::new("/db")).map(|dir| TermFile::open(&dir, ID, number, nonce));
        if env.faults().has_crashed() {
            self.env = env;
            return self.restart(CrashKind::PowerCut, seed + 1, up_to_entry, None);
        }
        env.faults().crash_at(u64::MAX);
        *self = Machine::with(env, Node::new(number, log.unwrap().0, terms.unwrap().unwrap()).unwrap());
        frames
    }

    fn commit(&mut self, body: Vec<u8>) -> Result<(), LogError> {
        let log = self.node.log();
        let admission = log.admit(frame_bytes(body.len() as u32), 0)?;
        let reservation = log.reserve(admission, Durability::Sync);
        let (csn, header) = (reservation.csn(), reservation.header(1, crc32c(&body)));
        log.fill(reservation, &header, &body, &[]);
        self.waiting.push((csn, body));
        Ok(())
    }

    /// Whether it has an entry durably.
    fn has(&self, entry: &Entry) -> bool {
        let log = self.node.log();
        let at = log.entry_positions().unwrap();
        let index = entry.id.index;
        at.durable.index >= index && (at.agreed.index >= index || log.pending_entry(index) == Some(entry.id))
    }

    fn last(&self) -> u64 {
        self.node.log().entry_positions().unwrap().last.index
    }
}

struct Cluster {
    seed: u64,
    random: Rng,
    canary: Canary,
    machines: Vec<Machine>,
    appends: Vec<(usize, Append)>,
    replies: Vec<(usize, Appended)>,
    term: u64,
    /// The node that leads in a term.
    leaders: BTreeMap<u64, u32>,
    /// The agreed entries, from the first on.
    agreed: Vec<Entry>,
    /// What was acknowledged to clients.
    acknowledged: BTreeMap<u64, Vec<u8>>,
    commits: u64,
    restarts: u64,
    /// Whether steps are taken in the middle of another.
    depth: u32,
}

impl Cluster {
    fn new(seed: u64, nodes: u32, canary: Canary) -> Cluster {
        Cluster {
            seed,
            random: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            canary,
            machines: (1..=nodes).map(|number| Machine::new(number, nodes, seed)).collect(),
            appends: Vec::new(),
            replies: Vec::new(),
            term: 0,
            leaders: BTreeMap::new(),
            agreed: Vec::new(),
            acknowledged: BTreeMap::new(),
            commits: 0,
            restarts: 0,
            depth: 0,
        }
    }

    fn any(&mut self) -> usize {
        self.random.below(self.machines.len() as u64) as usize
    }

    fn restart(&mut self, at: usize, kind: CrashKind, up_to: Option<u64>) {
        self.restarts += 1;
        let again = self.random.one_in(4).then(|| 1 + self.random.below(40));
        let frames = self.machines[at].restart(kind, self.seed + self.restarts, up_to, again);
        let agreed: Vec<_> = self.agreed_frames();
        assert!(agreed.starts_with(&frames.0), "seed {}: node {} replayed others", self.seed, at + 1);
        self.check(at);
    }

    /// Does something on a node. Now and then the node crashes in the middle: then there is no outcome.
    fn on<T>(
        &mut self,
        at: usize,
        what: impl FnOnce(&Node) -> Result<T, NodeError>,
    ) -> Option<Result<T, NodeError>> {
        let crash = self.random.one_in(25).then(|| 1 + self.random.below(8));
        let Machine { env, node, .. } = &self.machines[at];
        if let Some(nth) = crash {
            env.faults().crash_at(env.faults().op_count() + nth);
        }
        let outcome = what(node);
        if env.faults().has_crashed() {
            self.restart(at, CrashKind::PowerCut, None);
            return None;
        }
        env.faults().crash_at(u64::MAX);
        Some(outcome)
    }

    fn agreed_frames(&self) -> Vec<(u64, Vec<u8>)> {
        let entries = self.agreed.iter().filter(|entry| entry.kind == GroupKind::Frames);
        entries.flat_map(frames_of).collect()
    }

    /// What a node has for agreed is what all others have.
    fn check(&mut self, at: usize) {
        let seed = self.seed;
        let machine = &mut self.machines[at];
        let log = machine.node.log();
        log.watermarks().validate();
        let agreed = log.entry_positions().unwrap().agreed.index;
        let mut fresh = Vec::new();
        if agreed > machine.checked {
            let mut reader = log.entries(machine.checked).unwrap();
            while machine.checked < agreed {
                let entry = reader.next().unwrap().expect("it has what is agreed");
                match self.agreed.get(machine.checked as usize) {
                    Some(known) => assert_eq!(
                        (known.id, known.kind, known),
                        (entry.id, entry.kind, &entry),
                        "seed {seed}: node {}",
                        at + 1
                    ),
                    None => fresh.push(entry),
                }
                machine.checked += 1;
            }
        }
        // What is durable for its clients is acknowledged.
        let stable = log.durable_csn();
        let (done, waiting) = machine.waiting.drain(..).partition(|(csn, _)| *csn <= stable);
        machine.waiting = waiting;
        let done: Vec<(Csn, Vec<u8>)> = done;
        for entry in fresh {
            let has = |machine: &&Machine| machine.has(&entry);
            let count = self.machines.iter().filter(has).count();
            assert!(2 * count > self.machines.len(), "seed {seed}: no majority has entry {}", entry.id);
            self.agreed.push(entry);
        }
        for (csn, body) in done {
            let before = self.acknowledged.insert(csn.0, body);
            assert!(before.is_none(), "seed {seed}: commit {csn} was acknowledged twice");
        }
    }

    /// Fences some nodes in a new term for a nominee, with other things happening in between. The reply of one may be lost.
    fn fence_some(&mut self, term: u64, nominee: Option<u32>) -> Vec<Fenced> {
        let mut fenced: Vec<Fenced> = Vec::new();
        for at in 0..self.machines.len() {
            if self.random.one_in(5) {
                continue;
            }
            let path = Path::new("/db").join(TERM_FILE_NAME);
            let before = self.machines[at].env.read_raw(&path).unwrap();
            let mut said = self.on(at, |node| node.fence(term, nominee));
            if let Some(Err(NodeError::MustReopen { up_to, .. })) = said {
                self.restart(at, CrashKind::Kill, up_to);
                said = self.on(at, |node| node.fence(term, nominee));
            }
            match said {
                None => continue,
                Some(Err(NodeError::StaleTerm { .. })) => continue,
                Some(said) => fenced.push(said.unwrap()),
            }
            if self.canary == Canary::ForgetsTheTerm && self.random.one_in(2) {
                self.machines[at].env.write_raw(&path, &before).unwrap();
                self.restart(at, CrashKind::Kill, None);
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
    fn change_leader(&mut self) {
        self.term += 2;
        let term = self.term;
        let seen = self.fence_some(term - 1, None);
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
            self.appoint(term, nominee, &fenced);
            // A promise for one is none for another.
            let other = 1 + self.any() as u32;
            if other != nominee {
                self.appoint(term, other, &fenced);
            }
        }
    }

    fn appoint(&mut self, term: u64, nominee: u32, fenced: &[Fenced]) {
        let (at, members) = (nominee as usize - 1, self.machines.len());
        match self.on(at, |node| node.appoint(term, fenced)) {
            None => {}
            Some(Ok(())) => {
                let before = self.leaders.insert(term, nominee);
                assert!(before.is_none(), "seed {}: two nodes lead in term {term}", self.seed);
            }
            Some(Err(NodeError::NoMajority { fenced: count, .. })) => assert!(2 * count <= members),
            Some(Err(
                NodeError::StaleTerm { .. }
                | NodeError::Behind { .. }
                | NodeError::MustReopen { .. }
                | NodeError::PastLife { .. },
            )) => {}
            Some(Err(error)) => panic!("seed {}: {error}", self.seed),
        }
    }

    /// A leader, if any node takes itself for one.
    fn leader(&mut self) -> Option<usize> {
        let leads = |machine: &Machine| machine.node.leads().is_some();
        let count = self.machines.iter().filter(|machine| leads(machine)).count() as u64;
        let nth = self.random.below(count.max(1)) as usize;
        self.machines.iter().enumerate().filter(|(_, machine)| leads(machine)).map(|(at, _)| at).nth(nth)
    }

    fn commit(&mut self) {
        let Some(at) = self.leader() else { return };
        for _ in 0..=self.random.below(4) {
            self.commits += 1;
            let mut body = self.commits.to_le_bytes().to_vec();
            body.resize(8 + self.random.below(3000) as usize, at as u8);
            self.machines[at].commit(body).unwrap();
        }
    }

    fn flush(&mut self) {
        let Some(at) = self.leader() else { return };
        let flushed = self.on(at, |node| {
            node.log().flush_entries()?;
            node.flushed()
        });
        flushed.map(Result::unwrap);
        self.check(at);
    }

    /// A leader sends entries to a follower.
    fn send(&mut self) {
        let (Some(from), to) = (self.leader(), self.any()) else { return };
        if from == to {
            return;
        }
        let machine = &mut self.machines[from];
        let last = machine.last();
        let after = *machine.next.entry(to as u32 + 1).or_insert(last);
        if let Some(append) = machine.node.append_after(to as u32 + 1, after).unwrap() {
            self.appends.push((to, append));
        }
    }

    /// A message arrives, or is lost; some arrive twice.
    fn deliver(&mut self) {
        if self.appends.is_empty() || self.random.one_in(2) {
            return self.deliver_reply();
        }
        let nth = self.random.below(self.appends.len() as u64) as usize;
        let (to, mut append) = match self.random.one_in(6) {
            true => self.appends[nth].clone(),
            false => self.appends.swap_remove(nth),
        };
        if self.random.one_in(8) {
            return;
        }
        if self.canary == Canary::CutsWhatDiffers {
            // Followers hear late what is agreed.
            append.agreed = Default::default();
        }
        if self.canary == Canary::AcknowledgesBeforeTheSync && self.random.one_in(3) {
            let matched = append.entries.last().map_or(append.previous, |entry| entry.id);
            self.replies.push((
                append.envelope.from.node as usize - 1,
                Appended {
                    envelope: self.machines[to].node.envelope(append.envelope.from.node),
                    term: append.term,
                    chunks: 0,
                    matched,
                    csn: Default::default(),
                    round: append.round,
                },
            ));
            return;
        }
        self.append(to, &append);
    }

    fn append(&mut self, to: usize, append: &Append) {
        let from = append.envelope.from.node as usize - 1;
        let next = |cluster: &mut Cluster, index| {
            cluster.machines[from].next.insert(to as u32 + 1, index);
        };
        let Some(appended) = self.on(to, |node| node.append(append)) else { return };
        match appended {
            Ok(appended) => {
                next(self, appended.matched.index);
                self.replies.push((from, appended));
            }
            Err(NodeError::Gap { last, .. }) => next(self, last.index),
            Err(NodeError::Differs { begin_after, .. }) if self.canary == Canary::CutsWhatDiffers => {
                self.restart(to, CrashKind::Kill, Some(begin_after));
                next(self, begin_after);
            }
            Err(NodeError::Differs { begin_after, .. }) => next(self, begin_after),
            Err(NodeError::StaleTerm { .. } | NodeError::PastLife { .. }) => {}
            Err(NodeError::MustReopen { up_to, .. }) => {
                self.restart(to, CrashKind::Kill, up_to);
                next(self, up_to.unwrap_or(0));
            }
            Err(NodeError::Log(LogError::Usage(why))) if self.canary == Canary::CutsBelowAgreed => {
                panic!("{why}")
            }
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
        self.check(to);
    }

    fn deliver_reply(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        let nth = self.random.below(self.replies.len() as u64) as usize;
        let (to, appended) = self.replies.swap_remove(nth);
        if !self.random.one_in(8) {
            self.hear(to, &appended);
            self.check(to);
        }
    }

    /// A reply arrives. One of an earlier life is late.
    fn hear(&self, at: usize, appended: &Appended) {
        match self.machines[at].node.acknowledged(appended) {
            Ok(_) | Err(NodeError::PastLife { .. }) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn step(&mut self) {
        if self.canary == Canary::CutsWhatDiffers && self.depth == 0 && self.random.one_in(6) {
            // It needs leaders that others replace soon.
            self.change_leader();
        }
        match self.random.below(40) {
            0..8 => self.commit(),
            8..14 => self.flush(),
            14..24 => self.send(),
            24..36 => self.deliver(),
            36 if self.depth == 0 => self.change_leader(),
            37 => {
                let (at, power_cut) = (self.any(), self.random.one_in(2));
                let up_to = match self.canary {
                    Canary::CutsBelowAgreed => Some(self.machines[at].last().saturating_sub(4)),
                    _ => None,
                };
                let kind = if power_cut { CrashKind::PowerCut } else { CrashKind::Kill };
                self.restart(at, kind, up_to);
            }
            _ => {
                let at = self.any();
                let Machine { env, node, .. } = &self.machines[at];
                env.clock().sleep(Duration::from_millis(20));
                while node.log().maintain().unwrap_or(false) {}
                self.check(at);
            }
        }
    }

    /// All nodes can talk to each other again: all end with the same log, and what was acknowledged is in it.
    fn heal(mut self) -> (usize, usize) {
        self.appends.clear();
        self.replies.clear();
        // Above all terms, also if some nodes forgot theirs.
        self.term += 100;
        let term = self.term;
        (0..self.machines.len()).for_each(|at| self.restart(at, CrashKind::PowerCut, None));
        let fence = |term, nominee| -> Vec<_> {
            self.machines.iter().map(|machine| machine.node.fence(term, nominee).unwrap()).collect()
        };
        let seen: Vec<Fenced> = fence(term, None);
        let best = seen.iter().max_by_key(|fenced| fenced.last).unwrap().life.node;
        let fenced = fence(term + 1, Some(best));
        let leader = best as usize - 1;
        self.machines[leader].node.appoint(term + 1, &fenced).unwrap();
        self.machines[leader].node.log().flush_entries().unwrap();
        for round in 0.. {
            assert!(round < 100, "seed {}: it does not end", self.seed);
            for to in (0..self.machines.len()).filter(|to| *to != leader) {
                let last = self.machines[leader].last();
                let after = *self.machines[leader].next.entry(to as u32 + 1).or_insert(last);
                let append =
                    self.machines[leader].node.append_after(to as u32 + 1, after).unwrap().expect("it leads");
                self.append(to, &append);
                while let Some((at, appended)) = self.replies.pop() {
                    self.hear(at, &appended);
                    self.check(at);
                }
            }
            let last = self.machines[leader].last();
            if self.machines.iter().all(|machine| machine.checked == last) {
                break;
            }
        }
        let frames: BTreeMap<_, _> = self.agreed_frames().into_iter().collect();
        for (csn, body) in &self.acknowledged {
            assert_eq!(frames.get(csn), Some(body), "seed {}: commit {csn} was acknowledged", self.seed);
        }
        assert!(frames.keys().copied().eq(1..=frames.len() as u64), "seed {}: numbers are dense", self.seed);
        (self.acknowledged.len(), self.leaders.len())
    }
}

/// The commits of an entry, by the grammar of `docs/format/log.md`.
fn frames_of(entry: &Entry) -> Vec<(u64, Vec<u8>)> {
    let (mut rest, mut frames) = (&entry.payload[..], Vec::new());
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
        let csn = u64::from_le_bytes(rest[8..16].try_into().unwrap());
        frames.push((csn, rest[40..40 + len].to_vec()));
        rest = &rest[40 + len..];
    }
    frames
}

fn run(seed: u64, nodes: u32, canary: Canary) -> (usize, usize) {
    let mut cluster = Cluster::new(seed, nodes, canary);
    (0..400).for_each(|_| cluster.step());
    cluster.heal()
}

#[test]
fn clusters_keep_what_was_acknowledged() {
    let seeds = std::env::var("FULGURITE_CLUSTER_SEEDS").map_or(120, |seeds| seeds.parse().unwrap());
    let (mut acknowledged, mut leaders) = (0, 0);
    for seed in 0..seeds {
        let (more, led) = run(seed, if seed % 3 == 0 { 5 } else { 3 }, Canary::None);
        acknowledged += more;
        leaders += led;
    }
    println!("{seeds} seeds: {acknowledged} commits were acknowledged, {leaders} leaders appointed");
    assert!(
        acknowledged > 10 * seeds as usize && leaders > seeds as usize,
        "{acknowledged} commits, {leaders} leaders"
    );
}

/// One seed is one run.
#[test]
fn a_seed_repeats() {
    for seed in 0..4 {
        assert_eq!(run(seed, 3, Canary::None), run(seed, 3, Canary::None));
    }
}

/// The checks that may catch a canary.
fn caught_by(canary: Canary) -> &'static [&'static str] {
    match canary {
        Canary::None => &[],
        Canary::AcknowledgesBeforeTheSync => &["no majority has"],
        Canary::AppointsOneBehind => &["node", "was acknowledged"],
        Canary::ForgetsTheTerm => &["two nodes lead"],
        Canary::CutsBelowAgreed => &["INV-REP-3"],
        Canary::CutsWhatDiffers => &["node", "was acknowledged", "no majority has"],
    }
}

#[test]
fn broken_rules_are_caught() {
    let canaries = [
        Canary::AcknowledgesBeforeTheSync,
        Canary::AppointsOneBehind,
        Canary::ForgetsTheTerm,
        Canary::CutsBelowAgreed,
        Canary::CutsWhatDiffers,
    ];
    for canary in canaries {
        let is_caught = |seed| match catch_unwind(AssertUnwindSafe(|| run(seed, 3, canary))) {
            Ok(_) => false,
            Err(panic) => {
                let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                assert!(caught_by(canary).iter().any(|why| message.contains(why)), "{canary:?}: {message}");
                true
            }
        };
        let caught = (0..800).find(|seed| is_caught(*seed));
        println!("{canary:?} is caught with seed {caught:?}");
        assert!(caught.is_some(), "{canary:?} was not caught");
    }
}
