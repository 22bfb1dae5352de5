//! A node that lacks more than the others' logs have is filled from a copy of another one's database, and keeps its number, its promises and its lives.

mod trio;

use fulgurite::Options;
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::LogError;
use fulgurite_replication::{NodeError, Replica, ReplicaOptions, TERM_FILE_NAME, TermError};
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
    env.remove_raw(&Path::new(COPY).join(TERM_FILE_NAME)).unwrap();
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
    // A copy with its file of terms is another node.
    let term = Path::new(COPY).join(TERM_FILE_NAME);
    let with_terms = env.crash(CrashKind::Kill, 6);
    with_terms.write_raw(&term, &[0; 8192]).unwrap();
    let error = refill(&with_terms, 3).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::Io { action: "create", .. })), "{error}");

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

#[test]
fn a_crash_at_any_operation_leaves_the_node_in_one_directory() {
    let trio = left_behind();
    let source = with_copy(&trio, 3, 1);
    let newest = trio.replica(1).positions().entries.last;
    let (mut filled, mut before) = (0, 0);
    for nth in 1.. {
        let env = source.crash(CrashKind::Kill, nth);
        env.faults().crash_at(env.faults().op_count() + nth);
        let is_whole = refill(&env, 3).is_ok();
        for kind in [CrashKind::PowerCut, CrashKind::Kill] {
            let env = env.crash(kind, nth);
            let has_terms = |dir: &str| {
                let entries = env.disk().open_dir(Path::new(dir)).unwrap().list().unwrap();
                entries.iter().any(|entry| entry.name == TERM_FILE_NAME)
            };
            let path = if has_terms(COPY) { COPY } else { "/db" };
            assert!(!is_whole || !has_terms("/db"), "operation {nth}");
            let replica = Replica::open(shared(&env), path, short_log(), 3).unwrap();
            let is_filled = replica.positions().entries.last == newest;
            assert_eq!(is_filled, path == COPY, "operation {nth}");
            if is_filled { filled += 1 } else { before += 1 }
        }
        if is_whole && !env.faults().has_crashed() {
            break;
        }
    }
    assert!(filled > 4 && before > 4, "{filled} filled, {before} before");
}
