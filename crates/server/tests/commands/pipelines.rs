//! Commands that arrive together, of one client or of several: many of them run in one transaction, and no client sees that.

use std::thread::scope;
use std::time::Duration;

use crate::support::*;
use fulgurite_resp::encode_command;

/// K is a key, V a value, others are themselves.
const TEMPLATES: &[&str] = &[
    "SET K V",
    "SET K V",
    "SET K V NX",
    "SET K V XX GET",
    "SET K V EX",
    "SET K V EX 1000",
    "SET K V PX 0",
    "GET K",
    "INCR K",
    "INCR K",
    "INCRBY K V",
    "DECRBY K x",
    "APPEND K V",
    "SETRANGE K 3 V",
    "SETRANGE K -1 V",
    "GETSET K V",
    "GETDEL K",
    "MSET K V K V",
    "MSET K V K",
    "MSETNX K V K V",
    "DEL K K",
    "EXISTS K K",
    "MGET K K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K REPLACE",
    "EXPIRE K 1000",
    "EXPIRE K 0",
    "PERSIST K",
    "SET K",
    "NOTHING K",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "SELECT 1",
    "SELECT 0",
    "DURABILITY none",
    "DURABILITY sync",
    "PING",
];

fn generate(random: &mut Random, commands: usize) -> Vec<String> {
    generate_for(random, commands, "")
}

/// The same with keys that begin with `prefix`.
fn generate_for(random: &mut Random, commands: usize, prefix: &str) -> Vec<String> {
    let word = |random: &mut Random, word: &str| match word {
        "K" => format!("{prefix}{}", ["a", "b", "c", "d"][random.below(4)]),
        "V" => ["1", "25", "x", "text"][random.below(4)].to_string(),
        other => other.to_string(),
    };
    (0..commands)
        .map(|_| {
            let words = TEMPLATES[random.below(TEMPLATES.len())].split(' ');
            words.map(|template| word(random, template)).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn encode(commands: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in commands {
        encode_command(&mut bytes, &command.split(' ').collect::<Vec<_>>());
    }
    bytes
}

#[test]
fn pipelined_commands_get_the_replies_that_they_get_one_by_one() {
    let (_, _, single) = serve(config());
    let (_, _, piped) = serve(config());
    let (mut one, mut many) = (Client::connect(&single), Client::connect(&piped));
    let mut random = Random(7);
    for round in 0..150 {
        let len = 1 + random.below(90);
        let commands = generate(&mut random, len);
        let expected: Vec<String> = commands.iter().map(|command| one.ask(command)).collect();
        // Also with a command that arrives in two parts.
        let bytes = encode(&commands);
        let (first, rest) = bytes.split_at(random.below(bytes.len()));
        many.send(first);
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        many.send(rest);
        for (index, command) in commands.iter().enumerate() {
            let before = &commands[index.saturating_sub(5)..index];
            assert_eq!(many.receive_text(), expected[index], "round {round}: {command} after {before:?}");
        }
    }
    assert_eq!(one.ask("DBSIZE"), many.ask("DBSIZE"));
}

#[test]
fn commands_that_arrive_together_are_few_transactions() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let before = db.visible_csn().0;
    let commands: Vec<String> = (0..60).map(|number| format!("SET {number} x")).collect();
    client.send(&encode(&commands));
    assert!(commands.iter().all(|_| client.receive_text() == "OK"));
    assert!(db.visible_csn().0 - before < 30, "{} transactions", db.visible_csn().0 - before);
    assert_eq!(client.ask("DBSIZE"), "60");
}

/// While the I/O thread runs what one client has sent, the commands of others arrive.
#[test]
fn commands_of_several_clients_are_few_transactions() {
    const CLIENTS: usize = 30;
    let mut config = config();
    config.io_threads = 1;
    let (_, db, server) = serve(config);
    let mut busy = Client::connect(&server);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(&server)).collect();
    let rows: Vec<String> = (0..400).map(|row| format!("m{row}")).collect();
    assert_eq!(busy.ask(&format!("RPUSH rows {}", rows[..200].join(" "))), "200");
    assert_eq!(busy.ask(&format!("RPUSH rows {}", rows[200..].join(" "))), "400");
    let work = encode(&vec!["LRANGE rows 0 -1".to_string(); 60]);
    // The commands may arrive one by one in a round or two: then other threads had the processors.
    let fewest = (0..20).map(|round| {
        let before = db.visible_csn().0;
        busy.send(&work);
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_command(&format!("SET {round}:{number} x"));
        }
        assert!(clients.iter_mut().all(|client| client.receive_text() == "OK"));
        (0..60).for_each(|_| _ = busy.receive());
        db.visible_csn().0 - before
    });
    let fewest = fewest.min().unwrap();
    assert!(fewest < 10, "{fewest} transactions");
    assert_eq!(busy.ask("DBSIZE"), (20 * CLIENTS + 1).to_string());
}

