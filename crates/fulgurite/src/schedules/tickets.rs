//! Tickets complete exactly once, however their filing races with durability.

use std::sync::Arc;

use fulgurite_base::Csn;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::commit::Pipeline;
use crate::commit::fake_log::{FakeLog, submit};

const COMMITS: usize = 3;

fn tickets() {
    let log = FakeLog::new();
    let pipeline = Pipeline::new(log.clone(), Csn::ZERO);
    let server = {
        let log = log.clone();
        thread::spawn(move || log.serve(Csn(COMMITS as u64)))
    };
    let completed = Arc::new(AtomicUsize::new(0));
    let committers = [(); COMMITS].map(|()| {
        let (pipeline, completed) = (pipeline.clone(), completed.clone());
        thread::spawn(move || {
            let csn = submit(&pipeline, |_| thread::yield_now());
            let ticket = pipeline.ticket(csn);
            let reader = pipeline.clone();
            ticket.on_complete(move |outcome| {
                assert_eq!(outcome.unwrap().csn, csn);
                assert!(reader.read_csn() >= csn, "INV-TXN-6: told before it is durable and visible");
                completed.fetch_add(1, Ordering::SeqCst);
            });
            ticket
        })
    });
    let tickets = committers.map(|committer| committer.join().unwrap());
    server.join().unwrap();
    for ticket in &tickets {
        ticket.wait().unwrap();
        assert!(ticket.poll().is_some_and(|outcome| outcome.is_ok()));
    }
    assert_eq!(completed.load(Ordering::SeqCst), COMMITS, "each callback runs once");
}

#[test]
fn tickets_complete_exactly_once() {
    shuttle::check_random(tickets, 20_000);
}

#[test]
fn tickets_complete_exactly_once_however_threads_are_preempted() {
    shuttle::check_pct(tickets, 10_000, 4);
}

/// A ticket outlives the database: whoever waits for it is told, and nobody hangs.
#[test]
fn a_ticket_that_outlives_its_pipeline_ends() {
    let explore = || {
        let pipeline = Pipeline::new(FakeLog::new(), Csn::ZERO);
        let ticket = pipeline.ticket(submit(&pipeline, |_| {}));
        let waiter = {
            let ticket = ticket.clone();
            thread::spawn(move || ticket.wait().is_ok())
        };
        drop(pipeline);
        let is_durable = waiter.join().unwrap();
        assert_eq!(ticket.poll().map(|outcome| outcome.is_ok()), Some(is_durable));
    };
    shuttle::check_random(explore, 5_000);
}
