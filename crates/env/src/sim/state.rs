//! What the parts of a simulated environment share.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::clock::SimClock;
use super::error::crashed;
use super::medium::{Flight, Medium};
use super::plan::Plan;
use super::rng::Rng;

/// What a disk operation takes.
const OPERATION_TIME: Duration = Duration::from_micros(1);

/// Everything under one lock: a simulation is for order, not for speed.
pub(super) struct State {
    pub(super) medium: Medium,
    pub(super) plan: Plan,
    pub(super) locks: Vec<PathBuf>,
    /// Decides about faults.
    pub(super) rng: Rng,
    /// Answers `random_u64`.
    pub(super) numbers: Rng,
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) clock: SimClock,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimEnv").finish_non_exhaustive()
    }
}

impl Shared {
    /// Begins an operation of a process: it takes time, and a crashed machine refuses it.
    pub(super) fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        self.clock.advance(OPERATION_TIME);
        let state = self.state.lock();
        state.alive()?;
        Ok(state)
    }
}

impl State {
    pub(super) fn alive(&self) -> io::Result<()> {
        if self.plan.crashed { Err(crashed()) } else { Ok(()) }
    }

    /// How many bytes may be added.
    pub(super) fn free(&self) -> u64 {
        match self.plan.settings.space {
            _ if self.plan.full => 0,
            Some(space) => space.saturating_sub(self.medium.used()),
            None => 1 << 50,
        }
    }

    /// Releases a file or directory name that is locked.
    pub(super) fn unlock(&mut self, path: &Path) {
        self.locks.retain(|held| held != path);
    }
}

/// Leaves a change in flight while waiting threads run, so that they, a sync or a crash may come before its end.
/// Fails, with the change still in flight, if the machine crashed meanwhile.
pub(super) fn fly(state: &mut MutexGuard<'_, State>, flight: Flight) -> io::Result<()> {
    let id = state.medium.submit(flight);
    MutexGuard::bump(state);
    state.alive()?;
    state.medium.land(id);
    Ok(())
}
