//! Lists over sockets: what generated sequences beside Redis do not show. Long lists, transactions, expiry, and queues over power cuts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use fulgurite::Database;
use fulgurite::env::sim::CrashKind;
use fulgurite_resp::Reply;
use fulgurite_server::{Dispatch, Server};
use parking_lot::Mutex;

/// The elements of a list.
fn range(client: &mut Client, key: &str) -> Vec<String> {
    client.send_command(&format!("LRANGE {key} 0 -1"));
    let Some(Reply::Array(items)) = client.receive() else { panic!("an array") };
    items.iter().map(|item| text(item).trim_matches('"').to_string()).collect()
}

/// How many rows the content of all collections has.
fn rows(db: &Database) -> usize {
    db.open_table("redis:content").unwrap().range(..).unwrap().count()
}

#[test]
fn lists_are_pushed_popped_and_moved() {
    talk(&[
        ("RPUSH l a b c", "3"),
        ("LPUSH l x y", "5"),
        ("LRANGE l 0 -1", "[\"y\" \"x\" \"a\" \"b\" \"c\"]"),
        ("LPUSHX nothing a", "0"),
        ("TYPE l", "list"),
        ("LINDEX l -1", "\"c\""),
        ("LSET l 1 z", "OK"),
        ("LINSERT l AFTER z w", "6"),
        ("LPOS l b", "4"),
        ("LREM l 1 w", "1"),
        ("LMOVE l m LEFT RIGHT", "\"y\""),
        ("RPOPLPUSH l l", "\"c\""),
        ("LRANGE l 0 -1", "[\"c\" \"z\" \"a\" \"b\"]"),
        ("LMPOP 2 nothing l RIGHT COUNT 2", "[\"l\" [\"b\" \"a\"]]"),
        ("LPOP l 0", "[]"),
        ("LPOP l 9", "[\"c\" \"z\"]"),
        ("EXISTS l m", "1"),
        ("LPOP l 0", "nil"),
        ("SET l text", "OK"),
        ("LMOVE m l LEFT LEFT", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("LLEN m", "1"),
        ("LMOVE nothing l LEFT LEFT", "nil"),
        ("COMMAND GETKEYS LMPOP 2 a b LEFT", "[\"a\" \"b\"]"),
        ("LREM m -9223372036854775808 a", RANGE),
        ("LPOS m a RANK -9223372036854775808", RANGE),
        // Ends of one list, one element, and an expiry that stays.
        ("EXPIRE m 100", "1"),
        ("LMOVE m m LEFT RIGHT", "\"y\""),
        ("RPUSH m z", "2"),
        ("TTL m", "100"),
        ("DBSIZE", "2"),
    ]);
}

const RANGE: &str =
    "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";

#[test]
fn replies_have_the_shapes_of_both_protocols() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    let mut ask = |command: &str| {
        client.send_command(command);
        client.receive().unwrap()
    };
    assert_eq!(ask("RPUSH l 1 2"), Reply::Integer(2));
    assert_eq!(ask("LPOP nothing"), Reply::NullBulk);
    assert_eq!(ask("LPOP nothing 2"), Reply::NullArray);
    assert_eq!(ask("LMPOP 1 nothing LEFT"), Reply::NullArray);
    assert_eq!(ask("LPOS l 9"), Reply::NullBulk);
    assert_eq!(ask("LPOS l 9 COUNT 0"), Reply::Array(vec![]));
    assert_eq!(ask("SORT l GET w_*"), Reply::Array(vec![Reply::NullBulk; 2]));
    ask("HELLO 3");
    for command in ["LPOP nothing", "LPOP nothing 2", "LMPOP 1 nothing LEFT", "LPOS l 9", "LINDEX l 9"] {
        assert_eq!(ask(command), Reply::Null, "{command}");
    }
    assert_eq!(ask("SORT l GET w_*"), Reply::Array(vec![Reply::Null; 2]));
    assert_eq!(ask("LRANGE l 5 9"), Reply::Array(vec![]));
}

