//! What one client cannot do to the others, and what a full disk does to all.

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use fulgurite::{Database, Options};
use fulgurite_server::Server;

/// While a client does something, how long another one's PING takes at most.
#[expect(clippy::disallowed_methods, reason = "the time of real sockets")]
fn longest_ping(server: &Server, while_it: impl FnOnce(Client, &AtomicBool) + Send) -> Duration {
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopper = Stopper(&stops);
        let flooding = Client::connect(server);
        scope.spawn(|| while_it(flooding, &stops));
        let mut client = Client::connect(server);
        let mut longest = Duration::ZERO;
        for _ in 0..100 {
            let began = Instant::now();
            assert_eq!(client.ask("PING"), "PONG");
            longest = longest.max(began.elapsed());
        }
        stops.store(true, Ordering::SeqCst);
        longest
    })
}

/// Floods that hold no command, or an unfinished one, or thousands, have turns as all others.
#[test]
fn no_client_keeps_the_others_from_their_turns() {
    let (_, _, server) = serve(config());
    let floods: [(&str, Vec<u8>); 4] = [
        ("empty lines", b"\r\n".repeat(50_000)),
        ("empty commands", b"*0\r\n".repeat(20_000)),
        (
            "an argument that does not end",
            [b"*1000000\r\n$100000000\r\n".to_vec(), vec![b'x'; 1 << 20]].concat(),
        ),
        ("commands without a pause", b"SET k v\r\n".repeat(10_000)),
    ];
    for (name, bytes) in floods {
        let longest = longest_ping(&server, |client, stops| {
            let mut reader = client.stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
                let mut writer = &client.stream;
                while !stops.load(Ordering::SeqCst) && writer.write_all(&bytes).is_ok() {}
                _ = client.stream.shutdown(Shutdown::Both);
            });
        });
        assert!(longest < Duration::from_secs(3), "{name}: {longest:?}");
    }
}

#[test]
fn a_command_that_is_too_long_ends_its_connection() {
    let mut config = config();
    config.query_bytes_max = 1 << 20;
    let (_, _, server) = serve(config);
    let mut client = Client::connect(&server);
    let mut bytes = b"*1000000\r\n".to_vec();
    (0..100_000).for_each(|_| bytes.extend_from_slice(b"$10\r\n0123456789\r\n"));
    _ = client.stream.write_all(&bytes);
    assert_eq!(client.receive_text(), "closed");
    let mut large = Client::connect(&server);
    _ = large
        .stream
        .write_all(&[b"*2\r\n$4\r\nECHO\r\n$3000000\r\n".to_vec(), vec![b'x'; 3_000_000]].concat());
    assert_eq!(large.receive_text(), "closed");
    assert_eq!(Client::connect(&server).ask("PING"), "PONG");
}

