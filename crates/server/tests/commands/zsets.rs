//! Sorted sets over real sockets: the shapes of both protocols, large sets, whose commands run on workers, transactions, expiry,
//! scans, and a power cut.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use fulgurite::Database;
use fulgurite::env::sim::CrashKind;
use fulgurite_server::Server;

#[test]
fn members_have_scores_and_ranks() {
    talk(&[
        ("ZADD z 1 a 2.5 b 0.1 c", "3"),
        ("ZADD z CH 3 a 2.5 b 1 d", "2"),
        ("ZSCORE z c", "\"0.1\""),
        ("ZSCORE z nothing", "nil"),
        ("ZRANK z a", "3"),
        ("ZREVRANK z a", "0"),
        ("ZRANK z b WITHSCORE", "[2 \"2.5\"]"),
        ("ZREVRANK z b withscore", "[1 \"2.5\"]"),
        ("ZRANK z nothing WITHSCORE", "nil"),
        ("ZRANK z b WITHSCORES", "-ERR syntax error"),
        ("ZRANK z b WITHSCORE x", "-ERR wrong number of arguments for 'zrank' command"),
        ("ZINCRBY z 0.2 c", "\"0.30000000000000004\""),
        ("ZRANGE z 0 -1 WITHSCORES", "[\"c\" \"0.30000000000000004\" \"d\" \"1\" \"b\" \"2.5\" \"a\" \"3\"]"),
        ("ZADD z INCR inf a", "\"inf\""),
        ("ZADD z INCR -inf a", "-ERR resulting score is not a number (NaN)"),
        ("ZADD big 1e20 a 1e300 b", "2"),
        ("ZMSCORE big a b c", "[\"1e+20\" \"1e+300\" nil]"),
        ("ZADD zero -0 a", "1"),
        ("ZSCORE zero a", "\"0\""),
        ("ZCOUNT zero (0 1", "0"),
        ("COMMAND GETKEYS ZUNIONSTORE d 2 a b WEIGHTS 1 2", "[\"d\" \"a\" \"b\"]"),
        ("COMMAND GETKEYS ZMPOP 2 a b MIN", "[\"a\" \"b\"]"),
        ("OBJECT ENCODING z", "\"listpack\""),
        ("TYPE z", "zset"),
        ("DEL z", "1"),
        ("ZCARD z", "0"),
    ]);
}

#[test]
fn resp3_has_doubles_and_pairs() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    client.ask("HELLO 3");
    for (command, expected) in [
        ("ZADD z 1 a 2.5 b 3 c 4 d", "4"),
        ("ZADD z INCR 1 d", "Double(\"5\")"),
        ("ZADD z NX INCR 1 d", "nil"),
        ("ZINCRBY z -1 d", "Double(\"4\")"),
        ("ZSCORE z b", "Double(\"2.5\")"),
        ("ZMSCORE z a x", "[Double(\"1\") nil]"),
        ("ZRANK z b WITHSCORE", "[1 Double(\"2.5\")]"),
        ("ZRANGE z 0 1", "[\"a\" \"b\"]"),
        ("ZRANGE z 0 1 WITHSCORES", "[[\"a\" Double(\"1\")] [\"b\" Double(\"2.5\")]]"),
        ("ZREVRANGEBYSCORE z (4 2 WITHSCORES", "[[\"c\" Double(\"3\")] [\"b\" Double(\"2.5\")]]"),
        (
            "ZUNION 1 z WITHSCORES WEIGHTS 0",
            "[[\"a\" Double(\"0\")] [\"b\" Double(\"0\")] [\"c\" Double(\"0\")] [\"d\" Double(\"0\")]]",
        ),
        ("ZRANDMEMBER z 0 WITHSCORES", "[]"),
        ("ZPOPMAX z", "[\"d\" Double(\"4\")]"),
        ("ZPOPMIN z 1", "[[\"a\" Double(\"1\")]]"),
        ("ZMPOP 2 nothing z MAX", "[\"z\" [[\"c\" Double(\"3\")]]]"),
        ("ZSCAN z 0", "[\"0\" [\"b\" \"2.5\"]]"),
        ("ZRANDMEMBER z -2 WITHSCORES", "[[\"b\" Double(\"2.5\")] [\"b\" Double(\"2.5\")]]"),
        ("ZPOPMIN z 5", "[[\"b\" Double(\"2.5\")]]"),
        ("ZPOPMIN z", "[]"),
        ("ZMPOP 1 z MIN", "nil"),
        ("EXISTS z", "0"),
        ("HELLO 2", ""),
        ("ZADD z 1 a", "1"),
        ("ZMPOP 1 z MIN", "[\"z\" [[\"a\" \"1\"]]]"),
    ] {
        let reply = client.ask(command);
        assert!(reply == expected || command.starts_with("HELLO"), "{command}: {reply}");
    }
}

