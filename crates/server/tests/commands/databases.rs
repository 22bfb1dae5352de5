//! FLUSHDB, FLUSHALL, SWAPDB and SCAN: what they do to the commands of others, to WATCH, and over crashes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use fulgurite::env::sim::CrashKind;
use fulgurite_resp::Reply;
use fulgurite_server::{Dispatch, Server};

#[test]
fn databases_are_flushed_and_swapped() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        for (command, expected) in [
            ("SET a 1", "OK"),
            ("HSET h f v", "1"),
            ("SELECT 1", "OK"),
            ("SET b 2", "OK"),
            ("SWAPDB 0 1", "OK"),
            ("MGET a b", "[\"1\" nil]"),
            ("HGET h f", "\"v\""),
            ("DBSIZE", "2"),
            ("FLUSHDB", "OK"),
            ("DBSIZE", "0"),
            ("EXISTS a h", "0"),
            ("HGETALL h", "[]"),
            ("SET a 3", "OK"),
            ("SELECT 0", "OK"),
            ("KEYS *", "[\"b\"]"),
            ("FLUSHALL SYNC", "OK"),
            ("RANDOMKEY", "nil"),
            ("SWAPDB 0 1", "OK"),
            ("DBSIZE", "0"),
            ("SWAPDB 0 0", "OK"),
            ("SWAPDB 0 16", "-ERR DB index is out of range"),
            ("SWAPDB x 1", "-ERR invalid first DB index"),
            ("SWAPDB 0 x", "-ERR invalid second DB index"),
            ("FLUSHDB NOW", "-ERR syntax error"),
        ] {
            assert_eq!(client.ask(command), expected, "{dispatch:?}: {command}");
        }
    }
}

#[test]
fn a_flush_in_exec_is_one_with_the_other_commands() {
    for dispatch in Dispatch::ALL {
        let (env, db, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        assert_eq!(client.ask("MSET a 1 b 1"), "OK");
        for command in [
            "MULTI",
            "SET a 2",
            "FLUSHDB",
            "EXISTS a b",
            "SET c 3",
            "SWAPDB 0 1",
            "DBSIZE",
            "SET d 4",
            "EXEC",
        ] {
            client.send_command(command);
        }
        for _ in 0..8 {
            client.receive_text();
        }
        assert_eq!(client.receive_text(), "[OK OK 0 OK OK 0 OK]", "{dispatch:?}");
        assert_eq!(client.ask("KEYS *"), "[\"d\"]");
        assert_eq!(client.ask("SELECT 1"), "OK");
        assert_eq!(client.ask("KEYS *"), "[\"c\"]");
        drop((server, db));
        let server = Server::start(open(&env.crash(CrashKind::PowerCut, 1)), config()).unwrap();
        let mut client = Client::connect(&server);
        assert_eq!(client.ask("KEYS *"), "[\"d\"]", "after a power cut");
        assert_eq!(client.ask("DBSIZE"), "1");
    }
}

#[test]
fn a_watched_key_that_was_flushed_or_swapped_discards_the_transaction() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
        for (before, changes, expected) in [
            ("SET k 1", "FLUSHDB", "nil"),
            ("SET k 1", "FLUSHALL", "nil"),
            ("SET k 1", "SWAPDB 0 1", "nil"),
            ("HSET k f v", "FLUSHDB", "nil"),
            ("HSET k f v", "HSET k f v", "nil"),
            ("HSET k f v", "HDEL k f", "nil"),
            ("HSET k f v", "EXPIRE k 100", "nil"),
            ("DEL k", "FLUSHDB", "[OK]"),
            ("DEL k", "SWAPDB 0 1", "[OK]"),
            ("SET k 1", "SWAPDB 1 2", "[OK]"),
        ] {
            assert_eq!(other.ask("FLUSHALL"), "OK");
            other.ask(before);
            assert_eq!(client.ask("WATCH k"), "OK");
            let reply = other.ask(changes);
            assert!(!reply.starts_with('-'), "{reply}");
            assert_eq!(client.ask("MULTI"), "OK");
            assert_eq!(client.ask("SET k 3"), "QUEUED");
            assert_eq!(client.ask("EXEC"), expected, "{dispatch:?}: {before}, {changes}");
        }
        // It did not exist, was written, and went with its keyspace, or with the one after it.
        for commands in [
            &["SET k 1", "FLUSHDB"][..],
            &["FLUSHDB", "SET k 1", "DEL k"],
            &["FLUSHDB", "SET k 1", "FLUSHDB"],
        ] {
            assert_eq!(other.ask("FLUSHALL"), "OK");
            assert_eq!(client.ask("WATCH k"), "OK");
            for command in commands {
                assert!(!other.ask(command).starts_with('-'));
            }
            assert_eq!(client.ask("MULTI"), "OK");
            assert_eq!(client.ask("EXEC"), "nil", "{dispatch:?}: {commands:?}");
        }
        // Swapped in: it exists now, and did not.
        assert_eq!(other.ask("FLUSHALL"), "OK");
        for command in ["SELECT 1", "SET k 1", "SELECT 0"] {
            assert_eq!(other.ask(command), "OK");
        }
        assert_eq!(client.ask("WATCH k"), "OK");
        assert_eq!(other.ask("SWAPDB 0 1"), "OK");
        assert_eq!(client.ask("MULTI"), "OK");
        assert_eq!(client.ask("EXEC"), "nil", "{dispatch:?}");
    }
}

