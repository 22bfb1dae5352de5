//! Clients: transactions that read, write, delete and delete ranges, and reads at one node or behind a barrier.

use crate::cluster::Cluster;
use crate::machine::{Machine, Read};
use fulgurite::{Database, Error, Ticket};
use fulgurite_env::Env;
use fulgurite_replication::NodeError;
use fulgurite_types::Csn;
use std::time::{Duration, UNIX_EPOCH};

pub(crate) const TABLE: &str = "t";
pub(crate) const KEYS: u64 = 6;

/// A value names the transaction that wrote it, of which there is one.
pub(crate) type Value = Option<u64>;

/// A transaction that has its number.
#[derive(Clone)]
pub(crate) struct Transaction {
    pub id: u64,
    pub csn: Csn,
    /// What it read before it wrote.
    pub read: (u64, Value),
    /// What it wrote, in order.
    pub writes: Vec<(u64, Value)>,
    /// When its value expires, in milliseconds since 1970; 0 is never.
    pub expires_at_ms: u64,
    /// The newest commit that was acknowledged to any client before it began.
    pub begun_after: Csn,
    pub ticket: Ticket,
}

pub(crate) fn key(number: u64) -> [u8; 2] {
    [b'k', b'0' + number as u8]
}

/// A value: the number of its transaction, and some length.
pub(crate) fn value(id: u64) -> Vec<u8> {
    let mut bytes = name(id);
    // Some are longer than a leaf takes, some are written ahead, in one chunk or two.
    let len = match id % 24 {
        11 => 140_000,
        23 => 530_000,
        _ => 13 + (id % 7 * 300) as usize,
    };
    bytes.resize(len, b'.');
    bytes
}

fn name(id: u64) -> Vec<u8> {
    format!("#{id:012}").into_bytes()
}

/// The transaction that a value, or a frame's body, names.
pub(crate) fn id_of(bytes: &[u8]) -> Option<u64> {
    let start = bytes.iter().position(|byte| *byte == b'#')?;
    std::str::from_utf8(bytes.get(start + 1..start + 13)?).ok()?.parse().ok()
}

impl Cluster {
    /// A client begins a transaction at a node that takes itself for the leader, and commits it without waiting.
    pub fn commit(&mut self) {
        let Some(at) = self.leader() else { return };
        for _ in 0..=self.random.below(3) {
            let (id, kind) = (self.next_id, self.random.below(8));
            self.next_id += 1;
            let keys = (self.random.below(KEYS), self.random.below(KEYS));
            let begun_after = self.newest_acknowledged();
            let db = self.machines[at].replica.database();
            let now_ms = self.machines[at].env.clock().wall_ms();
            let expires_at_ms = if id.is_multiple_of(4) { now_ms + id * 37 % 400 } else { 0 };
            match transact(&db, id, kind, keys, expires_at_ms) {
                Ok((read, writes, ticket)) => {
                    let csn = ticket.csn();
                    let transaction =
                        Transaction { id, csn, read, writes, expires_at_ms, begun_after, ticket };
                    self.trace(id ^ transaction.csn.0 << 32);
                    self.transactions.insert(id, transaction.clone());
                    self.machines[at].waiting.push(transaction);
                }
                Err(Error::NotLeader { .. }) => return,
                Err(error) => return self.failed(at, &NodeError::Database(error)),
            }
        }
    }

    /// Transactions of a node whose outcome is there are acknowledged to their clients.
    pub fn acknowledge(&mut self, at: usize) {
        let waiting = std::mem::take(&mut self.machines[at].waiting);
        for transaction in waiting {
            match transaction.ticket.try_wait() {
                None => self.machines[at].waiting.push(transaction),
                Some(Ok(_)) => self.checkers.acknowledged.note(&transaction),
                Some(Err(Error::NotLeader { .. })) => self.checkers.order.refused(transaction.id),
                Some(Err(_)) => {}
            }
        }
    }

    /// A client reads at some node, of what is applied there.
    pub fn read(&mut self) {
        let at = self.any();
        self.check(at);
        let db = self.machines[at].replica.database();
        let follows = self.machines[at].follows();
        let Some((csn, key, found)) = look_up(&db, self.random.below(KEYS)) else { return };
        self.checkers.reads.check(self.seed, (at, csn, follows), (key, found), &self.checkers.order);
    }

    /// A client begins a read at a leader, behind a barrier.
    pub fn begin_read(&mut self) {
        let Some(at) = self.leader() else { return };
        let acknowledged = self.newest_acknowledged();
        match self.machines[at].replica.node().begin_read() {
            Ok(barrier) => self.machines[at].reads.push(Read { barrier, acknowledged }),
            Err(NodeError::NothingAgreed { .. } | NodeError::NotLeading { .. }) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    /// The reads of a node that wait no more.
    pub fn end_reads(&mut self, at: usize) {
        self.check(at);
        let Machine { reads, replica, .. } = &mut self.machines[at];
        let (reads, db, node) = (std::mem::take(reads), replica.database(), replica.node());
        for read in reads {
            let holds = match node.holds(&read.barrier) {
                _ if self.canary.reads_without_barrier() => true,
                Ok(holds) => holds && db.snapshot().csn() >= read.barrier.csn,
                Err(NodeError::NotLeading { .. }) => continue,
                Err(error) => panic!("seed {}: {error}", self.seed),
            };
            if !holds {
                self.machines[at].reads.push(read);
                continue;
            }
            let Some((csn, key, found)) = look_up(&db, self.random.below(KEYS)) else { continue };
            self.checkers.reads.check(self.seed, (at, csn, false), (key, found), &self.checkers.order);
            self.checkers.reads.check_newest(self.seed, at, csn, read.acknowledged);
        }
    }
}

type Transacted = ((u64, Value), Vec<(u64, Value)>, Ticket);

/// Reads one key and writes it; some delete another one, or a range.
fn transact(
    db: &Database,
    id: u64,
    kind: u64,
    keys: (u64, u64),
    expires_at_ms: u64,
) -> Result<Transacted, Error> {
    let table = db.open_table(TABLE)?;
    let mut txn = db.begin();
    let found = txn.get(&table, key(keys.0))?.and_then(|value| id_of(&value));
    let mut writes = Vec::new();
    match kind {
        0 if keys.0 != keys.1 => {
            txn.delete(&table, key(keys.1))?;
            writes.push((keys.1, None));
        }
        1 => {
            txn.delete_range(&table, key(keys.1)..)?;
            writes.extend((keys.1..KEYS).map(|number| (number, None)));
        }
        _ => {}
    }
    let value = value(id);
    if value.len() > 100_000 {
        // The frame has to name it, and has no value.
        txn.delete(&table, name(id))?;
    }
    match expires_at_ms {
        0 => txn.put(&table, key(keys.0), value)?,
        ms => txn.put_expiring(&table, key(keys.0), value, UNIX_EPOCH + Duration::from_millis(ms))?,
    }
    writes.push((keys.0, Some(id)));
    Ok(((keys.0, found), writes, txn.commit_deferred()?))
}

/// Reads a key in a snapshot; `None` if the database cannot be read any more.
fn look_up(db: &Database, number: u64) -> Option<(Csn, u64, Value)> {
    let table = db.open_table(TABLE).ok()?;
    let snapshot = db.snapshot();
    let found = snapshot.get(&table, key(number)).ok()?.and_then(|value| id_of(&value));
    Some((snapshot.csn(), number, found))
}
