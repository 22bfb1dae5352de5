//! The shell lines of the documents work as pasted: every `sh` block runs, line after line, in a directory with the files
//! that its document names. Blocks that cannot run there are marked `sh elsewhere`, and counted here with the reason.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Sandbox;

/// The blocks `sh elsewhere` of each document, and why they cannot run in a test.
const ELSEWHERE: [(&str, usize, &str); 5] = [
    ("README.md", 3, "one needs Redis, one builds and tests everything, one installs"),
    ("CONTRIBUTING.md", 5, "they build, run other tests, and write fixtures"),
    ("docs/benchmarks.md", 6, "they build, fetch libraries, and measure for minutes"),
    ("docs/performance.md", 3, "they measure for minutes"),
    ("docs/server.md", 3, "a server does not end, and they need Redis and clients of other languages"),
];

/// Programs of other packages: a test of this package cannot know where they are built.
const NOT_BUILT: [&str; 3] = ["fulgurite-bench", "bench-peers", "target/"];

struct Block {
    runs: bool,
    /// Of its first line.
    line: usize,
    text: String,
}

#[test]
fn every_shell_line_of_the_documents_works() {
    for document in documents() {
        let sandbox = directory(&document);
        for block in blocks(&document).into_iter().filter(|block| block.runs) {
            let is_here = |line: &&str| !NOT_BUILT.iter().any(|program| line.starts_with(program));
            let script: Vec<&str> = block.text.lines().filter(is_here).collect();
            let ran = shell(&sandbox, &script.join("\n"));
            assert!(
                ran.status.success(),
                "{document}:{}: {}",
                block.line,
                String::from_utf8_lossy(&ran.stderr)
            );
        }
    }
}

#[test]
fn blocks_that_cannot_run_here_are_listed() {
    for document in documents() {
        let found = blocks(&document).iter().filter(|block| !block.runs).count();
        let listed = ELSEWHERE.iter().find(|(name, ..)| *name == document).map_or(0, |(_, count, _)| *count);
        assert_eq!(found, listed, "{document}: blocks `sh elsewhere`, and how many are listed here");
    }
}

/// Of lines that cannot run here at least the packages, tests, examples and paths exist.
#[test]
fn cargo_lines_name_what_exists() {
    for document in documents() {
        for block in blocks(&document) {
            for line in block.text.lines() {
                let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != "#").collect();
                for pair in words.windows(2) {
                    let exists = match pair[0] {
                        "-p" => packages().contains(&format!("name = \"{}\"", pair[1])),
                        "--path" | "sh" => root().join(pair[1]).exists(),
                        "--test" => in_a_crate("tests", pair[1]),
                        "--example" => in_a_crate("examples", pair[1]),
                        _ => true,
                    };
                    assert!(exists, "{document}:{}: `{line}`: there is no {}", block.line, pair[1]);
                }
            }
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn names(folder: &Path) -> Vec<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the documents are files of the repository, not of a database"
    )]
    let entries = std::fs::read_dir(folder).expect("a folder of the repository");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents() -> Vec<String> {
    let mut documents: Vec<String> = ["README.md", "CONTRIBUTING.md"].map(String::from).into();
    for folder in ["docs", "docs/format", "crates/fulgurite/src/guide"] {
        let pages = names(&root().join(folder)).into_iter().filter(|name| name.ends_with(".md"));
        documents.extend(pages.map(|name| format!("{folder}/{name}")));
    }
    documents
}

fn blocks(document: &str) -> Vec<Block> {
    let text = read(&root().join(document));
    let mut blocks: Vec<Block> = Vec::new();
    let mut in_shell = None;
    for (index, line) in text.lines().enumerate() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            if in_shell == Some(true) {
                let block: &mut Block = blocks.last_mut().expect("the block began");
                block.text += &format!("{}\n", line.trim_start());
            }
            continue;
        };
        if in_shell.take().is_some() {
            continue;
        }
        let is_shell = info.split_whitespace().next() == Some("sh");
        in_shell = Some(is_shell);
        if is_shell {
            let runs = match info {
                "sh" => true,
                "sh elsewhere" => false,
                _ => panic!("{document}:{}: `{info}` is neither `sh` nor `sh elsewhere`", index + 1),
            };
            blocks.push(Block { runs, line: index + 2, text: String::new() });
        }
    }
    blocks
}

/// A directory with the files of a checkout that the lines name. The README makes its database; other documents find it.
fn directory(document: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.make_dir("examples");
    sandbox.write("examples/elements.tsv", read(&root().join("examples/elements.tsv")));
    if document != "README.md" {
        sandbox.ok(&["load", "--header", "shop.db", "elements", "examples/elements.tsv"]);
    }
    sandbox
}

fn shell(sandbox: &Sandbox, script: &str) -> std::process::Output {
    let program = Path::new(env!("CARGO_BIN_EXE_fulgurite"));
    let folder = program.parent().expect("a program is in a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("sh")
        .args(["-euc", script])
        .current_dir(sandbox.path())
        .env("PATH", format!("{folder}:{path}"))
        .stdin(Stdio::null())
        .output()
        .expect("a shell")
}

fn packages() -> String {
    let crates = names(&root().join("crates"));
    crates.iter().map(|name| read(&root().join("crates").join(name).join("Cargo.toml"))).collect()
}

fn in_a_crate(folder: &str, name: &str) -> bool {
    let crates = names(&root().join("crates")).into_iter().map(|krate| root().join("crates").join(krate));
    crates.chain([root()]).any(|krate| {
        let folder = krate.join(folder);
        folder.join(format!("{name}.rs")).exists() || folder.join(name).is_dir()
    })
}