/// Clients that have keys of their own send whatever they like at the same time: each gets the replies that it gets alone, although a
/// command of another may have failed in the transaction that they had in common.
#[test]
fn clients_beside_others_get_the_replies_that_they_get_alone() {
    const CLIENTS: usize = 8;
    let mut config_of_one = config();
    config_of_one.io_threads = 1;
    let (_, _, alone) = serve(config());
    let (_, db, server) = serve(config_of_one);
    let mut one = Client::connect(&alone);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(&server)).collect();
    let mut random = Random(11);
    let (mut commands_of_all, before) = (0, db.visible_csn().0);
    for round in 0..60 {
        let all: Vec<Vec<String>> = (0..CLIENTS)
            .map(|number| {
                let len = 1 + random.below(20);
                let mut commands = generate_for(&mut random, len, &format!("{number}:"));
                // What one leaves open is not for the next.
                commands.extend(["DISCARD", "SELECT 0", "DURABILITY sync"].map(String::from));
                commands
            })
            .collect();
        let mut left: Vec<Vec<u8>> = all.iter().map(|commands| encode(commands)).collect();
        while left.iter().any(|bytes| !bytes.is_empty()) {
            for (client, bytes) in clients.iter_mut().zip(&mut left) {
                let count = (1 + random.below(400)).min(bytes.len());
                client.send(&bytes[..count]);
                bytes.drain(..count);
            }
        }
        for (number, (client, commands)) in clients.iter_mut().zip(&all).enumerate() {
            for (index, command) in commands.iter().enumerate() {
                let expected = one.ask(command);
                let before = &commands[..index];
                let reply = client.receive_text();
                assert_eq!(reply, expected, "round {round}, client {number}: {command} after {before:?}");
            }
        }
        commands_of_all += all.iter().flatten().count() as u64;
    }
    assert_eq!(one.ask("DBSIZE"), clients[0].ask("DBSIZE"));
    assert!(db.visible_csn().0 - before < commands_of_all / 3, "they were in transactions of their own");
    // Those that send no more get all replies, and then the end.
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&encode(&[format!("SET {number}: last"), format!("APPEND {number}: one")]));
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
    for client in &mut clients {
        assert_eq!((client.receive_text(), client.receive_text()), ("OK".into(), "7".into()));
        assert!(client.receive().is_none());
    }
}

/// Values that an I/O thread does not touch: the commands before them, which ran in the same batch, happen once.
#[test]
fn a_command_for_a_worker_amid_others_takes_its_turn() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    let long = "v".repeat(300 << 10);
    assert_eq!(client.ask(&format!("SET long {long}")), "OK");
    let commands =
        ["INCR a", "APPEND long x", "INCR a", "MSET b 1 long 2", "INCR a", "APPEND b 2", "GET long"];
    client.send(&encode(&commands.map(String::from)));
    let replies: Vec<String> = commands.iter().map(|_| client.receive_text()).collect();
    assert_eq!(replies, ["1", "307201", "2", "OK", "3", "2", "\"2\""]);
}

/// Batches of two I/O threads, which lock the same keys and conflict.
#[test]
fn clients_that_pipeline_to_the_same_keys_lose_nothing() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 60;
    const COMMANDS: usize = 30;
    let mut config = config();
    config.io_threads = 2;
    let (_, _, server) = serve(config);
    scope(|scope| {
        for number in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::connect(server);
                let mut last = [0; 3];
                for round in 0..ROUNDS {
                    let keys: Vec<usize> =
                        (0..COMMANDS).map(|index| (index * (number + 1) + round) % 3).collect();
                    let commands: Vec<String> = keys.iter().map(|key| format!("INCR {key}")).collect();
                    client.send(&encode(&commands));
                    for key in keys {
                        let count: u64 = client.receive_text().parse().unwrap();
                        assert!(count > last[key], "{count} after {}", last[key]);
                        last[key] = count;
                    }
                }
            });
        }
    });
    let mut client = Client::connect(&server);
    let counts = [0, 1, 2].map(|key| client.ask(&format!("GET {key}")));
    let sum: usize = counts.iter().map(|count| count.trim_matches('"').parse::<usize>().unwrap()).sum();
    assert_eq!(sum, CLIENTS * ROUNDS * COMMANDS);
}

