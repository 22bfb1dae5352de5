//! What arrives at a server may be anything: valid commands with arbitrary arguments, commands that are cut, mixed up or incomplete, and
//! bytes that are no commands. No command panics, each connection gets its replies or its end in time, the others are served, and the
//! database is sound afterwards.

#[path = "differential/families.rs"]
#[allow(dead_code, reason = "the templates alone are used here")]
mod families;
mod support;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use families::{FAMILIES, Family, TEMPLATES, common_word};
use fulgurite::env::{Env, RealEnv};
use fulgurite::{Database, Options};
use fulgurite_resp::{Reply, encode_command, parse_reply};
use fulgurite_server::{Config, Dispatch, Server};
use parking_lot::Mutex;
use support::*;

/// A connection without a byte for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const CLIENTS: usize = 4;

/// Arguments that are seldom right.
const ODD: &[&str] = &[
    "",
    " ",
    "0",
    "-0",
    "+1",
    "01",
    "1 ",
    "-1",
    "2",
    "3.5",
    "1e308",
    "1e309",
    "-1e400",
    "nan",
    "inf",
    "-inf",
    "+inf",
    "0x1p-1074",
    "2147483647",
    "-2147483649",
    "4294967295",
    "4294967296",
    "536870912",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
    "(1",
    "[a",
    "-",
    "+",
    "*",
    "?",
    "[",
    "[^",
    "\\",
    "\r\n",
    "\0",
    "$-1",
    "*3",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "GET",
    "SET",
    "EX",
    "PX",
    "EXAT",
    "KEEPTTL",
    "WITHSCORES",
    "WITHVALUES",
    "LIMIT",
    "BYSCORE",
    "BYLEX",
    "REV",
    "AGGREGATE",
    "SUM",
    "WEIGHTS",
    "MATCH",
    "COUNT",
    "TYPE",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "STORE",
    "ASC",
    "DESC",
    "ALPHA",
    "BY",
    "#",
    "REPLACE",
    "DB",
    "u8",
    "i64",
    "u64",
    "#1",
    "OVERFLOW",
    "SAT",
    "FAIL",
    "IDX",
    "LEN",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "RANK",
    "MAXLEN",
    "MIN",
    "MAX",
    "BIT",
    "NOT",
    "AND",
    "LIST",
    "INFO",
    "ID",
    "SETNAME",
    "GETNAME",
    "TRACKINGINFO",
    "DOCS",
    "GETKEYS",
    "GETKEYSANDFLAGS",
    "ENCODING",
    "FREQ",
    "IDLETIME",
    "REFCOUNT",
    "HELP",
    "sync",
    "none",
    "async",
    "AUTH",
    "ASYNC",
    "ANY",
    "FILTERBY",
];

/// Panics of any thread since the last look.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes panics, also those that the server catches.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let text = format!("{:?}: {panic}", std::thread::current().name());
            if !text.contains("it is noted") {
                before(panic);
            }
            PANICS.lock().push(text);
        }));
        // A panic that is caught is noted.
        _ = std::panic::catch_unwind(|| panic!("it is noted"));
        let noted = std::mem::take(&mut *PANICS.lock());
        assert!(noted.len() == 1 && noted[0].contains("it is noted"), "{noted:?}");
    });
}

/// A command of the server's table.
struct Named {
    name: String,
    /// The number of its arguments with the name, negative if there may be more.
    arity: i64,
}