/// Clients write, one flushes. After a power cut what was acknowledged since the last flush ended is there, and nothing that was
/// acknowledged before a flush began that was acknowledged, too.
#[test]
fn flushes_and_writes_survive_power_cuts() {
    let mut quiet_rounds = 0;
    for round in 0..10_u64 {
        let mut config = config();
        config.io_threads = 2;
        let (env, db, server) = serve(config);
        // Twice the number of flushes that were acknowledged; odd while one is on its way.
        let (flushes, stops) = (AtomicU64::new(0), AtomicBool::new(false));
        // No more flushes until the crash.
        let rests = AtomicBool::new(false);
        // By client: the last write that was acknowledged with no flush on its way, and the flushes then.
        let written: [AtomicU64; 2] = Default::default();
        // By client and write: the flushes when it had been acknowledged.
        let acknowledged: [Mutex<HashMap<String, u64>>; 2] = Default::default();
        let (crashed, before, after, written) = std::thread::scope(|scope| {
            let _stopper = Stopper(&stops);
            let (server, stops, flushes, rests) = (&server, &stops, &flushes, &rests);
            for (number, (written, acknowledged)) in written.iter().zip(&acknowledged).enumerate() {
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    for n in 1_u64.. {
                        if stops.load(Ordering::SeqCst) {
                            return;
                        }
                        let at = flushes.load(Ordering::SeqCst);
                        assert_eq!(client.ask(&format!("SET w{number}:{n} {at}")), "OK");
                        let then = flushes.load(Ordering::SeqCst);
                        acknowledged.lock().unwrap().insert(format!("w{number}:{n}"), then);
                        assert_eq!(client.ask(&format!("HSET h{number} f{n} {at}")), "1");
                        if at.is_multiple_of(2) && flushes.load(Ordering::SeqCst) == at {
                            written.store(n << 32 | at, Ordering::SeqCst);
                        }
                    }
                });
            }
            scope.spawn(move || {
                let mut client = Client::connect(server);
                while !stops.load(Ordering::SeqCst) {
                    flushes.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(client.ask("FLUSHDB"), "OK");
                    flushes.fetch_add(1, Ordering::SeqCst);
                    std::thread::park_timeout(Duration::from_millis(3));
                    while rests.load(Ordering::SeqCst) && !stops.load(Ordering::SeqCst) {
                        std::thread::park_timeout(Duration::from_millis(1));
                    }
                }
            });
            let is_well_on = || written.iter().all(|written| written.load(Ordering::SeqCst) > 0);
            wait_until(is_well_on);
            std::thread::park_timeout(Duration::from_millis(20 + 9 * round));
            // In every second round all have written since the last flush.
            if round % 2 == 0 {
                rests.store(true, Ordering::SeqCst);
                wait_until(|| {
                    let at = flushes.load(Ordering::SeqCst);
                    let since = |written: &AtomicU64| written.load(Ordering::SeqCst) & 0xffff_ffff == at;
                    at.is_multiple_of(2) && written.iter().all(since)
                });
            }
            let read = || written.each_ref().map(|written| written.load(Ordering::SeqCst));
            let (before, written) = (flushes.load(Ordering::SeqCst), read());
            let crashed = env.crash(CrashKind::PowerCut, round);
            let after = flushes.load(Ordering::SeqCst);
            stops.store(true, Ordering::SeqCst);
            (crashed, before, after, written)
        });
        drop((server, db));
        let db = open(&crashed);
        let server = Server::start(db, self::config()).unwrap();
        let mut client = Client::connect(&server);
        let mut keys = BTreeSet::new();
        let mut cursor = "0".to_string();
        loop {
            let (next, found) = scan(&mut client, &format!("SCAN {cursor} COUNT 7"));
            keys.extend(found);
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        for acknowledged in &acknowledged {
            let acknowledged = acknowledged.lock().unwrap();
            for (key, then) in keys.iter().filter_map(|key| Some((key, *acknowledged.get(key)?))) {
                // The next flush made it odd, and even once it was acknowledged.
                let flushed = then.next_multiple_of(2) + 2;
                assert!(
                    before < flushed,
                    "round {round}: {key} was acknowledged at {then}, flushes at {before}"
                );
            }
        }
        if before == after && before.is_multiple_of(2) {
            for (number, written) in written.into_iter().enumerate() {
                let (n, at) = (written >> 32, written & 0xffff_ffff);
                if at == before {
                    assert!(keys.contains(&format!("w{number}:{n}")), "round {round}: w{number}:{n} is lost");
                    assert_eq!(
                        client.ask(&format!("HGET h{number} f{n}")),
                        format!("\"{at}\""),
                        "round {round}"
                    );
                    quiet_rounds += 1;
                }
            }
        }
        assert_eq!(client.ask("DBSIZE"), keys.len().to_string(), "the count is exact");
    }
    assert!(quiet_rounds >= 10, "{quiet_rounds}");
}

