//! What clients ask about each other and of the server: `CLIENT`, `CONFIG`, `WAIT`, `SAVE`, `SHUTDOWN`.

use std::time::Duration;

use crate::support::*;
use fulgurite_server::{Config, Dispatch, Password, Server};

/// A configuration in which connections belong to different I/O threads.
fn two_threads() -> Config {
    let mut config = config();
    config.io_threads = 2;
    config
}

/// The value of a field in a connection's line.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let start = line.find(&format!("{name}=")).unwrap_or_else(|| panic!("no {name} in {line}"));
    line[start + name.len() + 1..].split([' ', '\n', '"']).next().unwrap()
}

#[test]
fn connections_are_listed_from_any_thread() {
    let (_, _, server) = serve(two_threads());
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    let ids: Vec<String> = clients.iter_mut().map(|client| client.ask("CLIENT ID")).collect();
    for (command, expected) in [
        ("CLIENT SETNAME worker", "OK"),
        ("CLIENT SETINFO LIB-NAME rusty", "OK"),
        ("CLIENT SETINFO LIB-VER 1.2", "OK"),
        ("SELECT 5", "OK"),
        ("WATCH a b", "OK"),
        ("MULTI", "OK"),
        ("GET a", "QUEUED"),
    ] {
        assert_eq!(clients[1].ask(command), expected);
    }
    let id = &ids[1];
    // What a turn did is shown at its end, which may be after the reply was sent.
    wait_until(|| field(&clients[0].ask(&format!("CLIENT LIST ID {id}")), "multi") == "1");
    let line = clients[0].ask(&format!("CLIENT LIST ID {id} 999999"));
    for (name, expected) in [
        ("id", id.as_str()),
        ("laddr", &server.addresses()[0].to_string()),
        ("addr", &clients[1].stream.local_addr().unwrap().to_string()),
        ("name", "worker"),
        ("lib-name", "rusty"),
        ("lib-ver", "1.2"),
        ("db", "5"),
        ("watch", "2"),
        ("flags", "x"),
        ("cmd", "get"),
        ("user", "default"),
        ("resp", "2"),
    ] {
        assert_eq!(field(&line, name), expected, "{name}: {line}");
    }
    let all = clients[0].ask("CLIENT LIST");
    assert_eq!(all.matches("id=").count(), 4, "{all}");
    assert_eq!(clients[0].ask("CLIENT LIST TYPE normal").matches("id=").count(), 4);
    assert_eq!(clients[0].ask("CLIENT LIST TYPE replica"), "\"\"");
    let own = clients[3].ask("CLIENT INFO");
    assert_eq!((field(&own, "id"), field(&own, "cmd")), (ids[3].as_str(), "client|info"), "{own}");
    drop(clients.pop());
    wait_until(|| clients[0].ask("CLIENT LIST").matches("id=").count() == 3);
}

