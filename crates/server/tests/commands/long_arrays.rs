//! Replies of many values, members or keys leave in pieces: they are those of one moment, and the same as in one piece.

use std::io::Read;
use std::time::Duration;

use crate::support::*;
use fulgurite::env::sim::CrashKind;
use fulgurite_resp::Reply;
use fulgurite_server::{Config, Dispatch, Flushing, Server};

const MIB: usize = 1 << 20;

/// Bytes that differ with their position and with `seed`.
fn value(seed: usize, len: usize) -> Vec<u8> {
    Random(seed as u64 + 1).bytes(len)
}

/// A name of this length, in the order of its number.
fn name(number: usize, len: usize) -> String {
    format!("{number:06}{}", "-x".repeat(len / 2))[..len.max(6)].to_string()
}

/// The reply of a command as one of many in a transaction that has written before: it is built in memory.
fn whole(client: &mut Client, command: &str) -> Reply {
    for queued in ["MULTI", "SET written 1", "DEL written", command] {
        assert!(["OK", "QUEUED"].contains(&&*client.ask(queued)), "{queued}");
    }
    client.send_command("EXEC");
    let Some(Reply::Array(mut replies)) = client.receive() else { panic!("no reply of EXEC") };
    replies.pop().unwrap()
}

/// What a reply is made of, which does not fit into the buffers of sockets: as a client reads it that takes the first bytes of it, has
/// `meanwhile` done, and takes the others.
fn read_slowly(server: &Server, command: &str, meanwhile: impl FnOnce(&mut Client)) -> Reply {
    let mut reader = Client::connect(server);
    let mut commands = command.split("; ").peekable();
    while let Some(command) = commands.next() {
        if commands.peek().is_none() {
            reader.send_command(command);
        } else {
            assert!(["OK", "QUEUED"].contains(&&*reader.ask(command)), "{command}");
        }
    }
    let mut reply = vec![0; 1_000];
    reader.stream.read_exact(&mut reply).unwrap();
    let mut other = Client::connect(server);
    wait_until(|| figure(&mut other, "fulgurite_long_replies") == 1);
    meanwhile(&mut other);
    assert_eq!(figure(&mut other, "fulgurite_long_replies"), 1, "{command}");
    receive_long(&mut reader, &mut other, reply).0
}

/// The reply of which these bytes were received, and its length. It is parsed once the server has no more of it: `other` asks for that.
fn receive_long(reader: &mut Client, other: &mut Client, mut received: Vec<u8>) -> (Reply, usize) {
    let mut chunk = vec![0; MIB];
    loop {
        let len = reader.stream.read(&mut chunk).unwrap();
        assert!(len > 0, "closed");
        received.extend_from_slice(&chunk[..len]);
        if figure(other, "fulgurite_long_replies") == 0
            && let Some((reply, len)) = fulgurite_resp::parse_reply(&received).unwrap()
        {
            assert_eq!(len, received.len());
            assert_eq!(reader.ask("PING"), "PONG");
            return (reply, len);
        }
    }
}

