//! Commits without a ticket, and commits that wait for nothing: for event loops.

use std::fmt;

use fulgurite_index::Io;
use fulgurite_types::Csn;

use super::Transaction;
use super::committing::Committing;
use crate::commit::Committer;
use crate::commit::prepare::{prepare, writes_ahead};
use crate::engine::Engine;
use crate::read_set::ReadSet;
use crate::{Error, Missing, Result};

/// The numbers of a commit that is not acknowledged yet.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let users = db.table("users")?;
/// let mut txn = db.begin();
/// txn.put(&users, "alice", "1")?;
/// let commit = txn.commit_numbered()?;
/// assert_eq!(commit.needs, commit.csn);               // at the level `Sync`
/// db.wait_durable(commit.needs)?;                     // or a `Watch`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Numbered {
    /// The commit's number; for a transaction that wrote nothing, that of the newest commit that it saw.
    pub csn: Csn,
    /// The CSN that has to be [reached](crate::Watch::reached) before the commit may be acknowledged, and before anything that
    /// the transaction read may leave the process: the commit's own at a level that waits for durability, else that of the newest
    /// such commit that it read. [`Csn::ZERO`]: it may be acknowledged now.
    pub needs: Csn,
    /// What [`Watch::acknowledge`](crate::Watch::acknowledge) shows to readers: the commit, if its level does not wait for
    /// durability.
    pub(crate) shows: Csn,
}

/// The result of [`Transaction::try_commit`].
///
/// ```
/// use fulgurite::Attempt;
///
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let users = db.table("users")?;
/// let mut txn = db.begin();
/// txn.put(&users, "alice", "1")?;
/// let commit = match txn.try_commit()? {
///     Attempt::Committed(commit) => commit,
///     // An event loop would hand it to another thread.
///     Attempt::Blocked(txn, _) => txn.commit_numbered()?,
/// };
/// # db.wait_durable(commit.needs)
/// # }
/// ```
#[expect(clippy::large_enum_variant, reason = "it is matched at once, and nothing keeps it")]
pub enum Attempt {
    /// It has committed.
    Committed(Numbered),
    /// Its commit has to wait, or to read from disk; for what. Nothing has happened: commit it again, or use it further.
    Blocked(Transaction, Missing),
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attempt::Committed(commit) => f.debug_tuple("Committed").field(commit).finish(),
            Attempt::Blocked(_, missing) => f.debug_tuple("Blocked").field(missing).finish_non_exhaustive(),
        }
    }
}

impl Transaction {
    /// Like [`Transaction::commit_deferred`], but makes no ticket, and does not wait until earlier commits are applied: a
    /// transaction that begins afterwards sees the commit once [`Watch::visible`](crate::Watch::visible) has passed it. A
    /// [`Watch`](crate::Watch) tells when it may be acknowledged; [`Database::wait_durable`](crate::Database::wait_durable)
    /// waits for it. It is not counted among the latencies of [`Stats`](crate::Stats).
    ///
    /// # Errors
    /// Those of [`Transaction::commit`].
    pub fn commit_numbered(self) -> Result<Numbered> {
        let engine = self.engine.clone();
        self.check_acks()?;
        let (level, needs) = (self.durability, self.reads.needs());
        if self.is_read_only(&engine)? {
            return Ok(self.numbered_as_read(&engine));
        }
        self.write_commit(&engine, None, false, |csn| Ok(engine.pipeline.number(csn, needs, level)))
    }

