//! An [`Env`] that counts the operations of its files.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fulgurite::env::{
    Clock, DeviceInfo, Dir, DirEntry, Disk, Env, File, Joiner, LockMode, Locking, MappedFile, OpenOptions,
};

use crate::io::{IoCounters, IoCounts};

/// An environment, which is also its disk.
#[derive(Debug)]
pub(crate) struct CountingEnv {
    counting: Arc<Counting>,
}

/// The underlying environment, and the counts of its files.
#[derive(Debug)]
struct Counting {
    below: Arc<dyn Env>,
    counts: IoCounters,
}

impl Counting {
    fn synced<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let began_ns = self.below.clock().monotonic_ns();
        let result = call();
        self.counts.sync(self.below.clock().monotonic_ns() - began_ns);
        result
    }
}

impl CountingEnv {
    pub fn new(below: Arc<dyn Env>) -> CountingEnv {
        CountingEnv { counting: Arc::new(Counting { below, counts: IoCounters::new() }) }
    }

    pub fn counts(&self) -> IoCounts {
        self.counting.counts.counts()
    }

    fn below(&self) -> &dyn Env {
        &*self.counting.below
    }
}

impl Env for CountingEnv {
    fn disk(&self) -> &dyn Disk {
        self
    }

    fn clock(&self) -> &dyn Clock {
        self.below().clock()
    }

    fn random_u64(&self) -> u64 {
        self.below().random_u64()
    }

    fn trim_memory(&self, resident: u64) -> bool {
        self.below().trim_memory(resident)
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.below().memory_bytes()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>> {
        self.below().spawn(name, body)
    }
}

impl Disk for CountingEnv {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below().disk().create_dir_all(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = self.below().disk().open_dir(path)?;
        Ok(Arc::new(CountingDir { dir, counting: self.counting.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().disk().rename(from, to)
    }

    fn create_mapped(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn MappedFile>> {
        self.below().disk().create_mapped(path, bytes)
    }

    fn open_mapped(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn MappedFile>> {
        self.below().disk().open_mapped(path, options)
    }
}

#[derive(Debug)]
struct CountingDir {
    dir: Arc<dyn Dir>,
    counting: Arc<Counting>,
}

impl Dir for CountingDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let file = self.dir.open(name, options)?;
        Ok(Arc::new(CountingFile { file, counting: self.counting.clone(), end: AtomicU64::new(0) }))
    }

    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        let dir = self.dir.open_dir(name)?;
        Ok(Arc::new(CountingDir { dir, counting: self.counting.clone() }))
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
        self.counting.synced(|| self.dir.sync())
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

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    counting: Arc<Counting>,
    /// The end of the last write.
    end: AtomicU64,
}

impl CountingFile {
    fn write(&self, offset: u64, len: usize) {
        self.counting.counts.write(&self.end, offset, len as u64);
    }
}

impl File for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at(buf, offset)?;
        self.counting.counts.read(read as u64);
        Ok(read)
    }

    fn read_at_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at_direct(buf, offset)?;
        self.counting.counts.read(read as u64);
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
        self.counting.synced(|| self.file.write_at_dsync(buf, offset))
    }

    fn write_direct(&self, buf: &[u8], offset: u64, sync: bool) -> io::Result<()> {
        self.write(offset, buf.len());
        match sync {
            true => self.counting.synced(|| self.file.write_direct(buf, offset, true)),
            false => self.file.write_direct(buf, offset, false),
        }
    }

    fn takes_direct_writes(&self) -> io::Result<bool> {
        self.file.takes_direct_writes()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.counting.synced(|| self.file.sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
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
