//! The words of the glossary: identifiers, comments and documents use the field's, and threads have roles.

use std::path::Path;

use crate::identifiers::{Identifier, identifiers};
use crate::{Source, shown};

/// A private word, and what to write instead.
struct Private {
    /// Its forms, as parts of identifiers or as words of prose.
    forms: &'static [&'static str],
    instead: &'static str,
    /// Paths where it has another meaning that the field gives it.
    except: &'static [&'static str],
}

/// Not searched: this list.
const UNSEARCHED: [&str; 1] = ["xtask/src/words.rs"];

const PRIVATE: [Private; 8] = [
    Private {
        forms: &["delta", "deltas"],
        instead: "memtables, or a leaf delta record",
        // A leaf delta record (FlashTKV), and the server's command of that name (NIOSIT).
        except: &[
            "crates/index/src/btree/",
            "crates/index/src/base.rs",
            "crates/index/src/pass.rs",
            "crates/index/src/fuzzing.rs",
            "crates/fuzz/src/",
            "fuzz/fuzz_targets/",
            "crates/index/tests/btree/",
            "crates/log/src/format/bulk.rs",
            "crates/log/src/bulk_stream.rs",
            "crates/log/src/stats.rs",
            "crates/fulgurite/tests/api/space.rs",
            "crates/cli/src/commands/dump",
            "crates/fulgurite/src/dump.rs",
            "crates/fulgurite/src/store.rs",
            "crates/bench/src/figures/niosit.rs",
            "crates/bench/src/server_engine.rs",
            "crates/server/src/command/delta.rs",
            "crates/server/src/command/mod.rs",
            "crates/server/src/command/table_server.rs",
            "crates/server/tests/commands/dispatch.rs",
            "docs/format/",
            "docs/benchmarks.md",
            "docs/glossary.md",
            "docs/architecture.md",
            "docs/checkpoints.md",
            "docs/performance.md",
            "docs/server.md",
        ],
    },
    Private { forms: &["generation", "generations"], instead: "memtable", except: &[] },
    Private { forms: &["staticpart"], instead: "base", except: &[] },
    Private {
        forms: &["fold", "folds", "folded", "folding"],
        instead: "merge",
        // `Iterator::fold`.
        except: &[
            "crates/bench/",
            "crates/cli/",
            "crates/env/src/sim/inode.rs",
            "crates/fulgurite/src/write_set.rs",
        ],
    },
    Private { forms: &["absorb", "absorbs", "absorber"], instead: "merge, merger", except: &[] },
    Private {
        forms: &["drained"],
        instead: "synced",
        except: &["crates/fulgurite/tests/queues.rs", "docs/performance.md"],
    },
    Private { forms: &["answered", "unanswered"], instead: "acknowledged", except: &[] },
    Private {
        forms: &["imaged", "images"],
        instead: "written out, node records",
        // Of the simulated disk, and pictures.
        except: &["crates/env/", "docs/benchmarks.md", "crates/fulgurite/tests/"],
    },
];

/// Words that prose may use, and identifiers may not: each with what to write instead.
const PRIVATE_NAMES: [(&[&str], &str); 8] = [
    (&["place", "places"], "LSN, position, offset, reservation, fences"),
    (&["part", "parts"], "chunk, range, component"),
    (&["cell", "cells"], "group slot, process"),
    (&["lane", "lanes"], "retrying session, bit"),
    (&["candidate", "candidates"], "configuration"),
    (&["hint", "hints"], "durable mark"),
    (&["told"], "what it was given or did"),
    (&["image", "images"], "node record"),
];

/// An identifier of more words is a sentence, as the name of a test is: not searched.
const NAME_WORDS_MAX: usize = 3;

/// Private names that others gave: identifiers, modules with their `::`, or a word of any identifier; where (in every
/// path, if there is none); and the reason.
const NAMED_BY_OTHERS: [(&[&str], &[&str], &str); 4] = [
    (
        &["cell::", "Cell", "RefCell", "UnsafeCell", "AtomicCell", "hint::", "from_raw_parts"],
        &[],
        "of the standard library, and of crossbeam",
    ),
    (&["_MM_HINT_T0"], &[], "of the processor's intrinsics"),
    (&["image_id"], &["crates/bench/src/workload/tpcc/"], "a column of TPC-C"),
    (
        &["image", "images"],
        &[
            "crates/env/",
            "crates/fuzz/src/",
            "crates/fulgurite/src/isolation_tests/",
            "crates/fulgurite/tests/",
            "crates/log/src/schedules/",
            "crates/log/tests/",
        ],
        "of the simulated disk",
    ),
];

/// Persons, where a thread has a role: committer, flush leader, waiter, reader, merger.
const PERSONS: [&str; 7] = ["who", "whoever", "whom", "whomever", "nobody", "somebody", "everybody"];

/// Of 1,000 lines of comment or of a document, at most this many name persons, or say "what is".
const PERSONS_MAX: usize = 3;

/// Areas of the repository that are counted together, and how many such lines they may have until their own turn comes.
const COUNTED: [(&str, usize); 10] = [
    ("crates/types/", 0),
    ("crates/env/", 0),
    ("crates/log/", 0),
    ("crates/index/", 0),
    ("crates/fulgurite/", 0),
    ("crates/resp/", 0),
    ("crates/cli/", 0),
    ("crates/bench/", 0),
    ("crates/bench-peers/", 0),
    ("docs/", 0),
];

