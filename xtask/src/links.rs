//! Links of the documents lead to files that exist, and to headings that their files have.

use std::path::Path;

use crate::{shown, words};

/// Links that lead nowhere.
pub fn check(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let documents = words::documents(root).into_iter().chain([root.join("CHANGELOG.md")]);
    for path in documents {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = path.parent().unwrap_or(root);
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            if !target.exists() {
                problems.push(format!("{}: the link `{link}` leads to no file", shown(root, &path)));
            } else if !heading.is_empty() && !has_heading(&target, heading) {
                problems.push(format!("{}: the link `{link}` leads to no heading", shown(root, &path)));
            }
        }
    }
    problems
}

/// The targets of the links inside the repository; code blocks have none.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|prose| prose.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).collect()
}

fn has_heading(path: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

/// The anchor that a heading gets: lower case, spaces become hyphens, other signs go.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_anchors_are_found() {
        let text = "[a](b.md#c) ```\nf[0](1)\n``` and ![d](e.svg), [f](https://g.h)";
        assert_eq!(links(text), ["b.md#c", "e.svg"]);
        assert_eq!(anchor(" WiscKey with a buffer, Fig. 5 to 8"), "wisckey-with-a-buffer-fig-5-to-8");
    }
}
