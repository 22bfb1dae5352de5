//! Long values are stored while they arrive, and long replies leave in pieces: the results are those of short ones, whatever stops a
//! client or the server in the middle.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::*;
use fulgurite::Database;
use fulgurite::env::sim::CrashKind;
use fulgurite_resp::{Reply, encode_command};
use fulgurite_server::{Config, Dispatch, Flushing, Server};

const MIB: usize = 1 << 20;

/// Bytes that differ with their position and with `seed`.
fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn bulk(client: &mut Client, arguments: &[&[u8]]) -> Option<Vec<u8>> {
    client.send_arguments(arguments);
    match client.receive() {
        Some(Reply::Bulk(bytes)) => Some(bytes),
        Some(Reply::NullBulk | Reply::Null) => None,
        other => panic!("{other:?}"),
    }
}

/// The beginning of `SET key value`, up to its value.
fn set_header(key: &str, len: usize) -> Vec<u8> {
    format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len()).into_bytes()
}

/// A server whose values arrive: so many bytes of one of them are stored.
fn begin_set(server: &Server, db: &Database, key: &str, len: usize, sent: usize) -> Client {
    let before = rows(db, "redis:content");
    let mut client = Client::connect(server);
    client.send(&set_header(key, len));
    client.send(&value(9, len)[..sent]);
    wait_until(|| rows(db, "redis:content") >= before + sent / MIB * 64);
    client
}

/// Every command that stores a value, or replies with one, at lengths around each bound, against a model.
#[test]
fn values_of_all_lengths_are_what_was_stored() {
    for (dispatch, protocol) in [(Dispatch::Inline, "2"), (Dispatch::Queue, "3")] {
        let mut config = config();
        config.dispatch = dispatch;
        let (_, db, server) = serve(config);
        let mut client = Client::connect(&server);
        client.ask(&format!("HELLO {protocol}"));
        let piece = MIB / 4;
        let lens = [
            piece,
            piece + 1,
            2 * piece - 1,
            MIB - 1,
            MIB,
            MIB + 1,
            MIB + piece,
            2 * MIB + 16_384,
            5 * MIB + 17,
        ];
        for (seed, len) in lens.into_iter().enumerate() {
            let long = value(seed as u64, len);
            let other = value(77 + seed as u64, len + 3);
            let set = |client: &mut Client, arguments: &[&[u8]]| client.ask_arguments(arguments);
            assert_eq!(set(&mut client, &[b"SET", b"k", &long]), "OK");
            assert_eq!(client.ask("STRLEN k"), len.to_string());
            assert!(bulk(&mut client, &[b"GET", b"k"]).unwrap() == long, "{len}");
            assert_eq!(client.ask("PING"), "PONG", "nothing follows the reply");
            for (start, end) in [(0, len - 2), (1, len - 1), (16_383, 16_384), (len / 2, len - 1)] {
                let (from, to) = (start.to_string(), end.to_string());
                let found = bulk(&mut client, &[b"GETRANGE", b"k", from.as_bytes(), to.as_bytes()]);
                assert!(found.unwrap() == long[start..=end], "{len}: {start} to {end}");
            }
            // What is not written changes nothing.
            assert_eq!(set(&mut client, &[b"SET", b"k", &other, b"NX"]), "nil");
            assert_eq!(set(&mut client, &[b"SETNX", b"k", &other]), "0");
            assert_eq!(set(&mut client, &[b"SET", b"none", &other, b"XX"]), "nil");
            assert_eq!(set(&mut client, &[b"SET", b"k", &other, b"EX"]), "-ERR syntax error");
            assert_eq!(
                set(&mut client, &[b"SETEX", b"k", b"x", &other]),
                "-ERR value is not an integer or out of range"
            );
            assert!(
                set(&mut client, &[b"SET", b"k", &other, b"EX", b"0"]).starts_with("-ERR invalid expire")
            );
            assert_eq!(
                set(&mut client, &[b"SETNX", &other]),
                "-ERR wrong number of arguments for 'setnx' command"
            );
            let many = [b"GETSET", &b"k"[..], &other, b"x"];
            assert_eq!(set(&mut client, &many), "-ERR wrong number of arguments for 'getset' command");
            assert_eq!(client.ask("EXISTS none"), "0");
            assert!(bulk(&mut client, &[b"GETEX", b"k", b"EX", b"1000"]).unwrap() == long);
            assert_eq!(client.ask("TTL k"), "1000");
            assert!(bulk(&mut client, &[b"SET", b"k", &other, b"KEEPTTL", b"GET"]).unwrap() == long);
            assert_eq!(client.ask("TTL k"), "1000");
            assert!(bulk(&mut client, &[b"GETSET", b"k", &long]).unwrap() == other);
            assert_eq!(client.ask("TTL k"), "-1");
            assert_eq!(set(&mut client, &[b"PSETEX", b"k", b"500000", &other]), "OK");
            assert_eq!(client.ask("TTL k"), "500");
            assert_eq!(set(&mut client, &[b"SETEX", b"k", b"300", &long]), "OK");
            assert_eq!(client.ask("TTL k"), "300");
            // In a transaction values are queued, and replies are one.
            assert_eq!(client.ask("MULTI"), "OK");
            assert_eq!(client.ask("GETDEL k"), "QUEUED");
            assert_eq!(set(&mut client, &[b"SET", b"k", &other]), "QUEUED");
            client.send_command("EXEC");
            let expected = Reply::Array(vec![Reply::Bulk(long), Reply::Simple(b"OK".to_vec())]);
            assert!(client.receive() == Some(expected), "{len}");
            assert!(bulk(&mut client, &[b"GETDEL", b"k"]).unwrap() == other);
            assert_eq!(client.ask("EXISTS k"), "0");
            assert_eq!(set(&mut client, &[b"SET", b"k", &other, b"PXAT", b"1"]), "OK");
            assert_eq!(client.ask("EXISTS k"), "0", "it has expired");
        }
        assert_eq!(client.ask("DBSIZE"), "0");
        let mut client = Client::connect(&server);
        assert_eq!(figure(&mut client, "fulgurite_arriving_values"), 0);
        assert_eq!(figure(&mut client, "fulgurite_long_replies"), 0);
        assert_all_is_reclaimed(&db);
    }
}

