//! A machine: a disk, a clock, and a replica.

use crate::client::{TABLE, Transaction};
use fulgurite::{Database, Options, ResearchOptions};
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::{Entry, EntryPositions, Role};
use fulgurite_replication::{
    Appended, Cluster, ClusterId, NodeError, ReadBarrier, Replica, ReplicaOptions, SentUpTo,
};
use fulgurite_types::Csn;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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
    /// To which followers, and after what.
    pub to: Vec<(Arc<Replica>, SentUpTo)>,
    /// The leader crashes at so many operations from then on.
    pub crash: Option<(Arc<SimEnv>, u64)>,
    /// The replies of the followers; `None` before it was sent.
    pub replies: Option<Vec<(u32, Result<Appended, NodeError>)>>,
}

impl Shipping {
    fn ship(&mut self) {
        if self.replies.is_some() {
            return;
        }
        let mut replies = Vec::new();
        for (follower, after) in &self.to {
            let number = follower.number();
            match self.leader.append_after(number, *after) {
                Ok(Some(append)) => replies.push((number, follower.append(&append))),
                Ok(None) => {}
                // It is too old, or the disk failed: other steps find that, too.
                Err(_) => {}
            }
        }
        self.replies = Some(replies);
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
    /// After what each other node gets entries next.
    pub next: BTreeMap<u32, SentUpTo>,
    /// Its directory was replaced by an older copy: the index up to which it had entries durably. From then on it counts for nothing.
    pub lost: Option<u64>,
    /// Whether it was opened with history from before the cluster alone: of that no commit's time is known, and its clock stands where it was shown
    /// before, which it may have been as a leader.
    is_of_history: bool,
    /// By how much its clock advances with each step.
    pub drift: Duration,
}

/// Each as another node may have them.
fn options_of(number: u32) -> ReplicaOptions {
    let append_bytes_max = if number == 1 { 20_000 } else { 1 << 20 };
    ReplicaOptions { append_bytes_max, ..options(evicts(number)).into() }
}

fn options(evicts: bool) -> Options {
    Options {
        background: false,
        log_buffer_bytes: 1 << 20,
        // So much is kept for nodes that were away: none is filled from a copy here.
        checkpoint_log_bytes: 64 << 20,
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
    pub fn new(number: u32, nodes: u32, seed: u64) -> Machine {
        let env = SimEnv::new(seed * 31 + u64::from(number));
        let db = Database::open_with(shared(&env), PATH, options(false), |_| {}).expect("a new disk");
        db.create_table(TABLE).expect("a new database");
        db.close().expect("nothing fails");
        let cluster = Cluster::new(ClusterId(seed.into()), (1..=nodes).collect::<Vec<_>>());
        let replica = Replica::create(shared(&env), PATH, options_of(number), &cluster, number);
        let replica = replica.expect("a new node");
        Machine::with(env, replica)
    }

    fn with(env: Arc<SimEnv>, replica: Replica) -> Machine {
        let drift = Duration::from_micros(u64::from(replica.number()) * 700);
        let (waiting, reads, checked, next) = (Vec::new(), Vec::new(), 0, BTreeMap::new());
        let (replica, shipping) = (Arc::new(replica), Arc::default());
        let is_of_history = replica.positions().applied <= HISTORY;
        let lost = None;
        let machine =
            Machine { env, replica, shipping, waiting, reads, checked, next, lost, is_of_history, drift };
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
        let opened = Replica::open(shared(&env), PATH, options_of(number), number);
        if env.faults().has_crashed() {
            self.env = env;
            return self.restart(CrashKind::PowerCut, seed + 1, None);
        }
        env.faults().crash_at(u64::MAX);
        let opened = opened.unwrap_or_else(|error| panic!("node {number} does not open: {error}"));
        *self = Machine { lost: self.lost, ..Machine::with(env, opened) };
    }

    /// Puts an older copy of its directory in its place, and starts.
    pub fn restore(&mut self, copy: Arc<SimEnv>, seed: u64) {
        let durable = self.replica.positions().entries.durable.index;
        self.env.faults().crash_now();
        self.env = copy;
        self.lost = Some(durable);
        self.restart(CrashKind::Kill, seed, None);
    }

    /// Opens the replica again without a crash of the machine.
    pub fn reopen(&mut self) -> Result<(), NodeError> {
        self.reads.clear();
        self.next.clear();
        self.checked = 0;
        self.replica.reopen()?;
        self.is_of_history = self.replica.positions().applied <= HISTORY;
        self.observe();
        Ok(())
    }

    /// Whether it has an entry durably, or had it before it was lost.
    pub fn has(&self, entry: &Entry) -> bool {
        if let Some(durable) = self.lost {
            return entry.id.index <= durable;
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

    pub fn last(&self) -> u64 {
        self.replica.positions().entries.last.index
    }
}

/// Whether a node evicts all that can be evicted.
fn evicts(number: u32) -> bool {
    number.is_multiple_of(2)
}