/// Members `m0` to `m{count - 1}` with scores of a fourth of their numbers, in an order that is none.
fn fill(client: &mut Client, key: &str, count: usize) {
    let numbers: Vec<usize> = (0..count).map(|n| n * 7_919 % count).collect();
    for chunk in numbers.chunks(100) {
        let mut command = vec!["ZADD".to_string(), key.to_string()];
        for n in chunk {
            command.extend([(*n as f64 / 4.0).to_string(), format!("m{n:05}")]);
        }
        assert_eq!(client.ask_arguments(&command), chunk.len().to_string());
    }
}

fn names(numbers: impl Iterator<Item = usize>) -> String {
    format!("[{}]", numbers.map(|n| format!("\"m{n:05}\"")).collect::<Vec<_>>().join(" "))
}

/// More members than a thread that does not wait reads at a time.
#[test]
fn large_sets_are_read_and_written() {
    const COUNT: usize = 4_000;
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    fill(&mut client, "z", COUNT);
    assert_eq!(client.ask("ZCARD z"), COUNT.to_string());
    for n in (0..COUNT).step_by(97) {
        assert_eq!(client.ask(&format!("ZRANK z m{n:05}")), n.to_string());
        assert_eq!(client.ask(&format!("ZREVRANK z m{n:05}")), (COUNT - 1 - n).to_string());
        assert_eq!(client.ask(&format!("ZRANGE z {n} {}", n + 2)), names(n..(n + 3).min(COUNT)));
        let back = names((COUNT - n).saturating_sub(2)..COUNT - n);
        let reversed = client.ask(&format!("ZRANGE z {n} {} REV", n + 1));
        assert_eq!(
            reversed.split(['[', ' ', ']']).rev().collect::<Vec<_>>().join(" ").trim(),
            &back[1..back.len() - 1]
        );
    }
    assert_eq!(client.ask("ZRANGE z 0 -1"), names(0..COUNT));
    assert_eq!(client.ask("ZRANGE z (100 600 BYSCORE"), names(401..2_401));
    assert_eq!(client.ask("ZRANGE z 100 600 BYSCORE LIMIT 1000 3"), names(1_400..1_403));
    assert_eq!(client.ask("ZCOUNT z 100 (600"), "2000");
    assert_eq!(client.ask("ZCOUNT z -inf +inf"), "4000");
    assert_eq!(client.ask("ZCOUNT z -inf (0"), "0");
    assert_eq!(client.ask("ZUNIONSTORE sum 2 z z WEIGHTS 1 3"), "4000");
    assert_eq!(client.ask("ZSCORE sum m02001"), "\"2001\"");
    assert_eq!(client.ask("ZRANK sum m02001"), "2001");
    assert_eq!(client.ask("ZRANGESTORE some z 1000 2999"), "2000");
    assert_eq!(client.ask("ZRANK some m02001"), "1001");
    assert_eq!(client.ask("ZINTERCARD 2 z some"), "2000");
    assert_eq!(client.ask("ZINTERCARD 2 z some LIMIT 700"), "700");
    assert_eq!(client.ask("ZDIFF 2 z some"), names((0..1_000).chain(3_000..4_000)));
    assert_eq!(client.ask("ZINTERSTORE both 2 sum some"), "2000");
    assert_eq!(client.ask("COPY z copy"), "1");
    assert_eq!(client.ask("ZREMRANGEBYRANK z 500 1999"), "1500");
    assert_eq!(client.ask("ZRANK z m02000"), "500");
    assert_eq!(client.ask("ZREMRANGEBYSCORE z (600 800"), "800");
    assert_eq!(client.ask("ZRANK z m03999"), "1699");
    assert_eq!(client.ask("ZPOPMIN z 600").matches("\"m").count(), 600);
    assert_eq!(client.ask("ZRANGE z 0 0"), names(2_100..2_101));
    assert_eq!(client.ask("ZREMRANGEBYRANK z 0 -1"), "1100");
    assert_eq!(client.ask("EXISTS z"), "0");
    assert_eq!(client.ask("ZRANK copy m02001"), "2001");
    assert_eq!(client.ask("ZPOPMAX copy 4001").matches("\"m").count(), COUNT);
    assert_eq!(client.ask("ZADD copy 1 a"), "1");
    assert_eq!(client.ask("ZRANGE copy 0 -1"), "[\"a\"]");
    // By name, with one score for all, and with several.
    for chunk in (0..1_000).collect::<Vec<_>>().chunks(100) {
        let pairs = chunk.iter().flat_map(|n| ["0".to_string(), format!("m{n:05}")]);
        let command: Vec<_> = ["ZADD".into(), "names".into()].into_iter().chain(pairs).collect();
        client.ask_arguments(&command);
    }
    assert_eq!(client.ask("ZLEXCOUNT names [m00100 (m00900"), "800");
    assert_eq!(client.ask("ZRANGEBYLEX names (m00100 + LIMIT 700 2"), names(801..803));
    assert_eq!(client.ask("ZREVRANGEBYLEX names [m00002 -"), "[\"m00002\" \"m00001\" \"m00000\"]");
    assert_eq!(client.ask("ZREMRANGEBYLEX names [m00001 (m00999"), "998");
    assert_eq!(client.ask("ZRANGEBYLEX some [m01500 [m02900"), names(1_500..2_901));
    assert_eq!(client.ask("ZLEXCOUNT some (m02900 +"), "99");
}

