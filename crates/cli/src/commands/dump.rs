//! `fulgurite dump`: decodes the files of a database.

use std::path::PathBuf;

use fulgurite::dump::{
    self, Action, Body, BulkKind, Chunks, Frame, GroupHeader, Item, Operation, Segment, Stream,
    SuperblockContent, SuperblockCopy,
};
use fulgurite::env::{Disk, Env, RealEnv};
use serde_json::json;

use crate::commands::{dump_json, dump_node};
use crate::failure::Failure;
use crate::output::Output;
use crate::text::{aligned, count, quoted, size};

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite dump shop.db
  fulgurite dump shop.db --segment 3 --limit 20
  fulgurite dump shop.db --segment 3 --json | jq 'select(.item == \"frame\") | .csn'";

/// Decode the files of a database: superblock, segments, groups, commits with their operations, nodes with their entries, other bulk records.
///
/// Reads only. It does not open the database: it recovers nothing, takes no lock, writes nothing, and works beside a
/// process that has the database open, whose newest writes it may then see half. Without --segment it prints the
/// superblock and the list of segments.
///
/// The exit code is 3 if something that it prints does not decode: damage, or the half of a write that a crash or that
/// process left, which the file alone does not tell from damage.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// Print the contents of this segment.
    #[arg(long, value_name = "NUMBER")]
    segment: Option<u32>,
    /// Stop after this many items of a segment, or this many segments.
    #[arg(long, value_name = "ITEMS")]
    limit: Option<usize>,
    /// Print a JSON object a line.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let env = RealEnv::new();
    let copies = dump::superblock(env.disk(), &args.dir)?;
    let paths = dump::segment_paths(env.disk(), &args.dir)?;
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut output = Output::new();
    let decodes = match args.segment {
        Some(wanted) => {
            let Some((_, path)) = paths.iter().find(|(number, _)| *number == wanted) else {
                return Err(Failure::new(format!(
                    "{} has no segment {wanted}: `fulgurite dump` lists them",
                    args.dir.display()
                )));
            };
            print_items(&dump::segment(env.disk(), path)?, limit, args.json, &mut output)?
        }
        None => {
            let decodes = print_superblock(&copies, args.json, &mut output)?;
            let paths = &paths[..paths.len().min(limit)];
            print_segments(env.disk(), paths, args.json, &mut output)? && decodes
        }
    };
    output.flush()?;
    if decodes { Ok(()) } else { Err(Failure::damaged()) }
}

/// Prints the superblock; returns whether any copy decodes. In a young database only one does.
fn print_superblock(copies: &[SuperblockCopy], json: bool, output: &mut Output) -> Result<bool, Failure> {
    for (index, copy) in copies.iter().enumerate() {
        if json {
            output.json(&dump_json::superblock_copy(index, copy))?
        } else {
            output.line(copy_line(index, copy))?
        }
    }
    Ok(copies.iter().any(|copy| !matches!(copy, SuperblockCopy::Invalid)))
}

/// Prints the list of segments; returns whether all of them decode.
fn print_segments(
    disk: &dyn Disk,
    paths: &[(u32, PathBuf)],
    json: bool,
    output: &mut Output,
) -> Result<bool, Failure> {
    let mut decodes = true;
    let mut rows = vec![SEGMENT_HEAD.map(String::from).to_vec()];
    for (number, path) in paths {
        let segment = dump::segment(disk, path)?;
        decodes &= segment.problems.is_empty();
        if json {
            output.json(&dump_json::segment(*number, &segment))?;
        } else {
            rows.push(segment_row(*number, &segment));
        }
    }
    if !json {
        for line in aligned(&rows, &[0, 2, 3, 4, 5]) {
            output.line(line)?;
        }
    }
    Ok(decodes)
}

const SEGMENT_HEAD: [&str; 8] = ["segment", "stream", "epoch", "first", "used", "bytes", "holds", ""];

fn copy_line(index: usize, copy: &SuperblockCopy) -> String {
    match copy {
        SuperblockCopy::Valid(SuperblockContent {
            id,
            sequence,
            epoch,
            checkpoint,
            replay,
            covered,
            durable,
            ..
        }) => {
            format!(
                "copy {index}: write {sequence}, epoch {epoch}, database {id}, checkpoint at \
                 {checkpoint} covers commit {covered}, replay from {replay}, commit {durable} was durable"
            )
        }
        SuperblockCopy::Newer(version) => {
            format!("copy {index}: format version {version}, which this program does not know")
        }
        SuperblockCopy::Invalid => format!("copy {index}: not valid, or never written"),
    }
}

/// The header of a segment's first group: it has the epoch and the first commit.
pub(super) fn first_group(segment: &Segment) -> Option<&GroupHeader> {
    segment.items.iter().find_map(|item| match item {
        Item::Group(header) => Some(header),
        _ => None,
    })
}

pub(super) fn stream_name(stream: Option<Stream>) -> &'static str {
    match stream {
        Some(Stream::Commit) => "commit",
        Some(Stream::Bulk) => "bulk",
        None => "none",
    }
}

