//! How many replicas a transaction waits for, in the forms of commit that wait and in tickets.

mod trio;

use fulgurite::{Acks, Csn, Error, Options, Ticket};
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_replication::{Replica, ReplicaOptions};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use trio::{Trio, cluster, get, led, make_table, put, shared};

fn commit(trio: &Trio, value: &str, acks: Acks) -> Ticket {
    let db = trio.db(1);
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    txn.put(&table, "k", value).unwrap();
    txn.set_acks(acks);
    txn.commit_deferred().unwrap()
}

/// What the callback of a ticket is called with.
fn heard(ticket: &Ticket) -> Receiver<fulgurite::Result<fulgurite::Commit>> {
    let (sender, receiver) = channel();
    ticket.on_complete(move |outcome| sender.send(outcome).unwrap());
    receiver
}

fn is_behind(outcome: &fulgurite::Result<fulgurite::Commit>, expected: Csn) -> bool {
    matches!(outcome, Err(Error::ReplicasBehind { csn, have: 2, want: 3 }) if *csn == expected)
}

#[test]
fn a_ticket_at_local_completes_once_the_leader_has_the_commit() {
    let trio = led();
    let ticket = commit(&trio, "local", Acks::Local);
    assert!(ticket.try_wait().is_none(), "it is not on the disk");
    let called = heard(&ticket);
    trio.replica(1).flush().unwrap();
    assert_eq!(ticket.try_wait().unwrap().unwrap().csn, ticket.csn());
    assert!(called.try_recv().unwrap().is_ok());
    assert!(trio.replica(1).positions().entries.agreed.csn < ticket.csn());
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("local"), "what was acknowledged is shown");
    // One that is complete before it is asked for.
    let waited = commit(&trio, "waited", Acks::Local);
    assert_eq!(waited.wait().unwrap().csn, waited.csn());
}

#[test]
fn a_ticket_at_local_waits_for_what_its_transaction_read() {
    let trio = led();
    put(&trio.db(1), "read", "by a quorum").unwrap();
    let db = trio.db(1);
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    assert!(txn.get(&table, "read").unwrap().is_some());
    txn.put(&table, "k", "v").unwrap();
    txn.set_acks(Acks::Local);
    let ticket = txn.commit_deferred().unwrap();
    trio.replica(1).flush().unwrap();
    assert!(ticket.try_wait().is_none(), "what it read may be lost");
    trio.replicate(1, &[2]);
    assert!(ticket.try_wait().unwrap().is_ok());
}

#[test]
fn a_ticket_at_local_says_that_its_commit_did_not_happen() {
    let mut trio = led();
    let ticket = commit(&trio, "unnumbered", Acks::Local);
    let called = heard(&ticket);
    trio.appoint(2, &[1, 2]);
    while trio.db(1).maintain().unwrap() {}
    assert!(matches!(ticket.try_wait(), Some(Err(Error::NotLeader { .. }))));
    assert!(matches!(called.try_recv().unwrap(), Err(Error::NotLeader { .. })));
    assert!(matches!(ticket.wait(), Err(Error::NotLeader { .. })));
}

#[test]
fn a_ticket_at_all_completes_once_the_last_replica_has_the_commit() {
    let trio = led();
    let tickets: Vec<_> = (0..3).map(|n| commit(&trio, &n.to_string(), Acks::All)).collect();
    let called = heard(&tickets[2]);
    let quorum = commit(&trio, "quorum", Acks::Quorum);
    trio.replicate(1, &[2]);
    assert!(quorum.try_wait().unwrap().is_ok());
    assert!(tickets.iter().all(|ticket| ticket.try_wait().is_none()), "node 3 does not have them");
    trio.replicate(1, &[3]);
    assert!(tickets.iter().all(|ticket| ticket.try_wait().unwrap().is_ok()));
    assert_eq!(called.try_recv().unwrap().unwrap().csn, tickets[2].csn());
    // At a level that waits for no disk, too: all of them synced it.
    let table = trio.db(1).open_table("t").unwrap();
    let mut txn = trio.db(1).begin();
    txn.put(&table, "k", "none").unwrap();
    txn.set_acks(Acks::All);
    txn.set_durability(fulgurite::Durability::None).unwrap();
    let ticket = txn.commit_deferred().unwrap();
    trio.replicate(1, &[2]);
    assert!(ticket.try_wait().is_none());
    trio.replicate(1, &[3]);
    assert!(ticket.try_wait().unwrap().is_ok());
}

