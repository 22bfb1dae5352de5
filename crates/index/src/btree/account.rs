//! The live bytes that a node's newest record accounts for, and the keys that changed since its full record.

use fulgurite_types::Lsn;

use super::node::leaf::Leaf;
use super::slot::{Node, OUTDATED, Slot};
use super::tree::Tree;
use super::write_out::Pending;
use crate::{AccountChange, DATA_ACCOUNT, NodeStore, OutOfLine};

/// The keys that changed since the full record: `(length u16, key)*`, ascending; or too many to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Keys(Vec<u8>),
    Whole,
}

/// A list of changed keys that is longer than the leaf divided by this is not kept: a delta record would be longer still, and
/// the default rule takes none of half of the leaf or more.
const LISTED_SHARE: usize = 2;

/// Appends a key to a list of keys.
pub(crate) fn push_key(list: &mut Vec<u8>, key: &[u8]) {
    list.extend_from_slice(&(key.len() as u16).to_le_bytes());
    list.extend_from_slice(key);
}

/// The keys of a list.
pub(crate) fn keys_iter(mut list: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = list.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)));
        list = rest;
        Some(key)
    })
}

impl Changed {
    /// Adds the keys of `touched`; becomes `Whole` if the list would exceed `bytes_max`.
    pub(crate) fn add(&mut self, touched: &[u8], bytes_max: usize) {
        let Changed::Keys(old) = self else { return };
        if old.len() + touched.len() > bytes_max {
            *self = Changed::Whole;
            return;
        }
        *old = union(old, touched);
    }
}

/// The keys of both lists, each once.
fn union(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (keys_iter(left).peekable(), keys_iter(right).peekable());
    loop {
        let key = match (left.peek(), right.peek()) {
            (None, None) => return merged,
            (Some(key), None) | (None, Some(key)) => *key,
            (Some(a), Some(b)) => *a.min(b),
        };
        push_key(&mut merged, key);
        left.next_if_eq(&key);
        right.next_if_eq(&key);
    }
}

/// The accounts of a slot's newest record and of its full record.
#[derive(Clone, Debug)]
pub(crate) struct DiskState {
    /// The full record.
    pub full: Lsn,
    /// Bytes of the log that it occupies.
    pub full_bytes: u32,
    /// How many leaf delta records were written since.
    pub deltas: u8,
    /// The bytes of their bodies; of a leaf that was loaded an estimate: each was longer than the one before.
    pub deltas_bytes: u32,
    pub changed: Changed,
    /// Live bytes by segment, ascending.
    pub counted: Vec<AccountChange>,
    /// The pass that wrote the newest record; 0 if it was loaded.
    pub pass: u64,
}

impl DiskState {
    /// How many bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let keys = match &self.changed {
            Changed::Keys(keys) => keys.capacity(),
            Changed::Whole => 0,
        };
        size_of::<DiskState>() + keys + self.counted.capacity() * size_of::<AccountChange>()
    }

    /// The state of a node that has not changed since it was loaded from `lsn`.
    pub(crate) fn of_loaded(node: &Node, lsn: Lsn, store: &dyn NodeStore) -> DiskState {
        let mut counted = match node {
            Node::Inner(_) => Vec::new(),
            Node::Leaf(leaf) => count_entries(leaf),
        };
        let (full, full_len, (deltas, deltas_bytes), changed) = match node {
            Node::Inner(inner) => (lsn, inner.loaded_len(), (0, 0), Vec::new()),
            Node::Leaf(leaf) => match leaf.origin() {
                None => (lsn, leaf.encoded_len(), (0, 0), Vec::new()),
                Some(origin) => match &origin.delta {
                    None => (origin.full, origin.full_len, (0, 0), Vec::new()),
                    Some(delta) => {
                        count(&mut counted, lsn.segment(), i64::from(store.node_bytes(delta.len)));
                        let bytes = (delta.len * usize::from(delta.ordinal)).div_ceil(2) as u32;
                        (origin.full, origin.full_len, (delta.ordinal, bytes), delta.keys.clone())
                    }
                },
            },
        };
        let full_bytes = store.node_bytes(full_len);
        count(&mut counted, full.segment(), i64::from(full_bytes));
        counted.shrink_to_fit();
        let changed = Changed::Keys(changed);
        DiskState { full, full_bytes, deltas, deltas_bytes, changed, counted, pass: 0 }
    }
}

