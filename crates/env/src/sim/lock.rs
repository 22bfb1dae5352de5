//! Locks on directories and files of the simulated disk.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::disk::{create, file_at};
use super::names::Ino;
use super::state::{Shared, State};
use crate::{Lock, LockHolder, LockMode, Locking};

/// A held lock.
#[derive(Clone, Debug)]
pub(super) struct Held {
    number: u64,
    /// The directory's current path.
    pub(super) dir: PathBuf,
    file: Option<Ino>,
    mode: LockMode,
}

/// Locks a directory, and the file `name` in it.
pub(super) fn lock(
    shared: &Arc<Shared>,
    state: &mut State,
    dir: PathBuf,
    name: &str,
    mode: LockMode,
) -> io::Result<Locking> {
    let path = dir.join(name);
    let exclusive = mode == LockMode::Exclusive;
    let conflicts = |held: &Held| exclusive || held.mode == LockMode::Exclusive;
    let taken = |by: &Held| {
        let is_shared = by.mode == LockMode::Shared;
        Locking::Held(LockHolder { this_process: true, is_shared, pid: None, since_ms: None })
    };
    if let Some(by) = state.locks.iter().find(|held| held.dir == dir && conflicts(held)) {
        return Ok(taken(by));
    }
    if exclusive && state.medium.names.get(&path).is_none() {
        create(state, &path)?;
    }
    let file = match state.medium.names.get(&path) {
        Some(_) => Some(file_at(state, "open", &path)?),
        None => None,
    };
    let by = state.locks.iter().find(|held| held.file == file && conflicts(held));
    if let Some(by) = by.filter(|_| file.is_some()) {
        return Ok(taken(by));
    }
    let number = state.next_handle();
    state.locks.push(Held { number, dir, file, mode });
    Ok(Locking::Taken(Box::new(SimLock { shared: Arc::clone(shared), number })))
}

struct SimLock {
    shared: Arc<Shared>,
    number: u64,
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLock").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.state.lock().locks.retain(|held| held.number != self.number);
    }
}
