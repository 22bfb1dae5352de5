//! Fulgurite's server as an engine of the benchmarks: each session is a connection over a socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use fulgurite_resp::{Reply, encode_command, parse_reply};
use fulgurite_server::Dispatch;
use parking_lot::Mutex;

use crate::engine::{
    Counters, Direction, Ended, Engine, Level, Mode, Needs, Opening, Range, Session, Statements, Store,
    Transaction, Verdict, Visit, copied,
};
use crate::server_process::{ServerProcess, Serving};
use crate::{Error, Result};

/// How many keys a scan asks for at a time.
const SCANNED_KEYS: usize = 1_000;

const SET: &[u8] = b"SET";

/// How much a connection reads at a time.
const READ_BYTES: usize = 16 << 10;

/// The server with a dispatch.
#[derive(Clone, Debug)]
pub(crate) struct ServerEngine {
    pub name: String,
    pub dispatch: Dispatch,
    /// Whether single reads look at the memtables alone: `DELTA GET`.
    pub reads_memtables: bool,
}

impl Engine for ServerEngine {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        let reads = if self.reads_memtables { ", reads of the memtables alone" } else { "" };
        let version = env!("CARGO_PKG_VERSION");
        format!("fulgurite {version}, served over sockets, dispatch {}{reads}", self.dispatch.name())
    }

    fn isolation(&self) -> &str {
        "snapshot"
    }

    fn cannot(&self, needs: Needs, level: Level) -> Option<String> {
        if level != Level::Sync {
            return Some("the harness asks the server for durable commits alone".into());
        }
        (needs != Needs::default()).then(|| "the harness sends it single reads, and writes".into())
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        if opening.tables.len() != 1 {
            return Err(Error::Unsupported("tables but one"));
        }
        let server = ServerProcess::start(&Serving {
            dir: opening.dir.into(),
            memory_bytes: usize::try_from(opening.cache_bytes).unwrap_or(usize::MAX),
            dispatch: self.dispatch.name().into(),
        })?;
        let control = Mutex::new(Connection::to(server.address)?);
        Ok(Arc::new(Served { server, control, reads_memtables: self.reads_memtables }))
    }
}

struct Served {
    server: ServerProcess,
    /// Asks for figures, and for checkpoints.
    control: Mutex<Connection>,
    reads_memtables: bool,
}

impl Store for Served {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let connection = Connection::to(self.server.address)?;
        Ok(Box::new(ServedSession { connection, reads_memtables: self.reads_memtables }))
    }

    fn counters(&self) -> Counters {
        match self.control.lock().ask(&["INFO", "fulgurite_commands"]) {
            Ok(Reply::Bulk(text)) => counters_of(&String::from_utf8_lossy(&text)),
            _ => Counters::default(),
        }
    }

    fn merge(&self) -> Result<()> {
        self.control.lock().ask(&[b"SAVE"]).map(|_| ())
    }

    fn settle(&self) -> Result<()> {
        // Every reply that arrived was of a durable commit.
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.server.stop()
    }
}

