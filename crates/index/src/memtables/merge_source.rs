//! A whole memtable as a sorted batch for the base.

use std::borrow::Cow;

use fulgurite_types::Lsn;

use super::node::NodeRef;
use crate::base::{MergeSource, MergeVersion, OutOfLineValues};
use crate::version::{Extent, OutOfLine, VersionFlags};

/// The versions of one memtable: keys ascending, each with its versions, newest first.
pub struct MemtableSource<'g> {
    next: Option<NodeRef<'g>>,
    inline_max: usize,
    taken: u64,
    /// The keys' newest versions whose values the base does not get, since they were last reported.
    left: Vec<NodeRef<'g>>,
    dropped: Vec<Lsn>,
}

impl<'g> MemtableSource<'g> {
    pub(super) fn new(first: Option<NodeRef<'g>>, inline_max: usize) -> MemtableSource<'g> {
        MemtableSource { next: first, inline_max, taken: 0, left: Vec::new(), dropped: Vec::new() }
    }

    /// How many versions were taken.
    pub fn taken(&self) -> u64 {
        self.taken
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

impl MergeSource for MemtableSource<'_> {
    fn peek_key(&mut self) -> Option<&[u8]> {
        self.next.map(NodeRef::key)
    }

    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>) {
        let Some(first) = self.next else { return };
        if self.moves_out(first) {
            self.left.push(first);
        }
        let mut node = Some(first);
        while let Some(version) = node
            && version.has_key_of(first)
        {
            out.push(self.merge_version(version));
            self.taken += 1;
            node = version.next(0);
        }
        self.next = node;
    }

    fn dropped(&mut self, lsn: Lsn) {
        self.dropped.push(lsn);
    }
}