fn table(server: &Server) -> Vec<Named> {
    let mut client = Client::connect(server);
    client.send_command("COMMAND");
    let Some(Reply::Array(commands)) = client.receive() else { panic!("a table") };
    let named = |row: &Reply| match row {
        Reply::Array(row) => match &row[..2] {
            [Reply::Bulk(name), Reply::Integer(arity)] => {
                Named { name: String::from_utf8(name.clone()).unwrap(), arity: *arity }
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let table: Vec<Named> = commands.iter().map(named).collect();
    assert!(table.len() > 150, "{}", table.len());
    table
}

type Command = Vec<Vec<u8>>;

/// A stream of bytes, made of a seed.
struct Maker<'a> {
    random: Random,
    table: &'a [Named],
    /// Whether commands may be among it that change what replies there are, or how long they take.
    is_counted: bool,
}

impl Maker<'_> {
    fn word(&mut self) -> Vec<u8> {
        let lens = [0, 1, 7, 40, 300, 5_000, 65_518, 65_519, 65_523, 65_524, 65_536, 65_537, 300_000];
        match self.random.below(40) {
            0..24 => self.random.of(ODD).into(),
            24..34 => {
                let words = ["K", "V", "N", "S", "F", "T", "L"];
                let word = self.random.of(&words);
                common_word(word, &mut self.random).expect("it stands for another one").into()
            }
            34..38 => {
                let len = self.random.below(20);
                self.random.bytes(len)
            }
            _ => {
                let len = lens[self.random.below(lens.len())];
                self.random.bytes(len)
            }
        }
    }

    fn of_template(&mut self, family: &Family) -> Command {
        let is_common = self.random.below(2) == 0;
        let template = self.random.of(if is_common { TEMPLATES } else { family.templates });
        let mut word = |word: &str| {
            let own = if is_common { None } else { (family.word)(word, &mut self.random) };
            own.or_else(|| common_word(word, &mut self.random)).unwrap_or(word).into()
        };
        template.split(' ').map(&mut word).collect()
    }

    fn of_table(&mut self) -> Command {
        let at = self.random.below(self.table.len());
        let Named { name, arity } = &self.table[at];
        let is_long = self.random.below(20) == 0;
        let more = if is_long { 300 } else { [0, 0, 1, 2, 5][self.random.below(5)] };
        let len = match self.random.below(8) {
            0 => 1 + self.random.below(6),
            _ => arity.unsigned_abs() as usize + if *arity < 0 { more } else { 0 },
        };
        let mut command = vec![name.clone().into_bytes()];
        command.extend((1..len).map(|_| self.word()));
        command
    }

    /// A command, with an argument changed, left out or doubled, or as it is.
    fn command(&mut self, family: &Family) -> Command {
        loop {
            let mut command =
                if self.random.below(3) == 0 { self.of_table() } else { self.of_template(family) };
            let at = self.random.below(command.len());
            match self.random.below(12) {
                0 | 1 if at > 0 => command[at] = self.word(),
                2 => command.insert(at + 1, self.word()),
                3 if command.len() > 1 => _ = command.remove(at),
                4 => command.insert(at, command[at].clone()),
                5 if at > 0 => command[at].extend(self.random.bytes(1)),
                _ => {}
            }
            if !self.keeps_out(&command) {
                return command;
            }
        }
    }

    /// Whether a command would end the server, stop it for longer than this test waits, end other connections, or let no more of them in.
    fn keeps_out(&self, command: &[Vec<u8>]) -> bool {
        let is = |at: usize, names: &[&str]| {
            let word = command.get(at).map(|word| word.to_ascii_uppercase());
            word.is_some_and(|word| names.iter().any(|name| name.as_bytes() == word))
        };
        is(0, &["SHUTDOWN"])
            || !self.is_counted && is(0, &["CONFIG", "CLIENT"])
            || is(0, &["CONFIG"]) && is(1, &["SET"])
            || is(0, &["CLIENT"]) && is(1, &["KILL", "PAUSE", "REPLY"])
    }

    /// Valid frames, to the first command that ends the connection.
    fn commands(&mut self) -> (Vec<u8>, Vec<Command>) {
        let family = &FAMILIES[self.random.below(FAMILIES.len())];
        let mut commands: Vec<_> = (0..1 + self.random.below(40)).map(|_| self.command(family)).collect();
        if let Some(end) = commands.iter().position(|command| command[0].eq_ignore_ascii_case(b"quit")) {
            commands.truncate(end + 1);
        }
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| encode_command(&mut bytes, command));
        (bytes, commands)
    }

    /// Valid frames that were changed.
    fn changed(&mut self) -> Vec<u8> {
        let (mut bytes, _) = self.commands();
        for _ in 0..1 + self.random.below(6) {
            let at = self.random.below(bytes.len().max(1)).min(bytes.len());
            let len = self.random.below(12).min(bytes.len() - at);
            match self.random.below(6) {
                0 if at < bytes.len() => bytes[at] = self.random.below(256) as u8,
                1 => _ = bytes.drain(at..at + len),
                2 => {
                    let again = bytes[at..at + len].to_vec();
                    _ = bytes.splice(at..at, again);
                }
                3 => {
                    let inserted = self.token();
                    _ = bytes.splice(at..at, inserted);
                }
                4 if self.random.below(3) == 0 => bytes.truncate(at),
                _ => {
                    // The number of a header.
                    let header = bytes[at..].iter().position(|byte| b"*$".contains(byte));
                    if let Some(header) = header {
                        let number = self.random.of(ODD).as_bytes().to_vec();
                        _ = bytes.splice(at + header + 1..at + header + 1, number);
                    }
                }
            }
        }
        bytes
    }

    /// What frames are made of, or anything else.
    fn token(&mut self) -> Vec<u8> {
        match self.random.below(6) {
            0 => self
                .random
                .of(&[
                    "*",
                    "$",
                    "\r\n",
                    "\n",
                    "\r",
                    "*1\r\n",
                    "*-1\r\n",
                    "$0\r\n\r\n",
                    "$-1\r\n",
                    "\"",
                    "'",
                    "\\x",
                ])
                .into(),
            1 => {
                let len = self.random.below(30);
                self.random.bytes(len)
            }
            2 => {
                let at = self.random.below(self.table.len());
                let name = &self.table[at].name;
                if ["shutdown", "client", "config"].contains(&&**name) {
                    vec![b' ']
                } else {
                    name.clone().into()
                }
            }
            3 => b" ".to_vec(),
            _ => self.random.of(ODD).into(),
        }
    }

    /// Bytes that are commands by chance alone.
    fn anything(&mut self) -> Vec<u8> {
        let len = self.random.below(3_000);
        if self.random.below(4) == 0 {
            return self.random.bytes(len);
        }
        let mut bytes = Vec::new();
        while bytes.len() < len {
            bytes.extend(self.token());
        }
        bytes
    }
}

