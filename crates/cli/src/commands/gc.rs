//! `fulgurite gc`: collects garbage.

use std::path::PathBuf;

use fulgurite::env::{Env, RealEnv};
use fulgurite::{CollectProgress, CollectReport, Database, SegmentUse};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::open::{Missing, with_database};
use crate::output::Output;
use crate::stderr;
use crate::text::{number, size};

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite gc shop.db
  fulgurite gc shop.db --until 1.05
  fulgurite gc shop.db --json | jq .segment_bytes_after";

/// Give back the space of what was overwritten and deleted, now.
///
/// A database does that by itself while it is written, down to about 1.2 times its live data. This command moves live data out of
/// segments that are mostly dead, frees them, and goes on until the segments are as short as --until says, or no shorter ones can be had.
/// Needs room on the disk for a sixteenth of the live data. It may be interrupted at any time: what was moved by then stays moved.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// How many times their live bytes the segments may take, from 1.02 to 100. Each step towards 1 costs more writing for less
    /// space.
    #[arg(long, value_name = "RATIO", default_value_t = 1.1)]
    until: f64,
    /// Print a JSON object; sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let clock = RealEnv::new();
    with_database(&args.dir, Missing::Refuse, |db| {
        let began_ns = clock.clock().monotonic_ns();
        let mut bar = Bar::new(args.until);
        let report = db.collect(args.until, |progress| bar.show(&progress))?;
        bar.bar.finish_and_clear();
        let seconds = (clock.clock().monotonic_ns() - began_ns) as f64 / 1e9;
        print(args, db, &report, seconds)
    })
}

fn print(args: &Args, db: &Database, report: &CollectReport, seconds: f64) -> Result<(), Failure> {
    let stats = db.stats();
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(report, seconds))?;
        return output.flush();
    }
    let CollectReport { before, after, segment_bytes_before, segment_bytes_after, .. } = report;
    output.line(format!(
        "{} on disk, {} before; {} of live data moved; {seconds:.2} s",
        size(*segment_bytes_after),
        size(*segment_bytes_before),
        size(after.moved_bytes),
    ))?;
    output.line(format!(
        "the segments that can be collected take {:.2} times their live data, {:.2} before",
        after.ratio(),
        before.ratio(),
    ))?;
    if !report.is_reached {
        output.line(format!(
            "{} was asked for: nothing more can be moved that makes them shorter",
            args.until
        ))?;
    }
    let pinned =
        stats.space.uses.iter().filter(|(reason, _)| reason.is_pin() && **reason != SegmentUse::Checkpoint);
    for (reason, group) in pinned {
        output.line(format!(
            "{} are kept in {} segments: {reason:?}",
            size(group.bytes),
            number(group.count)
        ))?;
    }
    for (segment, why) in &stats.collection.unreadable {
        output.line(format!("segment {segment} stays: {why}. Run `fulgurite check`"))?;
    }
    output.flush()
}

fn as_json(report: &CollectReport, seconds: f64) -> Value {
    let progress = |at: &CollectProgress| {
        json!({
            "ratio": (at.ratio() * 1e4).round() / 1e4,
            "segment_bytes": at.segment_bytes,
            "live_bytes": at.live_bytes,
        })
    };
    json!({
        "reached": report.is_reached,
        "before": progress(&report.before),
        "after": progress(&report.after),
        "moved_bytes": report.after.moved_bytes,
        "segment_bytes_before": report.segment_bytes_before,
        "segment_bytes_after": report.segment_bytes_after,
        "seconds": (seconds * 1e6).round() / 1e6,
    })
}

/// How far it is from the first ratio to the one that was asked for.
struct Bar {
    bar: ProgressBar,
    until: f64,
    first: Option<f64>,
}

/// The bar counts in thousandths.
const WHOLE: u64 = 1000;

impl Bar {
    fn new(until: f64) -> Bar {
        let bar = ProgressBar::new(WHOLE);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent}% {wide_msg}") {
            bar.set_style(style);
        }
        stderr::print_above(&bar);
        Bar { bar, until, first: None }
    }

    fn show(&mut self, progress: &CollectProgress) {
        let ratio = progress.ratio();
        let first = *self.first.get_or_insert(ratio);
        let done = ((first - ratio) / (first - self.until).max(0.001)).clamp(0.0, 1.0);
        self.bar.set_position((done * WHOLE as f64) as u64);
        self.bar.set_message(format!("{ratio:.2} times the live data, {} moved", size(progress.moved_bytes)));
    }
}
