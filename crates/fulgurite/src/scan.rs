//! Ordered iteration over a table at a snapshot, merged with a transaction's own writes.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use fulgurite_index::Io;
use fulgurite_index::btree::BTree;
use fulgurite_index::table::{Cursor, ReadPoint};
use fulgurite_types::{KeySpan, TableId, key_after};

use crate::catalog::TableState;
use crate::engine::Engine;
use crate::error::OrError;
use crate::expiry::moment_of;
use crate::handle::Handle;
use crate::live_reads::{LiveReads, ReadFor};
use crate::snapshots::SnapshotGuard;
use crate::write_set::{TableWrites, WriteOp, WriteValue};
use crate::{Error, Missing, Result, Value};

/// A key and its value, both borrowed, and when they expire; `None`: never.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let sessions = db.table("sessions")?;
/// sessions.put("8f31", "alice")?;
/// let mut range = sessions.range(..)?;
/// let (key, value, expires) = range.next_entry_with_expiry()?.unwrap();
/// assert_eq!((key, value, expires), (&b"8f31"[..], &b"alice"[..], None));
/// # Ok(())
/// # }
/// ```
pub type EntryWithExpiry<'a> = (&'a [u8], &'a [u8], Option<SystemTime>);

/// A seek costs as much as several steps, and most ranges that a transaction deletes have few keys.
const STEPS_BEFORE_SEEK: u32 = 8;

/// An iteration looks at its age once in so many steps, because a step costs as little as the look. (Each step finds that
/// a pruner has ended its snapshot, INV-TXN-15.)
const STEPS_PER_AGE: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The position of one end of an iteration.
#[derive(Clone, Copy)]
enum Position<'a> {
    /// The iteration has not started.
    NotStarted,
    /// The cursor is at the entry that was returned last.
    Given,
    /// This own entry was returned last, or skipped because it is not live; the cursor is at the next stored entry.
    GivenOwn(&'a [u8], &'a WriteOp),
    /// The cursor met a node that it cannot read, and is to continue after it.
    Unread,
}

/// One end of an iteration: the table's cursor merged with own writes.
struct Side<'a> {
    direction: Direction,
    cursor: Cursor<BTree>,
    own: Option<&'a TableWrites>,
    /// The next own entry in this direction.
    own_next: Option<(&'a [u8], &'a WriteOp)>,
    position: Position<'a>,
}

/// The entries of a range of a table, in key order. Keys and values that are in memory are not copied. An error ends
/// the iteration; [`Snapshot::salvage`](crate::Snapshot::salvage) reads around damage.
///
/// The iterator returns owned entries: each shares the memory that holds it, which costs a few tens of nanoseconds. To
/// look at one entry after another, use [`Range::next_entry`], which lends them. Both may be mixed, and so may both
/// directions: each entry comes once.
///
/// An idle `Range` keeps on disk the versions that it may still return, as its snapshot does, and is ended when it is older
/// than [`Options::max_snapshot_age`](crate::Options::max_snapshot_age): unless something was pruned since, it may return up
/// to seven more entries. In memory it keeps one
/// leaf, and the commits of at most 4 of the next entries, at each end; not what was written or merged since.
///
/// ```
/// use fulgurite::{Database, Options};
///
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = Database::open(&dir.path().join("data"), Options::default())?;
/// let stock = db.table("stock")?;
/// stock.put(b"apples", b"7")?;
/// stock.put(b"pears", b"12")?;
/// let (mut entries, mut bytes) = (stock.range(..)?, 0);
/// while let Some((key, value)) = entries.next_entry()? {
///     bytes += key.len() + value.len();
/// }
/// assert_eq!(bytes, 14);
/// # Ok(())
/// # }
/// ```
pub struct Range<'a> {
    table: Arc<TableState>,
    at: ReadPoint,
    span: Arc<KeySpan>,
    own: Option<&'a TableWrites>,
    front: Option<Side<'a>>,
    back: Option<Side<'a>>,
    done: bool,
    /// The value that was lent last, if it had to be read from the log.
    lent: Option<Value>,
    /// Records the returned values that expire, for a transaction.
    live: Option<&'a LiveReads>,
    /// Whether the snapshot may be ended; here, because each step asks.
    may_end: bool,
    /// Whether it may read from disk.
    io: Io,
    /// How many steps were begun, if it may be.
    steps: u32,
    snapshot: RangeSnapshot<'a>,
    engine: Handle,
}

