//! Documents name functions, files and tests: each of them must exist.

use std::path::Path;

use crate::{shown, words};

/// References of the form `path/file.rs:function` or `path/file.rs` to files or functions that do not exist.
pub fn check_hops(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for path in words::documents(root) {
        let document = shown(root, &path);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for hop in text.split('`').skip(1).step_by(2).filter(|hop| hop.contains(".rs")) {
            if let Some(problem) = check_hop(root, hop) {
                problems.push(format!("{document}: `{hop}`: {problem}"));
            }
        }
    }
    problems
}

fn check_hop(root: &Path, hop: &str) -> Option<&'static str> {
    let (path, function) = match hop.split_once(".rs:") {
        Some((path, function)) => (format!("{path}.rs"), Some(function)),
        None => (hop.to_string(), None),
    };
    let folders = ["", "crates/log/tests/log", "crates/fulgurite/tests", "crates/fulgurite/tests/api"];
    let texts: Vec<String> = folders
        .iter()
        .filter_map(|folder| std::fs::read_to_string(root.join(folder).join(&path)).ok())
        .collect();
    if texts.is_empty() {
        return Some("there is no such file");
    }
    let function = function?.rsplit("::").next().unwrap_or_default();
    let declared = [format!("fn {function}("), format!("fn {function}<")];
    if texts.iter().any(|text| declared.iter().any(|declared| text.contains(declared.as_str()))) {
        None
    } else {
        Some("there is no such function in it")
    }
}
