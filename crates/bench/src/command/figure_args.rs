//! The command line of figures.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches};

use super::parse::check_unique;
use super::{Failure, Program, finish, output};
use crate::figures::{Experiment, Figure, Settings, figures};
use crate::plan::{Configuration, labels};
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
    #[command(flatten)]
    settings: Settings,
    /// Only these of the engines that the figure compares, by their names.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    engine: Vec<String>,
    /// Only these of the rows that the figure has, by their names.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    row: Vec<String>,
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
    check_unique("threads", &args.settings.threads)?;
    let mut experiment = (figure.build)(&args.settings);
    choose(&mut experiment, program, figure, &args.engine)?;
    choose_rows(&mut experiment, figure, &args.row)?;
    let view = experiment.view.clone();
    let plan = experiment.plan(figure, args.settings.rounds, args.assume_power_safe_cache, args.dir.clone());
    make_dir(&args.out)?;
    let report = program.measure(&plan)?;
    if report.is_void() {
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
    let is_known =
        |configuration: &Configuration| program.registry.find(&configuration.engine, false).is_ok();
    for name in wanted {
        match experiment.configurations.iter().find(|configuration| configuration.is_called(name)) {
            Some(configuration) if is_known(configuration) => {}
            Some(_) => {
                return Err(Failure::usage(format!("`{name}` is not in this program: bench-peers has it")));
            }
            None => {
                let (figure, labels) = (figure.name, labels(&experiment.configurations));
                return Err(Failure::usage(format!("`{name}` is not in {figure}: there are {labels}")));
            }
        }
    }
    let total = experiment.configurations.len();
    experiment.configurations.retain(|configuration| match wanted {
        [] => is_known(configuration),
        wanted => wanted.iter().any(|name| configuration.is_called(name)),
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

/// Keeps the rows that the user named, or else all.
fn choose_rows(experiment: &mut Experiment, figure: &Figure, wanted: &[String]) -> Result<(), Failure> {
    let data_points = &mut experiment.data_points;
    let mut names: Vec<&str> =
        data_points.iter().map(|row| &*row.name).filter(|name| !name.is_empty()).collect();
    names.dedup();
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(&&***name)) {
        let names = if names.is_empty() {
            "its rows have no names".into()
        } else {
            format!("there are {}", names.join(", "))
        };
        return Err(Failure::usage(format!("`{unknown}` is no row of {}: {names}", figure.name)));
    }
    if !wanted.is_empty() {
        data_points.retain(|row| wanted.contains(&row.name));
    }
    Ok(())
}

fn make_dir(dir: &std::path::Path) -> Result<(), Failure> {
    let env = fulgurite::env::RealEnv::new();
    fulgurite::env::Env::disk(&*env).create_dir_all(dir).map_err(output::failed("making", dir))
}
