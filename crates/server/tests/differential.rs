//! Generated sequences of commands, to this server and to `redis-server`: every reply has to be the same.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fulgurite_resp::{Reply, encode_command, parse_reply};
use support::*;

/// Where replies may differ, and why.
const DIFFERENCES: [(&str, &str); 11] = [
    ("TTL PTTL EXPIRETIME PEXPIRETIME", "the two run at different moments: numbers may differ by 2 s"),
    ("GT LT", "the same: two expiries a moment apart may be equal for one of the two"),
    ("DBSIZE", "Redis counts a key that was set with a time that has passed until it reclaims it"),
    ("BITCOUNT BITPOS", "7.2, as this server, looks at the numbers before the key, and 7.0 after it"),
    ("INCRBYFLOAT", "Redis adds long doubles of 80 bits: the last digits, and what is finite, may differ"),
    ("-ERR", "the texts of unknown commands and subcommands show other lengths of arguments"),
    ("COMMAND CLIENT", "Redis has more of them"),
<<<<<<< HEAD
    ("HGETALL HKEYS HVALS SCAN HSCAN KEYS SMEMBERS SINTER SUNION SDIFF SSCAN", "Redis promises no order"),
    (
        "HRANDFIELD RANDOMKEY SRANDMEMBER SPOP",
        "chosen at random: what may be chosen, and how many, is the same",
    ),
=======
    ("HGETALL HKEYS HVALS SCAN HSCAN KEYS", "Redis promises no order"),
    ("LREM LPOS", "7.0 takes a count or a rank of -2^63, and overflows: not among the numbers"),
    (
        "SORT",
        "with BY, ALPHA and LIMIT, Redis leaves elements of one weight in any order: not among the commands",
    ),
    ("HRANDFIELD RANDOMKEY", "chosen at random: what may be chosen, and how many, is the same"),
>>>>>>> e2d41bf (server: tests of lists and SORT)
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

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Templates of commands: K is a key, V a value, N a number, O an option, T a time that has not come, D a directive, F and W are a field's
/// type and offset; others are themselves.
const TEMPLATES: &[&str] = &[
    "GET K",
    "SET K V",
    "SET K N",
    "SET K V O",
    "SET K V O O",
    "SET K V O T",
    "SET K V O O T",
    "SETNX K V",
    "SETEX K T V",
    "PSETEX K T V",
    "SETEX K N V",
    "GETSET K V",
    "GETDEL K",
    "GETEX K",
    "GETEX K O",
    "GETEX K O T",
    "GETEX K O N",
    "STRLEN K",
    "APPEND K V",
    "INCR K",
    "DECR K",
    "INCRBY K N",
    "DECRBY K N",
    "INCRBYFLOAT K N",
    "GETRANGE K N N",
    "SUBSTR K N N",
    "SETRANGE K S V",
    "MGET K K",
    "MGET K",
    "MSET K V K V",
    "MSET K V",
    "MSET K V K",
    "MSETNX K V K V",
    "DEL K",
    "DEL K K K",
    "UNLINK K K",
    "EXISTS K K",
    "TYPE K",
    "TOUCH K K",
    "EXPIRE K T",
    "EXPIRE K N",
    "EXPIRE K T O",
    "EXPIRE K T O O",
    "PEXPIRE K T",
    "EXPIREAT K N",
    "PEXPIREAT K N",
    "TTL K",
    "PTTL K",
    "EXPIRETIME K",
    "PEXPIRETIME K",
    "PERSIST K",
    "DBSIZE",
    "PING",
    "PING V",
    "ECHO V",
    "SELECT S",
    "SELECT N",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "WATCH K K",
    "UNWATCH",
    "GET",
    "SET K",
    "GET K K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K REPLACE",
    "COPY K K DB S",
    "COPY K K DB S replace",
    "COPY K K DB N",
    "COPY K K O",
    "MOVE K S",
    "MOVE K N",
    "GETBIT K S",
    "GETBIT K N",
    "SETBIT K S B",
    "SETBIT K N N",
    "BITCOUNT K",
    "BITCOUNT K N N",
    "BITCOUNT K N N U",
    "BITCOUNT K N",
    "BITPOS K B",
    "BITPOS K B N",
    "BITPOS K B N N",
    "BITPOS K B N N U",
    "BITPOS K N",
    "BITOP P K K K",
    "BITOP P K K",
    "BITFIELD K GET F W",
    "BITFIELD K SET F W N",
    "BITFIELD K INCRBY F W N",
    "BITFIELD K OVERFLOW X SET F W N INCRBY F W N GET F W",
    "BITFIELD K INCRBY F W N OVERFLOW X INCRBY F W N",
    "BITFIELD K GET F W SET F N N",
    "BITFIELD K SET F W",
    "BITFIELD_RO K GET F W GET F W",
    "BITFIELD_RO K SET F W N",
    "LCS K K",
    "LCS K K LEN",
    "LCS K K IDX",
    "LCS K K idx MINMATCHLEN S",
    "LCS K K IDX WITHMATCHLEN MINMATCHLEN N",
    "LCS K K LEN O",
    "CONFIG SET D N",
    "CONFIG SET D V",
    "CONFIG SET D N D N",
    "CONFIG SET D",
    "CONFIG GET D",
    "CONFIG O N",
    "WAIT 0 N",
    "WAIT -1 N",
    "WAIT x N",
    "CLIENT KILL K V",
    "CLIENT KILL ID -1",
    "CLIENT KILL TYPE V",
    "CLIENT KILL ADDR V SKIPME V",
    "CLIENT LIST V",
    "CLIENT LIST ID V",
    "CLIENT LIST TYPE O",
    "CLIENT UNBLOCK N O",
    "CLIENT PAUSE -5 O",
    "SHUTDOWN O",
    "BGSAVE V",
    "LASTSAVE V",
    "NOTHING K",
    "MULTI N",
    "DBSIZE K",
    "EXPIRE K",
    "MGET",
    "SETEX K T",
];

/// One of these families is in the commands of a sequence, beside all others.
<<<<<<< HEAD
const FAMILIES: [&[&str]; 3] = [HASHES, DATABASES, SETS];
=======
const FAMILIES: [&[&str]; 3] = [HASHES, LISTS, DATABASES];
>>>>>>> e2d41bf (server: tests of lists and SORT)

/// F is a field or a member, L a pattern.
const HASHES: &[&str] = &[
    "HSET K F V",
    "HSET K F V F V F N",
    "HSET K F V F",
    "HMSET K F V F V",
    "HMSET K F",
    "HSETNX K F V",
    "HGET K F",
    "HMGET K F F F",
    "HDEL K F",
    "HDEL K F F F",
    "HLEN K",
    "HSTRLEN K F",
    "HEXISTS K F",
    "HGETALL K",
    "HKEYS K",
    "HVALS K",
    "HINCRBY K F N",
    "HINCRBYFLOAT K F N",
    "HRANDFIELD K",
    "HRANDFIELD K S",
    "HRANDFIELD K N",
    "HRANDFIELD K S WITHVALUES",
    "HRANDFIELD K S x",
    "HSCAN K 0 COUNT 1000",
    "HSCAN K 0 MATCH L COUNT 100",
    "HSCAN K x",
    "HSCAN K 0 COUNT E",
    "HSCAN K 0 x",
    "HGET K",
    "HSET K F",
];

<<<<<<< HEAD
/// Sequences with commands of sets begin with these.
const FIRST_SETS: [&str; 3] = ["SADD s F F F F F", "SADD t F F F F", "SADD u F F F F F F F F F F F F"];

/// J is one of few keys, so that sets meet.
const SETS: &[&str] = &[
    "SADD J F",
    "SADD J F F F",
    "SADD J F F F F",
    "SADD J F F F F F F",
    "SADD J F F F F F F F",
    "SADD J N N N N",
    "SADD J F N F N",
    "SADD J F F F",
    "SADD J",
    "SREM J F",
    "SREM J F F F",
    "SREM J",
    "SCARD J",
    "SCARD J J",
    "SISMEMBER J F",
    "SISMEMBER J",
    "SMISMEMBER J F F F",
    "SMISMEMBER J",
    "SMEMBERS J",
    "SMEMBERS J",
    "SMEMBERS J J",
    "SPOP J",
    "SPOP J S",
    "SPOP J N",
    "SPOP J S x",
    "SPOP",
    "SRANDMEMBER J",
    "SRANDMEMBER J S",
    "SRANDMEMBER J N",
    "SRANDMEMBER J S x",
    "SMOVE J J F",
    "SMOVE J J F",
    "SMOVE J J",
    "SINTER J",
    "SINTER J J",
    "SINTER J J J",
    "SINTER",
    "SINTERSTORE J J",
    "SINTERSTORE J J J",
    "SINTERSTORE J",
    "SINTERCARD 1 J",
    "SINTERCARD 2 J J",
    "SINTERCARD 2 J J LIMIT S",
    "SINTERCARD 1 J limit N",
    "SINTERCARD 2 J J LIMIT 1 LIMIT S",
    "SINTERCARD N J J",
    "SINTERCARD N J J LIMIT N",
    "SINTERCARD 2 J J x",
    "SINTERCARD 1 J LIMIT",
    "SINTERCARD 1",
    "SUNION J",
    "SUNION J J J",
    "SUNION",
    "SUNIONSTORE J J",
    "SUNIONSTORE J J J",
    "SUNIONSTORE J",
    "SDIFF J",
    "SDIFF J J",
    "SDIFF J J J J",
    "SDIFF",
    "SDIFFSTORE J J",
    "SDIFFSTORE J J J J",
    "SDIFFSTORE J",
    "SSCAN J 0 COUNT 1000",
    "SSCAN J 0 MATCH L COUNT 100",
    "SSCAN J x",
    "SSCAN J 0 COUNT E",
    "SSCAN J 0 x",
    "SSCAN J 0 TYPE set",
    "SSCAN J",
    "SET J V",
    "TYPE J",
    "RENAME J J",
    "COPY J J REPLACE",
    "EXPIRE J T",
    "TTL J",
    "WATCH J",
=======
/// C is a count, D an end of a list, A a side of a pivot, X a pattern of `SORT`, M an order of it.
const LISTS: &[&str] = &[
    "RPUSH K V",
    "RPUSH K V V V F F F",
    "RPUSH K F F F F F F F F",
    "RPUSH K 3 1 2 10 -5 0 1.5 1 2 3",
    "LPUSH K V F V",
    "LPUSH K F F F",
    "LPUSH K",
    "LPUSHX K V V",
    "RPUSHX K V",
    "RPUSHX K",
    "LPOP K",
    "RPOP K",
    "LPOP K C",
    "RPOP K C",
    "RPOP K C C",
    "LPOP K N",
    "LLEN K",
    "LLEN K K",
    "LINDEX K C",
    "LINDEX K N",
    "LRANGE K 0 -1",
    "LRANGE K 0 -1",
    "LRANGE K C C",
    "LRANGE K N N",
    "LRANGE K N",
    "LSET K C V",
    "LSET K N V",
    "LINSERT K A V V",
    "LINSERT K A F V",
    "LINSERT K A F F",
    "LINSERT K A V",
    "LREM K 0 V",
    "LREM K C V",
    "LREM K C F",
    "LREM K -1 F",
    "LREM K C",
    "LTRIM K C C",
    "LTRIM K 1 -2",
    "LTRIM K N N",
    "LPOS K F",
    "LPOS K V",
    "LPOS K F COUNT C",
    "LPOS K F RANK C",
    "LPOS K F rank C count C",
    "LPOS K V RANK C MAXLEN C",
    "LPOS K F COUNT C MAXLEN C RANK C",
    "LPOS K F COUNT C RANK",
    "LPOS K F x C",
    "LMOVE K K D D",
    "LMOVE K K D D",
    "LMOVE K K D",
    "RPOPLPUSH K K",
    "RPOPLPUSH K",
    "LMPOP 1 K D",
    "LMPOP 2 K K D COUNT C",
    "LMPOP 3 K K K D",
    "LMPOP N K K D",
    "LMPOP C K D count C",
    "LMPOP 2 K K D COUNT 1 COUNT 1",
    "LMPOP 2 K K D COUNT 1 x",
    "LMPOP 2 K K D x",
    "LMPOP 3 K K D",
    "LMPOP 1 K",
    "SORT K",
    "SORT K M",
    "SORT K ALPHA",
    "SORT K ALPHA M",
    "SORT K M LIMIT C C",
    "SORT K ALPHA M LIMIT C C",
    "SORT K LIMIT N N",
    "SORT K BY X",
    "SORT K BY X M",
    "SORT K BY X LIMIT C C M",
    "SORT K BY X ALPHA M",
    "SORT K BY X M GET # GET X",
    "SORT K ALPHA GET X GET X GET #",
    "SORT K ALPHA GET X LIMIT 0 3",
    "SORT K BY X GET X STORE K",
    "SORT K STORE K",
    "SORT K ALPHA M STORE K LIMIT C C",
    "SORT K BY nosort M LIMIT C C GET X STORE K",
    "SORT K BY",
    "SORT K GET",
    "SORT K LIMIT 1",
    "SORT K STORE",
    "SORT K x",
    "SORT K LIMIT N N x",
    "SORT_RO K ALPHA M",
    "SORT_RO K BY X M GET X LIMIT C C",
    "SORT_RO K STORE K",
    "HSET K f V g N",
    "SET K N",
    "MSET a N 1 N",
    "DEL K",
    "TYPE K",
    "EXPIRE K T",
    "COPY K K REPLACE",
    "RENAME K K",
>>>>>>> e2d41bf (server: tests of lists and SORT)
];

const DATABASES: &[&str] = &[
    "SCAN 0 COUNT 1000",
    "SCAN 0 MATCH L COUNT 1000",
    "SCAN 0 TYPE Y COUNT 1000",
    "SCAN 0 COUNT E",
    "SCAN x",
    "KEYS L",
    "KEYS *",
    "RANDOMKEY",
    "FLUSHDB",
    "FLUSHDB x",
    "FLUSHALL ASYNC",
    "SWAPDB 0 1",
    "SWAPDB S S",
    "SWAPDB N S",
    "DBSIZE",
    "SELECT S",
    "HSET K F V",
    "SET K V",
    "WATCH K",
];

const FIELDS: [&str; 8] = ["f", "g", "", "field:1", "a", "1", "\u{e9}\r\n", "0123456789"];
const PATTERNS: [&str; 8] = ["*", "a*", "?", "[a-c]", "f*", "k?y:*", "", "\\a"];
const TYPES: [&str; 7] = ["string", "hash", "set", "zset", "list", "HASH", "x"];

const KEYS: [&str; 7] = ["a", "b", "c", "key:1", "", "a b\r\n", "\u{e9}"];
const VALUES: [&str; 10] =
    ["", "x", "10", "-5", "hello world", "0", "1.5", "\r\n", "9223372036854775807", "abcdefghijklmnop"];
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "5",
    "-5",
    "100",
    "x",
    "",
    "1.5",
    "007",
    "+1",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "3.0e3",
    " 1",
];
/// Not -2^63, which 7.2 refuses, as this server does, and 7.0 takes.
const COUNTS: [&str; 16] = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "-1",
    "-2",
    "-3",
    "-7",
    "1",
    "2",
    "x",
    "1.5",
    "9223372036854775807",
    "-9223372036854775807",
];
const SMALL: [&str; 5] = ["0", "1", "2", "15", "40"];
const OPTIONS: [&str; 14] =
    ["NX", "XX", "GET", "KEEPTTL", "EX", "PX", "EXAT", "PXAT", "PERSIST", "GT", "LT", "nx", "ex", "FOO"];
