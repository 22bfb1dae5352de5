//! Fulgurite as an engine of the benchmarks.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use fulgurite::env::{Env, MemoryMedium, RealEnv};
use fulgurite::{Database, Durability, LogStats, Options, Snapshot, StagingOptions, Stats, Table, Ticket};
use parking_lot::Mutex;

use crate::child::with_causes;
use crate::counting_env::CountingEnv;
use crate::engine::{
    Checkpoints, Counters, Direction, Ended, Engine, Level, Mode, Needs, Opening, Pending, Range, Session,
    Statements, Store, Transaction, Verdict, Visit, copied,
};
use crate::io::IoCounts;
use crate::number::bytes;
use crate::{Error, Result};

/// Fulgurite with given options; the durability in them is the [`Opening`]'s.
#[derive(Clone, Debug)]
pub struct FulguriteEngine {
    /// The engine's name in reports.
    pub name: String,
    /// How databases are opened.
    pub options: Options,
    /// A feature that it lacks, if it is wanted with that: it can do nothing then.
    pub missing: Option<&'static str>,
    /// The number of staging buffers, and the length of each in bytes, for the level [`Level::Staged`].
    pub staging: (u32, u32),
}

/// Where commits are staged: in volatile memory, which every machine has.
const MEMORY: &str = "/dev/shm";

/// The least memory budget with log buffers of the default size.
const MEMORY_BYTES_LEAST: usize = 32 << 20;

impl FulguriteEngine {
    /// The engine of this name, which lacks nothing.
    pub fn new(name: &str, options: Options) -> FulguriteEngine {
        FulguriteEngine { name: name.to_string(), options, missing: None, staging: (2, 8 << 20) }
    }
}

impl Engine for FulguriteEngine {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        let Options { research, direct_io, checkpoint_log_bytes, .. } = &self.options;
        let io = if *direct_io { "direct" } else { "buffered" };
        let checkpoints = match *checkpoint_log_bytes == Options::default().checkpoint_log_bytes {
            true => String::new(),
            false => format!(", a checkpoint after {} of log", bytes(*checkpoint_log_bytes)),
        };
        let collection = if research.collect { "" } else { ", no garbage collection" };
        let (version, scheme) = (env!("CARGO_PKG_VERSION"), research.flush_scheme.name());
        format!("fulgurite {version}, {scheme} flushes, {io} log{checkpoints}{collection}")
    }

    fn isolation(&self) -> &str {
        "snapshot"
    }

    fn cannot(&self, _: Needs, level: Level) -> Option<String> {
        let missing = self.missing.map(|missing| format!("it has no {missing} yet"));
        missing.or(durability_of(level).err().map(str::to_string))
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let durability = durability_of(opening.level).map_err(Error::Unsupported)?;
        let opened = |source| match source {
            fulgurite::Error::BadOptions { .. } => Error::Refused(with_causes(&source)),
            source => Error::engine(format!("opening a database in {}", opening.dir.display()), source),
        };
        let env = Arc::new(CountingEnv::new(RealEnv::new()));
        let cache_bytes = usize::try_from(opening.cache_bytes).unwrap_or(usize::MAX);
        let memory_bytes = Some(cache_bytes.max(MEMORY_BYTES_LEAST));
        let staging = (opening.level == Level::Staged).then(|| self.staging_for(opening.dir));
        let staged = staging.clone();
        let options = Options { durability, memory_bytes, staging, ..self.options.clone() };
        let db =
            Database::open_with(env.clone() as Arc<dyn Env>, opening.dir, options, |_| {}).map_err(opened)?;
        let table = |name: &&str| match db.open_table(name) {
            Err(fulgurite::Error::UnknownTable { .. }) => db.create_table(name),
            opened => opened,
        };
        let tables = opening.tables.iter().map(table).collect::<Result<Vec<_>, _>>().map_err(opened)?;
        Ok(Arc::new(OpenDatabase { env, db, tables, log: Mutex::default(), _staged: staged.map(Staged) }))
    }
}

/// The level as an option, or why there is none.
fn durability_of(level: Level) -> Result<Durability, &'static str> {
    match level {
        Level::Sync => Ok(Durability::Sync),
        Level::NoBarrier => Ok(Durability::NoBarrier),
        Level::Async(interval) => Ok(Durability::Async { interval }),
        Level::Memory => Ok(Durability::None),
        Level::Staged if !Path::new(MEMORY).is_dir() => Err("there is no tmpfs at /dev/shm"),
        Level::Staged => Ok(Durability::Staged),
        Level::Unsynced => {
            Err("its commits reach the operating system with the next write of the log: see memory and async")
        }
    }
}

struct OpenDatabase {
    env: Arc<CountingEnv>,
    db: Database,
    tables: Vec<Table>,
    log: Mutex<LogAboveCheckpoint>,
    _staged: Option<Staged>,
}

