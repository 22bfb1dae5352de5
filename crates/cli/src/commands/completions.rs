//! `fulgurite completions`: what a shell needs to complete commands and options.

use clap_complete::{Shell, generate};

use crate::failure::Failure;
use crate::output::Output;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite completions bash > /usr/share/bash-completion/completions/fulgurite
  fulgurite completions zsh > /usr/local/share/zsh/site-functions/_fulgurite
  fulgurite completions fish > ~/.config/fish/completions/fulgurite.fish";

/// Print a script that completes this program's commands and options in a shell.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args, program: &mut clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, program, "fulgurite", &mut script);
    let mut output = Output::new();
    output.bytes(&script)?;
    output.flush()
}
