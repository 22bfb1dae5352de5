//! The simulated file system.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Errno, crashed};
use super::fate::Fate;
use super::file::SimFile;
use super::inode::Inode;
use super::medium::Flight;
use super::names::{Change, Ino, Node, clean};
use super::plan::{Loss, Op, Verdict};
use super::rng::Rng;
use super::state::{Shared, State};
use crate::{DeviceInfo, DirEntry, Disk, File, Lock, OpenOptions};

#[derive(Debug)]
pub(super) struct SimDisk {
    pub(super) shared: Arc<Shared>,
}

/// Makes a counted change of names: atomic for the processes, in flight only if the machine crashes in it.
fn change(
    state: &mut State,
    op: Op,
    (operation, path): (&'static str, &Path),
    change: Change,
) -> io::Result<()> {
    match state.plan.admit(op) {
        Verdict::Proceed => {}
        Verdict::Full => return Err(Errno::NoSpace.on(operation, path)),
        Verdict::Fail(_) => return Err(Errno::Io.on(operation, path)),
        Verdict::Crash => {
            state.medium.submit(Flight::Name(change));
            return Err(crashed());
        }
    }
    let node_at = |state: &State, path: &Path| state.medium.names.get(path).and_then(Node::file);
    let (unlinked, linked) = match &change {
        Change::Bind { node, .. } => (None, node.file()),
        Change::Unbind { name } => (node_at(state, name), None),
        Change::Rename { from, to, .. } => (node_at(state, to), node_at(state, from)),
    };
    state.medium.change_names(change);
    for (ino, linked) in [(unlinked, false), (linked, true)] {
        if let Some(inode) = ino.and_then(|ino| state.medium.inodes.get_mut(&ino)) {
            inode.linked = linked;
        }
    }
    Ok(())
}

/// The file at a path; an error if there is none, or a directory.
fn file_at(state: &State, operation: &'static str, path: &Path) -> io::Result<Ino> {
    match state.medium.names.get(path) {
        Some(Node::File(ino)) => Ok(ino),
        Some(Node::Dir) => Err(Errno::IsADirectory.on(operation, path)),
        None => Err(Errno::NoEntry.on(operation, path)),
    }
}

fn check_dir(state: &State, operation: &'static str, path: &Path) -> io::Result<()> {
    match state.medium.names.get(path) {
        Some(Node::Dir) => Ok(()),
        Some(Node::File(_)) => Err(Errno::NotADirectory.on(operation, path)),
        None => Err(Errno::NoEntry.on(operation, path)),
    }
}

fn check_parent(state: &State, operation: &'static str, path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| check_dir(state, operation, parent))
}

fn create(state: &mut State, path: &Path) -> io::Result<Ino> {
    check_parent(state, "open", path)?;
    let ino = state.medium.new_inode(Inode::default());
    let bind = Change::Bind { name: path.to_path_buf(), node: Node::File(ino) };
    change(state, Op::Create, ("open", path), bind)?;
    Ok(ino)
}

impl Disk for SimDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = clean(path);
        let mut state = self.shared.enter()?;
        let mut missing: Vec<&Path> = Vec::new();
        for ancestor in path.ancestors() {
            match state.medium.names.get(ancestor) {
                Some(Node::Dir) => break,
                Some(Node::File(_)) => return Err(Errno::NotADirectory.on("mkdir", ancestor)),
                None => missing.push(ancestor),
            }
        }
        for dir in missing.into_iter().rev() {
            let bind = Change::Bind { name: dir.to_path_buf(), node: Node::Dir };
            change(&mut state, Op::Create, ("mkdir", dir), bind)?;
        }
        Ok(())
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let path = clean(path);
        let mut state = self.shared.enter()?;
        let ino = match options {
            OpenOptions::Read | OpenOptions::Write => file_at(&state, "open", &path)?,
            OpenOptions::CreateNew if state.medium.names.get(&path).is_some() => {
                return Err(Errno::Exists.on("open", &path));
            }
            OpenOptions::CreateNew => create(&mut state, &path)?,
        };
        let Some(inode) = state.medium.inodes.get_mut(&ino) else {
            return Err(Errno::NoEntry.on("open", &path));
        };
        let writable = options != OpenOptions::Read;
        Ok(Arc::new(SimFile::open(&self.shared, inode, ino, &path, writable)))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let path = clean(path);
        let state = self.shared.enter()?;
        check_dir(&state, "readdir", &path)?;
        let mut entries: Vec<DirEntry> = state
            .medium
            .names
            .children(&path)
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

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (clean(from), clean(to));
        let mut state = self.shared.enter()?;
        let ino = file_at(&state, "rename", &from)?;
        check_parent(&state, "rename", &to)?;
        if state.medium.names.get(&to) == Some(Node::Dir) {
            return Err(Errno::IsADirectory.on("rename", &to));
        }
        if from == to {
            return Ok(());
        }
        let rename = Change::Rename { from: from.clone(), to, node: Node::File(ino) };
        change(&mut state, Op::Unlink, ("rename", &from), rename)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = clean(path);
        let mut state = self.shared.enter()?;
        file_at(&state, "unlink", &path)?;
        let unbind = Change::Unbind { name: path.clone() };
        change(&mut state, Op::Unlink, ("unlink", &path), unbind)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = clean(path);
        let mut state = self.shared.enter()?;
        check_dir(&state, "fsync", &path)?;
        let verdict = state.plan.admit(Op::SyncDir);
        let rng = Rng::new(state.rng.next());
        let now = state.medium.last_seq();
        let names = &mut state.medium.names;
        match verdict {
            Verdict::Crash => return Err(crashed()),
            Verdict::Fail(Loss::All) => names.fail_sync(&path, &mut Fate::lose_all()),
            Verdict::Fail(Loss::Some) => names.fail_sync(&path, &mut Fate::draw(rng, now)),
            Verdict::Proceed | Verdict::Full => {
                names.sync(&path);
                state.medium.collect();
                return Ok(());
            }
        }
        Err(Errno::Io.on("fsync", &path))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let state = self.shared.enter()?;
        if state.plan.space_unknown {
            return Err(Errno::Io.on("statvfs", &clean(path)));
        }
        Ok(state.free())
    }

    fn device(&self, _path: &Path) -> io::Result<DeviceInfo> {
        Ok(self.shared.enter()?.plan.settings.device())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let path = clean(path);
        let mut state = self.shared.enter()?;
        if state.medium.names.get(&path).is_none() {
            create(&mut state, &path)?;
        }
        file_at(&state, "open", &path)?;
        if state.locks.contains(&path) {
            return Ok(None);
        }
        state.locks.push(path.clone());
        Ok(Some(Box::new(SimLock { shared: Arc::clone(&self.shared), path })))
    }
}

struct SimLock {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLock").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.state.lock().unlock(&self.path);
    }
}