/// Long and short commands that are sent without a wait for replies.
#[test]
fn replies_keep_their_order() {
    let (_, _, server) = serve(config());
    let client = Client::connect(&server);
    let (first, second) = (value(1, 2 * MIB + 5), value(2, 3 * MIB + 7));
    let mut expected = Vec::new();
    let mut sent = Vec::new();
    for n in 0..4_u32 {
        let number = n.to_string();
        for (arguments, reply) in [
            (vec![&b"SET"[..], b"a", &first], b"+OK\r\n".to_vec()),
            (vec![b"SET", b"n", number.as_bytes()], b"+OK\r\n".to_vec()),
            (vec![b"GET", b"a"], [format!("${}\r\n", first.len()).as_bytes(), &first, b"\r\n"].concat()),
            (vec![b"GET", b"n"], format!("$1\r\n{n}\r\n").into_bytes()),
            (
                vec![b"SET", b"a", &second, b"GET"],
                [format!("${}\r\n", first.len()).as_bytes(), &first, b"\r\n"].concat(),
            ),
            (vec![b"GET", b"a"], [format!("${}\r\n", second.len()).as_bytes(), &second, b"\r\n"].concat()),
            (vec![b"CLIENT", b"REPLY", b"SKIP"], Vec::new()),
            (vec![b"GET", b"a"], Vec::new()),
            (vec![b"PING"], b"+PONG\r\n".to_vec()),
        ] {
            encode_command(&mut sent, &arguments);
            expected.extend_from_slice(&reply);
        }
    }
    let mut writer = client.stream.try_clone().unwrap();
    let mut found = vec![0; expected.len()];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        (&client.stream).read_exact(&mut found).unwrap();
    });
    assert!(found == expected);
    assert_eq!((&client.stream).read(&mut found).unwrap(), 0, "the connection is closed at its end");
}

