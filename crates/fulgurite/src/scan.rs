//! Ordered iteration over a table at a snapshot, merged with a transaction's own writes.

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use fulgurite_base::TableId;
use fulgurite_index::btree::BTree;
use fulgurite_index::table::{Cursor, ReadPoint};

use crate::catalog::TableState;
use crate::core::Core;
use crate::snapshots::SnapshotGuard;
use crate::write_set::{TableWrites, check_key};
use crate::{Result, Value};

/// An owned range of keys.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    start: Bound<Box<[u8]>>,
    end: Bound<Box<[u8]>>,
}

impl Bounds {
    pub fn new<'k>(range: &impl RangeBounds<&'k [u8]>) -> Result<Bounds> {
        let own = |bound: Bound<&&[u8]>| -> Result<Bound<Box<[u8]>>> {
            Ok(match bound {
                Bound::Included(key) => Bound::Included(checked(key)?),
                Bound::Excluded(key) => Bound::Excluded(checked(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        Ok(Bounds { start: own(range.start_bound())?, end: own(range.end_bound())? })
    }

    /// All keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Result<Bounds> {
        check_key(prefix)?;
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        let end = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end.into())
            }
            None => Bound::Unbounded,
        };
        Ok(Bounds { start: Bound::Included(prefix.into()), end })
    }

    pub fn as_ref(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (as_ref(&self.start), as_ref(&self.end))
    }

    /// As `[start, end)`; `None` if it is empty.
    #[expect(clippy::type_complexity, reason = "a start and an optional end")]
    pub fn half_open(&self) -> Result<Option<(Box<[u8]>, Option<Box<[u8]>>)>> {
        let start = match &self.start {
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => successor(key),
            Bound::Unbounded => Box::default(),
        };
        let end = match &self.end {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        // The successor of a key of the greatest length is one byte too long to store: no key lies between, so the
        // range can as well begin or end at the next shorter key that is greater.
        let (start, end) = (shorten(start), end.map(shorten));
        let Some(start) = start else { return Ok(None) };
        let end = end.flatten();
        Ok(end.as_ref().is_none_or(|end| *end > start).then_some((start, end)))
    }

    fn is_past_end(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Included(end) => key > &**end,
            Bound::Excluded(end) => key >= &**end,
            Bound::Unbounded => false,
        }
    }

    fn is_before_start(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Included(start) => key < &**start,
            Bound::Excluded(start) => key <= &**start,
            Bound::Unbounded => false,
        }
    }
}

fn checked(key: &[u8]) -> Result<Box<[u8]>> {
    check_key(key)?;
    Ok(key.into())
}

/// The smallest key after `key`.
fn successor(key: &[u8]) -> Box<[u8]> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The smallest storable key that is at or after `key`; `None` if there is none.
fn shorten(key: Box<[u8]>) -> Option<Box<[u8]>> {
    if key.len() <= fulgurite_base::limits::KEY_BYTES_MAX {
        return Some(key);
    }
    let mut key = key.into_vec();
    key.truncate(fulgurite_base::limits::KEY_BYTES_MAX);
    while key.last() == Some(&0xff) {
        key.pop();
    }
    *key.last_mut()? += 1;
    Some(key.into())
}

fn as_ref(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Where one end of an iteration stands.
#[derive(Clone, Copy)]
enum Stand<'a> {
    /// Nowhere yet.
    Fresh,
    /// The cursor is at the entry that was given last.
    Given,
    /// This own key was given last; the cursor is at what comes after it.
    GivenOwn(&'a [u8]),
}

/// One end of an iteration: the table's cursor merged with own writes.
struct Side<'a> {
    direction: Direction,
    cursor: Cursor<BTree>,
    own: Option<&'a TableWrites>,
    /// The next own key in this direction.
    own_key: Option<&'a [u8]>,
    stand: Stand<'a>,
}

/// Entries of a table in key order, both keys and values uncopied where memory holds them. An error ends it.
pub struct Range<'a> {
    core: Arc<Core>,
    table: Arc<TableState>,
    at: ReadPoint,
    bounds: Bounds,
    own: Option<&'a TableWrites>,
    front: Option<Side<'a>>,
    back: Option<Side<'a>>,
    done: bool,
    _snapshot: Option<Arc<SnapshotGuard>>,
}

