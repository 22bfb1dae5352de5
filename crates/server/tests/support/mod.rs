//! A client, and servers over databases in memory.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite::env::SimEnv;
use fulgurite::{Database, Options};
use fulgurite_resp::{Reply, encode_command, parse_reply};
use fulgurite_server::{Config, Dispatch, Server};

/// How long a test waits for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// A configuration on a free port.
pub fn config() -> Config {
    let mut config = Config::default();
    config.bind = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    config
}

/// A server over a new database on a disk in memory.
pub fn serve(config: Config) -> (Arc<SimEnv>, Database, Server) {
    let env = SimEnv::new(1);
    let db = open(&env);
    let server = Server::start(db.clone(), config).unwrap();
    (env, db, server)
}

/// One with two I/O threads that runs commands in this way.
pub fn serve_by(dispatch: Dispatch) -> (Arc<SimEnv>, Database, Server) {
    let mut config = config();
    (config.dispatch, config.io_threads) = (dispatch, 2);
    serve(config)
}

/// Runs a conversation with each way to run commands.
pub fn talk(conversation: &[(&str, &str)]) {
    for dispatch in Dispatch::ALL {
        let (_, _, server) = serve_by(dispatch);
        let mut client = Client::connect(&server);
        for (command, expected) in conversation {
            assert_eq!(client.ask(command), *expected, "{dispatch:?}: {command}");
        }
    }
}

pub fn open(env: &Arc<SimEnv>) -> Database {
    open_with(env, Options::default())
}

pub fn open_with(env: &Arc<SimEnv>, options: Options) -> Database {
    Database::open_with(env.clone(), "/data", options, |_| {}).unwrap()
}

/// Has other threads stop, also if the test fails: else it would wait for them.
pub struct Stopper<'a>(pub &'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// xorshift64*; the number is not 0.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    pub fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// Waits until something is so.
#[track_caller]
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(3));
    }
    panic!("it never was");
}

/// A client of a server.
pub struct Client {
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub fn connect(server: &Server) -> Client {
        let stream = TcpStream::connect(server.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, input: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a command, its arguments divided by spaces.
    pub fn send_command(&mut self, command: &str) {
        let arguments: Vec<&str> = command.split(' ').collect();
        self.send_arguments(&arguments);
    }

    pub fn send_arguments(&mut self, arguments: &[impl AsRef<[u8]>]) {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, arguments);
        self.send(&bytes);
    }

    /// The next reply; `None` if the server closed the connection.
    pub fn receive(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, len)) = parse_reply(&self.input).expect("a reply") {
                self.input.drain(..len);
                return Some(reply);
            }
            let mut bytes = [0; 64 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.input.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// Whether no byte of a reply comes for a while.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut bytes = [0; 1024];
        let read = self.stream.read(&mut bytes);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let len = read.as_ref().copied().unwrap_or(0);
        self.input.extend_from_slice(&bytes[..len]);
        read.is_err() && self.input.is_empty()
    }

    /// Sends a command, and returns its reply as text.
    pub fn ask(&mut self, command: &str) -> String {
        self.send_command(command);
        self.receive_text()
    }

    pub fn ask_arguments(&mut self, arguments: &[impl AsRef<[u8]>]) -> String {
        self.send_arguments(arguments);
        self.receive_text()
    }

    pub fn receive_text(&mut self) -> String {
        self.receive().map_or("closed".into(), |reply| text(&reply))
    }
}

/// A reply as redis-cli would show it, on one line.
pub fn text(reply: &Reply) -> String {
    let bytes = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match reply {
        Reply::Simple(text) => bytes(text),
        Reply::Error(text) | Reply::BulkError(text) => format!("-{}", bytes(text)),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(text) => format!("\"{}\"", bytes(text)),
        Reply::NullBulk | Reply::NullArray | Reply::Null => "nil".into(),
        Reply::Array(all) | Reply::Set(all) | Reply::Push(all) => {
            format!("[{}]", all.iter().map(text).collect::<Vec<_>>().join(" "))
        }
        Reply::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}: {}", text(key), text(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// A figure of `INFO stats`.
pub fn figure(client: &mut Client, name: &str) -> u64 {
    let info = client.ask("INFO stats");
    let rest = info.split(&format!("{name}:")).nth(1).expect("it is there");
    rest.split(|end: char| !end.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// How many rows a table of the database has.
pub fn rows(db: &Database, table: &str) -> usize {
    db.open_table(table).unwrap().range(..).unwrap().count()
}

/// Nothing is left that a collection or a string took, nor a snapshot.
pub fn assert_all_is_reclaimed(db: &Database) {
    wait_until(|| rows(db, "redis:content") == 0 && rows(db, "redis:garbage") == 0);
    wait_until(|| db.stats().snapshots == 0);
}
