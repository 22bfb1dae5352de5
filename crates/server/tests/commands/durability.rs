//! What was acknowledged survives a power cut, at any moment; and what leaves the server does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use fulgurite::Options;
use fulgurite::env::SimEnv;
use fulgurite::env::sim::CrashKind;
use fulgurite_server::{Dispatch, Flushing, Server};

const CLIENTS: usize = 4;

/// Clients set keys of their own, pipelined, and note which were acknowledged; the power is cut meanwhile.
#[test]
fn acknowledged_writes_survive_a_power_cut() {
    for (round, flushing) in
        [Flushing::Auto, Flushing::Lead, Flushing::Watch].into_iter().cycle().take(9).enumerate()
    {
        let mut config = config();
        config.flushing = flushing;
        config.io_threads = 1 + round % 2;
        config.dispatch = if round % 4 == 3 { Dispatch::Queue } else { Dispatch::Inline };
        let (env, db, server) = serve(config.clone());
        let acknowledged: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
        let stops = AtomicBool::new(false);
        let (crashed, before, after) = std::thread::scope(|scope| {
            let _stopper = Stopper(&stops);
            for (number, acknowledged) in acknowledged.iter().enumerate() {
                let (server, stops) = (&server, &stops);
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    let mut next = 1_u64;
                    while !stops.load(Ordering::SeqCst) {
                        let batch = 1 + next % 7;
                        for n in next..next + batch {
                            client.send_command(&format!("SET c{number}:{n} {n}"));
                            client.send_command(&format!("SET c{number}:newest {n}"));
                        }
                        for n in next..next + batch {
                            assert_eq!(client.receive_text(), "OK");
                            assert_eq!(client.receive_text(), "OK");
                            acknowledged.store(n, Ordering::SeqCst);
                        }
                        next += batch;
                    }
                });
            }
            let read = || acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>();
            wait_until(|| read().iter().all(|count| *count > 0));
            std::thread::park_timeout(Duration::from_millis(30 + 7 * round as u64));
            let before = read();
            let crashed = env.crash(CrashKind::PowerCut, round as u64);
            let after = read();
            stops.store(true, Ordering::SeqCst);
            (crashed, before, after)
        });
        drop((server, db));
        let db = open(&crashed);
        let server = Server::start(db, self::config()).unwrap();
        let mut client = Client::connect(&server);
        for number in 0..CLIENTS {
            for n in 1..=before[number] {
                assert_eq!(client.ask(&format!("GET c{number}:{n}")), format!("\"{n}\""), "{flushing:?}");
            }
            let newest = client.ask(&format!("GET c{number}:newest"));
            let newest: u64 = newest.trim_matches('"').parse().unwrap();
            assert!(newest >= before[number], "{flushing:?}: {newest}, {before:?}, {after:?}");
        }
        let keys: u64 = client.ask("DBSIZE").parse().unwrap();
        let mut counted = CLIENTS as u64;
        for number in 0..CLIENTS {
            counted +=
                (1..).take_while(|n| client.ask(&format!("EXISTS c{number}:{n}")) == "1").count() as u64;
        }
        assert_eq!(keys, counted, "the count is exact");
    }
}

