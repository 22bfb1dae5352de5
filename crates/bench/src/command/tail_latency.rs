//! The options of `tail-latency`.

use std::time::Duration;

use super::Failure;
use super::options::{RunArgs, Wanted};
use crate::engine::parse_ms;
use crate::measurement::Limit;
use crate::pace::{Pacing, Rate};
use crate::spec::Spec;
use crate::workload::{Micro, Sizes, TailLatency};

/// The share of the highest rate, if neither it nor a rate is given.
const SHARE: f64 = 0.8;
/// How long the highest rate is looked for: long enough for checkpoints and compactions to take part.
const WARM_UP: Duration = Duration::from_secs(20);

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
  A minute at 80 % of what one thread can do, beside bare writes to the same device:
    fulgurite-bench tail-latency /mnt/disk --rounds 1 --bare-device --html tails.html

  The same rate with less frequent and with more frequent checkpoints, in turns:
    fulgurite-bench tail-latency /mnt/disk --rate 2000 --svg tails.svg \\
      --engine fulgurite,fulgurite:checkpoint-log-bytes=8MiB

  A hundred of ten thousand tables are written, ten rows a commit:
    fulgurite-bench tail-latency /mnt/disk --tables 10000 --written 100 --batch 10";

#[derive(clap::Args)]
pub(super) struct TailLatencyArgs {
    /// Commits a second of all threads together, at fixed times; max: each thread begins one when its last one has
    /// ended.
    #[arg(long, value_name = "N|max", value_parser = rate)]
    rate: Option<Rate>,
    /// The rate is this share of the highest one, which each run finds in its warm-up [default: 0.8]. The warm-up is 20 s
    /// then, if --warm-up does not say otherwise: background work has to take part in it.
    #[arg(long, value_name = "SHARE", conflicts_with = "rate", value_parser = share)]
    share: Option<f64>,
    /// Rows of a commit.
    #[arg(long, value_name = "ROWS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch: u64,
    /// The rows that are there beforehand, before --scale.
    #[arg(long, value_name = "ROWS", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Bytes of a value; keys have 20.
    #[arg(long, value_name = "N", default_value_t = Micro::SIZES.value_bytes as u64,
          value_parser = clap::value_parser!(u64).range(Micro::VALUE_BYTES_MIN as u64..=Sizes::VALUE_BYTES_MAX as u64))]
    value_bytes: u64,
    /// Tables; those that are not written have one row each.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(TailLatency::TABLES_MAX)))]
    tables: u32,
    /// How many of the tables have the rows, and are written [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    written: Option<u32>,
    /// How often a thread asks an engine about its checkpoints, which takes time from the others if there are many tables;
    /// 0ms: never.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = interval)]
    ask_every: Duration,
    /// Write 4 KiB to a file of its own 20 times a second meanwhile, each write durable: shows whether a stall is the
    /// device's.
    #[arg(long)]
    bare_device: bool,
}

impl TailLatencyArgs {
    /// What to run; `wanted` has the defaults of all workloads.
    pub(super) fn wanted(&self, run: &RunArgs, wanted: Wanted) -> Result<Wanted, Failure> {
        let rate = self.rate.unwrap_or(Rate::Share(self.share.unwrap_or(SHARE)));
        let is_share = matches!(rate, Rate::Share(_));
        if is_share && matches!(run.warm_up, Some(Limit::Operations(0) | Limit::Time(Duration::ZERO))) {
            return Err(Failure::usage(
                "--warm-up 0 leaves no rate for --share: give --rate, or a longer one",
            ));
        }
        let (tables, rows) = (self.tables, run.scaled(self.rows)?);
        let written = self.written.unwrap_or(tables);
        if written > tables || u64::from(written) > rows {
            let what = format!("--written {written}: there are {tables} tables and {rows} rows");
            return Err(Failure::usage(what));
        }
        let ask_every = Some(self.ask_every).filter(|every| !every.is_zero());
        let sizes = Sizes { value_bytes: self.value_bytes as usize, ..Micro::SIZES };
        let workload = TailLatency { sizes, rows, batch: self.batch, tables, written };
        Ok(Wanted {
            specs: vec![(String::new(), Spec::TailLatency(workload))],
            threads: &[1],
            limit: Limit::Time(Duration::from_secs(60)),
            warm_up: is_share.then_some(Limit::Time(WARM_UP)),
            pacing: Some(Pacing { rate, ask_every, bare_device: self.bare_device }),
            ..wanted
        })
    }
}

/// A rate, or `max`.
fn rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        _ if text == "max" => Ok(Rate::Max),
        Ok(rate) if (0.1..=1e7).contains(&rate) => Ok(Rate::PerSecond(rate)),
        _ => Err("commits a second, 0.1 to 10000000, or max are expected".into()),
    }
}

/// A time between calls, or none.
fn interval(text: &str) -> Result<Duration, String> {
    let ms = parse_ms(text).filter(|ms| *ms <= 60_000);
    ms.map(Duration::from_millis)
        .ok_or_else(|| "a time with s or ms, up to 60s, is expected: 10ms".to_string())
}

/// A share of the highest rate.
fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.01..=2.0).contains(&share) => Ok(share),
        _ => Err("a share from 0.01 to 2 is expected".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_have_limits() {
        assert_eq!((rate("max"), rate("0.5")), (Ok(Rate::Max), Ok(Rate::PerSecond(0.5))));
        assert_eq!(share("0.8"), Ok(0.8));
        for wrong in ["", "0", "-1", "nan", "inf", "fast", "1e8"] {
            assert!(rate(wrong).is_err() && share(wrong).is_err() && interval(wrong).is_err(), "{wrong}");
        }
        assert_eq!((interval("10ms"), interval("0s")), (Ok(Duration::from_millis(10)), Ok(Duration::ZERO)));
    }
}
