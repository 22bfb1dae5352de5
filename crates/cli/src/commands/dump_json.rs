//! The JSON output of `dump`.

use fulgurite::dump::{Action, Body, ChunkRef, Frame, GroupKind, Item, Operation, Segment, SuperblockCopy};
use serde_json::{Map, Value, json};

use super::dump::{bulk_kind, first_group, stream_name};
use super::dump_node;
use crate::rows::bytes_field;

pub(super) fn superblock_copy(index: usize, copy: &SuperblockCopy) -> Value {
    match copy {
        SuperblockCopy::Valid(content) => json!({
            "copy": index,
            "valid": true,
            "database": content.id.to_string(),
            "sequence": content.sequence,
            "epoch": content.epoch.0,
            "checkpoint": content.checkpoint.to_string(),
            "replay": content.replay.to_string(),
            "covered_csn": content.covered.0,
            "durable_csn": content.durable.0,
            "clock_ms": content.clock_ms,
        }),
        SuperblockCopy::Newer(version) => json!({ "copy": index, "valid": false, "format_version": version }),
        SuperblockCopy::Invalid => json!({ "copy": index, "valid": false }),
    }
}

pub(super) fn segment(number: u32, segment: &Segment) -> Value {
    let first = first_group(segment);
    let problem = |offset: u64, what: &str| json!({ "offset": offset, "what": what });
    json!({
        "segment": number,
        "stream": stream_name(segment.stream),
        "epoch": first.map(|first| first.epoch.0),
        "first_csn": first.map(|first| first.first_csn.0),
        "used_bytes": segment.used_bytes,
        "file_bytes": segment.file_bytes,
        "items": segment.items.len(),
        "undecodable": segment.problems.iter().map(|p| problem(p.offset, &p.what)).collect::<Vec<_>>(),
    })
}

pub(super) fn item(item: &Item) -> Value {
    match item {
        Item::Group(group) => json!({
            "item": "group",
            "offset": group.offset,
            "kind": group_kind(group.kind),
            "epoch": group.epoch.0,
            "payload_bytes": group.payload_bytes,
            "first_csn": group.first_csn.0,
            "frames": group.frames,
            "next_segment": group.next_segment,
            "durable_csn": group.durable.0,
            "term": group.entry.term,
            "entry": group.entry.index,
            "agreed_entry": group.agreed.index,
            "agreed_csn": group.agreed.csn.0,
        }),
        Item::EpochStart(start) => json!({
            "item": "epoch start",
            "epoch": start.epoch.0,
            "previous_epoch": start.previous.0,
            "previous_segment": start.previous_segment,
            "previous_end": start.previous_end.to_string(),
            "previous_csn": start.previous_csn.0,
        }),
        Item::Frame(frame) => frame_json(frame),
        Item::Node(record, node) => dump_node::object(record, node),
        Item::Bulk(record) => json!({
            "item": "bulk",
            "offset": record.lsn.offset(),
            "kind": bulk_kind(record.kind),
            "bytes": record.body_bytes,
        }),
    }
}

pub(super) fn group_kind(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Frames => "commits",
        GroupKind::EpochStart => "epoch start",
        GroupKind::SegmentEnd => "segment end",
        GroupKind::Mark => "durable mark",
        GroupKind::BulkStart => "bulk start",
        GroupKind::Blank => "blank entry",
        GroupKind::Members => "members",
    }
}

fn frame_json(frame: &Frame) -> Value {
    let header = &frame.header;
    let mut value = json!({
        "item": "frame",
        "csn": header.csn.0,
        "body": frame.body_lsn.to_string(),
        "body_bytes": header.body_bytes,
        "commit_time_ms": header.commit_time_ms,
    });
    match &frame.body {
        Body::Operations(operations) => value["operations"] = operations.iter().map(operation).collect(),
        Body::InChunks(chunks) => {
            value["operations_in_chunks"] = json!({ "first": chunks.ordinal, "bytes": chunks.len })
        }
        Body::Undecodable(why) => value["undecodable"] = json!(why),
    }
    if !frame.chunks.is_empty() {
        value["chunks"] = frame.chunks.iter().map(chunk_ref).collect();
    }
    value
}

fn chunk_ref(chunk: &ChunkRef) -> Value {
    json!({ "chunk": chunk.ordinal, "at": chunk.lsn.to_string(), "bytes": chunk.len })
}

fn operation(operation: &Operation) -> Value {
    let mut fields = Map::new();
    let mut field = |name: &str, bytes: &[u8]| {
        let (name, text) = bytes_field(name, bytes);
        fields.insert(name, text.into());
    };
    field("key", &operation.key);
    let (action, expires_at_ms, chunks) = match &operation.action {
        Action::Put { value, expires_at_ms } => {
            field("value", value);
            ("put", *expires_at_ms, None)
        }
        Action::PutInChunks { chunks, expires_at_ms } => ("put", *expires_at_ms, Some(chunks)),
        Action::Delete => ("delete", 0, None),
        Action::DeleteRange { end } => {
            if let Some(end) = end {
                field("end", end);
            }
            ("delete range", 0, None)
        }
    };
    fields.insert("action".into(), action.into());
    fields.insert("table".into(), operation.table.0.into());
    if expires_at_ms > 0 {
        fields.insert("expires_at_ms".into(), expires_at_ms.into());
    }
    if let Some(chunks) = chunks {
        fields.insert("value_in_chunks".into(), json!({ "first": chunks.ordinal, "bytes": chunks.len }));
    }
    Value::Object(fields)
}
