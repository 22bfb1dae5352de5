//! Results of many rows are stored before the key refers to them: no crash shows a part of one, and nothing of it stays.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use fulgurite::env::sim::CrashKind;
use fulgurite_server::Server;

/// Several transactions of content.
const MEMBERS: usize = 5_000;

/// Commands that store all members of `large`, with the key that gets them and what reads its length, and the rows of its content.
const STORES: [(&str, &str, &str); 6] = [
    ("SUNIONSTORE set large", "set", "SCARD set"),
    ("SDIFFSTORE set large small", "set", "SCARD set"),
    ("ZUNIONSTORE zset 1 large", "zset", "ZCARD zset"),
    ("ZRANGESTORE range scores 0 -1", "range", "ZCARD range"),
    ("SORT large ALPHA STORE list", "list", "LLEN list"),
    ("COPY large copy REPLACE", "copy", "SCARD copy"),
];

fn begin(client: &mut Client) {
    for first in (0..MEMBERS).step_by(1_000) {
        let names: Vec<String> = (first..first + 1_000).map(|number| format!("m:{number:05}")).collect();
        assert_eq!(client.ask(&format!("SADD large {}", names.join(" "))), "1000");
    }
    assert_eq!(client.ask("SADD small x"), "1");
    assert_eq!(client.ask("ZUNIONSTORE scores 1 large"), MEMBERS.to_string());
}

/// All members of a key, each of which it has once.
fn members(client: &mut Client, key: &str) -> BTreeSet<String> {
    let reply = match client.ask(&format!("TYPE {key}")).as_str() {
        "set" => client.ask(&format!("SMEMBERS {key}")),
        "zset" => client.ask(&format!("ZRANGE {key} 0 -1")),
        "list" => client.ask(&format!("LRANGE {key} 0 -1")),
        other => panic!("{key}: {other}"),
    };
    let names: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
    let set: BTreeSet<String> = names.iter().map(|name| name.to_string()).collect();
    assert_eq!(names.len(), set.len(), "{key}");
    set
}

#[test]
fn results_of_many_rows_are_stored_whole() {
    for dispatch in fulgurite_server::Dispatch::ALL {
        let (_, db, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        begin(&mut client);
        let large = members(&mut client, "large");
        assert_eq!(large.len(), MEMBERS);
        for (command, key, count) in STORES {
            let reply = if command.starts_with("COPY") { "1".into() } else { MEMBERS.to_string() };
            // Over another key, over itself, and in a transaction, which stores them with its own writes.
            assert_eq!(client.ask(&format!("SET {key} v")), "OK");
            (0..2).for_each(|_| assert_eq!(client.ask(command), reply, "{command}"));
            assert_eq!(client.ask(count), MEMBERS.to_string(), "{command}");
            assert_eq!(members(&mut client, key), large, "{command}");
            assert_eq!(client.ask("MULTI"), "OK");
            assert_eq!(client.ask(command), "QUEUED");
            assert_eq!(client.ask(count), "QUEUED");
            assert_eq!(client.ask("EXEC"), format!("[{reply} {MEMBERS}]"), "{command}");
            assert_eq!(members(&mut client, key), large, "{command}");
        }
        assert_eq!(client.ask("ZRANK zset m:02500"), "2500");
        assert_eq!(client.ask("ZRANK range m:04999"), "4999");
        wait_until(|| rows(&db, "redis:garbage") == 0);
        assert!(client.ask("INFO").contains("fulgurite_arriving_values:0\r\n"));
        assert_eq!(client.ask("FLUSHALL"), "OK");
        assert_all_is_reclaimed(&db);
    }
}

/// After a power cut each key has the whole result, if that was ever acknowledged, and all else that was stored is reclaimed.
#[test]
fn a_power_cut_leaves_no_part_of_a_result() {
    let mut cut_in_the_middle = 0;
    for round in 0..12_u64 {
        let (env, db, server) = serve(config());
        begin(&mut Client::connect(&server));
        let (stops, acknowledged) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
        let crashed = std::thread::scope(|scope| {
            let _stopper = Stopper(&stops);
            let (server, stops, acknowledged) = (&server, &stops, &acknowledged);
            scope.spawn(move || {
                let mut client = Client::connect(server);
                for (command, key, _) in STORES.iter().cycle() {
                    if stops.load(Ordering::SeqCst) {
                        return;
                    }
                    assert!(!client.ask(command).starts_with('-'), "{command}");
                    acknowledged.lock().unwrap().insert(*key);
                }
            });
            // The log is flushed all the time, and what was stored of a result with it.
            scope.spawn(move || {
                let mut client = Client::connect(server);
                while !stops.load(Ordering::SeqCst) {
                    assert_eq!(client.ask("SET other v"), "OK");
                }
            });
            wait_until(|| rows(&db, "redis:garbage") > 0 || !acknowledged.lock().unwrap().is_empty());
            std::thread::park_timeout(Duration::from_millis(11 * round));
            let kept = acknowledged.lock().unwrap().clone();
            let crashed = env.crash(CrashKind::PowerCut, round);
            stops.store(true, Ordering::SeqCst);
            (crashed, kept)
        });
        drop((server, db));
        let (crashed, kept) = crashed;
        let db = open(&crashed);
        cut_in_the_middle += usize::from(rows(&db, "redis:garbage") > 0);
        let server = Server::start(db.clone(), config()).unwrap();
        let mut client = Client::connect(&server);
        let large = members(&mut client, "large");
        assert_eq!(large.len(), MEMBERS);
        for (_, key, count) in STORES {
            let found = client.ask(count);
            assert!(found == MEMBERS.to_string() || found == "0" && !kept.contains(key), "{key}: {found}");
            if found != "0" {
                assert_eq!(members(&mut client, key), large, "{key}");
            }
        }
        wait_until(|| rows(&db, "redis:garbage") == 0);
        assert_eq!(client.ask("FLUSHALL"), "OK");
        assert_all_is_reclaimed(&db);
    }
    assert!(cut_in_the_middle > 0, "no power cut came in the middle of a command");
}
