//! `fulgurite load`: rows from a file into a table.

mod acknowledge;
mod args;
mod batch;
mod progress;
mod replaced;
mod tables;

pub(crate) use self::args::{Args, Input};

use std::sync::Arc;

use fulgurite::Database;
use fulgurite::env::{Env, RealEnv};
use serde_json::json;

use self::batch::{Batches, Commits, Outcome, Refused};
use self::progress::Progress;
use crate::failure::Failure;
use crate::input::{Lines, Source};
use crate::open::{options, with_options};
use crate::output::Output;
use crate::rows::{Columns, CsvRows, Format, JsonFields, JsonRows, Next, Row, Rows, TsvRows};
use crate::{interrupt, text};

/// Memory for the entries of an atomic load, which is one transaction; its large values are on disk.
const ATOMIC_BYTES_MAX: usize = 2 << 30;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let input = args.input()?;
    interrupt::listen()?;
    let env: Arc<dyn Env> = RealEnv::new();
    // The input first: a missing file must not leave an empty database.
    let source = Source::open(&*env, input.file)?;
    let name = source.name().to_string();
    let progress = Progress::new(&source, args.json);
    let mut options = options();
    if args.atomic {
        options.transaction_bytes_max = ATOMIC_BYTES_MAX;
    }
    let load = Load { env: &env, args, input: &input, name: &name, progress };
    let loaded = with_options(&args.dir, options, |db| load.run(db, source))?;
    if loaded.interrupted { Err(Failure::interrupted()) } else { Ok(()) }
}

/// A running load.
struct Load<'a> {
    env: &'a Arc<dyn Env>,
    args: &'a Args,
    input: &'a Input<'a>,
    /// The input's name for messages.
    name: &'a str,
    progress: Progress,
}

/// What a load did.
struct Loaded {
    outcome: Outcome,
    bad: BadRows,
    seconds: f64,
    interrupted: bool,
}

/// Rows that were skipped.
#[derive(Default)]
struct BadRows {
    count: u64,
    /// The line of the first bad row, and why it is bad.
    first: Option<(u64, String)>,
}

/// Why the rows ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Input,
    Interrupted,
}

impl Load<'_> {
    fn run(&self, db: &Database, source: Source) -> Result<Loaded, Failure> {
        let began_ns = self.env.clock().monotonic_ns();
        let when = if self.args.atomic { Commits::Atomic } else { Commits::Rows(self.args.batch) };
        let mut batches = Batches::start(self.env, db, self.input.table, when, self.args.json)?;
        let mut bad = BadRows::default();
        let taken = match self.open_rows(source) {
            Ok(Some(mut rows)) => self.take_rows(&mut *rows, &mut batches, &mut bad),
            Ok(None) => Ok(End::Interrupted),
            Err(failure) => Err(failure),
        };
        self.progress.finish();
        let (outcome, finished) = batches.finish(matches!(taken, Ok(End::Input)));
        let said = |failure: Failure| failure.and(&format!("{} durable", are(outcome.durable)));
        // A failed commit is why the load took no more rows: it is reported first.
        finished.map_err(said)?;
        let end = taken.map_err(said)?;
        let seconds = (self.env.clock().monotonic_ns() - began_ns) as f64 / 1e9;
        let loaded = Loaded { outcome, bad, seconds, interrupted: end == End::Interrupted };
        loaded.report(self.args, self.input, self.name)?;
        Ok(loaded)
    }

    /// Opens the parser; `None` if a signal came before the first row.
    fn open_rows(&self, source: Source) -> Result<Option<Box<dyn Rows>>, Failure> {
        let args = self.args;
        let header = args.header || Columns::need_header(&args.key, &args.value);
        Ok(match self.input.format {
            Format::Tsv => TsvRows::open(Lines::new(source), &args.key, &args.value, header, args.escaped)?
                .map(|rows| Box::new(rows) as Box<dyn Rows>),
            Format::Csv => CsvRows::open(source, &args.key, &args.value, header, args.format.delimiter())?
                .map(|rows| Box::new(rows) as Box<dyn Rows>),
            Format::Jsonl => {
                let fields = JsonFields {
                    key: &args.key_field,
                    value: &args.value_field,
                    expiry: args.expiry_field.as_deref(),
                    has_tables: args.all,
                };
                Some(Box::new(JsonRows::new(Lines::new(source), &fields)))
            }
        })
    }

    fn take_rows(
        &self,
        rows: &mut dyn Rows,
        batches: &mut Batches,
        bad: &mut BadRows,
    ) -> Result<End, Failure> {
        let mut row = Row::default();
        loop {
            let taken = match rows.next(&mut row)? {
                Next::Row => batches.add(&row),
                Next::Table => batches.add_table(&row.table).map(|()| false),
                Next::Bad(why) => {
                    self.refuse(&why, rows.line(), bad)?;
                    continue;
                }
                Next::Idle => {
                    batches.pause()?;
                    continue;
                }
                Next::Interrupted => return Ok(End::Interrupted),
                Next::End => return self.at_end(batches),
            };
            match taken {
                Ok(committed) => {
                    if committed || self.args.atomic && batches.rows().is_multiple_of(1000) {
                        self.progress.update(batches.rows());
                        if interrupt::asked() {
                            return Ok(End::Interrupted);
                        }
                    }
                }
                Err(Refused::Row(error)) => self.refuse(&error.to_string(), rows.line(), bad)?,
                Err(Refused::Load(failure)) => return Err(failure),
            }
        }
    }

    /// A load makes its table even if it has no rows.
    fn at_end(&self, batches: &mut Batches) -> Result<End, Failure> {
        match self.input.table.map_or(Ok(()), |table| batches.add_table(table)) {
            Ok(()) => Ok(End::Input),
            Err(Refused::Row(error)) => Err(error.into()),
            Err(Refused::Load(failure)) => Err(failure),
        }
    }

    fn refuse(&self, why: &str, line: u64, bad: &mut BadRows) -> Result<(), Failure> {
        if !self.args.skip_bad {
            return Err(Failure::new(format!("{}, line {line}: {why}", self.name)));
        }
        bad.count += 1;
        bad.first.get_or_insert_with(|| (line, why.to_string()));
        Ok(())
    }
}

