//! The kinds of threads that run commands.
//!
//! **INV-SRV-8.** *A command that takes long does not hold up one that does not*, but for the keys that both write: I/O threads and workers
//! end what takes long, before anything of it has happened, and hand it to a long worker. Each of the three kinds is waited for by what
//! the one before it gave up, and by nothing else.

use std::time::Duration;

use fulgurite::Missing;

use crate::stop::Stop;

/// On which kind of thread a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// It serves other connections, too: nothing on it waits.
    IoThread,
    /// It may wait for the disk, as others wait for it: it reads no more rows than an I/O thread does, and does not wait for what may take
    /// seconds, such as the locks that a long command has, or room for a commit.
    Worker,
    /// It runs what takes as long as it takes.
    LongWorker,
}

/// A worker waits so long for the lock of a key. Most are held for microseconds.
pub(crate) const LOCK_WAIT: Duration = Duration::from_millis(2);

impl Runner {
    /// Whether a command may wait, and read from disk.
    #[inline]
    pub fn may_wait(self) -> bool {
        self != Runner::IoThread
    }

    /// Whether what is missing may come as late as memtables are merged, the disk has room, or a commit of a million rows is visible.
    pub fn waits_long_for(missing: Missing) -> bool {
        matches!(missing, Missing::Room | Missing::Merging | Missing::Chunks | Missing::Order)
    }

    /// Why a command ends that would have to wait for what others do, for longer than it may.
    pub fn give_up(self) -> Stop {
        if self.may_wait() { Stop::Large } else { Stop::Blocked(Missing::Latch) }
    }

    /// Whether a command may take as long as it does.
    #[inline]
    pub fn may_take_long(self) -> bool {
        self == Runner::LongWorker
    }
}