impl Slot {
    /// Records the accounts of the slot's record before its node changes.
    pub(crate) fn remember(&self, store: &dyn NodeStore) {
        let lsn = self.lsn();
        let mut disk = self.disk();
        if disk.is_none()
            && !lsn.is_null()
            && let Ok(node) = self.node()
        {
            *disk = Some(Box::new(DiskState::of_loaded(&node, lsn, store)));
        }
    }
}

impl Tree {
    /// Replaces a slot's node, after recording the accounts of its record. `touched` lists the keys of a leaf that
    /// changed; `None`: the children change, or the node is another one's.
    pub(crate) fn replace(&self, slot: &Slot, node: Node, touched: Option<&[u8]>) {
        slot.remember(&*self.nodes.store);
        if let Some(disk) = &mut *slot.disk() {
            match touched {
                Some(touched) => disk.changed.add(touched, self.options.leaf_bytes / LISTED_SHARE),
                None => disk.changed = Changed::Whole,
            }
        }
        slot.replace(node);
        if touched.is_none() {
            slot.mark(OUTDATED);
        }
    }

    /// Retires a slot that left the tree: its record no longer counts as live.
    pub(crate) fn retire(&self, slot: &Slot, pending: &mut Pending) {
        slot.remember(&*self.nodes.store);
        if let Some(disk) = slot.disk().take() {
            pending.subtract(&disk.counted);
        }
        slot.retire();
    }
}

/// Adds `bytes` to a segment's account, in a list that ascends by segment.
pub(crate) fn count(accounts: &mut Vec<AccountChange>, segment: u32, bytes: i64) {
    match accounts.binary_search_by_key(&segment, |(own, _)| *own) {
        Ok(at) => accounts[at].1 += bytes,
        Err(at) => accounts.insert(at, (segment, bytes)),
    }
}

/// The values that a leaf references, and its keys and their newest values, by segment, ascending.
pub(crate) fn count_entries(leaf: &Leaf) -> Vec<AccountChange> {
    let mut accounts = Vec::new();
    let mut data_bytes = 0;
    for entry in leaf.entries() {
        let mut value_bytes = entry.payload.len();
        if entry.version_flags().is_out_of_line()
            && let Ok(value) = OutOfLine::decode(entry.payload)
        {
            value_bytes = value.len as usize;
            let extents = value.extents.iter();
            accounts.extend(extents.map(|extent| (extent.lsn.segment(), i64::from(extent.len))));
        }
        if !entry.is_same_key() && !entry.version_flags().is_tombstone() {
            data_bytes += (entry.key.len() + value_bytes) as i64;
        }
    }
    if data_bytes > 0 {
        accounts.push((DATA_ACCOUNT, data_bytes));
    }
    accounts.sort_unstable_by_key(|(segment, _)| *segment);
    accounts.dedup_by(|later, first| {
        let is_same = later.0 == first.0;
        first.1 += if is_same { later.1 } else { 0 };
        is_same
    });
    accounts
}

/// What changes from the accounts `old` to `new`, both ascending by segment: most of a leaf's values stay where they are.
pub(crate) fn differences(
    old: &[AccountChange],
    new: &[AccountChange],
) -> impl Iterator<Item = AccountChange> {
    let (mut old, mut new) = (old.iter().copied().peekable(), new.iter().copied().peekable());
    std::iter::from_fn(move || {
        let segments = [old.peek(), new.peek()].map(|next| next.map(|(segment, _)| *segment));
        let segment = segments.into_iter().flatten().min()?;
        let is_of = |(own, _): &AccountChange| *own == segment;
        let before = old.next_if(is_of).map_or(0, |(_, bytes)| bytes);
        let after = new.next_if(is_of).map_or(0, |(_, bytes)| bytes);
        Some((segment, after - before))
    })
    .filter(|(_, bytes)| *bytes != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_ascend_and_only_what_differs_is_named() {
        let mut accounts = Vec::new();
        [(5, 1), (2, 10), (5, 2), (9, 3)]
            .iter()
            .for_each(|(segment, bytes)| count(&mut accounts, *segment, *bytes));
        assert_eq!(accounts, [(2, 10), (5, 3), (9, 3)]);
        let differing = |old: &[_], new: &[_]| differences(old, new).collect::<Vec<_>>();
        assert_eq!(differing(&accounts, &[(1, 7), (2, 10), (5, 1)]), [(1, 7), (5, -2), (9, -3)]);
        assert_eq!(differing(&accounts, &accounts), []);
        assert_eq!(differing(&[], &accounts), accounts);
    }
}
