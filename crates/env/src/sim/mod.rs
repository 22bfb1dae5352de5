//! A machine that can be crashed: deterministic from a seed, in memory.
//!
//! **The disk** keeps the state that reads see and the durable state apart. A write is *in flight* during the call: any
//! subset of its sectors (512 bytes) may have been written. Then it is *complete*: reads see it, and a power cut leaves
//! each sector in its durable state or in any state that it had since. Then it is *durable*, when a sync that began
//! after its completion has returned. Lengths are treated like sectors. Of the changes of a directory a power cut
//! leaves, for each name, any prefix; a rename is one change of two names. An extension that survives without its data
//! reads as zeros.
//!
//! **The device's cache** is separate from the page cache. A complete direct write is in the device up to the shortest
//! length that the file may have after a crash; its bytes after that may be lost with the length. A crash of the
//! operating system takes nothing from the device; a power cut may, unless
//! [`power_safe_cache`](Faults::power_safe_cache) is set. Holes and zeros are not distinguished: a direct write to a
//! hole below the synced length counts as being in the device, though a real file system may not have recorded its
//! extent yet.
//!
//! A new file, renamed name or directory needs [`sync`](crate::Dir::sync) of its directory, but a directory exists
//! whenever something in it survived. Paths are absolute; a relative one starts at the root. An open directory, a lock
//! and an open file stay the same when [`SimEnv::move_dir_raw`] moves the directory.
//!
//! **Mapped files** keep, for each word, the value that threads see, the durable one, and those that it was seen to have between: when it
//! was stored as a word, when its line was written back, and now. A power cut leaves any of them, word by word. A store by address
//! that another one follows before its line is written back is not seen.
//!
//! **Time** advances by one microsecond with each disk operation, by what writes and syncs of a slow disk take ([`Faults::latency`]), by
//! [`SimEnv::advance`], and by sleeping, which does not block. **Threads** are real, so only a test with one thread is deterministic.
//!
//! ```
//! use std::path::Path;
//! use fulgurite_env::sim::{CrashKind, SimEnv};
//! use fulgurite_env::{Disk, Env, OpenOptions};
//!
//! # fn main() -> std::io::Result<()> {
//! let sim = SimEnv::new(1);
//! let file = sim.disk().open(Path::new("/log"), OpenOptions::CreateNew)?;
//! sim.disk().sync_dir(Path::new("/"))?;
//! file.write_at(b"durable", 0)?;
//! file.sync_data()?;
//! file.write_at(b"perhaps", 512)?;
//!
//! let image = sim.crash(CrashKind::PowerCut, 7);
//! assert_eq!(image.read_raw(Path::new("/log"))?[..7], *b"durable");
//! # Ok(())
//! # }
//! ```

mod clock;
mod content;
mod dir;
mod disk;
mod error;
mod fate;
mod faults;
mod file;
mod inode;
mod lock;
mod mapped;
mod medium;
mod memory;
mod names;
mod plan;
mod raw;
mod rng;
mod state;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::clock::SimClock;
use self::disk::SimDisk;
use self::medium::Medium;
use self::plan::{Plan, Settings};
use self::rng::Rng;
use self::state::{Shared, State};
use crate::{Clock, Disk, Env, Joiner};

pub use self::error::is_crashed;
pub use self::faults::Faults;
pub use self::plan::Loss;
pub(crate) use self::rng::mix;

/// How a machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// The process is killed: reads still see everything complete, which is as durable as before.
    Kill,
    /// The operating system crashes and the power stays: everything in the device survives, and any part of the data
    /// that was only in the page cache. All that survives is in the device, and as durable as before.
    OsCrash,
    /// The power fails: everything durable survives, and any part of the rest. All that survives is durable. If the
    /// device's cache is set to be power-safe, everything in the device counts as durable.
    PowerCut,
}

/// A simulated environment.
#[derive(Debug)]
pub struct SimEnv {
    shared: Arc<Shared>,
    disk: SimDisk,
}

impl SimEnv {
    /// An empty disk with unlimited space and no faults.
    pub fn new(seed: u64) -> Arc<SimEnv> {
        SimEnv::start(Medium::default(), Plan::new(Settings::default()), SimClock::default(), seed)
    }

    fn start(medium: Medium, plan: Plan, clock: SimClock, seed: u64) -> Arc<SimEnv> {
        let mut seeds = Rng::new(seed);
        let (rng, numbers) = (Rng::new(seeds.next()), Rng::new(seeds.next()));
        let state = Mutex::new(State::new(medium, plan, rng, numbers));
        let shared = Arc::new(Shared { state, clock });
        Arc::new(SimEnv { disk: SimDisk { shared: Arc::clone(&shared) }, shared })
    }

    /// The state that a restart would find if the machine stopped now: an environment of its own, without locks, open
    /// files and faults. The medium's settings and the time continue in it. This environment is not changed and may be
    /// crashed again with another seed.
    pub fn crash(&self, kind: CrashKind, seed: u64) -> Arc<SimEnv> {
        let state = self.shared.state.lock();
        let mut medium = state.medium.clone();
        let settings = state.plan.settings.clone();
        drop(state);
        let mut rng = Rng::new(mix(seed));
        medium.resolve_flights(&mut rng);
        match kind {
            CrashKind::Kill => medium.kill_memories(),
            CrashKind::OsCrash => medium = medium.os_crash(rng),
            CrashKind::PowerCut => medium = medium.power_cut(rng, settings.power_safe),
        }
        medium.restart();
        SimEnv::start(medium, Plan::new(settings), self.shared.clock.fork(), seed)
    }

    /// Plans faults and counts operations.
    pub fn faults(&self) -> Faults<'_> {
        Faults { shared: &self.shared }
    }

    /// Advances time.
    pub fn advance(&self, duration: Duration) {
        self.shared.clock.advance(duration);
    }

    /// Makes the wall clock jump, forwards or backwards; the monotonic clock is not affected.
    pub fn jump_wall_clock(&self, by_ms: i64) {
        self.shared.clock.jump_wall(by_ms);
    }
}

impl Env for SimEnv {
    fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    fn clock(&self) -> &dyn Clock {
        &self.shared.clock
    }

    fn random_u64(&self) -> u64 {
        self.shared.state.lock().numbers.next()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>> {
        crate::thread::spawn(name, body)
    }
}
