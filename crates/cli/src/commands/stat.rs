//! `fulgurite stat`: sizes and counters.

use std::path::PathBuf;

use fulgurite::env::MemoryMedium;
use fulgurite::{ClockState, Error, SegmentUse, SpaceStats, Stats};
use serde_json::{Value, json};

use crate::commands::staging::medium_name;
use crate::commands::stat_beside::{self, duration};
use crate::commands::stat_memory;
use crate::failure::Failure;
use crate::open::{entries_estimate, open_reader};
use crate::output::Output;
use crate::text::{aligned, number, size, utc};

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite stat shop.db
  fulgurite stat shop.db --json | jq .segment_bytes";

/// Print sizes and counters of a database.
///
/// Nothing is written: what a killed process left is replayed in memory. If another process has the database open, it
/// prints which, since when, and what the files tell without it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// Print a JSON object; sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let db = match open_reader(&args.dir) {
        Err(Error::Locked { holder, .. }) => return stat_beside::run(&args.dir, &holder, args.json),
        opened => opened?,
    };
    let stats = db.stats();
    let mut entries = 0;
    for table in db.tables()? {
        entries += entries_estimate(&table)?;
    }
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(&stats, entries))?;
    } else {
        for line in aligned(&as_rows(&stats, entries), &[1]) {
            output.line(line)?;
        }
    }
    output.flush()
}

fn as_json(stats: &Stats, entries: u64) -> Value {
    json!({
        "open_elsewhere": false,
        "unproven_commits": stats.unproven.map(|range| [range.first.0, range.last.0]),
        "tables": stats.tables,
        "entries_estimate": entries,
        "durable_csn": stats.durable.0,
        "checkpoint_csn": stats.checkpoint_covered.0,
        "epoch": stats.epoch,
        "live_bytes": stats.live_bytes,
        "segment_bytes": stats.segment_bytes,
        "commit_segments": stats.segments.commit,
        "bulk_segments": stats.segments.bulk,
        "ready_segments": stats.segments.ready,
        "data_bytes": stats.data_bytes,
        "times_its_data": times_its_data(stats).map(|ratio| (ratio * 1e4).round() / 1e4),
        "space_amplification": space_amplification(stats).map(|ratio| (ratio * 1e4).round() / 1e4),
        "dead_bytes": stats.space.dead_bytes(),
        "pinned_bytes": stats.space.pinned_bytes(),
        "segments": segments_json(&stats.space),
        "free_bytes": stats.room.free_bytes,
        "reserved_bytes": stats.room.reserved_bytes,
        "ready_bytes": stats.room.ready_bytes,
        "freeable_bytes": stats.room.freeable_bytes,
        "seconds_left": stats.room.seconds_left,
        "puts_refused": stats.room.puts_refused,
        "snapshots": snapshots_json(stats),
        "memtable_entries": stats.memtable_entries,
        "memtable_bytes": stats.memtable_bytes,
        "memory": stat_memory::as_json(&stats.memory),
        "staging": stats.staging.as_ref().map(|staging| json!({
            "file": staging.path.display().to_string(),
            "medium": medium_name(staging.medium),
            "staged_bytes": stats.log.staged_bytes,
        })),
        "clock": {
            "state": clock_state(stats).0,
            "now_ms": stats.clock.now_ms,
            "machine_ms": stats.clock.machine_ms,
            "confirmed_ms": stats.clock.confirmed_ms,
        },
    })
}

/// How many times its live data the database takes.
fn space_amplification(stats: &Stats) -> Option<f64> {
    let live_bytes = stats.space.live_bytes();
    (live_bytes > 0).then(|| stats.segment_bytes as f64 / live_bytes as f64)
}

/// How many times its keys and values the database takes.
fn times_its_data(stats: &Stats) -> Option<f64> {
    let data_bytes = stats.data_bytes.filter(|bytes| *bytes > 0)?;
    Some(stats.segment_bytes as f64 / data_bytes as f64)
}

fn snapshots_json(stats: &Stats) -> Value {
    json!({
        "open": stats.snapshots,
        "oldest_s": stats.oldest_snapshot_age.map(|age| age.as_secs()),
        "ended": stats.snapshots_ended,
        "superseded_versions": stats.superseded_versions,
    })
}

/// The segments by the reason for which they are there.
fn segments_json(space: &SpaceStats) -> Value {
    let groups = space.uses.iter().map(|(reason, group)| {
        let group = json!({
            "count": group.count,
            "bytes": group.bytes,
            "live_bytes": group.live_bytes,
            "pinned_s": group.pinned_for.map(|age| age.as_secs()),
        });
        (reason_name(*reason).0.replace(' ', "_"), group)
    });
    Value::Object(groups.collect())
}

/// Why a segment is on disk: a name, and what that means.
fn reason_name(reason: SegmentUse) -> (&'static str, &'static str) {
    match reason {
        SegmentUse::Ready => ("ready", "to be used next"),
        SegmentUse::Open => ("open", "the log appends to them, or began in them"),
        SegmentUse::Live => ("live", "with live data; their other bytes are dead"),
        SegmentUse::Snapshot => ("snapshot", "of dropped tables that a snapshot sees"),
        SegmentUse::Replay => ("replay", "log that no checkpoint covers yet"),
        SegmentUse::Transaction => ("transaction", "an open transaction wrote ahead to them"),
        SegmentUse::Uncovered => (
            "uncovered",
            "written ahead by commits that no checkpoint covers yet, or that are kept for replicas",
        ),
        SegmentUse::Check => ("check", "a check reads them"),
        SegmentUse::Checkpoint => ("checkpoint", "a checkpoint that the superblock names refers to them"),
        SegmentUse::Reader => ("reader", "reads that began before may use them"),
        SegmentUse::Dead => ("dead", "the next checkpoint frees them"),
        _ => ("other", ""),
    }
}

