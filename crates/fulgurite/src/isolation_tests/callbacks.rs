//! Callbacks of tickets, which are users' code on threads of the database: INV-TXN-12, and closing from any thread.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fulgurite_env::{Env, SimEnv};

use super::support::*;
use crate::{Database, Error, FlushScheme, Missing, Options, Result, Table, Ticket};

/// How long a test waits for an event that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn defer(db: &Database, table: &Table, key: &[u8]) -> Ticket {
    let mut txn = db.begin();
    txn.put(table, key, b"v").unwrap();
    txn.commit_deferred().unwrap()
}

/// Runs `work` in the ticket's callback; the receiver gets its result.
fn in_callback<T: Send + 'static>(ticket: &Ticket, work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    ticket.on_complete(move |outcome| {
        outcome.unwrap();
        sender.send(work()).unwrap();
    });
    receiver
}

#[track_caller]
fn receive<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(PATIENCE).expect("the callback returns")
}

/// Opens as soon as the lock is free.
#[track_caller]
fn reopen(env: &Arc<SimEnv>) -> Database {
    for _ in 0..PATIENCE.as_millis() {
        match Database::open_with(env.clone(), "/data", Options::default(), |_| {}) {
            Err(Error::Locked { .. }) => std::thread::park_timeout(Duration::from_millis(1)),
            other => return other.unwrap(),
        }
    }
    panic!("the database was never closed");
}

fn each_scheme() -> impl Iterator<Item = (Arc<SimEnv>, Options)> {
    let options = |flush_scheme| Options {
        research: crate::ResearchOptions { flush_scheme, ..Default::default() },
        ..Options::default()
    };
    FlushScheme::ALL.into_iter().map(move |scheme| (SimEnv::new(1), options(scheme)))
}

#[test]
fn a_database_whose_last_handle_is_dropped_in_a_callback_is_closed() {
    for (env, options) in each_scheme() {
        let db = open(&env, options);
        let table = db.table("t").unwrap();
        // No thread waits, so the log's thread completes the ticket and runs the callback.
        let ticket = defer(&db, &table, b"k");
        let closed = in_callback(&ticket, move || drop((table, db)));
        receive(&closed);
        let db = reopen(&env);
        assert!(db.stats().checkpoint_covered >= ticket.csn(), "it was closed with a checkpoint");
        assert!(db.table("t").unwrap().get(b"k").unwrap().is_some());
    }
}

#[test]
fn a_callback_may_close_the_database_and_gets_the_result() {
    for (env, options) in each_scheme() {
        let db = open(&env, options);
        let table = db.table("t").unwrap();
        let ticket = defer(&db, &table, b"k");
        let other = db.clone();
        let closed = in_callback(&ticket, move || other.close());
        receive(&closed).unwrap();
        assert!(matches!(table.get(b"k"), Err(Error::Closed)));
        drop((db, table));
        reopen(&env);
    }
}

/// The closer joins the thread that runs the callback.
#[test]
fn a_callback_that_closes_beside_another_thread_that_closes_hangs_neither() {
    for round in 0..20u64 {
        let (env, options) = each_scheme().nth(round as usize % 3).unwrap();
        let db = open(&env, options);
        let table = db.table("t").unwrap();
        let ticket = defer(&db, &table, b"k");
        let other = db.clone();
        let closed = in_callback(&ticket, move || other.close());
        db.close().unwrap();
        let outcome = receive(&closed);
        assert!(matches!(outcome, Ok(()) | Err(Error::WouldBlock(Missing::Close))), "{outcome:?}");
        assert!(ticket.wait().is_ok());
        drop(table);
        reopen(&env);
    }
}

/// A thread that holds a lock of the engine leads the flush that completes the ticket.
#[test]
fn a_callback_may_use_what_the_thread_that_completes_its_ticket_has_locked() {
    type Work = fn(&Database) -> Result<()>;
    let works: [Work; 4] = [
        |db| db.checkpoint().map(drop),
        |db| db.table("another").map(drop),
        |db| db.maintain().map(drop),
        |db| db.clone().close(),
    ];
    let under: [Work; 3] =
        [|db| db.checkpoint().map(drop), |db| db.create_table("new").map(drop), |db| db.maintain().map(drop)];
    for locked in under {
        for work in works {
            let (done, is_done) = channel();
            let run = move || {
                let db = quiet_database();
                let table = db.table("t").unwrap();
                let ticket = defer(&db, &table, b"k");
                let other = db.clone();
                let called = in_callback(&ticket, move || work(&other));
                let outcome = locked(&db);
                assert!(matches!(outcome, Ok(()) | Err(Error::Closed)), "{outcome:?}");
                receive(&called).unwrap();
                done.send(()).unwrap();
            };
            // Joined only when it is done: a thread that hangs fails the test, and does not hang it.
            let thread = SimEnv::new(1).spawn("callback", Box::new(run)).unwrap();
            is_done.recv_timeout(PATIENCE).expect("neither the callback nor its thread hangs");
            assert!(thread.join());
        }
    }
}

