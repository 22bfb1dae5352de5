//! Intersections, unions and differences of sets, member by member: a result is in memory only as far as a reply has it.
//!
//! All sets have their members in one order, that of hash and name. So unions are merged from sorted rows, and need no memory of
//! what they had before; intersections, and differences of a small set, look each of its members up in the others.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Bound;

use crate::model::{Bounds, Collection, Order, Section, TableKey, View, section_bounds};
use crate::stop::Result;

/// What is made of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Intersection,
    Union,
    /// The members of the first that no other has.
    Difference,
}

/// How an operation finds its members.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// There are none.
    Nothing,
    /// Reads one set, and looks each member up in the others: it has to be in all of them, or in none.
    LookUp { set: Collection, others: Vec<Collection>, is_in_others: bool },
    /// Reads all sets side by side.
    Merge { sets: Vec<Collection>, is_difference: bool },
}

/// An estimate: a member is looked up in about the time in which so many are read in their order.
const LOOK_UP_ROWS: u64 = 4;

impl Plan {
    /// `None` is a key that does not exist. A set may come several times.
    fn of(operation: Operation, sets: &[Option<Collection>]) -> Plan {
        let mut present: Vec<Collection> = sets.iter().copied().flatten().collect();
        match operation {
            Operation::Intersection => {
                if present.len() < sets.len() || present.is_empty() {
                    return Plan::Nothing;
                }
                present.sort_by_key(|set| (set.count, set.id));
                present.dedup_by_key(|set| set.id);
                let set = present.remove(0);
                Plan::LookUp { set, others: present, is_in_others: true }
            }
            Operation::Union => {
                present.sort_by_key(|set| set.id);
                present.dedup_by_key(|set| set.id);
                if present.is_empty() {
                    return Plan::Nothing;
                }
                Plan::Merge { sets: present, is_difference: false }
            }
            Operation::Difference => {
                let Some(&Some(set)) = sets.first() else { return Plan::Nothing };
                let mut others = present.split_off(1);
                // Large ones first: a member is more likely to be in them.
                others.sort_by_key(|other| (Reverse(other.count), other.id));
                others.dedup_by_key(|other| other.id);
                if others.iter().any(|other| other.id == set.id) {
                    return Plan::Nothing;
                }
                let look_ups = set.count.saturating_mul(others.len() as u64);
                if look_ups.saturating_mul(LOOK_UP_ROWS) <= count_sum(&others) {
                    return Plan::LookUp { set, others, is_in_others: false };
                }
                others.insert(0, set);
                Plan::Merge { sets: others, is_difference: true }
            }
        }
    }

    /// How many rows it reads at most.
    fn rows(&self) -> u64 {
        match self {
            Plan::Nothing => 0,
            Plan::LookUp { set, others, .. } => set.count.saturating_mul(1 + others.len() as u64),
            Plan::Merge { sets, .. } => count_sum(sets),
        }
    }
}

fn count_sum(sets: &[Collection]) -> u64 {
    sets.iter().map(|set| set.count).reduce(u64::saturating_add).unwrap_or(0)
}

/// The members of an operation's result, one after the other.
#[derive(Clone, Debug)]
pub(super) enum Results {
    Nothing,
    LookUp { members: Box<Members>, others: Vec<Collection>, is_in_others: bool },
    Merge { sources: Vec<Members>, merge: Merge, is_difference: bool },
}

impl Results {
    /// Those of the sets of a view. Each call of [`next`](Results::next) needs a view that shows the same sets.
    ///
    /// # Errors
    /// [`Stop::Large`](crate::stop::Stop::Large) but on a long worker, if they are many rows.
    pub fn of(view: &View<'_>, operation: Operation, sets: &[Option<Collection>]) -> Result<Results> {
        let plan = Plan::of(operation, sets);
        view.check_rows(plan.rows())?;
        Ok(match plan {
            Plan::Nothing => Results::Nothing,
            Plan::LookUp { set, others, is_in_others } => {
                let members = Box::new(Members::new(&set, (BATCH_ROWS_MAX, BATCH_BYTES)));
                Results::LookUp { members, others, is_in_others }
            }
            Plan::Merge { sets, is_difference } => {
                let batch_rows = (MERGED_ROWS / sets.len()).clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX);
                let batch = (batch_rows, BATCH_BYTES / sets.len());
                let sources = sets.iter().map(|set| Members::new(set, batch)).collect::<Vec<_>>();
                let merge = Merge::new(sources.len());
                Results::Merge { sources, merge, is_difference }
            }
        })
    }

    /// The row of the next member, in one of the sets that have it.
    pub fn next(&mut self, view: &View<'_>) -> Result<Option<TableKey>> {
        match self {
            Results::Nothing => Ok(None),
            Results::LookUp { members, others, is_in_others } => {
                while let Some(row) = members.next(view)? {
                    if is_in_all_or_none(view, &row, others, *is_in_others)? {
                        return Ok(Some(row));
                    }
                }
                Ok(None)
            }
            Results::Merge { sources, merge, is_difference } => {
                while let Some(group) = merge.next(|source| sources[source].next(view))? {
                    if !*is_difference || group.is_of_first_alone {
                        return Ok(Some(group.row));
                    }
                    if merge.is_first_read {
                        break;
                    }
                }
                Ok(None)
            }
        }
    }
}