/// How the database's clock relates to the machine's, and what to do about it.
fn clock_state(stats: &Stats) -> (&'static str, String) {
    let (state, note) = match stats.clock.state {
        ClockState::Follows => ("follows", "the machine's"),
        ClockState::Unconfirmed => {
            let closed_ms = stats.clock.now_ms.saturating_sub(stats.clock.confirmed_ms);
            let note = format!(
                "the database was closed for most of the last {}: what expired meanwhile is hidden, and removed within \
                 an hour of use",
                duration(closed_ms / 1000)
            );
            return ("unconfirmed", note);
        }
        ClockState::Doubts => {
            ("doubts", "the machine's jumped: believed in an hour; if it is right, reset-clock does it now")
        }
        ClockState::Ahead => {
            ("ahead", "of the machine's, and does not advance: if that is right, reset-clock sets it back")
        }
        _ => ("unknown", ""),
    };
    (state, note.to_string())
}

fn staged_row(stats: &Stats, row: &mut impl FnMut(&str, String, &str)) {
    let Some(staging) = &stats.staging else { return };
    let survives = match staging.medium {
        MemoryMedium::Persistent => "a power cut",
        MemoryMedium::Volatile => "a killed process alone",
    };
    let note = format!("in {}, which survives {survives}", staging.path.display());
    row("staged", size(stats.log.staged_bytes), &note);
}

fn as_rows(stats: &Stats, entries: u64) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String, note: &str| rows.push(vec![name.into(), value, note.into()]);
    row("tables", number(stats.tables), "");
    row("entries", number(entries), "about; including old versions not yet removed");
    let unproven =
        stats.unproven.map(|range| format!("the log does not say whether {range} had reached the disk"));
    row("commits", number(stats.durable.0), unproven.as_deref().unwrap_or("all durable"));
    staged_row(stats, &mut row);
    row("in the checkpoint", number(stats.checkpoint_covered.0), "the next open replays the commits above");
    row("opened", number(stats.epoch.into()), "times");
    if let Some(data_bytes) = stats.data_bytes {
        row("keys and values", size(data_bytes), "in the last checkpoint; only the newest values");
    }
    row("live data", size(stats.live_bytes), "that the last checkpoint refers to");
    row("dead", size(stats.space.dead_bytes()), "beside live data in segments, and in segments to be freed");
    row(
        "pinned",
        size(stats.space.pinned_bytes()),
        "that only a snapshot, transaction, check or old checkpoint keeps",
    );
    row("on disk", size(stats.segment_bytes), "all segments, ready ones included");
    if let Some(ratio) = space_amplification(stats) {
        row("times its live data", format!("{ratio:.2}"), "`fulgurite gc` makes it less");
    }
    if let Some(ratio) = times_its_data(stats) {
        row(
            "times its keys and values",
            format!("{ratio:.2}"),
            "the newest values, as the last checkpoint has them",
        );
    }
    row("commit segments", number(stats.segments.commit), "");
    row("bulk segments", number(stats.segments.bulk), "");
    row("ready segments", number(stats.segments.ready), "");
    for (reason, group) in &stats.space.uses {
        let (name, meaning) = reason_name(*reason);
        let count = if group.count == 1 { "segment" } else { "segments" };
        let note = format!("in {} {count}: {meaning}", number(group.count));
        row(&format!("  {name}"), size(group.bytes), &note);
    }
    row("free", size(stats.room.free_bytes), "on the disk of the log");
    row(
        "kept of it",
        size(stats.room.reserved_bytes),
        "for checkpoints: puts wait, or are refused, with less",
    );
    row("to be freed", size(stats.room.freeable_bytes), "by checkpoints, about");
    if let Some(seconds) = stats.room.seconds_left {
        row("full in", duration(seconds), "at the rate of the last minute: puts are refused then");
    }
    if let Some(why) = &stats.room.puts_refused {
        row("puts", "refused".into(), why);
    }
    let oldest = stats.oldest_snapshot_age.map(|age| duration(age.as_secs()));
    let oldest = oldest.map_or("open now".into(), |age| format!("open now, the oldest for {age}"));
    row("snapshots", number(stats.snapshots), &oldest);
    row("ended snapshots", number(stats.snapshots_ended), "because they were older than max_snapshot_age");
    row("old versions", number(stats.superseded_versions), "that merges kept in trees, for snapshots");
    row("recent versions", number(stats.memtable_entries), "not merged into trees yet");
    row("their memory", size(stats.memtable_bytes), "");
    stat_memory::rows(&stats.memory, &mut row);
    clock_rows(stats, &mut row);
    rows
}

fn clock_rows(stats: &Stats, row: &mut impl FnMut(&str, String, &str)) {
    let (state, note) = clock_state(stats);
    row("clock", state.into(), &note);
    if stats.clock.state != ClockState::Follows {
        row("it shows", utc(stats.clock.now_ms), "the time by which keys expire");
        row("the machine shows", utc(stats.clock.machine_ms), "");
        row("confirmed", utc(stats.clock.confirmed_ms), "what had expired by then may be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: ten minutes were called a far jump.
    #[test]
    fn a_clock_that_is_not_confirmed_says_for_how_long_the_database_was_closed() {
        let mut stats = Stats::default();
        stats.clock.state = ClockState::Unconfirmed;
        (stats.clock.confirmed_ms, stats.clock.now_ms) = (1_800_000_000_000, 1_800_000_600_000);
        let (state, note) = clock_state(&stats);
        assert_eq!(state, "unconfirmed");
        assert!(note.starts_with("the database was closed for most of the last 10 min 0 s: "), "{note}");
    }
}
