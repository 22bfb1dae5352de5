//! The transaction of `EXEC`, in which its commands run.

use fulgurite::{Attempt, Csn, Durability, Error, Missing, Numbered, Savepoint, Transaction};
use smallvec::SmallVec;

use crate::context::Context;
use crate::model::{Adds, Counted, Counts, HeldBack, Model, Write};
use crate::runner::Runner;
use crate::stop::{Result, Stop};

/// The transaction of `EXEC`.
pub(crate) struct Exec {
    txn: Transaction,
    /// How many keys its commands created in each keyspace, less those that they deleted.
    created: Vec<(u32, i64)>,
    /// Whether they add data.
    adds: Adds,
}

/// A savepoint before a command of `EXEC`.
pub(crate) struct ExecSavepoint {
    savepoint: Savepoint,
    created: Vec<(u32, i64)>,
    adds: Adds,
}

impl Exec {
    pub fn transaction(&mut self) -> &mut Transaction {
        &mut self.txn
    }

    pub fn snapshot_csn(&self) -> Csn {
        self.txn.snapshot_csn()
    }

    /// The transaction, with the new counts of keys.
    fn count(mut self, model: &Model, counts: &Counts) -> Result<(Transaction, SmallVec<[Counted; 1]>)> {
        let mut write = Write::new(&mut self.txn, model, Runner::IoThread, 0, 0);
        write.adds = self.adds;
        self.created.into_iter().for_each(|(keyspace, keys)| write.add_created(keyspace, keys));
        let counted = write.count_keys(counts)?;
        Ok((self.txn, counted))
    }

    /// Commits it without a wait. What it read was so at one moment of this call, even if it wrote nothing.
    pub fn try_commit(self, model: &Model, counts: &mut Counts) -> Result<Numbered> {
        let (txn, counted) = self.count(model, counts)?;
        let commit = committed(txn.try_commit_validated())?;
        counted.into_iter().for_each(|counted| counts.note(counted));
        Ok(commit)
    }

    /// How many bytes its commands wrote.
    pub fn written_bytes(&self) -> usize {
        self.adds.bytes
    }

    /// A number that changes with each write.
    pub fn changes(&self) -> u64 {
        self.txn.changes()
    }
}