/// Sends a stream, cut anywhere, and reads all that comes back. `leaves_after`: closes without reading once so much was sent.
fn send(
    address: SocketAddr,
    bytes: &[u8],
    random: &mut Random,
    leaves_after: Option<usize>,
) -> Result<Vec<u8>, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| format!("no connection: {error}"))?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    if let Some(len) = leaves_after {
        _ = stream.write_all(&bytes[..len.min(bytes.len())]);
        return Ok(vec![]);
    }
    let cuts = random.below(4);
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || {
            let mut left = bytes;
            for _ in 0..cuts {
                let len = random.below(left.len() + 1);
                if writer.write_all(&left[..len]).is_err() {
                    return Ok(());
                }
                left = &left[len..];
                std::thread::park_timeout(Duration::from_micros(200));
            }
            match writer.write_all(left) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    Err("the server reads no more".to_string())
                }
                // It may have closed the connection.
                _ => {
                    _ = writer.shutdown(Shutdown::Write);
                    Ok(())
                }
            }
        });
        let mut output = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => output.extend_from_slice(&buffer[..len]),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    break;
                }
                Err(error) => return Err(format!("neither replies nor an end: {error}")),
            }
        }
        sent.join().expect("it does not panic").map(|()| output)
    })
}

/// The replies of an output.
fn replies(mut output: &[u8]) -> Result<Vec<Reply>, String> {
    let mut replies = Vec::new();
    while !output.is_empty() {
        match parse_reply(output) {
            Ok(Some((reply, len))) => {
                output = &output[len..];
                replies.push(reply);
            }
            other => return Err(format!("{other:?}: {}", output[..output.len().min(200)].escape_ascii())),
        }
    }
    Ok(replies)
}

/// What valid frames got: else they could all be errors.
#[derive(Default)]
struct Tally {
    streams: u64,
    replies: u64,
    errors: u64,
    /// The commands that were no error once, at least.
    taken: BTreeSet<String>,
}

impl Tally {
    fn note(&mut self, commands: &[Command], replies: &[Reply]) {
        for (command, reply) in commands.iter().zip(replies) {
            self.replies += 1;
            match reply {
                Reply::Error(_) | Reply::BulkError(_) => self.errors += 1,
                Reply::Simple(text) if text == b"QUEUED" => {}
                _ => _ = self.taken.insert(String::from_utf8_lossy(&command[0]).to_lowercase()),
            }
        }
    }
}

/// Sends one stream. An error says what is wrong.
fn attempt(address: SocketAddr, table: &[Named], seed: u64, tally: &Mutex<Tally>) -> Result<(), String> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let kind = random.below(10);
    let is_counted = kind < 4;
    let mut maker = Maker { random: random.clone(), table, is_counted };
    random.next();
    match kind {
        0..4 => {
            let (bytes, commands) = maker.commands();
            let found = replies(&send(address, &bytes, &mut random, None)?)?;
            if found.len() != commands.len() {
                let ended_by =
                    commands.get(found.len()).map(|command| command.join(&b' ').escape_ascii().to_string());
                return Err(format!("{} replies of {}, then {ended_by:?}", found.len(), commands.len()));
            }
            tally.lock().note(&commands, &found);
        }
        4..7 => _ = send(address, &maker.changed(), &mut random, None)?,
        7 | 8 => _ = send(address, &maker.anything(), &mut random, None)?,
        _ => {
            let (bytes, _) = maker.commands();
            let leaves_after = random.below(bytes.len());
            send(address, &bytes, &mut random, Some(leaves_after))?;
        }
    }
    Ok(())
}

