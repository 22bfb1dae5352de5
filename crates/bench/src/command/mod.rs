//! The command line of the benchmarks, shared by the programs that have them: `fulgurite bench`, with Fulgurite alone,
//! and `bench-peers`, which has other stores, too.

mod compare;
mod figure_args;
mod list;
mod options;
mod output;
mod parse;
mod progress;
mod workloads;

use std::ffi::OsString;
use std::sync::Arc;

use fulgurite::env::{Env, RealEnv};

use self::compare::CompareArgs;
use self::options::RunArgs;
use self::output::Outputs;
use self::progress::Bar;
use self::workloads::{
    CommitArgs, DeleteQueueArgs, JobQueueArgs, LinkBenchArgs, LoadArgs, MvccVsLockArgs, OverwriteArgs,
    PageVsLogArgs, ReadArgs, ScanArgs, TpcbArgs, TpccArgs, WiscKeyArgs, YcsbArgs,
};
use crate::child::{Place, with_causes};
use crate::figures::View;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::report::End;
use crate::{Report, serve};

/// The program that has the benchmarks.
pub struct Program {
    /// How users call it: `fulgurite bench`, `bench-peers`.
    pub name: &'static str,
    /// The engines that it has.
    pub registry: Registry,
    /// The arguments that lead its own executable to [`Program::run`] with a hidden command, `cell`, which they do not
    /// include.
    pub child_args: Vec<String>,
    /// Whether a signal has asked to end.
    pub asked: fn() -> bool,
}

/// Why a command ended without success.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The message for the user; empty if it was printed already.
    pub text: String,
    /// The exit code: 1 if it failed, 2 for a wrong command line, 3 for a regression that `compare` found, 130 if it
    /// was interrupted.
    pub code: u8,
}

impl Failure {
    fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code: 1 }
    }

    fn usage(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code: 2 }
    }

    fn of(error: &dyn std::error::Error) -> Failure {
        Failure::new(with_causes(error))
    }
}

/// What to run: a workload, a figure of a paper, or something with reports.
#[expect(
    missing_docs,
    reason = "workloads are described at their arguments: that is the help of the command line"
)]
#[derive(Debug, clap::Subcommand)]
pub enum What {
    Commit(Box<CommitArgs>),
    Ycsb(Box<YcsbArgs>),
    Tpcc(Box<TpccArgs>),
    Tpcb(Box<TpcbArgs>),
    Linkbench(Box<LinkBenchArgs>),
    Wisckey(Box<WiscKeyArgs>),
    PageVsLog(Box<PageVsLogArgs>),
    MvccVsLock(Box<MvccVsLockArgs>),
    Read(Box<ReadArgs>),
    Scan(Box<ScanArgs>),
    Load(Box<LoadArgs>),
    DeleteQueue(Box<DeleteQueueArgs>),
    JobQueue(Box<JobQueueArgs>),
    OverwriteSteady(Box<OverwriteArgs>),
    /// Show the engines, workloads and figures.
    List,
    /// Compare two reports, and fail if the newer one is slower beyond the noise.
    Compare(CompareArgs),
    /// Make one HTML page of reports that were written before.
    Page(output::PageArgs),
    /// Do one run, whose job is on standard input: this program starts itself with it.
    #[command(hide = true)]
    Cell,
    /// A figure or table of a paper.
    #[command(external_subcommand)]
    Figure(Vec<OsString>),
}

/// Help that follows the list of commands.
pub const AFTER_HELP: &str = "\
FIGURES:
  A figure or table of a paper is run by its name: figure5a, wisckey-figure5, flashtkv-figure6a, slides-tpcb, ...; `list` shows
  them all. It takes a few minutes, prints a table, and writes NAME.json, NAME.md, NAME.html and its plots.";

impl Program {
    /// Runs the command.
    ///
    /// # Errors
    /// The message for the user, and the exit code.
    pub fn run(&self, what: &What) -> Result<(), Failure> {
        match what {
            What::Commit(args) => self.workload(&args.run, args.view(self)?),
            What::Ycsb(args) => self.workload(&args.run, args.view(self)?),
            What::Tpcc(args) => self.workload(&args.run, args.view(self)?),
            What::Tpcb(args) => self.workload(&args.run, args.view(self)?),
            What::Linkbench(args) => self.workload(&args.run, args.view(self)?),
            What::Wisckey(args) => self.workload(&args.run, args.view(self)?),
            What::PageVsLog(args) => self.workload(&args.run, args.view(self)?),
            What::MvccVsLock(args) => self.workload(&args.run, args.view(self)?),
            What::Read(args) => self.workload(&args.run, args.view(self)?),
            What::Scan(args) => self.workload(&args.run, args.view(self)?),
            What::Load(args) => self.workload(&args.run, args.view(self)?),
            What::DeleteQueue(args) => self.workload(&args.run, args.view(self)?),
            What::JobQueue(args) => self.workload(&args.run, args.view(self)?),
            What::OverwriteSteady(args) => self.workload(&args.run, args.view(self)?),
            What::List => list::print(self),
            What::Compare(args) => args.run(),
            What::Page(args) => args.run(),
            What::Cell => {
                let env: Arc<dyn Env> = RealEnv::new();
                serve(&env, &self.registry).map_err(|error| Failure::of(&error))
            }
            What::Figure(words) => figure_args::run(self, words),
        }
    }

    fn workload(&self, run: &RunArgs, (plan, view): (Plan, View)) -> Result<(), Failure> {
        let outputs = Outputs::of(run)?;
        let report = self.measure(&plan)?;
        outputs.write(&report, &view)?;
        finish(&report)
    }

    /// Runs a plan under a progress bar.
    fn measure(&self, plan: &Plan) -> Result<Report, Failure> {
        let env: Arc<dyn Env> = RealEnv::new();
        let program = std::env::current_exe();
        let program =
            program.map_err(|error| Failure::new(format!("asking for the path of this program: {error}")))?;
        let args = self.child_args.iter().cloned().chain(["cell".to_string()]).collect();
        let mut bar = Bar::new(self.asked);
        let report = plan.run(&env, &self.registry, &Place::Child(program, args), &mut bar);
        bar.finish();
        report.map_err(|error| Failure::of(&error))
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
