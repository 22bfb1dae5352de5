//! What a command runs with: its session, the data, and its reply.

use std::cell::Cell;
use std::time::Duration;

use fulgurite::{Csn, Error, Missing, Numbered, Snapshot, Transaction};
use fulgurite_resp::Encoder;
use parking_lot::MutexGuard;
use smallvec::SmallVec;

use crate::exec::Exec;
use crate::model::{
    Collection, Counts, HeldBack, KeyspaceMap, Kind, Model, Old, Source, Staging, View, Write, head_key,
};
use crate::random::Random;
use crate::runner::{LOCK_WAIT, Runner};
use crate::session::Session;
use crate::shared::Shared;
use crate::stop::{ErrorReply, Result, Stop};
use crate::tallies::Ran;

/// How often a command that conflicts runs again but on a long worker.
const ATTEMPTS_MAX: u32 = 3;

/// A command that runs.
pub(crate) struct Context<'a> {
    pub shared: &'a Shared,
    pub session: &'a mut Session,
    pub runner: Runner,
    /// The counts of this thread.
    pub counts: &'a mut Counts,
    /// The time of the whole command, in milliseconds since 1970.
    pub now_ms: u64,
    /// The commit that has to be durable before the reply may leave.
    pub needs: Csn,
    /// A commit at a level that does not wait, which waits for others even so: its reply acknowledges it.
    pub unacknowledged: Option<Numbered>,
    pub(crate) out: &'a mut Vec<u8>,
    /// What ran of it that is to be counted: commands of `EXEC`, then itself.
    pub ran: SmallVec<[Ran; 1]>,
    /// The subcommand that runs.
    pub subcommand: Option<&'static str>,
    /// Whether a memtable held the record that was read by itself.
    pub in_memtables: Option<bool>,
    /// Where the commands of an `EXEC` that only reads do.
    pub(crate) snapshot: Option<Snapshot>,
    /// The transaction of `EXEC`, while its commands run.
    pub(crate) exec: Option<Box<Exec>>,
    /// The keyspace of each database for this command.
    pub keyspaces: KeyspaceMap,
    /// The lock of the keyspaces, and what to install once the transaction is durable.
    pub(crate) changing: Option<Changing<'a>>,
}

/// The lock of the keyspaces, and the keyspaces that databases get.
type Changing<'a> = (MutexGuard<'a, ()>, Vec<(usize, u32)>);

/// The last write to a key.
pub(crate) struct FoundHead {
    pub old: Option<Old>,
    pub csn: Csn,
    pub needs: Csn,
    pub in_memtables: bool,
}

