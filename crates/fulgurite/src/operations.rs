//! The operations of a transaction on one table, by key.
//!
//! Most transactions have few, in one list, which is searched, filled and gone through faster than the nodes of a tree. Many are a tree.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::{Bound, RangeBounds};
use std::slice;

use smallvec::SmallVec;

use crate::write_set::WriteOp;

/// So many at most are in a list: one that is inserted moves half of them.
const FEW_MAX: usize = 32;

/// Bytes of a key or a value, on the heap only if they are more than most.
pub(crate) type ShortBytes = SmallVec<[u8; 32]>;

pub(crate) enum Operations {
    /// In the order of the keys.
    Few(Vec<(ShortBytes, WriteOp)>),
    Many(BTreeMap<ShortBytes, WriteOp>),
}

impl Default for Operations {
    fn default() -> Self {
        Operations::Few(Vec::new())
    }
}

/// The index of a key in a list, or `Err` with the index to insert it at.
fn index_of(few: &[(ShortBytes, WriteOp)], key: &[u8]) -> Result<usize, usize> {
    few.binary_search_by(|(other, _)| (**other).cmp(key))
}

impl Operations {
    pub fn len(&self) -> usize {
        match self {
            Operations::Few(few) => few.len(),
            Operations::Many(many) => many.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&WriteOp> {
        match self {
            Operations::Few(few) => index_of(few, key).ok().map(|index| &few[index].1),
            Operations::Many(many) => many.get(key),
        }
    }

    /// The same for a key with this hash: most keys of a list need not be compared.
    #[inline]
    pub fn find(&self, key: &[u8], hash: u64) -> Option<&WriteOp> {
        match self {
            Operations::Few(few) => {
                few.iter().find(|(other, op)| op.hash == hash && **other == *key).map(|(_, op)| op)
            }
            Operations::Many(many) => many.get(key),
        }
    }

    /// Inserts the operation that `op` makes of the one that the key has, which is returned.
    pub fn insert(&mut self, key: &[u8], op: impl FnOnce(Option<&WriteOp>) -> WriteOp) -> Option<WriteOp> {
        match self {
            Operations::Few(few) => match index_of(few, key) {
                Ok(index) => {
                    let held = &mut few[index].1;
                    let op = op(Some(held));
                    Some(std::mem::replace(held, op))
                }
                Err(index) if few.len() < FEW_MAX => {
                    few.insert(index, (ShortBytes::from_slice(key), op(None)));
                    None
                }
                Err(_) => {
                    let mut many = BTreeMap::from_iter(std::mem::take(few));
                    many.insert(ShortBytes::from_slice(key), op(None));
                    *self = Operations::Many(many);
                    None
                }
            },
            Operations::Many(many) => match many.entry(ShortBytes::from_slice(key)) {
                btree_map::Entry::Occupied(mut held) => {
                    let op = op(Some(held.get()));
                    Some(held.insert(op))
                }
                btree_map::Entry::Vacant(vacant) => {
                    vacant.insert(op(None));
                    None
                }
            },
        }
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<WriteOp> {
        match self {
            Operations::Few(few) => index_of(few, key).ok().map(|index| few.remove(index).1),
            Operations::Many(many) => many.remove(key),
        }
    }

    /// All, in the order of the keys.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        match self {
            Operations::Few(few) => Iter::Few(few.iter()),
            Operations::Many(many) => Iter::Many(many.range::<[u8], _>(..)),
        }
    }

    /// Those of the keys in a range, which does not end before it begins.
    pub fn range<'k>(&self, range: impl RangeBounds<[u8]> + 'k) -> Iter<'_> {
        match self {
            Operations::Few(few) => {
                let before = |key: &[u8]| few.partition_point(|(other, _)| **other < *key);
                let through = |key: &[u8]| few.partition_point(|(other, _)| **other <= *key);
                let start = match range.start_bound() {
                    Bound::Unbounded => 0,
                    Bound::Included(key) => before(key),
                    Bound::Excluded(key) => through(key),
                };
                let end = match range.end_bound() {
                    Bound::Unbounded => few.len(),
                    Bound::Included(key) => through(key),
                    Bound::Excluded(key) => before(key),
                };
                Iter::Few(few[start..end.max(start)].iter())
            }
            Operations::Many(many) => Iter::Many(many.range::<[u8], _>(range)),
        }
    }

    /// Calls `change` with each, until it fails.
    pub fn try_for_each_mut<E>(
        &mut self,
        mut change: impl FnMut(&[u8], &mut WriteOp) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Operations::Few(few) => few.iter_mut().try_for_each(|(key, op)| change(key, op)),
            Operations::Many(many) => many.iter_mut().try_for_each(|(key, op)| change(key, op)),
        }
    }
}

