//! `fulgurite man`: man pages.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

use crate::failure::{EXIT_CODES, Failure};
use crate::io::OutputFile;
use crate::output::Output;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite man | man -l -
  fulgurite man load | man -l -
  fulgurite man --out /usr/local/share/man/man1";

/// Print a man page, or write all of them.
///
/// There is one for the program and one for each command, such as fulgurite-load.1.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The command; missing: the program.
    #[arg(conflicts_with = "out")]
    command: Option<String>,
    /// Write all pages into this directory, which has to exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, mut program: Command) -> Result<(), Failure> {
    program.build();
    let commands = || program.get_subcommands().filter(|command| !command.is_hide_set());
    if let Some(dir) = &args.out {
        return std::iter::once(&program).chain(commands()).try_for_each(|command| write(command, dir));
    }
    let command = match &args.command {
        None => &program,
        Some(name) => commands().find(|command| command.get_name() == name).ok_or_else(|| {
            Failure::usage(format!("there is no command `{name}`: `fulgurite --help` lists them"))
        })?,
    };
    let mut output = Output::new();
    output.bytes(&page(command).map_err(Failure::output)?)?;
    output.flush()
}

fn write(command: &Command, dir: &Path) -> Result<(), Failure> {
    let path = dir.join(format!("{}.1", page_name(command)));
    let failed = |error: io::Error| Failure::file("writing", &path.display().to_string(), &error);
    let mut file = OutputFile::create(&path)?;
    page(command).and_then(|page| file.write_all(&page)).map_err(failed)?;
    file.finish()
}

/// `fulgurite-load`.
fn page_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).replace(' ', "-")
}

/// A page; examples and exit codes keep their lines.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    let help = help.map(|help| help.to_string()).unwrap_or_default();
    let man = Man::new(command.clone())
        .title(page_name(command))
        .source(format!("fulgurite {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let codes = if help.contains(EXIT_CODES) { "" } else { EXIT_CODES };
    for block in help.split("\n\n").chain([codes]) {
        verbatim(block, &mut page)?;
    }
    Ok(page)
}

/// A paragraph whose lines stay as they are. One that begins with a title in capitals begins a section.
fn verbatim(block: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let mut lines = block.lines().peekable();
    if let Some(title) = lines.next_if(|line| line.ends_with(':') && !line.starts_with(' ')) {
        writeln!(page, ".SH {:?}", title.trim_end_matches(':').to_uppercase())?;
    } else if lines.peek().is_some() {
        writeln!(page, ".PP")?;
    }
    if lines.peek().is_some() {
        writeln!(page, ".nf")?;
        for line in lines {
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            // A dot or a quote in front would be taken for a request.
            writeln!(page, "\\&{line}")?;
        }
        writeln!(page, ".fi")?;
    }
    Ok(())
}