/// The cursor and the keys of a reply to `SCAN`.
fn scan(client: &mut Client, command: &str) -> (String, Vec<String>) {
    client.send_command(command);
    let Some(Reply::Array(reply)) = client.receive() else { panic!("{command}: no array") };
    let [Reply::Bulk(cursor), Reply::Array(found)] = &reply[..] else { panic!("{command}: {reply:?}") };
    let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let found = found.iter().map(|item| match item {
        Reply::Bulk(item) => utf8(item),
        other => panic!("{other:?}"),
    });
    (utf8(cursor), found.collect())
}

/// Every key and field that is there from beginning to end is returned, whatever others do meanwhile.
#[test]
fn scans_return_what_stays() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
        for n in 0..500 {
            client.send_command(&format!("SET stays:{n} {n}"));
            client.send_command(&format!("HSET h stays:{n} {n}"));
            client.send_command(&format!("SET goes:{n} {n}"));
        }
        (0..1_500).for_each(|_| _ = client.receive_text());
        for (command, width) in [("SCAN", 1), ("HSCAN h", 2)] {
            let (mut cursor, mut found, mut calls) = ("0".to_string(), BTreeSet::new(), 0);
            loop {
                let (next, items) = scan(&mut client, &format!("{command} {cursor} MATCH stays:* COUNT 10"));
                assert!(items.len() <= 10 * width, "{command}");
                found.extend(items.into_iter().step_by(width));
                other.ask(&format!("DEL goes:{calls}"));
                other.ask(&format!("SET new:{calls} 1"));
                other.ask(&format!("HSET h new:{calls} 1"));
                (cursor, calls) = (next, calls + 1);
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!(found.len(), 500, "{dispatch:?}: {command}");
            assert!(calls > 40, "{command}: {calls}");
        }
    }
}

