//! The command line of figures.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};

use super::parse::{scale, seconds, twice};
use super::{Failure, Program, finish, output};
use crate::figures::{Experiment, Figure, Settings, figures};
use crate::plan::Configuration;
use crate::terminal::text_table;

/// A figure or table of a paper, at a scale that takes a few minutes.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true)]
struct FigureArgs {
    /// Its name.
    name: String,
    /// A directory on the disk to be measured.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Multiply the rows that are there beforehand; 1 is what takes a few minutes.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = scale)]
    scale: f64,
    /// How long each run of those that are limited by time takes.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// How often all of it is run [default: 1 to 5, by the figure].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Only these numbers of threads, where the figure has several.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Only these of the engines that the figure compares, by their names.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    engine: Vec<String>,
    /// Where the report, the tables and the plots are written.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,
    /// Your word that the device's cache survives a power cut: for no-barrier on a device that says it has a volatile one.
    #[arg(long)]
    assume_power_safe_cache: bool,
}

pub(super) fn run(program: &Program, words: &[OsString]) -> Result<(), Failure> {
    let command = FigureArgs::command().bin_name(program.name);
    let parsed = command.try_get_matches_from(words).and_then(|words| FigureArgs::from_arg_matches(&words));
    let args = parsed.unwrap_or_else(|error| error.exit());
    let known = |figure: &&Figure| figure.name == args.name || figure.aliases.contains(&args.name.as_str());
    let figure = figures().find(known).ok_or_else(|| {
        let name = &args.name;
        Failure::usage(format!(
            "there is no workload, figure or table `{name}`: `{} list` shows all",
            program.name
        ))
    })?;
    if let Some(threads) = twice(&args.threads) {
        return Err(Failure::usage(format!("--threads names {threads} twice")));
    }
    let settings = Settings { scale: args.scale, seconds: args.seconds, threads: args.threads.clone() };
    let mut experiment = (figure.build)(&settings);
    choose(&mut experiment, program, figure, &args.engine)?;
    let view = experiment.view.clone();
    let plan = experiment.plan(figure, args.rounds, args.assume_power_safe_cache, args.dir.clone());
    make_dir(&args.out)?;
    let report = program.measure(&plan)?;
    if report.is_empty() && report.rows.iter().all(|row| row.not_available.is_none()) {
        return finish(&report);
    }
    output::print(&text_table(&report, view.terminal()))?;
    for file in output::write_all(&args.out, &report, &view)? {
        eprintln!("wrote {}", file.display());
    }
    finish(&report)
}

/// Keeps the engines that the user named, or else those that the program has.
fn choose(
    experiment: &mut Experiment,
    program: &Program,
    figure: &Figure,
    wanted: &[String],
) -> Result<(), Failure> {
    let is_called = |configuration: &Configuration, name: &String| {
        *name == configuration.label || *name == configuration.engine
    };
    let is_known =
        |configuration: &Configuration| program.registry.find(&configuration.engine, false).is_ok();
    for name in wanted {
        match experiment.configurations.iter().find(|configuration| is_called(configuration, name)) {
            Some(configuration) if is_known(configuration) => {}
            Some(_) => {
                return Err(Failure::usage(format!("`{name}` is not in this program: bench-peers has it")));
            }
            None => {
                let labels =
                    experiment.configurations.iter().map(|configuration| configuration.label.as_str());
                let labels = labels.collect::<Vec<_>>().join("; ");
                return Err(Failure::usage(format!(
                    "`{name}` is not in {}: there are {labels}",
                    figure.name
                )));
            }
        }
    }
    let total = experiment.configurations.len();
    experiment.configurations.retain(|configuration| match wanted {
        [] => is_known(configuration),
        wanted => wanted.iter().any(|name| is_called(configuration, name)),
    });
    let left = experiment.configurations.len();
    if left == 0 {
        return Err(Failure::usage(format!(
            "none of the {total} engines of {} is in this program",
            figure.name
        )));
    }
    if wanted.is_empty() && left < total {
        let missing = total - left;
        experiment
            .notes
            .push(format!("{missing} engines of the figure are not in this program: bench-peers has them"));
    }
    Ok(())
}

fn make_dir(dir: &std::path::Path) -> Result<(), Failure> {
    let env = fulgurite::env::RealEnv::new();
    let made = fulgurite::env::Env::disk(&*env).create_dir_all(dir);
    made.map_err(|error| Failure::new(format!("making {}: {error}", dir.display())))
}
