//! A mapped file of the simulated machine.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::disk::{check_parent, create, file_at};
use super::error::{Errno, crashed};
use super::memory::{Memory, Words};
use super::names::{Change, Ino, Node, clean};
use super::plan::{Op, Verdict};
use super::state::{Shared, State};
use crate::mapped::{check_len, lines, lost_page, word_index};
use crate::{DiskError, MappedFile, MemoryMedium, OpenOptions};

pub(super) struct SimMapped {
    shared: Arc<Shared>,
    ino: Ino,
    words: Arc<Words>,
    medium: MemoryMedium,
    is_writable: bool,
    path: PathBuf,
}

impl fmt::Debug for SimMapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimMapped").field("path", &self.path).finish_non_exhaustive()
    }
}

fn medium(state: &State, path: &Path) -> io::Result<MemoryMedium> {
    state.plan.settings.mapped.ok_or_else(|| Errno::Unsupported.on("mmap", path))
}

pub(super) fn create_mapped(
    shared: &Arc<Shared>,
    path: &Path,
    bytes: u64,
) -> io::Result<Arc<dyn MappedFile>> {
    let path = clean(path);
    check_len(&path, bytes)?;
    let mut state = shared.enter()?;
    let medium = medium(&state, &path)?;
    if state.medium.names.get(&path).is_some() {
        return Err(Errno::Exists.on("create", &path));
    }
    check_parent(&state, "create", &path)?;
    if state.free() < bytes {
        return Err(Errno::NoSpace.on("fallocate", &path));
    }
    let ino = create(&mut state, &path)?;
    let memory = Memory::durable(&vec![0; bytes as usize], medium);
    let words = Arc::clone(&memory.words);
    if let Some(inode) = state.medium.inodes.get_mut(&ino) {
        inode.map(memory);
        inode.open += 1;
    }
    state.medium.names.change_durably(&Change::Bind { name: path.clone(), node: Node::File(ino) });
    let shared = Arc::clone(shared);
    Ok(Arc::new(SimMapped { shared, ino, words, medium, is_writable: true, path }))
}

pub(super) fn open_mapped(
    shared: &Arc<Shared>,
    path: &Path,
    options: OpenOptions,
) -> io::Result<Arc<dyn MappedFile>> {
    let path = clean(path);
    let mut state = shared.enter()?;
    let medium = medium(&state, &path)?;
    let ino = file_at(&state, "open", &path)?;
    let Some(inode) = state.medium.inodes.get_mut(&ino) else {
        return Err(Errno::NoEntry.on("open", &path));
    };
    check_len(&path, inode.len())?;
    if inode.memory().is_none() {
        let memory = Memory::durable(&inode.bytes(), medium);
        inode.map(memory);
    }
    inode.open += 1;
    let memory = inode.memory().expect("it is mapped");
    let (words, medium) = (Arc::clone(&memory.words), memory.medium);
    let (shared, is_writable) = (Arc::clone(shared), options != OpenOptions::Read);
    Ok(Arc::new(SimMapped { shared, ino, words, medium, is_writable, path }))
}

impl SimMapped {
    fn check_writable(&self) {
        assert!(self.is_writable, "{} was opened for reading", self.path.display());
    }

    /// An operation that a crash may come before.
    fn admit(&self, op: Op) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.shared.enter()?;
        if state.admit(op) == Verdict::Crash {
            return Err(crashed());
        }
        Ok(state)
    }

    fn whole(&self, memory: &Memory) -> io::Result<()> {
        match memory.lost {
            Some(at) => Err(DiskError::wrap("access", &self.path, lost_page(at))),
            None => Ok(()),
        }
    }

    fn memory<'s>(&self, state: &'s mut State) -> &'s mut Memory {
        let inode =
            state.medium.inodes.get_mut(&self.ino).expect("the inode of an open file is never collected");
        inode.memory_mut().expect("it is mapped")
    }
}

impl MappedFile for SimMapped {
    fn medium(&self) -> MemoryMedium {
        self.medium
    }

    fn len(&self) -> usize {
        self.words.len()
    }

    fn as_ptr(&self) -> *mut u8 {
        self.words.as_ptr()
    }

    fn store_word(&self, offset: usize, word: u64) {
        self.check_writable();
        let index = word_index(offset, self.len());
        let mut state = self.shared.state.lock();
        // A crashed machine stores nothing.
        if state.plan.crashed {
            return;
        }
        let seq = state.medium.next_seq();
        self.words.word(index).store(word.to_le(), Ordering::Release);
        self.memory(&mut state).stored(index, word.to_le(), seq);
    }

    fn load_word(&self, offset: usize) -> u64 {
        u64::from_le(self.words.word(word_index(offset, self.len())).load(Ordering::Acquire))
    }

    fn write_back(&self, range: Range<usize>) -> io::Result<()> {
        self.check_writable();
        let lines = lines(&range, self.len());
        let mut state = self.admit(Op::WriteBack)?;
        let seq = state.medium.next_seq();
        self.memory(&mut state).write_back(lines, seq);
        Ok(())
    }

    fn fence(&self) -> io::Result<()> {
        let mut state = self.admit(Op::Fence)?;
        let memory = self.memory(&mut state);
        memory.fence();
        self.whole(memory)
    }

    fn check(&self) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        self.whole(self.memory(&mut state))
    }
}

impl Drop for SimMapped {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Some(inode) = state.medium.inodes.get_mut(&self.ino) {
            inode.open -= 1;
        }
    }
}