/// A reader that stops in the middle: what it gets is of one moment, others go on, and little of it is in memory.
#[test]
fn a_reply_is_of_one_moment_however_slow_its_reader() {
    for command in ["GET k", "GETDEL k", "SET k short GET"] {
        let (_, db, server) = serve(config());
        let mut other = Client::connect(&server);
        let long = value(3, 24 * MIB);
        assert_eq!(other.ask_arguments(&[b"SET", &b"k"[..], &long]), "OK");
        let mut reader = Client::connect(&server);
        reader.send_command(command);
        let mut head = [0; 1_000];
        reader.stream.read_exact(&mut head).unwrap();
        assert_eq!(figure(&mut other, "fulgurite_long_replies"), 1, "{command}");
        assert_eq!(other.ask("SET k other"), "OK");
        assert_eq!(other.ask("DEL k"), "1");
        // What was garbage is gone, but for the snapshot.
        wait_until(|| rows(&db, "redis:content") == 0);
        let clients = other.ask("CLIENT LIST");
        let unsent = clients
            .split("omem=")
            .skip(1)
            .map(|rest| rest.split(' ').next().unwrap().parse::<usize>().unwrap());
        assert!(unsent.max().unwrap() <= 2 * (MIB / 4) + 100, "{clients}");
        let header = format!("${}\r\n", long.len());
        let mut rest = vec![0; header.len() + long.len() + 2 - head.len()];
        reader.stream.read_exact(&mut rest).unwrap();
        let reply = [&head[..], &rest].concat();
        assert!(reply == [header.as_bytes(), &long, b"\r\n"].concat(), "{command}");
        assert_eq!(reader.ask("PING"), "PONG");
        assert_all_is_reclaimed(&db);
    }
}

/// However a connection ends in the middle of a reply, its snapshot ends with it.
#[test]
fn a_reader_that_goes_leaves_nothing() {
    let mut config = config();
    config.reply_piece_timeout = Duration::from_secs(2);
    let (_, db, server) = serve(config);
    let mut other = Client::connect(&server);
    let long = value(3, 24 * MIB);
    assert_eq!(other.ask_arguments(&[b"SET", &b"k"[..], &long]), "OK");
    let begin = |name: &str| {
        let mut reader = Client::connect(&server);
        assert_eq!(reader.ask(&format!("CLIENT SETNAME {name}")), "OK");
        let id = reader.ask("CLIENT ID");
        reader.send_command("GET k");
        reader.stream.read_exact(&mut [0; 1_000]).unwrap();
        wait_until(|| db.stats().snapshots == 1);
        (reader, id)
    };
    let (reader, _) = begin("leaves");
    drop(reader);
    wait_until(|| db.stats().snapshots == 0);
    let (mut reader, id) = begin("is-killed");
    assert_eq!(other.ask(&format!("CLIENT KILL ID {id}")), "1");
    wait_until(|| db.stats().snapshots == 0);
    assert!(reader.stream.read_to_end(&mut Vec::new()).is_err() || reader.receive().is_none());
    // One that takes nothing, and sends something now and then.
    let (mut reader, _) = begin("stands-still");
    assert_eq!(figure(&mut other, "fulgurite_long_replies"), 1);
    wait_until(|| {
        _ = reader.stream.write_all(b"PING\r\n");
        db.stats().snapshots == 0
    });
    assert!(!other.ask("CLIENT LIST").contains("stands-still"));
    // One that takes more than the soft limit allows, in all.
    assert_eq!(
        other.ask("CONFIG SET client-output-buffer-limit"),
        "-ERR wrong number of arguments for 'config|set' command"
    );
    let set = [&b"CONFIG"[..], b"SET", b"client-output-buffer-limit", b"normal 0 2mb 1"];
    assert_eq!(other.ask_arguments(&set), "OK");
    let (_reader, _) = begin("is-over-the-limit");
    wait_until(|| db.stats().snapshots == 0);
    assert!(!other.ask("CLIENT LIST").contains("is-over-the-limit"));
    assert!(bulk(&mut other, &[b"GET", b"k"]).unwrap() == long, "one that reads gets it");
}

