//! Chores of the repository: `cargo xtask tidy` checks what the compiler does not.

mod architecture;
mod example;
mod files;
mod functions;
mod identifiers;
mod links;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy(),
        _ => {
            eprintln!("usage: cargo xtask tidy");
            ExitCode::from(2)
        }
    }
}

fn tidy() -> ExitCode {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository").to_path_buf();
    let sources = files::rust_sources(&root);
    let mut problems = files::check_lengths(&root, &sources);
    problems.extend(functions::check_lengths(&root, &sources));
    problems.extend(architecture::check_hops(&root));
    problems.extend(example::check(&root));
    problems.extend(links::check(&root));
    problems.extend(words::check(&root, &sources));
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    println!("tidy: {} files, {} problems", sources.len(), problems.len());
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A file of the repository, read.
pub(crate) struct Source {
    /// Its path.
    pub path: PathBuf,
    /// Its lines, tests beside the code cut off.
    pub production: Vec<String>,
    /// Whether the whole file is tests or an example.
    pub is_test: bool,
}

/// A path relative to the root of the repository.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