/// Private words, and areas of the repository with too many persons.
pub fn check(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut counts = [(0, 0); COUNTED.len()];
    for path in sources.iter().map(|source| source.path.clone()).chain(documents(root)) {
        let name = shown(root, &path);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if name.ends_with(".rs") {
            problems.extend(identifiers(&text).iter().filter_map(|identifier| {
                let instead = private_name(identifier, &name)?;
                let Identifier { name: found, line, .. } = identifier;
                Some(format!("{name}:{line}: `{found}`: the field says what it is ({instead})"))
            }));
        }
        let area = COUNTED.iter().position(|(area, _)| name.starts_with(area));
        for (index, line) in text.lines().enumerate() {
            if !UNSEARCHED.iter().any(|path| name.starts_with(path)) {
                let found = private(line, &name);
                problems.extend(found.map(|(word, private)| {
                    format!("{name}:{}: `{word}`: the field says {}", index + 1, private.instead)
                }));
            }
            let prose = if name.ends_with(".md") { Some(line) } else { comment(line) };
            if let (Some(area), Some(prose)) = (area, prose) {
                counts[area].0 += 1;
                counts[area].1 += usize::from(names_a_person(prose));
            }
        }
    }
    for ((area, allowance), (lines, persons)) in COUNTED.iter().zip(counts) {
        let max = (lines * PERSONS_MAX).div_ceil(1000).max(*allowance);
        if persons > max {
            problems.push(format!(
                "{area}: {persons} of {lines} lines of prose say `who`, `nobody`, `what is` or the like, {max} are \
                 allowed: name the thread's role, or the thing"
            ));
        }
    }
    problems
}

/// The documents for people, the changelog left out: it says what the words were.
pub fn documents(root: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)).into();
    for dir in ["docs", "docs/format", "crates/fulgurite/src/guide"] {
        #[expect(clippy::disallowed_methods, reason = "tidy reads the repository, no database")]
        let Ok(entries) = std::fs::read_dir(root.join(dir)) else { continue };
        let found = entries.flatten().map(|entry| entry.path());
        paths.extend(found.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    paths
}

fn private(line: &str, name: &str) -> Option<(String, &'static Private)> {
    words(line).into_iter().find_map(|word| {
        let is_one = |private: &&Private| {
            private.forms.contains(&word.as_str())
                && !private.except.iter().any(|path| name.starts_with(path))
        };
        let private = PRIVATE.iter().find(is_one)?;
        Some((word, private))
    })
}

/// What the identifier should say instead of a private word.
fn private_name(identifier: &Identifier<'_>, path: &str) -> Option<&'static str> {
    let words = words(identifier.name);
    if words.len() > NAME_WORDS_MAX {
        return None;
    }
    words.iter().find_map(|word| {
        let (_, instead) = PRIVATE_NAMES.iter().find(|(forms, _)| forms.contains(&word.as_str()))?;
        (!is_named_by_others(identifier, word, path)).then_some(*instead)
    })
}

fn is_named_by_others(identifier: &Identifier<'_>, word: &str, path: &str) -> bool {
    let module = format!("{}::", identifier.name);
    let is_one =
        |name: &&str| *name == identifier.name || *name == word || (identifier.is_path && *name == module);
    NAMED_BY_OTHERS.iter().any(|(names, paths, _)| {
        let is_here = paths.is_empty() || paths.iter().any(|prefix| path.starts_with(prefix));
        is_here && names.iter().any(is_one)
    })
}

/// The words of a line in lower case, those in identifiers one by one: `OldestMemtable` and `oldest_memtable` have two.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in line.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().expect("there is one").extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn comment(line: &str) -> Option<&str> {
    let start = line.find("//")?;
    let is_comment = line[..start].chars().next_back().is_none_or(char::is_whitespace);
    is_comment.then(|| &line[start..])
}

fn names_a_person(prose: &str) -> bool {
    let words = words(prose);
    let what_is = words.windows(2).any(|pair| pair[0] == "what" && pair[1] == "is");
    what_is || words.iter().any(|word| PERSONS.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_words_too() {
        assert_eq!(words("let LeafDelta = oldest_delta(2);"), ["let", "leaf", "delta", "oldest", "delta"]);
        let found = |line: &str, name: &str| private(line, name).map(|(word, _)| word);
        assert_eq!(found("fn folds_oldest()", "crates/index/src/table/mod.rs").as_deref(), Some("folds"));
        assert_eq!(found("/// A leaf delta record", "crates/index/src/btree/load.rs"), None);
        assert_eq!(found("a folder", "crates/index/src/btree/load.rs"), None);
    }

    #[test]
    fn names_say_what_they_are() {
        let found = |code: &str, path: &str| {
            identifiers(code).iter().find_map(|identifier| private_name(identifier, path)).is_some()
        };
        let path = "crates/index/src/table/mod.rs";
        assert!(found("let used_places = 1;", path) && found("struct CellHint;", path));
        assert!(!found("let parting = \"part\"; // part", path));
        assert!(!found("fn a_part_of_it_is_there() {}", path), "a sentence");
        assert!(!found("use std::cell::UnsafeCell; std::slice::from_raw_parts(at, len);", path));
        assert!(found("let cell = hint;", path) && found("let image = 1;", path));
        let of_the_disk = "crates/env/src/sim/mod.rs";
        assert!(!found("let first_image = 1;", of_the_disk) && found("let image_part = 1;", of_the_disk));
    }

    #[test]
    fn persons_are_found_in_comments_alone() {
        assert!(names_a_person(comment("let x = 1; // Nobody waits.").expect("there is one")));
        assert!(names_a_person(comment("/// What is written, stays.").expect("there is one")));
        assert_eq!(comment("let url = \"http://who.org\";"), None);
        assert!(!names_a_person("/// A waiter sets its bit."));
    }
}
