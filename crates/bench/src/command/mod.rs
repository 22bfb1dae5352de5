//! The command line of the benchmarks, shared by the programs that have them: `fulgurite-bench`, with Fulgurite alone,
//! and `bench-peers`, which has other stores, too.

mod figure_args;
mod list;
mod options;
mod output;
pub(crate) mod parse;
mod progress;
mod signals;
mod tail_latency;
mod workloads;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Subcommand};

use fulgurite::env::{Env, RealEnv};

use self::options::RunArgs;
use self::progress::Bar;
use self::workloads::WorkloadArgs;
use crate::child::{Process, with_causes};
use crate::figures::workload_view;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::report::End;
use crate::server_process::serve_store;
use crate::{Error, Report, serve};

const EXIT_CODES: &str = "\
EXIT CODES:
  0    success
  1    it failed, or one of its rows did
  2    the command line is wrong
  3    `compare` found a regression
  130  a signal (SIGINT, SIGTERM) ended it; it printed and wrote what it had measured until then";

/// Measure Fulgurite, and the other stores that this program has, on this machine.
///
/// Each run is a process of its own with a fresh store, in a directory below DIR that is removed afterwards; what was
/// written is checked at its end. What an engine cannot do is `n/a`: nothing weaker is run instead. Runs are
/// repeated in rounds, and tables show medians and how far apart the rounds are. The first SIGINT or SIGTERM ends the run
/// at hand and shows what there is, marked; a second one ends at once and leaves the directory behind.
#[derive(clap::Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// A program that has the benchmarks.
struct Program {
    /// How users call it: `fulgurite-bench`, `bench-peers`.
    name: &'static str,
    /// The engines that it has.
    registry: Registry,
}

/// The main function of the program `name` with these engines.
pub fn main(name: &'static str, registry: Registry) -> ExitCode {
    let examples = format!(
        "EXAMPLES:\n  {name} commit /mnt/disk\n  {name} ycsb /mnt/disk --threads 1,16 --seconds 10 --html ycsb.html\n  \
         {name} compare before.json after.json"
    );
    let help = format!("{FIGURES_HELP}\n\n{EXIT_CODES}\n\n{examples}");
    let workloads = WorkloadArgs::augment_subcommands(clap::Command::new(""));
    let workloads = workloads.get_subcommands().map(clap::Command::get_name);
    let command = Arguments::command().name(name).bin_name(name).after_help(help);
    let command =
        workloads.fold(command, |command, workload| command.mut_subcommand(workload, RunArgs::add_to));
    let matches = command.get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let program = Program { name, registry };
    match signals::listen().and_then(|()| program.run(&arguments.what, &matches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.text.is_empty() {
                eprintln!("error: {}", failure.text.replace('\n', " "));
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Why a command ended without success.
struct Failure {
    /// The message for the user; empty if it was printed already.
    text: String,
    /// One of [`EXIT_CODES`].
    code: u8,
}

impl Failure {
    fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code: 1 }
    }

    fn usage(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code: 2 }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(with_causes(&error))
    }
}

/// What to run: a workload, a figure of a paper, or something with reports.
#[derive(clap::Subcommand)]
enum What {
    #[command(flatten)]
    Workload(Box<WorkloadArgs>),
    /// Show the engines, workloads and figures.
    List,
    /// Compare two reports, and fail if the newer one is slower beyond the noise.
    Compare(output::CompareArgs),
    /// Make one HTML page of reports that were written before.
    Page(output::PageArgs),
    /// Do one run, whose job is on standard input: this program starts itself with it.
    #[command(hide = true)]
    Run,
    /// Serve the store that standard input names, until it ends: this program starts itself with it.
    #[command(hide = true)]
    ServeStore,
    /// A figure or table of a paper.
    #[command(external_subcommand)]
    Figure(Vec<OsString>),
}

const FIGURES_HELP: &str = "\
FIGURES:
  A figure or table of a paper is run by its name: figure5a, wisckey-figure5, slides-tpcb, ...;
  `list` shows them all. It takes a few minutes, prints a table, and writes NAME.json, NAME.md,
  NAME.html and its plots.";

impl Program {
    fn run(&self, what: &What, matches: &ArgMatches) -> Result<(), Failure> {
        match what {
            What::Workload(args) => {
                let (_, options) = matches.subcommand().expect("a workload");
                let run = RunArgs::from_arg_matches(options).unwrap_or_else(|error| error.exit());
                self.workload(&run, args)
            }
            What::List => list::print(self),
            What::Compare(args) => args.run(),
            What::Page(args) => args.run(),
            What::Run => {
                let env: Arc<dyn Env> = RealEnv::new();
                Ok(serve(&env, &self.registry)?)
            }
            What::ServeStore => Ok(serve_store()?),
            What::Figure(words) => figure_args::run(self, words),
        }
    }

    fn workload(&self, run: &RunArgs, args: &WorkloadArgs) -> Result<(), Failure> {
        let plan = run.plan(self, args.wanted(run)?)?;
        let view =
            workload_view(&plan.name, plan.data_points.iter().map(|data_point| data_point.name.as_str()));
        run.outputs.check()?;
        let report = self.measure(&plan)?;
        run.outputs.write(&report, &view)?;
        finish(&report)
    }

    /// Runs a plan under a progress bar.
    fn measure(&self, plan: &Plan) -> Result<Report, Failure> {
        let env: Arc<dyn Env> = RealEnv::new();
        let program = std::env::current_exe();
        let program =
            program.map_err(|error| Failure::new(format!("asking for the path of this program: {error}")))?;
        let (bar, process) = (Bar::new(), Process::Child(program, vec!["run".into()]));
        let report = plan.run(&env, &self.registry, &process, &mut |progress| bar.show(progress));
        bar.finish();
        Ok(report?)
    }
}

/// Fails unless all of the plan was run.
fn finish(report: &Report) -> Result<(), Failure> {
    match &report.end {
        End::Complete => Ok(()),
        End::Interrupted if report.is_empty() => {
            Err(Failure { text: "interrupted: nothing was measured".into(), code: 130 })
        }
        End::Interrupted => Err(Failure { text: String::new(), code: 130 }),
        End::Failed(why) => Err(Failure::new(why.clone())),
    }
}