impl<'a> Context<'a> {
    pub fn new(
        shared: &'a Shared,
        session: &'a mut Session,
        out: &'a mut Vec<u8>,
        runner: Runner,
        counts: &'a mut Counts,
        keyspaces: KeyspaceMap,
    ) -> Context<'a> {
        Context::at(shared.db.now_ms(), shared, session, out, runner, counts, keyspaces)
    }

    /// The context of a command that runs at this time.
    pub fn at(
        now_ms: u64,
        shared: &'a Shared,
        session: &'a mut Session,
        out: &'a mut Vec<u8>,
        runner: Runner,
        counts: &'a mut Counts,
        keyspaces: KeyspaceMap,
    ) -> Context<'a> {
        Context {
            shared,
            session,
            runner,
            counts,
            now_ms,
            needs: Csn::ZERO,
            unacknowledged: None,
            out,
            ran: SmallVec::new(),
            subcommand: None,
            in_memtables: None,
            snapshot: None,
            exec: None,
            keyspaces,
            changing: None,
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
        self.keyspaces[self.session.database]
    }

    /// The record of a key that exists.
    pub fn read(&mut self, key: &[u8]) -> Result<Option<Old>> {
        if self.exec.is_some() {
            return self.write(|write| Ok(write.stored(key)?.filter(|old| old.head.is_live(write.now_ms))));
        }
        if self.snapshot.is_some() {
            return self.view(|view| view.live(key));
        }
        let row = head_key(self.keyspace(), key);
        let found = self.find_at(&row, self.session.own)?;
        self.check_keyspaces(found.csn)?;
        self.needs = self.needs.max(found.needs);
        self.in_memtables = Some(found.in_memtables);
        Ok(found.old.filter(|old| old.head.is_live(self.now_ms)))
    }

    /// The last write to a row of the heads: what is acknowledged, and all up to commit `at`.
    pub fn find_at(&self, row: &[u8], at: Csn) -> Result<FoundHead> {
        let heads = &self.model().tables.heads;
        let found = match self.in_a_moment(|| heads.try_read_at(row, at)) {
            Err(Error::WouldBlock(Missing::Node | Missing::Value)) if self.runner.may_wait() => {
                heads.read_at(row, at)?
            }
            Err(Error::WouldBlock(_)) if self.runner.may_take_long() => heads.read_at(row, at)?,
            found => found?,
        };
        let old = found.value.map(|record| Old::decode(record, self.runner)).transpose()?;
        Ok(FoundHead { old, csn: found.csn, needs: found.needs, in_memtables: found.in_memtables })
    }

    /// Whether a thread that began to wait for others then still does: a worker waits for a moment.
    pub fn still_waits(&self, began_ns: u64) -> bool {
        let waits = |wait: Duration| self.shared.monotonic_ns() < began_ns + wait.as_nanos() as u64;
        self.runner.may_take_long() || self.runner.may_wait() && waits(LOCK_WAIT)
    }

    /// Tries something, on a worker again for a moment while earlier commits have to be applied.
    pub fn in_a_moment<T>(&self, mut try_it: impl FnMut() -> fulgurite::Result<T>) -> fulgurite::Result<T> {
        let mut began_ns = None;
        loop {
            match try_it() {
                Err(Error::WouldBlock(Missing::Order)) if self.runner == Runner::Worker => {}
                tried => return tried,
            }
            if !self.still_waits(*began_ns.get_or_insert_with(|| self.shared.monotonic_ns())) {
                return Err(Error::WouldBlock(Missing::Order));
            }
            std::thread::yield_now();
        }
    }

    /// A new sequence of random numbers.
    pub fn random(&self) -> Random {
        Random::new(self.shared.env.random_u64())
    }

    /// The records of several keys, all at one commit.
    pub fn read_all(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Old>>> {
        if let [key] = keys {
            return Ok(vec![self.read(key)?]);
        }
        self.view(|view| keys.iter().map(|key| view.live(key)).collect())
    }

    /// Reads keys and collections, all at one commit: what is acknowledged, and the connection's own commits.
    pub fn view<T>(&mut self, mut read: impl FnMut(&View<'_>) -> Result<T>) -> Result<T> {
        if self.exec.is_some() {
            return self.write(|write| read(&write.view()));
        }
        let snapshot = self.snapshot()?;
        let view = View {
            source: Source::Snapshot(&snapshot),
            model: self.model(),
            runner: self.runner,
            now_ms: self.now_ms,
            keyspace: self.keyspace(),
            has_walked: None,
        };
        let result = read(&view);
        self.needs = self.needs.max(snapshot.needs());
        result
    }

    /// A snapshot of what is acknowledged, and of the connection's own commits; that of `EXEC` while its commands run.
    pub fn snapshot(&self) -> Result<Snapshot> {
        if let Some(snapshot) = &self.snapshot {
            return Ok(snapshot.clone());
        }
        let (db, own) = (&self.shared.db, self.session.own);
        let snapshot = match self.runner {
            Runner::LongWorker => db.snapshot_at(own)?,
            _ => self.in_a_moment(|| db.try_snapshot_at(own))?,
        };
        self.check_keyspaces(snapshot.csn())?;
        Ok(snapshot)
    }

    /// Reads the collection of a key; `None` if the key does not exist.
    pub fn read_collection<T>(
        &mut self,
        key: &[u8],
        kind: Kind,
        mut read: impl FnMut(&View<'_>, &Collection) -> Result<T>,
    ) -> Result<Option<T>> {
        self.view(|view| view.collection(key, kind)?.map(|collection| read(view, &collection)).transpose())
    }

    /// Reads members of a sorted set by their positions. If it passes many of them it is left to a long worker, which divides the set afterwards.
    pub fn read_ranks<T>(
        &mut self,
        key: &[u8],
        mut read: impl FnMut(&View<'_>, &Collection) -> Result<T>,
    ) -> Result<Option<T>> {
        let has_walked = Cell::new(false);
        let found = self.read_collection(key, Kind::SortedSet, |view, zset| {
            read(&View { has_walked: Some(&has_walked), ..*view }, zset)
        });
        if has_walked.get() {
            if !self.runner.may_take_long() {
                return Err(Stop::Large);
            }
            self.session.walked = Some((self.session.database, key.into()));
        }
        found
    }

    /// Changes the collection of a key, which is created if it does not exist.
    pub fn change_or_create<T>(
        &mut self,
        key: &[u8],
        kind: Kind,
        mut change: impl FnMut(&mut Write<'_>, &mut Collection) -> Result<T>,
    ) -> Result<T> {
        self.write(|write| {
            let mut changed = write.change_or_create(key, kind)?;
            let result = change(write, &mut changed.collection)?;
            write.finish(key, &changed)?;
            Ok(result)
        })
    }

    /// Changes the collection of a key; `None` if the key does not exist. What `change` returns says whether it has changed anything.
    pub fn change<T>(
        &mut self,
        key: &[u8],
        kind: Kind,
        mut change: impl FnMut(&mut Write<'_>, &mut Collection) -> Result<(bool, T)>,
    ) -> Result<Option<T>> {
        self.write(|write| {
            let Some(mut changed) = write.change(key, kind)? else { return Ok(None) };
            let (has_changed, result) = change(write, &mut changed.collection)?;
            if has_changed {
                write.finish(key, &changed)?;
            }
            Ok(Some(result))
        })
    }

    /// The command reads as of commit `csn`, and nothing has happened yet.
    ///
    /// # Errors
    /// [`Stop::Conflict`] if it may see a transaction that changed keyspaces, and has the former ones (INV-SRV-6).
    pub fn check_keyspaces(&self, csn: Csn) -> Result<()> {
        if self.model().keyspaces.show(self.counts.stripe, csn) { Ok(()) } else { Err(Stop::Conflict) }
    }

    /// Begins a transaction, which sees the connection's newest commit.
    pub fn begin(&mut self) -> Result<Transaction> {
        let mut txn = self.shared.db.begin();
        if txn.snapshot_csn() < self.session.own {
            drop(txn);
            // Seldom: a thread was stopped between the number and the end of an earlier commit. It is visible once it is durable.
            if self.runner.may_take_long() {
                self.shared.db.wait_durable(self.session.own)?;
            }
            txn = self.in_a_moment(|| {
                let txn = self.shared.db.begin();
                let shows_own = txn.snapshot_csn() >= self.session.own;
                if shows_own { Ok(txn) } else { Err(Error::WouldBlock(Missing::Order)) }
            })?;
        }
        self.check_keyspaces(txn.snapshot_csn())?;
        // No later read of the connection is older than what this transaction shows.
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
            match self.write_once(&mut body, attempts) {
                Err(Stop::Conflict) if self.runner.may_take_long() || attempts < ATTEMPTS_MAX => {
                    attempts += 1
                }
                Err(Stop::Conflict) => return Err(self.runner.give_up()),
                outcome => return outcome,
            }
            self.begin_again();
        }
    }

    fn write_once<T>(
        &mut self,
        body: &mut impl FnMut(&mut Write<'_>) -> Result<T>,
        attempts: u32,
    ) -> Result<T> {
        let mut txn = self.begin()?;
        txn.set_durability(self.session.durability)?;
        let mut write = self.begin_write(&mut txn);
        // What conflicts again and again leaves no more garbage.
        if self.runner.may_take_long() && attempts < ATTEMPTS_MAX {
            write.staging = Some(Staging::new(&self.shared.arrivals));
        }
        let outcome = body(&mut write).and_then(|value| {
            write.finish_staging()?;
            Ok((value, write.count_keys(self.counts)?))
        });
        let staging = write.staging.take();
        let (value, counted) = match outcome {
            Ok(value) => value,
            Err(stop) => {
                self.needs = self.needs.max(txn.needs());
                return Err(stop);
            }
        };
        self.commit(txn, counted, None)?;
        // What is stored belongs to the key now (INV-SRV-4).
        drop(staging);
        Ok(value)
    }

    /// What a step of the command writes to.
    pub(crate) fn begin_write<'t>(&self, txn: &'t mut Transaction) -> Write<'t>
    where
        'a: 't,
    {
        let mut write = Write::new(txn, self.model(), self.runner, self.now_ms, self.keyspace());
        write.keyspaces = self.keyspaces;
        write
    }

    /// The command has the locks of its keys, and nothing has happened yet. A transaction that had them may have changed the keyspaces: what
    /// it wrote before to the former ones is not to be seen without that.
    pub fn begin_with_locks(&mut self) {
        let keyspaces = &self.shared.model.keyspaces;
        if !keyspaces.is_current(self.counts.stripe) {
            self.keyspaces = keyspaces.begin_again(self.counts.stripe);
        }
    }

    /// The command runs again. A key that it read live may have expired since.
    pub fn begin_again(&mut self) {
        self.ran.clear();
        self.changing = None;
        if self.runner.may_wait() {
            std::thread::yield_now();
        }
        if self.runner.may_take_long() {
            self.model().keyspaces.wait_until_shown();
        }
        self.keyspaces = self.shared.model.keyspaces.begin_again(self.counts.stripe);
        self.now_ms = self.shared.db.now_ms();
    }

    /// Gives databases other keyspaces, `None` for a new, empty one, once the command's transaction is durable. The lock of the
    /// keyspaces is held until then.
    pub fn change_keyspaces(
        &mut self,
        changes: impl Fn(&KeyspaceMap) -> Vec<(usize, Option<u32>)>,
    ) -> Result<()> {
        if !self.runner.may_take_long() {
            return Err(Stop::Large);
        }
        let shared = self.shared;
        if let Some(mut exec) = self.exec.take() {
            let (lock, mut all) =
                self.changing.take().unwrap_or_else(|| (shared.model.keyspaces.lock(), Vec::new()));
            let changed =
                shared.model.write_keyspaces(exec.transaction(), &self.keyspaces, changes(&self.keyspaces));
            self.exec = Some(exec);
            // What fails undoes its own changes alone: those before it stay.
            let changed = changed.inspect(|changed| all.extend_from_slice(changed));
            self.changing = Some((lock, all));
            for (database, keyspace) in changed? {
                self.keyspaces[database] = keyspace;
            }
            return Ok(());
        }
        loop {
            let lock = shared.model.keyspaces.lock();
            // `CLIENT PAUSE` takes the lock once before it replies.
            if shared.pause.holds(|| true, || shared.monotonic_ms()) {
                return Err(Stop::Paused);
            }
            self.keyspaces = shared.model.keyspaces.begin_again(self.counts.stripe);
            let mut txn = self.begin()?;
            txn.set_durability(self.session.durability)?;
            txn.set_makes_room();
            let changed = shared.model.write_keyspaces(&mut txn, &self.keyspaces, changes(&self.keyspaces));
            let outcome = changed.and_then(|changed| {
                self.changing = Some((lock, changed));
                self.commit(txn, [], None)
            });
            match outcome {
                Err(Stop::Conflict) => self.begin_again(),
                outcome => return outcome,
            }
        }
    }

    /// Installs changed keyspaces, once the commit that wrote them is durable. What was held back for that goes on before others can have
    /// the lock: they may hold commands back, too.
    pub(crate) fn install_keyspaces(&mut self, csn: Csn, held_back: Option<HeldBack<'_>>) -> Result<()> {
        let Some((_lock, changes)) = self.changing.take() else { return Ok(()) };
        self.shared.db.wait_durable(csn).map_err(|_| Stop::Unknown)?;
        self.shared.model.keyspaces.install(&changes);
        drop(held_back);
        Ok(())
    }

    /// Ends the command with an error reply.
    pub fn fail<T>(&self, code: &'static str, message: String) -> Result<T> {
        Err(Stop::Reply(ErrorReply { code, message: message.into() }))
    }
}
