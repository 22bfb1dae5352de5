//! Random operations on a database and on the model of it, side by side.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use fulgurite::env::Env;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Error, Options, Snapshot, Table};

use super::model::{Entry, State};
use super::open_as;
use super::oracle::{Id, Key, Oracle, Txn};
use super::rng::Rng;
use super::transactions::{OpenTxn, Outcome, said};
use super::verify::{compare, compare_table};

/// One step. Slots are indices into the open transactions and snapshots; a step with an empty slot does nothing, so
/// that any step can be left out of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Begin(usize),
    Get { txn: usize, table: usize, key: Key },
    GetForUpdate { txn: usize, table: usize, key: Key },
    Put { txn: usize, table: usize, key: Key, value: ValueSpec, expires_in_s: Option<u64> },
    Delete { txn: usize, table: usize, key: Key },
    Insert { txn: usize, table: usize, key: Key, value: ValueSpec },
    Swap { txn: usize, table: usize, key: Key, right: bool, value: Option<ValueSpec> },
    DeleteRange { txn: usize, table: usize, start: Key, end: Option<Key> },
    Scan { txn: usize, table: usize, start: Bound<Key>, end: Bound<Key>, turns: u64 },
    Prefix { txn: usize, table: usize, prefix: Key, back: bool },
    Savepoint(usize),
    RollbackTo { txn: usize, nth: usize },
    Commit { txn: usize, deferred: bool },
    Rollback(usize),
    Many { table: usize, first: u64, count: u64, value: ValueSpec },
    Create(usize),
    Drop(usize),
    Rename { from: usize, to: usize },
    Snapshot(usize),
    Look(usize),
    Forget(usize),
    Maintain,
    Checkpoint,
    Advance { seconds: u64 },
    Compare,
    Check,
    Reopen,
    Crash { kind: CrashKind, seed: u64 },
}

/// Bytes from a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueSpec {
    pub seed: u64,
    pub len: usize,
}

impl ValueSpec {
    pub fn bytes(self) -> Vec<u8> {
        Rng::new(self.seed).bytes(self.len)
    }
}

struct OpenSnapshot {
    real: Snapshot,
    now_ms: u64,
    tables: BTreeMap<Id, Table>,
}

/// The database, the model, and the open transactions and snapshots.
pub struct Session {
    sim: Arc<SimEnv>,
    db: Option<Database>,
    /// The options of each opening, by its number.
    options: fn(u64) -> Options,
    opened: u64,
    oracle: Oracle,
    tables: BTreeMap<Id, Table>,
    txns: BTreeMap<usize, OpenTxn>,
    snapshots: BTreeMap<usize, OpenSnapshot>,
}

fn table_name(nth: usize) -> String {
    format!("table {nth}")
}

