//! The connections of all I/O threads, as other threads may see them.
//!
//! A connection's own thread writes into its [`Client`] at the end of each turn, without a lock; the registry is locked when one is
//! accepted, closed, or looked for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use crossbeam_utils::atomic::AtomicCell;
use fulgurite::ProgramMemory;
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
    pub watched_bytes: AtomicUsize,
    pub is_resp3: AtomicBool,
    /// Bytes that arrived, and were not run yet.
    pub input_bytes: AtomicUsize,
    /// Bytes of replies that are not sent.
    pub unsent_bytes: AtomicUsize,
    names: Mutex<Names>,
    names_bytes: AtomicUsize,
    /// It is not closed for its memory (`CLIENT NO-EVICT`).
    pub is_kept: AtomicBool,
    is_killed: AtomicBool,
    memory: ProgramMemory,
}

/// What a connection without commands and replies takes, about.
const BYTES: usize = 2 << 10;

/// Bytes of buffers are counted in steps of this many: most connections hardly have any, and none of those touches what all share.
const STEP_BYTES: usize = 8 << 10;

impl Client {
    /// What its buffers take counts as `memory`.
    pub fn new(origin: Origin, memory: ProgramMemory) -> Client {
        memory.set(BYTES);
        Client {
            origin,
            memory,
            is_kept: false.into(),
            active_ms: origin.created_ms.into(),
            command: AtomicCell::new(&"NULL"),
            database: 0.into(),
            queued: 0.into(),
            queued_bytes: 0.into(),
            watched: 0.into(),
            watched_bytes: 0.into(),
            is_resp3: false.into(),
            input_bytes: 0.into(),
            unsent_bytes: 0.into(),
            names: Mutex::default(),
            names_bytes: 0.into(),
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
        self.watched_bytes.store(session.watched.bytes, Relaxed);
        self.is_resp3.store(session.protocol == fulgurite_resp::Protocol::Resp3, Relaxed);
    }

    pub fn names(&self) -> Names {
        self.names.lock().clone()
    }

    pub fn change_names(&self, change: impl FnOnce(&mut Names)) {
        let mut names = self.names.lock();
        change(&mut names);
        let Names { name, library, library_version } = &*names;
        self.names_bytes.store(name.len() + library.len() + library_version.len(), Relaxed);
    }

    /// How much memory its buffers take: of commands that arrive or wait, of replies, and of what it named.
    pub fn buffer_bytes(&self) -> usize {
        let named = [&self.watched_bytes, &self.names_bytes];
        let buffers = [&self.input_bytes, &self.queued_bytes, &self.unsent_bytes].into_iter().chain(named);
        buffers.map(|bytes| bytes.load(Relaxed)).sum()
    }

    /// Counts what its buffers take within the memory of the database.
    pub fn count_memory(&self) {
        let bytes = BYTES + self.buffer_bytes() / STEP_BYTES * STEP_BYTES;
        if bytes != self.memory.bytes() {
            self.memory.set(bytes);
        }
    }

    /// No command of it begins any more. Its thread closes it. Returns whether this is the first call.
    pub fn kill(&self) -> bool {
        !self.is_killed.swap(true, SeqCst)
    }

    #[inline]
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed)
    }
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Clients {
    by_number: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Tells how much all take.
    memory: ProgramMemory,
    /// How many were closed because all took too much.
    pub evicted: AtomicU64,
}

impl Clients {
    pub fn new(memory: ProgramMemory) -> Clients {
        Clients { by_number: Mutex::default(), memory, evicted: 0.into() }
    }

    /// How much memory all take.
    pub fn bytes(&self) -> usize {
        self.memory.of_all()
    }

    pub fn add(&self, client: &Arc<Client>) {
        self.by_number.lock().insert(client.origin.id, client.clone());
    }

    pub fn remove(&self, id: u64) {
        self.by_number.lock().remove(&id);
    }

    /// Connections whose buffers make all take more than `bytes_max`, those with the largest first, without those that are to be kept.
    /// None of them begins another command.
    pub fn kill_largest(&self, bytes_max: usize) -> Vec<Arc<Client>> {
        let mut alive = self.all();
        alive.retain(|client| !client.is_killed());
        let mut bytes: usize = alive.iter().map(|client| client.buffer_bytes()).sum();
        alive.retain(|client| !client.is_kept.load(Relaxed) && client.buffer_bytes() > 0);
        alive.sort_by_key(|client| std::cmp::Reverse(client.buffer_bytes()));
        let killed = alive.into_iter().take_while(|client| {
            let is_too_much = bytes > bytes_max;
            bytes = bytes.saturating_sub(client.buffer_bytes());
            is_too_much
        });
        let killed: Vec<_> = killed.filter(|client| client.kill()).collect();
        self.evicted.fetch_add(killed.len() as u64, Relaxed);
        killed
    }

    /// All of now, in the order in which they were accepted.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.by_number.lock().values().cloned().collect()
    }
}
