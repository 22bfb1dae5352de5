//! A server in a process of its own: this program, started by itself. It ends when its standard input does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use fulgurite::env::limit_arenas_to;
use fulgurite::{Database, Options};
use fulgurite_server::{Config, Dispatch, Server};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The hidden command of this program that serves a store.
pub(crate) const COMMAND: &str = "serve-store";

/// As the program `fulgurite serve` has them.
const ARENAS: u8 = 4;

/// More than any run writes: memtables are merged when the workload says so. The memory budget bounds them further.
const MEMTABLE_BYTES_MAX: usize = 8 << 30;
const CHECKPOINT_LOG_BYTES: u64 = 16 << 30;

/// The store to serve, as data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Serving {
    pub dir: PathBuf,
    pub memory_bytes: usize,
    /// The name of a [`Dispatch`].
    pub dispatch: String,
}

/// A running server, which is killed on drop.
pub(crate) struct ServerProcess {
    child: Mutex<Child>,
    pub address: SocketAddr,
}

impl ServerProcess {
    /// Starts this program as a server.
    pub fn start(serving: &Serving) -> Result<ServerProcess> {
        let program = std::env::current_exe().map_err(Error::io("asking for the path of this program"))?;
        let spawned = Command::new(program).arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(Error::io("starting a server"))?;
        let line = serde_json::to_string(serving).expect("it can be written as JSON") + "\n";
        let sent = child.stdin.as_mut().expect("it was asked for").write_all(line.as_bytes());
        let mut stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut line = String::new();
        let read = sent.and_then(|()| stdout.read_line(&mut line));
        let mut started = ServerProcess { child: Mutex::new(child), address: ([127, 0, 0, 1], 0).into() };
        read.map_err(Error::io("starting a server"))?;
        let address = line.trim_end().parse();
        started.address = address.map_err(|_| Error::Remote("the server did not start".into()))?;
        Ok(started)
    }

    /// Has it close its store, and waits for that.
    pub fn stop(&self) -> Result<()> {
        let mut child = self.child.lock();
        drop(child.stdin.take());
        let status = child.wait().map_err(Error::io("waiting for a server"))?;
        if status.success() { Ok(()) } else { Err(Error::Remote(format!("the server failed: {status}"))) }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        _ = child.kill();
        _ = child.wait();
    }
}

/// The body of the server's process.
///
/// # Errors
/// If the store cannot be opened or closed, or no server started.
pub(crate) fn serve_store() -> Result<()> {
    let mut line = String::new();
    let mut stdin = BufReader::new(std::io::stdin());
    stdin.read_line(&mut line).map_err(Error::io("reading what to serve"))?;
    let serving: Serving =
        serde_json::from_str(&line).map_err(|error| Error::engine("reading what to serve", error))?;
    limit_arenas_to(ARENAS);
    let options = Options {
        memory_bytes: Some(serving.memory_bytes),
        memtable_bytes_max: Some(MEMTABLE_BYTES_MAX),
        checkpoint_log_bytes: CHECKPOINT_LOG_BYTES,
        ..Options::default()
    };
    let failed = |error| Error::engine("serving a database", error);
    let db = Database::open(&serving.dir, options).map_err(failed)?;
    let mut config = Config::default();
    config.bind = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let dispatch = Dispatch::ALL.into_iter().find(|dispatch| dispatch.name() == serving.dispatch);
    config.dispatch = dispatch.ok_or(Error::Unsupported("dispatch of that name"))?;
    let server =
        Server::start(db.clone(), config).map_err(|error| Error::engine("starting a server", error))?;
    println!("{}", server.addresses()[0]);
    stdin.read_to_end(&mut Vec::new()).map_err(Error::io("waiting for the end"))?;
    server.stop();
    db.close().map_err(failed)
}