/// Neither a queue of commands without end, nor one that is merely long, nor a long value or many keys are a matter of the others.
#[test]
fn long_transactions_are_bounded_and_long_commands_run_elsewhere() {
    let mut config = config();
    config.query_bytes_max = 1 << 20;
    let (_, _, server) = serve(config);
    let mut client = Client::connect(&server);
    let value = "v".repeat(60_000);
    assert_eq!(client.ask("MULTI"), "OK");
    let refused = (0..100).map(|_| client.ask(&format!("SET k {value}"))).find(|reply| reply != "QUEUED");
    assert_eq!(refused.unwrap(), "-ERR the transaction is longer than query_bytes_max");
    assert_eq!(client.ask("EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.ask("EXISTS k"), "0");
    // Long ones are run, by workers.
    let keys: Vec<String> = (0..1_000).map(|n| format!("k{n}")).collect();
    let pairs: Vec<&str> = keys.iter().flat_map(|key| [key.as_str(), "1"]).collect();
    assert_eq!(client.ask(&format!("MSET {}", pairs.join(" "))), "OK");
    assert_eq!(client.ask(&format!("WATCH {} {}", keys.join(" "), keys.join(" "))), "OK");
    assert_eq!(client.ask("MULTI"), "OK");
    keys.iter().for_each(|key| assert_eq!(client.ask(&format!("INCR {key}")), "QUEUED"));
    assert!(client.ask("EXEC").ends_with(" 2 2 2]"));
    assert_eq!(client.ask(&format!("SET long {}", "v".repeat(500_000))), "OK");
    assert_eq!(client.ask("STRLEN long"), "500000");
    assert_eq!(client.ask("GET long").len(), 500_002);
    let reasons = client.ask("INFO fulgurite_commands");
    let count = |reason: &str| {
        let line = format!("fulgurite_handed_on_for_{reason}:");
        let rest = reasons.split(&line).nth(1).unwrap();
        rest.split(|end: char| !end.is_ascii_digit()).next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(count("size"), 4, "MSET, WATCH, EXEC and GET");
}

/// Where checkpoints are behind, commands that write wait in the input of their connections; all of them run, and others do not wait.
#[test]
fn writes_that_are_slowed_are_left_for_later() {
    const COMMANDS: usize = 8_000;
    let dir = tempfile::tempdir().unwrap();
    // Its checkpoints are slower than the log grows.
    let options = Options {
        checkpoint_log_bytes: 1 << 20,
        checkpoint_bytes_per_second: Some(2 << 20),
        ..Options::default()
    };
    let db = Database::open(dir.path().join("data"), options).unwrap();
    let server = Server::start(db, config()).unwrap();
    let value = vec![b'v'; 200];
    let writes = |number: usize| {
        let mut client = Client::connect(&server);
        for from in (0..COMMANDS).step_by(50) {
            for n in from..from + 50 {
                client.send_arguments(&[&b"SET"[..], format!("{number}:{n}").as_bytes(), &value]);
                client.send_arguments(&[&b"INCR"[..], format!("count:{number}").as_bytes()]);
            }
            for n in from..from + 50 {
                assert_eq!(client.receive_text(), "OK");
                assert_eq!(client.receive_text(), (n + 1).to_string());
            }
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|number| scope.spawn(move || writes(number))).collect();
        let mut client = Client::connect(&server);
        while !writers.iter().all(|writer| writer.is_finished()) {
            assert_eq!(client.ask("PING"), "PONG");
        }
    });
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("DBSIZE"), (4 * COMMANDS + 4).to_string());
    assert!(figure(&mut client, "fulgurite_commands_left_for_later") > 0, "no commit was slowed");
}

/// A connection with a command of so many bytes that has not ended.
fn with_unfinished(server: &Server, bytes: usize) -> Client {
    let mut client = Client::connect(server);
    client.send(&[b"*2\r\n$4\r\nECHO\r\n$90000000\r\n".to_vec(), vec![b'x'; bytes]].concat());
    client
}

const MIB: usize = 1 << 20;

#[test]
fn buffers_of_connections_count_within_the_memory_of_the_database() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("PING"), "PONG");
    let connected = db.stats().memory.program_bytes;
    assert!((1..64 << 10).contains(&connected), "{connected} bytes of one connection");
    let arriving = with_unfinished(&server, 8 * MIB);
    wait_until(|| db.stats().memory.program_bytes > 8 * MIB as u64);
    let bytes = db.stats().memory.program_bytes;
    assert!(bytes < 9 * MIB as u64, "{bytes}");
    assert!(client.ask("INFO memory").contains(&format!("mem_clients_normal:{bytes}")));
    // Commands of a transaction, and one that waits for the end of a pause.
    let value = "v".repeat(2 * MIB);
    let mut queueing = Client::connect(&server);
    assert_eq!(queueing.ask("MULTI"), "OK");
    assert_eq!(queueing.ask(&format!("APPEND k {value}")), "QUEUED");
    assert_eq!(client.ask("CLIENT PAUSE 100000 WRITE"), "OK");
    let mut paused = Client::connect(&server);
    paused.send_command(&format!("APPEND k {value}"));
    wait_until(|| db.stats().memory.program_bytes > 12 * MIB as u64);
    // Replies that are not taken.
    let mut slow = Client::connect(&server);
    slow.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let echo =
        [b"*2\r\n$4\r\nECHO\r\n$1000000\r\n".to_vec(), vec![b'x'; 1_000_000], b"\r\n".to_vec()].concat();
    _ = slow.stream.write_all(&echo.repeat(20));
    wait_until(|| db.stats().memory.program_bytes > 13 * MIB as u64);
    assert_eq!(client.ask("CLIENT UNPAUSE"), "OK");
    assert_eq!(paused.receive_text(), (2 * MIB).to_string());
    drop((arriving, queueing, slow));
    wait_until(|| db.stats().memory.program_bytes < 64 << 10);
    drop((client, paused));
    wait_until(|| db.stats().memory.program_bytes == 0);
}

