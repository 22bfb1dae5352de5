//! Strings above a size are in fragments: every command gives what it gives of a short one, and touches only what it must.

use crate::support::*;
use fulgurite::env::sim::CrashKind;
use fulgurite_resp::Reply;
use fulgurite_server::{Dispatch, Server};

fn bulk(client: &mut Client, arguments: &[&[u8]]) -> Vec<u8> {
    client.send_arguments(arguments);
    match client.receive() {
        Some(Reply::Bulk(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

/// A long string and a model of it, through commands that are chosen at random, and a crash.
#[test]
fn a_long_string_is_what_the_commands_made_it() {
    for (dispatch, seed) in [(Dispatch::Inline, 1), (Dispatch::Queue, 2), (Dispatch::Filter, 3)] {
        let mut config = config();
        config.dispatch = dispatch;
        let (env, db, server) = serve(config.clone());
        let mut client = Client::connect(&server);
        let (mut random, mut model) = (Random(seed), Vec::new());
        let mut longest = 0;
        for step in 0..400 {
            let len = [0, 1, 100, 20_000, 70_000][random.below(5)];
            let bytes = random.bytes(len);
            match random.below(8) {
                0 => {
                    model.extend_from_slice(&bytes);
                    assert_eq!(
                        client.ask_arguments(&[b"APPEND", &b"s"[..], &bytes]),
                        model.len().to_string()
                    );
                }
                1 if !bytes.is_empty() => {
                    let offset = random.below(model.len() + 40_000);
                    model.resize(model.len().max(offset + bytes.len()), 0);
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                    let offset = offset.to_string();
                    let arguments = [b"SETRANGE", &b"s"[..], offset.as_bytes(), &bytes];
                    assert_eq!(client.ask_arguments(&arguments), model.len().to_string(), "step {step}");
                }
                2 => {
                    let offset = random.below(8 * model.len() + 300_000);
                    model.resize(model.len().max(offset / 8 + 1), 0);
                    let before = model[offset / 8] >> (7 - offset % 8) & 1;
                    model[offset / 8] ^= 1 << (7 - offset % 8);
                    assert_eq!(client.ask(&format!("GETBIT s {offset}")), before.to_string());
                    assert_eq!(client.ask(&format!("SETBIT s {offset} {}", 1 - before)), before.to_string());
                    let field = client.ask(&format!("BITFIELD s GET u1 {offset}"));
                    assert_eq!(field, format!("[{}]", 1 - before), "step {step}");
                }
                3 if !model.is_empty() => {
                    let start = random.below(model.len());
                    let end = start + random.below(model.len() - start);
                    let (from, to) = (start.to_string(), end.to_string());
                    let found = bulk(&mut client, &[b"GETRANGE", b"s", from.as_bytes(), to.as_bytes()]);
                    assert!(found == model[start..=end], "step {step}: {start} to {end}");
                }
                4 if !model.is_empty() => {
                    assert_eq!(client.ask("STRLEN s"), model.len().to_string());
                    assert_eq!(client.ask("TYPE s"), "string");
                    let ones: u32 = model.iter().map(|byte| byte.count_ones()).sum();
                    assert_eq!(client.ask("BITCOUNT s"), ones.to_string());
                }
                5 if !model.is_empty() => {
                    // The content goes with the key, and a copy is another one.
                    assert_eq!(client.ask("COPY s copy REPLACE"), "1");
                    assert_eq!(client.ask("APPEND copy x"), (model.len() + 1).to_string());
                    assert_eq!(client.ask("RENAME s other"), "OK");
                    assert_eq!(client.ask("EXPIRE other 1000"), "1");
                    assert_eq!(client.ask("RENAME other s"), "OK");
                    assert_eq!(client.ask("PERSIST s"), "1");
                }
                6 if random.below(8) == 0 => {
                    model = bytes;
                    assert_eq!(client.ask_arguments(&[b"SET", &b"s"[..], &model]), "OK");
                }
                _ if !model.is_empty() => {
                    assert!(bulk(&mut client, &[b"GET", b"s"]) == model, "step {step}");
                    assert!(bulk(&mut client, &[b"GETEX", b"s", b"PERSIST"]) == model, "step {step}");
                }
                _ => {}
            }
            longest = longest.max(model.len());
        }
        assert!(longest > 200_000, "{longest}");
        assert_eq!(client.ask("DEL copy"), "1");
        let crashed = env.crash(CrashKind::PowerCut, 1);
        drop((server, db));
        let db = open(&crashed);
        let server = Server::start(db.clone(), config).unwrap();
        let mut client = Client::connect(&server);
        assert!(bulk(&mut client, &[b"GET", b"s"]) == model, "after a power cut");
        assert!(bulk(&mut client, &[b"GETDEL", b"s"]) == model);
        let rows = |table: &str| db.open_table(table).unwrap().range(..).unwrap().count();
        wait_until(|| rows("redis:content") == 0 && rows("redis:garbage") == 0);
    }
}

/// Writing far behind the end, and appending, cost a fragment, not the string.
#[test]
fn commands_touch_only_what_they_must() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let written = || db.stats().user_bytes;
    let before = written();
    assert_eq!(client.ask("SETBIT s 4294967295 1"), "0");
    assert_eq!(client.ask("STRLEN s"), (512 << 20).to_string());
    assert_eq!(client.ask("GETBIT s 4294967295"), "1");
    assert_eq!(client.ask("GETRANGE s -2 -1"), "\"\0\u{1}\"");
    assert_eq!(client.ask("BITFIELD s SET u8 8000000 7 GET u16 7999992"), "[0 7]");
    assert_eq!(client.ask("SETRANGE s 100000000 abc"), (512 << 20).to_string());
    for _ in 0..100 {
        assert_eq!(client.ask("EXPIRE s 1000"), "1");
    }
    assert_eq!(client.ask("RENAME s t"), "OK");
    assert_eq!(client.ask("APPEND t x"), "-ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    let bytes = written() - before;
    assert!(bytes < 200_000, "{bytes} bytes were written");
}

#[test]
fn a_long_string_is_of_one_type() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    let long = vec![b'7'; 100_000];
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!(client.ask_arguments(&[b"SET", &b"s"[..], &long]), "OK");
    for (command, expected) in [
        ("HGET s f", wrong),
        ("HSET s f v", wrong),
        ("INCR s", "-ERR value is not an integer or out of range"),
        ("OBJECT ENCODING s", "\"raw\""),
        ("SETNX s 1", "0"),
        ("SCAN 0 TYPE string", "[\"0\" [\"s\"]]"),
        ("SCAN 0 TYPE hash", "[\"0\" []]"),
        ("SET s 1 XX", "OK"),
        ("INCR s", "2"),
        ("HSET h f v", "1"),
        ("APPEND h x", wrong),
        ("SETRANGE h 0 x", wrong),
        ("GETRANGE h 0 1", wrong),
        ("SETBIT h 1 1", wrong),
        ("GETBIT h 1", wrong),
        ("STRLEN h", wrong),
        ("BITOP NOT x h", wrong),
        ("BITFIELD h GET u8 0", wrong),
        ("MGET h s", "[nil \"2\"]"),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
}