/// Some of the operations, in the order of the keys.
#[derive(Clone)]
pub(crate) enum Iter<'a> {
    Few(slice::Iter<'a, (ShortBytes, WriteOp)>),
    Many(btree_map::Range<'a, ShortBytes, WriteOp>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a WriteOp);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Iter::Few(few) => few.next().map(|(key, op)| (&**key, op)),
            Iter::Many(many) => many.next().map(|(key, op)| (&**key, op)),
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Iter::Few(few) => few.next_back().map(|(key, op)| (&**key, op)),
            Iter::Many(many) => many.next_back().map(|(key, op)| (&**key, op)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::write_set::WriteValue;

    /// A bad one: many have the same.
    fn hash_of(key: &[u8]) -> u64 {
        key.iter().map(|byte| u64::from(*byte)).sum()
    }

    fn op(key: &[u8], number: u64) -> WriteOp {
        WriteOp { value: WriteValue::Delete, expires_at_ms: number, read_before: false, hash: hash_of(key) }
    }

    fn numbers<'a>(ops: impl Iterator<Item = (&'a [u8], &'a WriteOp)>) -> Vec<(Vec<u8>, u64)> {
        ops.map(|(key, op)| (key.to_vec(), op.expires_at_ms)).collect()
    }

    proptest! {
        #[test]
        fn they_are_those_of_a_map(
            steps in prop::collection::vec((prop::collection::vec(0u8..4, 0..5), any::<bool>()), 0..120),
            from in prop::collection::vec(0u8..4, 0..5),
            len in 0usize..3,
        ) {
            let (mut ops, mut map) = (Operations::default(), BTreeMap::<Vec<u8>, u64>::new());
            for (number, (key, inserts)) in steps.into_iter().enumerate() {
                let number = number as u64;
                prop_assert_eq!(ops.get(&key).map(|op| op.expires_at_ms), map.get(&key).copied());
                prop_assert_eq!(ops.find(&key, hash_of(&key)).map(|op| op.expires_at_ms), map.get(&key).copied());
                if inserts || !number.is_multiple_of(3) {
                    let before = ops.insert(&key, |held| {
                        assert_eq!(held.map(|held| held.expires_at_ms), map.get(&key).copied());
                        op(&key, number)
                    });
                    prop_assert_eq!(before.map(|before| before.expires_at_ms), map.insert(key.clone(), number));
                } else {
                    prop_assert_eq!(ops.remove(&key).map(|op| op.expires_at_ms), map.remove(&key));
                }
                prop_assert_eq!((ops.len(), ops.is_empty()), (map.len(), map.is_empty()));
            }
            let all: Vec<_> = map.clone().into_iter().collect();
            prop_assert_eq!(numbers(ops.iter()), all.clone());
            let to = [&from[..], &[3; 3][..len]].concat();
            let bounds = [Bound::Included(&from[..]), Bound::Excluded(&from[..]), Bound::Unbounded];
            for start in bounds {
                for end in [Bound::Included(&to[..]), Bound::Excluded(&to[..]), Bound::Unbounded] {
                    if from == to && (start, end) == (Bound::Excluded(&from[..]), Bound::Excluded(&to[..])) {
                        continue;
                    }
                    let some: Vec<_> = map.range::<[u8], _>((start, end)).map(|(key, n)| (key.clone(), *n)).collect();
                    prop_assert_eq!(numbers(ops.range((start, end))), some.clone());
                    let mut back = numbers(ops.range((start, end)).rev());
                    back.reverse();
                    prop_assert_eq!(back, some);
                }
            }
            let mut seen = Vec::new();
            let stopped = ops.try_for_each_mut(|key, op| {
                op.expires_at_ms += 1;
                seen.push((key.to_vec(), op.expires_at_ms));
                if seen.len() == 40 { Err(()) } else { Ok(()) }
            });
            let changed: Vec<_> = all.into_iter().map(|(key, n)| (key, n + 1)).take(40).collect();
            prop_assert_eq!((stopped.is_err(), seen), (changed.len() == 40, changed));
        }
    }
}