/// A staging file that is removed with the store.
struct Staged(StagingOptions);

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = RealEnv::new().disk().remove(&self.0.path);
    }
}

impl FulguriteEngine {
    /// The staging file of a database: of the same one in each process that opens it.
    fn staging_for(&self, dir: &Path) -> StagingOptions {
        let mut hasher = DefaultHasher::new();
        std::path::absolute(dir).unwrap_or_else(|_| dir.into()).hash(&mut hasher);
        let path = format!("{MEMORY}/fulgurite-bench-{:016x}", hasher.finish());
        let (buffers, buffer_bytes) = self.staging;
        StagingOptions { buffers, buffer_bytes, ..StagingOptions::new(path, MemoryMedium::Volatile) }
    }
}

/// The log above the last checkpoint, which the counters do not say: it follows from how much log there was when the
/// commit was new that the checkpoint covers.
#[derive(Default)]
struct LogAboveCheckpoint {
    /// Commits that were the newest durable ones, and the bytes of the log then; oldest first.
    seen: VecDeque<(u64, u64)>,
    /// Bytes of the log up to the last checkpoint.
    covered_bytes: u64,
}

impl LogAboveCheckpoint {
    /// After `written` bytes of log, with this newest durable commit and the newest one that the last checkpoint covers.
    fn bytes(&mut self, written: u64, durable: u64, covered: u64) -> u64 {
        match self.seen.back_mut() {
            Some(last) if last.0 == durable => {}
            _ => self.seen.push_back((durable, written)),
        }
        while let Some((_, bytes)) = self.seen.pop_front_if(|(csn, _)| *csn <= covered) {
            self.covered_bytes = bytes;
        }
        written - self.covered_bytes
    }
}

fn failed(what: &'static str) -> impl Fn(fulgurite::Error) -> Error {
    move |source| match source {
        fulgurite::Error::Conflict { .. } => Error::Conflict,
        source => Error::engine(what, source),
    }
}

impl Store for OpenDatabase {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(OpenSession { store: self }))
    }

    fn counters(&self) -> Counters {
        counters_of(&self.db.log_stats())
    }

    fn io(&self) -> Option<IoCounts> {
        Some(self.env.counts())
    }

    fn checkpoints(&self) -> Option<Checkpoints> {
        let Stats { checkpoints, checkpoint_times, durable, checkpoint_covered, log, .. } = self.db.stats();
        let log_bytes = self.log.lock().bytes(log.written_bytes, durable.0, checkpoint_covered.0);
        Some(Checkpoints { completed: checkpoints, last_ns: checkpoint_times.last_ns, log_bytes })
    }

    fn merge(&self) -> Result<()> {
        self.db.checkpoint().map(|_| ()).map_err(failed("merging"))
    }

    fn settle(&self) -> Result<()> {
        let newest = self.db.stats().visible;
        self.db.wait_durable(newest).map_err(failed("waiting until all is durable"))
    }

    fn close(&self) -> Result<()> {
        self.db.clone().close().map_err(failed("closing the database"))
    }
}

fn counters_of(log: &LogStats) -> Counters {
    Counters {
        commits: log.commits,
        groups: log.groups - log.marks,
        sync_locks: log.sync_locks,
        sync_lock_ns: log.sync_lock_ns,
        writes: log.writes,
        written_bytes: log.written_bytes,
        write_ns: log.write_ns,
        syncs: log.syncs,
        sync_ns: log.sync_ns,
        requests_completed: log.requests_completed,
        flush_waits: log.flush_waits,
        flush_wait_ns: log.flush_wait_ns,
        parks: log.parks,
        wakes: log.wakes,
        ..Counters::default()
    }
}

struct OpenSession<'a> {
    store: &'a OpenDatabase,
}

impl OpenSession<'_> {
    /// Runs statements that may write, and commits them.
    fn run<T>(
        &self,
        statements: Statements<'_>,
        commit: impl FnOnce(fulgurite::Transaction) -> fulgurite::Result<T>,
    ) -> Result<(Ended, Option<T>)> {
        let mut open = Writing { txn: self.store.db.begin(), tables: &self.store.tables };
        let committed = statements(&mut open).and_then(|verdict| match verdict {
            Verdict::Commit => commit(open.txn).map(Some).map_err(failed("committing")),
            Verdict::Rollback => Ok(None),
        });
        match committed {
            Ok(Some(committed)) => Ok((Ended::Committed, Some(committed))),
            Ok(None) => Ok((Ended::RolledBack, None)),
            Err(Error::Conflict) => Ok((Ended::Conflict, None)),
            Err(error) => Err(error),
        }
    }
}