#[test]
fn a_cursor_that_the_server_does_not_know_is_an_error() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("MSET a 1 b 2 c 3"), "OK");
    let (cursor, found) = scan(&mut client, "SCAN 0 COUNT 1");
    assert_eq!(found, ["a"]);
    assert_eq!(scan(&mut client, &format!("SCAN {cursor} COUNT 1")).1, ["b"]);
    assert_eq!(scan(&mut client, &format!("SCAN {cursor} COUNT 5")).1, ["b", "c"], "it may be used again");
    let unknown = "-ERR invalid cursor: the server does not know it any more; begin again with 0";
    assert_eq!(client.ask("SCAN 12345"), unknown);
    assert_eq!(client.ask("FLUSHDB"), "OK");
    assert_eq!(client.ask("SET d 4"), "OK");
    assert_eq!(scan(&mut client, &format!("SCAN {cursor}")), ("0".into(), vec![]), "nothing is left of then");
    drop((server, db));
    let server = Server::start(open(&env), config()).unwrap();
    assert_eq!(Client::connect(&server).ask(&format!("SCAN {cursor}")), unknown);
}

/// What nothing refers to any more is deleted in the background, over restarts, too, and its records with it.
#[test]
fn what_was_deleted_is_reclaimed() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let fill = |client: &mut Client| {
        for hash in 0..4 {
            for first in (0..1_000).step_by(100) {
                let fields: String = (first..first + 100).map(|n| format!(" f{n} {n}")).collect();
                assert_eq!(client.ask(&format!("HSET h{hash}{fields}")), "100");
            }
        }
        assert_eq!(client.ask("SET s 1 EX 1000"), "OK");
    };
    let rows =
        |db: &fulgurite::Database, table: &str| db.open_table(table).unwrap().range(..).unwrap().count();
    fill(&mut client);
    assert_eq!(rows(&db, "redis:content"), 4_000);
    assert_eq!(client.ask("DEL h0"), "1");
    assert_eq!(client.ask("SET h1 text"), "OK");
    assert_eq!(client.ask("PEXPIRE h2 1"), "1");
    assert_eq!(client.ask("RENAME h3 h4"), "OK");
    env.advance(Duration::from_secs(1));
    wait_until(|| rows(&db, "redis:content") == 1_000 && rows(&db, "redis:garbage") == 0);
    assert_eq!(client.ask("HLEN h4"), "1000");
    assert_eq!(client.ask("DBSIZE"), "3");
    let stats = client.ask("INFO stats");
    for line in
        ["expired_keys:1\r", "fulgurite_reclaimed_rows:3000\r", "fulgurite_reclaimed_flushed_keys:0\r"]
    {
        assert!(stats.contains(line), "{line}, {stats}");
    }
    assert_eq!(client.ask("FLUSHALL"), "OK");
    fill(&mut client);
    assert_eq!(client.ask("FLUSHDB"), "OK");
    drop((server, db));
    // The rest in another life.
    let crashed = env.crash(CrashKind::PowerCut, 3);
    let db = open(&crashed);
    let server = Server::start(db.clone(), config()).unwrap();
    wait_until(|| rows(&db, "redis:content") == 0 && rows(&db, "redis:garbage") == 0);
    for table in ["redis:heads", "redis:expiry", "redis:counts"] {
        assert_eq!(rows(&db, table), 0, "{table}");
    }
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("DBSIZE"), "0");
    fill(&mut client);
    assert_eq!(client.ask("HLEN h0"), "1000");
}