impl Context<'_> {
    pub fn is_in_exec(&self) -> bool {
        self.exec.is_some()
    }

    /// Ends a command of `EXEC` that has effects beside those of the transaction, unless it runs where `EXEC` is not handed on any more.
    pub fn check_runs_once(&self) -> Result<()> {
        if self.is_in_exec() && !self.runner.may_take_long() { Err(Stop::Large) } else { Ok(()) }
    }

    /// The commands that run from now on belong to one transaction.
    pub fn begin_exec(&mut self) -> Result<()> {
        let mut txn = self.begin()?;
        txn.set_durability(self.session.durability)?;
        self.exec = Some(Box::new(Exec { txn, created: Vec::new(), adds: Adds::default() }));
        Ok(())
    }

    /// Runs a step of a command in the transaction.
    pub fn write_in_exec<T>(
        &mut self,
        mut exec: Box<Exec>,
        mut body: impl FnMut(&mut Write<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut write = self.begin_write(&mut exec.txn);
        let outcome = body(&mut write);
        exec.adds.note(write.adds);
        for &(keyspace, created) in write.created() {
            match exec.created.iter_mut().find(|(other, _)| *other == keyspace) {
                Some((_, sum)) => *sum += created,
                None => exec.created.push((keyspace, created)),
            }
        }
        self.exec = Some(exec);
        outcome
    }

    /// How many keys the selected database has, also for the commands of `EXEC`. On a worker: counts may be on disk.
    pub fn count_keys(&mut self) -> Result<i64> {
        if !self.runner.may_wait() {
            return Err(Stop::Blocked(Missing::Node));
        }
        let keyspace = self.keyspace();
        if let Some(exec) = &self.exec {
            let created =
                exec.created.iter().find(|(other, _)| *other == keyspace).map_or(0, |(_, sum)| *sum);
            return Ok(self.model().count(&exec.txn, keyspace)? + created);
        }
        let txn = self.begin()?;
        let keys = self.model().count(&txn, keyspace)?;
        self.needs = self.needs.max(txn.needs());
        Ok(keys)
    }

    /// Has the transaction conflict with each later write to a key.
    pub fn guard_in_exec(&mut self, keyspace: u32, key: &[u8]) -> Result<()> {
        let exec = self.exec.as_mut().expect("a transaction goes on");
        let model = &self.shared.model;
        Write::new(&mut exec.txn, model, self.runner, self.now_ms, keyspace).stored(key).map(|_| ())
    }

    pub fn savepoint_in_exec(&mut self) -> ExecSavepoint {
        let exec = self.exec.as_mut().expect("a transaction goes on");
        ExecSavepoint { savepoint: exec.txn.savepoint(), created: exec.created.clone(), adds: exec.adds }
    }

    pub fn roll_back_in_exec(&mut self, to: ExecSavepoint) -> Result<()> {
        let exec = self.exec.as_mut().expect("a transaction goes on");
        exec.txn.rollback_to(to.savepoint)?;
        exec.created = to.created;
        exec.adds = to.adds;
        Ok(())
    }

    /// Gives the transaction up. The reply depends on what it read.
    pub fn drop_exec(&mut self) {
        if let Some(exec) = self.exec.take() {
            self.needs = self.needs.max(exec.txn.needs());
        }
    }

    /// Commits the transaction.
    pub fn commit_exec(&mut self) -> Result<()> {
        let exec = self.exec.take().expect("a transaction goes on");
        let (txn, counted) = exec.count(self.model(), self.counts)?;
        let held_back = self.changing.is_some().then(|| self.model().keyspaces.hold_back());
        self.commit(txn, counted, held_back)
    }

    /// Commits a transaction as far as this thread may wait.
    fn try_commit(&self, txn: Transaction) -> fulgurite::Result<Attempt> {
        if self.runner.may_take_long() {
            return txn.commit_numbered().map(Attempt::Committed);
        }
        let (began_ns, mut txn) = (self.shared.monotonic_ns(), txn);
        loop {
            match txn.try_commit()? {
                Attempt::Blocked(same, Missing::Latch) if self.still_waits(began_ns) => txn = same,
                attempt => return Ok(attempt),
            }
            std::thread::yield_now();
        }
    }

    /// Commits a transaction: from then on the counts are those that it wrote. Commands that may see it are held back until the
    /// keyspaces that it changed are installed.
    pub fn commit(
        &mut self,
        txn: Transaction,
        counted: impl IntoIterator<Item = Counted>,
        held_back: Option<HeldBack<'_>>,
    ) -> Result<()> {
        let commit = committed(self.try_commit(txn))?;
        if let Some(held_back) = &held_back {
            held_back.from(commit.csn);
        }
        self.needs = self.needs.max(commit.needs);
        self.unacknowledged = unacknowledged(self.session.durability, commit).or(self.unacknowledged);
        self.session.own = self.session.own.max(commit.csn);
        counted.into_iter().for_each(|counted| self.counts.note(counted));
        self.install_keyspaces(commit.csn, held_back)
    }
}

/// The numbers of a commit that was tried.
fn committed(attempt: fulgurite::Result<Attempt>) -> Result<Numbered> {
    match attempt {
        Ok(Attempt::Committed(commit)) => Ok(commit),
        Ok(Attempt::Blocked(_, missing)) => Err(Stop::Blocked(missing)),
        Err(Error::Conflict(_)) => Err(Stop::Conflict),
        Err(error) => Err(error.into()),
    }
}

/// The commit, if its reply has to acknowledge it: at a level that does not wait, for others even so.
pub(crate) fn unacknowledged(durability: Durability, commit: Numbered) -> Option<Numbered> {
    (!durability.waits() && commit.needs > Csn::ZERO).then_some(commit)
}
