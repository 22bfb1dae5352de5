//! Clients: transactions that read, write, delete and delete ranges, some of which the leader acknowledges alone, and reads at one node or behind a
//! barrier.

use crate::cluster::Cluster;
use crate::machine::{Machine, Read};
use fulgurite::{Acks, Database, Error, Table, Ticket};
use fulgurite_env::Env;
use fulgurite_replication::NodeError;
use fulgurite_types::Csn;
use std::time::{Duration, UNIX_EPOCH};

pub(crate) const TABLE: &str = "t";
pub(crate) const KEYS: u64 = 6;

/// A value names the transaction that wrote it, of which there is one.
pub(crate) type Value = Option<u64>;

/// A transaction that has its number, or may have.
#[derive(Clone)]
pub(crate) struct Transaction {
    pub id: u64,
    /// `None` if its client does not know it.
    pub csn: Option<Csn>,
    /// What it read before it wrote.
    pub read: Option<(u64, Value)>,
    /// What it wrote, in order.
    pub writes: Vec<(u64, Value)>,
    /// What it did to another table.
    pub other: Option<Other>,
    /// When its value expires, in milliseconds since 1970; 0 is never.
    pub expires_at_ms: u64,
    /// The newest commit that was acknowledged to any client before it began.
    pub begun_after: Csn,
    /// That of one which waits for a quorum.
    pub ticket: Option<Ticket>,
    /// How many replicas have it when it is acknowledged.
    pub acks: Acks,
}

/// What a transaction does to a table that comes and goes; tables are called after the transactions that named them.
#[derive(Clone, Debug)]
pub(crate) enum Other {
    Create,
    Drop(String),
    Rename(String),
    /// Writes its row.
    Put(String),
}

/// The row that such a table has.
pub(crate) const ROW: &str = "row";

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

/// A row that only makes the log long.
pub(crate) fn filler(number: u64) -> [u8; 2] {
    [b'f', b'0' + number as u8]
}

pub(crate) const FILLERS: u64 = 8;

/// The transaction that a value, or a frame's body, names: the last one in it, for a new name of a table comes after the one before.
pub(crate) fn id_of(bytes: &[u8]) -> Option<u64> {
    let named = |name: &[u8]| std::str::from_utf8(name.strip_prefix(b"#")?).ok()?.parse().ok();
    bytes.windows(NAME_BYTES).rev().find_map(named)
}

/// How long the name of a transaction is.
const NAME_BYTES: usize = 13;

impl Cluster {
    /// A client begins a transaction at a node that takes itself for the leader, and commits it without waiting.
    pub fn commit(&mut self) {
        let Some(at) = self.leader() else { return };
        match self.random.below(12) {
            0 => return self.commit_at_leader(at),
            1 => return self.define(at),
            _ => {}
        }
        for _ in 0..=self.random.below(3) {
            let writes = self.writes_of(at);
            let db = self.machines[at].replica.database();
            let (id, expires_at_ms, begun_after) = (writes.id, writes.expires_at_ms, writes.begun_after);
            let other = others_of(&db).into_iter().last().filter(|_| id % 3 == 0).map(Other::Put);
            match transact(&db, &writes, &other) {
                Ok((read, writes, ticket)) => {
                    let (csn, read, ticket, acks) =
                        (Some(ticket.csn()), Some(read), Some(ticket), acks_of(id));
                    let transaction = Transaction {
                        id,
                        csn,
                        read,
                        writes,
                        other,
                        expires_at_ms,
                        begun_after,
                        ticket,
                        acks,
                    };
                    self.note(at, transaction);
                }
                Err(Error::NotLeader { .. }) => return,
                Err(error) => return self.failed(at, &NodeError::Database(error)),
            }
        }
    }

    /// A transaction has its number, and waits for a quorum.
    fn note(&mut self, at: usize, transaction: Transaction) {
        self.trace(transaction.id ^ transaction.csn.map_or(0, |csn| csn.0) << 32);
        self.transactions.insert(transaction.id, transaction.clone());
        self.machines[at].waiting.push(transaction);
    }