/// Every kind of value that there may be, in many orders.
#[test]
fn values_of_many_names_are_those_that_were_stored() {
    for (dispatch, protocol) in [(Dispatch::Inline, "2"), (Dispatch::Queue, "3")] {
        let mut config = config();
        config.dispatch = dispatch;
        let (env, db, server) = serve(config);
        let mut client = Client::connect(&server);
        client.ask(&format!("HELLO {protocol}"));
        let piece = MIB / 4;
        let lens = [
            0,
            5,
            60_000,
            65_536,
            65_537,
            100_000,
            piece - 30,
            piece,
            piece + 1,
            2 * piece,
            MIB + 17,
            3 * MIB,
        ];
        let values: Vec<Vec<u8>> = (0..lens.len()).map(|seed| value(seed, lens[seed])).collect();
        for (index, value) in values.iter().enumerate() {
            let key = format!("k{index}");
            assert_eq!(client.ask_arguments(&[b"SET", key.as_bytes(), value]), "OK");
            assert_eq!(client.ask_arguments(&[b"HSET", b"hash", key.as_bytes(), value]), "1");
        }
        assert_eq!(client.ask("RPUSH k90 1"), "1", "no string");
        assert_eq!(client.ask("SET k91 gone PX 100"), "OK");
        env.advance(Duration::from_millis(100));
        let nil = || if protocol == "2" { Reply::NullBulk } else { Reply::Null };
        let mut random = Random(7);
        for _ in 0..40 {
            let names: Vec<usize> = (0..1 + random.below(12)).map(|_| random.below(lens.len() + 3)).collect();
            let expected =
                |index: &usize| values.get(*index).map_or_else(nil, |value| Reply::Bulk(value.clone()));
            let expected = Reply::Array(names.iter().map(expected).collect());
            let keys = names.iter().map(|&index| if index < lens.len() { index } else { index + 78 });
            let keys: Vec<String> = keys.map(|index| format!(" k{index}")).collect();
            for command in ["MGET", "HMGET hash"] {
                client.send_command(&format!("{command}{}", keys.concat()));
                assert!(client.receive().as_ref() == Some(&expected), "{command}{}", keys.concat());
            }
        }
        client.send_command("HMGET none a b");
        assert_eq!(client.receive(), Some(Reply::Array(vec![nil(), nil()])));
        assert_eq!(client.ask("HMGET k1 a").split(' ').next(), Some("-WRONGTYPE"));
        assert_eq!(client.ask("MULTI"), "OK");
        assert_eq!(client.ask("MGET k9 k90 k11"), "QUEUED");
        client.send_command("EXEC");
        let all = [Reply::Bulk(values[9].clone()), nil(), Reply::Bulk(values[11].clone())];
        assert!(client.receive() == Some(Reply::Array(vec![Reply::Array(all.into())])));
        for command in ["CLIENT REPLY SKIP", "MGET k9 k10 k11", "PING"] {
            client.send_command(command);
        }
        assert_eq!(client.receive_text(), "PONG");
        assert_eq!(figure(&mut Client::connect(&server), "fulgurite_long_replies"), 0);
        assert_eq!(client.ask("FLUSHALL"), "OK");
        assert_all_is_reclaimed(&db);
    }
}

/// What others do in the middle of it is not in it, and what expires meanwhile is.
#[test]
fn values_of_many_names_are_of_one_moment() {
    const COUNT: usize = 96;
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    // Strings in fragments, longer and shorter than a piece, and others.
    let values: Vec<Vec<u8>> =
        (0..COUNT).map(|seed| value(seed, [700_000, 150_000, 40_000][seed % 3])).collect();
    let names: Vec<String> = (0..COUNT).map(|index| format!("k{index}")).collect();
    for (command, change) in [("MGET", "overwritten"), ("MGET", "flushed"), ("HMGET hash", "deleted")] {
        for (name, value) in names.iter().zip(&values) {
            assert_eq!(client.ask_arguments(&[b"SET", name.as_bytes(), value, b"PX", b"5000"]), "OK");
            assert_eq!(client.ask_arguments(&[b"HSET", b"hash", name.as_bytes(), value]), "1");
        }
        let found = read_slowly(&server, &format!("{command} {}", names.join(" ")), |other| {
            match change {
                "overwritten" => names.iter().for_each(|name| {
                    assert_ne!(other.ask(&format!("APPEND {name} more")), "4");
                    assert_eq!(other.ask(&format!("SET {name} new")), "OK");
                }),
                "flushed" => assert_eq!(other.ask("FLUSHALL"), "OK"),
                _ => assert_eq!(other.ask("DEL hash"), "1"),
            }
            // Whatever is left of the keys expires, and is reclaimed, but for the snapshot.
            env.advance(Duration::from_secs(6));
            wait_until(|| change == "overwritten" || other.ask("DBSIZE") == "0");
        });
        let Reply::Array(found) = found else { panic!("{found:?}") };
        for (index, (found, value)) in found.iter().zip(&values).enumerate() {
            assert!(*found == Reply::Bulk(value.clone()), "{command}, {change}: value {index}");
        }
        assert_eq!(found.len(), COUNT);
        client.ask("FLUSHALL");
        assert_all_is_reclaimed(&db);
    }
}