/// One connection commits at `none` as fast as it can, another one at `sync`; a third one reads both. Nothing that the reader was
/// shown of the synchronous ones is undone by a power cut.
#[test]
fn no_reply_shows_a_synchronous_commit_that_a_power_cut_undoes() {
    for round in 0..8 {
        let (env, db, server) = serve(config());
        let stops = AtomicBool::new(false);
        let shown = AtomicU64::new(0);
        let (crashed, seen) = std::thread::scope(|scope| {
            let _stopper = Stopper(&stops);
            for (key, level) in [("sync", "sync"), ("none", "none")] {
                let (server, stops) = (&server, &stops);
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    assert_eq!(client.ask(&format!("DURABILITY {level}")), "OK");
                    for n in 1_u64.. {
                        if stops.load(Ordering::SeqCst) {
                            return;
                        }
                        assert_eq!(client.ask(&format!("SET {key} {n}")), "OK");
                    }
                });
            }
            let reader = {
                let (server, stops, shown) = (&server, &stops, &shown);
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    while !stops.load(Ordering::SeqCst) {
                        for command in ["GET sync", "MGET sync none"] {
                            let reply = client.ask(command);
                            let number = reply.trim_matches(['[', ']', '"', ' ']).split('"').next().unwrap();
                            shown.fetch_max(number.parse().unwrap_or(0), Ordering::SeqCst);
                        }
                    }
                })
            };
            wait_until(|| shown.load(Ordering::SeqCst) > 0);
            std::thread::park_timeout(Duration::from_millis(40 + 11 * round));
            let seen = shown.load(Ordering::SeqCst);
            let crashed = env.crash(CrashKind::PowerCut, round);
            stops.store(true, Ordering::SeqCst);
            reader.join().unwrap();
            (crashed, seen)
        });
        drop((server, db));
        let server = Server::start(open(&crashed), config()).unwrap();
        let found = Client::connect(&server).ask("GET sync");
        let found: u64 = found.trim_matches('"').parse().unwrap();
        assert!(found >= seen, "round {round}: a client was shown {seen}, and {found} is left");
    }
}

/// No thread writes the log, but this one: until it does, no reply leaves that a power cut could make untrue, on any connection and
/// at any level; and after it all do.
#[test]
fn replies_wait_for_the_commits_that_they_show() {
    for dispatch in Dispatch::ALL {
        let env = SimEnv::new(1);
        let db = open_with(&env, Options { background: false, ..Options::default() });
        let mut config = config();
        (config.flushing, config.dispatch) = (Flushing::Watch, dispatch);
        let server = Server::start(db.clone(), config).unwrap();
        let connect = || Client::connect(&server);
        let mut unwaited = connect();
        assert_eq!(unwaited.ask("DURABILITY none"), "OK");
        assert_eq!(unwaited.ask("SET other 1"), "OK");
        let mut reader = connect();
        assert_eq!(reader.ask("GET other"), "\"1\"", "what was acknowledged at its level needs nothing");
        let mut writer = connect();
        writer.send_command("SET k 1");
        assert!(writer.is_silent(), "{dispatch:?}: acknowledged before it is durable");
        // A careless client acknowledges commits after it, which must not drag it into sight.
        assert_eq!(unwaited.ask("SET later 1"), "OK");
        let asked = [
            ("GET k", "\"1\""),
            ("MGET nothing k", "[nil \"1\"]"),
            ("EXISTS k", "1"),
            ("TYPE k", "string"),
            ("TTL k", "-1"),
            ("SET k 2 NX", "nil"),
            ("SETNX k 2", "0"),
            ("APPEND k 2", "2"),
            // Reads see the commits that were acknowledged, and those before them; commands that write see all.
            ("STRLEN k", "1"),
            ("SET k text GET", "\"12\""),
            ("INCR k", "-ERR value is not an integer or out of range"),
            ("DEL k", "1"),
            ("GET k", "\"1\""),
            ("SETNX k back", "1"),
        ];
        let mut clients: Vec<_> = asked
            .iter()
            .map(|(command, _)| {
                let mut client = connect();
                client.send_command(command);
                assert!(client.is_silent(), "{dispatch:?}: {command} shows what is not durable");
                client
            })
            .collect();
        assert_eq!(connect().ask("PING"), "PONG", "replies that depend on nothing do not wait");
        let crashed = env.crash(CrashKind::PowerCut, 1);
        db.wait_durable(db.visible_csn()).unwrap();
        assert_eq!(writer.receive_text(), "OK");
        for (client, (command, expected)) in clients.iter_mut().zip(asked) {
            assert_eq!(client.receive_text(), expected, "{dispatch:?}: {command}");
        }
        let server = Server::start(open(&crashed), self::config()).unwrap();
        assert_eq!(Client::connect(&server).ask("GET k"), "nil", "a power cut would have undone it");
    }
}

