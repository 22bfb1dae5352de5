//! The options of a server.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use fulgurite::{Database, Durability};

use crate::StartError;
use crate::io::IDLE_POLL_MAX;

/// Where commands run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// Each command goes to a worker: the plain server of the NIOSIT paper (Xiao and others, 2017).
    Queue,
    /// A read whose keys no memtable holds, as far as their filters know, runs on the I/O thread that received it if the nodes of the base
    /// that it needs are in memory; every other command goes to a worker. That is the method of the paper.
    Filter,
    /// A command runs on the I/O thread that received it, as far as it need not wait and everything is in memory; else it goes
    /// to a worker.
    #[default]
    Inline,
}

impl Dispatch {
    /// All of them.
    pub const ALL: [Dispatch; 3] = [Dispatch::Queue, Dispatch::Filter, Dispatch::Inline];

    /// Its name in options and in `INFO`.
    pub fn name(self) -> &'static str {
        match self {
            Dispatch::Queue => "queue",
            Dispatch::Filter => "filter",
            Dispatch::Inline => "inline",
        }
    }
}

/// How an I/O thread has commits written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flushing {
    /// It writes them itself while all connections wait for that, and leaves that to the log's thread otherwise.
    #[default]
    Auto,
    /// It always writes them itself, unless another thread does.
    Lead,
    /// It always leaves that to the log's thread.
    Watch,
}

/// A password, which is not printed.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    /// A password.
    pub fn new(password: impl Into<String>) -> Password {
        Password(password.into())
    }

    /// The password.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Whether another text is the same. Takes a time that depends on that text's length alone.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        let password = self.0.as_bytes();
        let mut differing = u8::from(given.len() != password.len());
        for (index, byte) in given.iter().enumerate() {
            differing |= byte ^ password.get(index % password.len().max(1)).unwrap_or(&0);
        }
        differing == 0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// The options of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Addresses to listen on. Port 0 is any free one. Default `127.0.0.1:6379`.
    pub bind: Vec<SocketAddr>,
    /// How many I/O threads there are, each with its own connections. Default: half of the processors, at least 1.
    pub io_threads: usize,
    /// How many workers run the commands that wait for the disk; as many more run those that wait for other commands or for room, and as
    /// many those that take long. Default: the number of processors, at least 2. More, as 16, pay where most reads miss the system's page
    /// cache, too.
    pub workers: usize,
    /// Where commands run.
    pub dispatch: Dispatch,
    /// How an I/O thread has commits written.
    pub flushing: Flushing,
    /// How long an I/O thread looks for events before it sleeps, while that pays: waking it takes longer than many a client's next
    /// command. Costs processor time; 0 is never. At most 1 ms. Default 50 us, with one processor 0.
    pub idle_poll: Duration,
    /// How many clients may be connected at a time. Default 10,000.
    pub clients_max: usize,
    /// The password of `AUTH`. Without one the server listens on loopback addresses only. Default none.
    pub password: Option<Password>,
    /// The level of the commits of a connection that has not set another one with `DURABILITY`. Default [`Durability::Sync`].
    pub durability: Durability,
    /// While so many bytes of replies of a connection are not sent yet, no command of it is read. Default 1 MiB.
    pub unsent_bytes_max: usize,
    /// A connection that has a long reply, and takes so little of it in this time that no further piece of 256 KiB is read or sent, is closed: its
    /// snapshot keeps space of the database. Default 60 s.
    pub reply_piece_timeout: Duration,
    /// How many bytes of a command that is arriving a connection may take; one with a longer command is closed. Default 1 GiB.
    pub query_bytes_max: usize,
    /// The longest argument of a command, in bytes. Default 512 MiB.
    pub argument_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            bind: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            io_threads: (processors / 2).max(1),
            workers: processors.max(2),
            dispatch: Dispatch::default(),
            flushing: Flushing::default(),
            idle_poll: Duration::from_micros(if processors > 1 { 50 } else { 0 }),
            clients_max: 10_000,
            password: None,
            durability: Durability::Sync,
            unsent_bytes_max: 1 << 20,
            reply_piece_timeout: Duration::from_secs(60),
            query_bytes_max: 1 << 30,
            argument_bytes_max: 512 << 20,
        }
    }
}

impl Config {
    /// Checks the options, also against those of the database.
    pub(crate) fn validate_for(&self, db: &Database) -> Result<(), StartError> {
        self.validate()?;
        db.begin().set_durability(self.durability)?;
        Ok(())
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`StartError::Config`] with one sentence for each violation.
    pub fn validate(&self) -> Result<(), StartError> {
        let mut violations = Vec::new();
        let mut at_least_one = |name: &str, value: usize| {
            if value == 0 {
                violations.push(format!("{name} is 0, the least is 1"));
            }
        };
        at_least_one("bind", self.bind.len());
        at_least_one("io_threads", self.io_threads);
        at_least_one("workers", self.workers);
        at_least_one("clients_max", self.clients_max);
        at_least_one("unsent_bytes_max", self.unsent_bytes_max);
        at_least_one("argument_bytes_max", self.argument_bytes_max);
        at_least_one("query_bytes_max", self.query_bytes_max);
        at_least_one("reply_piece_timeout in ms", self.reply_piece_timeout.as_millis() as usize);
        if self.idle_poll > IDLE_POLL_MAX {
            violations.push(format!("idle_poll is {:?}, the most is {IDLE_POLL_MAX:?}", self.idle_poll));
        }
        if self.password.is_none() {
            let open = self.bind.iter().filter(|address| !address.ip().is_loopback());
            violations.extend(open.map(|address| {
                format!("{address} is not a loopback address, and there is no password: set one, or bind to 127.0.0.1")
            }));
        }
        if violations.is_empty() { Ok(()) } else { Err(StartError::Config { violations }) }
    }
}