/// Rows of fragments that are none, in the first piece and after it.
#[test]
fn damage_in_one_of_many_values_ends_the_connection() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    // More than connections take at once.
    let names: Vec<String> = (0..16).map(|index| format!("k{index}")).collect();
    for (index, name) in names.iter().enumerate() {
        assert_eq!(client.ask_arguments(&[b"SET", name.as_bytes(), &value(index, MIB)]), "OK");
    }
    let content = db.open_table("redis:content").unwrap();
    let damaged = |number: usize| {
        let mut row = content.range(..).unwrap().nth(number).unwrap().unwrap().0.to_vec();
        row.push(0);
        content.put(&row, "no fragment").unwrap();
        row
    };
    let command = &format!("MGET {}", names.join(" "));
    let row = damaged(13 * 64);
    client.send_command(command);
    // What the connection does not take at once leaves, too.
    let (mut received, mut other) = (Vec::new(), Client::connect(&server));
    while figure(&mut other, "fulgurite_cut_replies") == 0 {
        let mut some = [0; 16 << 10];
        let len = client.stream.read(&mut some).unwrap();
        received.extend_from_slice(&some[..len]);
    }
    client.stream.read_to_end(&mut received).unwrap();
    let whole = |index: usize| [b"$1048576\r\n", &value(index, MIB)[..], b"\r\n"].concat();
    let expected = [b"*16\r\n".to_vec(), (0..13).flat_map(whole).collect()].concat();
    assert!(received.starts_with(&expected), "{}: all before the damage", received.len());
    assert!(received.len() < expected.len() + MIB, "{}", received.len());
    let mut client = Client::connect(&server);
    assert_eq!(figure(&mut client, "fulgurite_cut_replies"), 1);
    content.delete(&row).unwrap();
    damaged(0);
    let error = "-ERR a row of the collection is damaged: run `fulgurite check`";
    assert_eq!(client.ask(command), error, "nothing is out");
    assert_eq!(client.ask("PING"), "PONG");
    assert_eq!(figure(&mut client, "fulgurite_cut_replies"), 1);
}

