//! Helpers for the tests: databases in memory, hooks that stop a thread, and short ways to read and write.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::SimEnv;
use parking_lot::{Condvar, Mutex};

use crate::{Database, Error, Isolation, Options, Result, Snapshot, Table, Transaction};

pub const LEVELS: [Isolation; 2] = [Isolation::Snapshot, Isolation::Serializable];

/// How long a test waits for an event that has to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A new database on a disk in memory, its threads running.
pub fn database() -> Database {
    open(&SimEnv::new(1), Options::default())
}

/// A new database whose log is flushed only by threads that wait for it.
pub fn quiet_database() -> Database {
    open(&SimEnv::new(1), Options { background: false, ..Options::default() })
}

pub fn open(env: &Arc<SimEnv>, options: Options) -> Database {
    Database::open_with(env.clone(), Path::new("/data"), options, |_| {}).unwrap()
}

/// A database with one table.
pub fn one_table() -> (Database, Table) {
    let db = database();
    let table = db.table("t").unwrap();
    (db, table)
}

pub trait Reads {
    fn read(&self, table: &Table, key: &[u8]) -> Option<String>;
}

impl Reads for Transaction {
    fn read(&self, table: &Table, key: &[u8]) -> Option<String> {
        self.get(table, key).unwrap().map(text)
    }
}

impl Reads for Snapshot {
    fn read(&self, table: &Table, key: &[u8]) -> Option<String> {
        self.get(table, key).unwrap().map(text)
    }
}

pub fn text(value: crate::Value) -> String {
    String::from_utf8(value.to_vec()).unwrap()
}

/// The entries of an iteration, as text.
pub fn rows(range: impl Iterator<Item = Result<(crate::Value, crate::Value)>>) -> Vec<(String, String)> {
    range.map(|entry| entry.map(|(key, value)| (text(key), text(value))).unwrap()).collect()
}

pub fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[track_caller]
pub fn assert_conflict<T: std::fmt::Debug>(outcome: Result<T>) {
    assert!(matches!(outcome, Err(Error::Conflict { .. })), "{outcome:?}");
}

/// A meeting point of threads: a hook waits at it, and a test asks how many threads are there.
#[derive(Default)]
pub struct Meeting {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Meeting {
    pub fn new() -> Arc<Meeting> {
        Arc::default()
    }

    fn arrive(&self) -> usize {
        let mut state = self.state.lock();
        state.0 += 1;
        self.changed.notify_all();
        state.0
    }

    /// The first thread that arrives waits until the meeting is opened; later ones pass.
    pub fn hold_first(&self) {
        if self.arrive() == 1 {
            let mut state = self.state.lock();
            let timed_out = self.changed.wait_while_for(&mut state, |state| !state.1, PATIENCE).timed_out();
            assert!(!timed_out, "the meeting was not opened");
        }
    }

    /// Waits until `count` threads are here, or for `at_most`: latches may keep some out.
    pub fn gather(&self, count: usize, at_most: Duration) {
        self.arrive();
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.0 < count, at_most);
    }

    /// Waits until `count` threads have arrived.
    pub fn wait_for(&self, count: usize) {
        let mut state = self.state.lock();
        let timed_out =
            self.changed.wait_while_for(&mut state, |state| state.0 < count, PATIENCE).timed_out();
        assert!(!timed_out, "{} of {count} threads came", state.0);
    }

    pub fn open(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

/// Stops the first thread that reaches `spot`.
pub fn hold_first_at(db: &Database, spot: &'static str) -> Arc<Meeting> {
    let meeting = Meeting::new();
    let hook = meeting.clone();
    db.engine().hooks.set(spot, move || hook.hold_first());
    meeting
}

/// Holds threads at `spot` until `count` of them are there, or latches keep the rest out.
pub fn gather_at(db: &Database, spot: &'static str, count: usize) {
    let meeting = Meeting::new();
    db.engine().hooks.set(spot, move || meeting.gather(count, Duration::from_millis(100)));
}

/// Runs the closures in parallel, and returns their results in order.
pub fn at_once<T: Send, F: FnOnce() -> T + Send>(work: impl IntoIterator<Item = F>) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|work| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A small random generator, so that a run can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}
