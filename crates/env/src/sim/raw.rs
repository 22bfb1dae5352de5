//! Changes that a test makes to a disk without the process: no operation is counted, none fails, all are durable.

use std::io;
use std::path::{Path, PathBuf};

use super::SimEnv;
use super::content::Content;
use super::disk::check_dir;
use super::error::Errno;
use super::inode::Inode;
use super::names::{Change, Node, clean};

impl SimEnv {
    /// Changes one byte in every state of it: in the cache, on the medium, and pending.
    pub fn corrupt(&self, path: &Path, offset: u64, change: impl FnOnce(&mut u8)) -> io::Result<()> {
        self.with_file(path, |inode| inode.corrupt(offset, change))
    }

    /// The memory of a mapped file does not deliver the page with a byte any more, to this process and those after it.
    pub fn lose_page(&self, path: &Path, offset: usize) -> io::Result<()> {
        self.with_file(path, |inode| inode.memory_mut().expect("it is mapped").lose_page(offset))
    }

    /// Sets the length of a file.
    pub fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let mut bytes = self.read_raw(path)?;
        bytes.resize(usize::try_from(len).map_err(io::Error::other)?, 0);
        self.write_raw(path, &bytes)
    }

    /// Removes a file.
    pub fn remove_raw(&self, path: &Path) -> io::Result<()> {
        self.with_file(path, |inode| inode.linked = false)?;
        let unbind = Change::Unbind { name: clean(path) };
        self.shared.state.lock().medium.names.change_durably(&unbind);
        Ok(())
    }

    /// Removes everything outside of a directory, also what only a power cut would bring back: the disk is as one to which the directory was
    /// copied. Nothing outside is open.
    pub fn keep_below_raw(&self, dir: &Path) {
        let mut state = self.shared.state.lock();
        state.medium.names.keep_below(&clean(dir));
        state.medium.collect();
    }

    /// Moves a directory with everything in it, as `mv` in another process does: open handles into it stay valid.
    /// Earlier writes are as durable as before.
    pub fn move_dir_raw(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (clean(from), clean(to));
        let mut state = self.shared.state.lock();
        check_dir(&state, "rename", &from)?;
        if state.medium.names.get(&to).is_some() {
            return Err(Errno::Exists.on("rename", &to));
        }
        if to.starts_with(&from)
            || to.parent().is_none_or(|parent| check_dir(&state, "rename", parent).is_err())
        {
            return Err(Errno::NoEntry.on("rename", &to));
        }
        state.move_dir(&from, &to);
        Ok(())
    }

    /// The content of a file, as reads see it.
    pub fn read_raw(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.with_file(path, |inode| inode.bytes())
    }

    /// The durable content of a file: a power cut that keeps no pending write leaves this.
    pub fn read_durable(&self, path: &Path) -> io::Result<Vec<u8>> {
        let power_safe = self.shared.state.lock().plan.settings.power_safe;
        self.with_file(path, |inode| inode.durable_bytes(power_safe))
    }

    /// Replaces the content of a file; creates it, with its directories, if there is none.
    pub fn write_raw(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let path = clean(path);
        let mut content = Content::default();
        content.write(bytes, 0);
        let mut new = Inode::durable(content, bytes.len() as u64);
        let mut state = self.shared.state.lock();
        let medium = &mut state.medium;
        if let Some(Node::File(ino)) = medium.names.get(&path)
            && let Some(inode) = medium.inodes.get_mut(&ino)
        {
            new.open = inode.open;
            *inode = new;
            return Ok(());
        }
        for dir in path.ancestors().skip(1).filter(|dir| dir.parent().is_some()) {
            medium.names.change_durably(&Change::Bind { name: dir.to_path_buf(), node: Node::Dir });
        }
        let ino = medium.new_inode(new);
        medium.names.change_durably(&Change::Bind { name: path, node: Node::File(ino) });
        Ok(())
    }

    /// How many bytes of the disk files take, those without a name included as long as they are open. Holes take none.
    pub fn used_bytes(&self) -> u64 {
        self.shared.state.lock().medium.used()
    }

    /// The paths and lengths of all files, ascending.
    pub fn list_raw(&self) -> Vec<(PathBuf, u64)> {
        let state = self.shared.state.lock();
        let files = state.medium.names.iter().filter_map(|(path, node)| match node {
            Node::File(ino) => Some((path.clone(), state.medium.inodes.get(&ino).map_or(0, Inode::len))),
            Node::Dir => None,
        });
        files.collect()
    }

    fn with_file<T>(&self, path: &Path, act: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let path = clean(path);
        let mut state = self.shared.state.lock();
        let Some(Node::File(ino)) = state.medium.names.get(&path) else {
            return Err(Errno::NoEntry.on("open", &path));
        };
        let missing = || Errno::NoEntry.on("open", &path);
        state.medium.inodes.get_mut(&ino).map(act).ok_or_else(missing)
    }
}
