//! Sets over a socket: what the comparison with Redis does not see. Shapes of RESP3, sets that workers read, EXEC and WATCH, expiry,
//! scans beside writes, random choice, and that what several clients do at once is as if one came after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use fulgurite::env::sim::CrashKind;
use fulgurite_resp::Reply;
use fulgurite_server::{Dispatch, Server};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

fn talk(client: &mut Client, conversation: &[(&str, &str)]) {
    for (command, expected) in conversation {
        assert_eq!(client.ask(command), *expected, "{command}");
    }
}

fn ask_reply(client: &mut Client, command: &str) -> Reply {
    client.send_command(command);
    client.receive().expect("a reply")
}

/// The names in a reply.
fn names(client: &mut Client, command: &str) -> Vec<String> {
    match ask_reply(client, command) {
        Reply::Array(items) | Reply::Set(items) => items.iter().map(name).collect(),
        other => panic!("{command}: {other:?}"),
    }
}

fn name(item: &Reply) -> String {
    let Reply::Bulk(name) = item else { panic!("{item:?}") };
    String::from_utf8(name.to_vec()).unwrap()
}

/// The names in a reply in which each comes once.
fn name_set(client: &mut Client, command: &str) -> BTreeSet<String> {
    let names = names(client, command);
    let set: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(names.len(), set.len(), "{command}: each once");
    set
}

fn integer(client: &mut Client, command: &str) -> u64 {
    let reply = client.ask(command);
    reply.parse().unwrap_or_else(|_| panic!("{command}: {reply}"))
}

/// Adds members, so many at a time.
fn add(client: &mut Client, key: &str, members: &BTreeSet<String>) {
    let all: Vec<&str> = members.iter().map(String::as_str).collect();
    for batch in all.chunks(100) {
        let command = [&["SADD", key], batch].concat();
        assert_eq!(client.ask_arguments(&command), batch.len().to_string());
    }
}

/// How many commands were handed to workers because they were large.
fn handed_on_for_size(client: &mut Client) -> u64 {
    const LINE: &str = "fulgurite_handed_on_for_size:";
    let info = client.ask("INFO everything");
    let (_, rest) = info.split_once(LINE).expect("the line");
    rest.split_once("\r\n").unwrap().0.parse().unwrap()
}

#[test]
fn replies_have_the_shapes_of_resp3() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        client.send_command("HELLO 3");
        client.receive();
        let bulk = |name: &str| Reply::Bulk(name.as_bytes().to_vec());
        assert_eq!(ask_reply(&mut client, "SADD s m"), Reply::Integer(1));
        assert_eq!(ask_reply(&mut client, "SET string v"), Reply::Simple(b"OK".to_vec()));
        for command in
            ["SMEMBERS s", "SINTER s s", "SUNION s nothing", "SDIFF s nothing", "SPOP s 1", "SPOP s 9"]
        {
            assert_eq!(ask_reply(&mut client, command), Reply::Set(vec![bulk("m")]), "{command}");
            client.ask("SADD s m");
        }
        for command in [
            "SMEMBERS nothing",
            "SINTER s nothing",
            "SUNION nothing",
            "SDIFF s s",
            "SPOP s 0",
            "SPOP nothing 1",
        ] {
            assert_eq!(ask_reply(&mut client, command), Reply::Set(vec![]), "{command}");
        }
        for (command, expected) in [
            ("SRANDMEMBER s 1", vec![bulk("m")]),
            ("SRANDMEMBER s -2", vec![bulk("m"), bulk("m")]),
            ("SRANDMEMBER nothing 1", vec![]),
            ("SMISMEMBER s m x", vec![Reply::Integer(1), Reply::Integer(0)]),
            ("SSCAN s 0", vec![bulk("0"), Reply::Array(vec![bulk("m")])]),
        ] {
            assert_eq!(ask_reply(&mut client, command), Reply::Array(expected), "{command}");
        }
        for command in ["SPOP nothing", "SRANDMEMBER nothing"] {
            assert_eq!(ask_reply(&mut client, command), Reply::Null, "{command}");
        }
        assert_eq!(ask_reply(&mut client, "SISMEMBER s m"), Reply::Integer(1));
    }
}

