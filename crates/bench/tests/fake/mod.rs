//! An engine in memory that loses commits, fails, dies, refuses and waits as the tests of the driver choose.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite::env::{Env, OpenOptions, RealEnv};
use fulgurite_bench::engine::{
    Counters, Direction, Ended, Level, Mode, Needs, Opening, Pending, Range, Session, Statements, Store,
    Transaction, Verdict, Visit,
};
use fulgurite_bench::{Engine, Error, Result};

/// The fault of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    /// It loses its tenth commit.
    Loses,
    /// Its tenth commit fails.
    Fails,
    /// The tenth commit of the second store that it opens fails.
    FailsLater,
    /// Its tenth commit fails, and its locks stay: all later commits conflict.
    FailsAndLocks,
    /// Its tenth commit panics.
    Panics,
    /// Every second attempt to commit conflicts.
    Conflicts,
    /// Each commit takes a while.
    IsSlow,
    /// It cannot be opened.
    DoesNotOpen,
    /// It cannot be closed.
    DoesNotClose,
    /// It cannot do anything, and says so beforehand.
    Cannot,
    /// It refuses to be opened here.
    Refuses,
}

/// The time of a commit of a slow engine.
pub const SLOW: Duration = Duration::from_millis(2);

/// Counters for the tests.
#[derive(Default)]
pub struct Seen {
    /// How often the engine was opened.
    pub opened: AtomicU64,
    /// Commits that are not durable yet.
    in_flight: AtomicU64,
    /// The most that were in flight at once.
    pub in_flight_max: AtomicU64,
}

/// The engine.
pub struct Fake {
    pub name: &'static str,
    pub fault: Fault,
    pub seen: Arc<Seen>,
    kept: Kept,
}

/// The content of closed stores, by their directories, each with a file [`MARK`].
type Kept = Arc<Mutex<HashMap<PathBuf, Vec<Rows>>>>;
const MARK: &str = "closed";

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

impl Fake {
    pub fn new(name: &'static str, fault: Fault) -> Fake {
        Fake { name, fault, seen: Arc::default(), kept: Kept::default() }
    }
}

impl Engine for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> String {
        format!("{} 1.0", self.name)
    }

    fn isolation(&self) -> &str {
        "one transaction after the other"
    }

    fn cannot(&self, _: Needs, _: Level) -> Option<String> {
        (self.fault == Fault::Cannot).then(|| "it has nothing".to_string())
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let opened = self.seen.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = match self.fault {
            Fault::DoesNotOpen => return Err(Error::engine("opening", "the disk is gone")),
            Fault::Refuses => return Err(Error::Refused("the machine has no such device".into())),
            Fault::FailsLater if opened == 2 => Fault::Fails,
            fault => fault,
        };
        let was_closed = RealEnv::new().disk().remove(&opening.dir.join(MARK)).is_ok();
        let kept = self.kept.lock().expect("a lock").remove(opening.dir).filter(|_| was_closed);
        Ok(Arc::new(FakeStore {
            fault,
            dir: opening.dir.to_path_buf(),
            kept: self.kept.clone(),
            seen: self.seen.clone(),
            tables: Mutex::new(kept.unwrap_or_else(|| vec![Rows::new(); opening.tables.len()])),
            commits: AtomicU64::new(0),
        }))
    }
}

struct FakeStore {
    fault: Fault,
    dir: PathBuf,
    kept: Kept,
    seen: Arc<Seen>,
    tables: Mutex<Vec<Rows>>,
    commits: AtomicU64,
}