/// Waits until no set is being divided any more.
fn wait_until_divided(client: &mut Client) {
    let mut before = 0;
    wait_until(|| {
        std::thread::park_timeout(Duration::from_millis(50));
        let now = figure(client, "fulgurite_split_blocks");
        now == std::mem::replace(&mut before, now) && now > 0
    });
}

/// How many blocks all sorted sets have.
fn blocks(db: &Database) -> usize {
    let rows = db.open_table("redis:content").unwrap().range(..).unwrap();
    rows.filter(|row| row.as_ref().unwrap().0[8] == 3).count()
}

/// No rank was asked for: nothing counts. Then ranks are right, before, while and after the set is divided, beside those that write to it.
#[test]
fn sets_are_divided_once_ranks_are_asked_for() {
    const COUNT: usize = 20_000;
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    fill(&mut client, "z", COUNT);
    for near in ["ZRANGE z 0 9", "ZRANGE z 0 9 REV", "ZRANK z m00100", "ZCOUNT z 100 101", "ZPOPMAX z 0"] {
        client.ask(near);
    }
    assert_eq!((blocks(&db), figure(&mut client, "fulgurite_split_blocks")), (0, 0), "these need none");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                // Above all others, so that their ranks stay.
                let mut client = Client::connect(server);
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(client.ask(&format!("ZADD z 1000000 x{thread} 2000000 y{thread}")), "2");
                    assert_eq!(client.ask(&format!("ZINCRBY z -500000 y{thread}")), "\"1500000\"");
                    assert_eq!(client.ask(&format!("ZREM z x{thread} y{thread}")), "2");
                }
            });
        }
        let mut other = Client::connect(&server);
        for n in (0..COUNT).rev().step_by(61) {
            assert_eq!(client.ask(&format!("ZRANK z m{n:05}")), n.to_string());
            assert_eq!(other.ask(&format!("ZCOUNT z -inf ({}", n as f64 / 4.0)), n.to_string());
            assert_eq!(other.ask(&format!("ZRANGE z {n} {n}")), names(n..n + 1));
        }
        wait_until_divided(&mut client);
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(blocks(&db) > COUNT / 1_000, "{} blocks", blocks(&db));
    assert_eq!(client.ask("ZCARD z"), COUNT.to_string());
    let splits = figure(&mut client, "fulgurite_split_blocks");
    for n in (0..COUNT).step_by(97) {
        assert_eq!(client.ask(&format!("ZREVRANK z m{n:05}")), (COUNT - 1 - n).to_string());
    }
    assert_eq!(figure(&mut client, "fulgurite_split_blocks"), splits, "it is divided");
}

