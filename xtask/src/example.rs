//! The first example is in the README, in the library's documentation and in a program: the same lines.

use std::path::Path;

const FIRST: &str = "use fulgurite::{Database, Options};";
const FILES: [&str; 3] = ["README.md", "crates/fulgurite/src/lib.rs", "crates/fulgurite/examples/first.rs"];

/// The files whose example differs from the README's.
pub fn check(root: &Path) -> Vec<String> {
    let lines: Vec<Vec<String>> = FILES.iter().map(|file| example(&root.join(file))).collect();
    let differs = |file: &usize| lines[*file] != lines[0] || lines[*file].len() < 10;
    (0..FILES.len())
        .filter(differs)
        .map(|file| format!("{}: its first example is not the one of {}", FILES[file], FILES[0]))
        .collect()
}

/// The example's lines: without indentation, spaces before comments, blank and hidden lines, and the path.
fn example(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let code = text.lines().map(|line| line.trim_start().trim_start_matches("//!").trim());
    let shown =
        code.filter(|line| !line.is_empty() && !line.starts_with('#')).skip_while(|line| *line != FIRST);
    let until_loop_ends = shown.scan(false, |ended, line| {
        let go_on = !*ended;
        *ended |= line == "}";
        go_on.then(|| line.to_string())
    });
    until_loop_ends
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").replace("&path", "\"./data\""))
        .filter(|line| !line.starts_with("fn main"))
        .collect()
}