/// Rows of fragments that are none, in the first piece and after it.
#[test]
fn damage_in_the_middle_ends_the_connection() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let long = value(4, 6 * MIB);
    assert_eq!(client.ask_arguments(&[b"SET", &b"k"[..], &long]), "OK");
    let content = db.open_table("redis:content").unwrap();
    let mut row = content.range(..).unwrap().nth(200).unwrap().unwrap().0.to_vec();
    row.push(0);
    content.put(&row, "no fragment").unwrap();
    client.send_command("GET k");
    let mut received = Vec::new();
    client.stream.read_to_end(&mut received).unwrap();
    let header = format!("${}\r\n", long.len());
    let sent = received.strip_prefix(header.as_bytes()).expect("the header is out");
    assert!(sent.len() == 3 * MIB && long.starts_with(sent), "{}: all pieces before the damage", sent.len());
    let mut client = Client::connect(&server);
    assert_eq!(figure(&mut client, "fulgurite_cut_replies"), 1);
    // A command that writes reads all of it before.
    let error = "-ERR a row of the collection is damaged: run `fulgurite check`";
    for command in ["GETDEL k", "GETSET k new", "SET k new GET", "GETEX k PERSIST"] {
        assert_eq!(client.ask(command), error, "{command}");
    }
    assert_eq!(client.ask("STRLEN k"), long.len().to_string());
    content.delete(&row).unwrap();
    assert!(bulk(&mut client, &[b"GET", b"k"]).unwrap() == long);
    let mut row = content.range(..).unwrap().next().unwrap().unwrap().0.to_vec();
    row.push(0);
    content.put(&row, "no fragment").unwrap();
    assert_eq!(client.ask("GET k"), error, "nothing is out");
    assert_eq!(client.ask("PING"), "PONG");
    assert_eq!(figure(&mut client, "fulgurite_cut_replies"), 1);
}

/// However a connection ends in the middle of a value, nothing of it stays, and no key changes.
#[test]
fn a_writer_that_goes_leaves_nothing() {
    let (_, db, server) = serve(config());
    let mut other = Client::connect(&server);
    assert_eq!(other.ask("SET k before"), "OK");
    for way in ["leaves", "ends what it sends", "is killed"] {
        let mut writer = begin_set(&server, &db, "k", 8 * MIB, 5 * MIB);
        assert_eq!(figure(&mut other, "fulgurite_arriving_values"), 1);
        assert_eq!(rows(&db, "redis:garbage"), 1, "{way}: it is garbage, until it is taken");
        // Two rounds of the reclaimer, at least.
        std::thread::park_timeout(Duration::from_millis(250));
        assert!(rows(&db, "redis:content") >= 320, "{way}: not reclaimed while it arrives");
        match way {
            "leaves" => drop(writer),
            "ends what it sends" => {
                writer.stream.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(writer.receive_text(), "closed");
            }
            _ => assert_eq!(other.ask("CLIENT KILL SKIPME yes"), "1"),
        }
        assert_all_is_reclaimed(&db);
        assert_eq!(other.ask("GET k"), "\"before\"", "{way}");
        assert_eq!(figure(&mut other, "fulgurite_arriving_values"), 0);
    }
}

/// A disk that becomes full in the middle of a value.
#[test]
fn a_value_for_which_there_is_no_room_is_refused() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("SET k before"), "OK");
    env.faults().space_bytes(Some(160 << 20));
    client.send(&set_header("k", 256 * MIB));
    let piece = value(5, MIB);
    (0..256).for_each(|_| client.send(&piece));
    client.send(b"\r\nGET k\r\n");
    assert!(client.receive_text().starts_with("-MISCONF"));
    assert_eq!(client.receive_text(), "\"before\"");
    assert_all_is_reclaimed(&db);
    wait_until(|| client.ask_arguments(&[b"SET", &b"k"[..], &value(6, 2 * MIB)]) == "OK");
}

