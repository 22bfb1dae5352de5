//! All operations at once, to find hangs. A watchdog reports what each thread is doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fulgurite_env::SimEnv;
use parking_lot::Mutex;

use super::support::*;
use crate::{Database, Durability, Error, ErrorKind, Isolation, Options, Result, Table};

/// How long the threads run, and how long they may take to end.
const RUN: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(60);

/// What each thread is doing.
type Doing = Arc<Mutex<&'static str>>;

struct Worker {
    db: Database,
    tables: Vec<Table>,
    doing: Doing,
    random: Random,
}

impl Worker {
    fn at(&self, what: &'static str) {
        *self.doing.lock() = what;
    }

    fn table(&mut self) -> Table {
        let index = self.random.below(self.tables.len() as u64) as usize;
        self.tables[index].clone()
    }

    fn key(&mut self) -> [u8; 2] {
        [b'k', self.random.below(64) as u8]
    }

    fn point_write(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        match self.random.below(5) {
            0 => {
                self.at("put");
                table.put(&key, b"v").map(drop)
            }
            1 => {
                self.at("delete");
                table.delete(&key).map(drop)
            }
            2 => {
                self.at("insert");
                table.insert(&key, b"v").map(drop)
            }
            3 => {
                self.at("compare_and_swap");
                table.compare_and_swap(&key, Some(b"v"), Some(b"w")).map(drop)
            }
            _ => {
                self.at("a value that is written ahead");
                table.put(&key, &[7; 300_000]).map(drop)
            }
        }
    }

    fn range_delete(&mut self) -> Result<()> {
        let (table, from, to) = (self.table(), self.key(), self.key());
        self.at("delete_range");
        table.delete_range(from.as_slice()..&to).map(drop)
    }

    fn serializable(&mut self) -> Result<()> {
        let (from, to, key) = (self.table(), self.table(), self.key());
        self.at("a serializable scan");
        let mut txn = self.db.begin_with(Isolation::Serializable);
        let count = txn.range(&from, ..)?.take(20).count();
        txn.get(&to, &key)?;
        txn.put(&to, &key, &(count as u64).to_le_bytes())?;
        let interval = Duration::from_millis(1);
        let levels = [Durability::Sync, Durability::None, Durability::Async { interval }];
        txn.set_durability(levels[self.random.below(3) as usize])?;
        let deferred = self.random.below(2) == 0;
        self.at(if deferred { "commit_deferred" } else { "commit" });
        if deferred { txn.commit_deferred().map(drop) } else { txn.commit().map(drop) }
    }

    fn define(&mut self) -> Result<()> {
        let name = |n: u64| format!("temporary{n}");
        let (one, two) = (name(self.random.below(3)), name(self.random.below(3)));
        match self.random.below(3) {
            0 => {
                self.at("table");
                let table = self.db.table(&one)?;
                self.at("a put into a table that others drop");
                table.put(b"k", b"v").map(drop)
            }
            1 => {
                self.at("drop_table");
                self.db.drop_table(&one)
            }
            _ => {
                self.at("rename_table");
                self.db.rename_table(&one, &two)
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        self.at("a snapshot");
        let snapshot = self.db.snapshot();
        snapshot.get(&table, &key)?;
        for entry in snapshot.range(&table, ..)?.rev() {
            entry?;
        }
        table.get(&key).map(drop)
    }

    fn maintain(&mut self) -> Result<()> {
        if self.random.below(2) == 0 {
            self.at("checkpoint");
            self.db.checkpoint().map(drop)
        } else {
            self.at("maintain");
            self.db.maintain().map(drop)
        }
    }

    /// Repeats `work` until the database is closed.
    fn run(&mut self, work: fn(&mut Worker) -> Result<()>) {
        loop {
            match work(self) {
                Ok(()) => {}
                Err(Error::Closed) => break,
                Err(error) if matches!(error.kind(), ErrorKind::Retry | ErrorKind::Request) => {}
                Err(error) => panic!("{}: {error}", *self.doing.lock()),
            }
        }
        self.at("the end");
    }
}

type Job = (&'static str, fn(&mut Worker) -> Result<()>);

const JOBS: [Job; 9] = [
    ("writer", Worker::point_write),
    ("second writer", Worker::point_write),
    ("range deleter", Worker::range_delete),
    ("scanner", Worker::serializable),
    ("second scanner", Worker::serializable),
    ("definer", Worker::define),
    ("second definer", Worker::define),
    ("reader", Worker::read),
    ("maintainer", Worker::maintain),
];

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a thread that hangs must not keep the watchdog from saying so"
)]
fn nothing_hangs_when_everything_happens_at_once() {
    let options = Options { memtable_bytes_max: Some(64 << 10), ..Options::default() };
    let db = open(&SimEnv::new(1), options);
    let tables: Vec<Table> = ["one", "two", "three"].iter().map(|name| db.table(name).unwrap()).collect();
    let (ended, ends) = mpsc::channel();
    let mut doing: Vec<(&str, Doing)> = Vec::new();
    for (seed, (name, work)) in JOBS.into_iter().enumerate() {
        let slot = Doing::new(Mutex::new("the start"));
        doing.push((name, slot.clone()));
        let (db, tables, ended) = (db.clone(), tables.clone(), ended.clone());
        let mut worker = Worker { db, tables, doing: slot, random: Random(seed as u64 + 1) };
        std::thread::spawn(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run(work)));
            drop(worker);
            let _ = ended.send(outcome.is_ok());
        });
    }
    let closing = Arc::new(AtomicBool::new(false));
    let flag = closing.clone();
    std::thread::spawn(move || {
        std::thread::park_timeout(RUN);
        flag.store(true, Ordering::Relaxed);
        let _ = ended.send(db.close().is_ok());
    });
    for _ in 0..=JOBS.len() {
        match ends.recv_timeout(PATIENCE) {
            Ok(went_well) => assert!(went_well, "a thread failed"),
            Err(_) => {
                let operations: Vec<_> = doing.iter().map(|(name, doing)| (*name, *doing.lock())).collect();
                panic!("hangs; closing: {}; {operations:?}", closing.load(Ordering::Relaxed));
            }
        }
    }
}