#[test]
fn malformed_questions_about_clients_are_refused_as_in_redis() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    for (command, expected) in [
        ("CLIENT LIST x", "-ERR syntax error"),
        ("CLIENT LIST ID x", "-ERR Invalid client ID"),
        ("CLIENT LIST TYPE x", "-ERR Unknown client type 'x'"),
        ("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command"),
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
        ("CLIENT KILL 1.2.3.4:5 x", "-ERR syntax error"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL ID 99", "0"),
        ("CLIENT KILL TYPE pubsub", "0"),
        ("CLIENT KILL TYPE x", "-ERR Unknown client type 'x'"),
        ("CLIENT KILL USER x", "-ERR No such user 'x'"),
        ("CLIENT KILL SKIPME maybe", "-ERR syntax error"),
        ("CLIENT KILL ID 5 TYPE", "-ERR syntax error"),
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 some", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        (
            "CLIENT PAUSE 1 WRITE x",
            "-ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
        ),
        ("CLIENT UNBLOCK 5", "0"),
        ("CLIENT UNBLOCK 5 x", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        ("CLIENT NONSENSE", "-ERR unknown subcommand 'NONSENSE'. Try CLIENT HELP."),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
    assert!(client.ask("CLIENT HELP").starts_with("[CLIENT <subcommand>"));
}

#[test]
fn connections_are_killed_from_any_thread() {
    for dispatch in Dispatch::ALL {
        let mut config = two_threads();
        config.dispatch = dispatch;
        let (_, _, server) = serve(config);
        let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
        let ids: Vec<String> = clients.iter_mut().map(|client| client.ask("CLIENT ID")).collect();
        assert_eq!(clients[0].ask(&format!("CLIENT KILL ID {}", ids[1])), "1");
        assert_eq!(clients[1].receive_text(), "closed");
        let address = clients[2].stream.local_addr().unwrap();
        assert_eq!(clients[0].ask(&format!("CLIENT KILL {address}")), "OK");
        assert_eq!(clients[2].receive_text(), "closed");
        let local = server.addresses()[0];
        assert_eq!(clients[0].ask(&format!("CLIENT KILL LADDR {local} TYPE normal USER default")), "1");
        assert_eq!(clients[3].receive_text(), "closed");
        assert_eq!(clients[0].ask("PING"), "PONG");
        // The own one is closed once it has the reply.
        assert_eq!(clients[0].ask(&format!("CLIENT KILL ID {} SKIPME no", ids[0])), "1");
        assert_eq!(clients[0].receive_text(), "closed");
        assert_eq!(Client::connect(&server).ask("PING"), "PONG");
    }
}

#[test]
fn a_pause_holds_commands_until_it_ends() {
    for dispatch in Dispatch::ALL {
        let mut config = two_threads();
        config.dispatch = dispatch;
        let (_, _, server) = serve(config);
        let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(&server)).collect();
        let [first, second, third, killed, reader] = &mut clients[..] else { panic!("there are five") };
        assert_eq!(first.ask("SET a 1"), "OK");
        assert_eq!(third.ask("MULTI"), "OK");
        assert_eq!(third.ask("SET a 3"), "QUEUED");
        assert_eq!(first.ask("CLIENT PAUSE 600000 WRITE"), "OK");
        // Writes wait, and all that their connections send after them; reads go on.
        second.send_command("SET a 2");
        second.send_command("GET a");
        third.send_command("EXEC");
        killed.send_command("APPEND a x");
        assert!(second.is_silent() && third.is_silent() && killed.is_silent());
        assert_eq!(reader.ask("GET a"), "\"1\"");
        let address = killed.stream.local_addr().unwrap();
        assert_eq!(reader.ask(&format!("CLIENT KILL ADDR {address}")), "1");
        assert_eq!(killed.receive_text(), "closed");
        assert_eq!(reader.ask("CLIENT UNPAUSE"), "OK");
        assert_eq!(second.receive_text(), "OK");
        assert_eq!(third.receive_text(), "[OK]");
        assert!(["\"2\"", "\"3\""].contains(&&*second.receive_text()));
        // Of all commands; it ends by itself.
        assert_eq!(first.ask("CLIENT PAUSE 100"), "OK");
        assert_eq!(reader.ask("EXISTS a"), "1");
        assert_eq!(second.ask("SET a 4"), "OK");
        // Those that wait when the server stops are not run.
        assert_eq!(first.ask("CLIENT PAUSE 600000"), "OK");
        second.send_command("SET a 5");
        assert!(second.is_silent());
        server.stop();
        assert_eq!(second.receive_text(), "closed");
    }
}

/// Clients increment all the time. When the reply of a pause has arrived, no increment is acknowledged, and none happens.
#[test]
fn no_write_happens_between_the_reply_of_a_pause_and_its_end() {
    let (_, _, server) = serve(two_threads());
    let mut observer = Client::connect(&server);
    let stops = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopper = Stopper(&stops);
        for key in ["a", "b", "a", "b"] {
            let mut client = Client::connect(&server);
            let stops = &stops;
            scope.spawn(move || {
                while !stops.load(std::sync::atomic::Ordering::SeqCst) {
                    assert!(client.ask(&format!("INCR {key}")).parse::<u64>().is_ok());
                }
            });
        }
        for _ in 0..20 {
            assert_eq!(observer.ask("CLIENT PAUSE 600000 WRITE"), "OK");
            let before = observer.ask("MGET a b");
            std::thread::park_timeout(Duration::from_millis(5));
            assert_eq!(observer.ask("MGET a b"), before);
            assert_eq!(observer.ask("CLIENT UNPAUSE"), "OK");
            wait_until(|| observer.ask("MGET a b") != before);
        }
        stops.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

#[test]
fn directives_are_set_all_or_none() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    for (command, expected) in [
        ("CONFIG GET maxclients TIMEOUT", "[\"TIMEOUT\" \"0\" \"maxclients\" \"10000\"]"),
        ("CONFIG SET maxclients 500 timeout 30", "OK"),
        ("CONFIG GET maxcl* timeout", "[\"maxclients\" \"500\" \"timeout\" \"30\"]"),
        (
            "CONFIG SET maxclients 600 timeout x",
            "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer",
        ),
        (
            "CONFIG SET maxclients 600 nonsense x",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'",
        ),
        (
            "CONFIG SET maxclients 600 maxmemory 1kb",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - the options do not fit",
        ),
        (
            "CONFIG SET maxclients 600 appendonly no",
            "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config",
        ),
        ("CONFIG GET maxclients", "[\"maxclients\" \"500\"]"),
        ("CONFIG SET maxclients", "-ERR wrong number of arguments for 'config|set' command"),
        ("CONFIG SET maxclients 1 timeout", "-ERR syntax error"),
        (
            "CONFIG SET timeout 1 timeout 2",
            "-ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter",
        ),
        (
            "CONFIG SET proto-max-bulk-len 10",
            "-ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be between 1048576 and \
             9223372036854775807 inclusive",
        ),
        ("CONFIG SET hash-max-ziplist-entries 77", "OK"),
        (
            "CONFIG GET hash-max-*-entries",
            "[\"hash-max-listpack-entries\" \"77\" \"hash-max-ziplist-entries\" \"77\"]",
        ),
        ("CONFIG SET appendfsync always save", "-ERR syntax error"),
        ("CONFIG GET appendonly appendfsync", "[\"appendfsync\" \"always\" \"appendonly\" \"yes\"]"),
        ("CONFIG SET maxmemory 64mb", "OK"),
        ("CONFIG GET maxmemory", "[\"maxmemory\" \"67108864\"]"),
        ("CONFIG REWRITE", "-ERR The server is running without a config file"),
        ("CONFIG NONSENSE", "-ERR unknown subcommand 'NONSENSE'. Try CONFIG HELP."),
    ] {
        let reply = client.ask(command);
        assert!(reply.starts_with(expected), "{command}: {reply}");
    }
    assert_eq!(db.stats().memory.budget_bytes, 64 << 20);
    assert_eq!(client.ask("CONFIG SET maxmemory 0"), "OK");
    assert!(db.stats().memory.budget_bytes > 64 << 20);
    assert!(client.ask("CONFIG HELP").contains("GET <pattern>"));
    assert_eq!(client.ask("CONFIG RESETSTAT"), "OK");
    assert!(client.ask("INFO stats").contains("total_commands_processed:1"));
}

