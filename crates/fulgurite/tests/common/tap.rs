//! An environment that shows every change of the disk to an observer before it happens.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fulgurite::env::sim::SimEnv;
use fulgurite::env::{
    AlignedBuf, Clock, DeviceInfo, Dir, DirEntry, Disk, Env, File, Joiner, LockMode, Locking, MappedFile,
    OpenOptions,
};

/// A change of the disk: the operations that [`fulgurite::env::sim::Faults::op_count`] counts.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    Write { path: &'a Path, data: &'a [u8], offset: u64, direct: bool, dsync: bool },
    Sync { path: &'a Path },
    SetLen { path: &'a Path, len: u64 },
    CreateDir { path: &'a Path },
    Create { path: &'a Path },
    Rename { from: &'a Path, to: &'a Path },
    Remove { path: &'a Path },
    SyncDir { path: &'a Path },
}

impl Op<'_> {
    /// Repeats the operation on another disk.
    pub fn perform(&self, disk: &dyn Disk) -> io::Result<()> {
        match *self {
            Op::Write { path, data, offset, direct, dsync } => {
                let file = disk.open(path, OpenOptions::Write)?;
                match (direct, dsync) {
                    (true, _) => {
                        let mut buf = AlignedBuf::new(data.len());
                        buf.copy_from_slice(data);
                        file.write_direct(&buf, offset, dsync)
                    }
                    (false, true) => file.write_at_dsync(data, offset),
                    (false, false) => file.write_at(data, offset),
                }
            }
            Op::Sync { path } => disk.open(path, OpenOptions::Write)?.sync_data(),
            Op::SetLen { path, len } => disk.open(path, OpenOptions::Write)?.set_len(len),
            Op::CreateDir { path } => disk.create_dir_all(path),
            Op::Create { path } => disk.open(path, OpenOptions::CreateNew).map(|_| ()),
            Op::Rename { from, to } => disk.rename(from, to),
            Op::Remove { path } => disk.remove(path),
            Op::SyncDir { path } => disk.sync_dir(path),
        }
    }
}

impl fmt::Display for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Write { path, data, offset, direct, dsync } => {
                let how = match (direct, dsync) {
                    (false, false) => "write",
                    (false, true) => "write and sync",
                    (true, false) => "write directly",
                    (true, true) => "write directly and sync",
                };
                write!(f, "{how} {} bytes at {offset} of {}", data.len(), path.display())
            }
            Op::Sync { path } => write!(f, "sync {}", path.display()),
            Op::SetLen { path, len } => write!(f, "set the length of {} to {len}", path.display()),
            Op::CreateDir { path } => write!(f, "create the directory {}", path.display()),
            Op::Create { path } => write!(f, "create {}", path.display()),
            Op::Rename { from, to } => write!(f, "rename {} to {}", from.display(), to.display()),
            Op::Remove { path } => write!(f, "remove {}", path.display()),
            Op::SyncDir { path } => write!(f, "sync the directory {}", path.display()),
        }
    }
}

/// The observer of each change before it happens.
pub type Observer = Box<dyn Fn(&Arc<SimEnv>, Op<'_>) + Send + Sync>;

struct Shared {
    sim: Arc<SimEnv>,
    observer: Observer,
    /// Whether syncs of files only claim to have happened.
    lies: bool,
    /// The current path of each open file: a handle outlives a rename.
    paths: Mutex<BTreeMap<PathBuf, CurrentPath>>,
}

type CurrentPath = Arc<Mutex<PathBuf>>;

impl Shared {
    fn show(&self, op: Op<'_>) {
        (self.observer)(&self.sim, op);
    }

    fn current_path(&self, path: &Path) -> CurrentPath {
        let mut paths = self.paths.lock().unwrap();
        paths.entry(path.to_path_buf()).or_insert_with(|| Arc::new(Mutex::new(path.to_path_buf()))).clone()
    }
}

/// The environment.
pub struct Tap {
    disk: TapDisk,
}

struct TapDisk(Arc<Shared>);

struct TapFile {
    file: Arc<dyn File>,
    path: CurrentPath,
    shared: Arc<Shared>,
}

impl Tap {
    pub fn new(sim: &Arc<SimEnv>, observer: Observer) -> Arc<Tap> {
        Tap::with(sim, observer, false)
    }

    /// A disk whose syncs of files do nothing.
    pub fn lying(sim: &Arc<SimEnv>, observer: Observer) -> Arc<Tap> {
        Tap::with(sim, observer, true)
    }

    fn with(sim: &Arc<SimEnv>, observer: Observer, lies: bool) -> Arc<Tap> {
        let shared = Shared { sim: sim.clone(), observer, lies, paths: Mutex::default() };
        Arc::new(Tap { disk: TapDisk(Arc::new(shared)) })
    }

    fn sim(&self) -> &Arc<SimEnv> {
        &self.disk.0.sim
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

impl fmt::Debug for TapDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TapDisk")
    }
}

impl fmt::Debug for TapFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TapFile({})", self.path.lock().unwrap().display())
    }
}

