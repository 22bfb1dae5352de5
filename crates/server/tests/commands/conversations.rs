//! Conversations over real sockets: commands and their replies, in both protocols and in both ways to run commands.

use crate::support::*;
use fulgurite_server::Dispatch;

#[test]
fn strings_are_set_and_read() {
    talk(&[
        ("GET a", "nil"),
        ("SET a 1", "OK"),
        ("get a", "\"1\""),
        ("SET a 2 NX", "nil"),
        ("SET a 2 XX GET", "\"1\""),
        ("SET b 2 XX", "nil"),
        ("SET b 2 XX GET", "nil"),
        ("SET a 3 NX XX", "-ERR syntax error"),
        ("SET a 3 EX", "-ERR syntax error"),
        ("SET a 3 EX x", "-ERR value is not an integer or out of range"),
        ("SET a 3 EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET a 3 PX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
        ("SET a 3 EX 10 PX 10", "-ERR syntax error"),
        ("SET a 2 XX XX EX 10 EX 100", "OK"),
        ("SET a 2 EX x NX XX", "-ERR syntax error"),
        ("SET a 2 EX 0 FOO", "-ERR syntax error"),
        ("SET a 2 KEEPTTL EX 10", "-ERR syntax error"),
        ("SET a 2 KEEPTTL KEEPTTL", "OK"),
        ("TTL a", "100"),
        ("SETNX a 9", "0"),
        ("SETNX n 9", "1"),
        ("GETSET a x", "\"2\""),
        ("GETDEL a", "\"x\""),
        ("GETDEL a", "nil"),
        ("MSET a 1 b 2", "OK"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("MSETNX b 3 c 3", "0"),
        ("MSETNX c 3 d 4", "1"),
        ("MGET a nothing c d", "[\"1\" nil \"3\" \"4\"]"),
        ("STRLEN a", "1"),
        ("STRLEN nothing", "0"),
        ("APPEND a 23", "3"),
        ("APPEND new xy", "2"),
        ("GETRANGE a 1 -1", "\"23\""),
        ("SUBSTR a 0 0", "\"1\""),
        ("SETRANGE a 5 z", "6"),
        ("GET a", "\"123\0\0z\""),
        ("SETRANGE a -1 z", "-ERR offset is out of range"),
        ("SETRANGE a 536870912 z", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("DBSIZE", "6"),
    ]);
}

#[test]
fn numbers_are_incremented() {
    talk(&[
        ("INCR n", "1"),
        ("INCRBY n 41", "42"),
        ("DECR n", "41"),
        ("DECRBY n 1", "40"),
        ("INCRBY n x", "-ERR value is not an integer or out of range"),
        ("SET text x", "OK"),
        ("INCR text", "-ERR value is not an integer or out of range"),
        ("SET max 9223372036854775807", "OK"),
        ("INCR max", "-ERR increment or decrement would overflow"),
        ("DECRBY max -9223372036854775808", "-ERR decrement would overflow"),
        ("INCRBYFLOAT f 10.5", "\"10.5\""),
        ("INCRBYFLOAT f 0.1", "\"10.6\""),
        ("INCRBYFLOAT f -5.6", "\"5\""),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT text 1", "-ERR value is not a valid float"),
        ("GET n", "\"40\""),
    ]);
}

#[test]
fn longest_common_subsequences() {
    let bytes = "a".repeat(20_000);
    talk(&[
        ("MSET a ohmytext b mynewtext", "OK"),
        ("LCS a b", "\"mytext\""),
        ("LCS a b LEN", "6"),
        ("LCS a b IDX", "[\"matches\" [[[4 7] [5 8]] [[2 3] [0 1]]] \"len\" 6]"),
        ("LCS a b idx MINMATCHLEN 4", "[\"matches\" [[[4 7] [5 8]]] \"len\" 6]"),
        ("LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN", "[\"matches\" [[[4 7] [5 8] 4]] \"len\" 6]"),
        ("LCS a nothing", "\"\""),
        ("LCS nothing nothing LEN", "0"),
        ("LCS a nothing IDX", "[\"matches\" [] \"len\" 0]"),
        ("LCS a b LEN IDX", "-ERR If you want both the length and indexes, please just use IDX."),
        ("LCS a b MINMATCHLEN", "-ERR syntax error"),
        ("LCS a b MINMATCHLEN x", "-ERR value is not an integer or out of range"),
        ("LCS a b WHAT", "-ERR syntax error"),
        (&format!("SET long {bytes}"), "OK"),
        (&format!("SET middle {}", &bytes[..5_000]), "OK"),
        ("LCS long middle LEN", "5000"),
        ("LCS a long LEN", "0"),
        ("LCS long long", "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"),
    ]);
}

#[test]
fn bitfields_are_read_and_written() {
    talk(&[
        ("BITFIELD f INCRBY i5 100 1 GET u4 0", "[1 0]"),
        ("STRLEN f", "14"),
        ("BITFIELD f SET u8 #1 255 SET i8 #1 -128 GET u8 #1 GET i8 8", "[0 -1 128 -128]"),
        ("BITFIELD f INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 5", "[1 3]"),
        ("BITFIELD f OVERFLOW FAIL INCRBY u2 102 1", "[nil]"),
        ("BITFIELD f OVERFLOW WRAP INCRBY u2 102 1", "[0]"),
        (
            "BITFIELD f SET i64 0 -9223372036854775808 GET u63 0 GET u63 1",
            "[36028797018963968 4611686018427387904 0]",
        ),
        (
            "BITFIELD f OVERFLOW SAT INCRBY i64 0 -1 SET u63 0 -1",
            "[-9223372036854775808 4611686018427387904]",
        ),
        ("BITFIELD new OVERFLOW FAIL SET u2 100 9", "[nil]"),
        ("STRLEN new", "13"),
        ("BITFIELD nothing GET u8 0", "[0]"),
        ("EXISTS nothing", "0"),
        ("BITFIELD nothing", "[]"),
        ("BITFIELD_RO f GET i8 1000000 GET u1 8", "[0 1]"),
        ("BITFIELD_RO f SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
        (
            "BITFIELD f GET u64 0",
            "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ),
        ("BITFIELD f GET u8 4294967296", "-ERR bit offset is not an integer or out of range"),
        ("BITFIELD f GET u8 #x", "-ERR bit offset is not an integer or out of range"),
        ("BITFIELD f OVERFLOW MAYBE", "-ERR Invalid OVERFLOW type specified"),
        ("BITFIELD f SET u8 0 x", "-ERR value is not an integer or out of range"),
        ("BITFIELD f SET u8 0", "-ERR syntax error"),
        ("BITFIELD far SET u8 8000000 7", "[0]"),
        ("BITFIELD far GET u8 8000000", "[7]"),
        ("EXPIRE f 100", "1"),
        ("BITFIELD f SET u8 0 0", "[255]"),
        ("BITFIELD low OVERFLOW SAT SET i13 0 -9223372036854775808 GET i13 0", "[0 4095]"),
        ("TTL f", "100"),
    ]);
}

#[test]
fn keys_are_counted_deleted_and_typed() {
    talk(&[
        ("MSET a 1 b 2 c 3", "OK"),
        ("EXISTS a b nothing a", "3"),
        ("TOUCH a nothing", "1"),
        ("TYPE a", "string"),
        ("TYPE nothing", "none"),
        ("DBSIZE", "3"),
        ("DEL a nothing", "1"),
        ("UNLINK b c b", "2"),
        ("DBSIZE", "0"),
        ("SELECT 1", "OK"),
        ("SET a other", "OK"),
        ("DBSIZE", "1"),
        ("SELECT 0", "OK"),
        ("GET a", "nil"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
    ]);
}

#[test]
fn keys_are_renamed_copied_and_moved() {
    talk(&[
        ("SET a 1 EX 100", "OK"),
        ("RENAME a b", "OK"),
        ("TTL b", "100"),
        ("RENAME a c", "-ERR no such key"),
        ("SET c 3", "OK"),
        ("RENAMENX b c", "0"),
        ("RENAMENX b d", "1"),
        ("COPY d e", "1"),
        ("COPY d c", "0"),
        ("COPY d c REPLACE", "1"),
        ("MGET c d e", "[\"1\" \"1\" \"1\"]"),
        ("COPY d d", "-ERR source and destination objects are the same"),
        ("COPY d d DB 3", "1"),
        ("MOVE e 3", "1"),
        ("MOVE d 3", "0"),
        ("MOVE d 0", "-ERR source and destination objects are the same"),
        ("DBSIZE", "2"),
        ("MULTI", "OK"),
        ("COPY d f DB 3", "QUEUED"),
        ("MOVE c 3", "QUEUED"),
        ("RENAME d g", "QUEUED"),
        ("DBSIZE", "QUEUED"),
        ("EXEC", "[1 1 OK 1]"),
        ("DBSIZE", "1"),
        ("SELECT 3", "OK"),
        ("DBSIZE", "4"),
        ("TTL f", "100"),
        ("EXISTS c d e f", "4"),
    ]);
}

#[test]
fn expiry_is_set_read_and_removed() {
    talk(&[
        ("SET a 1 EX 100", "OK"),
        ("TTL a", "100"),
        ("SET a 2 KEEPTTL", "OK"),
        ("TTL a", "100"),
        ("SET a 3", "OK"),
        ("TTL a", "-1"),
        ("TTL nothing", "-2"),
        ("EXPIRE nothing 10", "0"),
        ("EXPIRE a 10 XX", "0"),
        ("EXPIRE a 10 NX", "1"),
        ("EXPIRE a 5 GT", "0"),
        ("EXPIRE a 50 GT", "1"),
        ("EXPIRE a 60 LT", "0"),
        ("EXPIRE a 60 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("EXPIRE a 60 GT LT", "-ERR GT and LT options at the same time are not compatible"),
        ("EXPIRE a 60 YY", "-ERR Unsupported option YY"),
        ("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
        ("EXPIRE a x YY", "-ERR Unsupported option YY"),
        ("PERSIST a", "1"),
        ("PERSIST a", "0"),
        ("GETEX nothing EX 0", "nil"),
        ("GETEX a EX 0", "-ERR invalid expire time in 'getex' command"),
        ("GETEX a PERSIST PERSIST", "-ERR syntax error"),
        ("PEXPIREAT a 9223372036854775807", "1"),
        ("EXPIRETIME a", "9223372036854776"),
        ("PEXPIRETIME a", "9223372036854775807"),
        ("PEXPIREAT a 99999999999999", "1"),
        ("PEXPIRETIME a", "99999999999999"),
        ("EXPIRETIME a", "100000000000"),
        ("APPEND a x", "2"),
        ("PEXPIRETIME a", "99999999999999"),
        ("GETEX a PERSIST", "\"3x\""),
        ("PTTL a", "-1"),
        ("GETEX a EX 100", "\"3x\""),
        ("TTL a", "100"),
        ("EXPIRE a -1", "1"),
        ("EXISTS a", "0"),
        ("SETEX a 100 v", "OK"),
        ("PSETEX a 0 v", "-ERR invalid expire time in 'psetex' command"),
        ("EXPIREAT a 1", "1"),
        ("DBSIZE", "0"),
    ]);
}

#[test]
fn a_connection_is_set_up() {
    talk(&[
        ("PING", "PONG"),
        ("PING hello", "\"hello\""),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command"),
        ("ECHO hello", "\"hello\""),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("NOTHING a b", "-ERR unknown command 'NOTHING', with args beginning with: 'a' 'b' "),
        ("CLIENT SETNAME tester", "OK"),
        ("CLIENT GETNAME", "\"tester\""),
        ("CLIENT SETINFO LIB-NAME lib", "OK"),
        ("CLIENT SETINFO LIB-VER 1", "OK"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 NONSENSE", "-ERR Syntax error in HELLO option 'NONSENSE'"),
        ("DURABILITY", "\"sync\""),
        ("DURABILITY async 50", "OK"),
        ("DURABILITY", "\"async 50\""),
        ("DURABILITY none", "OK"),
        ("DURABILITY sync", "OK"),
        ("DURABILITY sometimes", "-ERR syntax error"),
        ("AUTH default anything", "OK"),
        ("AUTH other anything", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("CLIENT GETNAME x", "-ERR wrong number of arguments for 'client|getname' command"),
        ("CLIENT NONSENSE", "-ERR unknown subcommand 'NONSENSE'. Try CLIENT HELP."),
        ("COMMAND COUNT x", "-ERR wrong number of arguments for 'command|count' command"),
        ("CONFIG GET maxcl*", "[\"maxclients\" \"10000\"]"),
        ("CONFIG SET appendonly yes", "OK"),
        (
            "CONFIG SET appendonly no",
            "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config",
        ),
        ("CONFIG SET nonsense 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'"),
        ("COMMAND GETKEYS MSET a 1 b 2", "[\"a\" \"b\"]"),
        ("COMMAND GETKEYS SORT k BY x GET store STORE d STORE e", "[\"k\" \"e\"]"),
        ("COMMAND GETKEYSANDFLAGS RENAME a b", "[[\"a\" [RW access delete]] [\"b\" [OW update]]]"),
        ("COMMAND GETKEYSANDFLAGS SET k v", "[[\"k\" [OW update]]]"),
        ("COMMAND GETKEYSANDFLAGS SET k v EX 1 GET", "[[\"k\" [RW access update]]]"),
        ("COMMAND GETKEYSANDFLAGS BITFIELD k GET u8 0", "[[\"k\" [RO access]]]"),
        ("COMMAND GETKEYSANDFLAGS ZUNION 1 a b", "[[\"a\" [RO access]]]"),
        ("COMMAND GETKEYSANDFLAGS ZUNION 3 a b", "-ERR Invalid arguments specified for command"),
        ("COMMAND GETKEYSANDFLAGS GET", "-ERR Invalid number of arguments specified for command"),
        ("COMMAND GETKEYSANDFLAGS PING", "-ERR The command has no key arguments"),
        ("COMMAND GETKEYSANDFLAGS NONE k", "-ERR Invalid command specified"),
        ("COMMAND GETKEYSANDFLAGS", "-ERR wrong number of arguments for 'command|getkeysandflags' command"),
        ("RESET", "RESET"),
        ("CLIENT GETNAME", "nil"),
        (
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        ),
        ("QUIT", "OK"),
        ("PING", "closed"),
    ]);
}

#[test]
fn levels_and_keys_that_cannot_be_are_refused() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    for ms in ["0", "9999999999"] {
        assert!(client.ask(&format!("DURABILITY async {ms}")).starts_with("-ERR "));
    }
    assert_eq!(client.ask("DURABILITY"), "\"sync\"");
    let longest = "k".repeat(65_523);
    assert_eq!(client.ask_arguments(&["SET", &longest, "v", "EX", "100"]), "OK");
    assert_eq!(client.ask_arguments(&["GET", &longest]), "\"v\"");
    let refusal = "-ERR the key has 65524 bytes, the longest allowed has 65523";
    for command in [&["SET", &format!("{longest}k"), "v"][..], &["GET", &format!("{longest}k")]] {
        assert_eq!(client.ask_arguments(command), refusal);
    }
}

#[test]
fn figures_are_shown() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("SET a 1"), "OK");
    let all = client.ask("INFO");
    for line in [
        "# Server",
        "redis_version:7.2.0",
        "loading:0",
        "role:master",
        "aof_last_write_status:ok",
        "db0:keys=1,expires=0,avg_ttl=0",
        "rdb_bgsave_in_progress:0",
        "master_replid:",
    ] {
        assert!(all.contains(line), "{line}: {all}");
    }
    let keyspace = client.ask("INFO keyspace");
    assert!(keyspace.starts_with("\"# Keyspace") && !keyspace.contains("# Server"), "{keyspace}");
    assert!(client.ask("INFO everything").contains("fulgurite_handed_on_for_node:"));
}

#[test]
fn hello_changes_the_protocol() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    client.send_command("HELLO 3 SETNAME me");
    let hello = client.receive_text();
    assert!(hello.starts_with("{\"server\": \"redis\"") && hello.contains("\"proto\": 3"), "{hello}");
    assert_eq!(client.ask("CLIENT GETNAME"), "\"me\"");
    client.send_command("GET nothing");
    assert_eq!(client.receive(), Some(fulgurite_resp::Reply::Null));
    client.send_command("HELLO 2");
    assert!(client.receive_text().starts_with("[\"server\" \"redis\""));
    client.send_command("GET nothing");
    assert_eq!(client.receive(), Some(fulgurite_resp::Reply::NullBulk));
}

#[test]
fn a_password_is_asked_for() {
    let mut config = config();
    config.password = Some(fulgurite_server::Password::new("secret"));
    let (_, _, server) = serve(config);
    let mut client = Client::connect(&server);
    for (command, expected) in [
        ("GET a", "-NOAUTH Authentication required."),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH other secret", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH secret", "OK"),
        ("GET a", "nil"),
        ("RESET", "RESET"),
        ("GET a", "-NOAUTH Authentication required."),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
    client.send_command("HELLO 3 AUTH default secret");
    assert!(client.receive_text().contains("\"proto\": 3"));
    assert_eq!(client.ask("GET a"), "nil");
    let mut unauthenticated = Client::connect(&server);
    unauthenticated.send(b"*2\r\n$4\r\nECHO\r\n$16385\r\n");
    assert_eq!(unauthenticated.receive_text(), "-ERR Protocol error: unauthenticated bulk length");
    assert_eq!(unauthenticated.receive_text(), "closed");
}

#[test]
fn replies_keep_the_order_of_pipelined_commands() {
    for dispatch in Dispatch::ALL {
        let mut config = config();
        config.dispatch = dispatch;
        let (_, _, server) = serve(config);
        let mut client = Client::connect(&server);
        let mut bytes = Vec::new();
        let long = "x".repeat(200_000);
        for n in 0..2_000 {
            fulgurite_resp::encode_command(&mut bytes, &["SET", &format!("k{n}"), &n.to_string()]);
            fulgurite_resp::encode_command(&mut bytes, &["GET", &format!("k{n}")]);
            if n % 500 == 0 {
                fulgurite_resp::encode_command(&mut bytes, &["SET", "long", &long]);
                fulgurite_resp::encode_command(&mut bytes, &["STRLEN", "long"]);
            }
        }
        let mut writer = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| std::io::Write::write_all(&mut writer, &bytes).unwrap());
            for n in 0..2_000 {
                assert_eq!(client.receive_text(), "OK", "{n}");
                assert_eq!(client.receive_text(), format!("\"{n}\""));
                if n % 500 == 0 {
                    assert_eq!(client.receive_text(), "OK");
                    assert_eq!(client.receive_text(), "200000");
                }
            }
        });
    }
}

#[test]
fn client_reply_silences_replies() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    client.send_command("CLIENT REPLY SKIP");
    client.send_command("SET a 1");
    client.send_command("SET a 2");
    assert_eq!(client.receive_text(), "OK");
    client.send_command("CLIENT REPLY OFF");
    client.send_command("SET a 3");
    client.send_command("GET a");
    client.send_command("CLIENT REPLY ON");
    assert_eq!(client.receive_text(), "OK");
    assert_eq!(client.ask("GET a"), "\"3\"");
}

#[test]
fn inline_commands_and_protocol_errors() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    client.send(b"\r\nSET a \"b c\"\r\nGET a\n");
    assert_eq!((client.receive_text(), client.receive_text()), ("OK".into(), "\"b c\"".into()));
    client.send(b"PING\r\n*1\r\n+4\r\nPING\r\n");
    assert_eq!(client.receive_text(), "PONG");
    assert_eq!(client.receive_text(), "-ERR Protocol error: expected '$', got '+'");
    assert_eq!(client.receive_text(), "closed");
}

#[test]
fn too_many_clients_are_turned_away() {
    let mut config = config();
    config.clients_max = 2;
    let (_, _, server) = serve(config);
    let mut clients = [Client::connect(&server), Client::connect(&server)];
    clients.iter_mut().for_each(|client| assert_eq!(client.ask("PING"), "PONG"));
    assert_eq!(Client::connect(&server).receive_text(), "-ERR max number of clients reached");
    let [first, mut second] = clients;
    drop(first);
    // The server notices that in its own time.
    for _ in 0..1_000 {
        let mut another = Client::connect(&server);
        another.send_command("PING");
        if another.receive_text() == "PONG" {
            assert_eq!(second.ask("PING"), "PONG");
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
    panic!("the place of the client that left is not given again");
}

#[test]
fn the_table_of_commands_is_shown() {
    let (_, _, server) = serve(config());
    let mut client = Client::connect(&server);
    let count: i64 = client.ask("COMMAND COUNT").parse().unwrap();
    client.send_command("COMMAND");
    let Some(fulgurite_resp::Reply::Array(all)) = client.receive() else { panic!("an array") };
    assert_eq!(all.len() as i64, count);
    let get = client.ask("COMMAND INFO get nothing");
    assert!(get.starts_with("[[\"get\" 2 [readonly fast] 1 1 1 [@read @string @fast]"), "{get}");
    assert!(get.ends_with("nil]"), "{get}");
    assert!(client.ask("COMMAND DOCS get").contains("\"summary\""));
}