/// Whether all of these sets have a member, or, with `is_in` false, none of them.
fn is_in_all_or_none(view: &View<'_>, row: &[u8], sets: &[Collection], is_in: bool) -> Result<bool> {
    for set in sets {
        if view.row(&row_in(set, row))?.is_some() != is_in {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The key of a member of another set in this one.
pub(super) fn row_in(set: &Collection, row: &[u8]) -> TableKey {
    let mut key = TableKey::from_slice(&set.id.to_be_bytes());
    key.extend_from_slice(row.get(8..).unwrap_or_default());
    key
}

/// So many rows of a set are read at a time.
const BATCH_ROWS_MAX: usize = 256;
const BATCH_ROWS_MIN: usize = 16;

/// ... of so many bytes of all sets together, if a row of each has no more.
const BATCH_BYTES: usize = 256 << 10;

/// So many rows of all sets that are merged are in memory, if these are not very many.
const MERGED_ROWS: usize = 8192;

/// The members of a set in their order, read in batches.
#[derive(Clone, Debug)]
pub(super) struct Members {
    rest: Bounds,
    batch: std::vec::IntoIter<TableKey>,
    batch_rows: usize,
    /// A batch that is longer ends.
    batch_bytes: usize,
    /// Whether no rows follow the batch.
    is_last: bool,
}

impl Members {
    fn new(set: &Collection, (batch_rows, batch_bytes): (usize, usize)) -> Members {
        let rest = section_bounds(set.id, Section::Members);
        Members { rest, batch: Vec::new().into_iter(), batch_rows, batch_bytes, is_last: false }
    }

    fn next(&mut self, view: &View<'_>) -> Result<Option<TableKey>> {
        if self.batch.len() == 0 && !self.is_last {
            // Copies: a value keeps the node that it is in.
            let (mut rows, mut bytes) = (Vec::new(), 0);
            view.each_row(self.rest.clone(), Order::Forward, self.batch_rows, |row, _| {
                bytes += row.len();
                rows.push(TableKey::from_slice(&row));
                Ok(bytes < self.batch_bytes)
            })?;
            self.is_last = rows.len() < self.batch_rows && bytes < self.batch_bytes;
            if let Some(last) = rows.last() {
                self.rest.0 = Bound::Excluded(last.clone());
            }
            self.batch = rows.into_iter();
        }
        Ok(self.batch.next())
    }
}

/// Rows of several sources, each in the order of hash and name, by that order.
#[derive(Clone, Debug)]
pub(super) struct Merge {
    fronts: BinaryHeap<Reverse<Front>>,
    sources: usize,
    has_begun: bool,
    /// Whether the first source has no more rows.
    is_first_read: bool,
}

/// The rows of one member.
struct Group {
    /// The first of them, by the order of the sources.
    row: TableKey,
    /// Whether only the first source has it.
    is_of_first_alone: bool,
}

/// The next row of a source.
#[derive(Clone, Debug)]
struct Front {
    row: TableKey,
    source: usize,
}

impl Front {
    /// The hash and the name, which come after id and section.
    fn member(&self) -> &[u8] {
        self.row.get(9..).unwrap_or_default()
    }
}

impl Ord for Front {
    fn cmp(&self, other: &Front) -> Ordering {
        self.member().cmp(other.member()).then(self.source.cmp(&other.source))
    }
}

impl PartialOrd for Front {
    fn partial_cmp(&self, other: &Front) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Front {
    fn eq(&self, other: &Front) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Front {}

impl Merge {
    fn new(sources: usize) -> Merge {
        Merge { fronts: BinaryHeap::new(), sources, has_begun: false, is_first_read: false }
    }

    /// The next member; `next_row` returns the next row of a source.
    fn next(&mut self, mut next_row: impl FnMut(usize) -> Result<Option<TableKey>>) -> Result<Option<Group>> {
        if !self.has_begun {
            self.has_begun = true;
            (0..self.sources).try_for_each(|source| self.advance(source, &mut next_row))?;
        }
        let Some(Reverse(front)) = self.fronts.pop() else { return Ok(None) };
        self.advance(front.source, &mut next_row)?;
        let mut is_of_first_alone = front.source == 0;
        while let Some(Reverse(other)) = self.fronts.peek()
            && other.member() == front.member()
        {
            is_of_first_alone = false;
            let source = other.source;
            self.fronts.pop();
            self.advance(source, &mut next_row)?;
        }
        Ok(Some(Group { row: front.row, is_of_first_alone }))
    }

    fn advance(
        &mut self,
        source: usize,
        next_row: &mut impl FnMut(usize) -> Result<Option<TableKey>>,
    ) -> Result<()> {
        match next_row(source)? {
            Some(row) => self.fronts.push(Reverse(Front { row, source })),
            None => self.is_first_read |= source == 0,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{member_key, row_name};
    use crate::random::Random;

    fn set(id: u64, count: u64) -> Option<Collection> {
        Some(Collection { id, count, first: 0 })
    }

    fn ids(sets: &[Collection]) -> Vec<u64> {
        sets.iter().map(|set| set.id).collect()
    }

    #[test]
    fn intersections_read_the_smallest_set_once() {
        let plan =
            Plan::of(Operation::Intersection, &[set(1, 9), set(2, 3), set(1, 9), set(3, 5), set(2, 3)]);
        assert_eq!(plan.rows(), 9);
        let Plan::LookUp { set: read, others, is_in_others: true } = plan else { panic!("{plan:?}") };
        assert_eq!((read.id, ids(&others)), (2, vec![3, 1]));
        for sets in [&[set(1, 9), None][..], &[None], &[]] {
            assert_eq!(Plan::of(Operation::Intersection, sets), Plan::Nothing);
        }
    }

    #[test]
    fn unions_read_each_set_once() {
        let plan = Plan::of(Operation::Union, &[set(5, 9), None, set(2, 3), set(5, 9)]);
        assert_eq!(plan.rows(), 12);
        let Plan::Merge { sets, is_difference: false } = plan else { panic!("{plan:?}") };
        assert_eq!(ids(&sets), [2, 5]);
        assert_eq!(Plan::of(Operation::Union, &[None, None]), Plan::Nothing);
    }

    #[test]
    fn differences_look_up_the_members_of_a_small_set_and_merge_large_ones() {
        let plan = Plan::of(Operation::Difference, &[set(1, 10), set(2, 30), None, set(3, 50), set(2, 30)]);
        let Plan::LookUp { set: read, others, is_in_others: false } = plan else { panic!("{plan:?}") };
        assert_eq!((read.id, ids(&others)), (1, vec![3, 2]));
        let plan = Plan::of(Operation::Difference, &[set(3, 11), set(1, 30), set(2, 50)]);
        assert_eq!(plan.rows(), 91);
        let Plan::Merge { sets, is_difference: true } = plan else { panic!("{plan:?}") };
        assert_eq!(ids(&sets), [3, 2, 1]);
        // Nothing has to be looked up.
        let plan = Plan::of(Operation::Difference, &[set(1, 10), None]);
        assert_eq!(plan.rows(), 10);
        for sets in [&[None, set(1, 9)][..], &[set(1, 9), set(2, 3), set(1, 9)], &[]] {
            assert_eq!(Plan::of(Operation::Difference, sets), Plan::Nothing, "{sets:?}");
        }
    }

    #[test]
    fn merged_rows_are_the_union_and_say_what_the_first_source_has_alone() {
        const SEED: u64 = 7;
        let mut random = Random::new(1);
        for sources in 1..6 {
            let names: Vec<BTreeSet<String>> = (0..sources)
                .map(|_| (0..random.below(40)).map(|_| random.below(60).to_string()).collect())
                .collect();
            let mut rows: Vec<_> = (0_u64..)
                .zip(&names)
                .map(|(id, names)| {
                    let mut rows: Vec<_> =
                        names.iter().map(|name| member_key(id, SEED, name.as_bytes()).to_vec()).collect();
                    rows.sort();
                    rows.into_iter().map(TableKey::from_vec)
                })
                .collect();
            let mut merge = Merge::new(sources);
            let (mut union, mut difference) = (Vec::new(), BTreeSet::new());
            while let Some(group) = merge.next(|source| Ok(rows[source].next())).unwrap() {
                let name = String::from_utf8(row_name(&group.row).to_vec()).unwrap();
                if group.is_of_first_alone {
                    difference.insert(name.clone());
                }
                union.push(name);
            }
            let expected: BTreeSet<String> = names.iter().flatten().cloned().collect();
            assert_eq!(union.len(), expected.len(), "each once");
            assert_eq!(union.into_iter().collect::<BTreeSet<_>>(), expected);
            let others: BTreeSet<String> = names[1..].iter().flatten().cloned().collect();
            assert_eq!(difference, &names[0] - &others);
            assert!(merge.is_first_read);
        }
    }

    #[test]
    fn a_row_of_one_set_is_that_of_another_with_its_id() {
        let (one, other) = (set(1, 1).unwrap(), set(2, 1).unwrap());
        assert_eq!(row_in(&other, &member_key(one.id, 5, b"name")), member_key(other.id, 5, b"name"));
    }
}
