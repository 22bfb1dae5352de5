//! A scripted session with every kind of write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite::env::Env;
use fulgurite::env::sim::SimEnv;
use fulgurite::{Database, Durability, Error, Result, Table, Ticket, Transaction};

use super::model::{History, State};
use super::rng::Rng;

/// One write of a transaction.
#[derive(Clone, Debug)]
pub enum Write {
    Put { table: String, key: Vec<u8>, value: Vec<u8>, expires_at_ms: u64 },
    Delete { table: String, key: Vec<u8> },
    DeleteRange { table: String, start: Vec<u8>, end: Option<Vec<u8>> },
}

impl Write {
    pub fn put(table: &str, key: impl Into<Vec<u8>>, value: Vec<u8>) -> Write {
        Write::Put { table: table.into(), key: key.into(), value, expires_at_ms: 0 }
    }

    pub fn apply(&self, state: &mut State) {
        match self {
            Write::Put { table, key, value, expires_at_ms } => state.put(table, key, value, *expires_at_ms),
            Write::Delete { table, key } => state.delete(table, key),
            Write::DeleteRange { table, start, end } => state.delete_range(table, start, end.as_deref()),
        }
    }

    pub fn perform(&self, txn: &mut Transaction, tables: &BTreeMap<String, Table>) -> Result<()> {
        match self {
            Write::Put { table, key, value, expires_at_ms: 0 } => txn.put(&tables[table], key, value),
            Write::Put { table, key, value, expires_at_ms } => {
                txn.put_expiring(&tables[table], key, value, fulgurite::Expiry::at_unix_ms(*expires_at_ms))
            }
            Write::Delete { table, key } => txn.delete(&tables[table], key),
            Write::DeleteRange { table, start, end: Some(end) } => {
                txn.delete_range(&tables[table], start.as_slice()..end.as_slice())
            }
            Write::DeleteRange { table, start, end: None } => {
                txn.delete_range(&tables[table], start.as_slice()..)
            }
        }
    }
}

/// A running session.
pub struct Workload {
    pub db: Database,
    pub sim: Arc<SimEnv>,
    pub history: Arc<Mutex<History>>,
    pub tables: BTreeMap<String, Table>,
    pub rng: Rng,
    /// Deferred commits, with their levels.
    tickets: Vec<(Ticket, Durability)>,
    made: u64,
}

/// The levels that deferred commits take in turn. The other commits are always durable when they are acknowledged.
const LEVELS: [Durability; 4] = [
    Durability::Sync,
    Durability::Async { interval: Duration::from_millis(5) },
    Durability::Sync,
    Durability::None,
];

/// The tables that last.
const LASTING: [&str; 5] = ["big", "expiring", "medium", "small", "wide"];

impl Workload {
    /// A session on an open database, whose state is the newest of `history`.
    pub fn new(
        db: Database,
        sim: &Arc<SimEnv>,
        history: &Arc<Mutex<History>>,
        seed: u64,
    ) -> Result<Workload> {
        let tables = db.tables()?.into_iter().map(|table| (table.name(), table)).collect();
        let made = history.lock().unwrap().submitted();
        Ok(Workload {
            db,
            sim: sim.clone(),
            history: history.clone(),
            tables,
            rng: Rng::new(seed),
            tickets: Vec::new(),
            made,
        })
    }

    /// Creates the tables that are missing.
    pub fn create_tables(&mut self) -> Result<()> {
        for name in LASTING {
            if !self.tables.contains_key(name) {
                self.create(name)?;
            }
        }
        Ok(())
    }

    /// `steps` steps of mixed writes, with merges and checkpoints between if `checkpoints`.
    pub fn run(&mut self, steps: u64, checkpoints: bool) -> Result<()> {
        self.create_tables()?;
        for step in 0..steps {
            self.step(step)?;
            if step % 5 == 4 {
                // Long enough without a commit for a durable mark.
                self.sim.advance(Duration::from_millis(20 * (step % 2)));
                self.db.maintain()?;
            }
            if checkpoints && step % 17 == 16 {
                self.db.checkpoint()?;
            }
        }
        self.wait_deferred()
    }

    fn step(&mut self, step: u64) -> Result<()> {
        match step % 20 {
            0 => self.small_batch(),
            7 | 14 | 19 => self.full_frame(),
            1 | 11 => self.medium_values(),
            2 => self.large_value(132_000, 260_000),
            3 => self.deletes(),
            17 => self.single(),
            4 | 13 => self.deferred(),
            5 => self.come_and_go(),
            6 => self.expiring(),
            8 => self.mixed(),
            9 => self.aborted(),
            10 => self.delete_range(),
            12 if step % 40 == 12 => self.wide(),
            12 => self.large_value(1_100_000, 1_300_000),
            15 => self.clear_wide(),
            16 => self.overwrites(),
            18 => {
                self.sim.advance(Duration::from_secs(7));
                self.overwrites()
            }
            _ => self.deletes(),
        }
    }

