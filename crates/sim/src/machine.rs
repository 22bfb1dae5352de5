//! A machine: a disk, a clock, and a replica.

use crate::client::{TABLE, Transaction};
use crate::network::OnTheWay;
use fulgurite::{Database, Options, ResearchOptions};
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::{Entry, EntryPositions, Role};
use fulgurite_replication::{
    Cluster, ClusterId, Message, NodeError, ReadBarrier, Replica, ReplicaOptions, TermError,
};
use fulgurite_types::Csn;
use fulgurite_types::EntryId;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The directory of a new machine's database.
const PATH: &str = "/db";

/// The last commit from before the cluster.
const HISTORY: Csn = Csn(1);

/// A read that waits for a majority.
pub(crate) struct Read {
    pub barrier: ReadBarrier,
    /// The newest commit that was acknowledged to any client before the read began.
    pub acknowledged: Csn,
}

/// What a leader sends while it writes: its entries have numbers, and its write is not made yet.
pub(crate) struct Shipping {
    pub leader: Arc<Replica>,
    /// To which followers.
    pub to: Vec<Arc<Replica>>,
    /// The leader crashes at so many operations from then on.
    pub crash: Option<(Arc<SimEnv>, u64)>,
    /// What came of it; `None` before it was sent.
    pub shipped: Option<Shipped>,
}

#[derive(Default)]
pub(crate) struct Shipped {
    /// What each follower made of it.
    pub taken: Vec<(u32, Result<(), NodeError>)>,
    pub replies: Vec<Message>,
}

impl Shipping {
    fn ship(&mut self) {
        if self.shipped.is_some() {
            return;
        }
        let (sent, replies, mut taken) = (OnTheWay::default(), OnTheWay::default(), Vec::new());
        for follower in &self.to {
            // It is too old, or the disk failed: other steps find that, too.
            let _ = self.leader.send(follower.number(), &sent);
            for message in sent.take() {
                taken.push((follower.number(), follower.receive(&message, &replies)));
            }
        }
        self.shipped = Some(Shipped { taken, replies: replies.take() });
        if let Some((env, nth)) = &self.crash {
            env.faults().crash_at(env.faults().op_count() + nth);
        }
    }
}

pub(crate) struct Machine {
    pub env: Arc<SimEnv>,
    pub replica: Arc<Replica>,
    /// What the next flush sends.
    pub shipping: Arc<Mutex<Option<Shipping>>>,
    /// Transactions of this life that have no outcome yet.
    pub waiting: Vec<Transaction>,
    pub reads: Vec<Read>,
    /// Up to this index its agreed entries are checked.
    pub checked: u64,
    /// Its directory was replaced by an older copy, or it was removed and stopped: the entries that it had durably then. From then on it counts
    /// for nothing.
    pub lost: Option<Had>,
    /// It does nothing any more.
    pub is_stopped: bool,
    /// A leader has said that its log does not reach back to what this one lacks.
    pub is_behind: bool,
    /// The newest agreed commit that it has applied, in any life.
    pub applied: Csn,
    /// Its disk ignores syncs: until that is over it tells others nothing.
    pub ignores_syncs: bool,
    /// The newest commit that it has acknowledged alone, as a leader: its readers see all up to that.
    pub shows_unagreed: Csn,
    /// Where its database is.
    pub path: PathBuf,
    options: ReplicaOptions,
    /// Whether it was opened with history from before the cluster alone: of that no commit's time is known, and its clock stands where it was shown
    /// before, which it may have been as a leader.
    is_of_history: bool,
    /// Its disk is slow: its clock advances with each operation, and it takes messages late.
    pub is_slow: bool,
    /// By how much its clock advances with each step.
    pub drift: Duration,
}

/// Entries that a machine had durably.
#[derive(Clone)]
pub(crate) struct Had {
    /// All agreed ones up to here.
    agreed: u64,
    /// Those after that.
    pending: Vec<EntryId>,
}

/// Each as another node may have them.
fn options_of(number: u32, keeps: u64, is_stormy: bool) -> ReplicaOptions {
    let append_bytes_max = match number {
        _ if is_stormy => 1,
        1 => 20_000,
        _ => 1 << 20,
    };
    let quorum_wait = Duration::from_millis(30);
    ReplicaOptions { append_bytes_max, quorum_wait, ..options(evicts(number), keeps).into() }
}

/// `keeps`: so many bytes of log are kept for nodes that were away.
fn options(evicts: bool, keeps: u64) -> Options {
    Options {
        background: false,
        log_buffer_bytes: 1 << 20,
        checkpoint_log_bytes: keeps,
        memtable_bytes_max: Some(64 << 10),
        research: ResearchOptions { evict_everything: evicts, ..Default::default() },
        ..Options::default()
    }
}

fn shared(env: &Arc<SimEnv>) -> Arc<dyn Env> {
    Arc::clone(env) as Arc<dyn Env>
}