    /// A client creates, renames or drops a table. One is dropped once: a frame that drops one names no other transaction.
    fn define(&mut self, at: usize) {
        let (id, begun_after) = (self.next_id, self.newest_acknowledged());
        self.next_id += 1;
        let db = self.machines[at].replica.database();
        let tables = others_of(&db);
        let any = tables.get(self.random.below(4) as usize).cloned();
        let new = String::from_utf8(name(id)).expect("digits");
        let defined = match any {
            None => db.create_table_deferred(&new).map(|(_, ticket)| (Other::Create, ticket)),
            Some(table) if self.random.one_in(2) => {
                let renamed = db.rename_table_deferred(&table, &new);
                renamed.map(|ticket| (Other::Rename(table), ticket.expect("another name")))
            }
            Some(table) if self.dropped_by.contains_key(&table) => return,
            Some(table) => {
                let dropped = db.drop_table_deferred(&table);
                dropped.map(|ticket| {
                    self.dropped_by.insert(table.clone(), id);
                    (Other::Drop(table), ticket)
                })
            }
        };
        match defined {
            Ok((other, ticket)) => {
                let (csn, read, writes) = (Some(ticket.csn()), None, Vec::new());
                let (other, ticket, acks) = (Some(other), Some(ticket), Acks::Quorum);
                let transaction =
                    Transaction { id, csn, read, writes, other, expires_at_ms: 0, begun_after, ticket, acks };
                self.note(at, transaction);
            }
            Err(Error::NotLeader { .. }) => {}
            Err(error) => self.failed(at, &NodeError::Database(error)),
        }
    }

    fn writes_of(&mut self, at: usize) -> Writes {
        let (id, kind) = (self.next_id, self.random.below(8));
        self.next_id += 1;
        let keys = (self.random.below(KEYS), self.random.below(KEYS));
        let begun_after = self.newest_acknowledged();
        let now_ms = self.machines[at].env.clock().wall_ms();
        let expires_at_ms = if id.is_multiple_of(4) { now_ms + id * 37 % 400 } else { 0 };
        let is_long = self.is_log_short && id.is_multiple_of(2);
        Writes { id, kind, keys, expires_at_ms, begun_after, is_long }
    }

    /// A client commits a transaction that reads nothing, for which the leader's own disk is enough: it may be lost with that.
    fn commit_at_leader(&mut self, at: usize) {
        let writes = self.writes_of(at);
        let (id, expires_at_ms, begun_after) = (writes.id, writes.expires_at_ms, writes.begun_after);
        let mut written = Vec::new();
        let outcome =
            self.on(at, |replica| Ok(transact_at_leader(&replica.database(), &writes, &mut written)?));
        let csn = match &outcome {
            Some(Err(NodeError::Database(Error::NotLeader { .. }))) => return,
            Some(Ok(csn)) => Some(*csn),
            _ => None,
        };
        let (read, other, ticket, acks) = (None, None, None, Acks::Local);
        let transaction =
            Transaction { id, csn, read, writes: written, other, expires_at_ms, begun_after, ticket, acks };
        self.transactions.insert(id, transaction);
        match outcome {
            Some(Ok(csn)) => {
                self.trace(id ^ csn.0 << 32);
                self.machines[at].shows_unagreed = csn;
            }
            Some(Err(error)) => self.failed(at, &error),
            None => {}
        }
    }

    /// Transactions of a node whose outcome is there are acknowledged to their clients.
    pub fn acknowledge(&mut self, at: usize) {
        let waiting = std::mem::take(&mut self.machines[at].waiting);
        for transaction in waiting {
            match transaction.ticket.as_ref().expect("it waits").try_wait() {
                None => self.machines[at].waiting.push(transaction),
                Some(Ok(commit)) if transaction.acks == Acks::Local => {
                    let shows = &mut self.machines[at].shows_unagreed;
                    *shows = commit.csn.max(*shows);
                }
                Some(Ok(commit)) => {
                    if transaction.acks == Acks::All {
                        self.check_all_have(at, commit.csn);
                    }
                    self.checkers.acknowledged.note(&transaction);
                }
                // A quorum has it.
                Some(Err(Error::ReplicasBehind { .. })) => self.checkers.acknowledged.note(&transaction),
                Some(Err(Error::NotLeader { .. })) => self.checkers.order.refused(transaction.id),
                Some(Err(_)) => {}
            }
        }
    }

    /// All members of a leader have a commit on disk, but those that lost theirs since.
    fn check_all_have(&self, leader: usize, csn: Csn) {
        let term = self.machines[leader].replica.node().term();
        let set = self.members.of_terms.get(&term).map(|(_, set)| set);
        for (at, machine) in self.machines.iter().enumerate() {
            let has_set = set.is_some_and(|set| set.contains(&(at as u32 + 1)));
            let durable = machine.replica.node().log().watermarks().durable_csn;
            assert!(
                !has_set || machine.lost.is_some() || durable >= csn,
                "seed {}: commit {csn} was acknowledged as one that all have, and node {} has those up to {durable}",
                self.seed,
                at + 1
            );
        }
    }

