//! Memory of the program that counts within the budget of a database.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fulgurite_index::IndexMemory;

use crate::Database;

/// All that programs count in one database.
pub(crate) struct ProgramBytes {
    index: Arc<IndexMemory>,
    bytes: AtomicUsize,
}

impl ProgramBytes {
    pub fn new(index: &Arc<IndexMemory>) -> Arc<ProgramBytes> {
        Arc::new(ProgramBytes { index: index.clone(), bytes: AtomicUsize::new(0) })
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

/// Memory that the program itself takes, and counts within the budget of a database
/// ([`Options::memory_bytes`](crate::Options::memory_bytes)): the buffers of a server's connections, for example. Nodes and values are
/// evicted for it, as for memtables and transactions. Nothing is refused: where the program takes more than the whole budget, the
/// database reads all from disk, and the program has to give something back.
///
/// One handle is for one buffer, or whatever grows and shrinks together; dropping it gives its bytes back.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let memory = db.program_memory();
/// let buffer: Vec<u8> = Vec::with_capacity(1 << 20);
/// memory.set(buffer.capacity());
/// assert_eq!(db.stats().memory.program_bytes, 1 << 20);
/// drop((buffer, memory));
/// assert_eq!(db.stats().memory.program_bytes, 0);
/// # Ok(())
/// # }
/// ```
pub struct ProgramMemory {
    all: Arc<ProgramBytes>,
    bytes: AtomicUsize,
}

impl ProgramMemory {
    /// It takes so many bytes now. Of several threads that set it at the same time, the last one counts.
    pub fn set(&self, bytes: usize) {
        let more = bytes.wrapping_sub(self.bytes.swap(bytes, Relaxed));
        self.all.bytes.fetch_add(more, Relaxed);
        self.all.index.others().fetch_add(more, Relaxed);
        if more.cast_signed() > 0 {
            self.all.index.look();
        }
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// How many bytes all handles of this database take together.
    pub fn of_all(&self) -> usize {
        self.all.bytes()
    }
}

impl Drop for ProgramMemory {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl fmt::Debug for ProgramMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramMemory({} bytes)", self.bytes())
    }
}

impl Database {
    /// A handle for memory of the program that counts within the budget of this database, none yet.
    pub fn program_memory(&self) -> ProgramMemory {
        ProgramMemory { all: self.engine().memory.program.clone(), bytes: AtomicUsize::new(0) }
    }
}
