//! `delete-queue`: rows are appended at one end of a queue and removed at the other.

use std::collections::BTreeMap;

use super::fields::concat;
use super::rows::{Sizes, expect_rows, fill};
use super::sealed::{Seal, Writes, check_seals};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Range, Store, Verdict};
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

/// A queue in a table, in which a store that marks deleted rows and removes them later must skip ever more tombstones.
///
/// Each thread has a queue of its own: the key is the number of the queue and the position in it, 4 and 8 bytes, the
/// highest first; values have 100 bytes. A push writes the row after the last one. A pop scans from the beginning of
/// the queue for the first row, and deletes it; no other thread pops from the same queue, so the scan and the delete
/// need not be one transaction. A client pushes and pops in turn, so that a given number of rows is in the queue after
/// each pop. The rows of the first queues are loaded, the others begin with as many pushes. The figure of interest is
/// the time of a pop as time passes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DeleteQueue {
    /// Those that are filled beforehand, best as many as there are threads.
    pub queues: u32,
    /// Rows in each, at least one.
    pub backlog: u64,
}

const PUSH: usize = 0;
const POP: usize = 1;
const SIZES: Sizes = Sizes { key_bytes: 12, value_bytes: 100 };

impl DeleteQueue {
    /// Rows in a queue.
    pub const BACKLOG: u64 = 1000;

    fn loaded_rows(&self) -> u64 {
        u64::from(self.queues) * self.backlog
    }

    fn rows_after(&self, done: &Done) -> u64 {
        self.loaded_rows() + done.kinds[PUSH] - done.kinds[POP]
    }
}

/// A position in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    queue: u32,
    at: u64,
}

impl Position {
    fn key(self) -> [u8; SIZES.key_bytes] {
        concat([&self.queue.to_be_bytes(), &self.at.to_be_bytes()])
    }

    fn of(key: &[u8]) -> Option<Position> {
        let (queue, at) = key.split_first_chunk()?;
        Some(Position { queue: u32::from_be_bytes(*queue), at: u64::from_be_bytes(at.try_into().ok()?) })
    }
}

impl Workload for DeleteQueue {
    fn shape(&self) -> Shape {
        Shape {
            name: "delete-queue".into(),
            about: format!("{} queues of {} rows, {SIZES}", self.queues, self.backlog),
            tables: &["queue"],
            kinds: &["push", "pop"],
            loaded_bytes: self.loaded_rows() * SIZES.row_bytes(),
            bytes_per_operation: (SIZES.row_bytes() + SIZES.key_bytes as u64) / 2,
            ..Shape::default()
        }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let mut value = [0; SIZES.value_bytes];
        fill(store, 0..self.loaded_rows(), SIZES.row_bytes(), filling, |row, open| {
            let position = Position { queue: (row / self.backlog) as u32, at: row % self.backlog };
            Seal { row: position.at, write: 0 }.write_over(&mut value);
            open.put(0, &position.key(), &value)
        })
    }

    fn client(&self, thread: u32, _: u32) -> Client {
        let backlog = self.backlog;
        // The positions of the rows in the queue.
        let mut rows = 0..if thread < self.queues { backlog } else { 0 };
        let (mut writes, mut value) = (Writes::of(thread), [0; SIZES.value_bytes]);
        Box::new(move |session| {
            if rows.end - rows.start > backlog {
                pop(session, Position { queue: thread, at: rows.start })?;
                rows.start += 1;
                return Ok(Step::Done(POP));
            }
            let position = Position { queue: thread, at: rows.end };
            Seal { row: position.at, write: writes.next() }.write_over(&mut value);
            session.write(|open| open.put(0, &position.key(), &value).map(|()| Verdict::Commit))?;
            rows.end += 1;
            Ok(Step::Done(PUSH))
        })
    }

