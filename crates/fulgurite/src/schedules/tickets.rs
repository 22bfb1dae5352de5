//! Tickets complete exactly once, however their filing races with durability.

use std::sync::Arc;

use fulgurite_log::Durability;
use fulgurite_types::Csn;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::commit::fake_log::{pipeline, submit, submit_at};
use fulgurite_log::CommitLog;

const COMMITS: usize = 3;

fn tickets() {
    let (log, pipeline) = pipeline(2);
    let server = {
        let log = log.clone();
        thread::spawn(move || log.serve(Csn(COMMITS as u64)))
    };
    let completed = Arc::new(AtomicUsize::new(0));
    let committers = [(); COMMITS].map(|()| {
        let (pipeline, completed) = (pipeline.clone(), completed.clone());
        thread::spawn(move || {
            let csn = submit(&pipeline, |_| thread::yield_now());
            let ticket = pipeline.ticket(csn, csn, None);
            let reader = pipeline.clone();
            ticket.on_complete(move |outcome| {
                assert_eq!(outcome.unwrap().csn, csn);
                assert!(reader.read_csn() >= csn, "INV-TXN-6: complete before it is durable and visible");
                completed.fetch_add(1, Ordering::SeqCst);
            });
            ticket
        })
    });
    let tickets = committers.map(|committer| committer.join().unwrap());
    server.join().unwrap();
    for ticket in &tickets {
        let outcome = ticket.try_wait();
        assert!(
            outcome.is_some_and(|outcome| outcome.is_ok()),
            "INV-TXN-10: it completes although no thread waits"
        );
        ticket.wait().unwrap();
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

/// Threads that complete a ticket, fail it, wait for it and add listeners race for its phase.
fn one_ticket() {
    let (_, pipeline) = pipeline(1);
    let csn = submit(&pipeline, |_| {});
    let ticket = pipeline.ticket(csn, csn, None);
    let calls = Arc::new(AtomicUsize::new(0));
    let listeners = [0, 1].map(|_| {
        let (ticket, calls) = (ticket.clone(), calls.clone());
        thread::spawn(move || {
            ticket.on_complete(move |_| _ = calls.fetch_add(1, Ordering::SeqCst));
        })
    });
    let waiter = {
        let ticket = ticket.clone();
        thread::spawn(move || ticket.wait().is_ok())
    };
    pipeline.fail_tickets("the log failed");
    let is_durable = waiter.join().unwrap();
    listeners.into_iter().for_each(|listener| listener.join().unwrap());
    let outcome = ticket.try_wait().expect("complete");
    assert_eq!(outcome.is_ok(), is_durable, "an outcome never changes");
    assert!(outcome.is_ok() || outcome.unwrap_err().to_string().contains("the log failed"));
    assert_eq!(calls.load(Ordering::SeqCst), 2, "each callback runs once");
}

#[test]
fn a_ticket_has_one_outcome_for_all_listeners() {
    shuttle::check_random(one_ticket, 20_000);
}

#[test]
fn a_ticket_has_one_outcome_for_all_listeners_however_threads_are_preempted() {
    shuttle::check_pct(one_ticket, 10_000, 4);
}

/// A ticket outlives its pipeline: a thread that waits for it gets an outcome, and does not hang.
#[test]
fn a_ticket_that_outlives_its_pipeline_ends() {
    let explore = || {
        let (_, pipeline) = pipeline(1);
        let csn = submit(&pipeline, |_| {});
        let ticket = pipeline.ticket(csn, csn, None);
        let waiter = {
            let ticket = ticket.clone();
            thread::spawn(move || ticket.wait().is_ok())
        };
        drop(pipeline);
        let is_durable = waiter.join().unwrap();
        assert_eq!(ticket.try_wait().map(|outcome| outcome.is_ok()), Some(is_durable));
    };
    shuttle::check_random(explore, 5_000);
}

/// INV-TXN-11: the thread that deferred a commit sees it, at every level, although commits before it are still being
/// applied.
fn deferred_commits_at(level: Durability) {
    let (log, pipeline) = pipeline(2);
    let server = {
        let log = log.clone();
        thread::spawn(move || log.serve(Csn(COMMITS as u64)))
    };
    let committers = [(); COMMITS].map(|()| {
        let pipeline = pipeline.clone();
        thread::spawn(move || {
            let timed = pipeline.stopwatch().start(level);
            let csn = submit_at(&pipeline, level, |_| thread::yield_now());
            let ticket = pipeline.acknowledge_deferred(csn, Csn::ZERO, timed).unwrap();
            assert!(pipeline.visible() >= csn, "INV-TXN-11: the thread that committed {csn} does not see it");
            ticket
        })
    });
    let tickets = committers.map(|committer| committer.join().unwrap());
    log.request_durable(Csn(COMMITS as u64));
    tickets.iter().for_each(|ticket| _ = ticket.wait().unwrap());
    server.join().unwrap();
}

#[test]
fn a_deferred_commit_is_visible_to_the_thread_that_made_it() {
    shuttle::check_random(|| deferred_commits_at(Durability::Sync), 10_000);
    shuttle::check_random(|| deferred_commits_at(Durability::NoBarrier), 5_000);
    shuttle::check_random(|| deferred_commits_at(Durability::None), 5_000);
}

#[test]
fn a_deferred_commit_is_visible_to_the_thread_that_made_it_however_threads_are_preempted() {
    shuttle::check_pct(|| deferred_commits_at(Durability::Sync), 10_000, 4);
}