/// The replies up to the end arrive, although the client has sent more after it, which is never read.
#[test]
fn what_follows_the_end_of_a_connection_costs_no_replies() {
    let (_, _, server) = serve(config());
    let value = "v".repeat(700_000);
    assert_eq!(Client::connect(&server).ask(&format!("SET k {value}")), "OK");
    for (end, last) in [("QUIT\r\n", "OK"), ("*x\r\n", "-ERR Protocol error: invalid multibulk length")] {
        for _ in 0..20 {
            let mut client = Client::connect(&server);
            client.send(format!("GET k\r\n{end}{}", "PING\r\n".repeat(20_000)).as_bytes());
            std::thread::park_timeout(Duration::from_millis(20));
            assert_eq!(client.receive_text().len(), value.len() + 2);
            assert_eq!(client.receive_text(), last);
            assert_eq!(client.receive_text(), "closed");
        }
    }
}

/// A client whose command is in a batch sends another one after a `FLUSHDB` was acknowledged, in the same round of the event loop.
#[test]
fn a_command_that_joins_a_batch_of_its_client_writes_after_what_was_flushed_before_it() {
    let mut config = config();
    config.io_threads = 2;
    let (_, _, server) = serve(config);
    // In turns on the two threads.
    let mut all: Vec<Client> = (0..12).map(|_| Client::connect(&server)).collect();
    assert!(all.iter_mut().all(|client| client.ask("PING") == "PONG"));
    let mut others: Vec<Client> = Vec::new();
    let mut same: Vec<Client> = Vec::new();
    for (index, client) in all.into_iter().enumerate() {
        if index % 2 == 0 { same.push(client) } else { others.push(client) }
    }
    let (mut flusher, mut reader) = (others.pop().unwrap(), others.pop().unwrap());
    let mut writer = same.pop().unwrap();
    let rows: Vec<String> = (0..200).map(|row| format!("m{row}")).collect();
    reader.ask("SELECT 1");
    reader.ask(&format!("RPUSH rows {}", rows.join(" ")));
    reader.ask(&format!("RPUSH rows {}", rows.join(" ")));
    reader.ask("SELECT 0");
    for client in &mut same {
        assert_eq!(client.ask("SELECT 1"), "OK");
    }
    let work = encode(&vec!["LRANGE rows 0 -1".to_string(); 60]);
    for round in 0..200 {
        let key = format!("key{round}");
        let last = encode(&[format!("SET {key} v")]);
        // The first round of the event loop.
        same[0].send(&work);
        std::thread::park_timeout(std::time::Duration::from_millis(1));
        // The second: the writer leaves some of its commands for its next turn.
        writer.send(&encode(&vec!["SET other v".to_string(); 68]));
        same[1].send(&work);
        same[2].send(&work);
        std::thread::park_timeout(std::time::Duration::from_millis(round % 12));
        // The third: the rest of those join the batch, and then the last one.
        same[3].send(&work);
        same[4].send(&work);
        writer.send(&last[..5]);
        std::thread::park_timeout(std::time::Duration::from_millis((round / 12) % 12));
        assert_eq!(flusher.ask("FLUSHDB"), "OK");
        writer.send(&last[5..]);
        assert!((0..69).all(|_| writer.receive_text() == "OK"));
        assert_eq!(
            reader.ask(&format!("GET {key}")),
            "\"v\"",
            "round {round}: an acknowledged write is lost"
        );
        same[..5].iter_mut().for_each(|client| (0..60).for_each(|_| _ = client.receive()));
    }
}

