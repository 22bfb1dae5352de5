//! What a checkpoint needs at worst: the bytes that have to be kept for the way out of a full disk.
//!
//! A checkpoint writes each dirty node at most once, whole; before, it merges the memtables, each entry of which makes at
//! most one clean leaf dirty. So for one table, with `D` bytes of dirty nodes, `C` of clean ones, `E` entries in memtables
//! and `L` bytes in a leaf, it writes at most `D + min(E * L, C)` bytes of nodes as they are now, the inner nodes above
//! the leaves that the entries make dirty, and what the entries add to them.
//!
//! While a checkpoint is being written, `C` is the whole tree: a leaf that it has still to write may be made dirty again
//! by commits above its boundary, and the next checkpoint writes it once more. Both together write no more than
//! `D + min(E * L, whole tree)`.

/// What a node record takes beside its body, alignment included.
const RECORD_BYTES: u64 = 128;

/// One part in so many of the records goes to headers of segments, and to their ends, where the next record did not fit.
const OVERHEAD_SHARE: u64 = 16;

/// Inner nodes take at most this part of a tree: their children are leaves of at least some entries.
pub(crate) const INNER_SHARE: u64 = 16;

/// A checkpoint record's bytes for a table, and for each segment in its account.
const TABLE_RECORD_BYTES: u64 = 64;
const ACCOUNT_BYTES: u64 = 16;
/// A table's account names the segments into which the checkpoint writes, too.
const NEW_SEGMENTS: u64 = 2;

/// What a commit takes of the log beside its operations, if it has a group of its own: headers, and the rest of a block.
pub(crate) const FRAME_BYTES: usize = 4096;

/// What one table adds to a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableLoad {
    /// Bytes of its dirty nodes.
    pub dirty_bytes: u64,
    /// Bytes of its clean nodes, as far as they are known: at most its live bytes on disk.
    pub clean_bytes: u64,
    /// Versions in its memtables.
    pub entries: u64,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
    /// Target size of its leaves.
    pub leaf_bytes: u64,
    /// Segments with live bytes of it.
    pub segments: u64,
    /// Bytes of its range tombstones.
    pub range_delete_bytes: u64,
}

impl TableLoad {
    /// The most bytes of nodes that checkpoints from here write. `is_writing`: one is being written now.
    fn node_bytes(&self, is_writing: bool) -> u64 {
        let leaves = self.entries.saturating_mul(self.leaf_bytes + RECORD_BYTES);
        let tree = if is_writing { self.clean_bytes + self.dirty_bytes } else { self.clean_bytes };
        let inner = leaves.saturating_mul(2).min(tree / INNER_SHARE + 2 * self.leaf_bytes);
        let grown = self.memtable_bytes.min(leaves);
        if self.entries == 0 { self.dirty_bytes } else { self.dirty_bytes + leaves.min(tree) + inner + grown }
    }

    /// All of it once more, whatever is in its memtables.
    fn tree_bytes(&self) -> u64 {
        self.clean_bytes + self.dirty_bytes
    }

    fn record_bytes(&self) -> u64 {
        TABLE_RECORD_BYTES + ACCOUNT_BYTES * (self.segments + NEW_SEGMENTS) + self.range_delete_bytes
    }
}

/// What checkpoints from here need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    nodes: u64,
    record: u64,
    trees: u64,
}

impl Need {
    pub fn add(&mut self, load: &TableLoad, is_writing: bool) {
        self.nodes = self.nodes.saturating_add(load.node_bytes(is_writing));
        self.record += load.record_bytes();
        self.trees += load.tree_bytes();
    }

    /// The records of so many tables that have nothing else to write, each with live bytes in a few segments.
    pub fn add_records(&mut self, tables: u64) {
        self.record += tables * TableLoad { segments: NEW_SEGMENTS, ..TableLoad::default() }.record_bytes();
    }

    /// All bytes of it, those that the log adds included.
    pub fn bytes(&self) -> u64 {
        let records = self.nodes.saturating_add(self.record);
        records.saturating_add(records / OVERHEAD_SHARE)
    }