impl Session for OpenSession<'_> {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        if mode == Mode::Write {
            return self.run(statements, |txn| txn.commit()).map(|(ended, _)| ended);
        }
        let mut open = Reading { snapshot: self.store.db.snapshot(), tables: &self.store.tables };
        match statements(&mut open) {
            Ok(_) => Ok(Ended::Committed),
            Err(Error::Conflict) => Ok(Ended::Conflict),
            Err(error) => Err(error),
        }
    }

    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.store.tables[table].get(key).map_err(failed("reading"))?;
        Ok(copied(found.as_deref(), value))
    }

    fn defer(&mut self, statements: Statements<'_>) -> Result<(Ended, Option<Box<dyn Pending>>)> {
        let (ended, ticket) = self.run(statements, |txn| txn.commit_deferred())?;
        Ok((ended, ticket.map(|ticket| Box::new(ticket) as Box<dyn Pending>)))
    }
}

struct Reading<'a> {
    snapshot: Snapshot,
    tables: &'a [Table],
}

impl Transaction for Reading<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.snapshot.get(&self.tables[table], key).map_err(failed("reading"))?;
        Ok(copied(found.as_deref(), value))
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        show(range, |bounds| self.snapshot.range(&self.tables[range.table], bounds), visit)
    }
}

struct Writing<'a> {
    txn: fulgurite::Transaction,
    tables: &'a [Table],
}

impl Transaction for Writing<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.txn.get(&self.tables[table], key).map_err(failed("reading"))?;
        Ok(copied(found.as_deref(), value))
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(&self.tables[table], key, value).map_err(failed("writing"))
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.txn.delete(&self.tables[table], key).map_err(failed("deleting"))
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        show(range, |bounds| self.txn.range(&self.tables[range.table], bounds), visit)
    }

    fn take_first(&mut self, table: usize, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let taken = self.txn.pop_first_unclaimed(&self.tables[table], ..).map_err(failed("taking"))?;
        let (first, content) = taken.as_ref().map(|(first, content)| (&**first, &**content)).unzip();
        copied(first, key);
        Ok(copied(content, value))
    }
}

type Bounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

fn show<'a, 'k>(
    keys: Range<'k>,
    range: impl FnOnce(Bounds<'k>) -> fulgurite::Result<fulgurite::Range<'a>>,
    visit: Visit<'_>,
) -> Result<()> {
    let mut entries = range(keys.bounds()).map_err(failed("scanning"))?;
    loop {
        let entry = match keys.direction {
            Direction::Forward => entries.next_entry(),
            Direction::Reverse => entries.next_entry_back(),
        };
        match entry.map_err(failed("scanning"))? {
            Some((key, value)) if visit(key, value)? => {}
            _ => return Ok(()),
        }
    }
}

impl Pending for Ticket {
    fn poll(&self) -> Option<Result<()>> {
        self.try_wait().map(|outcome| outcome.map(|_| ()).map_err(failed("committing")))
    }

    fn wait(self: Box<Self>) -> Result<()> {
        Ticket::wait(&self).map(|_| ()).map_err(failed("committing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_above_a_checkpoint_counts_from_what_it_covers() {
        let mut log = LogAboveCheckpoint::default();
        assert_eq!(log.bytes(100, 1, 0), 100);
        assert_eq!(log.bytes(200, 2, 0), 200);
        assert_eq!(log.bytes(300, 5, 2), 100);
        assert_eq!(log.bytes(400, 9, 4), 200, "the log was last seen with commit 2");
        assert_eq!(log.bytes(400, 9, 9), 0);
    }

    #[test]
    fn checkpoints_are_counted() {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let options = Options { checkpoint_log_bytes: 1 << 20, ..Options::default() };
        let engine = FulguriteEngine::new("fulgurite", options);
        let opening =
            Opening { dir: dir.path(), tables: &["rows"], cache_bytes: 1 << 20, level: Level::Memory };
        let store = engine.open(&opening).expect("a new store");
        let mut session = store.session().expect("a session");
        let asked = |store: &Arc<dyn Store>| store.checkpoints().expect("it says something");
        let before = asked(&store);
        let mut most = before.log_bytes;
        for key in 0..40_000u32 {
            let put = &mut |open: &mut dyn Transaction| {
                open.put(0, &key.to_be_bytes(), &[7; 200]).map(|()| Verdict::Commit)
            };
            session.transact(Mode::Write, put).expect("a put");
            most = most.max(if key % 100 == 0 { asked(&store).log_bytes } else { 0 });
        }
        let after = asked(&store);
        assert!(after.completed > before.completed && after.last_ns > 0, "{after:?}");
        assert!(most > 1 << 19 && after.log_bytes < 9 << 20, "{most} {after:?}");
        drop(session);
        store.close().expect("it closes");
    }
}