    /// Commits, and waits until that is durable.
    pub fn commit(&mut self, writes: &[Write]) -> Result<()> {
        let (txn, csn) = self.prepare(writes)?;
        let outcome = txn.commit();
        self.retract_unless_numbered(&outcome);
        assert_eq!(outcome?.csn.0, csn, "commits are numbered densely");
        self.history.lock().unwrap().acknowledge(csn);
        Ok(())
    }

    fn commit_deferred(&mut self, writes: &[Write]) -> Result<()> {
        let (mut txn, csn) = self.prepare(writes)?;
        let level = LEVELS[csn as usize % LEVELS.len()];
        txn.set_durability(level).expect("every database has these levels");
        let outcome = txn.commit_deferred();
        self.retract_unless_numbered(&outcome);
        let ticket = outcome?;
        assert_eq!(ticket.csn().0, csn, "commits are numbered densely");
        self.tickets.push((ticket, level));
        Ok(())
    }

    fn prepare(&mut self, writes: &[Write]) -> Result<(Transaction, u64)> {
        self.made += 1;
        let mut txn = self.db.begin();
        for write in writes {
            write.perform(&mut txn, &self.tables)?;
        }
        let csn =
            self.history.lock().unwrap().submit(|state| writes.iter().for_each(|write| write.apply(state)));
        Ok((txn, csn))
    }

    /// After an error other than [`Error::OutcomeUnknown`] nothing happened. When the machine has crashed, any error is
    /// permitted: no caller gets it.
    fn retract_unless_numbered<T>(&self, outcome: &Result<T>) {
        if let Err(error) = outcome
            && !matches!(error, Error::OutcomeUnknown { .. })
            && !self.sim.faults().has_crashed()
        {
            self.history.lock().unwrap().retract();
        }
    }

    /// Waits until all deferred commits are durable.
    pub fn wait_deferred(&mut self) -> Result<()> {
        for (ticket, level) in std::mem::take(&mut self.tickets) {
            let csn = ticket.wait()?.csn;
            if !level.waits() {
                self.db.wait_durable(csn)?;
            }
            self.history.lock().unwrap().acknowledge(csn.0);
        }
        Ok(())
    }

    /// Creates a table.
    pub fn create(&mut self, name: &str) -> Result<()> {
        let table = self.define(|state| state.create(name), |db| db.create_table(name))?;
        self.tables.insert(name.into(), table);
        Ok(())
    }

    pub fn drop_table(&mut self, name: &str) -> Result<()> {
        self.define(|state| state.drop_table(name), |db| db.drop_table(name))?;
        self.tables.remove(name);
        Ok(())
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        self.define(|state| state.rename(from, to), |db| db.rename_table(from, to))?;
        let table = self.tables.remove(from).expect("it was renamed");
        self.tables.insert(to.into(), table);
        Ok(())
    }

    fn define<T>(
        &mut self,
        change: impl FnOnce(&mut State),
        work: impl FnOnce(&Database) -> Result<T>,
    ) -> Result<T> {
        self.made += 1;
        let csn = self.history.lock().unwrap().submit(change);
        let outcome = work(&self.db);
        self.retract_unless_numbered(&outcome);
        let result = outcome?;
        self.history.lock().unwrap().acknowledge(csn);
        Ok(result)
    }

    fn small_key(&mut self) -> Vec<u8> {
        format!("key {:05}", self.rng.below(600)).into_bytes()
    }

    fn small_put(&mut self) -> Write {
        let len = self.rng.below(90) as usize;
        let (key, value) = (self.small_key(), self.rng.bytes(len));
        Write::put("small", key, value)
    }

    fn medium_put(&mut self) -> Write {
        let len = self.rng.between(150, 6_000) as usize;
        let key = format!("m{}", self.rng.below(50));
        Write::put("medium", key, self.rng.bytes(len))
    }

    fn large_put(&mut self, min: u64, max: u64) -> Write {
        let len = self.rng.between(min, max) as usize;
        let key = format!("big {}", self.rng.below(3));
        Write::put("big", key, self.rng.bytes(len))
    }

    fn small_batch(&mut self) -> Result<()> {
        let writes: Vec<Write> = (0..self.rng.between(5, 60)).map(|_| self.small_put()).collect();
        self.commit(&writes)
    }

    fn medium_values(&mut self) -> Result<()> {
        let writes: Vec<Write> = (0..self.rng.between(1, 8)).map(|_| self.medium_put()).collect();
        self.commit(&writes)
    }

    /// About as much as one frame takes: these fill segments.
    fn full_frame(&mut self) -> Result<()> {
        let writes: Vec<Write> = (0..40).map(|_| self.medium_put()).collect();
        self.commit(&writes)
    }

