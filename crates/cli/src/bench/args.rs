//! The command line of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use fulgurite::{Durability, FlushScheme, Options, Waiting};
use fulgurite_bench::workload::{Insert, Oltp, Sizes, UpdateSearch};
use fulgurite_bench::{Engine, FulguriteEngine, Limit, Plan, Workload};

use crate::duration::parse_duration;
use crate::failure::Failure;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite bench commit /mnt/disk
  fulgurite bench commit /mnt/disk --workload oltp --seconds 10 --svg oltp.svg";

/// Measure this program on this machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub benchmark: Benchmark,
}

#[derive(clap::Subcommand)]
pub(crate) enum Benchmark {
    Commit(Box<CommitArgs>),
}

const COMMIT_EXAMPLES: &str = "\
EXAMPLES:
  The three flush schemes side by side, with the threads and transactions of the paper:
    fulgurite bench commit /mnt/disk

  A look in a minute:
    fulgurite bench commit /mnt/disk --threads 1,8,64 --seconds 2 --rounds 2

  Updates and searches, as JSON for a program, and as a picture:
    fulgurite bench commit /mnt/disk --workload update-search --json result.json --svg result.svg

  One thread, one scheme, beside what the bare device does:
    fulgurite bench commit /mnt/disk --threads 1 --scheme combined --transactions 20000

  Commits that are not waited for one by one, 16 in flight for each thread:
    fulgurite bench commit /mnt/disk --scheme combined --tickets 16

  What weaker durability would be worth:
    fulgurite bench commit /mnt/disk --scheme combined --durability async:10ms";

/// Compare how commits share flushes: the workloads of Son, Yeom and Han (2017), scheme beside scheme.
///
/// Runs each scheme with each number of threads, several rounds of all of them in turn, each run with a fresh database,
/// and prints medians over the rounds with their spread: rates, latencies, where the time went, locks and syncs, how
/// many commits were consolidated in a group and how many requests one sync completed. The bare device is measured in
/// between: one 4 KiB block at a time, each durable before the next. After each run the rows are counted.
///
/// The databases lie in a directory of their own below DIR, which is removed at the end. The first SIGINT or SIGTERM
/// ends the run at hand and prints what there is, marked; a second one ends at once and leaves the directory behind.
#[derive(clap::Args)]
#[command(after_help = COMMIT_EXAMPLES)]
pub(crate) struct CommitArgs {
    /// A directory on the disk to be measured.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// What the threads do. insert: single inserts; update-search: half updates, half searches; oltp: the writing
    /// statements of sysbench OLTP, an index included.
    #[arg(long, value_enum, default_value_t = WorkloadName::Insert)]
    workload: WorkloadName,
    /// Bytes of each key and each value [default: 20,100; oltp: 20,188].
    #[arg(long, value_name = "KEY,VALUE", value_parser = parse_sizes)]
    sizes: Option<Sizes>,
    /// update-search and oltp: the rows that are there beforehand.
    #[arg(long, value_name = "ROWS", default_value_t = 100_000, value_parser = at_least(1))]
    rows: u64,
    /// Numbers of threads.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "8,16,32,64,128",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Transactions of each thread.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = at_least(1))]
    transactions: u64,
    /// Run this long instead of a number of transactions.
    #[arg(long, value_name = "SECONDS", conflicts_with = "transactions", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Transactions of each thread before the measured ones.
    #[arg(long, value_name = "N", default_value_t = 0)]
    warm_up: u64,
    /// How often all of it is run.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Flush schemes to compare: own-lsn, aggregated, combined [default: all].
    #[arg(long, value_name = "SCHEME,...", value_delimiter = ',', value_parser = parse_scheme)]
    scheme: Vec<FlushScheme>,
    /// The scheme that the others are compared with [default: own-lsn, or the first].
    #[arg(long, value_name = "SCHEME", value_parser = parse_scheme)]
    baseline: Option<FlushScheme>,
    /// What committers do meanwhile: block, spin-then-block [default: that of the library].
    #[arg(long, value_parser = parse_waiting)]
    waiting: Option<Waiting>,
    /// How durable commits are when they are answered: sync, async:TIME (async:10ms), none, no-barrier.
    #[arg(long, value_name = "LEVEL", default_value = "sync", value_parser = parse_durability)]
    pub durability: Durability,
    /// Word for word "the cache is power-safe": for no-barrier on a device that says it has a volatile cache.
    #[arg(long, value_name = "SENTENCE")]
    i_know: Option<String>,
    /// Commits that each thread has in flight; 0: it waits for each.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    tickets: u32,
    /// Write the figures as JSON to this file; `-`: to standard output, instead of the tables.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Draw transactions a second by threads into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WorkloadName {
    Insert,
    UpdateSearch,
    Oltp,
}

impl CommitArgs {
    /// What to run.
    pub fn plan(&self) -> Result<Plan, Failure> {
        let schemes = if self.scheme.is_empty() { FlushScheme::ALL.to_vec() } else { self.scheme.clone() };
        if let Some(scheme) = twice(&schemes) {
            return Err(Failure::usage(format!("--scheme names {} twice", scheme.name())));
        }
        if let Some(threads) = twice(&self.threads) {
            return Err(Failure::usage(format!("--threads names {threads} twice")));
        }
        let baseline = match self.baseline {
            None => schemes.iter().position(|scheme| *scheme == FlushScheme::OwnLsn).unwrap_or(0),
            Some(baseline) => schemes.iter().position(|scheme| *scheme == baseline).ok_or_else(|| {
                Failure::usage(format!("--baseline {} is not among the schemes that run", baseline.name()))
            })?,
        };
        let engine = |scheme: &FlushScheme| {
            Box::new(FulguriteEngine { options: self.options(*scheme) }) as Box<dyn Engine>
        };
        Ok(Plan {
            workload: self.make_workload()?,
            engines: schemes.iter().map(engine).collect(),
            baseline,
            threads: self.threads.clone(),
            limit: self.seconds.map_or(Limit::Transactions(self.transactions), Limit::Time),
            warm_up: self.warm_up,
            tickets: self.tickets,
            rounds: self.rounds,
            dir: self.dir.clone(),
        })
    }

