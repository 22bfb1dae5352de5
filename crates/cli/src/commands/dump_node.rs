//! A node record, as text and as JSON.

use fulgurite::dump::{BulkHeader, EntryDescription, NodeDescription};
use serde_json::{Map, Value, json};

use super::dump::bulk_kind;
use crate::rows::bytes_field;
use crate::text::quoted;

/// One line for the record, and one for each child or entry.
pub(super) fn lines(record: &BulkHeader, node: &Result<NodeDescription, String>) -> Vec<String> {
    let head =
        format!("{:>10}  {}: {} bytes", record.lsn.offset(), bulk_kind(record.kind), record.body_bytes);
    let node = match node {
        Ok(node) => node,
        Err(error) => return vec![format!("{head}; it does not decode: {error}")],
    };
    let upper = node.upper.as_ref().map_or("the end".to_string(), |upper| quoted(upper));
    let changes = node.full_record.map_or(String::new(), |lsn| format!(", changes to {lsn}"));
    let mut lines = vec![format!(
        "{head}, table {}, level {}, keys from {} to {upper}{changes}",
        node.table,
        node.level,
        quoted(&node.lower)
    )];
    lines.extend(
        node.children.iter().map(|(lower, lsn)| format!("              from {}: {lsn}", quoted(lower))),
    );
    lines.extend(node.entries.iter().map(entry_line));
    lines
}

fn entry_line(entry: &EntryDescription) -> String {
    let key = quoted(&entry.key);
    let what = if entry.removed {
        return format!("              {key}: no version is left");
    } else if entry.flags.is_tombstone() {
        "deleted".to_string()
    } else if entry.flags.is_out_of_line() {
        "in the log".to_string()
    } else {
        quoted(&entry.payload)
    };
    let expires = match entry.expires_at_ms {
        0 => String::new(),
        at => format!(", expires at {at} ms"),
    };
    format!("              {key} = {what}, commit {}{expires}", entry.csn)
}

/// The same as a JSON object.
pub(super) fn object(record: &BulkHeader, node: &Result<NodeDescription, String>) -> Value {
    let mut object = json!({
        "item": "node",
        "offset": record.lsn.offset(),
        "kind": bulk_kind(record.kind),
        "bytes": record.body_bytes,
    });
    match node {
        Err(error) => object["error"] = json!(error),
        Ok(node) => {
            object["table"] = json!(node.table.0);
            object["level"] = json!(node.level);
            object["full_record"] = json!(node.full_record.map(|base| base.to_string()));
            object["children"] = node.children.iter().map(|(_, lsn)| json!(lsn.to_string())).collect();
            object["entries"] = node.entries.iter().map(entry_object).collect();
        }
    }
    object
}

fn entry_object(entry: &EntryDescription) -> Value {
    let mut object = Map::new();
    let mut field = |name: &str, bytes: &[u8]| {
        let (name, value) = bytes_field(name, bytes);
        object.insert(name, value.into());
    };
    field("key", &entry.key);
    if !entry.removed && !entry.flags.is_tombstone() && !entry.flags.is_out_of_line() {
        field("value", &entry.payload);
    }
    object.insert("csn".to_string(), json!(entry.csn.0));
    object.insert("removed".to_string(), json!(entry.removed));
    object.insert("deleted".to_string(), json!(entry.flags.is_tombstone()));
    object.insert("in_log".to_string(), json!(entry.flags.is_out_of_line()));
    object.insert("expires_at_ms".to_string(), json!(entry.expires_at_ms));
    Value::Object(object)
}