impl FakeStore {
    fn commit(&self, statements: Statements<'_>) -> Result<Ended> {
        let commit = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fault == Fault::FailsAndLocks && commit == 10 {
            // The other threads have to be in the middle of a commit.
            RealEnv::new().clock().sleep(10 * SLOW);
        }
        match self.fault {
            Fault::Fails | Fault::FailsAndLocks if commit == 10 => {
                return Err(Error::engine("committing", "the disk is gone"));
            }
            Fault::Panics if commit == 10 => panic!("a panic that the test wants"),
            // A thread that continues alone needs little memory.
            Fault::IsSlow | Fault::Fails | Fault::Panics => RealEnv::new().clock().sleep(SLOW),
            Fault::FailsAndLocks if commit > 10 => return Ok(Ended::Conflict),
            _ => {}
        }
        let mut tables = self.tables.lock().expect("a lock");
        let mut transaction = FakeTransaction { tables: &tables, writes: BTreeMap::new() };
        let verdict = match statements(&mut transaction) {
            Err(Error::Conflict) => return Ok(Ended::Conflict),
            verdict => verdict?,
        };
        let writes = transaction.writes;
        match verdict {
            _ if self.fault == Fault::Conflicts && commit.is_multiple_of(2) => return Ok(Ended::Conflict),
            Verdict::Rollback => return Ok(Ended::RolledBack),
            Verdict::Commit if self.fault == Fault::Loses && commit == 10 => {}
            Verdict::Commit => {
                for ((table, key), value) in writes {
                    match value {
                        Some(value) => drop(tables[table].insert(key, value)),
                        None => drop(tables[table].remove(&key)),
                    }
                }
            }
        }
        Ok(Ended::Committed)
    }
}

impl Store for FakeStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FakeSession(self)))
    }

    fn counters(&self) -> Counters {
        Counters { commits: self.commits.load(Ordering::Relaxed), ..Counters::default() }
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<()> {
        if self.fault == Fault::DoesNotClose {
            return Err(Error::engine("closing", "the disk is gone"));
        }
        let made = RealEnv::new().disk().open(&self.dir.join(MARK), OpenOptions::CreateNew);
        made.map_err(|error| Error::engine("closing", error))?;
        let tables = std::mem::take(&mut *self.tables.lock().expect("a lock"));
        self.kept.lock().expect("a lock").insert(self.dir.clone(), tables);
        Ok(())
    }
}

struct FakeSession<'a>(&'a FakeStore);

impl Session for FakeSession<'_> {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        if mode == Mode::Write {
            return self.0.commit(statements);
        }
        let tables = self.0.tables.lock().expect("a lock");
        statements(&mut FakeTransaction { tables: &tables, writes: BTreeMap::new() })?;
        Ok(Ended::Committed)
    }

    fn defer(&mut self, statements: Statements<'_>) -> Result<(Ended, Option<Box<dyn Pending>>)> {
        let ended = self.0.commit(statements)?;
        if ended != Ended::Committed {
            return Ok((ended, None));
        }
        let seen = self.0.seen.clone();
        let in_flight = seen.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        seen.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
        Ok((ended, Some(Box::new(FakePending(seen)))))
    }
}

/// Becomes durable when a thread waits for it, and not before.
struct FakePending(Arc<Seen>);

impl Pending for FakePending {
    fn poll(&self) -> Option<Result<()>> {
        None
    }

    fn wait(self: Box<Self>) -> Result<()> {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

struct FakeTransaction<'a> {
    tables: &'a [Rows],
    writes: BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>,
}

impl Transaction for FakeTransaction<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let own = self.writes.get(&(table, key.to_vec()));
        let found = own.map_or_else(|| self.tables[table].get(key), Option::as_ref);
        value.clear();
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.writes.insert((table, key.to_vec()), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.writes.insert((table, key.to_vec()), None);
        Ok(())
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        let Range { table, from, direction, .. } = range;
        assert!(self.writes.is_empty(), "no workload of these tests scans what it wrote");
        let rows = &self.tables[table];
        let mut forward = rows.iter().filter(|(key, _)| from.is_none_or(|from| key.as_slice() >= from));
        let mut reverse = rows.iter().rev().filter(|(key, _)| from.is_none_or(|from| key.as_slice() <= from));
        let mut next = || match direction {
            Direction::Forward => forward.next(),
            Direction::Reverse => reverse.next(),
        };
        while let Some((key, value)) = next() {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }
}
