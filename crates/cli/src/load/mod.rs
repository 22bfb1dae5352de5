//! `fulgurite load`: rows from a file into a table.

mod acknowledge;
mod args;
mod batch;
mod progress;

pub(crate) use self::args::Args;

use std::sync::Arc;

use fulgurite::Database;
use fulgurite::env::{Env, RealEnv};
use serde_json::json;

use self::batch::{Batches, Refused};
use self::progress::Progress;
use crate::failure::Failure;
use crate::input::{Lines, Source};
use crate::open::{Missing, with_database};
use crate::output::Output;
use crate::rows::{Columns, CsvRows, Format, JsonRows, Next, Row, Rows, TsvRows};
use crate::{interrupt, text};

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let env: Arc<dyn Env> = RealEnv::new();
    // The input first: a file that is not there must not leave an empty database behind.
    let source = Source::open(&*env, args.file())?;
    let name = source.name().to_string();
    let progress = Progress::new(&source, args.json);
    let loaded =
        with_database(&args.dir, Missing::Create, |db| load(&env, db, args, source, &name, progress))?;
    if loaded.interrupted { Err(Failure::interrupted()) } else { Ok(()) }
}

/// What a load did.
struct Loaded {
    rows: u64,
    bad_rows: u64,
    commits: u64,
    seconds: f64,
    interrupted: bool,
}

fn load(
    env: &Arc<dyn Env>,
    db: &Database,
    args: &Args,
    source: Source,
    name: &str,
    progress: Progress,
) -> Result<Loaded, Failure> {
    let table = db.table(&args.table)?;
    let began_ns = env.clock().monotonic_ns();
    let mut batches = Batches::start(env, db, &table, args.batch, args.json)?;
    let mut bad_rows = 0;
    let taken = match open_rows(args, source) {
        Ok(Some(mut rows)) => take_rows(&mut *rows, args, name, &mut batches, &mut bad_rows, &progress),
        Ok(None) => Ok(End::Interrupted),
        Err(failure) => Err(failure),
    };
    progress.finish();
    let (durable, commits, outcome) = batches.finish();
    let said = |failure: Failure| failure.and(&format!("{} durable", are(durable)));
    // A commit that failed is why nothing more was taken: it goes first.
    outcome.map_err(said)?;
    let end = taken.map_err(said)?;
    let seconds = (env.clock().monotonic_ns() - began_ns) as f64 / 1e9;
    let loaded = Loaded { rows: durable, bad_rows, commits, seconds, interrupted: end == End::Interrupted };
    loaded.report(args)?;
    Ok(loaded)
}

/// Opens the parser; `None` if a signal came before the first row.
fn open_rows(args: &Args, source: Source) -> Result<Option<Box<dyn Rows>>, Failure> {
    let header = args.header || Columns::need_header(&args.key, &args.value);
    Ok(match args.format() {
        Format::Tsv => TsvRows::open(Lines::new(source), &args.key, &args.value, header, args.escaped)?
            .map(|rows| Box::new(rows) as Box<dyn Rows>),
        Format::Csv => {
            CsvRows::open(source, &args.key, &args.value, header)?.map(|rows| Box::new(rows) as Box<dyn Rows>)
        }
        Format::Jsonl => {
            Some(Box::new(JsonRows::new(Lines::new(source), &args.key_field, &args.value_field)))
        }
    })
}

/// Why there were no more rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Input,
    Interrupted,
}

fn take_rows(
    rows: &mut dyn Rows,
    args: &Args,
    name: &str,
    batches: &mut Batches,
    bad_rows: &mut u64,
    progress: &Progress,
) -> Result<End, Failure> {
    let mut row = Row::default();
    loop {
        let why = match rows.next(&mut row)? {
            Next::Row => match batches.add(&row) {
                Ok(committed) => {
                    if committed {
                        progress.update(batches.rows());
                        if interrupt::asked() {
                            return Ok(End::Interrupted);
                        }
                    }
                    continue;
                }
                Err(Refused::Row(error)) => error.to_string(),
                Err(Refused::Load(failure)) => return Err(failure),
            },
            Next::Bad(why) => why,
            Next::Idle => {
                batches.commit()?;
                continue;
            }
            Next::Interrupted => return Ok(End::Interrupted),
            Next::End => return Ok(End::Input),
        };
        if !args.skip_bad {
            return Err(Failure::new(format!("{name}, line {}: {why}", rows.line())));
        }
        *bad_rows += 1;
    }
}

impl Loaded {
    fn rows_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.rows as f64 / self.seconds } else { 0.0 }
    }

    fn report(&self, args: &Args) -> Result<(), Failure> {
        let mut output = Output::new();
        let printed = if args.json { self.print_json(&mut output) } else { self.print(args, &mut output) };
        // Whoever listened has gone; the rows are there all the same.
        match printed.and_then(|()| output.flush()) {
            Err(Failure::ReaderGone) => Ok(()),
            other => other,
        }
    }

    fn print_json(&self, output: &mut Output) -> Result<(), Failure> {
        output.json(&json!({
            "rows": self.rows,
            "durable_rows": self.rows,
            "bad_rows": self.bad_rows,
            "commits": self.commits,
            "seconds": (self.seconds * 1e6).round() / 1e6,
            "rows_per_second": self.rows_per_second() as u64,
            "interrupted": self.interrupted,
        }))
    }

    fn print(&self, args: &Args, output: &mut Output) -> Result<(), Failure> {
        if self.interrupted {
            output.line(format!(
                "interrupted: {} durable, the rest of the input was not loaded",
                are(self.rows)
            ))?;
        }
        // Of a load that is over at once the rate says nothing.
        let rate = match self.seconds < 0.1 {
            true => String::new(),
            false => format!(", {} rows/s", text::number(self.rows_per_second() as u64)),
        };
        output.line(format!(
            "{} durable in table `{}`: {}, {:.3} s{rate}",
            text::count(self.rows, "row"),
            args.table,
            text::count(self.commits, "commit"),
            self.seconds,
        ))?;
        if self.bad_rows > 0 {
            output.line(format!("{} skipped", text::count(self.bad_rows, "bad row")))?;
        }
        Ok(())
    }
}

fn are(rows: u64) -> String {
    format!("{} {}", text::count(rows, "row"), if rows == 1 { "is" } else { "are" })
}