impl Env for Tap {
    fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    fn clock(&self) -> &dyn Clock {
        self.sim().clock()
    }

    fn random_u64(&self) -> u64 {
        self.sim().random_u64()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>> {
        self.sim().spawn(name, body)
    }
}

impl TapDisk {
    fn inner(&self) -> &dyn Disk {
        self.0.sim.disk()
    }
}

impl Disk for TapDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if self.inner().list(path).is_err() {
            self.0.show(Op::CreateDir { path });
        }
        self.inner().create_dir_all(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(TapDir { dir: self.inner().open_dir(path)?, shared: self.0.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to, || self.inner().rename(from, to))
    }

    fn create_mapped(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn MappedFile>> {
        self.inner().create_mapped(path, bytes)
    }

    fn open_mapped(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn MappedFile>> {
        self.inner().open_mapped(path, options)
    }
}

impl Shared {
    fn rename(&self, from: &Path, to: &Path, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.show(Op::Rename { from, to });
        act()?;
        let mut paths = self.paths.lock().unwrap();
        if let Some(current) = paths.remove(from) {
            *current.lock().unwrap() = to.to_path_buf();
            paths.insert(to.to_path_buf(), current);
        }
        Ok(())
    }
}

struct TapDir {
    dir: Arc<dyn Dir>,
    shared: Arc<Shared>,
}

impl fmt::Debug for TapDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TapDir({})", self.path().display())
    }
}

impl Dir for TapDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let path = &self.path().join(name);
        if options == OpenOptions::CreateNew {
            self.shared.show(Op::Create { path });
        }
        let file = self.dir.open(name, options)?;
        Ok(Arc::new(TapFile { file, path: self.shared.current_path(path), shared: self.shared.clone() }))
    }

    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(TapDir { dir: self.dir.open_dir(name)?, shared: self.shared.clone() }))
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        self.shared.show(Op::CreateDir { path: &self.path().join(name) });
        self.dir.create_dir(name)
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        self.dir.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from_path, to_path) = (self.path().join(from), self.path().join(to));
        self.shared.rename(&from_path, &to_path, || self.dir.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = &self.path().join(name);
        self.shared.show(Op::Remove { path });
        self.dir.remove(name)?;
        self.shared.paths.lock().unwrap().remove(path);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.show(Op::SyncDir { path: self.path() });
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

impl TapFile {
    fn show(&self, op: impl for<'a> FnOnce(&'a Path) -> Op<'a>) {
        let path = self.path.lock().unwrap().clone();
        self.shared.show(op(&path));
    }

    fn show_write(&self, data: &[u8], offset: u64, direct: bool, dsync: bool) {
        let path = self.path.lock().unwrap().clone();
        self.shared.show(Op::Write { path: &path, data, offset, direct, dsync });
    }
}

impl File for TapFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn read_at_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at_direct(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.show_write(buf, offset, false, false);
        self.file.write_at(buf, offset)
    }

    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.write_at(&joined, offset)
    }

    fn write_at_dsync(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.show_write(buf, offset, false, true);
        self.file.write_at_dsync(buf, offset)
    }

    fn write_direct(&self, buf: &[u8], offset: u64, sync: bool) -> io::Result<()> {
        self.show_write(buf, offset, true, sync);
        self.file.write_direct(buf, offset, sync)
    }

    fn takes_direct_writes(&self) -> io::Result<bool> {
        self.file.takes_direct_writes()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.show(|path| Op::Sync { path });
        if self.shared.lies { Ok(()) } else { self.file.sync_data() }
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.show(|path| Op::SetLen { path, len });
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