#[test]
fn a_ticket_at_all_says_when_replicas_are_behind_for_too_long() {
    let mut trio = led();
    let ticket = commit(&trio, "v", Acks::All);
    let called = heard(&ticket);
    trio.envs[0].advance(Duration::from_secs(60));
    trio.replicate(1, &[2]);
    assert!(ticket.try_wait().is_none(), "its time begins once a quorum has it");
    trio.envs[0].advance(Duration::from_secs(4));
    let later = commit(&trio, "later", Acks::All);
    trio.replicate(1, &[2]);
    assert!(ticket.try_wait().is_none(), "it has another second");
    trio.envs[0].advance(Duration::from_secs(2));
    while trio.db(1).maintain().unwrap() {}
    assert!(is_behind(&ticket.try_wait().unwrap(), ticket.csn()));
    assert!(is_behind(&called.try_recv().unwrap(), ticket.csn()));
    assert!(later.try_wait().is_none(), "it has three more");
    // One that is waited for has its time, too.
    assert!(is_behind(&later.wait(), later.csn()));
    // Closing ends what is left, as it is.
    let last = commit(&trio, "last", Acks::All);
    trio.replicate(1, &[2]);
    assert!(last.try_wait().is_none());
    trio.db(1).close().unwrap();
    assert!(is_behind(&last.try_wait().unwrap(), last.csn()));
    trio.crash(1, CrashKind::Kill);
    trio.appoint(1, &[1, 2]);
    trio.replicate(1, &[2, 3]);
    assert_eq!(get(&trio.db(3), "k").as_deref(), Some("last"), "they are commits");
}

/// Nothing else runs that could end the ticket: the thread that waits finds the failure.
#[test]
fn a_ticket_at_local_whose_flush_fails_has_an_unknown_outcome() {
    let trio = led();
    let ticket = commit(&trio, "v", Acks::Local);
    trio.envs[0].faults().fail_all_writes(true);
    let error = ticket.wait().unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { csn, .. } if csn == ticket.csn()), "{error}");
}

/// A quorum has it, so it happened, whatever becomes of the leader.
#[test]
fn what_a_quorum_has_is_no_failure_of_a_leader_that_fails_before_all_have_it() {
    let trio = led();
    let tickets = [commit(&trio, "v", Acks::All), commit(&trio, "w", Acks::All)];
    trio.replicate(1, &[2]);
    let late = commit(&trio, "late", Acks::All);
    trio.envs[0].faults().fail_all_writes(true);
    trio.replica(1).flush().unwrap_err();
    // By its clock no time has passed.
    assert!(is_behind(&tickets[0].wait(), tickets[0].csn()));
    while trio.db(1).maintain().is_ok_and(|worked| worked) {}
    assert!(is_behind(&tickets[1].try_wait().unwrap(), tickets[1].csn()));
    assert!(matches!(late.wait(), Err(Error::OutcomeUnknown { .. })));
}

#[test]
fn a_deposed_leader_hears_no_other_node() {
    let mut trio = led();
    let ticket = commit(&trio, "v", Acks::All);
    trio.replicate(1, &[2]);
    trio.appoint(2, &[1, 2]);
    let began = trio.envs[0].clock().monotonic_ns();
    while trio.db(1).maintain().unwrap() {}
    assert!(is_behind(&ticket.try_wait().unwrap(), ticket.csn()));
    assert!(is_behind(&ticket.wait(), ticket.csn()));
    assert!(trio.envs[0].clock().monotonic_ns() - began < 1_000_000_000, "it waited in vain");
}

/// The database's own threads end a ticket in time: no call does.
#[test]
fn threads_end_a_ticket_at_all_in_time() {
    let envs: Vec<_> = (31..=33).map(SimEnv::new).collect();
    let options = ReplicaOptions { quorum_wait: Duration::from_millis(200), ..Options::default().into() };
    let make = |(env, number): (&Arc<SimEnv>, u32)| {
        Replica::create(shared(env), "/db", options.clone(), &cluster(), number).unwrap()
    };
    let replicas = envs.iter().zip(1..).map(make).collect();
    let mut trio = Trio { replicas, envs, term: 0, options: options.clone() };
    trio.appoint(1, &[1, 2]);
    trio.replicate(1, &[2, 3]);
    make_table(&trio, &[2, 3]);
    let ticket = commit(&trio, "v", Acks::All);
    let called = heard(&ticket);
    let quorum = commit(&trio, "quorum", Acks::Quorum);
    trio.replicate(1, &[2]);
    quorum.wait().unwrap();
    assert!(called.recv_timeout(Duration::from_millis(300)).is_err(), "by its clock no time has passed");
    trio.envs[0].advance(Duration::from_millis(250));
    assert!(is_behind(&called.recv_timeout(Duration::from_secs(60)).unwrap(), ticket.csn()));
}