/// Directives that both keep, or that neither lets be changed.
const DIRECTIVES: [&str; 13] = [
    "hash-max-listpack-entries",
    "Hash-Max-Ziplist-Value",
    "set-max-intset-entries",
    "list-max-listpack-size",
    "zset-max-listpack-value",
    "slowlog-log-slower-than",
    "maxmemory-samples",
    "lfu-log-factor",
    "hll-sparse-max-bytes",
    "activerehashing",
    "loglevel",
    "databases",
    "nonsense",
];
const TIMES: [&str; 3] = ["1000", "99999", "100000"];

fn command(family: &[&str], random: &mut Random) -> Vec<String> {
    let template = if random.below(2) == 0 { random.of(TEMPLATES) } else { random.of(family) };
    fill(template, random)
}

fn fill(template: &str, random: &mut Random) -> Vec<String> {
    let word = |word: &str, random: &mut Random| {
        match word {
            "K" => random.of(&KEYS),
            "J" if random.below(4) > 0 => random.of(&["s", "t", "u"]),
            "J" => random.of(&KEYS),
            "V" => random.of(&VALUES),
            "N" => random.of(&NUMBERS),
            "S" => random.of(&SMALL),
            "O" => random.of(&OPTIONS),
            "T" => random.of(&TIMES),
            "F" => random.of(&FIELDS),
            "L" => random.of(&PATTERNS),
            "Y" => random.of(&TYPES),
            "E" => random.of(&["0", "-1", "x", "1.5", "9223372036854775808", "5000"]),
            "C" => random.of(&COUNTS),
            "D" => random.of(&["LEFT", "right", "LEFT", "RIGHT", "x"]),
            "A" => random.of(&["BEFORE", "after", "AFTER", "before", "x"]),
            "X" => random.of(&["*", "key:*", "*->f", "*->g", "nosort", "#", "*->", "*x"]),
            "M" => random.of(&["ASC", "desc"]),
            "B" => random.of(&["0", "1"]),
            "U" => random.of(&["BIT", "byte", "x"]),
            "F" => random.of(&["u1", "i1", "u8", "i8", "u13", "i13", "i16", "u63", "i64", "u64", "i65", "x"]),
            "W" => random.of(&["0", "1", "#0", "#1", "#2", "7", "64", "100", "-1", "#x"]),
            "X" => random.of(&["WRAP", "sat", "FAIL", "x"]),
            "D" => random.of(&DIRECTIVES),
            "P" => random.of(&["AND", "or", "XOR", "NOT", "x"]),
            _ => return word.to_string(),
        }
        .to_string()
    };
    template.split(' ').map(|name| word(name, random)).collect()
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

/// A reply whose items have no order, sorted; those of maps in pairs.
fn sorted(name: &str, reply: &Reply) -> Reply {
    let Reply::Array(items) = reply else { return reply.clone() };
    let mut items = items.clone();
    match name {
        "HGETALL" | "EXEC" if items.len().is_multiple_of(2) => {
            let mut pairs: Vec<_> = items.chunks(2).map(|pair| pair.to_vec()).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            items = pairs.concat();
        }
        "SCAN" | "HSCAN" | "SSCAN" => {
            if let Some(Reply::Array(found)) = items.get_mut(1) {
                let width = if name == "HSCAN" { 2 } else { 1 };
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
    let is_random = |name: &str| ["HRANDFIELD", "RANDOMKEY", "SRANDMEMBER", "SPOP"].contains(&name);
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
            let names = ["TTL", "INCRBYFLOAT", "HGETALL", "HKEYS", "HSCAN", "SCAN", "HRANDFIELD"];
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
    let server = fulgurite_server::Server::start(db, config()).unwrap();
    let connect = |address: (&str, u16)| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    let mut compared = 0;
    for sequence in seed..seed + sequences {
        let mut random = Random(sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let family = FAMILIES[random.below(FAMILIES.len())];
        let mut commands: Vec<Vec<String>> = (0..COMMANDS).map(|_| command(family, &mut random)).collect();
        if std::ptr::eq(family, SETS) {
            for (command, template) in commands.iter_mut().zip(FIRST_SETS) {
                *command = fill(template, &mut random);
            }
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