/// A FLUSHALL that fails in EXEC undoes itself, and not the FLUSHDB before it.
#[test]
fn a_flush_that_fails_in_exec_leaves_the_one_before_it() {
    // FLUSHDB, so many keys and FLUSHALL in EXEC, whose reply it is, in a server with little room for a transaction.
    let exec = |keys: usize| {
        let env = fulgurite::env::SimEnv::new(1);
        let options = fulgurite::Options { transaction_bytes_max: 1 << 20, ..fulgurite::Options::default() };
        let db = open_with(&env, options);
        let server = Server::start(db.clone(), config()).unwrap();
        let mut client = Client::connect(&server);
        assert_eq!(client.ask("SET before 1"), "OK");
        client.send_command("MULTI");
        client.send_command("FLUSHDB");
        let long = "x".repeat(200);
        (0..keys).for_each(|n| client.send_command(&format!("SET k{n}{long} 1")));
        client.send_command("FLUSHALL");
        (0..keys + 3).for_each(|_| _ = client.receive_text());
        let reply = client.ask("EXEC");
        (env, db, server, client, reply)
    };
    // How many are the fewest for which there is no room: FLUSHALL has none with a few fewer.
    let (mut fit, mut too_many) = (600, 2_600);
    while too_many - fit > 1 {
        let middle = (fit + too_many) / 2;
        let (.., reply) = exec(middle);
        if reply.starts_with('-') { too_many = middle } else { fit = middle }
    }
    let fails_alone = |keys: usize| Some(exec(keys)).filter(|(.., reply)| reply.contains("-ERR"));
    let found = (fit.saturating_sub(10)..=fit).rev().find_map(fails_alone);
    let (env, db, server, mut client, _) = found.expect("a FLUSHALL that failed alone");
    assert_eq!(client.ask("GET before"), "nil", "FLUSHDB said OK");
    assert_eq!(client.ask("SET after 1"), "OK");
    drop((server, db));
    let server = Server::start(open(&env), config()).unwrap();
    assert_eq!(Client::connect(&server).ask("MGET after before"), "[\"1\" nil]");
}

/// After a failed log a change of databases is refused, again and again, and workers go on.
#[test]
fn flushes_are_refused_after_the_log_failed() {
    let (env, _db, server) = serve(config());
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("SET a 1"), "OK");
    env.faults().fail_all_writes(true);
    assert_eq!(client.ask("FLUSHDB"), "closed");
    for command in ["FLUSHDB", "SWAPDB 0 1", "FLUSHALL"] {
        let reply = Client::connect(&server).ask(command);
        assert!(reply.starts_with("-MISCONF") || reply == "closed", "{command}: {reply}");
    }
    let mut client = Client::connect(&server);
    for command in ["MULTI", "FLUSHDB"] {
        client.ask(command);
    }
    let reply = client.ask("EXEC");
    assert!(reply.contains("-MISCONF") || reply == "closed", "{reply}");
    assert_eq!(Client::connect(&server).ask("EXISTS a"), "1");
    assert_eq!(Client::connect(&server).ask("KEYS *"), "[\"a\"]", "a worker");
}

/// A COPY into a database that is flushed meanwhile, and which conflicts: its second attempt writes to what the database has then.
#[test]
fn a_copy_that_runs_again_knows_the_new_keyspace() {
    let mut config = config();
    (config.workers, config.io_threads) = (3, 2);
    let (_, db, server) = serve(config);
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    for first in (0..50_000).step_by(1_000) {
        let fields: String = (first..first + 1_000).map(|n| format!(" f{n} 1")).collect();
        client.ask(&format!("HSET h{fields}"));
    }
    let rows = |table: &str| db.open_table(table).unwrap().range(..).unwrap().count();
    let mut conflicts = 0;
    for round in 0..20 {
        for command in ["SELECT 1", "SET x 1"] {
            assert_eq!(other.ask(command), "OK");
        }
        let before = db.stats().conflicts;
        client.send_command("COPY h h DB 1 REPLACE");
        std::thread::park_timeout(Duration::from_millis(2 * round));
        for command in ["FLUSHDB", "SELECT 5", "MULTI", "SELECT 0", "HSET h f1 2", "SELECT 5", "EXEC"] {
            assert!(!other.ask(command).starts_with('-'), "{command}");
        }
        assert_eq!(client.receive_text(), "1");
        conflicts += db.stats().conflicts - before;
    }
    assert!(conflicts > 0);
    wait_until(|| rows("redis:garbage") == 0);
    assert_eq!(other.ask("SELECT 1"), "OK");
    let copies = usize::from(other.ask("EXISTS h") == "1");
    assert_eq!(rows("redis:heads"), 1 + copies + usize::from(other.ask("EXISTS x") == "1"));
    assert_eq!(rows("redis:content"), 50_000 * (1 + copies));
}
