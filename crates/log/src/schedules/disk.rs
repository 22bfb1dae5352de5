//! The simulated disk with a thread switch around each write and sync, and a watch over both.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_env::sim::SimEnv;
use fulgurite_env::{
    Clock, DeviceInfo, Dir, DirEntry, Disk, Env, File, Joiner, LockMode, Locking, MappedFile, OpenOptions,
};
use shuttle::thread::sleep;

/// The writes and syncs in flight on segments in use.
#[derive(Debug, Default)]
pub struct Watch {
    writes: AtomicU32,
    syncs: AtomicU32,
    /// Whether the bulk stream is in use: its writes overlap the commit stream's.
    pub bulk: AtomicBool,
    /// Whether a sync may overlap a write.
    pub syncs_beside_writes: AtomicBool,
}

impl Watch {
    fn during(&self, counter: &AtomicU32, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        switch();
        counter.fetch_add(1, Relaxed);
        let (writes, syncs) = (self.writes.load(Relaxed), self.syncs.load(Relaxed));
        if !self.bulk.load(Relaxed) {
            assert!(writes <= 1, "INV-LOG-6: two writes of the commit stream overlap");
            assert!(syncs <= 1, "INV-LOG-2: two syncs overlap, and the error of one may reach the other");
            let apart = writes + syncs <= 1 || self.syncs_beside_writes.load(Relaxed);
            assert!(apart, "INV-LOG-6: a sync of a leader overlaps a write");
        }
        switch();
        let result = call();
        switch();
        counter.fetch_sub(1, Relaxed);
        result
    }
}

/// Lets another thread run. Not `yield_now`, which tells shuttle that this thread has nothing to do.
fn switch() {
    sleep(Duration::ZERO);
}

/// A [`SimEnv`] whose disk yields.
#[derive(Debug)]
pub struct YieldingEnv {
    sim: Arc<SimEnv>,
    disk: YieldingDisk,
}

impl YieldingEnv {
    pub fn new(sim: &Arc<SimEnv>, watch: &Arc<Watch>) -> Arc<YieldingEnv> {
        let disk = YieldingDisk { sim: Arc::clone(sim), watch: Arc::clone(watch) };
        Arc::new(YieldingEnv { sim: Arc::clone(sim), disk })
    }
}

impl Env for YieldingEnv {
    fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    fn clock(&self) -> &dyn Clock {
        self.sim.clock()
    }

    fn random_u64(&self) -> u64 {
        self.sim.random_u64()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>> {
        self.sim.spawn(name, body)
    }
}

#[derive(Debug)]
struct YieldingDisk {
    sim: Arc<SimEnv>,
    watch: Arc<Watch>,
}

impl Disk for YieldingDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.sim.disk().create_dir_all(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = self.sim.disk().open_dir(path)?;
        Ok(Arc::new(YieldingDir { dir, watch: Arc::clone(&self.watch), new_files: Mutex::default() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.sim.disk().rename(from, to)
    }

    fn create_mapped(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn MappedFile>> {
        self.sim.disk().create_mapped(path, bytes)
    }

    fn open_mapped(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn MappedFile>> {
        self.sim.disk().open_mapped(path, options)
    }
}

#[derive(Debug)]
struct YieldingDir {
    dir: Arc<dyn Dir>,
    watch: Arc<Watch>,
    /// Files without their final name: segments that are not finished.
    new_files: Mutex<BTreeMap<String, Arc<AtomicBool>>>,
}

impl YieldingDir {
    fn new_files(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<AtomicBool>>> {
        self.new_files.lock().expect("no panic")
    }
}

impl Dir for YieldingDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let inner = self.dir.open(name, options)?;
        let is_new = !name.ends_with(".seg");
        let in_use = Arc::new(AtomicBool::new(!is_new));
        if is_new {
            self.new_files().insert(name.to_owned(), Arc::clone(&in_use));
        }
        Ok(Arc::new(YieldingFile { inner, in_use, watch: Arc::clone(&self.watch) }))
    }

    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        let dir = self.dir.open_dir(name)?;
        Ok(Arc::new(YieldingDir { dir, watch: Arc::clone(&self.watch), new_files: Mutex::default() }))
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        self.dir.create_dir(name)
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        self.dir.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if let Some(in_use) = self.new_files().remove(from) {
            in_use.store(true, Relaxed);
        }
        self.dir.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.dir.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.dir.sync()
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
struct YieldingFile {
    inner: Arc<dyn File>,
    in_use: Arc<AtomicBool>,
    watch: Arc<Watch>,
}

impl YieldingFile {
    fn write(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if self.in_use.load(Relaxed) { self.watch.during(&self.watch.writes, call) } else { call() }
    }
}

impl File for YieldingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }

    fn read_at_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at_direct(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write(|| self.inner.write_at(buf, offset))
    }

    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.write(|| self.inner.write_vectored_at(pieces, offset))
    }

    fn write_at_dsync(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write(|| self.inner.write_at_dsync(buf, offset))
    }

    fn write_direct(&self, buf: &[u8], offset: u64, sync: bool) -> io::Result<()> {
        self.write(|| self.inner.write_direct(buf, offset, sync))
    }

    fn takes_direct_writes(&self) -> io::Result<bool> {
        self.inner.takes_direct_writes()
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.in_use.load(Relaxed) {
            self.watch.during(&self.watch.syncs, || self.inner.sync_data())
        } else {
            self.inner.sync_data()
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.inner.allocate(bytes)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }

    fn punch_hole_from(&self, offset: u64) -> io::Result<()> {
        self.inner.punch_hole_from(offset)
    }
}
