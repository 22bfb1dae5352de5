//! Merges a batch into one leaf, or prunes the leaf.

use std::ops::Range;

use fulgurite_types::Lsn;

use super::merge::{Kind, Work};
use super::node::entry::{Stamped, VERSION_FLAGS};
use super::node::format::Fences;
use super::node::leaf::Leaf;
use super::node::leaf_writer::{Fill, LeafWriter, Piece};
use super::prune::Pruner;
use super::tree::Tree;
use crate::btree::account::push_key;
use crate::{MergeSource, MergeVersion, OutOfLine, PruneRules, VersionFlags};

/// Most entries have at least so many bytes.
const ENTRY_BYTES_LEAST: usize = 64;

/// Rebuilds leaves, one after the other, with the same buffers.
pub(crate) struct LeafMerger<'a> {
    pruner: Pruner<'a>,
    rules: &'a PruneRules,
    writer: LeafWriter,
    key: Vec<u8>,
    batch: Vec<MergeVersion<'static>>,
    merged: Vec<Stamped<'static>>,
    /// Where the values began that the leaf does not refer to any more, of the key that was merged last.
    dropped: Vec<Lsn>,
    /// The keys that changed in the last rebuilt leaf ([`super::account::Changed`]).
    pub touched: Vec<u8>,
    /// How many versions were added, minus those removed.
    pub added: i64,
    /// The same of versions that are not their key's newest.
    pub superseded: i64,
}

