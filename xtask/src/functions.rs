//! Functions: seldom above 70 lines, never above 150.

use std::path::Path;

use crate::{Source, shown};

/// No function is longer.
const LINES_MAX: usize = 150;
/// Longer ones are listed in [`LONG`], with a reason.
const LINES_USUAL_MAX: usize = 70;

/// Functions that are longer than usual, and why.
const LONG: &[(&str, &str)] =
    &[("wanted", "what each workload of the benchmarks runs by default, an arm each")];

/// Functions that are too long.
pub fn check_lengths(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test) {
        for (name, line, lines) in functions(&source.production) {
            let problem =
                format!("{}:{line}: the function `{name}` has {lines} lines", shown(root, &source.path));
            if lines > LINES_MAX {
                problems.push(format!("{problem}, at most {LINES_MAX} are allowed"));
            } else if lines > LINES_USUAL_MAX && !LONG.iter().any(|(long, _)| *long == name) {
                problems.push(format!(
                    "{problem}, at most {LINES_USUAL_MAX} are usual: split it, or argue in LONG"
                ));
            }
        }
    }
    problems
}

/// Name, first line and length of each function. The code is formatted: a function ends at the first line that is a
/// closing brace as far in as its first line.
fn functions(lines: &[String]) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let Some(name) = function_name(code) else { continue };
        let end = lines[index..].iter().position(|line| line.len() == indent + 1 && line.ends_with('}'));
        let declared_only =
            lines[index..].iter().take_while(|line| !line.contains('{')).any(|line| line.ends_with(';'));
        if let (Some(end), false) = (end, declared_only || line.ends_with('}')) {
            found.push((name.to_string(), index + 1, end + 1));
        }
    }
    found
}

fn function_name(code: &str) -> Option<&str> {
    let mut rest = code;
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "unsafe ", "async "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next()
}
