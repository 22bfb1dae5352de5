//! Three replicas with their databases, on simulated disks and on one thread.
#![allow(dead_code, reason = "each test file uses some of it")]

use fulgurite::{Csn, Database, Options};
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_replication::{Cluster, ClusterId, NodeError, Replica, ReplicaOptions, SentUpTo};
use std::sync::Arc;

pub fn options() -> Options {
    Options { background: false, ..Options::default() }
}

/// Three replicas, with their machines.
pub struct Trio {
    pub envs: Vec<Arc<SimEnv>>,
    pub replicas: Vec<Replica>,
    pub term: u64,
    /// How they are opened after a crash.
    pub options: ReplicaOptions,
}

/// The one that all are made for.
pub fn cluster() -> Cluster {
    Cluster::new(ClusterId(0xc1), [1, 2, 3])
}

pub fn shared(env: &Arc<SimEnv>) -> Arc<dyn Env> {
    Arc::clone(env) as Arc<dyn Env>
}

impl Trio {
    pub fn new(options: ReplicaOptions) -> Trio {
        let envs: Vec<_> = (1..=3).map(SimEnv::new).collect();
        let make = |(env, number): (&Arc<SimEnv>, u32)| {
            Replica::create(shared(env), "/db", options.clone(), &cluster(), number).unwrap()
        };
        let replicas = envs.iter().zip(1..).map(make).collect();
        Trio { envs, replicas, term: 0, options }
    }

    pub fn db(&self, number: u32) -> Database {
        self.replicas[number as usize - 1].database()
    }

    pub fn replica(&self, number: u32) -> &Replica {
        &self.replicas[number as usize - 1]
    }

    /// Appoints a leader, with the promises of these nodes.
    pub fn appoint(&mut self, leader: u32, among: &[u32]) {
        self.term += 1;
        let promises: Vec<_> = among
            .iter()
            .map(|&number| self.replica(number).fence(self.term, Some(leader)).unwrap())
            .collect();
        self.replica(leader).appoint(self.term, &promises).unwrap();
    }

    /// The leader writes, sends all to these nodes, and hears them. Then all apply what they know to be agreed.
    pub fn replicate(&self, leader: u32, to: &[u32]) {
        for _ in 0..2 {
            self.replica(leader).flush().unwrap();
            for &number in to {
                self.send(leader, number);
            }
        }
        for &number in to.iter().chain(&[leader]) {
            while self.db(number).maintain().unwrap() {}
        }
    }

    pub fn send(&self, leader: u32, to: u32) {
        let mut after = SentUpTo::from(self.replica(to).positions().entries.last.index);
        loop {
            let message = self.replica(leader).append_after(to, after).unwrap().unwrap();
            match self.replica(to).append(&message) {
                Ok(appended) => {
                    self.replica(leader).acknowledged(&appended).unwrap();
                    if message.is_empty() {
                        return;
                    }
                    after = appended.up_to();
                }
                Err(NodeError::MustReopen { .. }) => {
                    self.replica(to).reopen().unwrap();
                    after = self.replica(to).positions().entries.last.index.into();
                }
                Err(error) => after = error.begin_after().unwrap_or_else(|| panic!("{error}")),
            }
        }
    }

    pub fn crash(&mut self, number: u32, kind: CrashKind) {
        let at = number as usize - 1;
        let env = self.envs[at].crash(kind, 7);
        self.replicas[at] = Replica::open(shared(&env), "/db", self.options.clone(), number).unwrap();
        self.envs[at] = env;
    }
}

/// Commits without waiting: on one thread no quorum comes meanwhile.
pub fn put(db: &Database, key: &str, value: &str) -> fulgurite::Result<Csn> {
    let table = db.open_table("t")?;
    let mut txn = db.begin();
    txn.put(&table, key, value)?;
    Ok(txn.commit_deferred()?.csn())
}

pub fn get(db: &Database, key: &str) -> Option<String> {
    let value = db.open_table("t").unwrap().get(key).unwrap()?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

/// Does something at the leader that waits for a quorum, which comes on this thread meanwhile.
pub fn while_replicating<T: Send>(trio: &Trio, to: &[u32], work: impl FnOnce(Database) -> T + Send) -> T {
    std::thread::scope(|scope| {
        let db = trio.db(1);
        let working = scope.spawn(move || work(db));
        while !working.is_finished() {
            trio.replicate(1, to);
        }
        trio.replicate(1, to);
        working.join().unwrap()
    })
}

pub fn make_table(trio: &Trio, to: &[u32]) {
    while_replicating(trio, to, |db| db.create_table("t").map(|_| ()).unwrap());
}

/// Node 1 leads, and there is a table.
pub fn led() -> Trio {
    led_with(options().into())
}

pub fn led_with(options: ReplicaOptions) -> Trio {
    let mut trio = Trio::new(options);
    trio.appoint(1, &[1, 2]);
    trio.replicate(1, &[2, 3]);
    make_table(&trio, &[2, 3]);
    trio
}
