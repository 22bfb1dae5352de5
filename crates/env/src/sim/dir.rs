//! An open directory of the simulated disk: it stays the same directory when it is moved.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::disk::{change, check_dir, create, file_at};
use super::error::{Errno, crashed};
use super::fate::Fate;
use super::file::SimFile;
use super::inode::Inode;
use super::lock;
use super::names::{Change, Node};
use super::plan::{Loss, Op, Verdict};
use super::rng::Rng;
use super::state::{Shared, State};
use crate::{DeviceInfo, Dir, DirEntry, File, LockMode, Locking, OpenOptions};

pub(super) struct SimDir {
    shared: Arc<Shared>,
    /// The handle's number in [`State::dirs`].
    number: u64,
    /// The path that it had when it was opened.
    path: PathBuf,
}

impl fmt::Debug for SimDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDir").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SimDir {
    /// A handle; the caller has the lock and passes the state.
    pub(super) fn open(shared: &Arc<Shared>, state: &mut State, path: PathBuf) -> io::Result<SimDir> {
        check_dir(state, "open", &path)?;
        let number = state.open_dir(path.clone());
        Ok(SimDir { shared: Arc::clone(shared), number, path })
    }

    /// The state, and the directory's current path.
    fn enter(&self) -> io::Result<(MutexGuard<'_, State>, PathBuf)> {
        let state = self.shared.enter()?;
        let path = state.dirs.get(&self.number).cloned().ok_or_else(|| Errno::Io.on("find", &self.path))?;
        Ok((state, path))
    }
}

impl Dir for SimDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let (mut state, dir) = self.enter()?;
        let path = dir.join(name);
        let ino = match options {
            OpenOptions::Read | OpenOptions::Write => file_at(&state, "open", &path)?,
            OpenOptions::CreateNew if state.medium.names.get(&path).is_some() => {
                return Err(Errno::Exists.on("create", &path));
            }
            OpenOptions::CreateNew => create(&mut state, &path)?,
        };
        let Some(inode) = state.medium.inodes.get_mut(&ino) else {
            return Err(Errno::NoEntry.on("open", &path));
        };
        let writable = options != OpenOptions::Read;
        Ok(Arc::new(SimFile::open(&self.shared, inode, ino, &path, writable)))
    }

    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        let (mut state, dir) = self.enter()?;
        Ok(Arc::new(SimDir::open(&self.shared, &mut state, dir.join(name))?))
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        let (mut state, dir) = self.enter()?;
        let path = dir.join(name);
        if state.medium.names.get(&path).is_some() {
            return Err(Errno::Exists.on("mkdir", &path));
        }
        let bind = Change::Bind { name: path.clone(), node: Node::Dir };
        change(&mut state, Op::Create, ("mkdir", &path), bind)
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        let (state, path) = self.enter()?;
        let children = state.medium.names.children(&path);
        let mut entries: Vec<DirEntry> = children
            .map(|(child, node)| {
                let name = child.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let len = match node {
                    Node::File(ino) => state.medium.inodes.get(&ino).map_or(0, Inode::len),
                    Node::Dir => 0,
                };
                DirEntry { name, is_dir: node == Node::Dir, len }
            })
            .collect();
        entries.sort();
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, dir) = self.enter()?;
        let (from, to) = (dir.join(from), dir.join(to));
        let ino = file_at(&state, "rename", &from)?;
        if state.medium.names.get(&to).is_some() {
            return Err(Errno::Exists.on("rename", &to));
        }
        let rename = Change::Rename { from: from.clone(), to, node: Node::File(ino) };
        change(&mut state, Op::Unlink, ("rename", &from), rename)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, dir) = self.enter()?;
        let path = dir.join(name);
        file_at(&state, "unlink", &path)?;
        let unbind = Change::Unbind { name: path.clone() };
        change(&mut state, Op::Unlink, ("unlink", &path), unbind)
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, path) = self.enter()?;
        let verdict = state.admit(Op::SyncDir);
        let rng = Rng::new(state.rng.next());
        let now = state.medium.last_seq();
        let syncs_ignored = state.plan.syncs_ignored;
        let names = &mut state.medium.names;
        match verdict {
            Verdict::Crash => return Err(crashed()),
            Verdict::Fail(Loss::All) => names.fail_sync(&path, &mut Fate::lose_all()),
            Verdict::Fail(Loss::Some) => names.fail_sync(&path, &mut Fate::draw(rng, now)),
            Verdict::Proceed | Verdict::Full if syncs_ignored => return Ok(()),
            Verdict::Proceed | Verdict::Full => {
                names.sync(&path);
                state.medium.collect();
                return Ok(());
            }
        }
        Err(Errno::Io.on("fsync", &path))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let (state, path) = self.enter()?;
        if state.plan.space_unknown {
            return Err(Errno::Io.on("statvfs", &path));
        }
        Ok(state.plan.settings.reported_space.unwrap_or_else(|| state.free()))
    }

    fn device(&self) -> io::Result<DeviceInfo> {
        Ok(self.enter()?.0.plan.settings.device())
    }

    fn lock(&self, name: &str, mode: LockMode) -> io::Result<Locking> {
        let (mut state, dir) = self.enter()?;
        lock::lock(&self.shared, &mut state, dir, name, mode)
    }
}

impl Drop for SimDir {
    fn drop(&mut self) {
        self.shared.state.lock().dirs.remove(&self.number);
    }
}
