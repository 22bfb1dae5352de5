//! The keys of a database that match a pattern, for a reply, which are read piece by piece.
//!
//! How many they are comes first in the reply. So they are read twice in one snapshot: to count them, which keeps the first piece of
//! them, and to send the others.

use std::ops::Bound;

use fulgurite::Snapshot;
use fulgurite::limits::KEY_BYTES_MAX;
use fulgurite_resp::{Encoder, Protocol};

use super::content::Bounds;
use super::long_text::PIECE_BYTES;
use super::tables::{Model, TableKey, head_key, split_head_key};
use super::view::{Source, View};
use super::write::{DAMAGED, Old};
use crate::glob;
use crate::pace;
use crate::runner::Runner;
use crate::stop::Result;

/// Keys at one commit and one time, in their order. While it lives, the database keeps them.
#[derive(Clone, Debug)]
pub(crate) struct LongKeys {
    snapshot: Snapshot,
    now_ms: u64,
    keyspace: u32,
    pattern: Box<[u8]>,
    /// The row of the last key that was read.
    last: TableKey,
    /// How many are to come, those of the first piece included.
    left: usize,
    /// The first piece, and how many keys it has.
    first: (Vec<u8>, usize),
}

/// The rows of the heads of a keyspace.
pub(crate) fn keyspace_bounds(keyspace: u32) -> Bounds {
    let end = keyspace.checked_add(1).map_or(Bound::Unbounded, |next| Bound::Excluded(head_key(next, b"")));
    (Bound::Included(head_key(keyspace, b"")), end)
}

impl LongKeys {
    /// How many are to come.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Appends the next ones: so many that they have the length of a piece, but for the last one.
    pub fn read_piece(&mut self, model: &Model, protocol: Protocol, out: &mut Vec<u8>) -> Result<()> {
        let (first, keys) = std::mem::take(&mut self.first);
        if keys > 0 {
            out.extend_from_slice(&first);
            self.left -= keys;
            return Ok(());
        }
        if self.left == 0 {
            return Ok(());
        }
        let end = out.len() + PIECE_BYTES;
        let mut left = self.left;
        let from = Bound::Excluded(self.last.clone());
        let last = self.each(model, from, |row, key| {
            Encoder::new(out, protocol).bulk(key);
            left -= 1;
            (left == 0 || out.len() >= end).then(|| TableKey::from_slice(row))
        })?;
        self.left = left;
        self.last = last.ok_or(DAMAGED)?;
        Ok(())
    }

    /// Calls `key` with each key that matches, from a row on, and its row, until it returns something.
    fn each<T>(
        &self,
        model: &Model,
        from: Bound<TableKey>,
        mut key: impl FnMut(&[u8], &[u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        let bounds = (from, keyspace_bounds(self.keyspace).1);
        for entry in self.snapshot.range(&model.tables.heads, bounds)? {
            let (row, record) = entry?;
            pace::step();
            let Some((_, name)) = split_head_key(&row) else { continue };
            if !glob::matches(&self.pattern, name)
                || !Old::decode(record, Runner::LongWorker)?.head.is_live(self.now_ms)
            {
                continue;
            }
            if let Some(found) = key(&row, name) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl View<'_> {
    /// The keys that match a pattern, for a reply that leaves in pieces, on a long worker. `None` in a transaction.
    pub fn keys_to_send(&self, pattern: &[u8]) -> Result<Option<LongKeys>> {
        let Source::Snapshot(snapshot) = self.source else { return Ok(None) };
        let mut keys = LongKeys {
            snapshot: snapshot.clone(),
            now_ms: self.now_ms,
            keyspace: self.keyspace,
            pattern: pattern.into(),
            last: TableKey::new(),
            left: 0,
            first: (Vec::new(), 0),
        };
        let (mut count, mut first, mut last) = (0, (Vec::new(), 0), TableKey::new());
        first.0.reserve_exact(PIECE_BYTES + KEY_BYTES_MAX);
        keys.each(self.model, keyspace_bounds(self.keyspace).0, |row, key| {
            count += 1;
            if first.0.len() < PIECE_BYTES {
                Encoder::new(&mut first.0, Protocol::default()).bulk(key);
                first.1 += 1;
                last = TableKey::from_slice(row);
            }
            None::<()>
        })?;
        (keys.left, keys.first, keys.last) = (count, first, last);
        Ok(Some(keys))
    }
}