    /// The rows of each queue follow each other without a gap, and are at most one more than a client keeps; all
    /// together they are as many as were pushed and not popped.
    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        let mut queues = BTreeMap::new();
        let found = check_seals(store, 0, "queue", |key, seal| {
            let Some(Position { queue, at }) = Position::of(key) else { return false };
            let rows = queues.entry(queue).or_insert(at..at);
            let follows = rows.end == at;
            rows.end = at + 1;
            follows && seal.row == at
        })?;
        for (queue, rows) in &queues {
            let length = rows.end - rows.start;
            let least = if *queue < self.queues { self.backlog } else { 1 };
            if !(least..=self.backlog + 1).contains(&length) {
                return Err(Error::Wrong(format!(
                    "queue {queue} holds {length} rows, and not {least} to {}",
                    self.backlog + 1
                )));
            }
        }
        if (0..self.queues).any(|queue| !queues.contains_key(&queue)) {
            return Err(Error::Wrong("a queue is empty that never was".to_string()));
        }
        expect_rows("queue", found, done.map_or(found, |done| self.rows_after(done)))
    }

    fn live_bytes(&self, done: &Done) -> Option<u64> {
        Some(self.rows_after(done) * SIZES.row_bytes())
    }
}

/// Finds the first row of a queue by a scan from its beginning, which has to be `head`, and deletes it.
fn pop(session: &mut RetryingSession<'_>, head: Position) -> Result<()> {
    let beginning = Position { at: 0, ..head }.key();
    session.read(|open| {
        let mut first = None;
        open.scan(Range::forward(0, Some(&beginning)), &mut |key, _| {
            first = Position::of(key);
            Ok(false)
        })?;
        match first {
            Some(first) if first == head => Ok(()),
            // The pop of this row was acknowledged before it became visible.
            Some(Position { queue, at }) if queue == head.queue && at < head.at => Err(Error::Conflict),
            _ => Err(Error::engine("popping", format!("{first:?} is the first row, not {head:?}"))),
        }
    })?;
    session.write(|open| open.delete(0, &head.key()).map(|()| Verdict::Commit))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;

    fn small() -> DeleteQueue {
        DeleteQueue { queues: 2, backlog: 50 }
    }

    #[test]
    fn queues_keep_their_length() {
        let (_, done) = Bed::checked(small(), 1, 500);
        assert_eq!(done.kinds, [250, 250]);
        // Two of the queues begin empty.
        let (_, done) = Bed::checked(small(), 4, 501);
        assert_eq!(done.kinds, [2 * 251 + 2 * 276, 2 * 250 + 2 * 225]);
        assert_eq!(small().live_bytes(&done), Some((100 + 104) * 112));
    }

    #[test]
    fn a_row_that_is_lost_or_back_is_noticed() {
        let (bed, done) = Bed::checked(small(), 1, 20);
        let mut value = vec![0; 100];
        Seal { row: 9, write: 0 }.write_over(&mut value);
        bed.tamper(|open| open.put(0, &Position { queue: 0, at: 9 }.key(), &value));
        assert!(bed.check(Some(&done)).is_err(), "a popped row is back");
        bed.check(None).expect("before the last pop it was there");
        bed.tamper(|open| open.delete(0, &Position { queue: 0, at: 15 }.key()));
        assert!(bed.check(None).is_err(), "a row in the middle is gone");
    }

    #[test]
    fn an_empty_queue_is_noticed() {
        let (bed, _) = Bed::checked(DeleteQueue { queues: 1, backlog: 1 }, 1, 2);
        bed.tamper(|open| open.delete(0, &Position { queue: 0, at: 1 }.key()));
        assert!(bed.check(None).is_err());
    }

    #[test]
    fn a_client_notices_a_lost_head() {
        let (bed, _) = Bed::checked(small(), 0, 0);
        let mut client = bed.workload.client(0, 1);
        bed.with_session(|session| client(session)).expect("a push");
        bed.tamper(|open| open.delete(0, &Position { queue: 0, at: 0 }.key()));
        assert!(bed.with_session(|session| client(session)).is_err());
    }
}
