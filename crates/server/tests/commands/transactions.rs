//! MULTI, EXEC and WATCH: what is queued and run, what is discarded, and that a transaction is one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use fulgurite::env::sim::CrashKind;
use fulgurite_server::{Dispatch, Server};

#[test]
fn queued_commands_run_as_one() {
    talk(&[
        ("MULTI", "OK"),
        ("SET a 1", "QUEUED"),
        ("INCR a", "QUEUED"),
        ("GET a", "QUEUED"),
        ("MGET a b", "QUEUED"),
        ("SET b 1 EX 100", "QUEUED"),
        ("EXISTS a b", "QUEUED"),
        ("DBSIZE", "QUEUED"),
        ("DEL a", "QUEUED"),
        ("TTL b", "QUEUED"),
        ("PING", "QUEUED"),
        ("DBSIZE", "QUEUED"),
        ("EXEC", "[OK 2 \"2\" [\"2\" nil] OK 2 2 1 100 PONG 1]"),
        ("DBSIZE", "1"),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("MULTI", "OK"),
        ("EXEC", "[]"),
        ("MULTI", "OK"),
        ("SELECT 3", "QUEUED"),
        ("SET there 1", "QUEUED"),
        ("SELECT 0", "QUEUED"),
        ("SET here 1", "QUEUED"),
        ("EXEC", "[OK OK OK OK]"),
        ("EXISTS here there", "1"),
        ("DBSIZE", "2"),
        ("SELECT 3", "OK"),
        ("DBSIZE", "1"),
    ]);
}

#[test]
fn errors_of_single_commands_undo_those_alone() {
    let long = "k".repeat(70_000);
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        for (command, expected) in [
            ("MULTI", "OK"),
            ("SET a text", "QUEUED"),
            ("INCR a", "QUEUED"),
            ("SET b 1", "QUEUED"),
            ("GETRANGE b x 1", "QUEUED"),
        ] {
            assert_eq!(client.ask(command), expected);
        }
        // It writes one key, and cannot write the other.
        assert_eq!(client.ask_arguments(&["MSET", "c", "1", &long, "2"]), "QUEUED");
        assert_eq!(client.ask("DBSIZE"), "QUEUED");
        let replies = client.ask("EXEC");
        let integer = "-ERR value is not an integer or out of range";
        assert!(replies.starts_with(&format!("[OK {integer} OK {integer} -ERR ")), "{replies}");
        assert!(replies.ends_with(" 2]"), "{replies}");
        assert_eq!(client.ask("MGET a b c"), "[\"text\" \"1\" nil]");
    }
}

