//! A whole database directory whose files were changed: opening it, reading all of it and checking it returns data or
//! errors.
//!
//! The input: a byte that selects the directory, a byte of modes, then changes of eight bytes each. Without the mode
//! [`SEAL`] every value that is read must be one that was written to its key (checksums find the rest); with it all
//! checksums are made right after the changes, and the target looks for panics alone.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::fuzzing::{log, seal_superblock};
use fulgurite::{Database, Options, Result};

const READ_ONLY: u8 = 1;
const SEAL: u8 = 2;
const DUMP: u8 = 4;
/// Changes beyond these are ignored.
const CHANGES_MAX: usize = 16;
const CHANGE_BYTES: usize = 8;
const KEYS: u64 = 60;
const VERSIONS: u64 = 4;
const PATH: &str = "/db";

fn options() -> Options {
    Options {
        leaf_bytes: 512,
        inline_bytes_max: 200,
        memtable_bytes_max: Some(64 << 10),
        checkpoint_log_bytes: 1 << 20,
        log_buffer_bytes: 1 << 20,
        transaction_bytes_max: 2 << 20,
        background: false,
        ..Options::default()
    }
}

fn key(nth: u64) -> Vec<u8> {
    format!("key{nth:05}").into_bytes()
}

/// Each seventh value is stored out of line.
fn value(nth: u64, version: u64) -> Vec<u8> {
    let len = if nth % 7 == 3 { 1_000 + version as usize } else { 20 + (nth + version) as usize % 40 };
    let mut value = format!("{nth}/{version}/").into_bytes();
    value.resize(len, b'.');
    value
}

/// A database with two checkpoints, leaf delta records, range deletes, large values and commits after the last
/// checkpoint, closed or cut off.
fn build(is_closed: bool) -> Result<Arc<SimEnv>> {
    let sim = SimEnv::new(7);
    let db = Database::open_with(sim.clone(), PATH, options(), |_| {})?;
    let table = db.create_table("rows")?;
    for version in 0..VERSIONS - 1 {
        // Later versions change a few keys only, so that leaves get delta records.
        for nth in (0..KEYS).filter(|nth| version == 0 || nth % 20 == version) {
            table.put(key(nth), value(nth, version))?;
        }
        table.delete_range(key(KEYS - version - 1)..)?;
        db.checkpoint()?;
    }
    let mut transaction = db.begin();
    for nth in 0..9 {
        transaction.put(&table, key(nth), value(nth, VERSIONS - 1))?;
    }
    transaction.commit()?;
    table.delete(key(5))?;
    db.create_table("empty")?;
    if is_closed {
        db.close()?;
    }
    Ok(sim)
}

/// The directory: 0 was closed, 1 was cut off.
pub(crate) fn image(which: u8) -> Arc<SimEnv> {
    static DIRECTORIES: OnceLock<[Arc<SimEnv>; 2]> = OnceLock::new();
    let directories = DIRECTORIES.get_or_init(|| {
        [true, false].map(|is_closed| build(is_closed).expect("nothing fails on a sound disk"))
    });
    directories[usize::from(which % 2)].crash(CrashKind::Kill, 1)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let change = [1, 0, 0, 0, 3, 1, 0, 0];
    (0..16).map(|nth| [&[nth & 1, nth >> 1][..], &change.repeat(1 + usize::from(nth) % 3)].concat()).collect()
}

/// How a changed directory was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The input is too short to name a directory.
    Ignored,
    /// Opening returned an error.
    Refused,
    /// The directory was opened, and read.
    Opened,
}

/// Runs the target.
pub(crate) fn run(input: &[u8]) {
    open_changed(input);
}

/// Changes a directory as the input says, opens it, reads it, and writes to it.
///
/// # Panics
/// If it reads a value that was never written.
pub fn open_changed(input: &[u8]) -> Outcome {
    let Some((&[which, mode], changes)) = input.split_first_chunk::<2>() else { return Outcome::Ignored };
    let image = image(which);
    for change in changes.as_chunks::<CHANGE_BYTES>().0.iter().take(CHANGES_MAX) {
        apply(&image, change);
    }
    if mode & SEAL != 0 {
        seal(&image);
    }
    let options = Options { read_only: mode & READ_ONLY != 0, create: false, ..options() };
    if mode & DUMP != 0 {
        dump(&image);
    }
    let Ok(db) = Database::open_with(image.clone(), PATH, options, |_| {}) else {
        return Outcome::Refused;
    };
    let _ = read_all(&db, mode & SEAL == 0);
    let _ = db.check(|_| {});
    if mode & READ_ONLY == 0 {
        let _ = write(&db);
    }
    Outcome::Opened
}

