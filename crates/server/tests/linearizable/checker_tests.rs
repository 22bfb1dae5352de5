//! The checker takes histories that are linearizable, and refuses those that are not.

use std::slice::from_ref;

use fulgurite_resp::Reply;

use crate::checker::{End, NEVER, Operation, check, check_whole};
use crate::model::{State, command, run};

/// The state that commands make.
fn state(commands: &[&str]) -> State {
    let mut state = State::new();
    for words in commands {
        run(&mut state, &command(words));
    }
    state
}

/// What a client did: commands divided by semicolons and their replies, which are numbers, `OK`, `nil`, or bulk strings.
fn did(client: usize, times: (u64, u64), commands: &str, replies: &str) -> Operation {
    let reply = |text: &str| match text {
        "OK" => Reply::Simple(b"OK".to_vec()),
        "nil" => Reply::NullBulk,
        "[]" => Reply::Array(vec![]),
        text => match text.parse() {
            Ok(number) => Reply::Integer(number),
            Err(_) => Reply::Bulk(text.trim_matches('"').into()),
        },
    };
    let commands: Vec<_> = commands.split("; ").map(command).collect();
    let replies: Vec<Reply> = match times.1 {
        NEVER => vec![],
        _ => replies.split("; ").map(reply).collect(),
    };
    assert!(replies.is_empty() || replies.len() == commands.len());
    Operation { client, is_sync: true, commands, invoked: times.0, returned: times.1, replies }
}

/// The same, at a level that does not wait.
fn did_unwaited(client: usize, times: (u64, u64), commands: &str, replies: &str) -> Operation {
    Operation { is_sync: false, ..did(client, times, commands, replies) }
}

#[track_caller]
fn is_taken(initial: &[&str], operations: &[Operation], end: &End) {
    check(&state(initial), operations, end).unwrap();
    check_whole(&state(initial), operations, end).unwrap();
}

#[track_caller]
fn is_refused(initial: &[&str], operations: &[Operation], end: &End) {
    let violation = check(&state(initial), operations, end).expect_err("no order explains it");
    assert!(violation.contains(&operations[0].commands[0].join(" ")), "it shows the history: {violation}");
    check_whole(&state(initial), operations, end).expect_err("no order explains it");
}

fn quiet(commands: &[&str]) -> End {
    End::Quiet(state(commands))
}

fn crash(commands: &[&str]) -> End {
    End::Crash(state(commands))
}

#[test]
fn stale_reads_are_refused() {
    let set = did(0, (1, 2), "SET n0 1", "OK");
    let end = quiet(&["SET n0 1"]);
    is_refused(&[], &[set.clone(), did(1, (3, 4), "GET n0", "nil")], &end);
    is_taken(&[], &[set.clone(), did(1, (3, 4), "GET n0", "\"1\"")], &end);
    // At the same time as the write it may be before it, but not before a read that saw it.
    let set = did(0, (1, 8), "SET n0 1", "OK");
    let (old, new) = (did(1, (2, 3), "GET n0", "nil"), did(2, (4, 5), "GET n0", "\"1\""));
    is_taken(&[], &[set.clone(), old, new], &end);
    let (new, old) = (did(1, (2, 3), "GET n0", "\"1\""), did(2, (4, 5), "GET n0", "nil"));
    is_refused(&[], &[set, new, old], &end);
    // What was never written.
    is_refused(&["SET n0 1"], &[did(0, (1, 2), "GET n0", "\"2\"")], &end);
}

#[test]
fn lost_and_doubled_updates_are_refused() {
    let one = did(0, (1, 4), "INCR n0", "1");
    is_refused(&[], &[one.clone(), did(1, (2, 3), "INCR n0", "1")], &quiet(&["SET n0 1"]));
    is_taken(&[], &[one.clone(), did(1, (2, 3), "INCR n0", "2")], &quiet(&["SET n0 2"]));
    is_refused(&[], &[one.clone(), did(1, (2, 3), "INCR n0", "2")], &quiet(&["SET n0 1"]));
    is_refused(&[], &[one], &quiet(&["SET n0 2"]));
    let (pop, other) = (did(0, (1, 4), "LPOP l0", "\"a\""), did(1, (2, 3), "LPOP l0", "\"a\""));
    is_refused(&["RPUSH l0 a", "RPUSH l0 b"], &[pop, other], &quiet(&["RPUSH l0 b"]));
}

#[test]
fn a_pipeline_happens_in_its_order() {
    let first = did(0, (1, 8), "SET n0 1", "OK");
    let second = did(0, (2, 9), "SET n0 2", "OK");
    is_taken(&[], &[first.clone(), second.clone()], &quiet(&["SET n0 2"]));
    is_refused(&[], &[first.clone(), second], &quiet(&["SET n0 1"]));
    is_taken(&[], &[first, did(1, (2, 9), "SET n0 2", "OK")], &quiet(&["SET n0 1"]));
    // Without replies, too: the second did not happen without the first.
    let pair = [did(0, (1, NEVER), "APPEND s0 a", ""), did(0, (2, NEVER), "APPEND s0 b", "")];
    for end in [&[][..], &["SET s0 a"], &["SET s0 ab"]] {
        is_taken(&[], &pair, &crash(end));
    }
    is_refused(&[], &pair, &crash(&["SET s0 b"]));
}