/// A power cut, or the end of the process, at moments all over a `SET`: the key has the value before or the new one as a whole, the
/// new one if that was acknowledged, and what nothing refers to is reclaimed.
#[test]
fn a_crash_in_the_middle_keeps_all_of_a_value_or_nothing() {
    let (before, after) = (value(7, 2 * MIB), value(8, 4 * MIB));
    let (mut found_before, mut found_after) = (0, 0);
    for round in 0..36_u64 {
        let (env, db, server) = serve(config());
        let mut client = Client::connect(&server);
        assert_eq!(client.ask_arguments(&[b"SET", &b"k"[..], &before]), "OK");
        let mut is_acknowledged = false;
        let crash = |is_acknowledged: bool| {
            let kind = if round % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
            let crashed = env.crash(kind, round);
            let db = open(&crashed);
            let server = Server::start(db.clone(), config()).unwrap();
            let mut client = Client::connect(&server);
            let found = bulk(&mut client, &[b"GET", b"k"]).unwrap();
            assert!(
                found == after || (!is_acknowledged && found == before),
                "round {round}: {}",
                found.len()
            );
            assert_eq!(client.ask("DBSIZE"), "1");
            // What nothing refers to is gone, and what the key refers to stays.
            wait_until(|| rows(&db, "redis:garbage") == 0);
            assert_eq!(rows(&db, "redis:content"), found.len() / 16_384, "round {round}");
            assert!(bulk(&mut client, &[b"GETDEL", b"k"]).unwrap() == found);
            assert_all_is_reclaimed(&db);
            found == after
        };
        client.send(&set_header("k", after.len()));
        let cut = after.len() * (round as usize % 12) / 11;
        client.send(&after[..cut]);
        if cut < after.len() {
            let stored = cut / (MIB / 4) * 16;
            wait_until(|| rows(&db, "redis:content") >= 128 + stored);
        } else {
            client.send(b"\r\n");
            // Or not: then the commit is on its way, or not made yet.
            if round < 12 {
                assert_eq!(client.receive_text(), "OK");
                is_acknowledged = true;
            }
        }
        if crash(is_acknowledged) {
            found_after += 1;
        } else {
            found_before += 1;
        }
    }
    assert!(found_before > 20 && found_after > 0, "{found_before}, {found_after}");
}

/// No thread writes the log, but this one: until it does, neither the acknowledgement of a long value leaves, nor a byte of a reply with it.
#[test]
fn long_replies_wait_for_the_commits_that_they_show() {
    let env = fulgurite::env::SimEnv::new(1);
    let options = fulgurite::Options { background: false, ..Default::default() };
    let db = open_with(&env, options);
    let mut config: Config = config();
    config.flushing = Flushing::Watch;
    let server = Server::start(db.clone(), config).unwrap();
    let long = value(10, 3 * MIB);
    let mut writer = Client::connect(&server);
    writer.send_arguments(&[b"SET", &b"k"[..], &long]);
    wait_until(|| figure(&mut Client::connect(&server), "fulgurite_arriving_values") == 0);
    assert!(writer.is_silent(), "acknowledged before it is durable");
    // Its commit is acknowledged and comes later: reads see both.
    let mut unwaited = Client::connect(&server);
    assert_eq!(unwaited.ask("DURABILITY none"), "OK");
    assert_eq!(unwaited.ask("SET later 1"), "OK");
    let mut readers: Vec<Client> = ["GET k", "GETEX k", "GETRANGE k 0 2000000"]
        .into_iter()
        .map(|command| {
            let mut reader = Client::connect(&server);
            reader.send_command(command);
            assert!(reader.is_silent(), "{command} shows what is not durable");
            reader
        })
        .collect();
    let crashed = env.crash(CrashKind::PowerCut, 1);
    db.wait_durable(db.visible_csn()).unwrap();
    assert_eq!(writer.receive_text(), "OK");
    for reader in &mut readers {
        let found = match reader.receive() {
            Some(Reply::Bulk(found)) => found,
            other => panic!("{other:?}"),
        };
        assert!(long.starts_with(&found) && (found.len() == long.len() || found.len() == 2_000_001));
    }
    let db = open(&crashed);
    let server = Server::start(db.clone(), self::config()).unwrap();
    assert_eq!(Client::connect(&server).ask("GET k"), "nil", "a power cut would have undone it");
    assert_all_is_reclaimed(&db);
}