/// One change: what, to which file, where, and with what. Offsets are within the bytes that a file uses.
fn apply(image: &Arc<SimEnv>, change: &[u8; CHANGE_BYTES]) {
    let [what, file, at @ .., low, high, by] = *change;
    let files: Vec<PathBuf> = image.list_raw().into_iter().map(|(path, _)| path).collect();
    if files.is_empty() {
        return;
    }
    let path = &files[usize::from(file) % files.len()];
    let Ok(mut bytes) = image.read_raw(path) else { return };
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    if used == 0 {
        return;
    }
    let at = u32::from_le_bytes([at[0], at[1], at[2], 0]) as usize % used;
    let number = u16::from_le_bytes([low, high]);
    match what % 9 {
        0 => bytes[at] = by,
        1 => bytes[at] ^= 1 << (by % 8),
        2 => splice(&mut bytes, at, &INTERESTING[usize::from(by) % INTERESTING.len()].to_le_bytes()),
        3 => splice(&mut bytes, at, &vec![by; usize::from(number)]),
        4 => {
            let from = usize::from(number) * 8 % used;
            let copied = bytes[from..(from + 1 + usize::from(by)).min(used)].to_vec();
            splice(&mut bytes, at, &copied);
        }
        5 => bytes.truncate(at),
        6 => return image.remove_raw(path).expect("the file is there"),
        7 => {
            let other = image.read_raw(&files[usize::from(by) % files.len()]).expect("the file is there");
            bytes = other;
        }
        _ => {
            let word = at / 4 * 4;
            if let Some(word) = bytes.get_mut(word..).and_then(|rest| rest.first_chunk_mut::<4>()) {
                *word = u32::from_le_bytes(*word).wrapping_add_signed((number as i16).into()).to_le_bytes();
            }
        }
    }
    image.write_raw(path, &bytes).expect("the simulated disk takes it");
}

const INTERESTING: [u32; 8] =
    [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff8, 4096, fulgurite::limits::KEY_BYTES_MAX as u32];

fn splice(bytes: &mut [u8], at: usize, with: &[u8]) {
    let end = (at + with.len()).min(bytes.len());
    bytes[at..end].copy_from_slice(&with[..end - at]);
}

fn seal(image: &Arc<SimEnv>) {
    for (path, _) in image.list_raw() {
        let Ok(mut bytes) = image.read_raw(&path) else { continue };
        if path.extension().is_some_and(|suffix| suffix == "seg") {
            log::seal_segment(&mut bytes);
        } else {
            bytes.chunks_mut(4096).for_each(seal_superblock);
        }
        image.write_raw(&path, &bytes).expect("the simulated disk takes it");
    }
}

fn dump(image: &Arc<SimEnv>) {
    use fulgurite::env::Env;
    let disk = image.disk();
    let _ = fulgurite::dump::superblock(disk, PATH.as_ref());
    for (_, path) in fulgurite::dump::segment_paths(disk, PATH.as_ref()).unwrap_or_default() {
        let _ = fulgurite::dump::segment(disk, &path);
    }
}

/// Reads everything in each way.
fn read_all(db: &Database, is_checked: bool) -> Result<()> {
    let snapshot = db.snapshot();
    for table in db.tables()? {
        for found in snapshot.range(&table, ..)?.chain(snapshot.range(&table, ..)?.rev()) {
            let Ok((key, value)) = found else { break };
            if is_checked {
                check_row(&key, &value);
            }
        }
        for nth in 0..KEYS {
            let key = key(nth);
            if let Ok(Some(value)) = snapshot.get(&table, &key)
                && is_checked
            {
                check_row(&key, &value);
            }
        }
        let _ = table.get(key(1));
        let _ = table.len_estimate();
    }
    Ok(())
}

fn check_row(found: &[u8], its_value: &[u8]) {
    let is_written = |nth| found == key(nth) && (0..VERSIONS).any(|version| its_value == value(nth, version));
    assert!(
        (0..KEYS).any(is_written),
        "\"{}\" has a value that was never written to it: \"{}\"",
        found.escape_ascii(),
        its_value[..its_value.len().min(40)].escape_ascii()
    );
}

/// Commits and makes a checkpoint: what recovery built is used.
fn write(db: &Database) -> Result<()> {
    let table = db.open_table("rows")?;
    table.put(key(2), value(2, 1))?;
    table.delete_range(key(20)..key(30))?;
    db.checkpoint()?;
    table.get(key(2)).map(drop)
}