/// In a transaction nothing is divided before its end.
#[test]
fn sets_are_divided_after_transactions_that_ask_for_ranks() {
    for write in ["ZADD z 9999 x", "PING"] {
        let (_, db, server) = serve(config());
        let mut client = Client::connect(&server);
        fill(&mut client, "z", 5_000);
        client.ask("MULTI");
        client.ask(write);
        client.ask("ZRANK z m04000");
        client.ask("ZCOUNT z 0 500");
        let replies = client.ask("EXEC");
        assert!(replies.ends_with(" 4000 2001]"), "{replies}");
        wait_until_divided(&mut client);
        assert!(blocks(&db) > 10, "{write}");
        assert_eq!(client.ask("ZRANK z m04000"), "4000");
    }
}

#[test]
fn a_power_cut_while_a_set_is_divided_leaves_its_ranks() {
    for seed in 0..8 {
        let (env, db, server) = serve(config());
        let mut client = Client::connect(&server);
        fill(&mut client, "z", 6_000);
        let ranks = client.ask("ZRANK z m05000");
        assert_eq!(ranks, "5000");
        wait_until(|| figure(&mut client, "fulgurite_split_blocks") > 2 * seed);
        // Durable with all that was before it.
        assert_eq!(client.ask("ZADD z 1e9 last"), "1");
        let crashed = env.crash(CrashKind::PowerCut, seed);
        drop((server, db));
        let db = open(&crashed);
        let server = Server::start(db.clone(), config()).unwrap();
        let mut client = Client::connect(&server);
        assert!(blocks(&db) as u64 > 2 * seed, "{} blocks", blocks(&db));
        for n in (0..6_000).step_by(397) {
            assert_eq!(client.ask(&format!("ZRANK z m{n:05}")), n.to_string());
        }
        assert_eq!(client.ask("ZREMRANGEBYRANK z 1000 4999"), "4000");
        assert_eq!(client.ask("ZRANK z last"), "2000");
    }
}

