//! Generated sequences of commands, to this server and to `redis-server`: every reply has to be the same.

#[path = "differential/families.rs"]
mod families;
mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use families::{FAMILIES, Family, TEMPLATES, common_word};
use fulgurite_resp::{Reply, encode_command, parse_reply};
use support::*;

/// Where replies may differ, and why.
const DIFFERENCES: [(&str, &str); 12] = [
    ("TTL PTTL EXPIRETIME PEXPIRETIME", "the two run at different moments: numbers may differ by 2 s"),
    ("GT LT", "the same: two expiries a moment apart may be equal for one of the two"),
    ("DBSIZE", "Redis counts a key that was set with a time that has passed until it reclaims it"),
    ("BITCOUNT BITPOS", "7.2, as this server, looks at the numbers before the key, and 7.0 after it"),
    ("INCRBYFLOAT", "Redis adds long doubles of 80 bits: the last digits, and what is finite, may differ"),
    ("-ERR", "the texts of unknown commands and subcommands show other lengths of arguments"),
    ("COMMAND CLIENT", "Redis has more of them"),
    (
        "HGETALL HKEYS HVALS SCAN HSCAN KEYS SMEMBERS SINTER SUNION SDIFF SSCAN ZSCAN",
        "Redis promises no order",
    ),
    ("LREM LPOS", "7.0 takes a count or a rank of -2^63, and overflows: not among the numbers"),
    (
        "SORT",
        "with BY, ALPHA and LIMIT, Redis leaves elements of one weight in any order: not among the commands",
    ),
    ("scores", "7.0 prints %.17g, 7.2 and this server the least digits that give the same number"),
    (
        "HRANDFIELD RANDOMKEY SRANDMEMBER SPOP ZRANDMEMBER",
        "chosen at random: what may be chosen, and how many, is the same",
    ),
];

/// A `redis-server` without persistence, on a free port.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start() -> Redis {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--port", &free.to_string(), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is in the path");
        let redis = Redis { child, port: free };
        wait_until(|| TcpStream::connect(("127.0.0.1", free)).is_ok());
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A command of a family, or one of those that every sequence has.
fn command(family: &Family, random: &mut Random) -> Vec<String> {
    let is_common = random.below(2) == 0;
    let template = random.of(if is_common { TEMPLATES } else { family.templates });
    fill(template, if is_common { None } else { Some(family) }, random)
}

/// A command of a template.
fn fill(template: &str, family: Option<&Family>, random: &mut Random) -> Vec<String> {
    let mut word = |word: &str| {
        let own = family.and_then(|family| (family.word)(word, random));
        own.or_else(|| common_word(word, random)).unwrap_or(word).to_string()
    };
    template.split(' ').map(&mut word).collect()
}

fn ask(stream: &mut TcpStream, commands: &[Vec<String>]) -> Vec<Reply> {
    let mut bytes = Vec::new();
    commands.iter().for_each(|command| encode_command(&mut bytes, command));
    stream.write_all(&bytes).unwrap();
    let (mut input, mut replies) = (Vec::new(), Vec::new());
    while replies.len() < commands.len() {
        if let Some((reply, len)) = parse_reply(&input).unwrap() {
            input.drain(..len);
            replies.push(reply);
            continue;
        }
        let mut more = [0; 64 << 10];
        let len = stream.read(&mut more).expect("a reply");
        assert!(len > 0, "the connection was closed after {} replies of {commands:?}", replies.len());
        input.extend_from_slice(&more[..len]);
    }
    replies
}

/// A reply with each number as this server prints scores.
fn as_score(reply: &Reply) -> Reply {
    match reply {
        Reply::Array(items) => Reply::Array(items.iter().map(as_score).collect()),
        Reply::Bulk(text) => match std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok()) {
            Some(score) => Reply::Bulk(format!("{score}").into_bytes()),
            None => reply.clone(),
        },
        _ => reply.clone(),
    }
}

/// A reply whose items have no order, sorted; those of maps in pairs.
fn sorted(name: &str, reply: &Reply) -> Reply {
    let Reply::Array(items) = reply else { return reply.clone() };
    let mut items = items.clone();
    if name.starts_with('Z') {
        items = items.iter().map(as_score).collect();
    }
    match name {
        "HGETALL" | "EXEC" if items.len().is_multiple_of(2) => {
            let mut pairs: Vec<_> = items.chunks(2).map(|pair| pair.to_vec()).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            items = pairs.concat();
        }
        "SCAN" | "HSCAN" | "SSCAN" | "ZSCAN" => {
            if let Some(Reply::Array(found)) = items.get_mut(1) {
                let width = if ["HSCAN", "ZSCAN"].contains(&name) { 2 } else { 1 };
                let mut entries: Vec<_> = found.chunks(width).map(|entry| entry.to_vec()).collect();
                entries.sort_by_key(|entry| format!("{entry:?}"));
                *found = entries.concat();
            }
        }
        "HKEYS" | "HVALS" | "KEYS" | "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "SPOP" => {
            items.sort_by_key(|item| format!("{item:?}"))
        }
        _ => {}
    }
    Reply::Array(items)
}