    /// Like [`Transaction::commit_numbered`], but never waits and never reads from disk: where it would, it gives the transaction
    /// back as it was. These are the waits that [`Transaction::commit_deferred`] names; a commit that writes ahead is given back,
    /// too, and so is one that should be slowed because merging or a checkpoint is behind. Locks inside the database that are held
    /// for moments it does wait for.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`]. After a [`Error::Conflict`](crate::Error::Conflict) the commit that was first may not be visible for another
    /// moment: a transaction that begins at once may conflict with it again (INV-TXN-13 is for commits that wait).
    pub fn try_commit(mut self) -> Result<Attempt> {
        let engine = self.engine.clone();
        if self.is_read_only(&engine)? {
            return Ok(Attempt::Committed(self.numbered_as_read(&engine)));
        }
        self.check_acks()?;
        engine.check_writable()?;
        engine.reads.begin_step(&self.snapshot)?;
        if let Some(missing) = self.missing(&engine) {
            return Ok(Attempt::Blocked(self, missing));
        }
        engine.reads.begin_commit(&self.snapshot)?;
        let (level, needs) = (self.durability, self.reads.needs());
        let operations = self.writes.cost.operations;
        self.charge.raise_anyway(self.bytes() + operations, &engine.memory.transactions);
        let (frame, work) = prepare(
            &engine.tables,
            &mut self.writes,
            None,
            engine.options.inline_bytes_max,
            &|| engine.reads.readers(),
            &|| unreachable!("a commit that writes ahead was given back"),
            &mut None,
        )?;
        let reads = std::mem::replace(&mut self.reads, ReadSet::new(self.isolation, Csn::ZERO));
        let committing = Committing { transaction: self, reads: reads.into_validated(), exclusive: None };
        match engine.try_commit(committing, level, frame, work)? {
            Ok(csn) => Ok(Attempt::Committed(engine.pipeline.number(csn, needs, level))),
            Err((Committing { mut transaction, reads, .. }, missing)) => {
                transaction.reads = reads.into_reads();
                transaction.charge.lower(transaction.bytes());
                transaction.snapshot.end_keep();
                Ok(Attempt::Blocked(transaction, missing))
            }
        }
    }

    /// Like [`Transaction::try_commit`], but a transaction that wrote nothing validates what it read for an update, too: all of that
    /// was so at one moment of this call. Without it such a transaction shows its snapshot, which may be older than the last request
    /// that a program let join it.
    ///
    /// # Errors
    /// Those of [`Transaction::try_commit`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// let txn = db.begin();
    /// users.put("alice", "1")?;
    /// assert!(txn.get_for_update(&users, "alice")?.is_none());        // as of the snapshot
    /// assert!(matches!(txn.try_commit_validated(), Err(fulgurite::Error::Conflict(_))));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_commit_validated(mut self) -> Result<Attempt> {
        let engine = self.engine.clone();
        if !self.is_read_only(&engine)? {
            return self.try_commit();
        }
        let reads = std::mem::replace(&mut self.reads, ReadSet::new(self.isolation, Csn::ZERO));
        let committing = Committing { transaction: self, reads: reads.into_validated(), exclusive: None };
        // Without latches: what was acknowledged before this call is applied.
        let outcome = committing.validate(Csn::ZERO, Io::MemoryOnly).and_then(|()| {
            if engine.now_ms() < committing.before_ms() { Ok(()) } else { Err(committing.too_late()) }
        });
        let Committing { mut transaction, reads, .. } = committing;
        transaction.reads = reads.into_reads();
        match outcome {
            Ok(()) => Ok(Attempt::Committed(transaction.numbered_as_read(&engine))),
            Err(Error::WouldBlock(missing)) => Ok(Attempt::Blocked(transaction, missing)),
            Err(error) => Err(error),
        }
    }

    /// The numbers of a transaction that wrote nothing.
    fn numbered_as_read(&self, engine: &Engine) -> Numbered {
        let needs = self.reads.needs();
        let is_reached = needs <= engine.pipeline.reached();
        let needs = if is_reached { Csn::ZERO } else { needs };
        Numbered { csn: self.snapshot.csn, needs, shows: Csn::ZERO }
    }

    /// What its commit has to wait for before it is prepared. Where the disk is short of room each commit is weighed, and a thread
    /// that waits does that.
    fn missing(&self, engine: &Engine) -> Option<Missing> {
        let tables = self.writes.tables.iter().map(|writes| &*writes.table);
        match () {
            () if self.spill.is_some() || writes_ahead(&self.writes) => Some(Missing::Chunks),
            () if !engine.room.is_plenty() => Some(Missing::Room),
            () if engine.has_to_wait(tables, self.writes.cost.memory) => Some(Missing::Merging),
            () => None,
        }
    }
}
