//! The directory of an open database: its path, its lock, and until when and in which process it may be used.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_env::{Dir, Lock, Process};
use parking_lot::Mutex;

use crate::{Error, Result};

/// The directory of an open database.
pub(crate) struct Files {
    /// The directory, open.
    pub home: Arc<dyn Dir>,
    /// The directory's path when it was opened, for messages.
    pub path: PathBuf,
    /// The process that opened it: a child of `fork()` must not use anything of the database.
    process: Process,
    closed: AtomicBool,
    /// Released when the database is closed.
    lock: Mutex<Option<Box<dyn Lock>>>,
}

impl Files {
    pub fn new(home: Arc<dyn Dir>, lock: Box<dyn Lock>) -> Files {
        Files {
            path: home.path().to_path_buf(),
            home,
            process: Process::current(),
            closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        }
    }

    /// Whether this process opened the database.
    #[inline]
    pub fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// Fails in a child of `fork()`, where the threads of the database do not run and the files are the parent's
    /// (INV-PROC-1). Called before any lock is taken: a thread that held it at the fork does not exist in the child.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.is_own_process() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { path: self.path.clone() }
    }

    pub fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// From now on every operation fails with [`Error::Closed`].
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub fn unlock(&self) {
        self.lock.lock().take();
    }

    /// In a child of `fork()`: closes the child's copies of the descriptors that hold the lock, so that the lock ends
    /// with the parent. Leaves them open if another thread of the parent held the mutex at the fork.
    pub fn leave_lock_to_the_parent(&self) {
        if let Some(mut lock) = self.lock.try_lock() {
            drop(lock.take());
        }
    }
}