/// Where each argument is takes more memory than a short one.
#[test]
fn what_short_arguments_take_counts_while_they_arrive_and_is_given_back_after_them() {
    const ARGUMENTS: usize = 300_000;
    let (_, db, server) = serve(config());
    let program_bytes = || db.stats().memory.program_bytes as usize;
    let mut client = Client::connect(&server);
    for _ in 0..3 {
        let all_but_one = b"$1\r\na\r\n".repeat(ARGUMENTS - 1);
        client.send(&[format!("*{}\r\n$6\r\nEXISTS\r\n", ARGUMENTS + 1).as_bytes(), &all_but_one].concat());
        wait_until(|| program_bytes() > 16 * ARGUMENTS + all_but_one.len());
        client.send(b"$1\r\na\r\n");
        assert_eq!(client.receive_text(), "0");
        wait_until(|| program_bytes() < 64 << 10);
    }
}

#[test]
fn what_a_connection_named_counts() {
    let (_, db, server) = serve(config());
    let program_bytes = || db.stats().memory.program_bytes as usize;
    let mut client = Client::connect(&server);
    let long = "k".repeat(60_000);
    for forget in ["UNWATCH", "DISCARD", "EXEC", "RESET"] {
        for number in (0..100).chain(0..100) {
            assert_eq!(client.ask(&format!("WATCH {number}{long}")), "OK");
        }
        wait_until(|| program_bytes() > 100 * long.len());
        assert!(program_bytes() < 101 * long.len(), "{forget}: {}", program_bytes());
        if forget != "UNWATCH" {
            assert_eq!(client.ask("MULTI"), "OK");
        }
        client.ask(forget);
        wait_until(|| program_bytes() < 64 << 10);
    }
    // Each has less of its own than what it takes to hold it.
    assert_eq!(client.ask("MULTI"), "OK");
    (0..100_000).for_each(|_| client.send_command("PING"));
    (0..100_000).for_each(|_| assert_eq!(client.receive_text(), "QUEUED"));
    wait_until(|| program_bytes() > 64 * 100_000);
    assert_eq!(client.ask("DISCARD"), "OK");
    wait_until(|| program_bytes() < 64 << 10);
    let name = "n".repeat(5 * MIB);
    for command in ["CLIENT SETNAME", "CLIENT SETINFO lib-name", "CLIENT SETINFO lib-ver"] {
        assert_eq!(client.ask(&format!("{command} {name}")), "OK");
        wait_until(|| program_bytes() > name.len());
        assert_eq!(client.ask(&format!("{command} short")), "OK");
        wait_until(|| program_bytes() < 64 << 10);
    }
}

/// As Redis does, but not only where an administrator has asked for it.
#[test]
fn the_largest_connections_are_closed_where_all_take_too_much() {
    let mut config = config();
    config.io_threads = 2;
    let (_, db, server) = serve(config);
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("CONFIG GET maxmemory-clients"), "[\"maxmemory-clients\" \"50%\"]");
    // The longest command of one fits in any case.
    assert_eq!(client.ask("CONFIG SET maxmemory-clients 1mb client-query-buffer-limit 6mb"), "OK");
    let mut first = with_unfinished(&server, 5 * MIB / 2);
    let mut kept = with_no_evict(&server, 3 * MIB);
    wait_until(|| db.stats().memory.program_bytes > 5 * MIB as u64);
    assert_eq!(figure(&mut client, "evicted_clients"), 0);
    let mut second = with_unfinished(&server, MIB);
    assert_eq!(first.receive_text(), "closed");
    wait_until(|| (4 * MIB as u64..5 * MIB as u64).contains(&db.stats().memory.program_bytes));
    assert_eq!(figure(&mut client, "evicted_clients"), 1);
    // Less is allowed by now, and the larger one may not be closed.
    assert_eq!(client.ask("CONFIG SET client-query-buffer-limit 3500000"), "OK");
    assert_eq!(second.receive_text(), "closed");
    assert_eq!(figure(&mut client, "evicted_clients"), 2);
    assert_eq!(client.ask("CLIENT LIST").matches(" flags=e ").count(), 1);
    assert_eq!(client.ask("CONFIG SET maxmemory-clients 0"), "OK");
    let more = [with_unfinished(&server, 3 * MIB), with_unfinished(&server, 3 * MIB)];
    wait_until(|| db.stats().memory.program_bytes > 9 * MIB as u64);
    assert!(kept.is_silent() && figure(&mut client, "evicted_clients") == 2);
    drop(more);
}

/// The same as [`with_unfinished`], of a connection that is not to be closed for it.
fn with_no_evict(server: &Server, bytes: usize) -> Client {
    let mut client = Client::connect(server);
    assert_eq!(client.ask("CLIENT NO-EVICT on"), "OK");
    client.send(&[b"*2\r\n$4\r\nECHO\r\n$90000000\r\n".to_vec(), vec![b'x'; bytes]].concat());
    client
}