#[test]
fn what_is_not_well_formed_discards_the_transaction() {
    talk(&[
        ("MULTI", "OK"),
        ("SET a 1", "QUEUED"),
        ("NOTHING", "-ERR unknown command 'NOTHING', with args beginning with: "),
        ("SET b 1", "QUEUED"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("MULTI", "OK"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("EXISTS a b", "0"),
        ("MULTI", "OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("SET a 1", "QUEUED"),
        ("DISCARD", "OK"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("GET a", "nil"),
        ("MULTI", "OK"),
        ("RESET", "RESET"),
        ("GET a", "nil"),
    ]);
}

#[test]
fn a_watched_key_that_is_written_discards_the_transaction() {
    for dispatch in Dispatch::ALL {
        let (env, _, server) = serve_by(dispatch);
        let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
        let exec = |client: &mut Client| {
            assert_eq!(client.ask("MULTI"), "OK");
            assert_eq!(client.ask("SET result 1"), "QUEUED");
            client.ask("EXEC")
        };
        assert_eq!(client.ask("MSET a 1 b 2"), "OK");
        assert_eq!(client.ask("SET mortal v PX 10000"), "OK");
        for (write, discards) in [
            ("SET a 2", true),
            ("SET a 2", true),
            ("APPEND a x", true),
            ("DEL a", true),
            ("SET a new", true),
            ("EXPIRE b 100", true),
            ("SETNX a 3", false),
            ("GET a", false),
            ("SET unrelated 1", false),
            ("SELECT 1", false),
        ] {
            assert_eq!(client.ask("WATCH a b absent"), "OK");
            other.ask(write);
            assert_eq!(exec(&mut client), if discards { "nil" } else { "[OK]" }, "{dispatch:?}: {write}");
        }
        // Keys of another database of the same name, and an absent key that comes to be.
        assert_eq!(client.ask("WATCH a"), "OK");
        assert_eq!(other.ask("SET a 9"), "OK");
        assert_eq!(exec(&mut client), "[OK]");
        assert_eq!(other.ask("SELECT 0"), "OK");
        assert_eq!(client.ask("WATCH absent"), "OK");
        assert_eq!(other.ask("SET absent 9"), "OK");
        assert_eq!(exec(&mut client), "nil");
        // Watches end with EXEC, with UNWATCH, and are of one's own writes, too.
        assert_eq!(exec(&mut client), "[OK]");
        assert_eq!(
            (client.ask("WATCH a"), client.ask("SET a 1"), exec(&mut client)),
            ("OK".into(), "OK".into(), "nil".into())
        );
        assert_eq!((client.ask("WATCH a"), client.ask("UNWATCH")), ("OK".into(), "OK".into()));
        assert_eq!((other.ask("SET a 2"), exec(&mut client)), ("OK".into(), "[OK]".into()));
        // A key that expires.
        assert_eq!(client.ask("WATCH mortal"), "OK");
        env.advance(Duration::from_millis(10_001));
        assert_eq!(exec(&mut client), "nil");
    }
}

/// Transfers between accounts, by EXEC after WATCH, and by EXEC alone; readers see a constant sum, also after a power cut.
#[test]
fn transactions_are_serializable_and_survive_as_wholes() {
    const ACCOUNTS: usize = 5;
    for round in 0..6 {
        let (env, db, server) = serve_by(Dispatch::ALL[round % 2]);
        let mut client = Client::connect(&server);
        let names: Vec<String> = (0..ACCOUNTS).map(|n| format!("account{n}")).collect();
        names.iter().for_each(|name| assert_eq!(client.ask(&format!("SET {name} 1000")), "OK"));
        let all = format!("MGET {}", names.join(" "));
        let sum = |reply: &str| -> i64 {
            reply
                .trim_matches(['[', ']'])
                .split(' ')
                .map(|n| n.trim_matches('"').parse::<i64>().unwrap())
                .sum()
        };
        let stops = AtomicBool::new(false);
        let crashed = std::thread::scope(|scope| {
            let _stopper = Stopper(&stops);
            for worker in 0..3_usize {
                let (server, stops, names) = (&server, &stops, &names);
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    let mut state = worker + 1;
                    let mut random = |below: usize| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        (state >> 33) % below
                    };
                    while !stops.load(Ordering::SeqCst) {
                        let (from, to, amount) = (random(ACCOUNTS), random(ACCOUNTS), random(50));
                        let (from, to) = (&names[from], &names[to]);
                        if worker == 0 {
                            client.ask("MULTI");
                            client.ask(&format!("DECRBY {from} {amount}"));
                            client.ask(&format!("INCRBY {to} {amount}"));
                            assert!(client.ask("EXEC").starts_with('['));
                            continue;
                        }
                        client.ask(&format!("WATCH {from} {to}"));
                        let mut read = |name| {
                            client.ask(&format!("GET {name}")).trim_matches('"').parse::<i64>().unwrap()
                        };
                        let (old_from, old_to) = (read(from), read(to));
                        client.ask("MULTI");
                        client.ask(&format!("SET {from} {}", old_from - amount as i64));
                        let gets = if from == to { old_from } else { old_to + amount as i64 };
                        client.ask(&format!("SET {to} {gets}"));
                        let outcome = client.ask("EXEC");
                        assert!(outcome == "nil" || outcome == "[OK OK]", "{outcome}");
                    }
                });
            }
            for _ in 0..30 + 10 * round {
                assert_eq!(sum(&client.ask(&all)), 1000 * ACCOUNTS as i64);
            }
            let crashed = env.crash(CrashKind::PowerCut, round as u64);
            stops.store(true, Ordering::SeqCst);
            crashed
        });
        drop((server, db));
        let server = Server::start(open(&crashed), config()).unwrap();
        assert_eq!(sum(&Client::connect(&server).ask(&all)), 1000 * ACCOUNTS as i64, "round {round}");
    }
}

/// A write that goes on beside an EXEC with FLUSHDB comes before it, and is seen by it, or after it, and stays.
#[test]
fn a_write_beside_a_flush_in_exec_is_seen_or_stays() {
    let (_, db, server) = serve_by(Dispatch::Inline);
    let (mut writer, mut flusher) = (Client::connect(&server), Client::connect(&server));
    let long = "ab".repeat(1_500);
    for round in 0..5 {
        for other in ["x", "y"] {
            assert_eq!(writer.ask(&format!("SET {other} {long}")), "OK");
        }
        // It has the key's lock, and its snapshot, for a while.
        assert_eq!(writer.ask("MULTI"), "OK");
        assert_eq!(writer.ask("SET k 1"), "QUEUED");
        for _ in 0..20 {
            assert_eq!(writer.ask("LCS x y LEN"), "QUEUED");
        }
        writer.send_command("EXEC");
        wait_until(|| db.stats().snapshots > 0);
        for queued in ["EXISTS k", "FLUSHDB"] {
            if queued == "EXISTS k" {
                assert_eq!(flusher.ask("MULTI"), "OK");
            }
            assert_eq!(flusher.ask(queued), "QUEUED");
        }
        let has_seen = flusher.ask("EXEC");
        assert!(writer.receive().is_some_and(|reply| matches!(reply, fulgurite_resp::Reply::Array(_))));
        let stays = writer.ask("EXISTS k");
        assert!(
            matches!((&*has_seen, &*stays), ("[1 OK]", "0") | ("[0 OK]", "1")),
            "{round}: {has_seen}, {stays}"
        );
        writer.ask("FLUSHDB");
    }
}
