//! A database whose files were damaged returns the acknowledged data, or an error: never other data, never less, never
//! a panic. Only unused space, and the end of a log that nothing durable proves, may be lost without an error
//! (docs/media.md).

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use common::model::History;
use common::rng::Rng;
use common::verify::{guarded, verify};
use common::workload::Workload;
use fulgurite::Error;
use fulgurite::env::Env;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite_log::{GroupKind, ScanItem, scan_segment};

/// A database on disk, and its expected contents.
struct Victim {
    sim: Arc<SimEnv>,
    history: History,
    /// The files as they were at an earlier checkpoint.
    older: BTreeMap<PathBuf, Vec<u8>>,
    /// The last group without frames, the durable mark: the only proof of the commits right before it.
    mark: (PathBuf, u64),
}

/// The file and offset of the last durable mark in the commit stream.
fn last_mark(sim: &SimEnv) -> (PathBuf, u64) {
    let mut last = None;
    for (path, _) in sim.list_raw().into_iter().filter(|(path, _)| is_segment(path)) {
        for item in scan_segment(sim.disk(), &path).unwrap().items {
            if let ScanItem::Group(header) = item
                && header.kind == GroupKind::Mark
                && last.as_ref().is_none_or(|(durable, _)| header.durable >= *durable)
            {
                last = Some((header.durable, (path.clone(), u64::from(header.offset))));
            }
        }
    }
    last.expect("closing and idling write marks").1
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| suffix == "seg")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Crashed,
}

/// A database with two checkpoints, log to replay, and large values before and after them.
fn victim(seed: u64, end: End) -> Victim {
    let history = Arc::new(Mutex::new(History::default()));
    let sim = SimEnv::new(seed);
    let db = common::open(sim.clone()).unwrap();
    let mut workload = Workload::new(db.clone(), &sim, &history, seed).unwrap();
    workload.run(30, true).unwrap();
    let older = files(&sim);
    workload.run(20, true).unwrap();
    if end == End::Crashed {
        workload.run(14, false).unwrap();
    }
    drop(workload);
    match end {
        End::Closed => db.close().unwrap(),
        End::Crashed => {
            // A durable mark makes the newest commit count as durable.
            sim.advance(std::time::Duration::from_secs(1));
            while db.maintain().unwrap() {}
        }
    }
    let sim = sim.crash(CrashKind::PowerCut, seed);
    let mut history = history.lock().unwrap().clone();
    let all = history.submitted();
    history.acknowledge(all);
    let mark = last_mark(&sim);
    Victim { sim, history, older, mark }
}

fn files(sim: &SimEnv) -> BTreeMap<PathBuf, Vec<u8>> {
    sim.list_raw().into_iter().map(|(path, _)| (path.clone(), sim.read_raw(&path).unwrap())).collect()
}

/// The outcome for a damaged database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Everything is there and `check` finds nothing.
    Unharmed,
    /// Everything is there, and `check` reports the damage.
    Reported,
    /// Opening failed.
    Refused,
    /// Reading failed.
    ReadFailed,
    /// The newest commits are lost, and the durable mark that proves them was in the same block.
    TailLost,
}

/// Opens, reads everything and checks.
fn judge(sim: &Arc<SimEnv>, history: &History) -> Result<Verdict, String> {
    guarded(|| {
        let before = files(sim);
        let db = match common::open(sim.clone()) {
            Ok(db) => db,
            Err(error) => {
                is_about_damage(&error)?;
                nothing_removed(&before, sim)?;
                return Ok(Verdict::Refused);
            }
        };
        match verify(&db, &**sim, history) {
            Ok(_) => Ok(Verdict::Unharmed),
            Err(what) if what.starts_with("check ") => Ok(Verdict::Reported),
            Err(what) if what.contains("damaged data: ") => Ok(Verdict::ReadFailed),
            Err(what) => Err(what),
        }
    })
}

fn is_about_damage(error: &Error) -> Result<(), String> {
    let text = error.to_string();
    match error {
        Error::Damaged(damage) if damage.path.is_some() => Ok(()),
        Error::NewerFormat { .. } => Ok(()),
        Error::Damaged { .. } => Err(format!("the error names no file: {text}")),
        _ => Err(format!("opening failed with another error: {text}")),
    }
}

