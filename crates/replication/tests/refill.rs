//! A node that lacks more than the others' logs have is filled from a copy of another one's database, and keeps its number, its promises and its lives.

mod trio;

use fulgurite::Options;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_env::{Env, OpenOptions};
use fulgurite_log::LogError;
use fulgurite_replication::{
    Message, Network, NodeError, Replica, ReplicaOptions, TERM_FILE_NAME, TermError,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use trio::{Trio, get, led_with, options, put, shared};

const COPY: &str = "/copy";

fn short_log() -> ReplicaOptions {
    Options { checkpoint_log_bytes: 1 << 20, ..options() }.into()
}

/// Rows that take several times the log that is kept, in checkpoints of these nodes.
fn outgrow_the_log(trio: &Trio, nodes: &[u32]) {
    for round in 0..8 {
        for n in 0..50 {
            put(&trio.db(1), &format!("k{n}"), &format!("{round}").repeat(20_000)).unwrap();
        }
        trio.replicate(1, &nodes[1..]);
        for number in nodes {
            trio.db(*number).checkpoint().unwrap();
            while trio.db(*number).maintain().unwrap() {}
        }
    }
}

/// The machine of a node, with a copy of another one's database beside the node's own.
fn with_copy(trio: &Trio, node: u32, source: u32) -> Arc<SimEnv> {
    let own = &trio.envs[node as usize - 1].crash(CrashKind::Kill, 5);
    let env = trio.envs[source as usize - 1].crash(CrashKind::Kill, 5);
    env.move_dir_raw(Path::new("/db"), Path::new(COPY)).unwrap();
    for (path, _) in own.list_raw() {
        env.write_raw(&path, &own.read_raw(&path).unwrap()).unwrap();
    }
    env
}

fn refill(env: &Arc<SimEnv>, node: u32) -> Result<Replica, NodeError> {
    Replica::refill(shared(env), "/db", COPY, short_log(), node)
}

/// Node 3 was away, and what it lacks is in no log any more.
fn left_behind() -> Trio {
    let trio = led_with(short_log());
    outgrow_the_log(&trio, &[1, 2]);
    let after = trio.replica(3).positions().entries.last.index;
    let error = trio.replica(1).append_after(3, after).unwrap_err();
    assert!(matches!(error, NodeError::Log(LogError::TooOld { .. })), "{error}");
    trio
}

#[test]
fn a_node_that_was_away_for_too_long_is_filled_and_counts_again() {
    let mut trio = left_behind();
    // It has promised in term 7: that stays.
    trio.replica(3).fence(7, Some(2)).unwrap();
    let (members, life) = (trio.replica(3).node().cluster(), trio.replica(3).node().life());
    let env = with_copy(&trio, 3, 1);
    // A copy of its own directory, or of another cluster's, is none.
    for byte in [12, 40] {
        let other = env.crash(CrashKind::Kill, 6);
        let term = Path::new(COPY).join(TERM_FILE_NAME);
        let mut bytes = other.read_raw(&term).unwrap();
        bytes[byte] = if byte == 12 { 3 } else { 9 };
        let sum = fulgurite_types::crc32c(&bytes[..4092]).to_le_bytes();
        bytes[4092..4096].copy_from_slice(&sum);
        other.write_raw(&term, &bytes[..4096]).unwrap();
        let error = refill(&other, 3).unwrap_err();
        assert!(matches!(error, NodeError::Term(TermError::NotACopy { .. })), "{error}");
        Replica::open(shared(&other), "/db", short_log(), 3).unwrap();
    }

    trio.replicas[2] = refill(&env, 3).unwrap();
    trio.envs[2] = env;
    let node = trio.replica(3).node();
    assert_eq!((node.cluster(), node.life().directory), (members, life.directory));
    assert!(matches!(trio.replica(3).fence(7, Some(3)), Err(NodeError::StaleTerm { noted: 7, .. })));
    assert!(matches!(
        Replica::open(shared(&trio.envs[2]), "/db", short_log(), 3),
        Err(NodeError::Term(TermError::Io { action: "open", .. }))
    ));
    // With node 2 away it makes a majority, and has all.
    trio.term = 8;
    trio.replica(1).reopen().unwrap();
    trio.appoint(1, &[1, 3]);
    trio.replicate(1, &[3]);
    put(&trio.db(1), "k", "after").unwrap();
    trio.replicate(1, &[3]);
    assert_eq!(get(&trio.db(3), "k").as_deref(), Some("after"));
    assert_eq!(get(&trio.db(3), "k49"), Some("7".repeat(20_000)));
    assert!(trio.db(3).check(|_| {}).unwrap().problems.is_empty());
}

/// Node 3 has what nodes 1 and 3 agreed on, and node 2 lacks it: a node 3 that was filled from node 2 would make a majority without it.
#[test]
fn a_copy_that_lacks_what_the_node_acknowledged_is_refused() {
    let trio = led_with(short_log());
    put(&trio.db(1), "k", "agreed").unwrap();
    trio.replicate(1, &[3]);
    let env = with_copy(&trio, 3, 2);
    let error = refill(&env, 3).unwrap_err();
    assert!(matches!(error, NodeError::OldCopy { node: 3, .. }), "{error}");
    assert!(error.to_string().contains("may have acknowledged"), "{error}");
    // It is as it was.
    let three = Replica::open(shared(&env), "/db", short_log(), 3).unwrap();
    assert_eq!(three.positions().entries.last, trio.replica(1).positions().entries.last);
}

/// After each crash the node is opened where it was, if it says there that it was not moved, and else filled again with the same copy. Its promises are kept.
#[test]
fn a_crash_at_any_operation_leaves_the_node_in_one_directory() {
    let trio = left_behind();
    trio.replica(3).fence(7, Some(2)).unwrap();
    let source = with_copy(&trio, 3, 1);
    let newest = trio.replica(1).positions().entries.last;
    let (mut moved, mut before) = (0, 0);
    for nth in 1.. {
        let env = source.crash(CrashKind::Kill, nth);
        env.faults().crash_at(env.faults().op_count() + nth);
        let is_whole = refill(&env, 3).is_ok();
        for kind in [CrashKind::PowerCut, CrashKind::Kill] {
            let env = env.crash(kind, nth);
            match Replica::open(shared(&env), "/db", short_log(), 3) {
                Ok(mut replica) => {
                    assert!(!is_whole, "operation {nth}");
                    assert!(matches!(replica.fence(7, Some(1)), Err(NodeError::StaleTerm { noted: 7, .. })));
                    replica.fence(8, Some(1)).unwrap();
                    replica.close().unwrap();
                    replica = refill(&env, 3).unwrap();
                    assert!(matches!(replica.fence(8, Some(2)), Err(NodeError::StaleTerm { noted: 8, .. })));
                    before += 1;
                }
                Err(NodeError::Term(TermError::Moved { node: 3, .. })) => {
                    // Another copy is refused.
                    let other = with_copy(&trio, 3, 1);
                    let term = Path::new("/db").join(TERM_FILE_NAME);
                    other.write_raw(&term, &env.read_raw(&term).unwrap()).unwrap();
                    let error = refill(&other, 3).unwrap_err();
                    assert!(matches!(error, NodeError::Term(TermError::Moved { .. })), "{error}");
                    // It goes on with this one, also if another crash cuts that off.
                    for again in 1..14 {
                        let env = env.crash(CrashKind::Kill, again);
                        env.faults().crash_at(env.faults().op_count() + again);
                        let _ = refill(&env, 3);
                        let env = env.crash(CrashKind::PowerCut, again);
                        assert_eq!(
                            refill(&env, 3).unwrap().positions().entries.last,
                            newest,
                            "{nth}, {again}"
                        );
                    }
                    moved += 1;
                }
                Err(NodeError::Term(TermError::Io { action: "open", .. })) => {
                    let replica = Replica::open(shared(&env), COPY, short_log(), 3).unwrap();
                    assert_eq!(replica.positions().entries.last, newest);
                    assert!(matches!(replica.fence(7, Some(1)), Err(NodeError::StaleTerm { noted: 7, .. })));
                }
                Err(error) => panic!("operation {nth}: {error}"),
            }
        }
        if is_whole && !env.faults().has_crashed() {
            break;
        }
    }
    assert!(moved > 4 && before > 4, "{moved} moved, {before} before");
}

/// A copy that was in a cache only when the node was moved is on the device after that.
#[test]
fn a_copy_is_durable_before_the_node_is_moved() {
    let trio = left_behind();
    let source = with_copy(&trio, 3, 1);
    let env = SimEnv::new(9);
    for (path, _) in source.list_raw() {
        env.disk().create_dir_all(path.parent().unwrap()).unwrap();
        let file = env.disk().open(&path, OpenOptions::CreateNew).unwrap();
        file.write_at(&source.read_raw(&path).unwrap(), 0).unwrap();
        if path.starts_with("/db") {
            file.sync_data().unwrap();
        }
    }
    ["/", "/db", "/db/log"].iter().for_each(|dir| env.disk().sync_dir(Path::new(dir)).unwrap());
    let refilled = refill(&env, 3).unwrap();
    for (path, _) in env.list_raw().into_iter().filter(|(path, _)| path.starts_with("/copy/log")) {
        let (durable, all) = (env.read_durable(&path).unwrap(), env.read_raw(&path).unwrap());
        let len = source.read_raw(&path).map_or(0, |bytes| bytes.len().min(all.len()));
        assert!(durable.get(..len) == all.get(..len), "{}", path.display());
    }
    drop(refilled);
    for seed in 0..5 {
        let env = env.crash(CrashKind::PowerCut, seed);
        let replica = Replica::open(shared(&env), COPY, short_log(), 3).unwrap();
        assert!(replica.database().check(|_| {}).unwrap().problems.is_empty());
        assert_eq!(get(&replica.database(), "k49"), Some("7".repeat(20_000)));
    }
}

#[derive(Default)]
struct Wire(Mutex<Vec<Message>>);

impl Network for Wire {
    fn send(&self, message: Message) {
        self.0.lock().push(message);
    }
}

/// Sends node 3 what it lacks, and carries all messages. Returns the last error of the leader.
fn carry(trio: &Trio, wire: &Wire) -> Option<NodeError> {
    let mut error = None;
    for _ in 0..40 {
        error = trio.replica(1).send(3, wire).err();
        while let Some(message) = { wire.0.lock().pop() } {
            trio.replica(message.to()).receive(&message, wire).unwrap();
        }
    }
    error
}

/// The leader stays, and hears from the node that it has what it lacked.
#[test]
fn a_node_that_is_filled_goes_on_under_the_leader_that_had_given_it_up() {
    let mut trio = left_behind();
    let wire = Wire::default();
    let is_too_old = |error| matches!(error, Some(NodeError::Log(LogError::TooOld { .. })));
    assert!(is_too_old(carry(&trio, &wire)) || is_too_old(trio.replica(1).send(3, &wire).err()));
    let env = with_copy(&trio, 3, 1);
    put(&trio.db(1), "k", "since").unwrap();
    trio.replica(1).flush().unwrap();
    trio.replicas[2] = refill(&env, 3).unwrap();
    wire.0.lock().clear();
    assert!(carry(&trio, &wire).is_none());
    while trio.db(3).maintain().unwrap() {}
    assert_eq!(get(&trio.db(3), "k").as_deref(), Some("since"));
}

/// A rejection that comes late does not take the leader back to what is gone from its log.
#[test]
fn a_late_rejection_does_not_take_a_node_for_one_that_was_left_behind() {
    let trio = led_with(short_log());
    let wire = Wire::default();
    put(&trio.db(1), "a", "1").unwrap();
    trio.replicate(1, &[2]);
    trio.replica(1).send(3, &wire).unwrap();
    let message = wire.0.lock().pop().unwrap();
    trio.replica(3).receive(&message, &wire).unwrap();
    let late = wire.0.lock().pop().unwrap();
    assert!(matches!(late, Message::Rejected(_)), "{late:?}");
    outgrow_the_log(&trio, &[1, 2, 3]);
    trio.replica(1).receive(&late, &wire).unwrap();
    trio.replica(1).send(3, &wire).unwrap();
}

/// Messages are on their way without a reply, up to a limit; what is lost is sent again.
#[test]
fn messages_do_not_wait_for_replies_and_lost_ones_come_again() {
    let trio = led_with(ReplicaOptions { append_bytes_max: 1, ..short_log() });
    let wire = Wire::default();
    assert!(carry(&trio, &wire).is_none());
    for n in 0..30 {
        put(&trio.db(1), "k", &n.to_string()).unwrap();
        trio.replica(1).flush().unwrap();
    }
    let sent: Vec<bool> = (0..12).map(|_| trio.replica(1).send(3, &wire).unwrap()).collect();
    assert_eq!(sent, [[true; 8].to_vec(), vec![false; 4]].concat());
    // A reply makes room for those that it acknowledges, and for no others: a slow node has eight in its queue at most.
    let mut messages: VecDeque<Message> = std::mem::take(&mut *wire.0.lock()).into();
    for message in messages.drain(..2) {
        trio.replica(3).receive(&message, &wire).unwrap();
    }
    for reply in std::mem::take(&mut *wire.0.lock()) {
        trio.replica(1).receive(&reply, &wire).unwrap();
    }
    let sent: Vec<bool> = (0..4).map(|_| trio.replica(1).send(3, &wire).unwrap()).collect();
    assert_eq!(sent, [true, true, false, false]);
    messages.extend(std::mem::take(&mut *wire.0.lock()));
    // The next but one is lost.
    messages.remove(1);
    messages.iter().for_each(|message| trio.replica(3).receive(message, &wire).unwrap());
    let replies = std::mem::take(&mut *wire.0.lock());
    assert!(replies.iter().any(|reply| matches!(reply, Message::Rejected(_))));
    replies.iter().for_each(|reply| trio.replica(1).receive(reply, &wire).unwrap());
    assert!(carry(&trio, &wire).is_none());
    assert_eq!(trio.replica(3).positions().entries.last, trio.replica(1).positions().entries.last);
}
