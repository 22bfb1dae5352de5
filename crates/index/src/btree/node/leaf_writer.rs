//! Collects the entries of one or several leaves in order and cuts them into leaves.

use std::ops::Range;

use fulgurite_types::TableId;

use super::entry::{self, SAME_KEY, Stamped};
use super::format::{Fences, HEADER_BYTES, SLOT_BYTES, len_u32, separator};
use super::leaf::Leaf;

/// How many leaves' worth of entries may collect before full leaves are cut off.
const COLLECT_LEAVES: usize = 64;

/// How full the leaves become when the entries do not fit into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// About equally: later entries may go anywhere.
    Even,
    /// Nearly full, except for the last leaf: later entries go to the end.
    Append,
}

/// A leaf that was cut, and its lower fence.
#[derive(Debug)]
pub(crate) struct Piece {
    pub lower: Vec<u8>,
    pub leaf: Leaf,
}

/// Collects entries; reuses its buffers for the next leaf.
pub(crate) struct LeafWriter {
    table: TableId,
    leaf_bytes: usize,
    heap: Vec<u8>,
    starts: Vec<u32>,
    lower: Vec<u8>,
    done: Vec<Piece>,
    /// Bytes of entries that were cut off since [`LeafWriter::begin`].
    cut_bytes: usize,
}

impl LeafWriter {
    pub(crate) fn new(table: TableId, leaf_bytes: usize) -> LeafWriter {
        LeafWriter {
            table,
            leaf_bytes,
            heap: Vec::new(),
            starts: Vec::new(),
            lower: Vec::new(),
            done: Vec::new(),
            cut_bytes: 0,
        }
    }

    /// Starts a leaf, or several, whose first lower fence is `lower`.
    pub(crate) fn begin(&mut self, lower: &[u8]) {
        self.heap.clear();
        self.starts.clear();
        self.done.clear();
        self.cut_bytes = 0;
        self.lower.clear();
        self.lower.extend_from_slice(lower);
    }

    /// How many bytes of entries were appended since [`LeafWriter::begin`].
    pub(crate) fn written(&self) -> usize {
        self.cut_bytes + self.heap.len()
    }

    /// Makes room for so many bytes and entries.
    pub(crate) fn reserve(&mut self, heap_bytes: usize, entries: usize) {
        self.heap.reserve(heap_bytes);
        self.starts.reserve(entries);
    }

    /// Appends entries of a leaf, unchanged.
    pub(crate) fn copy(&mut self, leaf: &Leaf, range: Range<usize>) {
        let (from, to) = (leaf.start(range.start), leaf.start(range.end));
        let shift = len_u32(self.heap.len());
        // The sum stays below 4 GiB, or the next `len_u32` panics.
        self.starts.extend(range.map(|index| shift.wrapping_add((leaf.start(index) - from) as u32)));
        self.heap.extend_from_slice(&leaf.heap()[from..to]);
    }

    /// Appends a key's versions, newest first.
    pub(crate) fn push(&mut self, key: &[u8], versions: &[Stamped<'_>]) {
        for (index, version) in versions.iter().enumerate() {
            self.starts.push(len_u32(self.heap.len()));
            entry::encode(&mut self.heap, key, version, if index > 0 { SAME_KEY } else { 0 });
        }
    }

    /// Cuts off full leaves if many entries have collected; called between keys.
    pub(crate) fn cut_full(&mut self) {
        if self.heap.len() < COLLECT_LEAVES * self.leaf_bytes {
            return;
        }
        let room = self.room(None);
        let mut from = 0;
        while self.weight(from) > 2 * room && self.group_end(from) < self.starts.len() {
            from = self.cut(from, room * 9 / 10);
        }
        if from == 0 {
            return;
        }
        let cut_at = self.starts[from];
        self.heap.drain(..cut_at as usize);
        self.cut_bytes += cut_at as usize;
        self.starts.drain(..from);
        for start in &mut self.starts {
            *start -= cut_at;
        }
    }

    /// Cuts the entries collected since [`LeafWriter::begin`] into leaves, at least one. The first one's lower fence is
    /// the one given to `begin`, the last one's upper fence is `upper`.
    pub(crate) fn finish(&mut self, upper: Option<&[u8]>, fill: Fill) -> Vec<Piece> {
        let room = self.room(upper);
        let mut from = 0;
        while self.weight(from) > room && self.group_end(from) < self.starts.len() {
            let target = match fill {
                Fill::Append => room * 31 / 32,
                Fill::Even => {
                    let rest = self.weight(from);
                    rest / rest.div_ceil((room * 9 / 10).max(1)).max(2)
                }
            };
            from = self.cut(from, target);
        }
        let fences = Fences { lower: &self.lower, upper, level: Some(0) };
        let leaf = Leaf::build(self.table, fences, &self.heap, &self.starts[from..], self.heap.len());
        self.done.push(Piece { lower: self.lower.clone(), leaf });
        std::mem::take(&mut self.done)
    }

    /// How many bytes of entries and slots a leaf has room for.
    fn room(&self, upper: Option<&[u8]>) -> usize {
        let fences = self.lower.len() + upper.map_or(self.lower.len(), <[u8]>::len);
        self.leaf_bytes.saturating_sub(HEADER_BYTES + fences).max(self.leaf_bytes / 4)
    }

    fn start(&self, index: usize) -> usize {
        self.starts.get(index).map_or(self.heap.len(), |start| *start as usize)
    }

    /// Bytes of entries and slots from entry `from` on.
    fn weight(&self, from: usize) -> usize {
        self.heap.len() - self.start(from) + (self.starts.len() - from) * SLOT_BYTES
    }

    fn is_same_key(&self, index: usize) -> bool {
        index < self.starts.len() && self.heap[self.start(index)] & SAME_KEY != 0
    }

    fn group_end(&self, index: usize) -> usize {
        let mut end = index + 1;
        while self.is_same_key(end) {
            end += 1;
        }
        end.min(self.starts.len())
    }

    /// Cuts one leaf of at most `target` bytes of entries and slots, or of one key, and returns the first entry of the
    /// rest. There must be a rest.
    fn cut(&mut self, from: usize, target: usize) -> usize {
        let first = self.start(from);
        let mut low = from;
        let mut high = self.starts.len();
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let weight = self.start(middle) - first + (middle - from) * SLOT_BYTES;
            if weight <= target { low = middle } else { high = middle }
        }
        let mut end = low;
        while end > from && self.is_same_key(end) {
            end -= 1;
        }
        if end == from {
            end = self.group_end(from);
        }
        assert!(end < self.starts.len(), "a cut leaves a rest");
        let key = |index: usize| {
            entry::Entry::decode(&self.heap, self.start(index)).expect("entries were just encoded").0.key
        };
        let upper = separator(key(end - 1), key(end)).to_vec();
        let fences = Fences { lower: &self.lower, upper: Some(&upper), level: Some(0) };
        let leaf = Leaf::build(self.table, fences, &self.heap, &self.starts[from..end], self.start(end));
        let lower = std::mem::replace(&mut self.lower, upper);
        self.done.push(Piece { lower, leaf });
        end
    }
}
