//! An engine that loses commits, fails, dies, refuses and waits as the tests of the driver choose; else it is Fulgurite.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::Options;
use fulgurite::env::{Env, RealEnv};
use fulgurite_bench::engine::{
    Counters, Ended, Level, Mode, Needs, Opening, Pending, Session, Statements, Store, Transaction, Verdict,
};
use fulgurite_bench::{Engine, Error, FulguriteEngine, Result};

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
    /// Its tenth commit takes much longer.
    Stalls,
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

/// The time of the commit in which an engine stalls.
pub const STALL: Duration = Duration::from_millis(300);

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
}

impl Fake {
    pub fn new(name: &'static str, fault: Fault) -> Fake {
        Fake { name, fault, seen: Arc::default() }
    }
}

fn gone(what: &str) -> Error {
    Error::engine(what, "the disk is gone")
}

impl Engine for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> String {
        format!("{} 1.0", self.name)
    }

    fn isolation(&self) -> &str {
        "snapshot"
    }

    fn cannot(&self, _: Needs, _: Level) -> Option<String> {
        (self.fault == Fault::Cannot).then(|| "it has nothing".to_string())
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let opened = self.seen.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = match self.fault {
            Fault::DoesNotOpen => return Err(gone("opening")),
            Fault::Refuses => return Err(Error::Refused("the machine has no such device".into())),
            Fault::FailsLater if opened == 2 => Fault::Fails,
            fault => fault,
        };
        let below = FulguriteEngine::new("below", Options::default());
        let below = below.open(&Opening { level: Level::Memory, ..*opening })?;
        Ok(Arc::new(FakeStore { fault, below, seen: self.seen.clone(), commits: AtomicU64::new(0) }))
    }
}

struct FakeStore {
    fault: Fault,
    below: Arc<dyn Store>,
    seen: Arc<Seen>,
    commits: AtomicU64,
}

impl Store for FakeStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FakeSession { store: self, below: self.below.session()? }))
    }

    fn counters(&self) -> Counters {
        Counters { commits: self.commits.load(Ordering::Relaxed), ..Counters::default() }
    }

    fn settle(&self) -> Result<()> {
        self.below.settle()
    }

    fn close(&self) -> Result<()> {
        self.below.close()?;
        if self.fault == Fault::DoesNotClose { Err(gone("closing")) } else { Ok(()) }
    }
}

struct FakeSession<'a> {
    store: &'a FakeStore,
    below: Box<dyn Session + 'a>,
}

impl FakeSession<'_> {
    fn commit(&mut self, statements: Statements<'_>) -> Result<Ended> {
        let fault = self.store.fault;
        let commit = self.store.commits.fetch_add(1, Ordering::Relaxed) + 1;
        match fault {
            Fault::FailsAndLocks if commit == 10 => {
                // The other threads have to be in the middle of a commit.
                RealEnv::new().clock().sleep(10 * SLOW);
                return Err(gone("committing"));
            }
            Fault::Fails if commit == 10 => return Err(gone("committing")),
            Fault::Panics if commit == 10 => panic!("a panic that the test wants"),
            // A thread that continues alone needs little memory.
            Fault::IsSlow | Fault::Fails | Fault::Panics => RealEnv::new().clock().sleep(SLOW),
            Fault::Stalls if commit == 10 => RealEnv::new().clock().sleep(STALL),
            Fault::FailsAndLocks if commit > 10 => return Ok(Ended::Conflict),
            _ => {}
        }
        let claimed = match fault {
            Fault::Loses if commit == 10 => Ended::Committed,
            Fault::Conflicts if commit.is_multiple_of(2) => Ended::Conflict,
            _ => return self.below.transact(Mode::Write, statements),
        };
        let undone = &mut |open: &mut dyn Transaction| statements(open).map(|_| Verdict::Rollback);
        self.below.transact(Mode::Write, undone).map(|_| claimed)
    }
}

impl Session for FakeSession<'_> {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        match mode {
            Mode::Write => self.commit(statements),
            Mode::Read => self.below.transact(mode, statements),
        }
    }

    fn defer(&mut self, statements: Statements<'_>) -> Result<(Ended, Option<Box<dyn Pending>>)> {
        let ended = self.commit(statements)?;
        if ended != Ended::Committed {
            return Ok((ended, None));
        }
        let seen = self.store.seen.clone();
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