/// A web page may have a browser send this to a server on its own machine.
#[test]
fn an_http_request_ends_its_connection() {
    let (_, _, server) = serve(config());
    for request in ["POST / HTTP/1.1\r\nSET hacked 1\r\n", "GET / \r\nHost: localhost\r\nSET hacked 1\r\n"] {
        let mut client = Client::connect(&server);
        client.send(request.as_bytes());
        while client.receive().is_some() {}
    }
    assert_eq!(Client::connect(&server).ask("EXISTS hacked"), "0");
}

/// Sets keys until one is refused, which it asserts; returns how many were set. Each takes room that it keeps: one key that is
/// overwritten may have room as long as checkpoints give it back.
fn fill(client: &mut Client, prefix: &str, value: &str) -> usize {
    for n in 0..10_000 {
        let reply = client.ask(&format!("SET {prefix}{n} {value}"));
        if reply != "OK" {
            assert!(reply.starts_with("-MISCONF"), "{reply}");
            return n;
        }
    }
    panic!("the disk never became full");
}

/// A transaction that deletes and puts does not take the room that is kept for deletes.
#[test]
fn on_a_full_disk_only_what_deletes_is_taken() {
    let (env, _db, server) = serve(config());
    let mut client = Client::connect(&server);
    env.faults().space_bytes(Some(160 << 20));
    for n in 0..2_000 {
        client.send_command(&format!("MSET small{n} 1 other{n} 1"));
        client.send_command(&format!("HSET h{} f{n} 1", n % 10));
    }
    (0..4_000).for_each(|_| _ = client.receive_text());
    let value = "v".repeat(100_000);
    let written = fill(&mut client, "k", &value);
    let long = "v".repeat(3_800);
    fill(&mut client, "long", &long);
    let mut taken = 0;
    for n in 1..2_000 {
        client.send_command("MULTI");
        client.send_command(&format!("DEL small{n}"));
        client.send_command(&format!("SET other{n} {long}"));
        client.send_command("EXEC");
        (0..3).for_each(|_| _ = client.receive_text());
        taken += usize::from(client.receive_text() == "[1 OK]");
    }
    // Some, where segments that were freed meanwhile have room for them.
    assert!(taken < 1_000, "{taken}");
    for n in 0..2_000 {
        assert_eq!(client.ask(&format!("HDEL h{} f{n}", n % 10)), "1", "{n}");
    }
    for n in 0..written {
        assert_eq!(client.ask(&format!("DEL k{n}")), "1", "{n} of {written}");
    }
    wait_until(|| client.ask(&format!("SET again {value}")) == "OK");
}

/// On a full disk writes are refused, reads and deletes go on, and with room writes do, too, without a restart.
#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let (env, _db, server) = serve(config());
    let mut client = Client::connect(&server);
    env.faults().space_bytes(Some(160 << 20));
    let value = "v".repeat(100_000);
    let written = fill(&mut client, "k", &value);
    assert!(written > 10, "{written}");
    assert_eq!(client.ask("STRLEN k1"), "100000");
    // There may be room for short values yet.
    let short = fill(&mut client, "short", &"v".repeat(3_800));
    let keys = (0..written).map(|n| format!("k{n}")).chain((0..short).map(|n| format!("short{n}")));
    for key in keys {
        assert_eq!(client.ask(&format!("DEL {key}")), "1", "{key} of {written} and {short}");
    }
    assert_eq!(client.ask("DBSIZE"), "0");
    // What the values took is reclaimed on the full disk, too.
    wait_until(|| client.ask(&format!("SET again {value}")) == "OK");
}

/// Nothing can be deleted without a server.
#[test]
fn tables_of_the_format_before_are_opened_on_a_full_disk() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let meta = db.open_table("redis:meta").unwrap();
    meta.put("format", [2]).unwrap();
    env.faults().space_bytes(Some(160 << 20));
    let written = fill(&mut client, "k", &"v".repeat(100_000));
    fill(&mut client, "short", &"v".repeat(3_800));
    assert!(meta.put("other", vec![1; 3_800]).is_err(), "the disk is full");
    drop((client, server));
    let server = Server::start(db.clone(), config()).unwrap();
    assert_eq!(meta.get("format").unwrap().as_deref(), Some(&[3][..]));
    let mut client = Client::connect(&server);
    for n in 0..written {
        assert_eq!(client.ask(&format!("DEL k{n}")), "1", "{n}");
    }
    wait_until(|| client.ask("SET again 1") == "OK");
}
