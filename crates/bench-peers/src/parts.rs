//! What several engines here are made of.

use std::ops::Bound;
use std::sync::Arc;

use fulgurite_bench::engine::{Direction, Ended, Level, Needs, Verdict};
use fulgurite_bench::{Error, Result};
use parking_lot::Mutex;

/// An open database, until the store is closed. Sessions have it to themselves, so that nothing is locked for each
/// transaction.
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

    /// The database, for whoever closes it; `None` if that was done before.
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

/// How the transaction ends because of its statements; `None` if it is to be committed.
pub(crate) fn undone(verdict: Result<Verdict>) -> Result<Option<Ended>> {
    match verdict {
        Ok(Verdict::Commit) => Ok(None),
        Ok(Verdict::Rollback) => Ok(Some(Ended::RolledBack)),
        Err(Error::Conflict) => Ok(Some(Ended::Conflict)),
        Err(error) => Err(error),
    }
}

/// Copies what was found.
pub(crate) fn copied(found: Option<&[u8]>, value: &mut Vec<u8>) -> bool {
    value.clear();
    value.extend_from_slice(found.unwrap_or_default());
    found.is_some()
}

/// The keys of a scan that begins at `from`, or at that end of the table.
pub(crate) fn bounds(from: Option<&[u8]>, direction: Direction) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let near = from.map_or(Bound::Unbounded, Bound::Included);
    match direction {
        Direction::Forward => (near, Bound::Unbounded),
        Direction::Reverse => (Bound::Unbounded, near),
    }
}

/// An engine's error, with what was being done: for `map_err`.
pub(crate) fn failed<E>(what: &'static str) -> impl FnOnce(E) -> Error
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| Error::engine(what, source)
}

/// The error of a write in a transaction that reads.
pub(crate) fn read_only() -> Error {
    Error::Unsupported("writes in a transaction that reads")
}

/// Why an engine cannot do this that syncs a commit before it returns, or never.
pub(crate) fn only_sync_and_unsynced(needs: Needs, level: Level) -> Option<String> {
    match level {
        _ if needs.tickets => Some("its commits cannot be waited for later".to_string()),
        Level::Sync | Level::Unsynced => None,
        Level::NoBarrier => Some("it cannot leave the device's cache alone while it syncs".to_string()),
        Level::Async(_) => Some("it cannot acknowledge a commit and sync it within a time".to_string()),
        Level::Staged => Some("it stages nothing in persistent memory".to_string()),
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
    fn only_two_levels_without_tickets_are_offered() {
        let levels = [Level::Sync, Level::Unsynced, Level::NoBarrier, Level::Async(Duration::from_millis(1))];
        let offered = |needs| levels.map(|level| only_sync_and_unsynced(needs, level).is_none());
        assert_eq!(offered(Needs::default()), [true, true, false, false]);
        assert_eq!(offered(Needs { tickets: true, ..Needs::default() }), [false; 4]);
    }
}
