//! Compares a database with a model, in every way of reading it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fulgurite::env::Env;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Snapshot, Table};

use super::model::{Entry, History, State, TableMap};
use super::{open, options};

/// Fails unless the database is sound and has the state after some permitted commit; returns that commit.
pub fn verify(db: &Database, env: &dyn Env, history: &History) -> Result<u64, String> {
    let csn = verify_data(db, env, history)?;
    let report = db.check(|_| {}).map_err(|error| format!("check failed: {error}"))?;
    if !report.problems.is_empty() {
        return Err(format!("check found: {}", report.problems.join("; ")));
    }
    Ok(csn)
}

/// Like [`verify`], without `check`.
pub fn verify_data(db: &Database, env: &dyn Env, history: &History) -> Result<u64, String> {
    let snapshot = db.snapshot();
    let csn = snapshot.csn().0;
    let (least, most) = (history.acknowledged(), history.submitted());
    if csn < least || csn > most {
        return Err(format!("commit {csn} is the newest; {least} was acknowledged, {most} submitted"));
    }
    compare(db, &snapshot, history.at(csn), env.clock().wall_ms())
        .map_err(|what| format!("at commit {csn} ({least} acknowledged, {most} submitted): {what}"))?;
    Ok(csn)
}

/// Compares all tables at a snapshot of now.
pub fn compare(db: &Database, snapshot: &Snapshot, state: &State, now_ms: u64) -> Result<(), String> {
    let tables = db.tables().map_err(|error| format!("tables() failed: {error}"))?;
    let names: Vec<String> = tables.iter().map(Table::name).collect();
    let expected: Vec<&String> = state.tables.keys().collect();
    if names.iter().ne(expected.iter().copied()) {
        return Err(format!("the tables are {names:?}, expected {expected:?}"));
    }
    for (table, (name, model)) in tables.iter().zip(&state.tables) {
        compare_table(snapshot, table, model, now_ms).map_err(|what| format!("table {name}: {what}"))?;
    }
    Ok(())
}

/// Compares scans in both directions and a get of each key.
pub fn compare_table(
    snapshot: &Snapshot,
    table: &Table,
    model: &TableMap,
    now_ms: u64,
) -> Result<(), String> {
    let live = || model.iter().filter(|(_, entry)| entry.is_live(now_ms));
    let range = || snapshot.range(table, ..).map_err(|error| format!("range() failed: {error}"));
    compare_scan("forward", range()?, live())?;
    compare_scan("backward", range()?.rev(), live().rev())?;
    for (key, entry) in model {
        let found = snapshot.get(table, key).map_err(|error| format!("get({}): {error}", show(key)))?;
        let expected = entry.is_live(now_ms).then_some(&*entry.value);
        if found.as_deref() != expected {
            return Err(format!(
                "get({}) is {}, expected {}",
                show(key),
                describe(found.as_deref()),
                describe(expected)
            ));
        }
        let mut absent = key.clone();
        absent.push(0);
        if !model.contains_key(&absent) {
            let found = snapshot.get(table, &absent);
            let found = found.map_err(|error| format!("get({}): {error}", show(&absent)))?;
            if found.is_some() {
                return Err(format!("get({}) found a key that was never there", show(&absent)));
            }
        }
    }
    Ok(())
}

fn compare_scan<'m>(
    direction: &str,
    found: impl Iterator<Item = fulgurite::Result<(fulgurite::Value, fulgurite::Value)>>,
    expected: impl Iterator<Item = (&'m Vec<u8>, &'m Entry)>,
) -> Result<(), String> {
    let mut expected = expected.fuse();
    for (nth, entry) in found.enumerate() {
        let (key, value) = entry.map_err(|error| format!("{direction} scan, entry {nth}: {error}"))?;
        match expected.next() {
            None => return Err(format!("{direction} scan continues with {}", show(&key))),
            Some((model_key, _)) if key != *model_key => {
                return Err(format!(
                    "{direction} scan, entry {nth} is {}, expected {}",
                    show(&key),
                    show(model_key)
                ));
            }
            Some((_, entry)) if value != *entry.value => {
                return Err(format!(
                    "{direction} scan, the value of {} is {}, expected {}",
                    show(&key),
                    describe(Some(&value)),
                    describe(Some(&entry.value))
                ));
            }
            Some(_) => {}
        }
    }
    match expected.next() {
        None => Ok(()),
        Some((key, _)) => Err(format!("{direction} scan ends before {}", show(key))),
    }
}

fn show(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}

fn describe(value: Option<&[u8]>) -> String {
    match value {
        None => "nothing".to_string(),
        Some(value) => {
            format!(
                "{} bytes beginning with \"{}\"",
                value.len(),
                value[..value.len().min(12)].escape_ascii()
            )
        }
    }
}

/// Opens the disk after a crash and checks all conditions: the data, `check`, that a power cut cannot undo any data
/// that was read, and that the database takes new commits.
pub fn verify_image(image: &Arc<SimEnv>, history: &History, seed: u64) -> Result<u64, String> {
    guarded(|| {
        let db = open(image.clone()).map_err(|error| format!("opening failed: {error}"))?;
        let csn = verify(&db, &**image, history)?;
        let cut = image.crash(CrashKind::PowerCut, seed);
        let mut served = history.clone();
        served.recovered(csn);
        take_new_commits(&db, image, &mut served)?;
        drop(db);
        let db = open(cut.clone()).map_err(|error| format!("opening after a power cut failed: {error}"))?;
        let again = verify_data(&db, &*cut, &history_up_to(history, csn))?;
        if again != csn {
            return Err(format!("a power cut undid what was served: commit {csn} became {again}"));
        }
        Ok(csn)
    })
}

fn history_up_to(history: &History, csn: u64) -> History {
    let mut history = history.clone();
    history.recovered(csn);
    history
}

/// Commits in each table, and in a new one, across a checkpoint.
fn take_new_commits(db: &Database, env: &Arc<SimEnv>, history: &mut History) -> Result<(), String> {
    let failed = |error| format!("a commit after recovery failed: {error}");
    let large = vec![7; options().inline_bytes_max * 3];
    let names: Vec<String> = history.newest().tables.keys().cloned().collect();
    for (nth, name) in names.iter().enumerate() {
        let table = db.open_table(name).map_err(failed)?;
        let value = if nth % 2 == 0 { &large[..] } else { b"small" };
        let csn = history.submit(|state| state.put(name, b"after", value, 0));
        let commit = table.put(b"after", value).map_err(failed)?;
        if commit.csn.0 != csn {
            return Err(format!("commit {} after recovery, expected {csn}", commit.csn));
        }
        history.acknowledge(csn);
    }
    db.checkpoint().map_err(|error| format!("a checkpoint after recovery failed: {error}"))?;
    verify(db, &**env, history).map(|_| ()).map_err(|what| format!("after new commits: {what}"))
}

/// Converts a panic to an error.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|what| what.to_string()));
        Err(format!("it panicked: {}", what.unwrap_or_default()))
    })
}
