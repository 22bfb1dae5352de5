//! Headers, padding and end records: what a leader adds to the groups that it took.

use super::groups::{Group, SegmentEnd};
use crate::format::{Agreed, EncodedHeader, GROUP_HEADER_BYTES, GroupFormat, GroupHeader, GroupKind};
use crate::shared::Shared;
use fulgurite_types::Csn;

const PADDING: [u8; 8] = [0; 8];

/// What headers say of the time when they were written: the durable mark, and what was agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub durable: Csn,
    pub agreed: Agreed,
}

/// Puts header and padding into a closed and filled group, once. The caller is the leader.
pub(super) fn stamp(shared: &Shared, group: &Group, known: Known) {
    let len = group.len as usize;
    let padding = bytes(group) - len;
    let header_bytes = GROUP_HEADER_BYTES as usize;
    // SAFETY: the group is closed and filled, and this thread is the leader; readers of reserved ranges never touch the header,
    // or bytes after the group's end.
    unsafe {
        let payload = group.buffer.read(header_bytes, len - header_bytes);
        let header = header(shared, group, group.kind, known, 0).encode(payload);
        group.buffer.stamp(0, &header);
        group.buffer.stamp(len, &PADDING[..padding]);
    }
}

/// The length of a group with its padding.
fn bytes(group: &Group) -> usize {
    (group.end().0 - group.start().0) as usize
}

/// The bytes of a group that the caller, the leader, has stamped.
pub(super) fn stamped(group: &Group) -> &[u8] {
    // SAFETY: the group is closed, filled and stamped, and this thread is the leader.
    unsafe { group.buffer.read(0, bytes(group)) }
}

/// The end record of a segment: the stream continues in the segment of `next`, its first group.
pub(super) fn end_record(shared: &Shared, next: &Group, left: &SegmentEnd, known: Known) -> EncodedHeader {
    let header = GroupHeader {
        segment: left.segment.number,
        offset: left.offset,
        payload_bytes: 0,
        frames: 0,
        entry: next.before,
        ..header(shared, next, GroupKind::SegmentEnd, known, next.segment.number)
    };
    header.encode(&[])
}

fn header(shared: &Shared, group: &Group, kind: GroupKind, known: Known, next_segment: u32) -> GroupHeader {
    GroupHeader {
        format: GroupFormat::Replicable,
        kind,
        database: shared.database,
        epoch: shared.epoch,
        segment: group.segment.number,
        offset: group.offset,
        payload_bytes: group.len - GROUP_HEADER_BYTES,
        first_csn: group.first_csn,
        frames: group.frames,
        next_segment,
        durable: known.durable,
        entry: group.last_entry(),
        agreed: known.agreed,
    }
}