/// What `INFO` says of commands.
fn counters_of(info: &str) -> Counters {
    let mut counters = Counters::default();
    for line in info.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let field = |name: &str| -> u64 {
            let fields = value.split(',').filter_map(|field| field.split_once('='));
            let mut named = fields.filter(|(field, _)| *field == name);
            named.find_map(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        let (calls, waiting_ns, processing_ns) =
            (field("calls"), field("waiting_usec") * 1_000, field("processing_usec") * 1_000);
        let name = name.strip_prefix("fulgurite_").unwrap_or(name);
        if name.ends_with("voluntary_context_switches") {
            counters.context_switches += value.parse().unwrap_or(0);
        } else if name.starts_with("inline_") {
            counters.inline_commands += calls;
        } else if name.starts_with("at_workers_") {
            counters.worker_commands += calls;
        } else if name.starts_with("in_memtables_") {
            counters.held_reads += calls;
            counters.held_waiting_ns += waiting_ns;
            counters.held_processing_ns += processing_ns;
        } else if name.starts_with("not_in_memtables_") {
            counters.other_reads += calls;
            counters.other_waiting_ns += waiting_ns;
            counters.other_processing_ns += processing_ns;
        }
    }
    counters
}

/// A connection to a server.
struct Connection {
    stream: TcpStream,
    /// What is read into, and what of it was no reply yet.
    buffer: Vec<u8>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Connection {
    fn to(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        let stream = stream.map_err(Error::io("connecting to a server"))?;
        Ok(Connection { stream, buffer: vec![0; READ_BYTES], input: Vec::new(), output: Vec::new() })
    }

    fn ask(&mut self, arguments: &[impl AsRef<[u8]>]) -> Result<Reply> {
        self.output.clear();
        encode_command(&mut self.output, arguments);
        self.stream.write_all(&self.output).map_err(Error::io("sending a command"))?;
        self.receive()
    }

    /// The next reply.
    fn receive(&mut self) -> Result<Reply> {
        let failed = |why: String| Error::engine("a command of the server", why);
        loop {
            let parsed = parse_reply(&self.input).map_err(|error| failed(error.to_string()))?;
            if let Some((reply, len)) = parsed {
                self.input.drain(..len);
                return match reply {
                    Reply::Error(text) => Err(failed(String::from_utf8_lossy(&text).into())),
                    reply => Ok(reply),
                };
            }
            let len = self.stream.read(&mut self.buffer).map_err(Error::io("receiving a reply"))?;
            if len == 0 {
                return Err(failed("the server closed the connection".into()));
            }
            self.input.extend_from_slice(&self.buffer[..len]);
        }
    }

    fn get(&mut self, command: &[&[u8]], key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let reply = self.ask(&[command, &[key]].concat())?;
        let found = match &reply {
            Reply::Bulk(found) => Some(&found[..]),
            // Of `DELTA GET`.
            Reply::Array(held) => match &held[..] {
                [Reply::Bulk(found)] => Some(&found[..]),
                _ => None,
            },
            _ => None,
        };
        Ok(copied(found, value))
    }

    /// The elements of a reply that is an array.
    fn ask_array(&mut self, arguments: &[impl AsRef<[u8]>]) -> Result<Vec<Reply>> {
        match self.ask(arguments)? {
            Reply::Array(all) => Ok(all),
            other => Err(Error::engine("a command of the server", format!("{other:?} is no array"))),
        }
    }
}

struct ServedSession {
    connection: Connection,
    reads_memtables: bool,
}

impl Session for ServedSession {
    fn transact(&mut self, _: Mode, statements: Statements<'_>) -> Result<Ended> {
        let mut open = Open { connection: &mut self.connection, commands: Vec::new() };
        let verdict = statements(&mut open)?;
        let Open { connection, commands } = open;
        if verdict == Verdict::Rollback {
            return Ok(Ended::RolledBack);
        }
        match &commands[..] {
            [] => {}
            [command] => _ = connection.ask(command)?,
            commands if commands.iter().all(|command| command[0] == SET) => {
                let pairs = commands.iter().flat_map(|command| command[1..].iter().map(Vec::as_slice));
                let command: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
                _ = connection.ask(&command)?;
            }
            commands => {
                connection.output.clear();
                encode_command(&mut connection.output, &["MULTI"]);
                commands.iter().for_each(|command| encode_command(&mut connection.output, command));
                encode_command(&mut connection.output, &["EXEC"]);
                connection.stream.write_all(&connection.output).map_err(Error::io("sending commands"))?;
                for _ in 0..commands.len() + 2 {
                    connection.receive()?;
                }
            }
        }
        Ok(Ended::Committed)
    }

    fn get(&mut self, _: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let command: &[&[u8]] = if self.reads_memtables { &[b"DELTA", b"GET"] } else { &[b"GET"] };
        self.connection.get(command, key, value)
    }
}

/// A transaction whose writes are sent when it commits.
struct Open<'a> {
    connection: &'a mut Connection,
    commands: Vec<Vec<Vec<u8>>>,
}

impl Transaction for Open<'_> {
    fn get(&mut self, _: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.connection.get(&[b"GET"], key, value)
    }

    fn put(&mut self, _: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.commands.push(vec![SET.to_vec(), key.to_vec(), value.to_vec()]);
        Ok(())
    }

    fn delete(&mut self, _: usize, key: &[u8]) -> Result<()> {
        self.commands.push(vec![b"DEL".to_vec(), key.to_vec()]);
        Ok(())
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        if range.from.is_some() || range.direction == Direction::Reverse {
            return Err(Error::Unsupported("scans of a range"));
        }
        let mut cursor = b"0".to_vec();
        loop {
            let count = SCANNED_KEYS.to_string();
            let mut step = self.connection.ask_array(&[&b"SCAN"[..], &cursor, b"COUNT", count.as_bytes()])?;
            let (Some(Reply::Array(keys)), Some(Reply::Bulk(next))) = (step.pop(), step.pop()) else {
                return Err(Error::engine("a scan of the server", "its reply has another shape"));
            };
            let keys: Vec<Vec<u8>> = keys
                .into_iter()
                .filter_map(|key| if let Reply::Bulk(key) = key { Some(key) } else { None })
                .collect();
            if !keys.is_empty() {
                let command: Vec<&[u8]> =
                    std::iter::once(&b"MGET"[..]).chain(keys.iter().map(Vec::as_slice)).collect();
                let values = self.connection.ask_array(&command)?;
                for (key, value) in keys.iter().zip(values) {
                    if let Reply::Bulk(value) = value
                        && !visit(key, &value)?
                    {
                        return Ok(());
                    }
                }
            }
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_commands_are_read() {
        let info = "# Fulgurite_commands\r\nfulgurite_dispatch:filter\r\nfulgurite_voluntary_context_switches:5\r\n\
                    fulgurite_involuntary_context_switches:2\r\nfulgurite_handed_on_for_filter:3\r\n\
                    fulgurite_inline_get:calls=4,waiting_usec=0,processing_usec=9\r\n\
                    fulgurite_at_workers_get:calls=3,waiting_usec=70,processing_usec=8\r\n\
                    fulgurite_in_memtables_get:calls=2,waiting_usec=60,processing_usec=7\r\n\
                    fulgurite_not_in_memtables_get:calls=5,waiting_usec=10,processing_usec=10\r\n";
        let expected = Counters {
            inline_commands: 4,
            worker_commands: 3,
            context_switches: 7,
            held_reads: 2,
            held_waiting_ns: 60_000,
            held_processing_ns: 7_000,
            other_reads: 5,
            other_waiting_ns: 10_000,
            other_processing_ns: 10_000,
            ..Counters::default()
        };
        assert_eq!(counters_of(info), expected);
    }
}