impl Machine {
    /// A machine whose database has a table: history from before the cluster.
    pub fn new(number: u32, nodes: u32, seed: u64, keeps: u64, is_stormy: bool) -> Machine {
        let env = SimEnv::new(seed * 31 + u64::from(number));
        let db = Database::open_with(shared(&env), PATH, options(false, keeps), |_| {}).expect("a new disk");
        db.create_table(TABLE).expect("a new database");
        db.close().expect("nothing fails");
        let cluster = Cluster::new(ClusterId(seed.into()), (1..=nodes).collect::<Vec<_>>());
        let options = options_of(number, keeps, is_stormy);
        let replica = Replica::create(shared(&env), PATH, options.clone(), &cluster, number);
        Machine::with(env, replica.expect("a new node"), PATH.into(), options)
    }

    fn with(env: Arc<SimEnv>, replica: Replica, path: PathBuf, options: ReplicaOptions) -> Machine {
        let machine = Machine {
            is_slow: false,
            drift: Duration::from_micros(u64::from(replica.number()) * 700),
            is_of_history: replica.positions().applied <= HISTORY,
            env,
            replica: Arc::new(replica),
            shipping: Arc::default(),
            waiting: Vec::new(),
            reads: Vec::new(),
            checked: 0,
            lost: None,
            is_stopped: false,
            is_behind: false,
            applied: Csn::ZERO,
            ignores_syncs: false,
            shows_unagreed: Csn::ZERO,
            path,
            options,
        };
        machine.observe();
        machine
    }

    /// Sends what is to be sent once the log has given numbers.
    fn observe(&self) {
        let shipping = Arc::clone(&self.shipping);
        let observer = move |_: EntryPositions| {
            if let Some(shipping) = &mut *shipping.lock() {
                shipping.ship();
            }
        };
        self.replica.node().log().set_entry_observer(Box::new(observer)).expect("it is replicated");
    }

    /// Crashes, and starts again. It crashes again at operation `again` of the opening, if that has so many.
    pub fn restart(&mut self, kind: CrashKind, seed: u64, again: Option<u64>) {
        let (env, number) = (self.env.crash(kind, seed), self.replica.number());
        self.env.faults().crash_now();
        if let Some(nth) = again {
            env.faults().crash_at(env.faults().op_count() + nth);
        }
        let opened = Replica::open(shared(&env), &self.path, self.options.clone(), number);
        if env.faults().has_crashed() {
            self.env = env;
            return self.restart(CrashKind::PowerCut, seed + 1, None);
        }
        env.faults().crash_at(u64::MAX);
        let opened = opened.unwrap_or_else(|error| panic!("node {number} does not open: {error}"));
        let (path, options) = (self.path.clone(), self.options.clone());
        let (lost, is_behind, is_slow, applied) =
            (self.lost.clone(), self.is_behind, self.is_slow, self.applied);
        *self = Machine { lost, is_behind, applied, ..Machine::with(env, opened, path, options) };
        self.slow_down(is_slow);
    }

    /// Puts an older copy of its directory, which is at a path, in its place, and starts.
    pub fn restore(&mut self, copy: Arc<SimEnv>, path: PathBuf, seed: u64) {
        self.lost = Some(self.had());
        self.env.faults().crash_now();
        (self.env, self.path) = (copy, path);
        self.restart(CrashKind::Kill, seed, None);
    }

    /// Does nothing any more.
    pub fn stop(&mut self) {
        if self.lost.is_none() {
            self.lost = Some(self.had());
        }
        self.env.faults().crash_now();
        self.is_stopped = true;
    }

    /// Its disk becomes slow, or is not any more.
    pub fn slow_down(&mut self, is_slow: bool) {
        self.is_slow = is_slow;
        let (write, sync) =
            if is_slow { (Duration::from_millis(2), Duration::from_millis(9)) } else { Default::default() };
        self.env.faults().latency(write, sync);
    }

    fn had(&self) -> Had {
        let at = self.replica.positions().entries;
        let log = self.replica.node().log().clone();
        let pending = (at.agreed.index + 1..=at.durable.index).filter_map(|index| log.pending_entry(index));
        Had { agreed: at.agreed.index, pending: pending.collect() }
    }

    /// A machine with a copy of this one's directory as it is on the disk.
    fn copied(&self, to: &Path, seed: u64) -> Arc<SimEnv> {
        let env = self.env.crash(CrashKind::Kill, seed);
        env.move_dir_raw(&self.path, to).expect("it is there, and the other one is not");
        env.keep_below_raw(to);
        env
    }