    /// By how much it can rise at once, however many entries one transaction has: every tree is written once more.
    pub fn trees(&self) -> u64 {
        self.trees + self.trees / OVERHEAD_SHARE
    }
}

/// What a commit adds, at most, to what the next checkpoint needs, and what it takes of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteCost {
    /// Keys that it writes.
    pub entries: u64,
    /// Bytes of memory that they take.
    pub memory: u64,
    /// Bytes that it appends to the log.
    pub log_bytes: u64,
}

impl WriteCost {
    /// A range delete counts as so many keys: it changes the leaves at both ends, and those that are joined.
    pub const RANGE_ENTRIES: u64 = 8;

    /// A commit of one operation, whose key and value have so many bytes.
    pub fn of_one(bytes: usize) -> WriteCost {
        WriteCost { entries: 1, memory: bytes as u64, log_bytes: (bytes + FRAME_BYTES) as u64 }
    }

    /// Chunks of so many bytes, which are written ahead: only three of them fit into the smallest segment, and leave a
    /// quarter of it empty.
    pub fn of_chunks(bytes: usize) -> WriteCost {
        WriteCost { entries: 0, memory: 0, log_bytes: (bytes + bytes / 3 + FRAME_BYTES) as u64 }
    }

    /// At least as high as both, whatever the trees.
    pub fn max(&self, other: &WriteCost) -> WriteCost {
        WriteCost {
            entries: self.entries.max(other.entries),
            memory: self.memory.max(other.memory),
            log_bytes: self.log_bytes.max(other.log_bytes),
        }
    }

    /// In bytes, of leaves of `leaf_bytes`. `trees`: [`Need::trees`].
    pub fn bytes(&self, leaf_bytes: u64, trees: u64) -> u64 {
        let leaves = self.entries.saturating_mul(leaf_bytes + RECORD_BYTES);
        let grown = self.memory.min(leaves);
        leaves.min(trees) + grown + self.log_bytes + self.log_bytes / OVERHEAD_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn load(dirty: u64, clean: u64, entries: u64) -> TableLoad {
        let memtable_bytes = entries * 200;
        let (dirty_bytes, clean_bytes) = (dirty * MIB, clean * MIB);
        TableLoad {
            dirty_bytes,
            clean_bytes,
            entries,
            memtable_bytes,
            leaf_bytes: 8192,
            ..TableLoad::default()
        }
    }

    #[test]
    fn a_tree_is_written_at_most_once_and_once_more_while_one_is_being_written() {
        let scattered = load(20, 60, 1_000_000);
        let grown = 200_000_000 + 16 * 1024;
        assert_eq!(scattered.node_bytes(false), 80 * MIB + grown + 60 * MIB / INNER_SHARE);
        assert_eq!(scattered.node_bytes(true), 100 * MIB + grown + 80 * MIB / INNER_SHARE);
        let merged = load(20, 60, 0);
        assert_eq!((merged.node_bytes(false), merged.node_bytes(true)), (20 * MIB, 20 * MIB));
    }

    #[test]
    fn few_entries_make_few_leaves_dirty() {
        let few = load(0, 60, 10);
        assert!(few.node_bytes(false) < 400_000 && few.node_bytes(false) > 10 * 8192);
    }

    /// The memtables' bytes alone, which were kept once, are a small part of what a checkpoint writes.
    #[test]
    fn the_memtables_alone_are_not_enough() {
        let mut need = Need::default();
        let load = load(0, 80, 20_000);
        need.add(&load, false);
        assert!(need.bytes() > 80 * MIB && load.memtable_bytes < 4 * MIB);
    }

    #[test]
    fn a_commit_costs_its_leaves_up_to_the_trees_and_its_log() {
        let cost = WriteCost { entries: 100, memory: 20_000, log_bytes: 16_000 };
        assert_eq!(cost.bytes(8192, u64::MAX), 100 * (8192 + RECORD_BYTES) + 20_000 + 17_000);
        assert_eq!(cost.bytes(8192, 5000), 5000 + 20_000 + 17_000);
    }
}
