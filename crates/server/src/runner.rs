//! The kinds of threads that run commands, and what a command is handed to.
//!
//! **INV-SRV-8.** *A command that takes long, or waits for more than the disk, does not hold up one that does not*, but for the keys that
//! both write: I/O threads and workers end it, before anything of it has happened, and hand it on. A thread waits for what others of its
//! kind do, or of a kind that waits for less, and for nothing else.

use std::time::Duration;

use fulgurite::Missing;

use crate::pace;
use crate::stop::Stop;

/// On which kind of thread a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// It serves other connections, too: nothing on it waits.
    IoThread,
    /// It may wait for the disk, as others wait for it: it reads no more rows than an I/O thread does, and waits no longer than
    /// [`LOCK_WAIT`] for what other threads do.
    Worker,
    /// It runs what takes as long as it takes, or waits as long: [`Pool::Waiting`] or [`Pool::Long`].
    LongWorker,
}

/// The threads that run what was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Those whose commands may wait for the disk.
    Workers,
    /// Those whose commands wait for room, for merging or for other commands, and do little.
    Waiting,
    /// Those whose commands take long, at a lower priority.
    Long,
}

impl Pool {
    pub const ALL: [Pool; 3] = [Pool::Workers, Pool::Waiting, Pool::Long];

    /// The one for a command that waits for something.
    pub fn of(missing: Missing) -> Pool {
        match missing {
            Missing::Room | Missing::Merging | Missing::Chunks | Missing::Close => Pool::Waiting,
            _ => Pool::Workers,
        }
    }

    /// What its threads are.
    pub fn runner(self) -> Runner {
        if self == Pool::Workers { Runner::Worker } else { Runner::LongWorker }
    }

    pub fn name(self) -> &'static str {
        match self {
            Pool::Workers => "worker",
            Pool::Waiting => "waiting",
            Pool::Long => "long",
        }
    }
}

/// A worker waits so long for what other threads do: most of that takes microseconds.
pub(crate) const LOCK_WAIT: Duration = Duration::from_millis(2);

impl Runner {
    /// Whether a command may wait, and read from disk.
    #[inline]
    pub fn may_wait(self) -> bool {
        self != Runner::IoThread
    }

    /// Why a command ends that would have to wait for what others do, for longer than it may.
    pub fn give_up(self) -> Stop {
        if self.may_wait() { Stop::Large } else { Stop::Blocked(Missing::Latch) }
    }

    /// A command did as much as a row takes: where it may take long, others may have their turn.
    #[inline]
    pub fn step(self) {
        if self.may_wait() {
            pace::step();
        }
    }

    /// Whether a command may take as long as it does.
    #[inline]
    pub fn may_take_long(self) -> bool {
        self == Runner::LongWorker
    }
}
