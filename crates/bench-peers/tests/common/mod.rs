//! Helpers for the tests of all engines.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fulgurite_bench::engine::{
    Ended, Engine, Level, Mode, Needs, Opening, Session, Store, Transaction, Verdict,
};
use fulgurite_bench::{FulguriteEngine, Result};

/// The tables of every store.
pub const TABLES: [&str; 2] = ["first", "second"];
const CACHE_BYTES: u64 = 32 << 20;

const CHILD_ENGINE: &str = "PEERS_TEST_ENGINE";
const CHILD_DIR: &str = "PEERS_TEST_DIR";
const CHILD_LEVEL: &str = "PEERS_TEST_LEVEL";

/// All engines of the crate, and Fulgurite.
pub fn engines() -> Vec<Box<dyn Engine>> {
    let mut engines = bench_peers::engines();
    engines.push(Box::new(FulguriteEngine::new("fulgurite", fulgurite::Options::default())));
    engines
}

/// Runs `check` with every engine that supports `needs`. Prints the engines that are skipped.
pub fn each(needs: Needs, level: Level, check: impl Fn(&dyn Engine)) {
    engines().iter().for_each(|engine| check_one(&**engine, needs, level, |_| check(&**engine)));
}

/// The same, for each engine at its strongest level without a sync.
pub fn each_without_syncs(needs: Needs, check: impl Fn(&dyn Engine, Level)) {
    for engine in engines() {
        let is_written = engine.cannot(needs, Level::Unsynced).is_none();
        let level = if is_written { Level::Unsynced } else { Level::Memory };
        check_one(&*engine, needs, level, |level| check(&*engine, level));
    }
}

/// The same, with a new store of each engine, which is closed afterwards.
pub fn each_store(needs: Needs, check: impl Fn(&dyn Store)) {
    each_without_syncs(needs, |engine, level| {
        let dir = tempfile::tempdir().unwrap();
        let store = open(engine, dir.path(), level);
        check(&*store);
        store.close().unwrap();
    });
}

fn check_one(engine: &dyn Engine, needs: Needs, level: Level, check: impl Fn(Level)) {
    match engine.cannot(needs, level) {
        Some(reason) => eprintln!("skipped {}: {reason}", engine.name()),
        None => {
            eprintln!("with {}:", engine.name());
            check(level);
        }
    }
}

pub fn open(engine: &dyn Engine, dir: &Path, level: Level) -> Arc<dyn Store> {
    let opening = Opening { dir, tables: &TABLES, cache_bytes: CACHE_BYTES, level };
    engine.open(&opening).unwrap_or_else(|error| panic!("{}: {error}", engine.name()))
}

/// Runs statements until they do not conflict.
pub fn run(
    session: &mut dyn Session,
    mode: Mode,
    mut statements: impl FnMut(&mut dyn Transaction) -> Result<Verdict>,
) -> Ended {
    loop {
        match session.transact(mode, &mut statements).unwrap() {
            Ended::Conflict => {}
            ended => return ended,
        }
    }
}

/// Commits what `statements` write.
pub fn write(session: &mut dyn Session, mut statements: impl FnMut(&mut dyn Transaction) -> Result<()>) {
    let ended = run(session, Mode::Write, |txn| statements(txn).map(|()| Verdict::Commit));
    assert_eq!(ended, Ended::Committed);
}

/// The output and the system calls of a process under `strace`.
pub struct Traced {
    pub stdout: String,
    pub calls: String,
}

/// Runs a [`child`], traced; prints a note and returns `None` if there is no `strace`.
pub fn trace(child: Command, calls: &str) -> Option<Traced> {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no strace");
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", &format!("trace={calls}"), "-o"]).arg(file.path());
    traced.arg(child.get_program()).args(child.get_args());
    traced.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = traced.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(Traced { stdout, calls: std::fs::read_to_string(file.path()).unwrap() })
}

/// Runs the test `name` of this executable once more, in a process of its own.
pub fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
}

/// The same, with a store for [`store_of_child`].
pub fn child_with_store(name: &str, engine: &str, dir: &Path, level: Level) -> Command {
    let mut command = child(name);
    command.env(CHILD_ENGINE, engine).env(CHILD_DIR, dir).env(CHILD_LEVEL, level.to_string());
    command
}

/// The store that this process was started for; `None` if it runs all tests.
pub fn store_of_child() -> Option<Arc<dyn Store>> {
    let [name, dir, level] = [CHILD_ENGINE, CHILD_DIR, CHILD_LEVEL].map(|name| std::env::var(name).ok());
    Some(open(&*engine(&name?), Path::new(&dir?), level?.parse().unwrap()))
}

/// The engine of that name.
pub fn engine(name: &str) -> Box<dyn Engine> {
    engines().into_iter().find(|engine| engine.name() == name).unwrap()
}
