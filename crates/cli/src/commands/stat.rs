//! `fulgurite stat`: sizes and counters.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fulgurite::{ClockState, Latency, Stats};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::open::{Missing, entries_estimate, with_database};
use crate::output::Output;
use crate::text::{aligned, number, size, utc};

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite stat shop.db
  fulgurite stat shop.db --json | jq .segment_bytes";

/// Print sizes and counters of a database.
///
/// Opening the database recovers it, so that the figures are those just behind a recovery.
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
    with_database(&args.dir, Missing::Refuse, |db| {
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
    })
}

fn as_json(stats: &Stats, entries: u64) -> Value {
    json!({
        "tables": stats.tables,
        "entries_estimate": entries,
        "durable_csn": stats.durable.0,
        "checkpoint_csn": stats.checkpoint_covered.0,
        "epoch": stats.epoch,
        "live_bytes": stats.live_bytes,
        "segment_bytes": stats.segment_bytes,
        "commit_segments": stats.segments[0],
        "bulk_segments": stats.segments[1],
        "ready_segments": stats.segments[2],
        "delta_entries": stats.delta_entries,
        "delta_bytes": stats.delta_bytes,
        "poisoned": stats.poisoned,
        "direct_io": stats.direct_io,
        "flush_scheme": stats.flush_scheme.name(),
        "clock": {
            "state": clock_state(stats).0,
            "now_ms": stats.clock.now_ms,
            "machine_ms": stats.clock.machine_ms,
            "confirmed_ms": stats.clock.confirmed_ms,
        },
        "commit_latency": latency_as_json(&stats.latency.sync),
        "log": stats.log.counters().into_iter().collect::<BTreeMap<_, _>>(),
    })
}

/// Of the commits since the database was opened, at the level `Sync`.
fn latency_as_json(latency: &Latency) -> Value {
    json!({
        "count": latency.count,
        "mean_ns": latency.mean_ns,
        "p50_ns": latency.p50_ns,
        "p99_ns": latency.p99_ns,
        "p999_ns": latency.p999_ns,
        "max_ns": latency.max_ns,
    })
}

/// What the database's clock makes of the machine's, and what to do about it.
fn clock_state(stats: &Stats) -> (&'static str, &'static str) {
    match stats.clock.state {
        ClockState::Follows => ("follows", "the machine's"),
        ClockState::Unconfirmed => (
            "unconfirmed",
            "it went far while the database was closed: nothing is removed by it for up to an hour",
        ),
        ClockState::Doubts => {
            ("doubts", "the machine's jumped: believed in an hour; if it is right, reset-clock does it now")
        }
        ClockState::Ahead => {
            ("ahead", "of the machine's, and stands still: if that is right, reset-clock sets it back")
        }
        _ => ("unknown", ""),
    }
}

fn as_rows(stats: &Stats, entries: u64) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String, note: &str| rows.push(vec![name.into(), value, note.into()]);
    row("tables", number(stats.tables), "");
    row("entries", number(entries), "about; versions that nobody needs any more included");
    row("commits", number(stats.durable.0), "all durable");
    row("in the checkpoint", number(stats.checkpoint_covered.0), "the next open replays the commits above");
    row("opened", number(stats.epoch.into()), "times");
    row("live data", size(stats.live_bytes), "that the last checkpoint refers to");
    row("on disk", size(stats.segment_bytes), "all segments, ready ones included");
    row("commit segments", number(stats.segments[0]), "");
    row("bulk segments", number(stats.segments[1]), "");
    row("ready segments", number(stats.segments[2]), "");
    row("recent versions", number(stats.delta_entries), "not folded into trees yet");
    row("their memory", size(stats.delta_bytes), "");
    let (way, note) = match stats.direct_io {
        true => ("direct", "around the page cache, durable when the write returns"),
        false => ("buffered", "through the page cache, then fdatasync"),
    };
    row("log writes", way.into(), note);
    row("flush scheme", stats.flush_scheme.name().into(), "");
    let (state, note) = clock_state(stats);
    row("clock", state.into(), note);
    if stats.clock.state != ClockState::Follows {
        row("it shows", utc(stats.clock.now_ms), "the time by which keys expire");
        row("the machine shows", utc(stats.clock.machine_ms), "");
        row("confirmed", utc(stats.clock.confirmed_ms), "what had expired by then may be removed");
    }
    if let Some(why) = &stats.poisoned {
        row("writes are refused", String::new(), why);
    }
    rows
}
