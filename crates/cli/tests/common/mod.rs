//! Runs the built program in a directory of its own.
#![allow(dead_code, reason = "each test file uses some of it")]
#![expect(clippy::disallowed_methods, reason = "the tests' own files are not the database's")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A directory for a database, `db`, and files.
pub struct Sandbox {
    dir: TempDir,
}

/// The exit code and the output of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        Sandbox { dir: tempfile::tempdir().expect("a directory for the test") }
    }

    /// A directory on tmpfs; `None` if there is none.
    pub fn in_memory() -> Option<Sandbox> {
        use fulgurite::env::{Env, RealEnv};
        let dir = tempfile::tempdir_in("/dev/shm").ok()?;
        let device = RealEnv::new().disk().device(dir.path()).ok()?;
        (device.file_system == "tmpfs").then_some(Sandbox { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.file(name), bytes).expect("writing a file of the test");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).expect("reading a file of the test")
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.file(name)).expect("removing a file of the test");
    }

    pub fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.file(from), self.file(to)).expect("renaming something of the test");
    }

    pub fn make_dir(&self, name: &str) {
        std::fs::create_dir_all(self.file(name)).expect("making a directory of the test");
    }

    /// Removes a directory with all that is in it, if it is there.
    pub fn remove_dir(&self, name: &str) {
        match std::fs::remove_dir_all(self.file(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                panic!("removing a directory of the test: {error}")
            }
            _ => {}
        }
    }

    /// The names of all files in the directory.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).expect("listing the directory of the test");
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fulgurite"));
        command.args(args).current_dir(self.path());
        command
    }

    /// Starts the program with pipes for all of its streams.
    pub fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("starting the program")
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.command(args).stdin(Stdio::null()).output().expect("running the program").into()
    }

    /// Runs the program with `input` on its standard input.
    pub fn run_with(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut child = self.start(args);
        let mut stdin = child.stdin.take().expect("a pipe");
        // The inputs of the tests fit into a pipe; a failed program does not read its input.
        let _ = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().expect("waiting for the program").into()
    }

    /// Loads `rows`, each a line of TSV, and kills the program when all of them are durable: they are in the log only.
    pub fn load_and_kill(&self, table: &str, rows: &str) {
        let mut child = self.start(&["load", "--json", "db", table]);
        // The input does not end, so neither does the program.
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(rows.as_bytes()).expect("the rows fit into a pipe");
        let all = format!("{{\"durable_rows\":{}}}\n", rows.lines().count());
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while line != all {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended before the rows were durable");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The output of a command that succeeds or finds damage: one JSON object a line.
    pub fn objects(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let ran = self.run(args);
        assert!(matches!(ran.code, Some(0 | 3)), "{args:?}: {:?} {}", ran.code, ran.stderr);
        let text = String::from_utf8(ran.stdout).expect("JSON is UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Flips a bit in each leaf that has the key, and returns the numbers of their segments.
    pub fn damage_leaves(&self, key: &str) -> Vec<u64> {
        let mut damaged = Vec::new();
        for segment in
            self.objects(&["dump", "db", "--json"]).iter().filter_map(|line| line["segment"].as_u64())
        {
            let items = self.objects(&["dump", "db", "--json", "--segment", &segment.to_string()]);
            let has_key = |item: &&serde_json::Value| {
                item["entries"].as_array().is_some_and(|all| all.iter().any(|entry| entry["key"] == key))
            };
            for leaf in items.iter().filter(has_key) {
                self.flip(
                    &format!("db/log/{segment:010}.seg"),
                    leaf["offset"].as_u64().unwrap() as usize + 100,
                );
                damaged.push(segment);
            }
        }
        assert!(!damaged.is_empty(), "no leaf has {key}");
        damaged
    }

    /// Flips a bit of a file.
    pub fn flip(&self, name: &str, offset: usize) {
        let mut bytes = self.read(name);
        bytes[offset] ^= 1;
        self.write(name, bytes);
    }

    /// Runs the program, which has to succeed, and returns its output.
    pub fn ok(&self, args: &[&str]) -> String {
        self.run(args).ok()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{stderr}");
        Ran { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

impl Ran {
    /// The output of a run that has to have succeeded. Standard error may only have the note about a killed database,
    /// and an export's line about its file.
    pub fn ok(self) -> String {
        let is_note = |line: &str| {
            line.starts_with("note: the database was not closed")
                || line.starts_with("{\"note\":\"the database was not closed")
                || line.contains(" written to ")
        };
        let is_quiet = self.stderr.lines().all(is_note);
        let printed = String::from_utf8_lossy(&self.stdout);
        assert!(self.code == Some(0) && is_quiet, "{:?}: {}{printed}", self.code, self.stderr);
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Checks that the run failed with `code` and one line that contains `words`.
    pub fn fails(self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(self.stderr.starts_with("error: ") && self.stderr.contains(words), "{}", self.stderr);
        assert!(code == 2 || self.stderr.lines().count() == 1, "{}", self.stderr);
    }
}