#[test]
fn the_keys_of_sintercard_are_found_by_their_number() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    let info = client.ask("COMMAND INFO sintercard");
    assert!(
        info.starts_with("[[\"sintercard\" -3 [readonly movablekeys] 0 0 0 [@read @set @slow]"),
        "{info}"
    );
    assert_eq!(client.ask("COMMAND GETKEYS SINTERCARD 2 a b LIMIT 1"), "[\"a\" \"b\"]");
}

#[test]
fn members_have_a_longest_name_and_sets_none_that_is_longer() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    let longest = "m".repeat(65_518);
    let longer = format!("{longest}m");
    assert_eq!(client.ask_arguments(&["SADD", "s", "a", &longest]), "2");
    assert_eq!(client.ask_arguments(&["SISMEMBER", "s", &longest]), "1");
    let refusal = "-ERR the field or member has 65519 bytes, the longest allowed has 65518";
    assert_eq!(client.ask_arguments(&["SADD", "s", "b", &longer]), refusal);
    for (command, expected) in [
        (&["SISMEMBER", "s", &longer][..], "0"),
        (&["SMISMEMBER", "s", &longer, "a", "b"], "[0 1 0]"),
        (&["SREM", "s", &longer], "0"),
        (&["SMOVE", "s", "t", &longer], "0"),
        (&["SCARD", "s"], "2"),
        (&["SUNIONSTORE", "t", "s"], "2"),
        (&["SMOVE", "s", "t", &longest], "1"),
        (&["SMISMEMBER", "t", "a", &longest], "[1 1]"),
    ] {
        assert_eq!(client.ask_arguments(command), expected, "{:?}", &command[..2]);
    }
}

/// Sets of more rows than an I/O thread reads, against sets of the standard library.
#[test]
fn large_sets_are_combined_on_workers() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        let numbers = |range: std::ops::Range<u32>, step: usize| -> BTreeSet<String> {
            range.step_by(step).map(|number| format!("member:{number}")).collect()
        };
        let (a, b, c) = (numbers(0..3_000, 1), numbers(0..6_000, 2), numbers(2_990..3_010, 1));
        for (key, members) in [("a", &a), ("b", &b), ("c", &c)] {
            add(&mut client, key, members);
            assert_eq!(integer(&mut client, &format!("SCARD {key}")), members.len() as u64);
            assert_eq!(name_set(&mut client, &format!("SMEMBERS {key}")), *members);
        }
        let handed_on = handed_on_for_size(&mut client);
        let mut large = 0;
        for (operands, expected) in [
            ("INTER a b", &a & &b),
            ("INTER b c a", &(&a & &b) & &c),
            ("INTER a nothing", BTreeSet::new()),
            ("UNION a b c", &(&a | &b) | &c),
            ("UNION nothing c", c.clone()),
            ("DIFF a b", &a - &b),
            ("DIFF c a b", &(&c - &a) - &b),
            ("DIFF a c", &a - &c),
            ("DIFF b a c nothing", &(&b - &a) - &c),
            ("DIFF a b a", BTreeSet::new()),
        ] {
            let (operation, keys) = operands.split_once(' ').unwrap();
            assert_eq!(name_set(&mut client, &format!("S{operands}")), expected, "{operands}");
            client.ask("SET stored v EX 100");
            let store = format!("S{operation}STORE stored {keys}");
            assert_eq!(integer(&mut client, &store), expected.len() as u64, "{operands}");
            assert_eq!(integer(&mut client, "EXISTS stored"), u64::from(!expected.is_empty()));
            assert_eq!(name_set(&mut client, "SMEMBERS stored"), expected, "{operands}");
            if operation == "INTER" {
                let count = expected.len() as u64;
                let card = format!("SINTERCARD {} {keys}", keys.split(' ').count());
                assert_eq!(integer(&mut client, &card), count);
                assert_eq!(integer(&mut client, &format!("{card} LIMIT 7")), count.min(7));
            }
            large += u64::from(!expected.is_empty() && keys.contains('a'));
        }
        // A result in the key of one of its operands, which is read to the end.
        assert_eq!(integer(&mut client, "SDIFFSTORE a a c"), (&a - &c).len() as u64);
        assert_eq!(name_set(&mut client, "SMEMBERS a"), &a - &c);
        assert_eq!(integer(&mut client, "SUNIONSTORE c a b c"), (&(&a | &b) | &c).len() as u64);
        let chosen = name_set(&mut client, "SRANDMEMBER b 2000");
        assert!(chosen.len() == 2_000 && chosen.is_subset(&b));
        let popped = name_set(&mut client, "SPOP b 300");
        assert!(popped.len() == 300 && popped.is_subset(&b));
        assert_eq!(name_set(&mut client, "SMEMBERS b"), &b - &popped);
        assert_eq!(name_set(&mut client, "SPOP b 99999"), &b - &popped);
        assert_eq!(client.ask("EXISTS b"), "0");
        let handed_on = handed_on_for_size(&mut client) - handed_on;
        // By workers, too.
        assert!(handed_on > large, "{dispatch:?}: {handed_on} of {large}");
    }
}