impl<'a> Range<'a> {
    pub(crate) fn new(
        core: &Arc<Core>,
        table: &Arc<TableState>,
        at: ReadPoint,
        bounds: Bounds,
        own: Option<&'a TableWrites>,
        snapshot: Option<Arc<SnapshotGuard>>,
    ) -> Result<Range<'a>> {
        core.check_open()?;
        let own = own.filter(|own| !own.ops.is_empty() || !own.ranges.is_empty());
        Ok(Range {
            core: core.clone(),
            table: table.clone(),
            at,
            bounds,
            own,
            front: None,
            back: None,
            done: false,
            _snapshot: snapshot,
        })
    }

    fn step(&mut self, direction: Direction) -> Result<Option<(Value, Value)>> {
        self.core.check_open()?;
        let (side, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
        let side = match side {
            Some(side) => side,
            None => side.insert(Side {
                direction,
                cursor: self.table.index.cursor(self.at),
                own: self.own,
                own_key: None,
                stand: Stand::Fresh,
            }),
        };
        let Some((key, value)) = side.step(&self.core, self.table.id, &self.bounds, self.at.now_ms)? else {
            return Ok(None);
        };
        let met = other.as_ref().and_then(Side::last).is_some_and(|limit| match direction {
            Direction::Forward => *key >= *limit,
            Direction::Backward => *key <= *limit,
        });
        Ok(if met { None } else { Some((key, value)) })
    }

    fn advance(&mut self, direction: Direction) -> Option<Result<(Value, Value)>> {
        if self.done {
            return None;
        }
        let entry = self.step(direction).transpose();
        self.done = !matches!(entry, Some(Ok(_)));
        entry
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(Direction::Forward)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance(Direction::Backward)
    }
}

impl<'a> Side<'a> {
    /// The key that was given last.
    fn last(&self) -> Option<&[u8]> {
        match self.stand {
            Stand::Fresh => None,
            Stand::Given => self.cursor.key(),
            Stand::GivenOwn(key) => Some(key),
        }
    }

    /// The next entry. Nothing is pinned: the registered snapshot keeps the values that it sees in the accounts, and so
    /// in their segments; nodes are pinned by whoever loads them.
    fn step(
        &mut self,
        core: &Core,
        table: TableId,
        bounds: &Bounds,
        now_ms: u64,
    ) -> Result<Option<(Value, Value)>> {
        match self.stand {
            Stand::Fresh => self.start(bounds)?,
            Stand::Given => self.move_cursor()?,
            Stand::GivenOwn(_) => {}
        }
        loop {
            let order = match (self.cursor.key(), self.own_key) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(stored), Some(own)) if self.direction == Direction::Forward => stored.cmp(own),
                (Some(stored), Some(own)) => own.cmp(stored),
            };
            if order == Ordering::Less {
                let key = self.cursor.key().expect("compared above");
                if self.outside(bounds, key) {
                    return Ok(None);
                }
                if self.own.is_some_and(|own| own.ranges.iter().any(|range| range.covers(key))) {
                    self.move_cursor()?;
                    continue;
                }
                let key = self.cursor.pinned_key();
                let value = core.resolve(table, &key, self.cursor.version())?;
                self.stand = Stand::Given;
                return Ok(Some((Value(key), value)));
            }
            if let Some(entry) = self.step_own(core, table, bounds, now_ms, order)? {
                return Ok(entry);
            }
        }
    }

    /// Takes the next own key, which comes before or stands for the cursor's. `None`: it was a delete, go on.
    fn step_own(
        &mut self,
        core: &Core,
        table: TableId,
        bounds: &Bounds,
        now_ms: u64,
        order: Ordering,
    ) -> Result<Option<Option<(Value, Value)>>> {
        let own = self.own.expect("an own key comes from own writes");
        let key = self.own_key.expect("compared by the caller");
        if self.outside(bounds, key) {
            return Ok(Some(None));
        }
        if order == Ordering::Equal {
            self.move_cursor()?;
        }
        let value = core.own_value(table, key, &own.ops[key], now_ms)?;
        self.own_key = match self.direction {
            Direction::Forward => own.ops.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next(),
            Direction::Backward => {
                own.ops.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back()
            }
        }
        .map(|(key, _)| &**key);
        self.stand = Stand::GivenOwn(key);
        Ok(value.map(|value| Some((Value::from(key.to_vec()), value))))
    }

    fn start(&mut self, bounds: &Bounds) -> Result<()> {
        let (start, end) = bounds.as_ref();
        let first = match self.direction {
            Direction::Forward => {
                self.cursor.seek(start)?;
                self.own.and_then(|own| own.ops.range::<[u8], _>((start, Bound::Unbounded)).next())
            }
            Direction::Backward => {
                self.cursor.seek_back(end)?;
                self.own.and_then(|own| own.ops.range::<[u8], _>((Bound::Unbounded, end)).next_back())
            }
        };
        self.own_key = first.map(|(key, _)| &**key);
        Ok(())
    }

    fn move_cursor(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.cursor.next()?,
            Direction::Backward => self.cursor.prev()?,
        }
        Ok(())
    }

    fn outside(&self, bounds: &Bounds, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => bounds.is_past_end(key),
            Direction::Backward => bounds.is_before_start(key),
        }
    }
}
