//! The files of a probe: made before it starts, removed however it ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite::env::{AlignedBuf, Env, File, OpenOptions};

use crate::failure::Failure;
use crate::{interrupt, text};

/// How much is overwritten again and again, and how far the growing file grows.
const WRITTEN_BYTES: u64 = 64 << 20;
/// The range of the offsets of reads: more than most devices cache.
const READ_BYTES: u64 = 256 << 20;
/// Left free, so that the file system is not full at any moment.
const SPARE_BYTES: u64 = 64 << 20;
/// The most that is prepared for each second of the run.
const BYTES_A_SECOND: u64 = 8 << 20;
/// The least: a few of the largest writes.
const BYTES_MIN: u64 = 8 << 20;
const CHUNK: usize = 1 << 20;

/// The sizes of the files in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub written: u64,
    pub read: u64,
}

impl Sizes {
    /// The sizes that a run of this many seconds has the time to prepare.
    pub fn within(seconds: u64) -> Sizes {
        let most = seconds.saturating_mul(BYTES_A_SECOND).max(BYTES_MIN);
        Sizes { written: WRITTEN_BYTES.min(most), read: READ_BYTES.min(most) }
    }

    fn needed(self) -> u64 {
        2 * self.written + self.read + SPARE_BYTES
    }
}

/// The files; dropping it removes them.
pub(super) struct Files {
    env: Arc<dyn Env>,
    paths: Vec<PathBuf>,
    pub sizes: Sizes,
    /// Grows from nothing.
    pub appended: Arc<dyn File>,
    /// `sizes.written` bytes of zeros, durable.
    pub zeroed: Arc<dyn File>,
    /// `sizes.read` bytes that no device can compress, durable.
    pub read: Arc<dyn File>,
}

impl Files {
    /// Creates them. Refuses a directory that is missing, too full, or cannot be written.
    pub fn create(env: &Arc<dyn Env>, dir: &Path, seconds: u64) -> Result<Files, Failure> {
        let sizes = Sizes::within(seconds);
        check(&**env, dir, sizes.needed())?;
        let mut paths = Vec::new();
        match open_all(&**env, dir, &mut paths) {
            Ok([appended, zeroed, read]) => {
                Ok(Files { env: Arc::clone(env), paths, sizes, appended, zeroed, read })
            }
            Err(error) => {
                paths.iter().for_each(|path| remove(&**env, path));
                Err(Failure::file("creating a file in", &dir.display().to_string(), &error))
            }
        }
    }

    /// Fills them and makes them durable; ends early if a signal asks to.
    pub fn fill(&self) -> io::Result<()> {
        let mut random = Random::new(self.env.random_u64());
        let mut buf = AlignedBuf::new(CHUNK);
        fill(&*self.zeroed, &buf, self.sizes.written)?;
        random.fill(&mut buf);
        fill(&*self.read, &buf, self.sizes.read)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| remove(&*self.env, path));
    }
}

fn check(env: &dyn Env, dir: &Path, needed: u64) -> Result<(), Failure> {
    let name = dir.display();
    match env.disk().list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::new(format!("{name} does not exist: name a directory on the device")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Failure::new(format!("{name} is not a directory: name one on the device")));
        }
        // A directory that can be written and not listed will do.
        _ => {}
    }
    let free = env.disk().free_bytes(dir).map_err(|error| Failure::new(error.to_string()))?;
    if free < needed {
        return Err(Failure::new(format!(
            "{name} has {} of free space, the probe needs {}: make room, or give it fewer --seconds",
            text::size(free),
            text::size(needed),
        )));
    }
    Ok(())
}

fn open_all(env: &dyn Env, dir: &Path, paths: &mut Vec<PathBuf>) -> io::Result<[Arc<dyn File>; 3]> {
    let mut open = |name: &str| -> io::Result<Arc<dyn File>> {
        let path = dir.join(format!("fulgurite-probe-{}-{name}", std::process::id()));
        let file = env.disk().open(&path, OpenOptions::CreateNew)?;
        interrupt::remove_at_exit(&path);
        paths.push(path);
        Ok(file)
    };
    Ok([open("appended")?, open("zeroed")?, open("read")?])
}

/// Runs also when a second signal ends the process: then the file may be gone already.
fn remove(env: &dyn Env, path: &Path) {
    let _ = env.disk().remove(path);
}

fn fill(file: &dyn File, chunk: &[u8], len: u64) -> io::Result<()> {
    let mut at = 0;
    while at < len && !interrupt::asked() {
        let count = chunk.len().min(usize::try_from(len - at).unwrap_or(usize::MAX));
        file.write_at(&chunk[..count], at)?;
        at += count as u64;
    }
    file.sync_data()
}

/// Fast random numbers of modest quality: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled", 2016).
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed | 1 }
    }

    pub fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Fills a buffer whose length is a multiple of 8.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for bytes in buf.chunks_exact_mut(8) {
            bytes.copy_from_slice(&self.next().to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use fulgurite::env::RealEnv;

    use super::*;

    #[test]
    fn short_runs_take_little_space() {
        assert_eq!(Sizes::within(0), Sizes { written: 8 << 20, read: 8 << 20 });
        assert_eq!(Sizes::within(40), Sizes { written: 64 << 20, read: 256 << 20 });
        assert_eq!(Sizes::within(u64::MAX).needed(), 448 << 20);
    }

    #[test]
    fn too_little_space_is_refused_with_both_figures() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let Err(Failure::Message { text, .. }) = check(&*RealEnv::new(), dir.path(), 1 << 60) else {
            panic!("accepted");
        };
        assert!(text.contains("of free space, the probe needs 1024 PiB"), "{text}");
    }

    #[test]
    fn files_go_with_the_value() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let env: Arc<dyn Env> = RealEnv::new();
        let files = Files::create(&env, dir.path(), 0).expect("created");
        assert_eq!(env.disk().list(dir.path()).expect("list").len(), 3);
        drop(files);
        assert!(env.disk().list(dir.path()).expect("list").is_empty());
    }
}
