//! What this process has allocated, now and at most, and the databases of the scenarios.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fulgurite::{Database, Durability, MemoryStats, Options};

pub const MIB: usize = 1 << 20;

/// The least budget with the shortest log buffer.
pub const FLOOR: usize = 18 * MIB;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn count(bytes: usize) {
    PEAK.fetch_max(ALLOCATED.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: it passes every call to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The only scenario that runs. All that the process has allocated is its own.
pub struct Scenario {
    _turn: MutexGuard<'static, ()>,
    /// How many bytes were allocated before: one that failed leaves some, above all for its backtrace.
    before: usize,
}

impl Scenario {
    /// Waits for the scenario before this one.
    pub fn begin() -> Scenario {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Scenario { _turn: turn, before: ALLOCATED.load(Relaxed) }
    }

    /// How many bytes are allocated.
    pub fn allocated(&self) -> usize {
        ALLOCATED.load(Relaxed).saturating_sub(self.before)
    }

    /// Does `work`, in which at most `allowed` bytes may be allocated at any time, those from before it included.
    pub fn step<T>(&self, what: &str, db: &Database, allowed: usize, work: impl FnOnce() -> T) -> T {
        PEAK.store(ALLOCATED.load(Relaxed), Relaxed);
        let clock = fulgurite::env::RealEnv::new();
        let now_ns = || fulgurite::env::Env::clock(&*clock).monotonic_ns();
        let start_ns = now_ns();
        let (result, counted) = with_counted(db, work);
        let peak = PEAK.load(Relaxed).saturating_sub(self.before);
        let mib = |bytes: usize| bytes as f64 / MIB as f64;
        println!(
            "{what}: {:.1} MiB allocated at most, {:.1} counted, allowed {:.1}; {} ms",
            mib(peak),
            mib(counted.total_bytes() as usize),
            mib(allowed),
            (now_ns() - start_ns) / 1_000_000
        );
        assert!(
            peak <= allowed,
            "{what}: {peak} bytes were allocated; {counted:?}, now {:?}",
            db.stats().memory
        );
        result
    }
}

/// Does `work`; returns what `stats()` counted when that was most, too.
fn with_counted<T>(db: &Database, work: impl FnOnce() -> T) -> (T, MemoryStats) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = MemoryStats::default();
            while !done.load(Relaxed) {
                let memory = db.stats().memory;
                if memory.total_bytes() > most.total_bytes() {
                    most = memory;
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            most
        });
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let ends = Done(&done);
        let result = work();
        drop(ends);
        (result, watcher.join().unwrap())
    })
}

/// The shortest log buffer, the least budget.
pub fn options() -> Options {
    Options {
        memory_bytes: Some(FLOOR),
        log_buffer_bytes: MIB,
        durability: Durability::None,
        ..Options::default()
    }
}

pub fn open(dir: &Path) -> Database {
    Database::open(dir.join("db"), options()).unwrap()
}

/// Whether the full sizes are run.
pub fn is_full() -> bool {
    crate::common::setting("FULGURITE_FLOOR_FULL").is_some_and(|value| value != 0)
}

pub fn scaled<T>(usual: T, full: T) -> T {
    if is_full() { full } else { usual }
}

/// Waits, half a minute at most.
pub fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    (0..3_000).any(|_| is_so() || (std::thread::park_timeout(Duration::from_millis(10)), false).1)
}

/// Nothing that is wrong is found.
pub fn is_sound(db: &Database) {
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
    assert!(db.stats().maintenance_error.is_none(), "{:?}", db.stats().maintenance_error);
}

/// Numbers below `end`, the same in each run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// Bytes that differ for each number and round.
pub fn value(n: u64, round: u64, len: usize) -> Vec<u8> {
    let seed = (n << 8 | round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    seed.to_le_bytes().iter().copied().cycle().take(len).collect()
}

/// Scatters consecutive numbers over all keys.
pub fn scattered(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}