#[test]
fn exec_runs_set_commands_as_one() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        add(&mut client, "large", &(0..2_000).map(|number| number.to_string()).collect());
        talk(
            &mut client,
            &[
                ("MULTI", "OK"),
                ("SADD a 1 2 3", "QUEUED"),
                ("SADD b 2 3 4", "QUEUED"),
                ("SINTERSTORE both a b", "QUEUED"),
                ("SCARD both", "QUEUED"),
                ("SMOVE a b 1", "QUEUED"),
                ("SMISMEMBER b 1 2 9", "QUEUED"),
                ("SINTERCARD 3 a b large", "QUEUED"),
                ("SDIFFSTORE large large both", "QUEUED"),
                ("SCARD large", "QUEUED"),
                ("SET string v", "QUEUED"),
                ("SUNIONSTORE a b string", "QUEUED"),
                ("SADD string m", "QUEUED"),
                ("SREM b 1 2 3 4", "QUEUED"),
                ("SPOP a 9", "QUEUED"),
                ("EXISTS a b", "QUEUED"),
                ("DBSIZE", "QUEUED"),
            ],
        );
        let replies = client.ask("EXEC").replace("\"2\" \"3\"", "2 3").replace("\"3\" \"2\"", "2 3");
        let expected = format!("[3 3 2 2 1 [1 1 0] 2 1998 1998 OK {WRONG_TYPE} {WRONG_TYPE} 4 [2 3] 0 3]");
        assert_eq!(replies, expected);
        talk(&mut client, &[("DBSIZE", "3"), ("SCARD both", "2"), ("TYPE large", "set")]);
    }
}

#[test]
fn watches_see_what_changes_a_set_and_nothing_else() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
        for (write, discards) in [
            ("SADD s a", false),
            ("SADD s a new", true),
            ("SREM s nothing", false),
            ("SREM s a", true),
            ("SPOP s", true),
            ("SPOP s 2", true),
            ("SPOP s 0", false),
            ("SPOP s 99", true),
            ("SRANDMEMBER s", false),
            ("SMOVE s t a", true),
            ("SMOVE s t nothing", false),
            ("SMOVE s s a", false),
            ("SMOVE t s in-t", true),
            // Both have it: only the source changes.
            ("SMOVE t s b", false),
            ("SUNIONSTORE s s", true),
            ("SDIFFSTORE s t t", true),
            ("SUNIONSTORE t s", false),
            ("SCARD s", false),
        ] {
            other.ask("DEL s t");
            talk(&mut other, &[("SADD s a b c d", "4"), ("SADD t in-t b", "2")]);
            assert_eq!(client.ask("WATCH s"), "OK");
            other.ask(write);
            talk(&mut client, &[("MULTI", "OK"), ("SET result 1", "QUEUED")]);
            let expected = if discards { "nil" } else { "[OK]" };
            assert_eq!(client.ask("EXEC"), expected, "{dispatch:?}: {write}");
        }
    }
}