/// Whether two replies say the same, but for what [`DIFFERENCES`] lists.
fn same(name: &str, ours: &Reply, theirs: &Reply) -> bool {
    if ours == theirs || sorted(name, ours) == sorted(name, theirs) {
        return true;
    }
    let is_random =
        |name: &str| ["HRANDFIELD", "RANDOMKEY", "SRANDMEMBER", "SPOP", "ZRANDMEMBER"].contains(&name);
    match (ours, theirs) {
        (Reply::Bulk(_), Reply::Bulk(_)) if is_random(name) => true,
        (Reply::Array(ours), Reply::Array(theirs)) if is_random(name) => ours.len() == theirs.len(),
        (Reply::Integer(ours), Reply::Integer(theirs))
            if DIFFERENCES[0].0.split(' ').any(|listed| listed == name) =>
        {
            ours.abs_diff(*theirs) <= 2_000
        }
        (Reply::Integer(ours), Reply::Integer(theirs)) if name == "DBSIZE" => ours <= theirs,
        (Reply::Array(ours), Reply::Array(theirs)) if name == "EXEC" && ours.len() == theirs.len() => {
            // The names of the queued commands are not known here.
            let names =
                ["TTL", "INCRBYFLOAT", "HGETALL", "HKEYS", "HSCAN", "SCAN", "HRANDFIELD", "ZRANGE", "ZSCAN"];
            ours.iter().zip(theirs).all(|(ours, theirs)| names.iter().any(|name| same(name, ours, theirs)))
        }
        (Reply::Bulk(ours), Reply::Bulk(theirs)) => {
            let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
            number(ours)
                .zip(number(theirs))
                .is_some_and(|(ours, theirs)| (ours - theirs).abs() <= theirs.abs() * 1e-12)
        }
        (Reply::Error(_), Reply::Integer(_) | Reply::Error(_)) if ["BITCOUNT", "BITPOS"].contains(&name) => {
            true
        }
        (Reply::Error(ours), Reply::Error(theirs)) => {
            let is_unknown = |text: &[u8]| text.starts_with(b"ERR unknown ");
            is_unknown(ours) && is_unknown(theirs) || name.ends_with("INCRBYFLOAT")
        }
        (Reply::Error(_), _) | (_, Reply::Error(_)) => name.ends_with("INCRBYFLOAT"),
        _ => false,
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
#[ignore = "needs redis-server; docs/server.md has the command"]
fn replies_are_those_of_redis() {
    const COMMANDS: usize = 30;
    let (sequences, seed) = (variable("SEQUENCES", 10_000), variable("SEED", 1));
    let redis = Redis::start();
    // By the same clock as Redis.
    let dir = tempfile::tempdir().unwrap();
    let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default()).unwrap();
    let mut config = config();
    if variable("WORKERS", 0) != 0 {
        config.dispatch = fulgurite_server::Dispatch::Queue;
    }
    let server = fulgurite_server::Server::start(db, config).unwrap();
    let connect = |address: (&str, u16)| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    let mut compared = 0;
    for sequence in seed..seed + sequences {
        let mut random = Random(sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let family = &FAMILIES[random.below(FAMILIES.len())];
        let mut commands: Vec<Vec<String>> = (0..COMMANDS).map(|_| command(family, &mut random)).collect();
        for (command, template) in commands.iter_mut().zip(family.first) {
            *command = fill(template, Some(family), &mut random);
        }
        // Both begin with nothing.
        let clean = vec![vec!["FLUSHALL".to_string()]];
        let preparation = clean.len();
        commands.splice(0..0, clean);
        let ours = ask(&mut connect(("127.0.0.1", server.addresses()[0].port())), &commands);
        let theirs = ask(&mut connect(("127.0.0.1", redis.port)), &commands);
        for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate().skip(preparation) {
            let name = commands[index][0].to_uppercase();
            let compares_times = commands[index].iter().any(|word| ["GT", "LT"].contains(&&**word));
            if compares_times && ours != theirs {
                break;
            }
            assert!(
                same(&name, ours, theirs),
                "SEED={sequence} SEQUENCES=1: {:?}\nours:   {}\ntheirs: {}\nbefore: {:?}",
                commands[index],
                text(ours),
                text(theirs),
                &commands[preparation..index],
            );
            compared += 1;
            // From here on the values differ, too.
            let has_popped =
                name == "SPOP" || name == "EXEC" && commands[..index].iter().any(|c| c[0] == "SPOP");
            if (name.ends_with("INCRBYFLOAT") || has_popped) && sorted(&name, ours) != sorted(&name, theirs) {
                break;
            }
        }
    }
    println!("{compared} replies of {sequences} sequences are those of Redis");
}

/// The keys of every command, with many a combination of arguments, and what it does with each.
#[test]
#[ignore = "needs redis-server; docs/server.md has the command"]
fn keys_and_flags_are_those_of_redis() {
    const ARGUMENTS: [&str; 8] = [
        "a",
        "a b",
        "ENCODING a",
        "2 a b",
        "a 2 b c",
        "a 1 b GET u8 0",
        "a GET u8 0 SET u8 0 1",
        "a BY x STORE store d",
    ];
    let redis = Redis::start();
    let (_, _, server) = serve(config());
    let mut ours = TcpStream::connect(("127.0.0.1", server.addresses()[0].port())).unwrap();
    let mut theirs = TcpStream::connect(("127.0.0.1", redis.port)).unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let names = |stream| match ask(stream, &[words("COMMAND LIST")]).pop() {
        Some(Reply::Array(names)) => {
            names.iter().map(|name| text(name).trim_matches('"').to_string()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let (ours_have, theirs_have) = (names(&mut ours), names(&mut theirs));
    // 7.2 lets these two have another argument.
    let is_same =
        |name: &&String| theirs_have.contains(name) && !["zrank", "zrevrank"].contains(&name.as_str());
    for name in ours_have.iter().filter(is_same) {
        for (arguments, subcommand) in
            ARGUMENTS.iter().flat_map(|arguments| [(arguments, "GETKEYS"), (arguments, "GETKEYSANDFLAGS")])
        {
            let command = [words(&format!("COMMAND {subcommand} {name} {arguments}"))];
            let (ours, theirs) = (ask(&mut ours, &command), ask(&mut theirs, &command));
            assert_eq!(text(&ours[0]), text(&theirs[0]), "{command:?}");
        }
    }
}