/// What a client reads after WATCH is at least as new as what it watches: else a write between the two would be lost.
#[test]
fn reads_after_watch_see_what_is_watched() {
    let env = SimEnv::new(1);
    let db = open_with(&env, Options { background: false, ..Options::default() });
    let mut config = config();
    config.flushing = Flushing::Lead;
    let server = Server::start(db.clone(), config.clone()).unwrap();
    assert_eq!(Client::connect(&server).ask("SET k 1"), "OK");
    drop(server);
    config.flushing = Flushing::Watch;
    let server = Server::start(db.clone(), config).unwrap();
    let (mut writer, mut client) = (Client::connect(&server), Client::connect(&server));
    writer.send_command("SET k 2");
    assert!(writer.is_silent());
    let mut reader = Client::connect(&server);
    for command in ["MGET nothing k", "GET k", "SET k 9 NX", "MGET nothing k", "GET k"] {
        reader.send_command(command);
    }
    for expected in ["[nil \"1\"]", "\"1\""] {
        assert_eq!(reader.receive_text(), expected, "it shows what is durable, and does not wait");
    }
    assert!(reader.is_silent(), "the next one shows a commit that is not durable");
    assert_eq!(client.ask("WATCH k"), "OK");
    client.send_command("GET k");
    assert!(client.is_silent(), "it shows a commit that is not durable");
    for command in ["MULTI", "SET k 3", "EXEC"] {
        client.send_command(command);
    }
    db.wait_durable(db.visible_csn()).unwrap();
    for expected in ["nil", "[nil \"2\"]", "\"2\""] {
        assert_eq!(reader.receive_text(), expected, "no read is older than one before it");
    }
    assert_eq!(client.receive_text(), "\"2\"");
    assert_eq!((client.receive_text(), client.receive_text()), ("OK".into(), "QUEUED".into()));
    wait_until(|| db.wait_durable(db.visible_csn()).is_ok() && !client.is_silent());
    assert_eq!(client.receive_text(), "[OK]");
}

/// A commit at `none` that read one at `sync` on its way is acknowledged once that is durable: then every connection sees it.
#[test]
fn what_was_acknowledged_at_a_lower_level_is_seen_by_all() {
    let dir = tempfile::tempdir().unwrap();
    let db = fulgurite::Database::open(dir.path().join("data"), Options::default()).unwrap();
    for flushing in [Flushing::Watch, Flushing::Auto] {
        let mut config = config();
        config.flushing = flushing;
        let server = Server::start(db.clone(), config).unwrap();
        let stops = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (server, stops) = (&server, &stops);
            let _stopper = Stopper(stops);
            scope.spawn(move || {
                let mut client = Client::connect(server);
                for n in 0.. {
                    if stops.load(Ordering::SeqCst) {
                        return;
                    }
                    assert_eq!(client.ask(&format!("SET sync {n}")), "OK");
                }
            });
            let (mut unwaited, mut other) = (Client::connect(server), Client::connect(server));
            assert_eq!(unwaited.ask("DURABILITY none"), "OK");
            assert_eq!(unwaited.ask("SET n 0"), "OK");
            for n in 1..=400 {
                for command in ["MULTI", "GET sync", "INCR n", "EXEC"] {
                    unwaited.send_command(command);
                }
                let replies: Vec<String> = (0..4).map(|_| unwaited.receive_text()).collect();
                assert!(replies[3].ends_with(&format!(" {n}]")), "{replies:?}");
                assert_eq!(
                    other.ask("GET n"),
                    format!("\"{n}\""),
                    "{flushing:?}: acknowledged, and not seen"
                );
            }
            stops.store(true, Ordering::SeqCst);
        });
    }
}

