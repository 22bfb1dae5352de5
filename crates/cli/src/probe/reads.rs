//! Threads that read at random offsets around the page cache.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite::env::{AlignedBuf, Env, File};

use super::cases::ReadCase;
use super::files::{Files, Random};
use super::samples::Samples;
use crate::interrupt;

/// Reads for `ns` nanoseconds, or until a signal asks to end.
pub(super) fn turn(
    env: &Arc<dyn Env>,
    files: &Files,
    case: ReadCase,
    ns: u64,
    samples: &mut Samples,
) -> io::Result<()> {
    let began_ns = env.clock().monotonic_ns();
    let found: Arc<Mutex<Vec<io::Result<Vec<u64>>>>> = Arc::default();
    let mut threads = Vec::new();
    for _ in 0..case.depth {
        let reader = Reader {
            env: Arc::clone(env),
            file: Arc::clone(&files.read),
            blocks: files.sizes.read / case.bytes as u64,
            bytes: case.bytes,
            until_ns: began_ns + ns,
        };
        let found = Arc::clone(&found);
        let body = move || {
            let latencies_ns = reader.run();
            found.lock().unwrap_or_else(PoisonError::into_inner).push(latencies_ns);
        };
        threads.push(env.spawn("probe-reader", Box::new(body))?);
    }
    for thread in threads {
        if !thread.join() {
            return Err(io::Error::other("a reading thread panicked"));
        }
    }
    let elapsed_ns = env.clock().monotonic_ns() - began_ns;
    let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    let latencies_ns = found.into_iter().collect::<io::Result<Vec<_>>>()?.concat();
    samples.add_all(&latencies_ns, elapsed_ns);
    Ok(())
}

struct Reader {
    env: Arc<dyn Env>,
    file: Arc<dyn File>,
    /// The number of offsets to choose from.
    blocks: u64,
    bytes: usize,
    until_ns: u64,
}

impl Reader {
    /// The latencies of at least one read.
    fn run(&self) -> io::Result<Vec<u64>> {
        let mut random = Random::new(self.env.random_u64());
        let mut buf = AlignedBuf::new(self.bytes);
        let mut latencies_ns = Vec::new();
        loop {
            let offset = random.next() % self.blocks * self.bytes as u64;
            let began_ns = self.env.clock().monotonic_ns();
            let count = self.file.read_at_direct(&mut buf, offset)?;
            let ended_ns = self.env.clock().monotonic_ns();
            if count < self.bytes && !interrupt::asked() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            latencies_ns.push(ended_ns - began_ns);
            if ended_ns >= self.until_ns || interrupt::asked() {
                return Ok(latencies_ns);
            }
        }
    }
}