#[test]
fn write_skew_is_refused() {
    // Each removes its member if the other's is there.
    let initial = ["SADD t0 a", "SADD t1 a"];
    let one = did(0, (1, 4), "SCARD t0; SREM t1 a", "1; 1");
    is_refused(&initial, &[one.clone(), did(1, (2, 3), "SCARD t1; SREM t0 a", "1; 1")], &quiet(&[]));
    is_taken(&initial, &[one, did(1, (2, 3), "SCARD t1; SREM t0 a", "0; 1")], &quiet(&[]));
    // Each takes the other's set.
    let initial = ["SADD t0 a", "SADD t1 b"];
    let both = [did(0, (1, 4), "SUNIONSTORE t0 t1 t2", "1"), did(1, (2, 3), "SUNIONSTORE t1 t0 t2", "1")];
    is_refused(&initial, &both, &quiet(&["SADD t0 b", "SADD t1 a"]));
    is_taken(&initial, &both, &quiet(&["SADD t0 a", "SADD t1 a"]));
    // An intersection that saw neither of two members, of which its client knew one.
    let adds = [did(0, (1, 2), "SADD t0 a", "1"), did(0, (3, 4), "SADD t1 a", "1")];
    let stores = did(1, (2, 6), "SINTERSTORE t2 t0 t1; SCARD t1", "0; 1");
    let end = quiet(&["SADD t0 a", "SADD t1 a"]);
    is_refused(&[], &[adds.to_vec(), vec![stores]].concat(), &end);
}

#[test]
fn keys_are_read_at_one_moment() {
    let (a, b) = (did(0, (1, 10), "SET n0 1", "OK"), did(1, (2, 11), "SET n1 1", "OK"));
    let end = quiet(&["SET n0 1", "SET n1 1"]);
    let reads = |first, second| {
        vec![did(2, (3, 4), "GET n0; GET n1", first), did(3, (5, 6), "GET n0; GET n1", second)]
    };
    is_taken(&[], &[vec![a.clone(), b.clone()], reads("\"1\"; nil", "\"1\"; \"1\"")].concat(), &end);
    is_refused(&[], &[vec![a, b], reads("\"1\"; nil", "nil; \"1\"")].concat(), &end);
}

#[test]
fn reads_that_go_back_after_a_restart_are_refused() {
    let acknowledged = did(0, (1, 2), "SET n0 1", "OK");
    is_refused(&[], from_ref(&acknowledged), &crash(&[]));
    is_taken(&[], &[acknowledged], &crash(&["SET n0 1"]));
    // Without a reply it may be there or not, but not lost once it was shown.
    let unknown = did(0, (1, NEVER), "SET n0 1", "");
    let shown = did(1, (2, 3), "GET n0", "\"1\"");
    is_taken(&[], from_ref(&unknown), &crash(&[]));
    is_taken(&[], from_ref(&unknown), &crash(&["SET n0 1"]));
    is_refused(&[], &[unknown.clone(), shown.clone()], &crash(&[]));
    is_taken(&[], &[unknown, shown], &crash(&["SET n0 1"]));
    // A transaction is there as a whole.
    let both = did(0, (1, NEVER), "SET n0 1; SET n1 1", "");
    is_taken(&[], from_ref(&both), &crash(&["SET n0 1", "SET n1 1"]));
    is_refused(&[], &[both], &crash(&["SET n0 1"]));
}

#[test]
fn only_what_was_not_synchronous_may_be_lost() {
    let lower = did_unwaited(0, (1, 2), "INCR n0", "1");
    is_taken(&[], from_ref(&lower), &crash(&[]));
    is_taken(&[], from_ref(&lower), &crash(&["SET n0 1"]));
    is_refused(&[], from_ref(&lower), &quiet(&[]));
    // A read shows it and does not keep it; a synchronous commit after it does.
    let shown = did(1, (3, 4), "GET n0", "\"1\"");
    is_taken(&[], &[lower.clone(), shown.clone()], &crash(&[]));
    is_refused(&[], &[lower.clone(), did(1, (3, 4), "GET n0", "nil")], &crash(&[]));
    let after = did(1, (5, 6), "INCR n0", "2");
    is_refused(&[], &[lower.clone(), after.clone()], &crash(&["SET n0 1"]));
    is_taken(&[], &[lower.clone(), shown, after], &crash(&["SET n0 2"]));
    // Of several the newest are lost.
    let second = did_unwaited(0, (3, 4), "INCR n0", "2");
    for kept in [&[][..], &["SET n0 1"], &["SET n0 2"]] {
        is_taken(&[], &[lower.clone(), second.clone()], &crash(kept));
    }
    let others = [did_unwaited(0, (1, 2), "SET n0 1", "OK"), did_unwaited(1, (3, 4), "SET n1 1", "OK")];
    check_whole(&state(&[]), &others, &crash(&["SET n1 1"])).expect_err("the older one is lost");
    check_whole(&state(&[]), &others, &crash(&["SET n0 1"])).unwrap();
    // No reply shows a synchronous commit that is lost, also one at a lower level.
    let unknown = did(1, (1, NEVER), "SET n0 5", "");
    let shows = did_unwaited(0, (2, 3), "INCR n0", "6");
    is_refused(&[], &[unknown.clone(), shows.clone()], &crash(&[]));
    is_taken(&[], &[unknown, shows], &crash(&["SET n0 5"]));
}

/// Orders that lead to the same are searched once: all that twelve clients do at the same time would have half a billion.
#[test]
fn many_operations_at_a_time_are_checked_in_bounded_time() {
    let mut operations: Vec<_> =
        (0..12).map(|client| did(client, (1 + client as u64, 100), "SADD t0 m0", "0")).collect();
    is_taken(&["SADD t0 m0"], &operations, &quiet(&["SADD t0 m0"]));
    operations.push(did(12, (20, 101), "SADD t0 m0", "1"));
    is_refused(&["SADD t0 m0"], &operations, &quiet(&["SADD t0 m0"]));
}