#[test]
fn limits_change_while_the_server_runs() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("CONFIG SET maxclients 1"), "OK");
    assert_eq!(Client::connect(&server).receive_text(), "-ERR max number of clients reached");
    assert_eq!(
        client.ask("CONFIG SET maxclients 100 proto-max-bulk-len 1mb client-query-buffer-limit 2mb"),
        "OK"
    );
    let mut long = Client::connect(&server);
    long.send(b"*2\r\n$4\r\nECHO\r\n$1048577\r\n");
    assert_eq!(long.receive_text(), "-ERR Protocol error: invalid bulk length");
    assert_eq!(
        client.ask("SETRANGE k 1048570 1234567"),
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    );
    let mut many = Client::connect(&server);
    let argument = [b"$20000\r\n".to_vec(), vec![b'x'; 20_000], b"\r\n".to_vec()].concat();
    _ = std::io::Write::write_all(&mut many.stream, &[b"*1000\r\n".to_vec(), argument.repeat(150)].concat());
    assert_eq!(many.receive_text(), "closed");
    // No value is longer than 512 MiB.
    assert_eq!(client.ask("CONFIG SET proto-max-bulk-len 9223372036854775807"), "OK");
    assert_eq!(
        client.ask("SETBIT k 9223372036854775807 1"),
        "-ERR bit offset is not an integer or out of range"
    );
    // One that does not take its replies, which are not read in pieces.
    assert_eq!(
        client.ask("CONFIG SET client-output-buffer-limit"),
        "-ERR wrong number of arguments for 'config|set' command"
    );
    assert_eq!(
        client.ask_arguments(&["CONFIG", "SET", "client-output-buffer-limit", "normal 1500000 0 0"]),
        "OK"
    );
    let mut slow = Client::connect(&server);
    let echo =
        [b"*2\r\n$4\r\nECHO\r\n$1000000\r\n".to_vec(), vec![b'x'; 1_000_000], b"\r\n".to_vec()].concat();
    slow.stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    _ = std::io::Write::write_all(&mut slow.stream, &echo.repeat(20));
    wait_until(|| client.ask("CLIENT LIST").matches("id=").count() == 1);
    assert_eq!(client.ask("PING"), "PONG");
    // One that takes its replies at once, although they leave 64 KiB at a time.
    assert_eq!(
        client.ask_arguments(&["CONFIG", "SET", "client-output-buffer-limit", "normal 150000 0 0"]),
        "OK"
    );
    let text = "x".repeat(250_000);
    assert_eq!(client.ask_arguments(&["ECHO", &text]), format!("{text:?}"));
}

#[test]
fn idle_connections_are_closed_if_there_is_a_timeout() {
    let (_, _, server) = serve(two_threads());
    let mut idle: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.ask("PING"), "PONG"));
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("CONFIG SET timeout 1"), "OK");
    wait_until(|| client.ask("CLIENT LIST").matches("id=").count() == 1);
    idle.iter_mut().for_each(|client| assert_eq!(client.receive_text(), "closed"));
}

