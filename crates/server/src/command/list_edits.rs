//! Changes in the middle of a list. `LINSERT` looks for its pivot from the left, and moves all elements on the shorter side of it;
//! `LREM` reads as far as it removes, and moves all elements that stay but those of the longest run between two that it removes. Both
//! cost up to as many rows as the list has.

use std::ops::Range;

use super::list_rows::{End, batches, bounds, elements, keep, len, open_gap, position_of, positions};
use crate::args::{Args, parse_within};
use crate::context::Context;
use crate::model::{Collection, Kind, Order, Write, element_key};
use crate::stop::{ErrorReply, Result};

/// `LINSERT key BEFORE|AFTER pivot element`
pub(super) fn linsert(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let is_after = if args.is(2, "after") {
        true
    } else if args.is(2, "before") {
        false
    } else {
        return Err(ErrorReply::SYNTAX.into());
    };
    let count = context.change(&args[1], Kind::List, |write, list| {
        let mut pivot = None;
        let rows = bounds(list.id, positions(list));
        write.view().each_row(rows, Order::Forward, usize::MAX, |row, value| {
            if value == args[3] {
                pivot = Some(position_of(&row)?);
            }
            Ok(pivot.is_none())
        })?;
        let Some(pivot) = pivot else { return Ok((false, -1)) };
        let position = open_gap(write, list, pivot + i64::from(is_after))?;
        write.put_row(&element_key(list.id, position), &args[4])?;
        Ok((true, list.count as i64))
    })?;
    context.reply().integer(count.unwrap_or(0));
    Ok(())
}

/// `LREM key count element`: the first ones, the last ones if the count is negative, or all if it is 0.
pub(super) fn lrem(context: &mut Context<'_>, args: &Args<'_>) -> Result<()> {
    let count = parse_within(&args[2], -i64::MAX..=i64::MAX)?;
    let end = if count < 0 { End::Right } else { End::Left };
    let max = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let removed = context.change(&args[1], Kind::List, |write, list| {
        let removed = remove(write, list, &args[3], end, max)?;
        Ok((removed > 0, removed))
    })?;
    context.reply().integer(removed.unwrap_or(0) as i64);
    Ok(())
}

/// The runs of elements between those that are removed, found from one end to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Runs {
    /// The positions after the last one that is removed.
    rest: Range<i64>,
    longest: Range<i64>,
    removed: u64,
}

impl Runs {
    fn new(positions: Range<i64>) -> Runs {
        Runs { longest: positions.start..positions.start, rest: positions, removed: 0 }
    }

    /// The next element that is removed, from this end.
    fn remove(&mut self, end: End, position: i64) {
        let run = match end {
            End::Left => std::mem::replace(&mut self.rest.start, position + 1)..position,
            End::Right => position + 1..std::mem::replace(&mut self.rest.end, position),
        };
        self.take(run);
        self.removed += 1;
    }

    fn take(&mut self, run: Range<i64>) {
        if len(&run) > len(&self.longest) {
            self.longest = run;
        }
    }

    /// The elements that need not be moved.
    fn longest(mut self) -> Range<i64> {
        self.take(self.rest.clone());
        self.longest
    }
}

/// Removes at most so many elements of a value; returns how many.
fn remove(write: &mut Write<'_>, list: &mut Collection, value: &[u8], end: End, max: u64) -> Result<u64> {
    let all = positions(list);
    let mut runs = Runs::new(all.clone());
    write.view().each_row(bounds(list.id, all.clone()), end.order(), usize::MAX, |row, found| {
        if found == *value {
            runs.remove(end, position_of(&row)?);
        }
        Ok(runs.removed < max)
    })?;
    let (removed, rest) = (runs.removed, runs.rest.clone());
    let stays = runs.longest();
    if removed == 0 {
        return Ok(0);
    }
    if removed == list.count {
        keep(write, list, all.start..all.start)?;
        return Ok(removed);
    }
    write.view().check_rows(list.count - len(&stays))?;
    let is_removed = |position: i64, found: &[u8]| found == value && !rest.contains(&position);
    let mut after = stays.end;
    for batch in batches(stays.end..all.end) {
        let values = elements(&write.view(), list, batch.clone(), Order::Forward)?;
        for (position, found) in batch.zip(&values) {
            if !is_removed(position, found) {
                write.put_row(&element_key(list.id, after), found)?;
                after += 1;
            }
        }
    }
    let mut first = stays.start;
    for batch in batches(all.start..stays.start).rev() {
        let values = elements(&write.view(), list, batch.clone(), Order::Backward)?;
        for (position, found) in batch.rev().zip(&values) {
            if !is_removed(position, found) {
                first -= 1;
                write.put_row(&element_key(list.id, first), found)?;
            }
        }
    }
    for position in (all.start..first).chain(after..all.end) {
        write.delete_row(&element_key(list.id, position))?;
    }
    (list.first, list.count) = (first, list.count - removed);
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(removed: &[i64], end: End) -> Runs {
        let mut runs = Runs::new(0..10);
        removed.iter().for_each(|&position| runs.remove(end, position));
        runs
    }

    #[test]
    fn the_longest_run_of_elements_stays() {
        for (removed, stays) in [
            (&[][..], 0..10),
            (&[0], 1..10),
            (&[9], 0..9),
            (&[4], 5..10),
            (&[2, 7], 3..7),
            (&[7, 8, 9], 0..7),
        ] {
            assert_eq!(runs(removed, End::Left).longest(), stays, "{removed:?}");
            let mut from_right = removed.to_vec();
            from_right.reverse();
            assert_eq!(runs(&from_right, End::Right).longest(), stays, "{removed:?}");
        }
        assert_eq!(runs(&[1, 3], End::Left).rest, 4..10);
        assert_eq!(runs(&[8, 6], End::Right).rest, 0..6);
        assert_eq!(runs(&[8, 6], End::Right).removed, 2);
    }
}