#[test]
fn large_sets_change_in_transactions() {
    let (_, _, server) = serve(config());
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    fill(&mut client, "z", 2_000);
    for (command, expected) in [
        ("MULTI", "OK"),
        ("ZADD z -1 first", "QUEUED"),
        ("ZRANK z m00999", "QUEUED"),
        ("ZREMRANGEBYRANK z 10 1499", "QUEUED"),
        ("ZRANK z m01999", "QUEUED"),
        ("ZADD z x y", "QUEUED"),
        ("ZCARD z", "QUEUED"),
        ("EXEC", "[1 1000 1490 510 -ERR value is not a valid float 511]"),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
    // That is a write for `WATCH`.
    wait_until_divided(&mut client);
    for (command, expected) in [("WATCH z", "OK"), ("MULTI", "OK"), ("ZADD z 1 never", "QUEUED")] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
    assert_eq!(other.ask("ZADD z CH -2 first"), "1");
    assert_eq!(client.ask("EXEC"), "nil");
    client.ask("WATCH z");
    // Nothing changes.
    assert_eq!(other.ask("ZADD z CH -2 first"), "0");
    assert_eq!(other.ask("ZREM z nothing"), "0");
    client.ask("MULTI");
    client.ask("ZRANGE z 0 0 WITHSCORES");
    assert_eq!(client.ask("EXEC"), "[[\"first\" \"-2\"]]");
}

#[test]
fn sets_expire_and_begin_anew() {
    let (env, _db, server) = serve(config());
    let mut client = Client::connect(&server);
    fill(&mut client, "z", 300);
    assert_eq!(client.ask("PEXPIRE z 1000"), "1");
    assert_eq!(client.ask("ZCARD z"), "300");
    env.advance(Duration::from_millis(1_001));
    assert_eq!(client.ask("ZRANGE z 0 -1"), "[]");
    assert_eq!(client.ask("ZADD z XX 1 a"), "0");
    assert_eq!(client.ask("ZADD z 1 a"), "1");
    assert_eq!(client.ask("ZRANGE z 0 -1"), "[\"a\"]");
    assert_eq!(client.ask("TTL z"), "-1");
    assert_eq!(client.ask("EXPIRE z 100"), "1");
    assert_eq!(client.ask("ZADD z 2 b"), "1");
    assert_eq!(client.ask("TTL z"), "100");
    assert_eq!(client.ask("ZUNIONSTORE z 1 z"), "2");
    assert_eq!(client.ask("TTL z"), "-1");
    assert_eq!(client.ask("SET s x"), "OK");
    assert_eq!(client.ask("ZRANGESTORE s z 0 -1"), "2");
    assert_eq!(client.ask("ZDIFFSTORE s 2 s z"), "0");
    assert_eq!(client.ask("EXISTS s"), "0");
    assert_eq!(client.ask("DBSIZE"), "1");
}

#[test]
fn a_scan_returns_each_member_that_stays() {
    let (_, _, server) = serve(config());
    let (mut client, mut writer) = (Client::connect(&server), Client::connect(&server));
    fill(&mut client, "z", 1_500);
    let (mut cursor, mut found, mut calls) = ("0".to_string(), BTreeSet::new(), 0);
    loop {
        let reply = client.ask(&format!("ZSCAN z {cursor} COUNT 7"));
        let words: Vec<&str> = reply.split(['[', ']', ' ', '"']).filter(|word| !word.is_empty()).collect();
        for pair in words[1..].chunks(2) {
            found.insert(pair[0].to_string());
        }
        cursor = words[0].to_string();
        if cursor == "0" {
            break;
        }
        assert_eq!(writer.ask(&format!("ZADD z {calls} new{calls}")), "1");
        assert_eq!(writer.ask(&format!("ZINCRBY z 1 m{calls:05}")).matches('"').count(), 2);
        if calls % 2 == 0 {
            assert_eq!(writer.ask(&format!("ZREM z m{:05}", 1_499 - calls)), "1");
        }
        calls += 1;
    }
    assert!(calls > 100, "{calls}");
    let stayed = (0..1_500).filter(|n| n + calls < 1_500 || n % 2 == 0).map(|n| format!("m{n:05}"));
    assert!(stayed.into_iter().all(|name| found.contains(&name)));
}

#[test]
fn longest_names_are_kept_and_longer_ones_refused() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    let (longest, longer) = ("n".repeat(65_518), "n".repeat(65_519));
    assert_eq!(client.ask_arguments(&["ZADD", "z", "1", &longest, "1", "a"]), "2");
    assert_eq!(client.ask_arguments(&["ZRANK", "z", &longest]), "1");
    assert_eq!(client.ask_arguments(&["ZSCORE", "z", &longer]), "nil");
    let refusal = "-ERR the field or member has 65519 bytes, the longest allowed has 65518";
    assert_eq!(client.ask_arguments(&["ZADD", "z", "1", &longer]), refusal);
    assert_eq!(client.ask_arguments(&["ZLEXCOUNT", "z", "-", &format!("[{longer}")]), "2");
    assert_eq!(client.ask_arguments(&["ZLEXCOUNT", "z", &format!("[{longest}"), &format!("({longer}")]), "1");
    assert_eq!(client.ask_arguments(&["ZREM", "z", &longer, &longest, "a"]), "2");
    assert_eq!(client.ask("EXISTS z"), "0");
}

#[test]
fn sets_survive_a_power_cut_with_their_ranks() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    fill(&mut client, "z", 1_000);
    assert_eq!(client.ask("ZREMRANGEBYRANK z 0 99"), "100");
    let crashed = env.crash(CrashKind::PowerCut, 1);
    drop((server, db));
    let server = Server::start(open(&crashed), config()).unwrap();
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("ZRANGE z 0 -1"), names(100..1_000));
    for n in (100..1_000).step_by(50) {
        assert_eq!(client.ask(&format!("ZRANK z m{n:05}")), (n - 100).to_string());
    }
}