/// A client sends nothing more, its reply to a command before waits for a commit, and another one fails the batch in which its last
/// command is.
#[test]
fn a_client_that_has_ended_gets_replies_to_commands_of_a_batch_that_was_given_up() {
    let mut config = config();
    config.io_threads = 1;
    config.flushing = fulgurite_server::Flushing::Lead;
    let (_, _, server) = serve(config);
    let mut busy = Client::connect(&server);
    let rows: Vec<String> = (0..200).map(|row| format!("m{row}")).collect();
    assert_eq!(busy.ask(&format!("RPUSH rows {}", rows.join(" "))), "200");
    assert_eq!(busy.ask(&format!("RPUSH rows {}", rows.join(" "))), "400");
    let work = encode(&vec!["LRANGE rows 0 -1".to_string(); 60]);
    for round in 0..20 {
        let (mut ends, mut fails) = (Client::connect(&server), Client::connect(&server));
        assert_eq!((ends.ask("PING"), fails.ask("PING")), ("PONG".into(), "PONG".into()));
        busy.send(&work);
        std::thread::park_timeout(std::time::Duration::from_millis(1));
        ends.send(&encode(&["SET x 1", "PING", "INCR y"].map(String::from)));
        ends.stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It has copied some when there are too many rows for an I/O thread.
        fails.send_command("COPY rows copy REPLACE");
        let replies = [0; 3].map(|_| ends.receive_text());
        assert_eq!(replies, ["OK", "PONG", &(round + 1).to_string()], "round {round}");
        assert!(ends.receive().is_none());
        (0..60).for_each(|_| _ = busy.receive());
        assert_eq!(fails.receive_text(), "1");
    }
}

/// Commands that are short, and write much: more than a transaction may that does not wait.
#[test]
fn commands_that_write_long_values_are_few_transactions() {
    const CLIENTS: usize = 16;
    let mut config = config();
    config.io_threads = 1;
    let (_, db, server) = serve(config);
    let mut busy = Client::connect(&server);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(&server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(&format!("SET {number} {}", "v".repeat(20 << 10))), "OK");
    }
    let rows: Vec<String> = (0..200).map(|row| format!("m{row}")).collect();
    assert_eq!(busy.ask(&format!("RPUSH rows {}", rows.join(" "))), "200");
    let work = encode(&vec!["LRANGE rows 0 -1".to_string(); 60]);
    let fewest = (0..20).map(|round| {
        let before = db.visible_csn().0;
        busy.send(&work);
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_command(&format!("EXPIRE {number} {}", 1_000 + round));
        }
        assert!(clients.iter_mut().all(|client| client.receive_text() == "1"));
        (0..60).for_each(|_| _ = busy.receive());
        db.visible_csn().0 - before
    });
    let all: Vec<u64> = fewest.collect();
    assert!(*all.iter().min().unwrap() < 10, "{all:?} transactions");
}

/// A client's key is locked by a batch of another I/O thread, which runs many reads of others.
#[test]
#[expect(clippy::disallowed_methods, reason = "the time of real sockets")]
fn a_batch_ends_before_many_reads_beside_it() {
    let mut config = config();
    config.io_threads = 2;
    let (_, _, server) = serve(config);
    // In turns on the two threads.
    let all: Vec<Client> = (0..60).map(|_| Client::connect(&server)).collect();
    let (mut same, mut others) = (Vec::new(), Vec::new());
    for (index, mut client) in all.into_iter().enumerate() {
        assert_eq!(client.ask("PING"), "PONG");
        if index % 2 == 0 { same.push(client) } else { others.push(client) }
    }
    let rows: Vec<String> = (0..400).map(|row| format!("m{row}")).collect();
    assert_eq!(others[0].ask(&format!("RPUSH rows {}", rows[..200].join(" "))), "200");
    assert_eq!(others[0].ask(&format!("RPUSH rows {}", rows[200..].join(" "))), "400");
    let mut member = same.pop().unwrap();
    let work = encode(&vec!["LRANGE rows 0 -1".to_string(); 60]);
    let timed = |client: &mut Client, command: &str| {
        let begun = std::time::Instant::now();
        assert_eq!(client.ask(command), "OK");
        begun.elapsed()
    };
    let mut waits: Vec<_> = (0..10)
        .map(|_| {
            let begun = std::time::Instant::now();
            same[0].send(&work);
            std::thread::park_timeout(std::time::Duration::from_millis(1));
            member.send_command("SET hot 1");
            same[1..].iter_mut().for_each(|client| client.send(&work));
            std::thread::park_timeout(std::time::Duration::from_millis(20));
            let cold = timed(&mut others[0], "SET cold 2");
            let hot = timed(&mut others[0], "SET hot 2");
            assert_eq!(member.receive_text(), "OK");
            same.iter_mut().for_each(|client| (0..60).for_each(|_| _ = client.receive()));
            (hot, cold, begun.elapsed())
        })
        .collect();
    waits.sort();
    assert!(waits[2].0 < waits[2].2 / 4, "{waits:?}");
}
