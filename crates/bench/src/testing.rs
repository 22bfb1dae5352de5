//! Helpers for the tests of workloads: a store on Fulgurite, and threads that run the operations of clients.

use std::sync::Arc;

use fulgurite::Options;
use tempfile::TempDir;

use crate::engine::{Engine, Level, Mode, Opening, Store, Transaction, Verdict};
use crate::retrying_session::{Counts, RetryingSession};
use crate::workload::{Done, Step, Workload, read_all};
use crate::{Error, FulguriteEngine, Result};

/// Rows as a store has them: keys and values.
pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A workload and a store that it has filled. The store's directory is removed on drop.
pub(crate) struct Bed<W> {
    pub workload: W,
    store: Arc<dyn Store>,
    _dir: TempDir,
}

impl<W: Workload> Bed<W> {
    pub fn new(workload: W) -> Bed<W> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let engine = FulguriteEngine::new("fulgurite", Options::default());
        let tables = workload.shape().tables;
        let opening = Opening { dir: dir.path(), tables, cache_bytes: 16 << 20, level: Level::Memory };
        let store = engine.open(&opening).expect("a new store");
        workload.fill(&*store, &mut |_| true).expect("filling");
        Bed { workload, store, _dir: dir }
    }

    /// After up to `steps` operations on each of `threads` threads, which passed the workload's checks.
    pub fn checked(workload: W, threads: u32, steps: u64) -> (Bed<W>, Done) {
        let bed = Bed::new(workload);
        let (done, _) = bed.run(threads, steps);
        bed.check(Some(&done)).expect("the store holds what it must");
        bed.check(None).expect("the store holds what it must at any moment");
        (bed, done)
    }

    /// Each of `threads` threads does up to `steps` operations; they end sooner if their client has no more. Returns
    /// these, and the summed counts of the sessions.
    pub fn run(&self, threads: u32, steps: u64) -> (Done, Counts) {
        let kinds = self.workload.shape().kinds.len();
        let mut done = Done { kinds: vec![0; kinds], rolled_back: vec![0; kinds] };
        let mut counts = Counts::default();
        let run_client = |thread| {
            let mut client = self.workload.client(thread, threads);
            self.with_session(|session| {
                let step = |_| client(session).expect("an operation that works");
                let steps: Vec<Step> = (0..steps).map(step).take_while(|step| *step != Step::End).collect();
                (steps, session.counts())
            })
        };
        std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || run_client(thread))).collect();
            for client in clients {
                let (steps, counted) = client.join().expect("a client that does not panic");
                for step in steps {
                    match step {
                        Step::Done(kind) => done.kinds[kind] += 1,
                        Step::RolledBack(kind) => done.rolled_back[kind] += 1,
                        Step::End => {}
                    }
                }
                counts.conflicts += counted.conflicts;
                counts.user_bytes += counted.user_bytes;
            }
        });
        (done, counts)
    }

    pub fn with_session<T>(&self, run: impl FnOnce(&mut RetryingSession<'_>) -> T) -> T {
        let mut session = self.store.session().expect("a session");
        run(&mut RetryingSession::new(&mut *session, 0))
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

    /// Commits a change that the workload does not know of.
    pub fn tamper(&self, mut with: impl FnMut(&mut dyn Transaction) -> Result<()>) {
        let mut session = self.store.session().expect("a session");
        session
            .transact(Mode::Write, &mut |transaction| with(transaction).map(|()| Verdict::Commit))
            .expect("a transaction that works");
    }

    /// Puts a row, or deletes it.
    pub fn write(&self, table: usize, key: &[u8], value: Option<&[u8]>) {
        self.tamper(|open| match value {
            Some(value) => open.put(table, key, value),
            None => open.delete(table, key),
        });
    }

    /// All rows of a table.
    pub fn rows(&self, table: usize) -> Rows {
        let mut rows = Rows::new();
        read_all(&*self.store, table, |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .expect("it reads");
        rows
    }

    /// All rows of all tables.
    pub fn tables(&self) -> Vec<Rows> {
        (0..self.workload.shape().tables.len()).map(|table| self.rows(table)).collect()
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