/// The snapshot that an iteration reads.
pub(crate) enum RangeSnapshot<'a> {
    Shared(Arc<SnapshotGuard>),
    /// That of a transaction.
    Borrowed(&'a SnapshotGuard),
}

impl std::ops::Deref for RangeSnapshot<'_> {
    type Target = SnapshotGuard;

    #[inline]
    fn deref(&self) -> &SnapshotGuard {
        match self {
            RangeSnapshot::Shared(guard) => guard,
            RangeSnapshot::Borrowed(guard) => guard,
        }
    }
}

impl<'a> Range<'a> {
    pub(crate) fn new(
        engine: &Handle,
        table: &Arc<TableState>,
        span: KeySpan,
        own: Option<&'a TableWrites>,
        snapshot: RangeSnapshot<'a>,
    ) -> Result<Range<'a>> {
        engine.check_open()?;
        engine.counters.scans.count();
        let own = own.filter(|own| !own.ops.is_empty() || !own.ranges.is_empty());
        Ok(Range {
            engine: engine.clone(),
            table: table.clone(),
            at: snapshot.at(),
            span: Arc::new(span),
            own,
            front: None,
            back: None,
            done: false,
            lent: None,
            live: None,
            may_end: snapshot.begun_ns().is_some(),
            io: Io::Allowed,
            steps: 0,
            snapshot,
        })
    }

    /// The same iteration, which records in `live` the returned values that expire.
    pub(crate) fn noting(self, live: &'a LiveReads) -> Range<'a> {
        Range { live: Some(live), ..self }
    }

    /// The same iteration, which fails with [`Error::WouldBlock`] instead of reading from disk.
    pub(crate) fn in_memory(self) -> Range<'a> {
        Range { io: Io::MemoryOnly, ..self }
    }

    /// When the version that the last step in this direction returned expires, in milliseconds since 1970; 0: never, or it was
    /// an own write.
    pub(crate) fn version_expires_at_ms(&self, direction: Direction) -> u64 {
        let side = match direction {
            Direction::Forward => &self.front,
            Direction::Backward => &self.back,
        };
        match side {
            Some(Side { position: Position::Given, cursor, .. }) => cursor.version().expires_at_ms,
            _ => 0,
        }
    }

    /// The next key and its value, borrowed until the next call; `None` at the end, and after an error.
    ///
    /// Cheaper than [`Iterator::next`]: an entry in memory is neither reference-counted nor copied.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed), [`Error::Damaged`](crate::Error::Damaged),
    /// [`Error::Io`](crate::Error::Io), [`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld): the iteration is over.
    #[inline]
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.lend(Direction::Forward)
    }

    /// Like [`Range::next_entry`], from the other end.
    ///
    /// # Errors
    /// Those of [`Range::next_entry`].
    #[inline]
    pub fn next_entry_back(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.lend(Direction::Backward)
    }

    /// Like [`Range::next_entry`], with the time at which the entry expires; `None`: never.
    ///
    /// # Errors
    /// Those of [`Range::next_entry`].
    pub fn next_entry_with_expiry(&mut self) -> Result<Option<EntryWithExpiry<'_>>> {
        self.lend_with_expiry(Direction::Forward)
    }

    /// Like [`Range::next_entry_with_expiry`], from the other end.
    ///
    /// # Errors
    /// Those of [`Range::next_entry`].
    pub fn next_entry_back_with_expiry(&mut self) -> Result<Option<EntryWithExpiry<'_>>> {
        self.lend_with_expiry(Direction::Backward)
    }

    /// The next entry, owned, with the time at which it expires.
    pub(crate) fn next_kept(&mut self) -> Result<Option<(Value, Value, Option<SystemTime>)>> {
        let entry = self.give(Direction::Forward)?;
        let expires_at = self.front.as_ref().and_then(Side::expires_at);
        Ok(entry.map(|(key, value)| (key, value, expires_at)))
    }

    /// The keys that the error which ended this iteration left unread: those of a node, or the one whose value could
    /// not be read. For forward iterations without own writes.
    pub(crate) fn unread(&self) -> Option<KeySpan> {
        let cursor = &self.front.as_ref()?.cursor;
        cursor.unread().or_else(|| cursor.key().map(|key| KeySpan::new(key.into(), Some(key_after(key)))))
    }

    /// Continues after an error: the next entry is the first one after those that [`Range::unread`] names.
    pub(crate) fn pass_unread(&mut self) {
        assert!(self.own.is_none() && self.back.is_none(), "only a forward scan of a snapshot continues");
        if let Some(front) = self.front.as_mut().filter(|front| front.cursor.unread().is_some()) {
            front.position = Position::Unread;
        }
        self.done = false;
    }

    fn lend(&mut self, direction: Direction) -> Result<Option<(&[u8], &[u8])>> {
        if !self.advance(direction)? {
            return Ok(None);
        }
        let side = match direction {
            Direction::Forward => &self.front,
            Direction::Backward => &self.back,
        };
        let side = side.as_ref().expect("it was advanced");
        let entry = side.lend(&self.engine, self.table.id, &mut self.lent);
        let entry = if self.may_end { self.engine.reads.end_step(&self.snapshot, entry) } else { entry };
        self.done = entry.is_err();
        entry.map(Some)
    }

    fn lend_with_expiry(&mut self, direction: Direction) -> Result<Option<EntryWithExpiry<'_>>> {
        if !self.advance(direction)? {
            return Ok(None);
        }
        let side = match direction {
            Direction::Forward => &self.front,
            Direction::Backward => &self.back,
        };
        let side = side.as_ref().expect("it was advanced");
        let entry = side.lend(&self.engine, self.table.id, &mut self.lent);
        let entry = if self.may_end { self.engine.reads.end_step(&self.snapshot, entry) } else { entry };
        self.done = entry.is_err();
        entry.map(|(key, value)| Some((key, value, side.expires_at())))
    }

    /// The next entry in a direction, owned.
    pub(crate) fn give(&mut self, direction: Direction) -> Result<Option<(Value, Value)>> {
        if !self.advance(direction)? {
            return Ok(None);
        }
        let side = match direction {
            Direction::Forward => &self.front,
            Direction::Backward => &self.back,
        };
        let side = side.as_ref().expect("it was advanced");
        let entry = side.give(&self.engine, self.table.id, self.at.now_ms, self.io);
        let entry = if self.may_end { self.engine.reads.end_step(&self.snapshot, entry) } else { entry };
        self.done = entry.is_err();
        entry.map(Some)
    }

    /// Begins a step that moves one end to its next entry, which the caller ends. Ends it if there is none: then this is
    /// false.
    fn advance(&mut self, direction: Direction) -> Result<bool> {
        if self.done {
            return Ok(false);
        }
        self.done = true;
        self.engine.check_open()?;
        if self.may_end {
            if self.steps.is_multiple_of(STEPS_PER_AGE) {
                self.engine.reads.begin_step(&self.snapshot)?;
            }
            self.steps = self.steps.wrapping_add(1);
        }
        match self.move_side(direction) {
            Ok(true) => Ok(true),
            none => self.engine.reads.end_step(&self.snapshot, none),
        }
    }

    #[inline]
    fn move_side(&mut self, direction: Direction) -> Result<bool> {
        self.engine.hooks.reached("step of a scan");
        let (side, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
        let side = match side {
            Some(side) => side,
            None => {
                let mut cursor = self.table.index.cursor_with(self.at, self.io);
                cursor.set_limits(self.span.clone());
                let position = Position::NotStarted;
                side.insert(Side { direction, cursor, own: self.own, own_next: None, position })
            }
        };
        if !side.step(&self.span, self.at.now_ms)? {
            return Ok(false);
        }
        if let (Some(live), Position::Given) = (self.live, side.position) {
            let key = side.cursor.key().expect("it stepped to an entry");
            live.note(&self.table, key, side.cursor.version().expires_at_ms, ReadFor::Reading);
        }
        self.done = other.as_ref().and_then(Side::key).is_some_and(|limit| {
            let key = side.key().expect("it stepped to an entry");
            match direction {
                Direction::Forward => *key >= *limit,
                Direction::Backward => *key <= *limit,
            }
        });
        Ok(!self.done)
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.give(Direction::Forward).transpose()
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.give(Direction::Backward).transpose()
    }
}

