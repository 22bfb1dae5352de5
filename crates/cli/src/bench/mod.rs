//! `fulgurite bench`: measures commits on this machine.

mod args;
mod progress;
mod table;

pub(crate) use self::args::Args;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use fulgurite::Durability;
use fulgurite::env::{Env, RealEnv};
use fulgurite_bench::{End, Report, draw, json};

use self::args::{Benchmark, CommitArgs};
use self::progress::Bar;
use crate::failure::{Failure, with_causes};
use crate::interrupt;
use crate::io::OutputFile;
use crate::output::Output;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.benchmark {
        Benchmark::Commit(args) => commit(args),
    }
}

fn commit(args: &CommitArgs) -> Result<(), Failure> {
    let plan = args.plan()?;
    // Before all the work: a file that cannot be written is known now.
    let json_file = create(args.json.as_deref().filter(|path| *path != Path::new("-")))?;
    let svg_file = create(args.svg.as_deref())?;
    interrupt::listen()?;
    if args.durability == Durability::NoBarrier {
        eprintln!(
            "warning: what no-barrier answers is durable only if the device's cache survives a power cut"
        );
    }
    let env: Arc<dyn Env> = RealEnv::new();
    let mut bar = Bar::new(args.rounds);
    let ran = plan.run(&env, &mut bar);
    bar.finish();
    let report = ran.map_err(|error| Failure::new(with_causes(&error)))?;
    if !report.is_empty() {
        write_files(args, &report, json_file, svg_file)?;
        print(args, &report)?;
    }
    match &report.end {
        End::Complete => Ok(()),
        End::Interrupted if report.is_empty() => Err(Failure::interrupted_before("nothing was measured")),
        End::Interrupted => Err(Failure::interrupted()),
        End::Failed(error) => Err(Failure::new(with_causes(error))),
    }
}

fn create(path: Option<&Path>) -> Result<Option<OutputFile>, Failure> {
    path.map(OutputFile::create).transpose()
}

fn write_files(
    args: &CommitArgs,
    report: &Report,
    json_file: Option<OutputFile>,
    svg_file: Option<OutputFile>,
) -> Result<(), Failure> {
    if let Some(file) = json_file {
        write(file, args.json.as_deref(), &format!("{:#}\n", json(report, &args.settings())))?;
    }
    if let Some(file) = svg_file {
        let picture = draw(report, &title(report, args));
        let picture = picture.map_err(|error| Failure::new(with_causes(&error)))?;
        write(file, args.svg.as_deref(), &picture)?;
    }
    Ok(())
}

fn title(report: &Report, args: &CommitArgs) -> String {
    let sizes = report.sizes;
    let settings = args.settings().into_iter().map(|(name, value)| format!(", {name} {value}"));
    format!(
        "{}, {}-byte keys, {}-byte values{}",
        report.workload,
        sizes.key_bytes,
        sizes.value_bytes,
        settings.collect::<String>()
    )
}

fn write(mut file: OutputFile, path: Option<&Path>, text: &str) -> Result<(), Failure> {
    let name = path.map(|path| path.display().to_string()).unwrap_or_default();
    file.write_all(text.as_bytes()).map_err(|error| Failure::file("writing", &name, &error))?;
    file.finish()
}

fn print(args: &CommitArgs, report: &Report) -> Result<(), Failure> {
    let mut output = Output::new();
    let printed = match args.json.as_deref() {
        Some(path) if path == Path::new("-") => {
            output.line(format!("{:#}", json(report, &args.settings()))).and_then(|()| output.flush())
        }
        _ => table::print(report, &args.settings(), &mut output),
    };
    match printed {
        // The end of the benchmark is what the exit code tells.
        Err(Failure::ReaderGone) => Ok(()),
        other => other,
    }
}
