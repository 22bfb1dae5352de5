//! `fulgurite probe`: measures a device and its file system.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::RangedU64ValueParser;
use fulgurite::env::{Env, RealEnv};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::interrupt;
use crate::io::OutputFile;
use crate::output::Output;
use crate::probe::{Report, advise, as_json, draw, lines, measure};
use crate::stderr;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite probe /var/lib/shop
  fulgurite probe /mnt/nvme --seconds 10 --svg latency.svg
  fulgurite probe . --json | jq '.expected[0].commits_per_second'";

/// Measure what a device and its file system make of durable writes and random reads.
///
/// Times the ways to write a log (appending, over zeros, around the page cache; each with and without a sync) and
/// direct reads; says what the device claims of its cache, which rate and latency of commits to expect, and which
/// options to set. Needs up to 448 MiB of free space, less for fewer seconds. Its files are removed when it ends, also
/// by SIGINT and SIGTERM; only kill -9 leaves files `fulgurite-probe-*`, which may be deleted. Databases in the
/// directory are not touched; what else uses the device or the processors spoils the figures.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A directory on the device.
    dir: PathBuf,
    /// How long to measure, preparation included.
    #[arg(long, value_name = "N", default_value = "40", value_parser = seconds())]
    seconds: u64,
    /// Print a JSON object (docs/probe.md describes it).
    #[arg(long)]
    pub json: bool,
    /// Also draw the latencies of writes as a bar chart.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn seconds() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=3_600)
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    // The chart's file first: a name that cannot be written must not cost a whole run.
    let chart = args.svg.as_deref().map(OutputFile::create).transpose()?;
    let env: Arc<dyn Env> = RealEnv::new();
    let bar = progress_bar(args.json);
    let measured = measure(&env, &args.dir, args.seconds, |step| {
        bar.set_length(step.total);
        bar.set_position(step.done);
        bar.set_message(step.what.to_string());
    });
    bar.finish_and_clear();
    let report = measured?;
    if let Some(file) = chart {
        write_chart(file, &report)?;
    }
    let advice = advise(&report);
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(&report, &advice))?;
    } else {
        for line in lines(&report, &advice) {
            output.line(line)?;
        }
    }
    output.flush()
}

fn progress_bar(hidden: bool) -> ProgressBar {
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed}, {msg}") {
        bar.set_style(style);
    }
    stderr::print_above(&bar);
    bar
}

fn write_chart(mut file: OutputFile, report: &Report) -> Result<(), Failure> {
    let svg = draw(report).map_err(|error| Failure::new(format!("drawing the chart: {error}")))?;
    file.write_all(svg.as_bytes()).map_err(|error| Failure::new(format!("writing the chart: {error}")))?;
    file.finish()
}
