//! The machine: Linux, through the standard library and `rustix`.

mod bus_error;
mod clock;
mod device;
mod dir;
mod direct;
mod direct_write;
mod disk;
mod file;
mod filesystem;
mod lock;
mod mapped;
mod memory;
mod priority;
mod process;
mod random;
mod usage;
mod write_back;

use std::io;
use std::sync::Arc;

use crate::{Clock, ContextSwitches, Disk, Env, Joiner, ProcessMemory};

pub use self::memory::{Allocator, limit_arenas, limit_arenas_to, use_allocator};
pub use self::process::Process;

/// The operating system's files, clocks, threads and randomness.
///
/// [`DiskError`](crate::DiskError) describes its disk's errors. An interrupted call is continued, and so is a write
/// that the kernel cuts short, after the bytes that it took; so an error means that a part may have been written.
/// Nothing else is retried.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealEnv {
    disk: disk::RealDisk,
    clock: clock::RealClock,
}

impl RealEnv {
    /// The environment of this process.
    pub fn new() -> Arc<RealEnv> {
        Arc::new(RealEnv::default())
    }
}

impl Env for RealEnv {
    fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    fn random_u64(&self) -> u64 {
        random::random_u64()
    }

    fn process_memory(&self) -> Option<ProcessMemory> {
        memory::process_memory()
    }

    fn context_switches(&self) -> Option<ContextSwitches> {
        usage::context_switches()
    }

    fn trim_memory(&self, resident: u64) -> bool {
        memory::trim(resident)
    }

    fn memory_bytes(&self) -> Option<u64> {
        memory::memory_bytes()
    }

    fn lower_priority(&self) {
        priority::lower();
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>> {
        crate::thread::spawn(name, body)
    }
}
