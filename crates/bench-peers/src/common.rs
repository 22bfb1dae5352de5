//! Code that several engines share.

use std::sync::Arc;

use fulgurite_bench::engine::{Ended, Level, Needs, Verdict};
use fulgurite_bench::{Error, Result};
use parking_lot::Mutex;

/// An open database, until the store is closed. Each session has its own reference, so that no transaction takes the
/// lock.
pub(crate) struct Held<T>(Mutex<Option<Arc<T>>>);

impl<T> Held<T> {
    pub fn new(database: T) -> Held<T> {
        Held(Mutex::new(Some(Arc::new(database))))
    }

    /// The database.
    ///
    /// # Errors
    /// After [`Held::take`].
    pub fn get(&self) -> Result<Arc<T>> {
        self.0.lock().clone().ok_or_else(|| Error::engine("using a store", "it is closed"))
    }

    /// The database, for the closer; `None` if it was closed before.
    ///
    /// # Errors
    /// If a session is left.
    pub fn take(&self) -> Result<Option<T>> {
        let mut held = self.0.lock();
        let Some(database) = held.take() else { return Ok(None) };
        Arc::try_unwrap(database).map(Some).map_err(|database| {
            *held = Some(database);
            Error::engine("closing a store", "one of its sessions is still there")
        })
    }
}

/// How the statements ended the transaction; `None` if it is to be committed.
pub(crate) fn undone(verdict: Result<Verdict>) -> Result<Option<Ended>> {
    match verdict {
        Ok(Verdict::Commit) => Ok(None),
        Ok(Verdict::Rollback) => Ok(Some(Ended::RolledBack)),
        Err(Error::Conflict) => Ok(Some(Ended::Conflict)),
        Err(error) => Err(error),
    }
}

/// Reads until that does not conflict.
pub(crate) fn retried(mut read: impl FnMut() -> Result<bool>) -> Result<bool> {
    loop {
        match read() {
            Err(Error::Conflict) => {}
            found => return found,
        }
    }
}

/// An engine's error, with the operation that failed: for `map_err`.
pub(crate) fn failed<E>(what: &'static str) -> impl FnOnce(E) -> Error
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| Error::engine(what, source)
}

/// The levels of engines that can also acknowledge commits before they are written.
pub(crate) const ALL_LEVELS: &[Level] = &[Level::Sync, Level::Unsynced, Level::Memory];
/// Those of engines that write with each commit.
pub(crate) const WRITTEN_LEVELS: &[Level] = &[Level::Sync, Level::Unsynced];

/// Why an engine with these levels, and without tickets, cannot do this.
pub(crate) fn not_offered(needs: Needs, level: Level, levels: &[Level]) -> Option<String> {
    if needs.tickets {
        return Some("its commits cannot be waited for later".to_string());
    }
    let reason = match level {
        _ if levels.contains(&level) => return None,
        Level::Sync => "it does not sync its commits",
        Level::Unsynced => "its commits reach the operating system when they are synced: see memory",
        Level::Memory => "it writes with each commit: see unsynced",
        Level::NoBarrier => "it cannot leave the device's cache alone while it syncs",
        Level::Async(_) => "it cannot acknowledge a commit and sync it within a time",
        Level::Staged => "it stages nothing in persistent memory",
    };
    Some(reason.to_string())
}

/// The `enum peer_durability` of `c/peer.h`, by which Java numbers levels, too.
pub(crate) fn durability_number(level: Level) -> i32 {
    match level {
        Level::Memory => 0,
        Level::Unsynced => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_database_is_closed_once_and_not_under_a_session() {
        let held = Held::new(7);
        let session = held.get().unwrap();
        held.take().unwrap_err();
        drop(session);
        assert_eq!(held.take().unwrap(), Some(7));
        assert_eq!(held.take().unwrap(), None);
        held.get().unwrap_err();
    }

    #[test]
    fn only_its_levels_without_tickets_are_offered() {
        let all = [Level::Sync, Level::Unsynced, Level::Memory, Level::Async(Duration::from_millis(1))];
        let offered = |needs, levels| all.map(|level| not_offered(needs, level, levels).is_none());
        assert_eq!(offered(Needs::default(), ALL_LEVELS), [true, true, true, false]);
        assert_eq!(offered(Needs::default(), WRITTEN_LEVELS), [true, true, false, false]);
        assert_eq!(offered(Needs { tickets: true, ..Needs::default() }, ALL_LEVELS), [false; 4]);
    }
}
