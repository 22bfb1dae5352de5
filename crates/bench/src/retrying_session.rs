//! The session of a client: a session that retries a transaction until it does not conflict, and counts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::{Ended, Mode, Pending, Range, Session, Transaction, Verdict, Visit};
use crate::{Error, Result};

/// After this many conflicts in a row of one transaction something is wrong.
const CONFLICTS_MAX: u64 = 1_000_000;

/// A transaction that conflicts is retried at once this many times; after that it pauses before each retry, twice as
/// long each time, up to a limit.
const YIELDS: u64 = 3;
const PAUSE: Duration = Duration::from_micros(20);
const PAUSE_DOUBLINGS: u64 = 6;

/// The session of one thread, with counts of its operations.
pub struct RetryingSession<'a> {
    session: &'a mut dyn Session,
    tickets: usize,
    pending: VecDeque<Commit>,
    counts: Counts,
    given_up: Option<&'a AtomicBool>,
}

/// A deferred commit, with the time at which its transaction began.
pub(crate) struct Commit {
    pub pending: Box<dyn Pending>,
    pub kind: usize,
    pub began_ns: u64,
}

/// The counts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub conflicts: u64,
    pub user_bytes: u64,
}

impl<'a> RetryingSession<'a> {
    /// A session that waits for each commit if `tickets` is 0. Otherwise it waits for none, and keeps them for its caller
    /// to wait for: only an engine with [`Needs::tickets`](crate::engine::Needs::tickets) can do that.
    pub fn new(session: &'a mut dyn Session, tickets: usize) -> RetryingSession<'a> {
        RetryingSession {
            session,
            tickets,
            pending: VecDeque::new(),
            counts: Counts::default(),
            given_up: None,
        }
    }

    /// A transaction that conflicts while this is set is not retried: [`Error::Interrupted`]. It may wait for a lock
    /// that a failed thread has left.
    pub(crate) fn until(self, given_up: &'a AtomicBool) -> RetryingSession<'a> {
        RetryingSession { given_up: Some(given_up), ..self }
    }

    /// A single read, outside of any transaction: [`Session::get`].
    pub fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.session.get(table, key, value)
    }

    /// Runs statements that only read, until they do not conflict; returns their result.
    pub fn read<T>(&mut self, mut statements: impl FnMut(&mut dyn Transaction) -> Result<T>) -> Result<T> {
        let (session, mut result) = (&mut *self.session, None);
        retry(&mut self.counts, self.given_up, |_| {
            session.transact(Mode::Read, &mut |open| {
                result = Some(statements(open)?);
                Ok(Verdict::Commit)
            })
        })?;
        Ok(result.expect("the statements ran"))
    }

    /// Runs statements that write, until they do not conflict, and commits; returns whether they were committed rather
    /// than rolled back. The commit is durable at the level of the store, or, with tickets, may be pending.
    pub fn write(
        &mut self,
        mut statements: impl FnMut(&mut dyn Transaction) -> Result<Verdict>,
    ) -> Result<bool> {
        let RetryingSession { session, tickets, pending, counts, given_up } = self;
        let ended = retry(counts, *given_up, |written| {
            let run = &mut |transaction: &mut dyn Transaction| {
                let mut open = Counting { transaction, written: 0 };
                let verdict = statements(&mut open);
                *written = open.written as u64;
                verdict
            };
            if *tickets == 0 {
                return session.transact(Mode::Write, run);
            }
            let (ended, ticket) = session.defer(run)?;
            pending.extend(ticket.map(|pending| Commit { pending, kind: 0, began_ns: 0 }));
            Ok(ended)
        })?;
        Ok(ended == Ended::Committed)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn tickets(&self) -> usize {
        self.tickets
    }

    pub(crate) fn pending(&mut self) -> &mut VecDeque<Commit> {
        &mut self.pending
    }
}

/// Lets the transactions continue that this one conflicted with: they may wait for this processor, or for a disk.
/// Engines that let a later writer conflict at once, where others let it wait, need this to make progress.
fn back_off(conflicts: u64) {
    match conflicts {
        0..YIELDS => std::thread::yield_now(),
        _ => std::thread::park_timeout(PAUSE * (1 << (conflicts - YIELDS).min(PAUSE_DOUBLINGS))),
    }
}

fn retry(
    counts: &mut Counts,
    given_up: Option<&AtomicBool>,
    mut once: impl FnMut(&mut u64) -> Result<Ended>,
) -> Result<Ended> {
    for conflicts in 0..CONFLICTS_MAX {
        let mut written = 0;
        match once(&mut written)? {
            Ended::Conflict if given_up.is_some_and(|given_up| given_up.load(Ordering::Relaxed)) => {
                return Err(Error::Interrupted);
            }
            Ended::Conflict => back_off(conflicts),
            ended => {
                counts.conflicts += conflicts;
                if ended == Ended::Committed {
                    counts.user_bytes += written;
                }
                return Ok(ended);
            }
        }
    }
    Err(Error::engine("committing", format!("a transaction conflicted {CONFLICTS_MAX} times in a row")))
}

/// A transaction that counts its writes.
struct Counting<'a> {
    transaction: &'a mut dyn Transaction,
    /// Bytes of keys and values that it put, and of keys that it deleted.
    written: usize,
}

impl Transaction for Counting<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.transaction.get(table, key, value)
    }

    fn get_for_update(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.transaction.get_for_update(table, key, value)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.written += key.len() + value.len();
        self.transaction.put(table, key, value)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.written += key.len();
        self.transaction.delete(table, key)
    }

    fn take_first(&mut self, table: usize, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let found = self.transaction.take_first(table, key, value)?;
        if found {
            self.written += key.len();
        }
        Ok(found)
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        self.transaction.scan(range, visit)
    }
}
