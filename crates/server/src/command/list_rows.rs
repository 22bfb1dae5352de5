//! The rows of a list: elements at positions without gaps, from the first one on. What changes them leaves the head record to the caller.

use std::ops::{Bound, Range};

use fulgurite::Value;

use crate::model::{Bounds, Collection, Order, View, Write, damaged_row, element_key, split_element_key};
use crate::stop::{ErrorReply, Result};

/// How many rows are read at a time to be moved or copied.
const BATCH_ROWS: i64 = 256;

/// If more rows than these are removed, and fewer stay, those that stay are copied, and the others become garbage.
const REMOVED_ROWS_MAX: u64 = 128;

const FULL: ErrorReply = ErrorReply::new("ERR", "the list has no position left at this end");

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    pub fn parse(argument: &[u8]) -> Result<End> {
        match argument {
            _ if argument.eq_ignore_ascii_case(b"left") => Ok(End::Left),
            _ if argument.eq_ignore_ascii_case(b"right") => Ok(End::Right),
            _ => Err(ErrorReply::SYNTAX.into()),
        }
    }

    /// The order of elements from this end on.
    pub fn order(self) -> Order {
        match self {
            End::Left => Order::Forward,
            End::Right => Order::Backward,
        }
    }
}

/// The positions of a list.
pub(super) fn positions(list: &Collection) -> Range<i64> {
    list.first..list.first.saturating_add_unsigned(list.count)
}

/// The position of the element with this index, which counts from the end if it is negative.
pub(super) fn position_at(list: &Collection, index: i64) -> Option<i64> {
    let Range { start, end } = positions(list);
    let position = if index < 0 { end.checked_add(index) } else { start.checked_add(index) };
    position.filter(|position| (start..end).contains(position))
}

/// The positions from one index to another one, that included, as `LRANGE` counts them.
pub(super) fn span(list: &Collection, from: i64, to: i64) -> Range<i64> {
    let Range { start, end } = positions(list);
    let position = |index: i64| {
        if index < 0 { end.saturating_add(index) } else { start.saturating_add(index) }
    };
    let from = position(from).max(start);
    let to = position(to).saturating_add(1).min(end);
    if from < to { from..to } else { start..start }
}

/// How many positions these are.
pub(super) fn len(positions: &Range<i64>) -> u64 {
    positions.end.abs_diff(positions.start)
}

/// The rows of these positions.
pub(super) fn bounds(id: u64, positions: Range<i64>) -> Bounds {
    (Bound::Included(element_key(id, positions.start)), Bound::Excluded(element_key(id, positions.end)))
}

/// The position in the key of a row.
pub(super) fn position_of(row: &Value) -> Result<i64> {
    split_element_key(row).ok_or_else(|| damaged_row(row))
}

/// The element at a position of the list.
pub(super) fn element(view: &View<'_>, list: &Collection, position: i64) -> Result<Value> {
    let row = element_key(list.id, position);
    view.row(&row)?.ok_or_else(|| damaged_row(&row))
}

/// The elements at positions of the list, in either order.
pub(super) fn elements(
    view: &View<'_>,
    list: &Collection,
    positions: Range<i64>,
    order: Order,
) -> Result<Vec<Value>> {
    let count = len(&positions);
    view.check_rows(count)?;
    let start = positions.start;
    let mut found = Vec::new();
    view.each_row(bounds(list.id, positions), order, usize::MAX, |_, value| {
        found.push(value);
        Ok(true)
    })?;
    if found.len() as u64 == count { Ok(found) } else { Err(damaged_row(&element_key(list.id, start))) }
}

/// Writes an element before or after all others.
pub(super) fn push(write: &mut Write<'_>, list: &mut Collection, end: End, value: &[u8]) -> Result<()> {
    let position = match end {
        End::Left => list.first.checked_sub(1),
        End::Right => list.first.checked_add_unsigned(list.count).filter(|&position| position < i64::MAX),
    };
    let position = position.ok_or(FULL)?;
    write.put_row(&element_key(list.id, position), value)?;
    if end == End::Left {
        list.first = position;
    }
    list.count += 1;
    Ok(())
}

/// Takes at most so many elements away, the one at the end first.
pub(super) fn pop(write: &mut Write<'_>, list: &mut Collection, end: End, count: u64) -> Result<Vec<Value>> {
    let Range { start, end: after } = positions(list);
    let count = count.min(list.count) as i64;
    let (popped, kept) = match end {
        End::Left => (start..start + count, start + count..after),
        End::Right => (after - count..after, start..after - count),
    };
    let values = if count == 1 {
        vec![element(&write.view(), list, popped.start)?]
    } else {
        elements(&write.view(), list, popped, end.order())?
    };
    keep(write, list, kept)?;
    Ok(values)
}

