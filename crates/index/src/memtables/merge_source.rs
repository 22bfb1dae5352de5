//! A whole memtable as a sorted batch for the base.

use std::borrow::Cow;

use super::node::NodeRef;
use crate::base::{MergeSource, MergeVersion};
use crate::version::{Extent, OutOfLine, VersionFlags};

/// The versions of one memtable: keys ascending, each with its versions, newest first.
pub struct MemtableSource<'g> {
    next: Option<NodeRef<'g>>,
    inline_max: usize,
    taken: u64,
}

impl<'g> MemtableSource<'g> {
    pub(super) fn new(first: Option<NodeRef<'g>>, inline_max: usize) -> MemtableSource<'g> {
        MemtableSource { next: first, inline_max, taken: 0 }
    }

    /// How many versions were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    fn merge_version(&self, node: NodeRef<'g>) -> MergeVersion<'g> {
        let (payload, flags, lsn) = (node.payload(), node.flags(), node.value_lsn());
        let moves_out = payload.len() > self.inline_max
            && !lsn.is_null()
            && !flags.is_out_of_line()
            && !flags.is_tombstone();
        let (flags, payload) = if moves_out {
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
}