/// The log fails on its own thread, and no thread waits: callbacks run all the same.
#[test]
fn callbacks_run_after_a_log_failure_although_no_thread_waits() {
    for (env, options) in each_scheme() {
        let db = open(&env, options);
        let table = db.table("t").unwrap();
        table.put(b"k", b"0").unwrap();
        env.faults().fail_all_writes(true);
        let ticket = defer(&db, &table, b"k");
        let (sender, reported) = channel();
        ticket.on_complete(move |outcome| sender.send(outcome).unwrap());
        let outcome = reported.recv_timeout(PATIENCE).expect("the callback runs");
        assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
    }
}

/// Runs `work`, which must not hang. Joined only when it is done, so that a thread that hangs fails the test.
#[track_caller]
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let run = move || {
        work();
        done.send(()).unwrap();
    };
    let thread = SimEnv::new(1).spawn("callback", Box::new(run)).unwrap();
    is_done.recv_timeout(PATIENCE).expect("it does not hang");
    assert!(thread.join());
}

/// How many callbacks have run, and how many inside each other.
#[derive(Default)]
struct Nesting {
    called: AtomicU32,
    deepest: AtomicU32,
}

/// A callback that files the next ticket, and makes that one complete.
fn chain(db: Database, table: Table, nesting: Arc<Nesting>, left: u32) {
    thread_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }
    let ticket = defer(&db, &table, b"k");
    ticket.on_complete(move |outcome| {
        outcome.unwrap();
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        nesting.deepest.fetch_max(DEPTH.with(Cell::get), Ordering::SeqCst);
        if left > 1 {
            chain(db, table.clone(), nesting.clone(), left - 1);
            table.put(b"sync", b"v").unwrap();
        }
        DEPTH.with(|depth| depth.set(depth.get() - 1));
        nesting.called.fetch_add(1, Ordering::SeqCst);
    });
}

#[test]
fn a_chain_of_callbacks_does_not_overflow_the_stack() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let nesting = Arc::new(Nesting::default());
    chain(db.clone(), table.clone(), nesting.clone(), 30);
    table.put(b"sync", b"v").unwrap();
    for _ in 0..30 {
        db.maintain().unwrap();
    }
    let seen = (nesting.called.load(Ordering::SeqCst), nesting.deepest.load(Ordering::SeqCst));
    assert_eq!(seen, (30, 1), "all ran, one at a time");
}

/// A long commit that waits for buffers is first in line. Its thread leads the flush that completes the ticket.
#[test]
fn a_callback_may_commit_although_the_thread_that_completes_its_ticket_is_being_admitted() {
    in_time(|| {
        let options = Options { background: false, log_buffer_bytes: 1 << 20, ..Options::default() };
        let db = open(&SimEnv::new(1), options);
        let table = db.table("t").unwrap();
        let long = vec![7; 100 << 10];
        let mut called = Vec::new();
        for n in 0..100u8 {
            let ticket = defer(&db, &table, &[n]);
            let other = table.clone();
            called.push(in_callback(&ticket, move || other.put([n, 1], b"v").unwrap()));
            let mut txn = db.begin();
            txn.put(&table, [n, 2], &long).unwrap();
            _ = txn.commit_deferred().unwrap();
        }
        table.put(b"sync", b"v").unwrap();
        while !called.is_empty() {
            called.retain(|called| called.try_recv().is_err());
            db.maintain().unwrap();
        }
    });
}

/// Merging waits for a flush by the log's thread, which is the one that runs the callback.
#[test]
fn a_callback_may_write_more_than_memory_takes() {
    in_time(|| {
        let options = Options { memtable_bytes_max: Some(64 << 10), ..Options::default() };
        let db = open(&SimEnv::new(1), options);
        let table = db.table("t").unwrap();
        let ticket = defer(&db, &table, b"k");
        let other = db.clone();
        let called = in_callback(&ticket, move || {
            for n in 0..2_000u32 {
                let mut txn = other.begin();
                txn.put(&table, n.to_be_bytes(), vec![7; 1000]).unwrap();
                _ = txn.commit_deferred().unwrap();
            }
        });
        receive(&called);
        drop(db);
    });
}