/// Removes all elements but those at these positions. It writes as many rows as it removes, or as it keeps, if many more are removed.
pub(super) fn keep(write: &mut Write<'_>, list: &mut Collection, kept: Range<i64>) -> Result<()> {
    let Range { start, end } = positions(list);
    let removed = list.count - len(&kept);
    if removed > REMOVED_ROWS_MAX && len(&kept) < removed {
        return copy(write, list, kept);
    }
    write.view().check_rows(removed)?;
    for position in (start..kept.start).chain(kept.end..end) {
        write.delete_row(&element_key(list.id, position))?;
    }
    (list.first, list.count) = (kept.start, len(&kept));
    Ok(())
}

/// Gives the list another id, with copies of the elements at these positions. What it had is garbage once the head is written.
fn copy(write: &mut Write<'_>, list: &mut Collection, kept: Range<i64>) -> Result<()> {
    write.view().check_rows(len(&kept))?;
    let id = write.model.new_id(write.runner)?;
    for batch in batches(kept.clone()) {
        let values = elements(&write.view(), list, batch.clone(), Order::Forward)?;
        for (position, value) in batch.zip(&values) {
            write.put_row(&element_key(id, position), value)?;
        }
    }
    *list = Collection { id, count: len(&kept), first: kept.start };
    Ok(())
}

/// Makes room for an element before this position, on the side where fewer elements are moved; returns where it is.
pub(super) fn open_gap(write: &mut Write<'_>, list: &mut Collection, position: i64) -> Result<i64> {
    let Range { start, end } = positions(list);
    let (left, right) = (start..position, position..end);
    write.view().check_rows(len(&left).min(len(&right)))?;
    if len(&left) < len(&right) {
        list.first = start.checked_sub(1).ok_or(FULL)?;
        for batch in batches(left) {
            let values = elements(&write.view(), list, batch.clone(), Order::Forward)?;
            for (position, value) in batch.zip(&values) {
                write.put_row(&element_key(list.id, position - 1), value)?;
            }
        }
        list.count += 1;
        return Ok(position - 1);
    }
    if end == i64::MAX {
        return Err(FULL.into());
    }
    for batch in batches(right).rev() {
        let values = elements(&write.view(), list, batch.clone(), Order::Forward)?;
        for (position, value) in batch.zip(&values) {
            write.put_row(&element_key(list.id, position + 1), value)?;
        }
    }
    list.count += 1;
    Ok(position)
}

/// The same positions, some at a time.
pub(super) fn batches(positions: Range<i64>) -> impl DoubleEndedIterator<Item = Range<i64>> {
    let Range { start, end } = positions;
    let count = len(&(start..end)).div_ceil(BATCH_ROWS as u64) as i64;
    (0..count).map(move |batch| {
        let from = start + batch * BATCH_ROWS;
        from..from.saturating_add(BATCH_ROWS).min(end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(first: i64, count: u64) -> Collection {
        Collection { id: 1, count, first }
    }

    #[test]
    fn indices_count_from_either_end() {
        let list = list(-2, 5);
        let expected = [(0, Some(-2)), (4, Some(2)), (5, None), (-1, Some(2)), (-5, Some(-2)), (-6, None)];
        for (index, position) in expected.into_iter().chain([(i64::MIN, None), (i64::MAX, None)]) {
            assert_eq!(position_at(&list, index), position, "{index}");
        }
    }

    #[test]
    fn spans_are_those_of_lrange() {
        let list = list(10, 5);
        for (from, to, expected) in [
            (0, -1, 10..15),
            (1, 1, 11..12),
            (-2, -1, 13..15),
            (-100, 100, 10..15),
            (i64::MIN, i64::MAX, 10..15),
            (3, 2, 10..10),
            (5, 9, 10..10),
            (0, -6, 10..10),
            (0, i64::MIN, 10..10),
        ] {
            assert_eq!(span(&list, from, to), expected, "{from} {to}");
        }
        let last = super::tests::list(i64::MAX - 2, 2);
        assert_eq!(span(&last, 0, i64::MAX), i64::MAX - 2..i64::MAX);
        assert_eq!(position_at(&last, 2), None);
        let first = super::tests::list(i64::MIN, 2);
        assert_eq!(span(&first, -5, 0), i64::MIN..i64::MIN + 1);
        assert_eq!(position_at(&first, -3), None);
    }

    #[test]
    fn batches_are_the_positions_without_gaps() {
        for positions in [0..0, 5..6, -300..300, -256..256, i64::MAX - 257..i64::MAX] {
            let all: Vec<_> = batches(positions.clone()).collect();
            assert!(all.iter().flat_map(Range::clone).eq(positions.clone()), "{positions:?}");
            assert!(all.iter().all(|batch| !batch.is_empty() && len(batch) <= BATCH_ROWS as u64));
            assert!(batches(positions).rev().eq(all.into_iter().rev()));
        }
    }
}