/// No thread writes the log, but this one: until it does, no byte leaves of a reply that shows what is not durable.
#[test]
fn long_arrays_wait_for_the_commits_that_they_show() {
    let env = fulgurite::env::SimEnv::new(1);
    let options = fulgurite::Options { background: false, ..Default::default() };
    let db = open_with(&env, options);
    let mut config: Config = config();
    config.flushing = Flushing::Watch;
    let server = Server::start(db.clone(), config).unwrap();
    let long = value(10, 3 * MIB);
    let mut writers: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    writers[0].send_arguments(&[b"SET", &b"k"[..], &long]);
    writers[1].send_arguments(&[b"HSET", &b"h"[..], b"f", &long]);
    let member = name(1, 60_000);
    let scored: Vec<String> = (0..10).flat_map(|n| [n.to_string(), name(n, 60_000)]).collect();
    writers[2].send_arguments(&[vec!["ZADD".into(), "z".into()], scored].concat());
    let heads = db.open_table("redis:heads").unwrap();
    wait_until(|| db.begin().range(&heads, ..).unwrap().count() == 3);
    assert!(writers.iter_mut().all(Client::is_silent), "acknowledged before it is durable");
    // Its commit is acknowledged and comes later: reads see all.
    let mut unwaited = Client::connect(&server);
    assert_eq!(unwaited.ask("DURABILITY none"), "OK");
    assert_eq!(unwaited.ask("SET later 1"), "OK");
    let commands = ["MGET k k", "HMGET h f f", "ZRANGE z 0 -1", "KEYS *"];
    let mut readers: Vec<Client> = commands
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
    let lens = readers.iter_mut().map(|reader| match reader.receive() {
        Some(Reply::Array(found)) => {
            assert!(found.len() != 2 || found == [Reply::Bulk(long.clone()), Reply::Bulk(long.clone())]);
            assert!(found.len() != 10 || found[1] == Reply::Bulk(member.clone().into_bytes()));
            found.len()
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(lens.collect::<Vec<_>>(), [2, 2, 10, 4]);
    let db = open(&crashed);
    let server = Server::start(db.clone(), self::config()).unwrap();
    assert_eq!(Client::connect(&server).ask("EXISTS k h z"), "0", "a power cut would have undone it");
}

/// Ranges of a sorted set, of all kinds, beside those of a transaction; one whose members have one score, and one with many.
#[test]
fn ranges_of_sorted_sets_leave_in_pieces() {
    const COUNT: usize = 9_000;
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    for (key, scores) in [("z", 1_000), ("same", 1)] {
        for from in (0..COUNT).step_by(1_000) {
            let members = (from..from + 1_000).flat_map(|n| [(n * 7 % scores).to_string(), name(n, 90)]);
            let zadd: Vec<String> = ["ZADD".into(), key.into()].into_iter().chain(members).collect();
            assert_eq!(client.ask_arguments(&zadd), "1000");
        }
    }
    let commands = [
        "ZRANGE z 0 -1",
        "ZRANGE z 0 -1 WITHSCORES",
        "ZRANGE z 700 -900 REV WITHSCORES",
        "ZREVRANGE z 1 7000",
        "ZRANGE z 4000 8999 WITHSCORES",
        "ZRANGE z 5 4",
        "ZRANGEBYSCORE z -inf +inf WITHSCORES",
        "ZRANGEBYSCORE z (100 900 LIMIT 1000 5000",
        "ZREVRANGEBYSCORE z 900 (100 WITHSCORES LIMIT 1000 5000",
        "ZREVRANGEBYSCORE z +inf 3 LIMIT 7 -1",
        "ZRANGE z 100 (900 BYSCORE LIMIT 6000 9999999",
        "ZRANGE z 100 (900 BYSCORE LIMIT 7200 1",
        "ZRANGE z 100 (900 BYSCORE LIMIT 7199 5",
        "ZRANGE z 900 100 BYSCORE REV LIMIT 0 2000 WITHSCORES",
        "ZRANGE z 900 100 BYSCORE REV LIMIT -1 2000",
        "ZRANGE z 900 100 BYSCORE REV LIMIT 3 0",
        "ZRANGE z 100 100 BYSCORE",
        "ZRANGE z (100 100 BYSCORE",
        "ZRANGEBYLEX same - +",
        "ZRANGEBYLEX same [001 (007",
        "ZRANGE same (008 - BYLEX REV LIMIT 500 6000",
        "ZREVRANGEBYLEX same + [004 LIMIT 1 -1",
        "ZRANGEBYLEX z - + LIMIT 10 5000",
        "ZRANGE none 0 -1 WITHSCORES",
    ];
    for protocol in ["2", "3"] {
        client.ask(&format!("HELLO {protocol}"));
        for command in commands {
            let expected = whole(&mut client, command);
            client.send_command(command);
            assert!(client.receive() == Some(expected), "{command}");
        }
        assert_eq!(client.ask("ZRANGE hello"), "-ERR wrong number of arguments for 'zrange' command");
    }
    client.ask("HELLO 2");
    assert_eq!(client.ask("DEL z same"), "2");
    for from in (0..600).step_by(50) {
        let members = (from..from + 50).flat_map(|n| [n.to_string(), name(n, 20_000)]);
        let zadd: Vec<String> = ["ZADD".into(), "z".into()].into_iter().chain(members).collect();
        assert_eq!(client.ask_arguments(&zadd), "50");
    }
    let expected = whole(&mut client, "ZRANGE z 0 -1 WITHSCORES");
    let found = read_slowly(&server, "ZRANGE z 0 -1 WITHSCORES", |other| {
        assert_eq!(other.ask("ZREMRANGEBYRANK z 0 1"), "2");
        assert_eq!(other.ask(&format!("ZADD z -1 {}", name(599, 20_000))), "0");
    });
    assert!(found == expected);
    let expected = whole(&mut client, "ZRANGE z +inf -inf BYSCORE REV LIMIT 10 580");
    let found = read_slowly(&server, "ZRANGE z +inf -inf BYSCORE REV LIMIT 10 580", |other| {
        assert_eq!(other.ask("DEL z"), "1");
        wait_until(|| db.open_table("redis:content").unwrap().range(..).unwrap().count() == 0);
    });
    assert!(found == expected);
    assert_all_is_reclaimed(&db);
}

/// How many there are comes first, and so many come, whatever happens meanwhile.
#[test]
fn keys_leave_in_pieces() {
    const COUNT: usize = 600;
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let key = |n: usize| name(n, 20_000);
    for from in (0..COUNT).step_by(50) {
        let pairs = (from..from + 50).flat_map(|n| [key(n), "v".into()]);
        let mset: Vec<String> = ["MSET".into()].into_iter().chain(pairs).collect();
        assert_eq!(client.ask_arguments(&mset), "OK");
    }
    for n in (0..COUNT).step_by(3) {
        let after_ms = if n < 100 { 500 } else { 20_000 };
        assert_eq!(client.ask(&format!("PEXPIRE {} {after_ms}", key(n))), "1");
    }
    // Those up to 99 are gone.
    env.advance(Duration::from_secs(1));
    for protocol in ["2", "3"] {
        client.ask(&format!("HELLO {protocol}"));
        for pattern in ["none", "00001*", "*-", "000[0-3]?[13579]*", "000599*"] {
            let command = format!("KEYS {pattern}");
            let found = whole(&mut client, &command);
            client.send_command(&command);
            assert!(client.receive() == Some(found), "{command}");
        }
    }
    let found = read_slowly(&server, "KEYS *", |other| {
        assert_eq!(other.ask(&format!("DEL {}", key(598))), "1");
        assert_eq!(other.ask("SET 000300 new"), "OK");
        // Those with a time are gone, and so are all others.
        env.advance(Duration::from_secs(20));
        wait_until(|| other.ask("DBSIZE") == (COUNT - COUNT.div_ceil(3)).to_string());
        assert_eq!(other.ask("FLUSHDB"), "OK");
        wait_until(|| db.open_table("redis:heads").unwrap().range(..).unwrap().count() == 0);
    });
    let expected = (0..COUNT).filter(|n| n % 3 != 0 || *n >= 100).map(|n| Reply::Bulk(key(n).into_bytes()));
    assert!(found == Reply::Array(expected.collect()));
    assert_eq!(client.ask("KEYS *"), "[]");
    assert_all_is_reclaimed(&db);
}

#[test]
fn results_of_sets_leave_in_pieces() {
    const COUNT: usize = 900;
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    for (key, step) in [("a", 2), ("b", 3), ("c", 100)] {
        let members = (0..COUNT).step_by(step).map(|n| name(n, 20_000));
        let sadd: Vec<String> = ["SADD".into(), key.into()].into_iter().chain(members).collect();
        assert_eq!(client.ask_arguments(&sadd), COUNT.div_ceil(step).to_string());
    }
    assert_eq!(client.ask("SET string 1"), "OK");
    for protocol in ["2", "3"] {
        client.ask(&format!("HELLO {protocol}"));
        for command in [
            "SUNION a b c",
            "SUNION a",
            "SUNION none",
            "SINTER b a",
            "SINTER a b c a",
            "SINTER a b none",
            "SDIFF a b",
            "SDIFF a none c b",
            "SDIFF c b",
            "SDIFF a b a",
            "SDIFF none a",
            "SUNION a string",
        ] {
            let found = whole(&mut client, command);
            client.send_command(command);
            assert!(client.receive() == Some(found), "{command}");
        }
    }
    let found = read_slowly(&server, "MULTI; SCARD a; SUNION c a b; SCARD b; EXEC", |other| {
        assert_eq!(other.ask("DEL a b c string"), "4");
        wait_until(|| db.open_table("redis:content").unwrap().range(..).unwrap().count() == 0);
    });
    let Reply::Array(replies) = found else { panic!("no array: {found:?}") };
    let [Reply::Integer(450), Reply::Array(members), Reply::Integer(300)] = &replies[..] else {
        panic!("{} replies", replies.len())
    };
    let mut members: Vec<_> = members.iter().map(text).collect();
    members.sort();
    let is_in = |n: &usize| n.is_multiple_of(2) || n.is_multiple_of(3);
    let expected = (0..COUNT).filter(is_in).map(|n| format!("\"{}\"", name(n, 20_000)));
    assert!(members.into_iter().eq(expected));
    assert_all_is_reclaimed(&db);
}

/// Commands of which the replies of some are long, and others fail.
const READS: [&str; 14] = [
    "GET long",
    "GET none",
    "GET set",
    "MGET long short long long",
    "SMEMBERS set",
    "STRLEN long",
    "ZRANGE z 0 -1 REV WITHSCORES",
    "HMGET set a",
    "KEYS *",
    "GETRANGE long 5 1000000",
    "LRANGE none 0 -1",
    "EXISTS long short",
    "SSCAN set 0 COUNT 5",
    "GET short",
];

fn write_what_is_read(client: &mut Client) {
    assert_eq!(client.ask_arguments(&[b"SET", &b"long"[..], &value(1, 2 * MIB)]), "OK");
    assert_eq!(client.ask("SET short 1"), "OK");
    for from in (0..300).step_by(100) {
        let names: Vec<String> = (from..from + 100).map(|n| name(n, 4_000)).collect();
        let sadd: Vec<String> = ["SADD".into(), "set".into()].into_iter().chain(names.clone()).collect();
        assert_eq!(client.ask_arguments(&sadd), "100");
        let pairs = names.into_iter().flat_map(|name| ["1".into(), name]);
        let zadd: Vec<String> = ["ZADD".into(), "z".into()].into_iter().chain(pairs).collect();
        assert_eq!(client.ask_arguments(&zadd), "100");
    }
}

/// The replies of a transaction that only reads are those of the same commands by themselves.
#[test]
fn transactions_that_only_read_reply_in_pieces() {
    for (dispatch, protocol) in [(Dispatch::Inline, "2"), (Dispatch::Queue, "3")] {
        let mut config = config();
        config.dispatch = dispatch;
        let (_, db, server) = serve(config);
        let mut client = Client::connect(&server);
        client.ask(&format!("HELLO {protocol}"));
        write_what_is_read(&mut client);
        let alone = READS.map(|command| {
            client.send_command(command);
            client.receive().unwrap()
        });
        assert_eq!(alone.iter().filter(|reply| matches!(reply, Reply::Error(_))).count(), 2);
        let mut other = Client::connect(&server);
        let mut exec = |commands: &[&str]| {
            assert_eq!(client.ask("MULTI"), "OK");
            commands.iter().for_each(|command| assert_eq!(client.ask(command), "QUEUED"));
            client.send_command("EXEC");
            match receive_long(&mut client, &mut other, Vec::new()).0 {
                Reply::Array(replies) => replies,
                reply => panic!("{reply:?}"),
            }
        };
        assert!(exec(&READS) == alone);
        // One that writes is built in memory.
        let beside_writes = [&READS[..], &["SET written 1"], &READS].concat();
        let beside_writes = exec(&beside_writes);
        assert!(beside_writes[..READS.len()] == alone);
        assert_eq!(
            exec(&["GET short", "GET written"]).iter().map(text).collect::<Vec<_>>(),
            ["\"1\"", "\"1\""]
        );
        assert!(exec(&[]).is_empty());
        assert!(other.ask("INFO commandstats").contains("cmdstat_mget:calls="));
        assert_eq!(client.ask("FLUSHALL"), "OK");
        assert_all_is_reclaimed(&db);
    }
}

/// All its commands see one moment, also those that run after others have changed what they read, and while commands are paused.
#[test]
fn transactions_that_only_read_see_one_moment() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    write_what_is_read(&mut client);
    assert_eq!(client.ask("EXPIRE long 5"), "1");
    let reads = [READS; 3].concat();
    let mut other = Client::connect(&server);
    let begin_exec = |client: &mut Client| {
        client.ask("MULTI");
        reads.iter().for_each(|command| assert_eq!(client.ask(command), "QUEUED"));
        client.send_command("EXEC");
    };
    begin_exec(&mut client);
    let (expected, len) = receive_long(&mut client, &mut other, Vec::new());
    let commands = format!("MULTI; {}; EXEC", reads.join("; "));
    let found = read_slowly(&server, &commands, |other| {
        assert_eq!(other.ask("SET short 2"), "OK");
        assert_eq!(other.ask("ZADD z 5 new"), "1");
        assert_eq!(other.ask("DEL set"), "1");
        env.advance(Duration::from_secs(6));
        wait_until(|| other.ask("EXISTS long") == "0" && other.ask("DBSIZE") == "2");
        assert_eq!(other.ask("FLUSHALL"), "OK");
        assert_eq!(other.ask("SET short 3"), "OK");
    });
    assert!(found == expected);
    client.ask("FLUSHALL");
    write_what_is_read(&mut client);
    begin_exec(&mut client);
    wait_until(|| figure(&mut other, "fulgurite_long_replies") == 1);
    assert_eq!(other.ask("CLIENT PAUSE 2000"), "OK");
    let mut received = vec![0; len];
    client.stream.read_exact(&mut received).unwrap();
    assert!(fulgurite_resp::parse_reply(&received).unwrap() == Some((expected, len)), "it had begun before");
    env.advance(Duration::from_secs(2));
    client.ask("FLUSHALL");
    assert_all_is_reclaimed(&db);
}

/// A reader that takes a long element bit by bit is not one that takes nothing, although no piece is read meanwhile.
#[test]
fn a_long_element_may_leave_slowly() {
    let mut config = config();
    config.reply_piece_timeout = Duration::from_secs(1);
    let (_, _, server) = serve(config);
    let mut client = Client::connect(&server);
    let fields = [value(1, 20 * MIB), value(2, 20 * MIB)];
    for (field, value) in [b"a", b"b"].into_iter().zip(&fields) {
        assert_eq!(client.ask_arguments(&[&b"HSET"[..], b"h", field, value]), "1");
    }
    client.send_command("HMGET h a b");
    let mut reply = Vec::new();
    let bulk_len = |value: &Vec<u8>| format!("${}\r\n", value.len()).len() + value.len() + 2;
    let len = 4 + fields.iter().map(bulk_len).sum::<usize>();
    while reply.len() < len {
        let mut some = vec![0; MIB.min(len - reply.len())];
        client.stream.read_exact(&mut some).unwrap();
        reply.extend(some);
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert!(reply.starts_with(b"*2\r\n") && reply.ends_with(&[&fields[1][..], b"\r\n"].concat()));
    assert_eq!(client.ask("PING"), "PONG");
}
