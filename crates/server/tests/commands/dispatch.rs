//! Where commands run, what `INFO` says of that, and reads of the memtables alone.

use crate::support::*;
use fulgurite::Options;
use fulgurite::env::SimEnv;
use fulgurite_server::{Config, Dispatch, Flushing, Server};

fn by(dispatch: Dispatch) -> Config {
    let mut config = config();
    config.dispatch = dispatch;
    config
}

/// The number `name` in the line of `INFO` that begins with `line`; 0 if there is none.
fn figure(client: &mut Client, section: &str, line: &str, name: &str) -> u64 {
    let info = client.ask(&format!("INFO {section}"));
    let line = info.split("\r\n").find_map(|found| found.strip_prefix(&format!("{line}:")));
    let fields = line.unwrap_or_default().split(',');
    let value = fields.filter_map(|field| field.strip_prefix(&format!("{name}="))).next();
    value.map_or(0, |value| value.parse().unwrap())
}

/// How many calls of a command ran so: `inline`, `at_workers`, `in_memtables` or `not_in_memtables`.
fn calls(client: &mut Client, way: &str, command: &str) -> u64 {
    figure(client, "fulgurite_commands", &format!("fulgurite_{way}_{command}"), "calls")
}

fn handed_on(client: &mut Client, command: &str, reason: &str) -> u64 {
    figure(client, "fulgurite_commands", &format!("fulgurite_handed_on_{command}"), reason)
}

#[test]
fn the_filter_decides_which_reads_the_io_thread_runs() {
    let (_, db, server) = serve(by(Dispatch::Filter));
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("MSET k v other w"), "OK");
    assert_eq!(client.ask("GET k"), "\"v\"");
    assert_eq!((calls(&mut client, "inline", "get"), calls(&mut client, "at_workers", "get")), (0, 1));
    assert_eq!(handed_on(&mut client, "get", "filter"), 1);
    assert_eq!(handed_on(&mut client, "mset", "dispatch"), 1, "it is no read");
    db.checkpoint().unwrap();
    assert_eq!(client.ask("GET k"), "\"v\"");
    assert_eq!(client.ask("GET"), "-ERR wrong number of arguments for 'get' command");
    assert_eq!(client.ask("MGET k other"), "[\"v\" \"w\"]");
    assert_eq!((calls(&mut client, "inline", "get"), calls(&mut client, "inline", "mget")), (1, 1));
    assert_eq!(calls(&mut client, "in_memtables", "get"), 1);
    assert_eq!(calls(&mut client, "not_in_memtables", "get"), 1);
    // One key of them is in a memtable again.
    assert_eq!(client.ask("SET other x"), "OK");
    assert_eq!(client.ask("MGET k other"), "[\"v\" \"x\"]");
    assert_eq!(handed_on(&mut client, "mget", "filter"), 1);
    // Neither what has no keys, nor what belongs to a transaction.
    assert_eq!(client.ask("PING"), "PONG");
    assert_eq!(handed_on(&mut client, "ping", "dispatch"), 1);
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("GET k"), "QUEUED");
    assert_eq!(client.ask("EXEC"), "[\"v\"]");
    assert_eq!((calls(&mut client, "inline", "get"), calls(&mut client, "at_workers", "get")), (1, 2));
    assert!(client.ask("INFO fulgurite_commands").contains("fulgurite_dispatch:filter\r\n"));
}