fn segment_row(number: u32, segment: &Segment) -> Vec<String> {
    let first = first_group(segment);
    let items = |wanted: fn(&Item) -> bool| segment.items.iter().filter(|item| wanted(item)).count() as u64;
    let frames = items(|item| matches!(item, Item::Frame(_)));
    let holds = match segment.stream {
        Some(Stream::Commit) => {
            let groups = items(|item| matches!(item, Item::Group(_)));
            format!("{} in {}", count(frames, "commit"), count(groups, "group"))
        }
        Some(Stream::Bulk) => count(items(|item| matches!(item, Item::Bulk(_) | Item::Node(..))), "record"),
        None => "nothing yet".into(),
    };
    let problems = match segment.problems.first() {
        None => String::new(),
        Some(problem) => format!(
            "{} undecodable, the first at byte {}: {}",
            segment.problems.len(),
            problem.offset,
            problem.what
        ),
    };
    vec![
        number.to_string(),
        stream_name(segment.stream).into(),
        first.map_or(String::new(), |first| first.epoch.to_string()),
        first.filter(|_| frames > 0).map_or(String::new(), |first| first.first_csn.to_string()),
        size(segment.used_bytes.into()),
        size(segment.file_bytes),
        holds,
        problems,
    ]
}

/// Prints the contents of a segment; returns whether all that it printed decodes.
fn print_items(segment: &Segment, limit: usize, json: bool, output: &mut Output) -> Result<bool, Failure> {
    let items = &segment.items[..segment.items.len().min(limit)];
    for item in items {
        if json {
            output.json(&dump_json::item(item))?;
            continue;
        }
        for line in item_lines(item) {
            output.line(line)?;
        }
    }
    let decodes = items.iter().all(decodes);
    if segment.items.len() > limit {
        return Ok(decodes);
    }
    for problem in &segment.problems {
        let (offset, what) = (problem.offset, &problem.what);
        match json {
            true => output.json(&json!({ "item": "undecodable", "offset": offset, "what": what }))?,
            false => output.line(format!("{offset:>10}  undecodable: {what}"))?,
        }
    }
    Ok(decodes && segment.problems.is_empty())
}

fn decodes(item: &Item) -> bool {
    match item {
        Item::Frame(frame) => !matches!(frame.body, Body::Undecodable(_)),
        Item::Node(_, node) => node.is_ok(),
        Item::Group(_) | Item::EpochStart(_) | Item::Bulk(_) => true,
    }
}

fn group_line(group: &GroupHeader) -> String {
    let entry = match group.entry.index {
        0 => String::new(),
        _ => format!(", entry {}, {} was agreed", group.entry, group.agreed.index),
    };
    format!(
        "{:>10}  group: {}, epoch {}, {} from {}, {} bytes, {} was durable{entry}",
        group.offset,
        dump_json::group_kind(group.kind),
        group.epoch,
        count(group.frames.into(), "commit"),
        group.first_csn,
        group.payload_bytes,
        group.durable
    )
}

fn item_lines(item: &Item) -> Vec<String> {
    match item {
        Item::Group(group) => vec![group_line(group)],
        Item::EpochStart(start) => vec![format!(
            "            epoch {} starts; epoch {} began in segment {} and ended at {} with commit {}",
            start.epoch, start.previous, start.previous_segment, start.previous_end, start.previous_csn
        )],
        Item::Frame(frame) => frame_lines(frame),
        Item::Node(record, node) => dump_node::lines(record, node),
        Item::Bulk(record) => {
            vec![format!(
                "{:>10}  {}: {} bytes",
                record.lsn.offset(),
                bulk_kind(record.kind),
                record.body_bytes
            )]
        }
    }
}

fn frame_lines(frame: &Frame) -> Vec<String> {
    let header = &frame.header;
    let mut lines = vec![format!(
        "{:>10}    commit {}: {} bytes, committed at {} ms",
        frame.body_lsn.offset(),
        header.csn,
        header.body_bytes,
        header.commit_time_ms
    )];
    match &frame.body {
        Body::Operations(operations) => {
            lines.extend(
                operations.iter().map(|operation| format!("              {}", operation_text(operation))),
            );
        }
        Body::InChunks(chunks) => {
            lines.push(format!("              its operations are in {}", chunks_text(chunks)))
        }
        Body::Undecodable(why) => lines.push(format!("              undecodable: {why}")),
    }
    lines.extend(
        frame.chunks.iter().map(|chunk| {
            format!("              chunk {}: {} bytes at {}", chunk.ordinal, chunk.len, chunk.lsn)
        }),
    );
    lines
}

fn operation_text(operation: &Operation) -> String {
    let Operation { table, key, action } = operation;
    let expires = |at_ms: &u64| if *at_ms == 0 { String::new() } else { format!(", expires at {at_ms} ms") };
    let key = quoted(key);
    match action {
        Action::Put { value, expires_at_ms } => {
            format!("table {table}: put {key} = {}{}", quoted(value), expires(expires_at_ms))
        }
        Action::PutInChunks { chunks, expires_at_ms } => {
            format!("table {table}: put {key} = {}{}", chunks_text(chunks), expires(expires_at_ms))
        }
        Action::Delete => format!("table {table}: delete {key}"),
        Action::DeleteRange { end: Some(end) } => {
            format!("table {table}: delete from {key} to {}", quoted(end))
        }
        Action::DeleteRange { end: None } => format!("table {table}: delete from {key} to the end"),
    }
}

fn chunks_text(chunks: &Chunks) -> String {
    format!("chunks from {}: {} bytes", chunks.ordinal, chunks.len)
}

pub(super) fn bulk_kind(kind: BulkKind) -> &'static str {
    match kind {
        BulkKind::InternalNode => "inner node",
        BulkKind::LeafNode => "leaf",
        BulkKind::LeafDelta => "leaf delta",
        BulkKind::Chunk => "chunk",
        BulkKind::Checkpoint => "checkpoint",
        BulkKind::MemtableRun => "memtable",
        BulkKind::ValueChunk => "chunk of a value",
        BulkKind::MovedValue => "moved value",
    }
}