    /// The engine's settings, for reports.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let options = self.options(FlushScheme::default());
        vec![
            ("engine", format!("fulgurite {}", env!("CARGO_PKG_VERSION"))),
            ("durability", durability_name(self.durability)),
            ("waiting", options.waiting.name().to_string()),
        ]
    }

    fn options(&self, flush_scheme: FlushScheme) -> Options {
        let defaults = Options::default();
        Options {
            flush_scheme,
            durability: self.durability,
            waiting: self.waiting.unwrap_or(defaults.waiting),
            i_know: self.i_know.clone(),
            ..defaults
        }
    }

    fn make_workload(&self) -> Result<Box<dyn Workload>, Failure> {
        Ok(match self.workload {
            WorkloadName::Insert => Box::new(Insert::new(self.sizes.unwrap_or(Insert::SIZES))),
            WorkloadName::UpdateSearch => {
                Box::new(UpdateSearch::new(self.sizes.unwrap_or(UpdateSearch::SIZES), self.rows))
            }
            WorkloadName::Oltp => {
                let sizes = self.sizes.unwrap_or(Oltp::SIZES);
                if sizes.value_bytes < Oltp::VALUE_BYTES_MIN {
                    return Err(Failure::usage(format!(
                        "--sizes: a value of the workload oltp has at least {} bytes",
                        Oltp::VALUE_BYTES_MIN
                    )));
                }
                Box::new(Oltp::new(sizes, self.rows))
            }
        })
    }
}

fn at_least(least: u64) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(least..)
}

/// The first value that comes again.
fn twice<T: PartialEq>(values: &[T]) -> Option<&T> {
    values.iter().enumerate().find(|(place, value)| values[..*place].contains(value)).map(|(_, value)| value)
}

/// The one of `all` that is called `text`.
fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|value| name(*value) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().copied().map(name).collect();
        format!("allowed are {}", names.join(", "))
    })
}

fn parse_scheme(text: &str) -> Result<FlushScheme, String> {
    named(text, &FlushScheme::ALL, FlushScheme::name)
}

fn parse_waiting(text: &str) -> Result<Waiting, String> {
    named(text, &[Waiting::Block, Waiting::SpinThenBlock], Waiting::name)
}

fn parse_durability(text: &str) -> Result<Durability, String> {
    match text.split_once(':') {
        None if text == "sync" => Ok(Durability::Sync),
        None if text == "none" => Ok(Durability::None),
        None if text == "no-barrier" => Ok(Durability::NoBarrier),
        Some(("async", interval)) => Ok(Durability::Async { interval: parse_duration(interval)? }),
        _ => Err("allowed are sync, async:TIME (a number and ms, s, m or h), none, no-barrier".to_string()),
    }
}

fn durability_name(durability: Durability) -> String {
    match durability {
        Durability::None => "none".to_string(),
        Durability::Async { interval } => format!("async:{}ms", interval.as_millis()),
        Durability::NoBarrier => "no-barrier".to_string(),
        Durability::Sync => "sync".to_string(),
        other => format!("{other:?}"),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_string())?;
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err("allowed are 0.01 to 86400 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let parsed = text.split_once(',').and_then(|(key, value)| Some((key.parse().ok()?, value.parse().ok()?)));
    let (key_bytes, value_bytes) =
        parsed.ok_or("two numbers of bytes are expected, of the key and the value: 20,100")?;
    let sizes = Sizes { key_bytes, value_bytes };
    if !(Sizes::KEY_BYTES_MIN..=Sizes::KEY_BYTES_MAX).contains(&key_bytes) {
        let (least, most) = (Sizes::KEY_BYTES_MIN, Sizes::KEY_BYTES_MAX);
        return Err(format!("a key has {least} to {most} bytes, not {key_bytes}"));
    }
    if value_bytes > Sizes::VALUE_BYTES_MAX {
        return Err(format!("a value has at most {} bytes, not {value_bytes}", Sizes::VALUE_BYTES_MAX));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for scheme in FlushScheme::ALL {
            assert_eq!(parse_scheme(scheme.name()), Ok(scheme));
        }
        assert_eq!(parse_scheme("best"), Err("allowed are own-lsn, aggregated, combined".to_string()));
        assert_eq!(parse_waiting("block"), Ok(Waiting::Block));
        for text in ["sync", "none", "no-barrier", "async:10ms"] {
            assert_eq!(parse_durability(text).map(durability_name).as_deref(), Ok(text));
        }
        for wrong in ["async", "async:", "async:5", "sync:1s", "", "Sync"] {
            assert!(parse_durability(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_seconds_have_limits() {
        assert_eq!(parse_sizes("20,0"), Ok(Sizes { key_bytes: 20, value_bytes: 0 }));
        for wrong in ["20", "11,100", "20,1048577", "a,b", "20,100,1"] {
            assert!(parse_sizes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1s", "1e9"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