/// Replies of many elements, whole and in ranges, and to a reader that stops in the middle while the collection is deleted.
#[test]
fn replies_of_many_elements_leave_in_pieces() {
    let (_, db, server) = serve(config());
    let mut other = Client::connect(&server);
    let name = |n: usize| format!("{n:06}-{}", "x".repeat(n % 40));
    let count = 60_000;
    for from in (0..count).step_by(5_000) {
        let names: Vec<String> = (from..from + 5_000).map(name).collect();
        let all = |command: &str, key: &str| {
            [command, key].into_iter().map(str::to_string).chain(names.iter().cloned()).collect::<Vec<_>>()
        };
        assert_eq!(other.ask_arguments(&all("SADD", "set")), "5000");
        assert_eq!(other.ask_arguments(&all("RPUSH", "list")), (from + 5_000).to_string());
        let fields = names.iter().flat_map(|name| [name.clone(), format!("v{name}")]);
        let hset: Vec<String> = ["HSET".into(), "hash".into()].into_iter().chain(fields).collect();
        assert_eq!(other.ask_arguments(&hset), "5000");
    }
    let texts = |reply: Option<Reply>| match reply {
        Some(Reply::Array(all) | Reply::Set(all)) => all.iter().map(text).collect::<Vec<_>>(),
        Some(Reply::Map(all)) => all.iter().flat_map(|(key, value)| [text(key), text(value)]).collect(),
        other => panic!("{other:?}"),
    };
    let quoted =
        |range: std::ops::Range<usize>| range.map(|n| format!("\"{}\"", name(n))).collect::<Vec<_>>();
    let sorted = |mut texts: Vec<String>| {
        texts.sort_unstable();
        texts
    };
    let mut readers = Vec::new();
    for protocol in ["2", "3"] {
        let mut client = Client::connect(&server);
        client.ask(&format!("HELLO {protocol}"));
        let mut ask = |command: &str| {
            client.send_command(command);
            texts(client.receive())
        };
        for (from, to, range) in
            [(0, -1, 0..count), (10, 50_000, 10..50_001), (-40_000, -7, 20_000..59_994), (9, 2, 0..0)]
        {
            assert!(ask(&format!("LRANGE list {from} {to}")) == quoted(range), "{from} to {to}");
        }
        assert!(sorted(ask("SMEMBERS set")) == quoted(0..count));
        assert!(sorted(ask("HKEYS hash")) == quoted(0..count));
        let values = sorted(ask("HVALS hash"));
        assert!(values.len() == count && values[77] == format!("\"v{}\"", name(77)));
        let pairs = ask("HGETALL hash");
        assert!(pairs.len() == 2 * count);
        assert!(pairs.chunks(2).all(|pair| pair[1] == format!("\"v{}", &pair[0][1..])));
        assert_eq!(client.ask("PING"), "PONG");
        client.ask("MULTI");
        client.ask("SMEMBERS set");
        client.send_command("EXEC");
        let Some(Reply::Array(replies)) = client.receive() else { panic!("no reply of EXEC") };
        assert!(sorted(texts(replies.into_iter().next())) == quoted(0..count));
        for command in ["SMEMBERS set", "HGETALL hash", "LRANGE list 0 -1"] {
            let mut reader = Client::connect(&server);
            reader.ask(&format!("HELLO {protocol}"));
            // More than its socket takes.
            (0..8).for_each(|_| reader.send_command(command));
            readers.push((command, reader));
        }
    }
    wait_until(|| figure(&mut other, "fulgurite_long_replies") == 6);
    let info = other.ask("CLIENT LIST");
    let unsent =
        info.split("omem=").skip(1).map(|rest| rest.split(' ').next().unwrap().parse::<usize>().unwrap());
    assert!(unsent.max().unwrap() < MIB, "{info}");
    assert_eq!(other.ask("DEL set hash list"), "3");
    wait_until(|| rows(&db, "redis:content") == 0);
    for (command, mut reader) in readers {
        let all = texts(reader.receive());
        let len = if command == "HGETALL hash" { 2 * count } else { count };
        assert_eq!(all.len(), len, "{command}: it began before the key was deleted");
        for _ in 1..8 {
            let len = texts(reader.receive()).len();
            assert!(len == 0 || len == all.len(), "{command}");
        }
        assert_eq!(reader.ask("PING"), "PONG");
    }
    assert_all_is_reclaimed(&db);
}