impl Loaded {
    fn rows_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.outcome.durable as f64 / self.seconds } else { 0.0 }
    }

    fn report(&self, args: &Args, input: &Input<'_>, name: &str) -> Result<(), Failure> {
        let mut output = Output::new();
        let printed =
            if args.json { self.print_json(&mut output) } else { self.print(input, name, &mut output) };
        // The reader of the output has closed it; the rows are durable all the same.
        match printed.and_then(|()| output.flush()) {
            Err(Failure::ReaderGone) => Ok(()),
            other => other,
        }
    }

    fn print_json(&self, output: &mut Output) -> Result<(), Failure> {
        output.json(&json!({
            "rows": self.outcome.durable,
            "durable_rows": self.outcome.durable,
            "replaced_rows": self.outcome.replaced,
            "replaced_rows_exact": self.outcome.replaced_exactly,
            "expired_rows": self.outcome.expired,
            "bad_rows": self.bad.count,
            "first_bad_line": self.bad.first.as_ref().map(|(line, _)| line),
            "first_bad_reason": self.bad.first.as_ref().map(|(_, why)| why),
            "commits": self.outcome.commits,
            "seconds": (self.seconds * 1e6).round() / 1e6,
            "rows_per_second": self.rows_per_second() as u64,
            "interrupted": self.interrupted,
        }))
    }

    fn print(&self, input: &Input<'_>, name: &str, output: &mut Output) -> Result<(), Failure> {
        let rows = self.outcome.durable;
        if self.interrupted {
            output
                .line(format!("interrupted: {} durable, the rest of the input was not loaded", are(rows)))?;
        }
        // The rate of a very short load means nothing.
        let rate = match self.seconds < 0.1 {
            true => String::new(),
            false => format!(", {} rows/s", text::number(self.rows_per_second() as u64)),
        };
        let in_table = input.table.map_or_else(String::new, |table| format!(" in table `{table}`"));
        output.line(format!(
            "{} durable{in_table}{}{}: {}, {:.3} s{rate}",
            text::count(rows, "row"),
            self.replaced(),
            self.expired(),
            text::count(self.outcome.commits, "commit"),
            self.seconds,
        ))?;
        if let Some((line, why)) = &self.bad.first {
            let (count, verb) = (
                text::count(self.bad.count, "bad row"),
                if self.bad.count == 1 { "it" } else { "the first" },
            );
            output.line(format!("{count} skipped; {verb} is {name}, line {line}: {why}"))?;
        }
        Ok(())
    }

    fn expired(&self) -> String {
        match self.outcome.expired {
            0 => String::new(),
            rows => format!(", {} of them had expired already", text::number(rows)),
        }
    }

    fn replaced(&self) -> String {
        match (self.outcome.replaced, self.outcome.replaced_exactly) {
            (0, _) => String::new(),
            (rows, true) => format!(", {} replaced", text::number(rows)),
            (rows, false) => format!(", at least {} replaced", text::number(rows)),
        }
    }
}

fn are(rows: u64) -> String {
    format!("{} {}", text::count(rows, "row"), if rows == 1 { "is" } else { "are" })
}