#[test]
fn a_read_of_the_memtables_finds_what_is_not_in_the_base() {
    for dispatch in Dispatch::ALL {
        let (env, db, server) = serve(by(dispatch));
        let mut client = Client::connect(&server);
        let mut check = |commands: &[(&str, &str)]| {
            for (command, expected) in commands {
                assert_eq!(client.ask(command), *expected, "{command}, {dispatch:?}");
            }
        };
        check(&[
            ("DELTA GET k", "nil"),
            ("SET k v", "OK"),
            ("SET gone v", "OK"),
            ("SET short v PX 1000", "OK"),
            ("RPUSH list a", "1"),
            ("DELTA GET k", "[\"v\"]"),
            ("DELTA GET list", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("SELECT 1", "OK"),
            ("DELTA GET k", "nil"),
            ("SELECT 0", "OK"),
        ]);
        db.checkpoint().unwrap();
        check(&[
            ("DELTA GET k", "nil"),
            ("GET k", "\"v\""),
            ("DEL gone", "1"),
            ("DELTA GET gone", "[nil]"),
            ("DELTA GET list", "nil"),
            ("PEXPIRE short 1000", "1"),
            ("DELTA GET short", "[\"v\"]"),
        ]);
        env.advance(std::time::Duration::from_secs(2));
        let long = "v".repeat(100_000);
        check(&[
            ("DELTA GET short", "[nil]"),
            (&format!("SET k {long}"), "OK"),
            (
                "DELTA GET k",
                "-ERR the string is longer than 64 KiB, and the memtables may not hold all of it",
            ),
            ("DELTA GET", "-ERR wrong number of arguments for 'delta|get' command"),
            ("DELTA SET k", "-ERR unknown subcommand 'SET'. Try DELTA HELP."),
            ("MULTI", "OK"),
            ("DELTA GET k", "-ERR Command not allowed inside a transaction"),
            ("DISCARD", "OK"),
        ]);
        let read_inline = calls(&mut client, "inline", "delta|get");
        let read_at_workers = calls(&mut client, "at_workers", "delta|get");
        let expected = match dispatch {
            Dispatch::Queue => (0, 10),
            Dispatch::Filter => (4, 6),
            Dispatch::Inline => (10, 0),
        };
        assert_eq!((read_inline, read_at_workers), expected, "{dispatch:?}");
        assert_eq!(calls(&mut client, "in_memtables", "delta|get"), 6);
        assert_eq!(calls(&mut client, "not_in_memtables", "delta|get"), 4);
    }
}

/// No thread writes the log but the test: a writer sees its own commit in the memtables, others do not yet, and no reply leaves that shows
/// it.
#[test]
fn a_read_of_the_memtables_waits_for_the_commit_that_it_shows() {
    for dispatch in Dispatch::ALL {
        let env = SimEnv::new(1);
        let db = open_with(&env, Options { background: false, ..Options::default() });
        let mut config = by(dispatch);
        config.flushing = Flushing::Watch;
        let server = Server::start(db.clone(), config).unwrap();
        let (mut writer, mut reader) = (Client::connect(&server), Client::connect(&server));
        writer.send_command("SET k v");
        writer.send_command("DELTA GET k");
        assert!(writer.is_silent(), "{dispatch:?}");
        assert_eq!(reader.ask("DELTA GET k"), "nil", "{dispatch:?}");
        db.wait_durable(db.visible_csn()).unwrap();
        assert_eq!([writer.receive_text(), writer.receive_text()], ["OK", "[\"v\"]"]);
        assert_eq!(reader.ask("DELTA GET k"), "[\"v\"]");
    }
}

#[test]
fn commands_and_errors_are_counted_as_in_redis() {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve(by(dispatch));
        let mut client = Client::connect(&server);
        let count = |client: &mut Client, command: &str, name: &str| {
            figure(client, "commandstats", &format!("cmdstat_{command}"), name)
        };
        assert_eq!(client.ask("CONFIG RESETSTAT"), "OK");
        for (command, expected) in [
            ("SET k v", "OK"),
            ("INCR k", "-ERR value is not an integer or out of range"),
            ("LPUSH k a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("GET k k", "-ERR wrong number of arguments for 'get' command"),
            ("NONSENSE", "-ERR unknown command 'NONSENSE', with args beginning with: "),
            ("CLIENT SETNAME me", "OK"),
            ("MULTI", "OK"),
            ("SET k w", "QUEUED"),
            ("INCR k", "QUEUED"),
            ("EXEC", "[OK -ERR value is not an integer or out of range]"),
        ] {
            assert_eq!(client.ask(command), expected);
        }
        // Those that arrive together are counted each.
        client.send(b"SET a 1\r\nSET b 2\r\nINCR a\r\n");
        assert_eq!([(); 3].map(|()| client.receive_text()), ["OK", "OK", "2"]);
        for (command, ran, rejected, failed) in [
            ("set", 4, 0, 0),
            ("incr", 3, 0, 2),
            ("lpush", 1, 0, 1),
            ("get", 0, 1, 0),
            ("client|setname", 1, 0, 0),
            ("client", 0, 0, 0),
            ("multi", 1, 0, 0),
            ("exec", 1, 0, 0),
        ] {
            let counts =
                ["calls", "rejected_calls", "failed_calls"].map(|name| count(&mut client, command, name));
            assert_eq!(counts, [ran, rejected, failed], "{command}, {dispatch:?}");
        }
        let errors = ["ERR", "WRONGTYPE"]
            .map(|code| figure(&mut client, "errorstats", &format!("errorstat_{code}"), "count"));
        assert_eq!(errors, [4, 1], "{dispatch:?}");
        assert!(client.ask("INFO").contains("errorstat_WRONGTYPE:count=1\r\n"));
        assert!(!client.ask("INFO").contains("cmdstat_"), "only for those that ask");
        assert_eq!(client.ask("CONFIG RESETSTAT"), "OK");
        let text = client.ask("INFO commandstats errorstats");
        assert!(text.contains("cmdstat_config|resetstat:calls=1,"), "{text}");
        assert!(!text.contains("cmdstat_set") && !text.contains("errorstat_"), "{text}");
    }
}

#[test]
fn commands_wait_for_workers_alone() {
    for (dispatch, way) in
        [(Dispatch::Queue, "at_workers"), (Dispatch::Inline, "inline"), (Dispatch::Filter, "inline")]
    {
        let (_, _, server) = serve(by(dispatch));
        let mut client = Client::connect(&server);
        (0..200).for_each(|n| assert_eq!(client.ask(&format!("GET {n}")), "nil"));
        let time = |client: &mut Client, name: &str| {
            figure(client, "fulgurite_commands", &format!("fulgurite_{way}_get"), name)
        };
        assert_eq!(time(&mut client, "calls"), 200, "{dispatch:?}");
        assert!(time(&mut client, "processing_usec") > 0);
        assert_eq!(time(&mut client, "waiting_usec") > 0, dispatch == Dispatch::Queue, "{dispatch:?}");
        assert_eq!(calls(&mut client, "not_in_memtables", "get"), 200);
        let info = client.ask("INFO fulgurite_commands");
        assert!(info.contains("fulgurite_voluntary_context_switches:"), "{info}");
    }
}

/// A set of so many members.
fn add_members(client: &mut Client, key: &str, count: usize) {
    for first in (0..count).step_by(1_000) {
        let members: Vec<String> = (first..first + 1_000).map(|number| format!("member:{number}")).collect();
        client.ask(&format!("SADD {key} {}", members.join(" ")));
    }
}

/// Whether a reply has arrived.
fn has_reply(client: &Client) -> bool {
    client.stream.set_nonblocking(true).unwrap();
    let peeked = client.stream.peek(&mut [0]).is_ok();
    client.stream.set_nonblocking(false).unwrap();
    peeked
}

/// INV-SRV-8: more long commands than there are long workers, and what waits for the key that one of them writes, hold up nothing else.
#[test]
fn long_commands_do_not_hold_up_workers() {
    let mut config = config();
    (config.workers, config.io_threads) = (1, 1);
    let (_, _, server) = serve(config);
    let mut client = Client::connect(&server);
    add_members(&mut client, "large", 60_000);
    let mut long = ["SORT large ALPHA LIMIT 0 1"; 16];
    long[1] = "SUNIONSTORE copy large";
    let waiting = ["SADD copy member", "SPOP copy", "DEL copy"];
    let mut busy: Vec<Client> = long.iter().chain(&waiting).map(|_| Client::connect(&server)).collect();
    busy.iter_mut().zip(long).for_each(|(client, command)| client.send_command(command));
    wait_until(|| handed_on(&mut client, "sort", "size") == 15);
    busy.iter_mut().skip(long.len()).zip(waiting).for_each(|(client, command)| client.send_command(command));
    let mut replies = 0;
    while !has_reply(&busy[long.len() - 1]) {
        // Workers run them all: their figures and counts may be on disk.
        for command in ["INFO server", "DBSIZE", "CLIENT LIST", "RANDOMKEY"] {
            assert!(!client.ask(command).starts_with('-'), "{command}");
        }
        // Some of these keys share a lock with one of the long commands.
        for number in 0..20 {
            assert_eq!(client.ask(&format!("SET k:{replies}:{number} v")), "OK");
        }
        replies += 1;
    }
    assert!(replies >= 3, "{replies} rounds while long commands ran one after the other");
    for (client, command) in busy.iter_mut().zip(long.iter().chain(&waiting)) {
        let reply = client.receive();
        assert!(reply.is_some_and(|reply| !text(&reply).starts_with('-')), "{command}");
    }
}