/// Random changes of a list longer than what an I/O thread touches, and of the same list in memory. The rows are those of the list
/// alone in the end.
#[test]
fn long_lists_are_those_of_a_model() {
    for (round, dispatch) in Dispatch::ALL.into_iter().enumerate() {
        let mut config = config();
        config.dispatch = dispatch;
        let (_, db, server) = serve(config);
        let mut client = Client::connect(&server);
        let mut seed = 7 + round as u64;
        let mut random = move |end: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % end
        };
        let mut model: Vec<String> = Vec::new();
        for step in 0..160 {
            if model.len() < 1_500 {
                let values: Vec<String> = (0..700).map(|_| random(60).to_string()).collect();
                let is_left = random(2) == 0;
                let name = if is_left { "LPUSH" } else { "RPUSH" };
                let mut arguments = vec![name.to_string(), "l".into()];
                arguments.extend_from_slice(&values);
                for value in values {
                    model.insert(if is_left { 0 } else { model.len() }, value);
                }
                assert_eq!(client.ask_arguments(&arguments), model.len().to_string());
            }
            let (value, other, count) =
                (random(62).to_string(), random(60).to_string(), random(40) as i64 - 20);
            let (command, expected) = match random(7) {
                0 | 1 => {
                    let max = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
                    let mut found: Vec<usize> = (0..model.len()).filter(|&at| model[at] == value).collect();
                    if count < 0 {
                        found.reverse();
                    }
                    found.truncate(max);
                    found.sort_unstable();
                    found.iter().rev().for_each(|&at| drop(model.remove(at)));
                    (format!("LREM l {count} {value}"), found.len().to_string())
                }
                2 => {
                    let (side, after) = if random(2) == 0 { ("BEFORE", 0) } else { ("AFTER", 1) };
                    // Few values are far from the left: this one may be.
                    let value = if random(2) == 0 { value } else { format!("pivot{step}") };
                    if value.starts_with("pivot") {
                        let at = random(model.len());
                        model[at].clone_from(&value);
                        assert_eq!(client.ask(&format!("LSET l {at} {value}")), "OK");
                    }
                    let at = model.iter().position(|found| *found == value);
                    at.into_iter().for_each(|at| model.insert(at + after, other.clone()));
                    let expected = at.map_or("-1".into(), |_| model.len().to_string());
                    (format!("LINSERT l {side} {value} {other}"), expected)
                }
                3 => {
                    // Seldom what takes most away.
                    let cut = if random(4) == 0 { model.len() } else { 300 };
                    let (from, to) = (random(cut), model.len() - random(cut));
                    model = model.get(from..to).unwrap_or_default().to_vec();
                    (format!("LTRIM l {from} {}", to as i64 - 1), "OK".into())
                }
                4 => {
                    let (count, is_left) = (1 + random(700), random(2) == 0);
                    let count = count.min(model.len());
                    let popped: Vec<String> = if is_left {
                        model.drain(..count).collect()
                    } else {
                        model.drain(model.len() - count..).rev().collect()
                    };
                    let name = if is_left { "LPOP" } else { "RPOP" };
                    (format!("{name} l {count}"), format!("[\"{}\"]", popped.join("\" \"")))
                }
                5 => {
                    let at = random(model.len());
                    model[at].clone_from(&other);
                    (format!("LSET l {at} {other}"), "OK".into())
                }
                _ => {
                    let found: Vec<String> =
                        (0..model.len()).filter(|&at| model[at] == value).map(|at| at.to_string()).collect();
                    (format!("LPOS l {value} COUNT 0"), format!("[{}]", found.join(" ")))
                }
            };
            assert_eq!(client.ask(&command), expected, "{dispatch:?}, step {step}: {command}");
            assert_eq!(range(&mut client, "l"), model, "{dispatch:?}, step {step}: {command}");
            assert_eq!(client.ask("LLEN l"), model.len().to_string());
        }
        wait_until(|| rows(&db) == model.len());
        assert_eq!(client.ask("LTRIM l 1 0"), "OK");
        assert_eq!(client.ask("EXISTS l"), "0");
        wait_until(|| rows(&db) == 0);
    }
}

