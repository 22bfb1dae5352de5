//! Files: one subject each, so that none is long.

use std::path::{Path, PathBuf};

use crate::{Source, shown};

/// Most lines of production code in a file.
const LINES_MAX: usize = 800;
/// Nine files in ten have at most this many.
const LINES_P90_MAX: usize = 400;
/// Half of the files have at most this many.
const LINES_MEDIAN_MAX: usize = 150;
/// Most lines of a test file.
const TEST_LINES_MAX: usize = 800;

/// Every Rust source of the repository.
pub fn rust_sources(root: &Path) -> Vec<Source> {
    let mut paths = Vec::new();
    for dir in ["crates", "examples", "fuzz", "xtask"] {
        collect(&root.join(dir), &mut paths);
    }
    paths.sort();
    paths.into_iter().map(read).collect()
}

fn collect(dir: &Path, paths: &mut Vec<PathBuf>) {
    #[expect(clippy::disallowed_methods, reason = "tidy reads the repository, no database")]
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, paths);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn read(path: PathBuf) -> Source {
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let in_folder = ["tests", "examples", "benches", "fuzz_targets"];
    let is_test = path.components().any(|component| {
        let component = component.as_os_str().to_string_lossy();
        in_folder.contains(&component.as_ref()) || component.ends_with("_tests")
    }) || path.file_stem().is_some_and(|stem| {
        let stem = stem.to_string_lossy();
        stem == "tests" || stem.ends_with("_tests")
    });
    let mut production = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let opens_tests = line.starts_with("#[cfg(test)]")
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if opens_tests {
            break;
        }
        production.push(line.to_string());
    }
    Source { path, production, is_test }
}

/// Files that are too long.
pub fn check_lengths(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut lengths = Vec::new();
    for source in sources {
        let lines = source.production.len();
        let max = if source.is_test { TEST_LINES_MAX } else { LINES_MAX };
        if lines > max {
            problems
                .push(format!("{} has {lines} lines, at most {max} are allowed", shown(root, &source.path)));
        }
        if !source.is_test {
            lengths.push(lines);
        }
    }
    lengths.sort_unstable();
    let at = |share: usize| lengths.get(lengths.len() * share / 100).copied().unwrap_or(0);
    for (name, share, max) in [("half", 50, LINES_MEDIAN_MAX), ("nine in ten", 90, LINES_P90_MAX)] {
        if at(share) > max {
            problems.push(format!("{name} of the files have up to {} lines, {max} are allowed", at(share)));
        }
    }
    problems
}