/// A database that could not be opened must keep its files for repair.
fn nothing_removed(before: &BTreeMap<PathBuf, Vec<u8>>, sim: &SimEnv) -> Result<(), String> {
    for (path, bytes) in before {
        let used = is_segment(path) && bytes.len() > 4096;
        if used && bytes[4096..].iter().any(|&byte| byte != 0) && sim.read_raw(path).is_err() {
            return Err(format!("opening failed and removed {}", path.display()));
        }
    }
    Ok(())
}

/// Tries damages and counts the verdicts; fails on the first that is neither reported nor harmless.
struct Trial<'v> {
    name: &'static str,
    victim: &'v Victim,
    verdicts: BTreeMap<Verdict, u64>,
    /// How many commits may be lost together with the last durable mark.
    doubt: u64,
}

impl<'v> Trial<'v> {
    fn new(name: &'static str, victim: &'v Victim) -> Trial<'v> {
        Trial { name, victim, verdicts: BTreeMap::new(), doubt: 12 }
    }

    fn damage(&mut self, what: &str, damage: impl FnOnce(&SimEnv)) -> Verdict {
        let sim = self.victim.sim.crash(CrashKind::Kill, 0);
        damage(&sim);
        let outcome = judge(&sim, &self.victim.history);
        let outcome = outcome.or_else(|error| match self.lost_with_its_witness(&sim) {
            true => Ok(Verdict::TailLost),
            false => Err(error),
        });
        let verdict = outcome.unwrap_or_else(|error| panic!("{}: after {what}: {error}", self.name));
        *self.verdicts.entry(verdict).or_default() += 1;
        verdict
    }

    /// Whether the last durable mark was damaged, and the database has the state after some earlier commit, or reports
    /// it.
    fn lost_with_its_witness(&self, damaged: &Arc<SimEnv>) -> bool {
        let (path, offset) = &self.victim.mark;
        let mark = |sim: &SimEnv| {
            sim.read_raw(path)
                .ok()
                .and_then(|bytes| bytes.get(*offset as usize..)?.get(..104).map(<[u8]>::to_vec))
        };
        let mut history = self.victim.history.clone();
        history.doubt(self.doubt);
        mark(damaged) != mark(&self.victim.sim) && judge(damaged, &history).is_ok()
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        println!("{}: {:?}", self.name, self.verdicts);
    }
}

/// The sectors of a file that are not all zero.
fn used_sectors(bytes: &[u8]) -> Vec<u64> {
    let chunks = bytes.chunks(512).enumerate();
    chunks.filter(|(_, chunk)| chunk.iter().any(|&byte| byte != 0)).map(|(nth, _)| nth as u64).collect()
}

fn thorough() -> bool {
    common::setting("FULGURITE_CRASH_ALL").is_some_and(|value| value != 0)
}

#[test]
fn a_flipped_bit() {
    for (end, name) in [(End::Closed, "a flipped bit, closed"), (End::Crashed, "a flipped bit, crashed")] {
        let victim = victim(3, end);
        let mut rng = Rng::new(17);
        let mut trial = Trial::new(name, &victim);
        for (path, bytes) in files(&victim.sim) {
            let sectors = used_sectors(&bytes);
            let step = if thorough() { 1 } else { (sectors.len() / 25).max(1) };
            for (nth, sector) in sectors.iter().enumerate() {
                if nth > 3
                    && nth + 3 < sectors.len()
                    && !(nth as u64 + rng.below(2)).is_multiple_of(step as u64)
                {
                    continue;
                }
                let offset = sector * 512 + rng.below(512);
                let bit = rng.below(8);
                trial.damage(&format!("flipping bit {bit} at {offset} of {}", path.display()), |sim| {
                    sim.corrupt(&path, offset, |byte| *byte ^= 1 << bit).unwrap();
                });
            }
        }
    }
}

