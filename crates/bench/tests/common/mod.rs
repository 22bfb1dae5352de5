//! Runs the built program in a directory of its own.
#![allow(dead_code, reason = "each test file uses some of it")]
#![expect(clippy::disallowed_methods, reason = "the tests' own files are not the database's")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// The directory in which the program runs.
pub struct Sandbox(TempDir);

/// The exit code and the output of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        Sandbox(tempfile::tempdir().expect("a directory for the test"))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).expect("writing a file of the test");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).expect("reading a file of the test")
    }

    /// The names of all files in the directory.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("listing the directory of the test");
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    pub fn assert_empty(&self) {
        assert!(self.names().is_empty(), "left behind: {:?}", self.names());
    }

    /// Starts the program with pipes for its output.
    pub fn start(&self, args: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fulgurite-bench"));
        command.args(args).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("starting the program")
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.start(args))
    }

    /// Runs the program, which has to succeed without a word on standard error, and returns its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{ran:?}");
        ran.stdout
    }
}

impl Ran {
    /// The end of a program that was started.
    pub fn of(child: Child) -> Ran {
        let Output { status, stdout, stderr } = child.wait_with_output().expect("waiting for the program");
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(!stderr.contains("panicked"), "{stderr}");
        Ran { code: status.code(), stdout, stderr }
    }

    /// Checks that the run failed with `code` and one line that contains `words`.
    pub fn fails(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(self.stderr.starts_with("error: ") && self.stderr.contains(words), "{}", self.stderr);
        assert!(code == 2 || self.stderr.lines().count() == 1, "{}", self.stderr);
    }
}
