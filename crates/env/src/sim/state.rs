//! The state that the parts of a simulated environment share.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::clock::SimClock;
use super::error::crashed;
use super::lock::Held;
use super::medium::{Flight, Medium};
use super::names::join;
use super::plan::{Op, Plan, Verdict};
use super::rng::Rng;

/// The duration of a disk operation.
const OPERATION_TIME: Duration = Duration::from_micros(1);

/// Everything under one lock: a simulation needs order, not speed.
pub(super) struct State {
    pub(super) medium: Medium,
    pub(super) plan: Plan,
    pub(super) locks: Vec<Held>,
    /// The current path of each open directory.
    pub(super) dirs: BTreeMap<u64, PathBuf>,
    /// Numbers open directories and locks.
    handles: u64,
    /// Decides about faults.
    pub(super) rng: Rng,
    /// The source of `random_u64`.
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
    /// Starts an operation of a process: it takes time, and fails on a crashed machine.
    pub(super) fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        self.clock.advance(OPERATION_TIME);
        let state = self.state.lock();
        state.alive()?;
        Ok(state)
    }
}

impl State {
    pub(super) fn new(medium: Medium, plan: Plan, rng: Rng, numbers: Rng) -> State {
        State { medium, plan, locks: Vec::new(), dirs: BTreeMap::new(), handles: 0, rng, numbers }
    }

    pub(super) fn alive(&self) -> io::Result<()> {
        if self.plan.crashed { Err(crashed()) } else { Ok(()) }
    }

    /// Counts an operation and decides about it.
    pub(super) fn admit(&mut self, op: Op) -> Verdict {
        let verdict = self.plan.admit(op);
        if verdict == Verdict::Crash {
            self.crash();
        }
        verdict
    }

    /// The machine crashes.
    pub(super) fn crash(&mut self) {
        self.plan.crashed = true;
        self.medium.freeze_memories();
    }

    /// How many bytes may be added.
    pub(super) fn free(&self) -> u64 {
        match self.plan.settings.space {
            _ if self.plan.full => 0,
            Some(space) => space.saturating_sub(self.medium.used()),
            None => 1 << 50,
        }
    }

    /// A number that no open directory or lock has.
    pub(super) fn next_handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    /// Registers an open directory; returns its number.
    pub(super) fn open_dir(&mut self, path: PathBuf) -> u64 {
        let number = self.next_handle();
        self.dirs.insert(number, path);
        number
    }

    /// Moves everything below a directory: names on the medium, open handles, locks.
    pub(super) fn move_dir(&mut self, from: &Path, to: &Path) {
        self.medium.names.move_dir(from, to);
        let handles = self.dirs.values_mut();
        for path in handles.chain(self.locks.iter_mut().map(|held| &mut held.dir)) {
            if let Ok(below) = path.strip_prefix(from) {
                *path = join(to, below);
            }
        }
    }
}

/// Leaves a change in flight while waiting threads run, so that their operations, a sync or a crash may come before its
/// end. Fails, with the change still in flight, if the machine crashed meanwhile.
pub(super) fn fly(state: &mut MutexGuard<'_, State>, flight: Flight) -> io::Result<()> {
    let id = state.medium.submit(flight);
    MutexGuard::bump(state);
    state.alive()?;
    state.medium.land(id);
    Ok(())
}
