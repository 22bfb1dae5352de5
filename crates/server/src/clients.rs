//! The connections of all I/O threads, as other threads may see them.
//!
//! A connection's own thread writes into its [`Client`] at the end of each turn, without a lock; the registry is locked when one is
//! accepted, closed, or looked for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use crossbeam_utils::atomic::AtomicCell;
use parking_lot::Mutex;

use crate::session::Session;

/// What a connection called itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub name: Vec<u8>,
    pub library: Vec<u8>,
    pub library_version: Vec<u8>,
}

/// Where a connection is, and from where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Its number; never given twice.
    pub id: u64,
    /// The I/O thread to which it belongs, and its token there.
    pub thread: usize,
    pub token: usize,
    pub address: SocketAddr,
    pub local: SocketAddr,
    pub descriptor: i32,
    /// A monotonic time.
    pub created_ms: u64,
}

/// A connection, as other threads may see it.
#[derive(Debug)]
pub(crate) struct Client {
    pub origin: Origin,
    /// When it was last active: a monotonic time.
    pub active_ms: AtomicU64,
    /// The command that it ran last.
    pub command: AtomicCell<&'static &'static str>,
    pub database: AtomicUsize,
    /// How many commands its transaction has, and 1; 0 without one.
    pub queued: AtomicUsize,
    pub queued_bytes: AtomicUsize,
    pub watched: AtomicUsize,
    pub is_resp3: AtomicBool,
    /// Bytes that arrived, and were not run yet.
    pub input_bytes: AtomicUsize,
    /// Bytes of replies that are not sent.
    pub unsent_bytes: AtomicUsize,
    pub names: Mutex<Names>,
    is_killed: AtomicBool,
}

impl Client {
    pub fn new(origin: Origin) -> Client {
        Client {
            origin,
            active_ms: origin.created_ms.into(),
            command: AtomicCell::new(&"NULL"),
            database: 0.into(),
            queued: 0.into(),
            queued_bytes: 0.into(),
            watched: 0.into(),
            is_resp3: false.into(),
            input_bytes: 0.into(),
            unsent_bytes: 0.into(),
            names: Mutex::default(),
            is_killed: false.into(),
        }
    }

    /// Shows a session to other threads.
    pub fn show(&self, session: &Session) {
        let multi = session.multi.as_ref();
        self.database.store(session.database, Relaxed);
        self.queued.store(multi.map_or(0, |multi| multi.commands.len() + 1), Relaxed);
        self.queued_bytes.store(multi.map_or(0, |multi| multi.bytes), Relaxed);
        self.watched.store(session.watched.len(), Relaxed);
        self.is_resp3.store(session.protocol == fulgurite_resp::Protocol::Resp3, Relaxed);
    }

    /// No command of it begins any more. Its thread closes it.
    pub fn kill(&self) {
        self.is_killed.store(true, SeqCst);
    }

    #[inline]
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed)
    }
}

/// All connections, by number.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<BTreeMap<u64, Arc<Client>>>);

impl Clients {
    pub fn add(&self, client: &Arc<Client>) {
        self.0.lock().insert(client.origin.id, client.clone());
    }

    pub fn remove(&self, id: u64) {
        self.0.lock().remove(&id);
    }

    /// All of now, in the order in which they were accepted.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.0.lock().values().cloned().collect()
    }
}