#[test]
fn a_password_is_set_and_removed() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("CONFIG SET requirepass secret"), "OK");
    assert_eq!(client.ask("GET a"), "nil", "it was connected before");
    let mut another = Client::connect(&server);
    assert_eq!(another.ask("GET a"), "-NOAUTH Authentication required.");
    assert_eq!(another.ask("AUTH secret"), "OK");
    assert_eq!(client.ask("CONFIG GET requirepass"), "[\"requirepass\" \"secret\"]");
    let mut third = Client::connect(&server);
    assert_eq!(client.ask_arguments(&["CONFIG", "SET", "requirepass", ""]), "OK");
    assert_eq!(third.ask("GET a"), "nil");
    // A server that others can reach keeps one.
    let mut open = config();
    open.bind = vec!["0.0.0.0:0".parse().unwrap()];
    open.password = Some(Password::new("secret"));
    let (_, _, server) = serve(open);
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("AUTH secret"), "OK");
    assert!(client.ask_arguments(&["CONFIG", "SET", "requirepass", ""]).contains("loopback"));
}

/// A connection at the lowest level waits for its commits by `WAITAOF`; a power cut after the reply undoes none of them.
#[test]
fn waiting_makes_the_connections_commits_durable() {
    for command in ["WAITAOF 1 0 0", "WAIT 0 0"] {
        let (env, db, server) = serve(config());
        let mut client = Client::connect(&server);
        assert_eq!(client.ask("DURABILITY none"), "OK");
        (0..100).for_each(|n| assert_eq!(client.ask(&format!("SET k{n} {n}")), "OK"));
        assert_eq!(client.ask(command), if command.contains("AOF") { "[1 0]" } else { "0" });
        let crashed = env.crash(fulgurite::env::sim::CrashKind::PowerCut, 7);
        drop((server, db));
        let server = Server::start(open(&crashed), config()).unwrap();
        assert_eq!(Client::connect(&server).ask("DBSIZE"), "100", "{command}");
    }
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    for (command, expected) in [
        ("WAIT x 0", "-ERR value is not an integer or out of range"),
        ("WAIT 0 x", "-ERR timeout is not an integer or out of range"),
        ("WAIT 0 -1", "-ERR timeout is negative"),
        ("WAIT 1 10", "0"),
        ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF 1 -1 0", "-ERR value is out of range, must be positive"),
        ("WAITAOF 1 0 -1", "-ERR timeout is negative"),
        ("MULTI", "OK"),
        ("SET a 1", "QUEUED"),
        ("WAITAOF 1 0 0", "QUEUED"),
        ("EXEC", "[OK [1 0]]"),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
}

#[test]
fn checkpoints_are_written_when_asked_for() {
    let (_, db, server) = serve(config());
    let mut client = Client::connect(&server);
    let before = db.stats().checkpoints;
    assert_eq!(client.ask("SET a 1"), "OK");
    assert_eq!(client.ask("SAVE"), "OK");
    assert!(db.stats().checkpoints > before);
    let saved: u64 = client.ask("LASTSAVE").parse().unwrap();
    assert_eq!(saved, db.now_ms() / 1_000);
    assert_eq!(client.ask("BGSAVE"), "Background saving started");
    wait_until(|| db.stats().checkpoints > before + 1);
    wait_until(|| client.ask("BGSAVE SCHEDULE") == "Background saving started");
    assert_eq!(client.ask("BGSAVE x"), "-ERR syntax error");
    assert!(client.ask("BGREWRITEAOF").starts_with("Background append only file rewriting"));
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("SAVE"), "-ERR Command not allowed inside a transaction");
}

#[test]
fn a_client_stops_the_server() {
    let (env, db, server) = serve(two_threads());
    let mut client = Client::connect(&server);
    for (command, expected) in [
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
        ("SHUTDOWN x", "-ERR syntax error"),
        ("DURABILITY none", "OK"),
        ("SET a 1", "OK"),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
    let mut others: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    others.iter_mut().for_each(|client| assert_eq!(client.ask("PING"), "PONG"));
    assert!(!server.is_stopping());
    client.send_command("SHUTDOWN NOSAVE");
    client.send_command("SET a 2");
    assert_eq!(client.receive_text(), "closed");
    others.iter_mut().for_each(|client| assert_eq!(client.receive_text(), "closed"));
    assert!(server.is_stopping());
    drop(server);
    db.close().unwrap();
    let server = Server::start(open(&env), config()).unwrap();
    assert_eq!(Client::connect(&server).ask("GET a"), "\"1\"");
}
