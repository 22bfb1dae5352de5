//! Loads that never pause. A child process loads until it is killed; the parent opens what it left, times the replay,
//! compares all rows, and fails if a promise was broken:
//! - the log that no checkpoint covers stays below twice its share (INV-CKPT-6);
//! - no small commit takes a second;
//! - replay takes a second for each 256 MiB of that log at most, and a second in any case;
//! - `stats()` takes a millisecond at most, not counting the time without a processor, or not longer than a bare thread
//!   that sleeps is late.
//!
//! `docs/testing.md` says how to run them. `FULGURITE_LONG_SECONDS` is the length of a load (20), `FULGURITE_LONG_ROWS`
//! the number of rows (6 million; 20 million take some 5 GiB of memory), `FULGURITE_LONG_DIR` where the databases are
//! made; `FULGURITE_LONG_TRACE` prints a line each second.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "processes that are killed, on a real disk, in real time"
)]

#[path = "long_loads/case.rs"]
mod case;
#[path = "long_loads/child.rs"]
mod child;
#[path = "long_loads/measure.rs"]
mod measure;
#[path = "long_loads/parent.rs"]
mod parent;

use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use case::{Case, LEVELS};
use parent::{Neighbour, number};

fn rows() -> u64 {
    number("FULGURITE_LONG_ROWS", 6_000_000)
}

/// Not a test: the process that loads.
#[test]
#[ignore = "is run by the others"]
fn child() {
    let Ok(line) = std::env::var(parent::CHILD) else { return };
    let [dir, report, case] = line.split('\n').collect::<Vec<_>>()[..] else { panic!("{line}") };
    child::run(&case.parse().unwrap(), Path::new(dir), Path::new(report));
}

#[test]
#[ignore = "takes long: docs/testing.md"]
fn one_thread_a_hundred_rows_a_durable_commit() {
    parent::run::<()>("plain", &Case::plain(rows()));
}

/// Runs the threads, levels and tables that the name says.
fn mixed(threads: u64, level: &str, tables: u64) {
    let level = LEVELS.iter().position(|(name, _)| *name == level).unwrap() as u64;
    // Single rows are the most commits; ten rows of a hundred tables write to ten.
    let batch = if tables == 1 { 1 } else { 10 };
    parent::run::<()>("mixed", &Case { threads, level, tables, batch, ..Case::plain(rows()) });
}

macro_rules! mixed {
    ($($name:ident: $threads:literal, $level:literal, $tables:literal;)*) => {
        $(
            #[test]
            #[ignore = "takes long: docs/testing.md"]
            fn $name() {
                mixed($threads, $level, $tables);
            }
        )*
    };
}

mixed! {
    mixed_sync_1_thread: 1, "sync", 1;
    mixed_sync_4_threads: 4, "sync", 1;
    mixed_sync_32_threads: 32, "sync", 1;
    mixed_sync_1_thread_100_tables: 1, "sync", 100;
    mixed_sync_4_threads_100_tables: 4, "sync", 100;
    mixed_sync_32_threads_100_tables: 32, "sync", 100;
    mixed_no_barrier_1_thread: 1, "no-barrier", 1;
    mixed_no_barrier_4_threads: 4, "no-barrier", 1;
    mixed_no_barrier_32_threads: 32, "no-barrier", 1;
    mixed_no_barrier_1_thread_100_tables: 1, "no-barrier", 100;
    mixed_no_barrier_4_threads_100_tables: 4, "no-barrier", 100;
    mixed_no_barrier_32_threads_100_tables: 32, "no-barrier", 100;
    mixed_async_1_thread: 1, "async", 1;
    mixed_async_4_threads: 4, "async", 1;
    mixed_async_32_threads: 32, "async", 1;
    mixed_async_1_thread_100_tables: 1, "async", 100;
    mixed_async_4_threads_100_tables: 4, "async", 100;
    mixed_async_32_threads_100_tables: 32, "async", 100;
    mixed_none_1_thread: 1, "none", 1;
    mixed_none_4_threads: 4, "none", 1;
    mixed_none_32_threads: 32, "none", 1;
    mixed_none_1_thread_100_tables: 1, "none", 100;
    mixed_none_4_threads_100_tables: 4, "none", 100;
    mixed_none_32_threads_100_tables: 32, "none", 100;
}

/// Writes and syncs as fast as it can.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour for Writer {
    fn start(dir: &Path) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let mut file = std::fs::File::create(dir.join("neighbour.bin")).unwrap();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let piece = vec![1; 1 << 20];
            for written in 1.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                file.write_all(&piece).unwrap();
                file.sync_data().unwrap();
                if written % 256 == 0 {
                    file.rewind().unwrap();
                }
            }
        });
        Writer { stop, thread: Some(thread) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
#[ignore = "takes long: docs/testing.md"]
fn beside_a_neighbour_that_writes_and_syncs() {
    parent::run::<Writer>("neighbour", &Case::plain(rows()));
}

#[test]
#[ignore = "takes long, and 8 GiB of memory: docs/testing.md"]
fn beside_transactions_of_a_gigabyte_and_values_of_512_mib() {
    parent::run::<()>("large", &Case { is_large: 1, ..Case::plain(rows() / 2) });
}

#[test]
#[ignore = "takes long: docs/testing.md"]
fn with_a_snapshot_each_second_that_is_held_for_a_minute() {
    parent::run::<()>("snapshots", &Case { snapshot_seconds: 60, ..Case::plain(rows()) });
}