impl<'a> LeafMerger<'a> {
    pub(crate) fn new(tree: &Tree, rules: &'a PruneRules) -> LeafMerger<'a> {
        let leaf_bytes = tree.options.leaf_bytes;
        let mut writer = LeafWriter::new(tree.nodes.table, leaf_bytes);
        // At once, as most leaves need no more.
        writer.reserve(leaf_bytes / 4 * 5, leaf_bytes / ENTRY_BYTES_LEAST);
        LeafMerger {
            pruner: Pruner::new(rules),
            rules,
            writer,
            key: Vec::new(),
            batch: Vec::new(),
            merged: Vec::new(),
            dropped: Vec::new(),
            touched: Vec::new(),
            added: 0,
            superseded: 0,
        }
    }

    /// Does the work on a leaf, up to its upper fence, or of its first keys, where so much is added that the step ends within it;
    /// `None` if that changes nothing.
    pub(crate) fn merge(
        &mut self,
        leaf: &Leaf,
        fences: Fences<'_>,
        work: &mut Work<'_>,
    ) -> Option<Vec<Piece>> {
        self.writer.begin(fences.lower);
        self.touched.clear();
        let added_before = self.added;
        let bytes_max = work.begin_leaf(leaf.bytes().len());
        let fill = match &mut work.kind {
            Kind::Merge(source) => self.merge_groups(leaf, fences, *source, bytes_max),
            Kind::Purge(purge) => {
                self.prune(leaf, 0..leaf.count(), !self.rules.range_deletes.is_empty());
                purge.advance(fences.upper);
                Fill::Even
            }
        };
        work.spend(self.writer.written().max(leaf.bytes().len()));
        debug_assert!(work.peek(fences.upper).is_none(), "a step that ends within a leaf has nothing left");
        if self.touched.is_empty() {
            self.added = added_before;
            return None;
        }
        Some(self.writer.finish(fences.upper, fill))
    }

    /// Ends early once it has written `bytes_max`: between two keys, and after one at least.
    fn merge_groups(
        &mut self,
        leaf: &Leaf,
        fences: Fences<'_>,
        source: &mut dyn MergeSource,
        bytes_max: usize,
    ) -> Fill {
        let mut copied = 0;
        let mut fill = None;
        let mut key = std::mem::take(&mut self.key);
        let mut is_first = true;
        while is_first || self.writer.written() < bytes_max {
            let Some(next) = source.peek_key().filter(|next| fences.admits(next)) else { break };
            assert!(is_first || next > key.as_slice(), "a batch's keys must ascend");
            is_first = false;
            key.clear();
            key.extend_from_slice(next);
            let group = if copied == leaf.count() { copied..copied } else { leaf.group(&key) };
            if group.start > copied {
                self.copy(leaf, copied..group.start);
            }
            copied = group.end;
            let appends = group.start == leaf.count() && leaf.count() > 0;
            fill.get_or_insert(if appends { Fill::Append } else { Fill::Even });

            let mut batch = std::mem::take(&mut self.batch);
            let mut merged = std::mem::take(&mut self.merged);
            self.batch = {
                let mut batch: Vec<MergeVersion<'_>> = std::mem::take(&mut batch);
                let mut merged: Vec<Stamped<'_>> = std::mem::take(&mut merged);
                source.take_versions(&mut batch);
                merge_versions(leaf, group.clone(), &batch, &mut merged);
                self.write_group(leaf, &key, group.clone(), &mut merged);
                self.note_dropped(leaf, group, &merged);
                self.merged = recycle(merged);
                recycle(batch)
            };
            self.dropped.drain(..).for_each(|lsn| source.dropped(lsn));
            self.writer.cut_full();
        }
        self.key = key;
        self.copy(leaf, copied..leaf.count());
        fill.unwrap_or(Fill::Even)
    }

    /// Notes the out-of-line values of the leaf's entries in `group` that are not among the versions that `stay`.
    fn note_dropped(&mut self, leaf: &Leaf, group: Range<usize>, stay: &[Stamped<'_>]) {
        for entry in group.map(|index| leaf.entry(index)) {
            if entry.version_flags().is_out_of_line()
                && stay.iter().all(|version| version.csn != entry.csn)
                && let Some((lsn, _)) = OutOfLine::identity(entry.payload)
            {
                self.dropped.push(lsn);
            }
        }
    }

    /// Appends entries whose keys do not change. The leaf is rebuilt anyway, so versions that no reader sees any more are
    /// pruned: a snapshot that was open when they were merged may have kept one of each key.
    fn copy(&mut self, leaf: &Leaf, range: Range<usize>) {
        if leaf.may_be_pruned() {
            self.prune(leaf, range, false);
        } else {
            self.writer.copy(leaf, range);
        }
    }

    /// Appends entries, which start and end keys, and prunes them. `range_deletes`: also versions that are their key's only one
    /// and hidden by a range tombstone.
    fn prune(&mut self, leaf: &Leaf, range: Range<usize>, range_deletes: bool) {
        let (mut copied, mut index) = (range.start, range.start);
        let mut versions = Vec::new();
        while index < range.end {
            let group = index..leaf.group_end(index);
            index = group.end;
            let first = leaf.entry(group.start);
            if group.len() == 1 && !range_deletes && self.pruner.keeps_alone(&first.stamped()) {
                continue;
            }
            versions.clear();
            versions.extend(group.clone().map(|index| leaf.entry(index).stamped()));
            self.writer.copy(leaf, copied..group.start);
            copied = group.end;
            self.write_group(leaf, first.key, group, &mut versions);
        }
        self.writer.copy(leaf, copied..range.end);
    }

    /// Prunes the versions of a key, which include the leaf's entries in `group`, and writes those that stay.
    fn write_group(&mut self, leaf: &Leaf, key: &[u8], group: Range<usize>, versions: &mut Vec<Stamped<'_>>) {
        let range_deletes = &self.rules.range_deletes;
        let alone = versions.len() == 1 && self.pruner.keeps_alone(&versions[0]);
        if !range_deletes.is_empty() {
            self.pruner.prune(versions, |at| range_deletes.covering(key, at));
        } else if !alone {
            self.pruner.prune(versions, |_| None);
        }
        let is_same = versions.len() == group.len()
            && group
                .clone()
                .zip(versions.iter())
                .all(|(index, version)| leaf.entry(index).csn == version.csn);
        if !is_same {
            push_key(&mut self.touched, key);
            let superseded = |versions: usize| versions.saturating_sub(1) as i64;
            self.added += versions.len() as i64 - group.len() as i64;
            self.superseded += superseded(versions.len()) - superseded(group.len());
        }
        self.writer.push(key, versions);
    }
}

/// Merges a key's versions in a leaf with those of a batch, newest first. Of two versions with one CSN the leaf's
/// stays: its value may have been relocated since.
fn merge_versions<'v>(
    leaf: &'v Leaf,
    group: Range<usize>,
    batch: &'v [MergeVersion<'_>],
    merged: &mut Vec<Stamped<'v>>,
) {
    assert!(batch.is_sorted_by(|a, b| a.csn >= b.csn), "versions come newest first");
    let mut old = group.map(|index| leaf.entry(index).stamped()).peekable();
    for version in batch {
        while let Some(newer) = old.next_if(|own| own.csn >= version.csn) {
            merged.push(newer);
        }
        if merged.last().is_none_or(|last| last.csn != version.csn) {
            let expiry = if version.expires_at_ms != 0 { VersionFlags::EXPIRES } else { 0 };
            merged.push(Stamped {
                flags: (version.flags.0 | expiry) & VERSION_FLAGS,
                csn: version.csn,
                expires_at_ms: version.expires_at_ms,
                payload: &version.payload,
            });
        }
    }
    merged.extend(old);
}

/// Empties a vector and changes its element's lifetime; the allocation stays.
fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    vec.clear();
    vec.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
