//! `fulgurite check`: verifies a database.

use std::path::PathBuf;

use fulgurite::check::{CheckProgress, CheckReport};
use fulgurite::env::{Env, RealEnv};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::failure::{self, Failure};
use crate::open::with_reader;
use crate::output::Output;
use crate::stderr;
use crate::text::{count, number, size};

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite check shop.db
  fulgurite check shop.db --json || mail -s 'shop.db is damaged' me@example.org";

/// Verify everything in a database: nodes, values, the log, the accounts.
///
/// Reads all that the database refers to, and writes nothing: what a killed process left is replayed in memory. Prints one
/// line for each problem, and what to do; the exit code is 3 if there is one, also if the database cannot be opened because
/// of it. Nothing is repaired.
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
    let clock = RealEnv::new();
    let checked = with_reader(&args.dir, |db| {
        let began_ns = clock.clock().monotonic_ns();
        let bar = Bar::new();
        let report = db.check(|progress| bar.show(&progress))?;
        bar.bar.finish_and_clear();
        let seconds = (clock.clock().monotonic_ns() - began_ns) as f64 / 1e9;
        print(args, &report, seconds)?;
        Ok(report)
    });
    let report = match checked {
        Err(Failure::Message { text, code: failure::DAMAGED, .. }) if args.json => {
            let report = CheckReport { problems: vec![text], ..CheckReport::default() };
            print(args, &report, 0.0)?;
            report
        }
        other => other?,
    };
    if report.problems.is_empty() { Ok(()) } else { Err(Failure::damaged()) }
}

fn print(args: &Args, report: &CheckReport, seconds: f64) -> Result<(), Failure> {
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(report, seconds))?;
        return output.flush();
    }
    for problem in &report.problems {
        output.line(format!("problem: {problem}"))?;
    }
    for note in &report.notes {
        output.line(format!("note: {note}"))?;
    }
    let in_log = match report.recent_versions {
        0 => String::new(),
        recent => format!(", and {} that the log has and the tables not yet", count(recent, "operation")),
    };
    output.line(format!(
        "read {} of {}{in_log}; {}, {} outside of them ({}), {} in {}; {seconds:.2} s",
        count(report.entries, "entry"),
        count(report.tables, "table"),
        count(report.node_records, "node record"),
        count(report.values, "value"),
        size(report.value_bytes),
        count(report.frames, "frame"),
        count(report.segments, "segment"),
    ))?;
    output.line(verdict(report))?;
    output.flush()
}

/// The totals of the report, and the advice that follows from them.
fn verdict(report: &CheckReport) -> String {
    let problems = report.problems.len() as u64;
    let counted = count(problems, "problem");
    match (problems, report.mendable_problems) {
        (0, _) => "the database is sound".into(),
        (problems, mendable) if problems == mendable => {
            format!(
                "{counted}: the next command that writes mends {}",
                if problems == 1 { "it" } else { "them" }
            )
        }
        _ => format!("{counted}: restore a backup"),
    }
}

fn as_json(report: &CheckReport, seconds: f64) -> Value {
    json!({
        "sound": report.problems.is_empty(),
        "problems": report.problems,
        "mendable_problems": report.mendable_problems,
        "notes": report.notes,
        "tables": report.tables,
        "entries": report.entries,
        "recent_versions": report.recent_versions,
        "node_records": report.node_records,
        "values": report.values,
        "value_bytes": report.value_bytes,
        "segments": report.segments,
        "frames": report.frames,
        "seconds": (seconds * 1e6).round() / 1e6,
    })
}

/// Shows on a terminal how far the check has come.
struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new() -> Bar {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        stderr::print_above(&bar);
        Bar { bar }
    }

    fn show(&self, progress: &CheckProgress) {
        if self.bar.is_hidden() {
            return;
        }
        let (what, done, total) = (&progress.what, number(progress.done), number(progress.total));
        // The total is an estimate, and may turn out to be too low.
        self.bar.set_message(match progress.total > progress.done {
            true => format!("checking {what}: {done} of about {total}"),
            false => format!("checking {what}: {done}"),
        });
        self.bar.tick();
    }
}
