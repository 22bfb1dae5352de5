//! What all threads of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fulgurite::env::Env;
use fulgurite::{Database, Durability};
use parking_lot::{Condvar, Mutex};

use crate::Config;
use crate::cursors::Cursors;
use crate::io::{Inbox, Message};
use crate::locks::KeyLocks;
use crate::model::Model;
use crate::reclaim::Reclaimed;
use crate::tallies::Tallies;
use crate::worker::Queue;

/// What all threads of a server share.
pub(crate) struct Shared {
    pub db: Database,
    pub env: Arc<dyn Env>,
    pub model: Model,
    pub config: Config,
    pub locks: KeyLocks,
    /// Those of `SCAN`.
    pub cursors: Cursors,
    pub reclaimed: Reclaimed,
    /// Commands that wait for a worker.
    pub queue: Queue,
    /// Those of the I/O threads.
    pub inboxes: Vec<Arc<Inbox>>,
    /// How many connections were accepted.
    pub accepted: AtomicU64,
    /// The number of the newest connection.
    pub newest_id: AtomicU64,
    pub connected: AtomicUsize,
    /// How many were turned away.
    pub rejected: AtomicU64,
    pub commands: Tallies,
    pub started_ns: u64,
    /// No connection is accepted, and no command read, any more.
    pub is_stopping: AtomicBool,
    /// Notified when that is set.
    pub stopping: (Mutex<()>, Condvar),
}

impl Shared {
    /// How long it runs.
    pub fn uptime(&self) -> Duration {
        Duration::from_nanos(self.env.clock().monotonic_ns().saturating_sub(self.started_ns))
    }

    /// Has all threads end.
    pub fn begin_stop(&self) {
        let held = self.stopping.0.lock();
        self.is_stopping.store(true, Ordering::SeqCst);
        self.stopping.1.notify_all();
        drop(held);
        self.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
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
        Durability::Sync
    }
}