impl Session {
    pub fn start(seed: u64, options: fn(u64) -> Options) -> Session {
        let sim = SimEnv::new(seed);
        let db = open_as(sim.clone(), options(0)).expect("a new database opens");
        let oracle = Oracle::new();
        Session {
            sim,
            db: Some(db),
            options,
            opened: 1,
            oracle,
            tables: BTreeMap::new(),
            txns: BTreeMap::new(),
            snapshots: BTreeMap::new(),
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open between steps")
    }

    fn now_ms(&self) -> u64 {
        self.sim.clock().wall_ms()
    }

    fn table(&self, nth: usize) -> Option<(Id, Table)> {
        let id = *self.oracle.newest().names.get(&table_name(nth))?;
        Some((id, self.tables[&id].clone()))
    }

    pub fn step(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Begin(slot) => {
                let (real, model) = (self.db().begin(), Txn::begin(&self.oracle, self.now_ms()));
                if real.snapshot_csn().0 != model.csn {
                    return Err(format!(
                        "a transaction begins at {}, expected {}",
                        real.snapshot_csn(),
                        model.csn
                    ));
                }
                self.txns.insert(*slot, OpenTxn { real, model, savepoints: Vec::new() });
                Ok(())
            }
            Action::Commit { txn, deferred } => self.commit(*txn, *deferred),
            Action::Rollback(slot) => {
                self.txns.remove(slot);
                Ok(())
            }
            Action::Many { table, first, count, value } => self.many(*table, *first, *count, *value),
            Action::Create(nth) => self.create(*nth),
            Action::Drop(nth) => self.drop_table(*nth),
            Action::Rename { from, to } => self.rename(*from, *to),
            Action::Snapshot(slot) => {
                let (real, now_ms) = (self.db().snapshot(), self.now_ms());
                if real.csn().0 != self.oracle.csn() {
                    return Err(format!("a snapshot is of {}, expected {}", real.csn(), self.oracle.csn()));
                }
                self.snapshots.insert(*slot, OpenSnapshot { real, now_ms, tables: self.tables.clone() });
                Ok(())
            }
            Action::Look(slot) => self.look(*slot),
            Action::Forget(slot) => {
                self.snapshots.remove(slot);
                Ok(())
            }
            Action::Maintain => self.db().maintain().map(|_| ()).map_err(said("maintain")),
            Action::Checkpoint => self.db().checkpoint().map(|_| ()).map_err(said("checkpoint")),
            Action::Advance { seconds } => {
                self.sim.advance(Duration::from_secs(*seconds));
                Ok(())
            }
            Action::Compare => self.compare(),
            Action::Check => {
                let report = self.db().check(|_| {}).map_err(said("check"))?;
                if report.problems.is_empty() { Ok(()) } else { Err(report.problems.join("; ")) }
            }
            Action::Reopen => self.reopen(),
            Action::Crash { kind, seed } => self.crash(*kind, *seed),
            in_txn => self.in_txn(in_txn),
        }
    }

    fn in_txn(&mut self, action: &Action) -> Outcome {
        let (slot, table) = match action {
            Action::Savepoint(txn) | Action::RollbackTo { txn, .. } => (txn, None),
            Action::Get { txn, table, .. }
            | Action::GetForUpdate { txn, table, .. }
            | Action::Put { txn, table, .. }
            | Action::Delete { txn, table, .. }
            | Action::Insert { txn, table, .. }
            | Action::Swap { txn, table, .. }
            | Action::DeleteRange { txn, table, .. }
            | Action::Scan { txn, table, .. }
            | Action::Prefix { txn, table, .. } => (txn, Some(*table)),
            other => unreachable!("{other:?} is not of a transaction"),
        };
        let now_ms = self.now_ms();
        let table = table.map(|nth| self.table(nth));
        let Some(txn) = self.txns.get_mut(slot) else { return Ok(()) };
        match table {
            None => txn.savepoints(action),
            Some(None) => Ok(()),
            Some(Some((id, table))) => txn.act(action, id, &table, now_ms),
        }
    }

    fn commit(&mut self, slot: usize, deferred: bool) -> Outcome {
        let Some(txn) = self.txns.remove(&slot) else { return Ok(()) };
        let expected = self.oracle.judge(&txn.model, self.now_ms());
        let outcome = if deferred {
            txn.real.commit_deferred().and_then(|ticket| ticket.wait())
        } else {
            txn.real.commit()
        };
        match outcome {
            Ok(commit) if !expected.dropped && !expected.conflict => {
                if txn.model.has_writes() {
                    let csn = self.oracle.apply(&txn.model);
                    self.acknowledge();
                    if commit.csn.0 != csn {
                        return Err(format!("the commit is {}, expected {csn}", commit.csn));
                    }
                }
                Ok(())
            }
            Err(Error::Conflict { .. }) if expected.conflict => Ok(()),
            Err(Error::TableDropped { .. }) if expected.dropped => Ok(()),
            other => Err(format!("committing gave {other:?}, expected {expected:?}")),
        }
    }

    fn acknowledge(&mut self) {
        self.oracle.acknowledged = self.oracle.csn();
    }

    fn many(&mut self, table: usize, first: u64, count: u64, value: ValueSpec) -> Outcome {
        let Some((id, table)) = self.table(table) else { return Ok(()) };
        let (mut real, mut model) = (self.db().begin(), Txn::begin(&self.oracle, self.now_ms()));
        for n in first..first + count {
            let key = format!("many {n:05}").into_bytes();
            let bytes = ValueSpec { seed: value.seed ^ n, ..value }.bytes();
            real.put(&table, &key, &bytes).map_err(said("put"))?;
            model.write(id, &key, Some(Entry { value: bytes.into(), expires_at_ms: 0 }), false);
        }
        real.commit().map_err(said("committing many"))?;
        self.oracle.apply(&model);
        self.acknowledge();
        Ok(())
    }

