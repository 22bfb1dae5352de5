//! An [`Env`] that counts the operations of its files.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use fulgurite::env::{
    Clock, DeviceInfo, Dir, DirEntry, Disk, Env, File, Joiner, LockMode, Locking, OpenOptions,
};

use crate::io::IoCounts;

/// A write that begins in the last block of the previous one is sequential.
const BLOCK_BYTES: u64 = 4096;

/// The underlying environment, and counts of its files.
#[derive(Debug)]
pub(crate) struct CountingEnv {
    below: Arc<dyn Env>,
    disk: CountingDisk,
}

#[derive(Debug)]
struct CountingDisk {
    env: Arc<dyn Env>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    reads: CachePadded<AtomicU64>,
    read_bytes: AtomicU64,
    sequential_writes: CachePadded<AtomicU64>,
    sequential_bytes: AtomicU64,
    random_writes: AtomicU64,
    random_bytes: AtomicU64,
    syncs: AtomicU64,
    sync_ns: AtomicU64,
}

impl CountingEnv {
    pub fn new(below: Arc<dyn Env>) -> CountingEnv {
        let disk = CountingDisk { env: below.clone(), counts: Arc::default() };
        CountingEnv { below, disk }
    }

    pub fn counts(&self) -> IoCounts {
        let counts = &self.disk.counts;
        IoCounts {
            reads: counts.reads.load(Relaxed),
            read_bytes: counts.read_bytes.load(Relaxed),
            sequential_writes: counts.sequential_writes.load(Relaxed),
            sequential_bytes: counts.sequential_bytes.load(Relaxed),
            random_writes: counts.random_writes.load(Relaxed),
            random_bytes: counts.random_bytes.load(Relaxed),
            syncs: counts.syncs.load(Relaxed),
            sync_ns: counts.sync_ns.load(Relaxed),
        }
    }
}

impl Env for CountingEnv {
    fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    fn clock(&self) -> &dyn Clock {
        self.below.clock()
    }

    fn random_u64(&self) -> u64 {
        self.below.random_u64()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>> {
        self.below.spawn(name, body)
    }
}

impl CountingDisk {
    fn below(&self) -> &dyn Disk {
        self.env.disk()
    }
}

impl Disk for CountingDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below().create_dir_all(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = self.below().open_dir(path)?;
        Ok(Arc::new(CountingDir { dir, env: self.env.clone(), counts: self.counts.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().rename(from, to)
    }
}

#[derive(Debug)]
struct CountingDir {
    dir: Arc<dyn Dir>,
    env: Arc<dyn Env>,
    counts: Arc<Counts>,
}

impl Dir for CountingDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let file = self.dir.open(name, options)?;
        let (env, counts) = (self.env.clone(), self.counts.clone());
        Ok(Arc::new(CountingFile { file, env, counts, end: AtomicU64::new(0) }))
    }

    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        let dir = self.dir.open_dir(name)?;
        Ok(Arc::new(CountingDir { dir, env: self.env.clone(), counts: self.counts.clone() }))
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        self.dir.create_dir(name)
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        self.dir.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.dir.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.dir.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.counts.sync(&*self.env, || self.dir.sync())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.dir.free_bytes()
    }

    fn device(&self) -> io::Result<DeviceInfo> {
        self.dir.device()
    }

    fn lock(&self, name: &str, mode: LockMode) -> io::Result<Locking> {
        self.dir.lock(name, mode)
    }
}

impl Counts {
    fn sync<T>(&self, env: &dyn Env, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let began_ns = env.clock().monotonic_ns();
        let result = call();
        self.sync_ns.fetch_add(env.clock().monotonic_ns() - began_ns, Relaxed);
        self.syncs.fetch_add(1, Relaxed);
        result
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    env: Arc<dyn Env>,
    counts: Arc<Counts>,
    /// The end of the last write.
    end: AtomicU64,
}

impl CountingFile {
    fn read(&self, len: usize) {
        self.counts.reads.fetch_add(1, Relaxed);
        self.counts.read_bytes.fetch_add(len as u64, Relaxed);
    }

    fn write(&self, offset: u64, len: usize) {
        let counts = &*self.counts;
        let before = self.end.swap(offset + len as u64, Relaxed);
        let last_block = before.saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
        let is_next = (last_block..=before).contains(&offset);
        let (writes, bytes) = match is_next {
            true => (&*counts.sequential_writes, &counts.sequential_bytes),
            false => (&counts.random_writes, &counts.random_bytes),
        };
        writes.fetch_add(1, Relaxed);
        bytes.fetch_add(len as u64, Relaxed);
    }
}

impl File for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at(buf, offset)?;
        self.read(read);
        Ok(read)
    }

    fn read_at_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at_direct(buf, offset)?;
        self.read(read);
        Ok(read)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write(offset, buf.len());
        self.file.write_at(buf, offset)
    }

    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.write(offset, pieces.iter().map(|piece| piece.len()).sum());
        self.file.write_vectored_at(pieces, offset)
    }

    fn write_at_dsync(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write(offset, buf.len());
        self.counts.sync(&*self.env, || self.file.write_at_dsync(buf, offset))
    }

    fn write_direct(&self, buf: &[u8], offset: u64, sync: bool) -> io::Result<()> {
        self.write(offset, buf.len());
        match sync {
            true => self.counts.sync(&*self.env, || self.file.write_direct(buf, offset, true)),
            false => self.file.write_direct(buf, offset, false),
        }
    }

    fn takes_direct_writes(&self) -> io::Result<bool> {
        self.file.takes_direct_writes()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.counts.sync(&*self.env, || self.file.sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }

    fn punch_hole_from(&self, offset: u64) -> io::Result<()> {
        self.file.punch_hole_from(offset)
    }
}

#[cfg(test)]
mod tests {
    use fulgurite::env::RealEnv;

    use super::*;

    #[test]
    fn sequential_and_random_writes_are_counted_apart() {
        let dir = tempfile::tempdir().unwrap();
        let env = CountingEnv::new(RealEnv::new());
        let file = env.disk().open(&dir.path().join("file"), OpenOptions::CreateNew).unwrap();
        file.write_at(&[1; 100], 0).unwrap();
        file.write_at(&[1; 100], 100).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        file.write_at(&[1; 10], 40960).unwrap();
        file.write_at_dsync(&[1; 10], 8192).unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.read_at(&mut [0; 50], 0).unwrap(), 50);
        let counts = IoCounts { sync_ns: 0, ..env.counts() };
        let expected = IoCounts {
            reads: 1,
            read_bytes: 50,
            sequential_writes: 4,
            sequential_bytes: 8392,
            random_writes: 2,
            random_bytes: 20,
            syncs: 2,
            sync_ns: 0,
        };
        assert_eq!(counts, expected);
        assert!(env.counts().sync_ns > 0);
    }
}