    /// A new node with a copy of this one's database; `None` if it crashes, at operation `crash`.
    pub fn joined(&self, cluster: &Cluster, number: u32, crash: Option<u64>) -> Option<Machine> {
        let path = PathBuf::from(format!("/joined-{number}"));
        let env = self.copied(&path, u64::from(number));
        env.faults().crash_at(crash.map_or(u64::MAX, |nth| env.faults().op_count() + nth));
        let keeps = self.options.database.checkpoint_log_bytes;
        let options = options_of(number, keeps, self.options.append_bytes_max == 1);
        let joined = Replica::join(shared(&env), &path, options.clone(), cluster, number);
        if env.faults().has_crashed() {
            return None;
        }
        env.faults().crash_at(u64::MAX);
        let joined = joined.unwrap_or_else(|error| panic!("node {number} does not join: {error}"));
        Some(Machine::with(env, joined, path, options))
    }

    /// Is filled from a copy of another one's database, and starts; it crashes at operation `crash` of that. Returns whether it has the copy.
    pub fn refill(&mut self, source: &Machine, seed: u64, crash: Option<u64>) -> bool {
        let number = self.replica.number();
        let copy = PathBuf::from(format!("/filled-{number}-{seed}"));
        let env = source.copied(&copy, seed);
        let own = self.env.crash(CrashKind::Kill, seed);
        self.env.faults().crash_now();
        for (path, _) in own.list_raw().into_iter().filter(|(path, _)| path.starts_with(&self.path)) {
            env.write_raw(&path, &own.read_raw(&path).expect("it is there")).expect("a new file");
        }
        env.faults().crash_at(crash.map_or(u64::MAX, |nth| env.faults().op_count() + nth));
        let refilled = Replica::refill(shared(&env), &self.path, &copy, self.options.clone(), number);
        let has_crashed = env.faults().has_crashed();
        self.env = env;
        match refilled {
            _ if has_crashed => {
                self.env = self.env.crash(CrashKind::PowerCut, seed);
                self.end_refill(copy)
            }
            Err(NodeError::OldCopy { .. }) => {
                self.env.faults().crash_at(u64::MAX);
                self.restart(CrashKind::Kill, seed, None);
                false
            }
            refilled => {
                self.env.faults().crash_at(u64::MAX);
                let refilled =
                    refilled.unwrap_or_else(|error| panic!("node {number} is not filled: {error}"));
                let machine = Machine::with(Arc::clone(&self.env), refilled, copy, self.options.clone());
                *self = Machine { applied: self.applied, ..machine };
                true
            }
        }
    }

    /// Starts after a crash that cut off a move to a copy: where it was, if it says there that it was not moved, else it is filled again. Returns whether it has the
    /// copy.
    fn end_refill(&mut self, copy: PathBuf) -> bool {
        let (number, options) = (self.replica.number(), self.options.clone());
        let env = Arc::clone(&self.env);
        let opened = Replica::open(shared(&env), &self.path, options.clone(), number);
        let (replica, path) = match opened {
            Ok(replica) => (replica, self.path.clone()),
            Err(NodeError::Term(TermError::Moved { .. })) => (
                Replica::refill(shared(&env), &self.path, &copy, options.clone(), number)
                    .expect("it was begun"),
                copy,
            ),
            // Its file of terms is gone here.
            Err(NodeError::Term(TermError::Io { .. })) => {
                (Replica::open(shared(&env), &copy, options.clone(), number).expect("it was moved"), copy)
            }
            Err(error) => panic!("node {number} does not open: {error}"),
        };
        let is_filled = path != self.path;
        let (is_behind, applied) = (self.is_behind && !is_filled, self.applied);
        *self = Machine { is_behind, applied, ..Machine::with(env, replica, path, options) };
        is_filled
    }

    /// Opens the replica again without a crash of the machine.
    pub fn reopen(&mut self) -> Result<(), NodeError> {
        self.reads.clear();
        self.checked = 0;
        self.replica.reopen()?;
        self.is_of_history = self.replica.positions().applied <= HISTORY;
        self.shows_unagreed = Csn::ZERO;
        self.observe();
        Ok(())
    }

    /// Whether it has an entry durably, or had it before it was lost.
    pub fn has(&self, entry: &Entry) -> bool {
        if let Some(had) = &self.lost {
            return entry.id.index <= had.agreed || had.pending.contains(&entry.id);
        }
        let at = self.replica.positions().entries;
        let index = entry.id.index;
        let pending = || self.replica.node().log().pending_entry(index);
        at.durable.index >= index && (at.agreed.index >= index || pending() == Some(entry.id))
    }

    /// Whether its clock stands at the newest commit that it has.
    pub fn follows(&self) -> bool {
        !self.is_of_history && self.replica.node().log().role() == Some(Role::Follower)
    }

    /// The version of the members that it has.
    pub fn version(&self) -> u64 {
        self.replica.node().cluster().version
    }

    pub fn last(&self) -> u64 {
        self.replica.positions().entries.last.index
    }
}

/// Whether a node evicts all that can be evicted.
fn evicts(number: u32) -> bool {
    number.is_multiple_of(2)
}
