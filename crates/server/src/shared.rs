//! What all threads of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fulgurite::env::Env;
use fulgurite::{Database, Durability};
use mio::net::TcpStream;
use parking_lot::{Condvar, Mutex};

use crate::Config;
use crate::arrivals::Arrivals;
use crate::clients::Clients;
use crate::command::Directives;
use crate::cursors::Cursors;
use crate::io::{Inbox, Message};
use crate::locks::KeyLocks;
use crate::model::Model;
use crate::pause::Pause;
use crate::read_ahead::ReadAhead;
use crate::reclaim::Reclaimed;
use crate::saves::Saves;
use crate::settings::Settings;
use crate::tallies::Tallies;
use crate::worker::Queues;

/// What all threads of a server share.
pub(crate) struct Shared {
    pub db: Database,
    pub env: Arc<dyn Env>,
    pub model: Model,
    /// The options as they were when it started.
    pub config: Config,
    /// Those that may change.
    pub settings: Settings,
    /// All directives of `CONFIG`, with their values.
    pub directives: Directives,
    pub locks: KeyLocks,
    /// Those of `SCAN`.
    pub cursors: Cursors,
    pub reclaimed: Reclaimed,
    /// Held by the worker that divides a sorted set.
    pub dividing: Mutex<()>,
    /// Blocks of sorted sets that were split since the server started.
    pub split_blocks: AtomicU64,
    /// The values that are stored while they arrive.
    pub arrivals: Arc<Arrivals>,
    /// One more handle than there are replies of which pieces are to come.
    pub long_replies: Arc<()>,
    /// Commands that wait for a worker.
    pub queues: Queues,
    /// What the commands of pipelines will look up.
    pub read_ahead: ReadAhead,
    /// Those of the I/O threads.
    pub inboxes: Vec<Arc<Inbox>>,
    /// How many connections were accepted.
    pub accepted: AtomicU64,
    /// The number of the newest connection.
    pub newest_id: AtomicU64,
    pub connected: AtomicUsize,
    /// How many were turned away.
    pub rejected: AtomicU64,
    pub clients: Clients,
    pub pause: Pause,
    pub commands: Tallies,
    /// Checkpoints that clients asked for.
    pub saves: Arc<Saves>,
    pub started_ns: u64,
    /// Names this run of the server: 40 hexadecimal digits.
    pub run_id: String,
    /// How many I/O threads run.
    pub io_threads: AtomicUsize,
    /// The connections that sent `SHUTDOWN`, which are open until no I/O thread runs: then all others are closed.
    pub last_open: Mutex<Vec<TcpStream>>,
    /// No connection is accepted, and no command read, any more.
    pub is_stopping: AtomicBool,
    /// Notified when that is set.
    pub stopping: (Mutex<()>, Condvar),
}

impl Shared {
    /// How long it runs.
    pub fn uptime(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns().saturating_sub(self.started_ns))
    }

    /// A monotonic time, in nanoseconds.
    pub fn monotonic_ns(&self) -> u64 {
        self.env.clock().monotonic_ns()
    }

    /// The same in milliseconds.
    pub fn monotonic_ms(&self) -> u64 {
        self.monotonic_ns() / 1_000_000
    }

    /// An I/O thread ends.
    pub fn end_io_thread(&self) {
        if self.io_threads.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.last_open.lock().clear();
        }
    }

    /// How many replies there are of which pieces are to come.
    pub fn long_replies(&self) -> usize {
        Arc::strong_count(&self.long_replies) - 1
    }

    /// Has all I/O threads look around: something changed that they wait for.
    pub fn wake_all(&self) {
        self.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
    }

    /// Has all threads end.
    pub fn begin_stop(&self) {
        let held = self.stopping.0.lock();
        self.is_stopping.store(true, Ordering::SeqCst);
        self.stopping.1.notify_all();
        drop(held);
        self.wake_all();
    }

    /// Sleeps for a while, or until the server stops. Returns whether it goes on.
    pub fn sleep(&self, duration: Duration) -> bool {
        let mut held = self.stopping.0.lock();
        let has_to_stop = || self.is_stopping.load(Ordering::SeqCst);
        if !has_to_stop() {
            self.stopping.1.wait_for(&mut held, duration);
        }
        !has_to_stop()
    }

    /// A number for a new connection.
    pub fn next_id(&self) -> u64 {
        self.newest_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The level of a new connection's commits.
    pub fn durability(&self) -> Durability {
        self.config.durability
    }
}