#[test]
fn sets_expire_as_wholes_and_keep_their_expiry() {
    for dispatch in Dispatch::ALL {
        let (env, _, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        talk(
            &mut client,
            &[
                ("SADD s a b", "2"),
                ("EXPIRE s 100", "1"),
                ("SADD s c", "1"),
                ("SREM s a", "1"),
                ("SMOVE s t b", "1"),
                ("TTL s", "100"),
                ("TTL t", "-1"),
                ("SADD u x", "1"),
                ("EXPIRE u 100", "1"),
                ("SUNIONSTORE u s t", "2"),
                ("TTL u", "-1"),
                ("SADD v x", "1"),
                ("EXPIRE v 100", "1"),
                ("SREM v x", "1"),
                ("SADD v y", "1"),
                ("TTL v", "-1"),
            ],
        );
        env.advance(Duration::from_millis(100_001));
        talk(
            &mut client,
            &[
                ("SCARD s", "0"),
                ("SMEMBERS s", "[]"),
                ("SPOP s", "nil"),
                ("SUNION s t", "[\"b\"]"),
                ("SINTERCARD 2 s u", "0"),
                ("SMOVE t s b", "1"),
                ("SMEMBERS s", "[\"b\"]"),
                ("TTL s", "-1"),
                ("EXISTS t", "0"),
                ("SMEMBERS v", "[\"y\"]"),
                ("SCARD u", "2"),
            ],
        );
    }
}

/// Each member that stays is returned, whatever is added and removed between two calls.
#[test]
fn a_scan_returns_what_stays_while_others_write() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
        let stay: BTreeSet<String> = (0..1_500).map(|number| format!("stays:{number}")).collect();
        add(&mut client, "s", &stay);
        let (mut cursor, mut seen, mut calls) = ("0".to_string(), BTreeSet::new(), 0);
        loop {
            let Reply::Array(reply) = ask_reply(&mut client, &format!("SSCAN s {cursor} COUNT 7")) else {
                panic!("an array")
            };
            let [next, Reply::Array(found)] = &reply[..] else { panic!("{reply:?}") };
            assert!(found.len() <= 8, "{}", found.len());
            seen.extend(found.iter().map(name));
            cursor = name(next);
            if cursor == "0" {
                break;
            }
            other.send_command(&format!("SADD s goes:{calls} comes:{calls}"));
            other.send_command(&format!("SREM s goes:{calls}"));
            assert_eq!((other.receive_text(), other.receive_text()), ("2".into(), "1".into()));
            calls += 1;
        }
        assert!(seen.is_superset(&stay), "{:?}", &stay - &seen);
        assert!(calls > 200, "{calls}");
        let Reply::Array(reply) = ask_reply(&mut client, "SSCAN s 0 MATCH stays:1? COUNT 10000") else {
            panic!("an array")
        };
        let [_, Reply::Array(found)] = &reply[..] else { panic!("{reply:?}") };
        let found: BTreeSet<String> = found.iter().map(name).collect();
        assert_eq!(found, (10..20).map(|number| format!("stays:{number}")).collect());
    }
}

/// The sum of squared deviations from equal counts, each divided by what is expected (Pearson's).
fn chi_square(counts: &BTreeMap<String, u32>, kinds: usize) -> f64 {
    let expected = f64::from(counts.values().sum::<u32>()) / kinds as f64;
    let seen: f64 = counts.values().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
    seen + (kinds - counts.len()) as f64 * expected
}

