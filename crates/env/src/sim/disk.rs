//! The simulated file system: operations by path, and changes of names.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::dir::SimDir;
use super::error::{Errno, crashed};
use super::inode::Inode;
use super::mapped;
use super::medium::Flight;
use super::names::{Change, Ino, Node, clean};
use super::plan::{Op, Verdict};
use super::state::{Shared, State};
use crate::{Dir, Disk, MappedFile, OpenOptions};

#[derive(Debug)]
pub(super) struct SimDisk {
    pub(super) shared: Arc<Shared>,
}

/// Makes a counted change of names: atomic for the processes, in flight only if the machine crashes during it.
pub(super) fn change(
    state: &mut State,
    op: Op,
    (operation, path): (&'static str, &Path),
    change: Change,
) -> io::Result<()> {
    match state.admit(op) {
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
pub(super) fn file_at(state: &State, operation: &'static str, path: &Path) -> io::Result<Ino> {
    match state.medium.names.get(path) {
        Some(Node::File(ino)) => Ok(ino),
        Some(Node::Dir) => Err(Errno::IsADirectory.on(operation, path)),
        None => Err(Errno::NoEntry.on(operation, path)),
    }
}

pub(super) fn check_dir(state: &State, operation: &'static str, path: &Path) -> io::Result<()> {
    match state.medium.names.get(path) {
        Some(Node::Dir) => Ok(()),
        Some(Node::File(_)) => Err(Errno::NotADirectory.on(operation, path)),
        None => Err(Errno::NoEntry.on(operation, path)),
    }
}

pub(super) fn check_parent(state: &State, operation: &'static str, path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| check_dir(state, operation, parent))
}

pub(super) fn create(state: &mut State, path: &Path) -> io::Result<Ino> {
    check_parent(state, "create", path)?;
    let ino = state.medium.new_inode(Inode::default());
    let bind = Change::Bind { name: path.to_path_buf(), node: Node::File(ino) };
    change(state, Op::Create, ("create", path), bind)?;
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

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let path = clean(path);
        let mut state = self.shared.enter()?;
        Ok(Arc::new(SimDir::open(&self.shared, &mut state, path)?))
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

    fn create_mapped(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn MappedFile>> {
        mapped::create_mapped(&self.shared, path, bytes)
    }

    fn open_mapped(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn MappedFile>> {
        mapped::open_mapped(&self.shared, path, options)
    }
}