    fn create(&mut self, nth: usize) -> Outcome {
        let name = table_name(nth);
        let exists = self.oracle.newest().names.contains_key(&name);
        match self.db().create_table(&name) {
            Ok(table) if !exists => {
                let id = self.oracle.create(&name);
                self.acknowledge();
                self.tables.insert(id, table);
                Ok(())
            }
            Err(Error::TableExists { .. }) if exists => Ok(()),
            other => Err(format!("creating {name}, which exists: {exists}, gave {other:?}")),
        }
    }

    fn drop_table(&mut self, nth: usize) -> Outcome {
        let Some((_, table)) = self.table(nth) else { return Ok(()) };
        self.db().drop_table(&table.name()).map_err(said("dropping a table"))?;
        self.oracle.drop_table(&table_name(nth));
        self.acknowledge();
        match table.get(b"k") {
            Err(Error::TableDropped { .. }) => Ok(()),
            other => Err(format!("get in a dropped table gave {other:?}")),
        }
    }

    fn rename(&mut self, from: usize, to: usize) -> Outcome {
        let (from, to) = (table_name(from), table_name(to));
        let names = &self.oracle.newest().names;
        let (known, taken) = (names.contains_key(&from), names.contains_key(&to) && from != to);
        match self.db().rename_table(&from, &to) {
            Ok(()) if known && !taken => {
                if from != to {
                    self.oracle.rename(&from, &to);
                    self.acknowledge();
                }
                Ok(())
            }
            Err(Error::UnknownTable { .. }) if !known => Ok(()),
            Err(Error::TableExists { .. }) if taken => Ok(()),
            other => Err(format!("renaming {from} to {to} gave {other:?}")),
        }
    }

    /// All data that a snapshot sees, tables that were dropped since included.
    fn look(&mut self, slot: usize) -> Outcome {
        let Some(snapshot) = self.snapshots.get(&slot) else { return Ok(()) };
        let csn = snapshot.real.csn().0;
        for (id, model) in &self.oracle.worlds[csn as usize].data {
            compare_table(&snapshot.real, &snapshot.tables[id], model, snapshot.now_ms)
                .map_err(|what| format!("snapshot of {csn}, table {id}: {what}"))?;
        }
        Ok(())
    }

    fn state(&self) -> State {
        let world = self.oracle.newest();
        State {
            tables: world.names.iter().map(|(name, id)| (name.clone(), world.data[id].clone())).collect(),
        }
    }

    fn compare(&mut self) -> Outcome {
        compare(self.db(), &self.db().snapshot(), &self.state(), self.now_ms())
    }

    fn leave(&mut self) -> Option<Database> {
        self.txns.clear();
        self.snapshots.clear();
        self.tables.clear();
        self.db.take()
    }

    fn enter(&mut self) -> Outcome {
        let db = open_as(self.sim.clone(), (self.options)(self.opened)).map_err(said("opening"))?;
        self.opened += 1;
        let csn = db.snapshot().csn().0;
        if csn < self.oracle.acknowledged || csn > self.oracle.csn() {
            return Err(format!("opening found commit {csn}, {} was acknowledged", self.oracle.acknowledged));
        }
        self.oracle.recovered(csn);
        for (name, id) in &self.oracle.newest().names {
            self.tables.insert(*id, db.open_table(name).map_err(said("opening a table"))?);
        }
        self.db = Some(db);
        self.compare()
    }

    fn reopen(&mut self) -> Outcome {
        let db = self.leave().expect("it is open");
        db.close().map_err(said("closing"))?;
        self.enter()
    }

    fn crash(&mut self, kind: CrashKind, seed: u64) -> Outcome {
        let left = self.sim.crash(kind, seed);
        self.sim.faults().crash_now();
        drop(self.leave());
        self.sim = left;
        self.enter()
    }
}