    /// A client reads at some node, of what is applied there.
    pub fn read(&mut self) {
        let at = self.any();
        self.check(at);
        let db = self.machines[at].replica.database();
        let follows = self.machines[at].follows();
        let Some((csn, key, found)) = look_up(&db, self.random.below(KEYS)) else { return };
        if self.shows_unagreed(at, csn) {
            return;
        }
        self.checkers.reads.check(self.seed, (at, csn, follows), (key, found), &self.checkers.order);
    }

    /// Whether a snapshot at a leader may see what no quorum has: commits that this leader alone has acknowledged, and all before them.
    fn shows_unagreed(&self, at: usize, csn: Csn) -> bool {
        let machine = &self.machines[at];
        csn <= machine.shows_unagreed && csn > machine.replica.positions().entries.agreed.csn
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
            if !self.shows_unagreed(at, csn) {
                let (reads, order) = (&mut self.checkers.reads, &self.checkers.order);
                reads.check(self.seed, (at, csn, false), (key, found), order);
            }
            self.checkers.reads.check_newest(self.seed, at, csn, read.acknowledged);
        }
    }
}

/// What a transaction is about to do.
struct Writes {
    id: u64,
    kind: u64,
    keys: (u64, u64),
    expires_at_ms: u64,
    begun_after: Csn,
    /// It writes so much beside that the log has to be trimmed.
    is_long: bool,
}

/// Some transactions wait for less than a quorum, or for more.
fn acks_of(id: u64) -> Acks {
    match id % 16 {
        3 | 10 => Acks::All,
        5 => Acks::Local,
        _ => Acks::Quorum,
    }
}

type Transacted = ((u64, Value), Vec<(u64, Value)>, Ticket);

/// The tables that come and go, by name.
fn others_of(db: &Database) -> Vec<String> {
    let tables = db.tables().unwrap_or_default();
    tables.iter().map(|table| table.name().to_string()).filter(|name| name != TABLE).collect()
}

/// Reads one key and writes it; some delete another one, or a range.
fn transact(db: &Database, writes: &Writes, other: &Option<Other>) -> Result<Transacted, Error> {
    let table = db.open_table(TABLE)?;
    let mut txn = db.begin();
    txn.set_acks(acks_of(writes.id));
    // It happens before what it has read expires, also if its own values take long to be written.
    let found = txn.get_for_update(&table, key(writes.keys.0))?.and_then(|value| id_of(&value));
    let mut written = Vec::new();
    writes.write(&mut txn, &table, &mut written)?;
    if let Some(Other::Put(other)) = other {
        txn.put(&db.open_table(other)?, ROW, name(writes.id))?;
    }
    Ok(((writes.keys.0, found), written, txn.commit_deferred()?))
}

/// Writes one key, and waits for the leader.
fn transact_at_leader(db: &Database, writes: &Writes, written: &mut Vec<(u64, Value)>) -> Result<Csn, Error> {
    let table = db.open_table(TABLE)?;
    let mut txn = db.begin();
    txn.set_acks(Acks::Local);
    writes.write(&mut txn, &table, written)?;
    Ok(txn.commit()?.csn)
}

impl Writes {
    fn write(
        &self,
        txn: &mut fulgurite::Transaction,
        table: &Table,
        written: &mut Vec<(u64, Value)>,
    ) -> Result<(), Error> {
        let Writes { id, kind, keys, expires_at_ms, .. } = *self;
        match kind {
            0 if keys.0 != keys.1 => {
                txn.delete(table, key(keys.1))?;
                written.push((keys.1, None));
            }
            1 => {
                txn.delete_range(table, key(keys.1)..)?;
                written.extend((keys.1..KEYS).map(|number| (number, None)));
            }
            _ => {}
        }
        let value = value(id);
        if value.len() > 100_000 {
            // The frame has to name it, and has no value.
            txn.delete(table, name(id))?;
        }
        if self.is_long {
            (0..FILLERS)
                .try_for_each(|number| txn.put(table, filler(number), vec![id as u8 | 0x80; 20_000]))?;
        }
        match expires_at_ms {
            0 => txn.put(table, key(keys.0), value)?,
            ms => txn.put_expiring(table, key(keys.0), value, UNIX_EPOCH + Duration::from_millis(ms))?,
        }
        written.push((keys.0, Some(id)));
        Ok(())
    }
}

/// Reads a key in a snapshot; `None` if the database cannot be read any more.
fn look_up(db: &Database, number: u64) -> Option<(Csn, u64, Value)> {
    let table = db.open_table(TABLE).ok()?;
    let snapshot = db.snapshot();
    let found = snapshot.get(&table, key(number)).ok()?.and_then(|value| id_of(&value));
    Some((snapshot.csn(), number, found))
}