    fn large_value(&mut self, min: u64, max: u64) -> Result<()> {
        let write = self.large_put(min, max);
        self.commit(&[write])
    }

    fn deletes(&mut self) -> Result<()> {
        let first = self.rng.below(560);
        let delete =
            |n: u64| Write::Delete { table: "small".into(), key: format!("key {n:05}").into_bytes() };
        let mut writes: Vec<Write> = (first..first + 40).map(delete).collect();
        let key = format!("m{}", self.rng.below(50)).into_bytes();
        writes.push(Write::Delete { table: "medium".into(), key });
        self.commit(&writes)
    }

    fn overwrites(&mut self) -> Result<()> {
        for _ in 0..3 {
            let writes = [self.small_put(), self.medium_put(), self.small_put()];
            self.commit(&writes)?;
        }
        Ok(())
    }

    fn single(&mut self) -> Result<()> {
        let write = self.small_put();
        self.commit(&[write])
    }

    fn deferred(&mut self) -> Result<()> {
        for _ in 0..self.rng.between(2, 6) {
            let writes = match self.rng.below(12) {
                0 => vec![self.large_put(132_000, 150_000)],
                1..=4 => vec![self.medium_put()],
                _ => vec![self.small_put()],
            };
            self.commit_deferred(&writes)?;
        }
        if self.rng.one_in(2) { self.wait_deferred() } else { Ok(()) }
    }

    /// Creates, fills, renames and drops tables.
    fn come_and_go(&mut self) -> Result<()> {
        let passing = self.tables.keys().find(|name| name.starts_with("passing")).cloned();
        match passing {
            None => {
                let name = format!("passing {}", self.made);
                self.create(&name)?;
                let value = self.rng.bytes(900);
                self.commit(&[Write::put(&name, "k", value.clone()), Write::put(&name, "l", value)])
            }
            Some(name) if self.rng.one_in(2) => self.rename(&name, &format!("passing renamed {}", self.made)),
            Some(name) => {
                let value = self.rng.bytes(140_000);
                self.commit(&[Write::put(&name, "large", value)])?;
                self.drop_table(&name)?;
                self.create(&name)
            }
        }
    }

    fn expiring(&mut self) -> Result<()> {
        let now_ms = self.sim.clock().wall_ms();
        for (nth, seconds) in [3, 12, 100_000].into_iter().enumerate() {
            let len = if nth == 1 { 500 } else { 20 };
            let key = format!("e{}", self.rng.below(12)).into_bytes();
            let value = self.rng.bytes(len);
            let expires_at_ms = now_ms + seconds * 1000;
            self.commit(&[Write::Put { table: "expiring".into(), key, value, expires_at_ms }])?;
        }
        Ok(())
    }

    /// A commit with chunks, values in the frame and values in leaves, over several tables.
    fn mixed(&mut self) -> Result<()> {
        let end = Some(b"m2".to_vec());
        let writes = [
            Write::DeleteRange { table: "medium".into(), start: b"m1".to_vec(), end },
            self.large_put(132_000, 150_000),
            self.medium_put(),
            self.small_put(),
            self.medium_put(),
            Write::Delete { table: "wide".into(), key: b"w00003".to_vec() },
        ];
        self.commit(&writes)
    }

    /// A transaction that writes ahead and gives up.
    fn aborted(&mut self) -> Result<()> {
        let value = self.rng.bytes(150_000);
        let mut txn = self.db.begin();
        txn.put(&self.tables["big"], b"big 0", &value)?;
        txn.put(&self.tables["small"], b"key 00000", b"never")?;
        txn.rollback();
        let write = self.medium_put();
        self.commit(&[write])
    }

    fn delete_range(&mut self) -> Result<()> {
        let first = self.rng.below(500);
        let range = Write::DeleteRange {
            table: "small".into(),
            start: format!("key {first:05}").into_bytes(),
            end: Some(format!("key {:05}", first + 100).into_bytes()),
        };
        let inside = Write::put("small", format!("key {:05}", first + 50), b"after the range".to_vec());
        self.commit(&[range, inside])
    }

    /// A transaction whose operations do not fit a frame.
    fn wide(&mut self) -> Result<()> {
        let mut writes = Vec::new();
        for n in 0..1700 {
            let len = if n % 100 == 0 { 700 } else { 150 };
            writes.push(Write::put("wide", format!("w{n:05}"), self.rng.bytes(len)));
        }
        self.commit(&writes)
    }

    fn clear_wide(&mut self) -> Result<()> {
        let start = format!("w{:05}", self.rng.below(200)).into_bytes();
        self.commit(&[Write::DeleteRange { table: "wide".into(), start, end: None }])
    }
}