/// A hot key: no increment is lost or made twice, on two threads and on workers.
#[test]
fn increments_of_one_key_are_exact() {
    for dispatch in Dispatch::ALL {
        let mut config = config();
        (config.io_threads, config.workers, config.dispatch) = (2, 3, dispatch);
        let (_, db, server) = serve(config);
        let seen = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8)
                .map(|_| {
                    let server = &server;
                    scope.spawn(move || {
                        let mut client = Client::connect(server);
                        (0..200).map(|_| client.ask("INCR n").parse::<u64>().unwrap()).collect::<Vec<_>>()
                    })
                })
                .collect();
            let mut counts = BTreeMap::<u64, u32>::new();
            for client in clients {
                let replies = client.join().unwrap();
                assert!(replies.is_sorted(), "a client sees its own increments in order");
                replies.into_iter().for_each(|reply| *counts.entry(reply).or_default() += 1);
            }
            counts
        });
        assert!(seen.into_iter().eq((1..=1_600).map(|n| (n, 1))), "{dispatch:?}");
        assert_eq!(Client::connect(&server).ask("GET n"), "\"1600\"");
        assert_eq!(db.stats().conflicts, 0, "{dispatch:?}: locks of keys keep commands from conflicts");
    }
}

/// Keys that expire are gone for every command from their millisecond on, are reclaimed without being touched, and stay so through
/// a crash.
#[test]
fn expired_keys_are_gone_and_reclaimed() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    for n in 0..1_000 {
        assert_eq!(client.ask(&format!("SET soon{n} v PX 10000")), "OK");
    }
    assert_eq!(client.ask("SET later v EX 1000"), "OK");
    assert_eq!(client.ask("SET never v"), "OK");
    // Those of two databases expire in turns.
    for n in 0..20 {
        assert_eq!(client.ask(&format!("SELECT {}", n % 2 + 1)), "OK");
        assert_eq!(client.ask(&format!("SET soon{n} v PX {}", 9_000 + n)), "OK");
    }
    assert_eq!(client.ask("SELECT 0"), "OK");
    // Written again with a longer life, and without an end.
    assert_eq!(client.ask("SET soon0 v EX 1000"), "OK");
    assert_eq!(client.ask("PERSIST soon1"), "1");
    assert_eq!(client.ask("DBSIZE"), "1002");
    env.advance(Duration::from_millis(10_001));
    assert_eq!(client.ask("EXISTS soon2 soon3 soon0 soon1"), "2");
    assert_eq!(client.ask("SET soon4 back"), "OK");
    wait_until(|| client.ask("DBSIZE") == "5");
    assert_eq!(client.ask("DBSIZE"), "5", "soon0, soon1, soon4, later, never");
    for database in [1, 2] {
        assert_eq!(client.ask(&format!("SELECT {database}")), "OK");
        assert_eq!(client.ask("DBSIZE"), "0");
    }
    assert_eq!(db.open_table("redis:expiry").unwrap().range(..).unwrap().count(), 2, "soon0, later");
    assert_eq!(db.open_table("redis:heads").unwrap().range(..).unwrap().count(), 5);
    drop(client);
    server.stop();
    drop(db);
    let crashed = env.crash(CrashKind::PowerCut, 1);
    let server = Server::start(open(&crashed), config()).unwrap();
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("EXISTS soon2 soon0 soon1 soon4 later never"), "5");
}

/// A server that stops sends the replies of commands that ran.
#[test]
fn stopping_sends_the_replies_that_are_due() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    for n in 0..100 {
        client.send_command(&format!("SET k{n} {n}"));
    }
    assert_eq!(client.receive_text(), "OK");
    server.stop();
    let replies = std::iter::from_fn(|| client.receive()).count() as u64 + 1;
    let written = (0..100).filter(|n| {
        db.open_table("redis:heads")
            .unwrap()
            .get([&[0; 4], format!("k{n}").as_bytes()].concat())
            .unwrap()
            .is_some()
    });
    assert_eq!(written.count() as u64, replies, "each commit was acknowledged");
}