/// A write that the medium lost: the block has its contents before it, or zeros.
#[test]
fn a_lost_block() {
    for (end, name) in [(End::Closed, "a lost block, closed"), (End::Crashed, "a lost block, crashed")] {
        let victim = victim(4, end);
        let mut trial = Trial::new(name, &victim);
        for (path, bytes) in files(&victim.sim) {
            for size in [512, 4096] {
                let blocks: Vec<usize> = (0..bytes.len() / size)
                    .filter(|nth| bytes[nth * size..][..size].iter().any(|&byte| byte != 0))
                    .collect();
                let step = if thorough() { 1 } else { (blocks.len() / 12).max(1) };
                for (nth, block) in blocks.iter().enumerate() {
                    if nth > 2 && nth + 2 < blocks.len() && nth % step != 0 {
                        continue;
                    }
                    let what = format!("zeroing {size} bytes at {} of {}", block * size, path.display());
                    trial.damage(&what, |sim| {
                        let mut changed = bytes.clone();
                        changed[block * size..][..size].fill(0);
                        sim.write_raw(&path, &changed).unwrap();
                    });
                }
            }
        }
    }
}

#[test]
fn a_truncated_file() {
    for (end, name) in
        [(End::Closed, "a truncated file, closed"), (End::Crashed, "a truncated file, crashed")]
    {
        let victim = victim(5, end);
        let mut trial = Trial::new(name, &victim);
        for (path, len) in victim.sim.list_raw() {
            for to in
                [0, 100, 4096, 4097, 5000, 8192, len / 2, len.saturating_sub(4096), len.saturating_sub(1)]
            {
                if to >= len {
                    continue;
                }
                let verdict = trial.damage(&format!("cutting {} to {to} bytes", path.display()), |sim| {
                    sim.truncate(&path, to).unwrap();
                });
                let is_segment = path.extension().is_some_and(|suffix| suffix == "seg");
                assert!(
                    !is_segment || verdict != Verdict::Unharmed || is_dead(&victim, &path),
                    "{}",
                    path.display()
                );
            }
        }
    }
}

/// Whether a segment may be missing without an error.
fn is_dead(victim: &Victim, path: &Path) -> bool {
    let sim = victim.sim.crash(CrashKind::Kill, 0);
    sim.remove_raw(path).unwrap();
    judge(&sim, &victim.history) == Ok(Verdict::Unharmed)
}

#[test]
fn a_missing_file() {
    for (end, name) in [(End::Closed, "a missing file, closed"), (End::Crashed, "a missing file, crashed")] {
        let victim = victim(6, end);
        let mut trial = Trial::new(name, &victim);
        for (path, _) in victim.sim.list_raw() {
            trial.damage(&format!("removing {}", path.display()), |sim| sim.remove_raw(&path).unwrap());
        }
    }
}

#[test]
fn two_files_swapped() {
    for (end, name) in [(End::Closed, "swapped files, closed"), (End::Crashed, "swapped files, crashed")] {
        let victim = victim(7, end);
        let mut trial = Trial::new(name, &victim);
        let files: Vec<(PathBuf, Vec<u8>)> = files(&victim.sim).into_iter().collect();
        for (nth, (one, one_bytes)) in files.iter().enumerate() {
            for (other, other_bytes) in &files[nth + 1..] {
                trial.damage(&format!("swapping {} and {}", one.display(), other.display()), |sim| {
                    sim.write_raw(one, other_bytes).unwrap();
                    sim.write_raw(other, one_bytes).unwrap();
                });
            }
        }
    }
}

#[test]
fn an_older_copy_of_a_file() {
    for (end, name) in [(End::Closed, "an older copy, closed"), (End::Crashed, "an older copy, crashed")] {
        for seed in 8..12 {
            let victim = victim(seed, end);
            let mut trial = Trial::new(name, &victim);
            // An older copy of the log's last file has no trace of the later commits; only a checkpoint would have.
            trial.doubt = 64;
            for (path, bytes) in &victim.older {
                trial.damage(&format!("putting back an older {}", path.display()), |sim| {
                    sim.write_raw(path, bytes).unwrap();
                });
            }
        }
    }
}