/// In a small set every choice is as likely as any other. The bounds are exceeded once in 100,000 runs.
#[test]
fn members_of_small_sets_are_chosen_uniformly() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("SADD s a b c d e"), "5");
    let (mut one, mut pairs, mut again, mut popped) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for _ in 0..2_000 {
        for command in ["SRANDMEMBER s", "SRANDMEMBER s 2", "SRANDMEMBER s -2", "SPOP s"] {
            client.send_command(command);
        }
        let Some(single) = client.receive() else { panic!("a reply") };
        *one.entry(name(&single)).or_default() += 1;
        for (counts, are_different) in [(&mut pairs, true), (&mut again, false)] {
            let Some(Reply::Array(pair)) = client.receive() else { panic!("an array") };
            let mut pair: Vec<String> = pair.iter().map(name).collect();
            if are_different {
                pair.sort();
                assert_ne!(pair[0], pair[1]);
            }
            *counts.entry(pair.concat()).or_default() += 1;
        }
        let single = name(&client.receive().expect("a reply"));
        assert_eq!(client.ask(&format!("SADD s {single}")), "1");
        *popped.entry(single).or_default() += 1;
    }
    for (what, counts, kinds, bound) in [
        ("SRANDMEMBER", &one, 5, 28.5),
        ("two", &pairs, 10, 39.4),
        ("two again", &again, 25, 67.0),
        ("SPOP", &popped, 5, 28.5),
    ] {
        let chi_square = chi_square(counts, kinds);
        println!("{what}: {chi_square:.1} of {bound}");
        assert!(chi_square < bound, "{what}: {chi_square} of {counts:?}");
    }
}

/// In a large set one of 32 members after a random hash is taken: the gaps between hashes add 1/32 of a sample to what is expected of
/// an even choice, and each member is chosen. The first after a random hash would add a whole one.
#[test]
fn members_of_large_sets_are_chosen_about_uniformly() {
    const MEMBERS: usize = 1_000;
    const EACH: usize = 20;
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    let all: BTreeSet<String> = (0..MEMBERS).map(|number| number.to_string()).collect();
    add(&mut client, "s", &all);
    let (mut one, mut again, mut popped) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for _ in 0..EACH * MEMBERS / 100 {
        for _ in 0..100 {
            client.send_command("SRANDMEMBER s");
        }
        for _ in 0..100 {
            *one.entry(name(&client.receive().expect("a reply"))).or_default() += 1;
        }
        for name in names(&mut client, "SRANDMEMBER s -100") {
            *again.entry(name).or_default() += 1;
        }
        let names = name_set(&mut client, "SPOP s 100");
        add(&mut client, "s", &names);
        names.into_iter().for_each(|name| *popped.entry(name).or_default() += 1);
    }
    let expected = MEMBERS as f64 * (1.0 + EACH as f64 / 32.0);
    for (what, counts) in [("SRANDMEMBER", &one), ("again", &again), ("SPOP", &popped)] {
        let chi_square = chi_square(counts, MEMBERS);
        println!("{what}: {chi_square:.0}, about {expected:.0} expected");
        assert_eq!(counts.len(), MEMBERS, "{what}: each is chosen");
        assert!(chi_square < 1.3 * expected, "{what}: {chi_square}");
    }
}

/// A member that is moved to and fro is in one of two sets for every reader, of small sets as of large ones.
#[test]
fn several_sets_are_read_at_one_commit() {
    for (dispatch, members) in Dispatch::ALL.into_iter().flat_map(|dispatch| [(dispatch, 5), (dispatch, 701)])
    {
        let (_, _, server) = serve_by(dispatch);
        let (mut client, stops) = (Client::connect(&server), AtomicBool::new(false));
        add(&mut client, "a", &(0..members).map(|number| number.to_string()).collect());
        std::thread::scope(|scope| {
            let _stopper = Stopper(&stops);
            scope.spawn(|| {
                let mut mover = Client::connect(&server);
                let mut moved = 0_u64;
                while !stops.load(Ordering::SeqCst) {
                    let member = moved * 7 % members;
                    let (from, to) =
                        if (moved / members).is_multiple_of(2) { ("a", "b") } else { ("b", "a") };
                    assert_eq!(mover.ask(&format!("SMOVE {from} {to} {member}")), "1");
                    moved += 1;
                }
            });
            for _ in 0..100 {
                assert_eq!(client.ask("SINTERCARD 2 a b"), "0");
                assert_eq!(name_set(&mut client, "SUNION a b").len() as u64, members);
                assert_eq!(integer(&mut client, "SUNIONSTORE all a b"), members);
            }
        });
    }
}