#[test]
fn long_lists_are_sorted() {
    for dispatch in Dispatch::ALL {
        let mut config = config();
        config.dispatch = dispatch;
        let (_, _, server) = serve(config);
        let mut client = Client::connect(&server);
        let numbers: Vec<usize> = (0..2_000).map(|n| n * 7_919 % 2_000).collect();
        for chunk in numbers.chunks(100) {
            let mut weights = vec!["MSET".to_string()];
            let mut push = vec!["RPUSH".to_string(), "l".into()];
            for number in chunk {
                push.push(number.to_string());
                weights.extend([format!("w_{number}"), (2_000 - number).to_string()]);
            }
            client.ask_arguments(&weights);
            client.ask_arguments(&push);
        }
        let joined = |numbers: &mut dyn Iterator<Item = usize>| {
            format!("[{}]", numbers.map(|number| format!("\"{number}\"")).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(client.ask("SORT l"), joined(&mut (0..2_000)));
        assert_eq!(client.ask("SORT_RO l BY w_*"), joined(&mut (0..2_000).rev()));
        assert_eq!(
            client.ask("SORT l BY w_* DESC LIMIT 1000 2 GET # GET w_*"),
            "[\"1000\" \"1000\" \"1001\" \"999\"]"
        );
        let expected = joined(&mut numbers.iter().rev().copied().skip(600).take(700));
        assert_eq!(client.ask("SORT l BY nosort DESC LIMIT 600 700"), expected);
        assert_eq!(client.ask("SORT l STORE l LIMIT 0 1500"), "1500");
        assert_eq!(client.ask("LRANGE l 0 -1"), joined(&mut (0..1_500)));
        assert_eq!(client.ask("RPUSH l text"), "1501");
        assert_eq!(client.ask("SORT l"), "-ERR One or more scores can't be converted into double");
        assert_eq!(client.ask("SORT nothing STORE l"), "0");
        assert_eq!(client.ask("EXISTS l"), "0");
        // Weights that the same transaction wrote.
        assert_eq!(client.ask("RPUSH s 2 1"), "2");
        for (command, expected) in [
            ("MULTI", "OK"),
            ("SET w_1 9", "QUEUED"),
            ("SORT s BY w_* STORE d", "QUEUED"),
            ("SORT d BY nosort GET w_*", "QUEUED"),
            ("EXEC", "[OK 2 [\"9\" \"1998\"]]"),
        ] {
            assert_eq!(client.ask(command), expected, "{dispatch:?}: {command}");
        }
    }
}

#[test]
fn transactions_change_lists_as_a_whole() {
    for dispatch in Dispatch::ALL {
        let mut config = config();
        config.dispatch = dispatch;
        let (_, _, server) = serve(config);
        let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
        let mut long = vec!["RPUSH".to_string(), "long".into()];
        long.extend((0..1_000).map(|n| n.to_string()));
        for (command, expected) in [
            ("MULTI", "OK"),
            ("RPUSH l a b c", "QUEUED"),
            ("LREM l 0 b", "QUEUED"),
            ("LINSERT l BEFORE c x", "QUEUED"),
            ("LPUSH l x x x", "QUEUED"),
            ("LTRIM l 1 -1", "QUEUED"),
            ("LRANGE l 0 -1", "QUEUED"),
            ("LSET l 99 x", "QUEUED"),
            ("LMOVE l m RIGHT LEFT", "QUEUED"),
            ("LPOS m c", "QUEUED"),
        ] {
            assert_eq!(client.ask(command), expected);
        }
        assert_eq!(client.ask_arguments(&long), "QUEUED");
        assert_eq!(client.ask("LTRIM long 990 990"), "QUEUED");
        assert_eq!(client.ask("LPOP long"), "QUEUED");
        let replies =
            "[3 1 3 6 OK [\"x\" \"x\" \"a\" \"x\" \"c\"] -ERR index out of range \"c\" 0 1000 OK \"990\"]";
        assert_eq!(client.ask("EXEC"), replies, "{dispatch:?}");
        assert_eq!(client.ask("LRANGE l 0 -1"), "[\"x\" \"x\" \"a\" \"x\"]");
        assert_eq!(client.ask("EXISTS l m long"), "2");
        // The head record stays as it is: the change is that of an element.
        for change in ["LSET l 0 y", "LMOVE l l LEFT LEFT", "LINSERT l AFTER a z", "LREM l 1 x", "LPOP l"] {
            assert_eq!(client.ask("WATCH l"), "OK");
            assert!(!other.ask(change).starts_with('-'), "{change}");
            assert_eq!(client.ask("MULTI"), "OK");
            assert_eq!(client.ask("RPUSH l never"), "QUEUED");
            assert_eq!(client.ask("EXEC"), "nil", "{dispatch:?}: {change}");
        }
        assert_eq!(client.ask("WATCH l"), "OK");
        assert_eq!(other.ask("LRANGE l 0 -1"), "[\"a\" \"z\" \"x\"]");
        assert_eq!(client.ask("MULTI"), "OK");
        assert_eq!(client.ask("RPUSH l now"), "QUEUED");
        assert_eq!(client.ask("EXEC"), "[4]", "a read is no change");
    }
}

#[test]
fn lists_expire_with_their_rows() {
    let (env, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let mut long = vec!["RPUSH".to_string(), "l".into()];
    long.extend((0..1_000).map(|n| n.to_string()));
    client.ask_arguments(&long);
    assert_eq!(client.ask("PEXPIRE l 10000"), "1");
    assert_eq!(client.ask("RPUSH stays a"), "1");
    env.advance(Duration::from_millis(10_001));
    assert_eq!(client.ask("LPUSHX l a"), "0");
    assert_eq!(client.ask("LRANGE l 0 -1"), "[]");
    assert_eq!(client.ask("LMOVE l stays LEFT LEFT"), "nil");
    assert_eq!(client.ask("LPUSH l new"), "1");
    assert_eq!(client.ask("TTL l"), "-1");
    wait_until(|| rows(&db) == 2);
    assert_eq!(client.ask("LRANGE l 0 -1"), "[\"new\"]");
}

/// Lists whose elements are at the ends of all positions: a push there is refused, and changes nothing.
#[test]
fn positions_end() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let (heads, content) = (db.open_table("redis:heads").unwrap(), db.open_table("redis:content").unwrap());
    let at = |key: &str, first: i64| {
        let id = 1_u64 << 40 | key.len() as u64;
        let mut head = vec![3];
        head.extend_from_slice(&id.to_le_bytes());
        head.extend_from_slice(&2_u64.to_le_bytes());
        head.extend_from_slice(&first.to_le_bytes());
        heads.put([&[0; 4], key.as_bytes()].concat(), head).unwrap();
        for (position, value) in [(first, "a"), (first + 1, "b")] {
            let position = (position as u64 ^ 1 << 63).to_be_bytes();
            content.put([&id.to_be_bytes()[..], &[4], &position].concat(), value).unwrap();
        }
    };
    at("low", i64::MIN);
    at("highest", i64::MAX - 2);
    let full = "-ERR the list has no position left at this end";
    for (command, expected) in [
        ("LPUSH low x", full),
        ("RPUSH highest x", full),
        ("LINSERT highest AFTER b x", full),
        ("LRANGE low 0 -1", "[\"a\" \"b\"]"),
        ("LRANGE highest -5 5", "[\"a\" \"b\"]"),
        ("LINDEX highest 2", "nil"),
        ("LINDEX low -3", "nil"),
        ("RPUSH low c", "3"),
        ("LPUSH highest c", "3"),
        ("LRANGE low 0 -1", "[\"a\" \"b\" \"c\"]"),
        ("LRANGE highest 0 -1", "[\"c\" \"a\" \"b\"]"),
        ("LREM highest 0 a", "1"),
        ("LPOP low 9", "[\"a\" \"b\" \"c\"]"),
        ("RPOP highest 9", "[\"b\" \"c\"]"),
        ("EXISTS low highest", "0"),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
}

/// Sets and sorted sets by the bytes of `docs/format/redis.md`.
#[test]
fn sets_and_sorted_sets_are_sorted() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let (heads, content) = (db.open_table("redis:heads").unwrap(), db.open_table("redis:content").unwrap());
    let head = |key: &str, kind: u8, id: u64, count: u64| {
        let record = [&[kind][..], &id.to_le_bytes(), &count.to_le_bytes(), &[0; 8]].concat();
        heads.put([&[0; 4], key.as_bytes()].concat(), record).unwrap();
    };
    let row = |id: u64, section: u8, number: u64, name: &str, value: &[u8]| {
        let key = [&id.to_be_bytes()[..], &[section], &number.to_be_bytes(), name.as_bytes()].concat();
        content.put(key, value).unwrap();
    };
    let (set, sorted_set) = (1 << 40, 2 << 40);
    head("s", 4, set, 3);
    for (hash, name) in [(5, "10"), (6, "9"), (7, "8")] {
        row(set, 1, hash, name, b"");
    }
    head("z", 5, sorted_set, 3);
    for (hash, name, score) in [(5, "1", 3.0_f64), (6, "2", 1.0), (7, "3", 2.0)] {
        row(sorted_set, 1, hash, name, &score.to_le_bytes());
        row(sorted_set, 2, score.to_bits() ^ 1 << 63, name, b"");
    }
    for (command, expected) in [
        ("SORT s", "[\"8\" \"9\" \"10\"]"),
        ("SORT s BY nosort DESC", "[\"10\" \"9\" \"8\"]"),
        ("SORT s BY nosort LIMIT 1 1", "[\"9\"]"),
        ("SORT s BY nosort DESC STORE d", "3"),
        ("LRANGE d 0 -1", "[\"9\" \"8\" \"10\"]"),
        ("SORT z", "[\"1\" \"2\" \"3\"]"),
        ("SORT z ALPHA DESC LIMIT 0 2", "[\"3\" \"2\"]"),
        ("SORT z BY nosort", "[\"2\" \"3\" \"1\"]"),
        ("SORT_RO z BY nosort DESC LIMIT 1 5", "[\"3\" \"2\"]"),
        ("SORT z BY nosort LIMIT 1 1 GET # GET w", "[\"3\" nil]"),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
}

/// What the clients of a queue were acknowledged, and what they asked for.
#[derive(Clone, Default)]
struct Progress {
    pushed: BTreeSet<String>,
    moved: BTreeSet<String>,
    /// `LREM` was sent.
    removing: BTreeSet<String>,
    removed: BTreeSet<String>,
}

/// Producers push items, workers move each to a second list and remove it there, and the power is cut: each item that was acknowledged is
/// in one of the lists, once, unless its removal was asked for; and in no list that it was acknowledged to have left.
#[test]
fn queues_survive_a_power_cut() {
    for round in 0..8_u64 {
        let mut config = config();
        config.io_threads = 1 + round as usize % 2;
        config.dispatch = Dispatch::ALL[usize::from(round % 4 == 3)];
        let (env, db, server) = serve(config);
        let progress = Mutex::new(Progress::default());
        let stops = AtomicBool::new(false);
        let (crashed, before, after) = std::thread::scope(|scope| {
            let _stopper = Stopper(&stops);
            let (server, stops, progress) = (&server, &stops, &progress);
            for producer in 0..2 {
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    for n in 0.. {
                        if stops.load(Ordering::SeqCst) {
                            return;
                        }
                        let items =
                            [format!("{producer}:{:08}", 2 * n), format!("{producer}:{:08}", 2 * n + 1)];
                        let pushed = client.ask(&format!("RPUSH queue {} {}", items[0], items[1]));
                        assert!(pushed.parse::<u64>().is_ok(), "{pushed}");
                        progress.lock().pushed.extend(items);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    while !stops.load(Ordering::SeqCst) {
                        let moved = client.ask("LMOVE queue working LEFT RIGHT");
                        if moved == "nil" {
                            continue;
                        }
                        let item = moved.trim_matches('"').to_string();
                        assert!(progress.lock().moved.insert(item.clone()), "{item} was given twice");
                        progress.lock().removing.insert(item.clone());
                        assert_eq!(client.ask(&format!("LREM working 1 {item}")), "1");
                        progress.lock().removed.insert(item);
                    }
                });
            }
            wait_until(|| progress.lock().removed.len() > 20);
            std::thread::park_timeout(Duration::from_millis(20 + 9 * round));
            let before = progress.lock().clone();
            let crashed = env.crash(CrashKind::PowerCut, round);
            let after = progress.lock().clone();
            stops.store(true, Ordering::SeqCst);
            (crashed, before, after)
        });
        drop((server, db));
        let db = open(&crashed);
        let server = Server::start(db.clone(), self::config()).unwrap();
        let mut client = Client::connect(&server);
        let (queue, working) = (range(&mut client, "queue"), range(&mut client, "working"));
        assert_eq!(client.ask("LLEN queue"), queue.len().to_string());
        assert_eq!(client.ask("LLEN working"), working.len().to_string());
        let waiting: BTreeSet<_> = queue.iter().cloned().collect();
        let all: BTreeSet<_> = queue.iter().chain(&working).cloned().collect();
        assert_eq!(all.len(), queue.len() + working.len(), "round {round}: an item is there twice");
        for item in before.pushed.difference(&all) {
            assert!(after.removing.contains(item), "round {round}: {item} is lost");
        }
        assert!(before.moved.is_disjoint(&waiting), "round {round}: an item that was taken is back");
        assert!(before.removed.is_disjoint(&all), "round {round}: an item that was removed is back");
        for producer in ["0:", "1:"] {
            assert!(queue.iter().filter(|item| item.starts_with(producer)).is_sorted(), "round {round}");
        }
        wait_until(|| rows(&db) == all.len());
    }
}