fn any_config(random: &mut Random) -> Config {
    let mut config = config();
    config.io_threads = 1 + random.below(2);
    config.dispatch = if random.below(4) == 0 { Dispatch::Queue } else { Dispatch::Inline };
    // Neither values nor commands become long enough to fill the memory.
    config.argument_bytes_max = 1 << 20;
    config.query_bytes_max = 4 << 20;
    config
}

/// Sends streams of seeds until `ends`, checks the server beside them, and the database after it. Returns the commands of the table.
fn life(
    db: Database,
    seed: &AtomicU64,
    tally: &Mutex<Tally>,
    ends: impl Fn(u64) -> bool + Sync,
) -> Vec<Named> {
    let first = seed.load(Ordering::SeqCst);
    let server = Server::start(db.clone(), any_config(&mut Random(first | 1))).unwrap();
    let (address, table) = (server.addresses()[0], table(&server));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut other = Client::connect(&server);
                loop {
                    let seed = seed.fetch_add(1, Ordering::SeqCst);
                    if ends(seed) {
                        return;
                    }
                    let outcome = attempt(address, &table, seed, tally);
                    tally.lock().streams += 1;
                    let panics = PANICS.lock().clone();
                    assert!(
                        outcome.is_ok() && panics.is_empty(),
                        "FULGURITE_STREAM_SEED={seed}, or one of the {CLIENTS} before it: {outcome:?} {panics:?}"
                    );
                    assert_eq!(other.ask("PING"), "PONG", "FULGURITE_STREAM_SEED={seed}: others are served");
                }
            });
        }
    });
    let mut client = Client::connect(&server);
    for database in 0..16 {
        assert_eq!(client.ask(&format!("SELECT {database}")), "OK");
        // Keys that have expired count until they are reclaimed.
        wait_until(|| {
            client.send_command("KEYS *");
            let Some(Reply::Array(keys)) = client.receive() else { panic!("no keys") };
            client.ask("DBSIZE") == keys.len().to_string()
        });
    }
    drop((client, server));
    let report = db.check(|_| {}).unwrap();
    assert!(report.problems.is_empty(), "before FULGURITE_STREAM_SEED={seed:?}: {:?}", report.problems);
    assert!(PANICS.lock().is_empty(), "{:?}", PANICS.lock());
    table
}

fn open_again(path: &std::path::Path) -> Database {
    let options = Options { memory_bytes: Some(64 << 20), ..Options::default() };
    let db = Database::open(path, options).unwrap();
    let report = db.check(|_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    db
}

#[test]
fn no_stream_of_bytes_breaks_the_server() {
    note_panics();
    let dir = tempfile::tempdir().unwrap();
    let (seed, tally) = (AtomicU64::new(1), Mutex::default());
    for end in [500, 1_000] {
        life(open_again(&dir.path().join("data")), &seed, &tally, |seed| seed >= end);
    }
    open_again(&dir.path().join("data"));
    let Tally { streams, replies, errors, taken } = tally.into_inner();
    assert!(streams > 900 && replies > 4_000 && taken.len() > 100, "{streams} {replies} {}", taken.len());
    assert!(errors < replies * 3 / 4, "{errors} of {replies} replies are errors");
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
#[ignore = "as long as one likes; docs/testing.md has the command"]
fn no_stream_of_bytes_breaks_the_server_for_long() {
    note_panics();
    let clock = RealEnv::new();
    let now = || clock.clock().monotonic_ns() / 1_000_000_000;
    let until = now() + variable("FULGURITE_STREAM_SECONDS", 60);
    let dir = tempfile::tempdir().unwrap();
    let (seed, tally) = (AtomicU64::new(variable("FULGURITE_STREAM_SEED", 1)), Mutex::default());
    let mut lives = 0;
    while now() < until {
        let db = open_again(&dir.path().join("data"));
        let life_ends = (now() + 30).min(until);
        let table = life(db, &seed, &tally, |_| now() >= life_ends);
        lives += 1;
        let Tally { streams, replies, errors, taken } = &*tally.lock();
        let others: Vec<&str> =
            table.iter().map(|named| &*named.name).filter(|name| !taken.contains(*name)).collect();
        println!("{streams} streams in {lives} lives of a server, up to FULGURITE_STREAM_SEED={seed:?}");
        println!("{errors} of {replies} replies to valid frames are errors; always of {others:?}");
    }
    open_again(&dir.path().join("data"));
}
