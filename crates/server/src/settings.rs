//! What `CONFIG SET` changes while the server runs: those values that I/O threads look at, without a lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::{Config, Password};

/// No argument is longer, whatever `CONFIG SET` says: no value is, either.
const ARGUMENT_BYTES_MAX: usize = 512 << 20;

/// How many bytes of replies a client may leave in the server: 0 is any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    /// With more than this its connection is closed at once, ...
    pub hard_bytes: usize,
    /// ... and with more than this once it is so for this long.
    pub soft_bytes: usize,
    pub soft_s: u64,
}

/// The values that can change. Each is read by itself: a command that runs meanwhile may see some of a `CONFIG SET` and not others.
#[derive(Debug)]
pub(crate) struct Settings {
    clients_max: AtomicUsize,
    argument_bytes_max: AtomicUsize,
    query_bytes_max: AtomicUsize,
    /// 0: connections may be idle for ever.
    idle_s_max: AtomicU64,
    /// 0: connections are not probed.
    keepalive_s: AtomicU64,
    hard_bytes: AtomicUsize,
    soft_bytes: AtomicUsize,
    soft_s: AtomicU64,
    password: Mutex<Option<Password>>,
}

impl Settings {
    /// Those of a server that starts.
    pub fn new(config: &Config) -> Settings {
        Settings {
            clients_max: config.clients_max.into(),
            argument_bytes_max: config.argument_bytes_max.into(),
            query_bytes_max: config.query_bytes_max.into(),
            idle_s_max: 0.into(),
            keepalive_s: 300.into(),
            hard_bytes: 0.into(),
            soft_bytes: 0.into(),
            soft_s: 0.into(),
            password: Mutex::new(config.password.clone()),
        }
    }

    pub fn clients_max(&self) -> usize {
        self.clients_max.load(Relaxed)
    }

    pub fn set_clients_max(&self, clients: usize) {
        self.clients_max.store(clients, Relaxed);
    }

    /// The longest argument of a command.
    pub fn argument_bytes_max(&self) -> usize {
        self.argument_bytes_max.load(Relaxed)
    }

    /// A larger one than [`ARGUMENT_BYTES_MAX`] means that.
    pub fn set_argument_bytes_max(&self, bytes: usize) {
        self.argument_bytes_max.store(bytes.min(ARGUMENT_BYTES_MAX), Relaxed);
    }

    /// The longest command that is arriving, and the longest transaction.
    pub fn query_bytes_max(&self) -> usize {
        self.query_bytes_max.load(Relaxed)
    }

    pub fn set_query_bytes_max(&self, bytes: usize) {
        self.query_bytes_max.store(bytes, Relaxed);
    }

    /// How long a connection may be idle.
    pub fn idle_max(&self) -> Option<Duration> {
        Some(self.idle_s_max.load(Relaxed)).filter(|&seconds| seconds > 0).map(Duration::from_secs)
    }

    pub fn set_idle_s_max(&self, seconds: u64) {
        self.idle_s_max.store(seconds, Relaxed);
    }

    /// After how long without data a connection is probed.
    pub fn keepalive(&self) -> Option<Duration> {
        Some(self.keepalive_s.load(Relaxed)).filter(|&seconds| seconds > 0).map(Duration::from_secs)
    }

    pub fn set_keepalive_s(&self, seconds: u64) {
        self.keepalive_s.store(seconds, Relaxed);
    }

    pub fn output_limit(&self) -> OutputLimit {
        OutputLimit {
            hard_bytes: self.hard_bytes.load(Relaxed),
            soft_bytes: self.soft_bytes.load(Relaxed),
            soft_s: self.soft_s.load(Relaxed),
        }
    }

    pub fn set_output_limit(&self, limit: OutputLimit) {
        self.hard_bytes.store(limit.hard_bytes, Relaxed);
        self.soft_bytes.store(limit.soft_bytes, Relaxed);
        self.soft_s.store(limit.soft_s, Relaxed);
    }

    /// Whether connections have to be looked at now and then, although nothing happens to them.
    pub fn has_deadlines(&self) -> bool {
        self.idle_s_max.load(Relaxed) > 0 || self.soft_bytes.load(Relaxed) > 0
    }

    pub fn has_password(&self) -> bool {
        self.password.lock().is_some()
    }

    /// Whether this is the password, or there is none.
    pub fn is_password(&self, given: &[u8]) -> bool {
        self.password.lock().as_ref().is_none_or(|password| password.is(given))
    }

    /// An empty one is none.
    pub fn set_password(&self, password: &str) {
        *self.password.lock() = Some(password).filter(|text| !text.is_empty()).map(Password::new);
    }
}
