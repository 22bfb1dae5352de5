//! A server for Redis clients over a Fulgurite database: strings, hashes, lists, sets and sorted sets, in which every acknowledged write
//! survives a power cut.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use fulgurite::{Database, Options};
//! use fulgurite_server::{Config, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let db = Database::open(dir.path().join("data"), Options::default())?;
//! let mut config = Config::default();
//! config.bind = vec!["127.0.0.1:0".parse()?];
//! let server = Server::start(db, config)?;
//! let mut client = std::net::TcpStream::connect(server.addresses()[0])?;
//! client.write_all(b"SET greeting hello\r\nGET greeting\r\n")?;
//! let mut replies = [0; 16];
//! client.read_exact(&mut replies)?;
//! assert_eq!(&replies, b"+OK\r\n$5\r\nhello\r\n");      // durable when the first reply left
//! server.stop();
//! # Ok(())
//! # }
//! ```
//!
//! **Threads.** Each I/O thread has an event loop and connections of its own; it runs a command itself if that need not wait
//! and everything is in memory, and leaves it to a worker otherwise (NIOSIT, Xiao and others, 2017, generalised from filters to
//! everything that memory decides). The commands of a connection run in their order.
//!
//! **A reply leaves when it may.** Each reply waits for the newest commit that it depends on, also those of other connections
//! that it saw, to be durable. While it waits, the thread runs other commands; one write of the log lets go all that wait.
//! `DURABILITY none` or `DURABILITY async 100` lowers the level of one connection's own commits; others never see by it what a
//! power cut could undo of commits that were to be durable.

mod args;
mod arrivals;
mod clients;
mod command;
mod config;
mod context;
mod cursors;
mod divide;
mod error;
mod exec;
mod execute;
mod glob;
mod io;
mod locks;
mod long_exec;
mod long_reply;
mod model;
mod pace;
mod pause;
mod random;
mod read_ahead;
mod reclaim;
mod runner;
mod saves;
mod server;
mod session;
mod settings;
mod shared;
mod stop;
mod tallies;
mod worker;

pub use config::{Config, Dispatch, Flushing, Password};
pub use error::StartError;
pub use server::Server;
