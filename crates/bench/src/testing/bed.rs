//! Test bed: a workload on Fulgurite in a directory of its own.

use std::sync::Arc;

use fulgurite::Options;
use tempfile::TempDir;

use crate::engine::{Direction, Level, Mode, Opening, Store, Transaction, Verdict};
use crate::retrying_session::{Counts, RetryingSession};
use crate::workload::{Done, Filling, Step, Workload};
use crate::{Engine, Error, FulguriteEngine, Result};

/// Rows as a store has them: keys and values.
pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A store that a workload has filled.
pub(crate) struct Bed<W> {
    pub workload: W,
    pub store: Arc<dyn Store>,
    _dir: TempDir,
}

impl<W: Workload> Bed<W> {
    /// Opens a store and fills it.
    pub fn new(workload: W) -> Bed<W> {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let engine = FulguriteEngine { name: "fulgurite".into(), options: Options::default(), missing: None };
        let opening = Opening {
            dir: dir.path(),
            tables: workload.tables(),
            cache_bytes: 1 << 26,
            level: Level::Memory,
        };
        let store = engine.open(&opening).expect("it opens");
        workload.fill(&*store, &mut Filling::new(&mut |_| true)).expect("it fills");
        Bed { workload, store, _dir: dir }
    }

    /// Does `steps` operations on each of `threads` threads; returns the operations, and the summed counts of the
    /// sessions.
    pub fn run(&self, threads: u32, steps: u64) -> (Done, Counts) {
        let kinds = self.workload.kinds().len();
        let mut done = Done { kinds: vec![0; kinds], rolled_back: vec![0; kinds] };
        let mut counts = Counts::default();
        std::thread::scope(|scope| {
            let start = |thread| scope.spawn(move || self.run_thread(thread, threads, steps));
            let running: Vec<_> = (0..threads).map(start).collect();
            for thread in running {
                let (ended, counted) = thread.join().expect("it ran");
                for step in ended {
                    match step {
                        Step::Done(kind) => done.kinds[kind] += 1,
                        Step::RolledBack(kind) => done.rolled_back[kind] += 1,
                        Step::End => panic!("it has no end"),
                    }
                }
                counts.conflicts += counted.conflicts;
                counts.user_bytes += counted.user_bytes;
                counts.user_writes += counted.user_writes;
            }
        });
        (done, counts)
    }

    fn run_thread(&self, thread: u32, threads: u32, steps: u64) -> (Vec<Step>, Counts) {
        let mut client = self.workload.client(thread, threads);
        let mut session = self.store.session().expect("a session");
        let mut session = RetryingSession::new(&mut *session, 0);
        let ended = (0..steps).map(|_| client.step(&mut session).expect("it works")).collect();
        (ended, session.counts())
    }

    /// Checks the store.
    pub fn check(&self, done: Option<&Done>) -> Result<()> {
        self.workload.check(&*self.store, done)
    }

    /// Changes the store, expects an error of the check with these words, and undoes the change.
    pub fn check_fails(&self, words: &str, table: usize, change: Change<'_>) {
        let (key, before, after) = change;
        self.write(table, key, after);
        match self.check(None) {
            Err(Error::Wrong(what)) => assert!(what.contains(words), "{what}"),
            other => panic!("{words}: {other:?}"),
        }
        self.write(table, key, before);
        self.check(None).expect("the change is undone");
    }

    /// Puts a row, or deletes it.
    pub fn write(&self, table: usize, key: &[u8], value: Option<&[u8]>) {
        let write = &mut |transaction: &mut dyn Transaction| {
            match value {
                Some(value) => transaction.put(table, key, value)?,
                None => transaction.delete(table, key)?,
            }
            Ok(Verdict::Commit)
        };
        self.store.session().expect("a session").transact(Mode::Write, write).expect("it writes");
    }

    /// All rows of a table.
    pub fn rows(&self, table: usize) -> Rows {
        let mut rows = Rows::new();
        let read = &mut |transaction: &mut dyn Transaction| {
            transaction.scan(table, None, Direction::Forward, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                Ok(true)
            })?;
            Ok(Verdict::Commit)
        };
        self.store.session().expect("a session").transact(Mode::Read, read).expect("it reads");
        rows
    }

    /// All rows of all tables.
    pub fn tables(&self) -> Vec<Rows> {
        (0..self.workload.tables().len()).map(|table| self.rows(table)).collect()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.tables().iter().flatten().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

/// A key, its value before, and after; `None`: no entry.
pub(crate) type Change<'a> = (&'a [u8], Option<&'a [u8]>, Option<&'a [u8]>);

/// Whether two numbers differ by at most `percent` percent of the second.
pub(crate) fn is_near(found: u64, expected: u64, percent: u64) -> bool {
    found.abs_diff(expected) * 100 <= expected * percent
}
