//! What a command runs with: its session, the data, and its reply.

use fulgurite::{Csn, Missing, Numbered, Transaction};
use fulgurite_resp::Encoder;

use crate::exec::Exec;
use crate::model::{Counts, Model, Old, Write, head_key};
use crate::session::Session;
use crate::shared::Shared;
use crate::stop::{ErrorReply, Result, Stop};

/// How often a command that conflicts runs again on a thread that does not wait.
const ATTEMPTS_MAX: u32 = 3;

/// A command that runs.
pub(crate) struct Context<'a> {
    pub shared: &'a Shared,
    pub session: &'a mut Session,
    /// Whether it may wait, and read from disk: on a worker.
    pub may_wait: bool,
    /// The counts of this thread.
    pub counts: &'a mut Counts,
    /// The time of the whole command, in milliseconds since 1970.
    pub now_ms: u64,
    /// The commit that has to be durable before the reply may leave.
    pub needs: Csn,
    /// A commit at a level that does not wait, which waits for others even so: its reply acknowledges it.
    pub unacknowledged: Option<Numbered>,
    out: &'a mut Vec<u8>,
    /// The transaction of `EXEC`, while its commands run.
    pub(crate) exec: Option<Exec>,
}

/// The last write to a key.
pub(crate) struct FoundHead {
    pub old: Option<Old>,
    pub csn: Csn,
    pub needs: Csn,
}

impl<'a> Context<'a> {
    pub fn new(
        shared: &'a Shared,
        session: &'a mut Session,
        out: &'a mut Vec<u8>,
        may_wait: bool,
        counts: &'a mut Counts,
    ) -> Context<'a> {
        let now_ms = shared.db.now_ms();
        Context {
            shared,
            session,
            may_wait,
            counts,
            now_ms,
            needs: Csn::ZERO,
            unacknowledged: None,
            out,
            exec: None,
        }
    }

    /// Writes the reply.
    pub fn reply(&mut self) -> Encoder<'_> {
        Encoder::new(self.out, self.session.protocol)
    }

    pub fn ok(&mut self) -> Result<()> {
        self.reply().simple(b"OK");
        Ok(())
    }

    /// How long the replies are that were appended so far, with those before.
    pub fn reply_len(&self) -> usize {
        self.out.len()
    }

    /// Takes a reply back.
    pub fn truncate_reply(&mut self, len: usize) {
        self.out.truncate(len);
    }

    pub fn model(&self) -> &'a Model {
        &self.shared.model
    }

    pub fn keyspace(&self) -> u32 {
        self.model().keyspace(self.session.database)
    }

    /// The record of a key that exists.
    pub fn read(&mut self, key: &[u8]) -> Result<Option<Old>> {
        if self.exec.is_some() {
            return self.write(|write| Ok(write.stored(key)?.filter(|old| old.head.is_live(write.now_ms))));
        }
        let row = head_key(self.keyspace(), key);
        let found = self.find_at(&row, self.session.own)?;
        self.needs = self.needs.max(found.needs);
        Ok(found.old.filter(|old| old.head.is_live(self.now_ms)))
    }

    /// The last write to a row of the heads: what is acknowledged, and all up to commit `at`.
    pub fn find_at(&self, row: &[u8], at: Csn) -> Result<FoundHead> {
        let heads = &self.model().tables.heads;
        let found = if self.may_wait { heads.read_at(row, at)? } else { heads.try_read_at(row, at)? };
        let old = found.value.map(|record| Old::decode(record, self.may_wait)).transpose()?;
        Ok(FoundHead { old, csn: found.csn, needs: found.needs })
    }

    /// The records of several keys, all at one commit.
    pub fn read_all(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Old>>> {
        if keys.len() == 1 || self.exec.is_some() {
            return keys.iter().map(|key| self.read(key)).collect();
        }
        let txn = self.begin()?;
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            let row = head_key(self.keyspace(), key);
            let heads = &self.model().tables.heads;
            let found = if self.may_wait { txn.get(heads, &row)? } else { txn.try_get(heads, &row)? };
            let old = found.map(|record| Old::decode(record, self.may_wait)).transpose()?;
            all.push(old.filter(|old| old.head.is_live(self.now_ms)));
        }
        self.needs = self.needs.max(txn.needs());
        Ok(all)
    }

    /// Begins a transaction, which sees the connection's newest commit.
    pub fn begin(&mut self) -> Result<Transaction> {
        let txn = self.shared.db.begin();
        if txn.snapshot_csn() >= self.session.own {
            // No later read of the connection is older than what this transaction shows.
            self.session.own = txn.snapshot_csn();
            return Ok(txn);
        }
        if !self.may_wait {
            return Err(Stop::Blocked(Missing::Order));
        }
        drop(txn);
        // Seldom: a thread was stopped between the number and the end of an earlier commit. It is visible once it is durable.
        self.shared.db.wait_durable(self.session.own)?;
        let txn = self.shared.db.begin();
        self.session.own = txn.snapshot_csn();
        Ok(txn)
    }

    /// Runs a transaction, again if it conflicts, and commits it. The reply depends on it, and on what it saw, if it ends with
    /// an error or writes nothing.
    pub fn write<T>(&mut self, mut body: impl FnMut(&mut Write<'_>) -> Result<T>) -> Result<T> {
        if let Some(exec) = self.exec.take() {
            return self.write_in_exec(exec, body);
        }
        let mut attempts = 0;
        loop {
            match self.write_once(&mut body) {
                Err(Stop::Conflict) if self.may_wait || attempts < ATTEMPTS_MAX => attempts += 1,
                Err(Stop::Conflict) => return Err(Stop::Blocked(Missing::Latch)),
                outcome => return outcome,
            }
            self.begin_again();
        }
    }

    fn write_once<T>(&mut self, body: &mut impl FnMut(&mut Write<'_>) -> Result<T>) -> Result<T> {
        let mut txn = self.begin()?;
        txn.set_durability(self.session.durability)?;
        let tables = &self.model().tables;
        let mut write = Write::new(&mut txn, tables, self.may_wait, self.now_ms, self.keyspace());
        let outcome = body(&mut write).and_then(|value| Ok((value, write.count_keys(self.counts)?)));
        let (value, counted) = match outcome {
            Ok(value) => value,
            Err(stop) => {
                self.needs = self.needs.max(txn.needs());
                return Err(stop);
            }
        };
        self.commit(txn, counted)?;
        Ok(value)
    }

    /// The command runs again. A key that it read live may have expired since.
    pub fn begin_again(&mut self) {
        if self.may_wait {
            std::thread::yield_now();
        }
        self.now_ms = self.shared.db.now_ms();
    }

    /// Ends the command with an error reply.
    pub fn fail<T>(&self, code: &'static str, message: String) -> Result<T> {
        Err(Stop::Reply(ErrorReply { code, message: message.into() }))
    }
}
