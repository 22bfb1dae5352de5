//! What all threads of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use fulgurite::{Database, Durability};

use crate::Config;
use crate::io::Inbox;
use crate::locks::KeyLocks;
use crate::model::Model;
use crate::worker::Queue;

/// What all threads of a server share.
pub(crate) struct Shared {
    pub db: Database,
    pub model: Model,
    pub config: Config,
    pub locks: KeyLocks,
    /// Commands that wait for a worker.
    pub queue: Queue,
    /// Those of the I/O threads.
    pub inboxes: Vec<Arc<Inbox>>,
    /// How many connections were accepted.
    pub accepted: AtomicU64,
    /// The number of the newest connection.
    pub newest_id: AtomicU64,
    pub connected: AtomicUsize,
    /// No connection is accepted, and no command read, any more.
    pub is_stopping: AtomicBool,
}

impl Shared {
    /// A number for a new connection.
    pub fn next_id(&self) -> u64 {
        self.newest_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The level of a new connection's commits.
    pub fn durability(&self) -> Durability {
        Durability::Sync
    }
}
