//! A whole memtable as a sorted batch for the base.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use fulgurite_types::Lsn;

use super::linking::Numbered;
use super::node::NodeRef;
use crate::base::{MergeSource, MergeVersion, OutOfLineValues};
use crate::memory::IndexMemory;
use crate::version::{Extent, OutOfLine, VersionFlags};

/// The versions of one memtable: keys ascending, each with its versions, newest first.
pub struct MemtableSource<'g> {
    /// Sorted.
    nodes: Vec<Numbered<'g>>,
    taken: usize,
    inline_max: usize,
    /// The keys' newest versions whose values the base does not get, since they were last reported.
    left: Vec<NodeRef<'g>>,
    dropped: Vec<Lsn>,
    memory: &'g IndexMemory,
}

/// The nodes that come so many later are loaded meanwhile.
const PREFETCHED: usize = 8;

impl<'g> MemtableSource<'g> {
    /// Of all versions of a memtable, in order.
    pub(super) fn new(
        nodes: Vec<Numbered<'g>>,
        inline_max: usize,
        memory: &'g IndexMemory,
    ) -> MemtableSource<'g> {
        memory.memtables().fetch_add(bytes_of(&nodes), Ordering::Relaxed);
        MemtableSource { nodes, taken: 0, inline_max, left: Vec::new(), dropped: Vec::new(), memory }
    }

    /// How many versions were taken.
    pub fn taken(&self) -> u64 {
        self.taken as u64
    }

    /// Reports the values of what was merged since the last call. `is_newest` says whether no newer memtable has the key.
    pub fn report(&mut self, values: &impl OutOfLineValues, is_newest: impl Fn(&[u8]) -> bool) {
        for node in self.left.drain(..) {
            if values.wants(node.payload().len()) && is_newest(node.key()) {
                values.left(node.value_lsn(), node.header().checksum, node.payload());
            }
        }
        self.dropped.drain(..).for_each(|lsn| values.dropped(lsn));
    }

    fn moves_out(&self, node: NodeRef<'g>) -> bool {
        node.payload().len() > self.inline_max
            && !node.value_lsn().is_null()
            && !node.flags().is_out_of_line()
            && !node.flags().is_tombstone()
    }

    fn merge_version(&self, node: NodeRef<'g>) -> MergeVersion<'g> {
        let (payload, flags, lsn) = (node.payload(), node.flags(), node.value_lsn());
        let (flags, payload) = if self.moves_out(node) {
            let len = node.header().payload_len;
            let value = OutOfLine {
                len: len.into(),
                checksum: node.header().checksum,
                extents: vec![Extent { lsn, len }],
            };
            let mut encoded = Vec::with_capacity(OutOfLine::ENCODED_BYTES_ONE);
            value.encode(&mut encoded);
            (VersionFlags(flags.0 | VersionFlags::OUT_OF_LINE), Cow::Owned(encoded))
        } else {
            (flags, Cow::Borrowed(payload))
        };
        MergeVersion { csn: node.csn(), flags, expires_at_ms: node.header().expires_at_ms, payload }
    }
}

/// It counts among the memtables while it lives.
fn bytes_of(nodes: &Vec<Numbered<'_>>) -> usize {
    nodes.capacity() * size_of::<Numbered<'_>>()
}

impl Drop for MemtableSource<'_> {
    fn drop(&mut self) {
        self.memory.memtables().fetch_sub(bytes_of(&self.nodes), Ordering::Relaxed);
    }
}

impl MergeSource for MemtableSource<'_> {
    fn peek_key(&mut self) -> Option<&[u8]> {
        self.nodes.get(self.taken).map(|numbered| numbered.node.key())
    }

    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>) {
        let rest = &self.nodes[self.taken..];
        let Some(first) = rest.first() else { return };
        if self.moves_out(first.node) {
            self.left.push(first.node);
        }
        let (mut taken, mut last) = (0, None);
        for Numbered { node, .. } in rest.iter().take_while(|numbered| numbered.has_key_of(*first)) {
            taken += 1;
            // Replayed twice, it is there twice.
            if last.replace(node.csn()) != Some(node.csn()) {
                out.push(self.merge_version(*node));
            }
        }
        let later = rest.iter().skip(PREFETCHED).take(taken);
        later.for_each(|numbered| numbered.node.prefetch_entry());
        self.taken += taken;
    }

    fn dropped(&mut self, lsn: Lsn) {
        self.dropped.push(lsn);
    }
}