impl<'a> Side<'a> {
    /// The key of the current entry.
    fn key(&self) -> Option<&[u8]> {
        match self.position {
            Position::NotStarted | Position::Unread => None,
            Position::Given => self.cursor.key(),
            Position::GivenOwn(key, _) => Some(key),
        }
    }

    /// When the current entry expires; `None`: never.
    fn expires_at(&self) -> Option<SystemTime> {
        let expires_at_ms = match self.position {
            Position::GivenOwn(_, op) => op.expires_at_ms,
            Position::Given if self.cursor.key().is_some() => self.cursor.version().expires_at_ms,
            Position::NotStarted | Position::Given | Position::Unread => 0,
        };
        moment_of(expires_at_ms)
    }

    /// The current entry, borrowed; `read` holds a value that had to be read from the log.
    #[inline]
    fn lend<'s>(
        &'s self,
        engine: &Engine,
        table: TableId,
        read: &'s mut Option<Value>,
    ) -> Result<(&'s [u8], &'s [u8])> {
        if let Position::GivenOwn(key, op) = self.position {
            let value = match &op.value {
                WriteValue::Inline(bytes) => return Ok((key, bytes)),
                WriteValue::Chunks(spilled) => engine.values.read_own(table, key, &spilled.1)?,
                WriteValue::Delete => unreachable!("an iteration does not return a delete"),
            };
            return Ok((key, read.insert(value)));
        }
        let (key, version) = self.cursor.entry().expect("the cursor is at an entry");
        if !version.flags.is_out_of_line() {
            return Ok((key, version.payload));
        }
        Ok((key, read.insert(engine.values.read(table, key, version.csn, version.payload)?)))
    }

    /// The current entry, owned.
    fn give(&self, engine: &Engine, table: TableId, now_ms: u64, io: Io) -> Result<(Value, Value)> {
        if let Position::GivenOwn(key, op) = self.position {
            if io == Io::MemoryOnly && matches!(op.value, WriteValue::Chunks(_)) {
                return Err(Error::WouldBlock(Missing::Value));
            }
            let value =
                engine.values.own(table, key, op, now_ms)?.expect("an iteration returns live entries only");
            return Ok((Value::from(key.to_vec()), value));
        }
        let (key, version) = (self.cursor.pinned_key(), self.cursor.version());
        let value = if !version.flags.is_out_of_line() {
            Value(self.cursor.pinned_payload())
        } else if io == Io::MemoryOnly {
            engine.values.cached(version.payload).ok_or(Error::WouldBlock(Missing::Value))?
        } else {
            engine.values.read(table, &key, version.csn, version.payload)?
        };
        Ok((Value(key), value))
    }

    /// Moves to the next entry; false if there is none. Pins nothing: the registered snapshot keeps the values that it
    /// sees in the accounts, and so their segments; a thread that loads a node pins it.
    fn step(&mut self, span: &KeySpan, now_ms: u64) -> Result<bool> {
        if matches!(self.position, Position::Given) {
            self.move_cursor()?;
        } else {
            self.resume(span)?;
        }
        loop {
            let stored = self.cursor.key();
            let order = match (stored, self.own_next) {
                (None, None) => return Ok(false),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(stored), Some((own, _))) if self.direction == Direction::Forward => stored.cmp(own),
                (Some(stored), Some((own, _))) => own.cmp(stored),
            };
            if let (Ordering::Less, Some(key)) = (order, stored) {
                if self.is_past(span, key) {
                    return Ok(false);
                }
                if let Some(own) = self.own
                    && let Some(range) = own.ranges.covering(key)
                {
                    self.pass_deleted(span, range)?;
                    continue;
                }
                self.position = Position::Given;
                return Ok(true);
            }
            let (key, op) = self.own_next.expect("compared above");
            if self.is_past(span, key) {
                return Ok(false);
            }
            self.pass_own(key, op, order)?;
            if op.is_live_at(now_ms) {
                return Ok(true);
            }
        }
    }

    /// Moves the cursor to the next stored entry, unless it is there already.
    #[cold]
    #[inline(never)]
    fn resume(&mut self, span: &KeySpan) -> Result<()> {
        match self.position {
            Position::NotStarted => self.start(span),
            Position::Unread => self.cursor.skip_unread().or_error(),
            Position::Given | Position::GivenOwn(..) => Ok(()),
        }
    }

    /// Moves the cursor from a key in a range that the transaction deletes to the first key past that range. Reads
    /// nothing past the end of the scan, because nodes there were not asked for, and may be damaged.
    #[inline(never)]
    fn pass_deleted(&mut self, span: &KeySpan, deleted: KeySpan<&[u8]>) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            self.move_cursor()?;
            if !self.cursor.key().is_some_and(|key| deleted.contains(key) && !self.is_past(span, key)) {
                return Ok(());
            }
        }
        match (self.direction, deleted.end) {
            (Direction::Forward, Some(end)) if span.ends_after(end) => self.cursor.seek(end).or_error(),
            (Direction::Backward, _) if *span.start < *deleted.start => {
                self.cursor.seek_back(Some(deleted.start)).or_error()
            }
            _ => {
                self.cursor.end();
                Ok(())
            }
        }
    }

    /// Steps past an own entry, which comes before the cursor's entry or replaces it.
    fn pass_own(&mut self, key: &'a [u8], op: &'a WriteOp, order: Ordering) -> Result<()> {
        if order == Ordering::Equal {
            self.move_cursor()?;
        }
        let own = self.own.expect("an own key comes from own writes");
        self.own_next = match self.direction {
            Direction::Forward => own.ops.range((Bound::Excluded(key), Bound::Unbounded)).next(),
            Direction::Backward => own.ops.range((Bound::Unbounded, Bound::Excluded(key))).next_back(),
        };
        self.position = Position::GivenOwn(key, op);
        Ok(())
    }

    fn start(&mut self, span: &KeySpan) -> Result<()> {
        let KeySpan { start, end } = span.borrowed();
        let first = match self.direction {
            Direction::Forward => {
                self.cursor.seek(start).or_error()?;
                self.own.and_then(|own| own.ops.range(KeySpan::from(start)).next())
            }
            Direction::Backward => {
                self.cursor.seek_back(end).or_error()?;
                self.own.and_then(|own| own.ops.range(KeySpan { end, ..KeySpan::ALL }).next_back())
            }
        };
        self.own_next = first;
        Ok(())
    }

    fn move_cursor(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.cursor.next().or_error()?,
            Direction::Backward => self.cursor.prev().or_error()?,
        }
        Ok(())
    }

    /// Whether the key is beyond the end of the scan in its direction.
    fn is_past(&self, span: &KeySpan, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => !span.ends_after(key),
            Direction::Backward => span.starts_after(key),
        }
    }
}