/// Two clients that run in turns, each round at once.
fn run_rounds(server: &Server, rounds: usize, round: impl Fn(&mut Client, usize, usize) + Sync) {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (barrier, round) = (&barrier, &round);
            scope.spawn(move || {
                let mut client = Client::connect(server);
                for index in 0..rounds {
                    barrier.wait();
                    round(&mut client, number, index);
                }
            });
        }
    });
}

/// Write skew: of two transactions that run at once, each claims a member for its own set if the other set does not have it. They
/// select their database inside: so the locks of keys do not keep them apart, and the engine's validation has to.
#[test]
fn transactions_that_read_a_set_and_write_another_are_serializable() {
    const ROUNDS: usize = 200;
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        run_rounds(&server, ROUNDS, |client, number, round| {
            let own = ["a", "b"][number];
            let other = ["b", "a"][number];
            let commands = [
                format!("SELECT {number}"),
                "MULTI".into(),
                "SELECT 2".into(),
                format!("SADD claim:{own} {round}"),
                format!("SDIFFSTORE claim:{own} claim:{own} {other}"),
                format!("SUNIONSTORE {own} {own} claim:{own}"),
                format!("DEL claim:{own}"),
                format!("SELECT {number}"),
                "EXEC".into(),
            ];
            commands.iter().for_each(|command| client.send_command(command));
            let replies: Vec<String> = commands.iter().map(|_| client.receive_text()).collect();
            assert!(replies[8].starts_with("[OK 1 "), "{replies:?}");
        });
        let mut client = Client::connect(&server);
        talk(&mut client, &[("SELECT 2", "OK"), ("SINTER a b", "[]")]);
        assert_eq!(name_set(&mut client, "SUNION a b").len(), ROUNDS, "each is claimed");
    }
}

/// The same with WATCH: each client adds to its own set only if the other one is empty.
#[test]
fn what_depends_on_a_watched_set_is_serializable() {
    const ROUNDS: usize = 200;
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        run_rounds(&server, ROUNDS, |client, number, round| {
            let (own, other) = (format!("{number}:{round}"), format!("{}:{round}", 1 - number));
            assert_eq!(client.ask(&format!("WATCH {other}")), "OK");
            if integer(client, &format!("SCARD {other}")) > 0 {
                assert_eq!(client.ask("UNWATCH"), "OK");
                return;
            }
            assert_eq!(client.ask("MULTI"), "OK");
            assert_eq!(client.ask(&format!("SADD {own} m")), "QUEUED");
            let reply = client.ask("EXEC");
            assert!(["[1]", "nil"].contains(&&*reply), "{reply}");
        });
        let mut client = Client::connect(&server);
        let count = |client: &mut Client, round| client.ask(&format!("EXISTS 0:{round} 1:{round}"));
        let counts: Vec<String> = (0..ROUNDS).map(|round| count(&mut client, round)).collect();
        assert!(counts.iter().all(|count| ["0", "1"].contains(&&**count)), "{counts:?}");
        assert!(counts.iter().filter(|count| *count == "1").count() > ROUNDS / 2, "{counts:?}");
    }
}

#[test]
fn sets_survive_a_power_cut() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let all: BTreeSet<String> = (0..700).map(|number| number.to_string()).collect();
    add(&mut client, "s", &all);
    assert_eq!(client.ask("SUNIONSTORE t s"), "700");
    let popped = name_set(&mut client, "SPOP s 50");
    assert_eq!(client.ask("SADD u m"), "1");
    assert_eq!(client.ask("SREM u m"), "1");
    let crashed = env.crash(CrashKind::PowerCut, 1);
    drop((server, db));
    let server = Server::start(open(&crashed), config()).unwrap();
    let mut client = Client::connect(&server);
    assert_eq!(name_set(&mut client, "SMEMBERS t"), all);
    assert_eq!(name_set(&mut client, "SMEMBERS s"), &all - &popped);
    talk(&mut client, &[("SCARD s", "650"), ("EXISTS u", "0"), ("SADD v m", "1"), ("SMEMBERS v", "[\"m\"]")]);
}
