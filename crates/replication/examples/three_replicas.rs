//! Three nodes in one process, each with a log on the real file system: what a commit costs that a majority has, and how many share a sync on
//! each node.
//!
//! ```sh
//! cargo run --release -p fulgurite-replication --example three_replicas -- DIR [THREADS] [SECONDS]
//! strace -f -c -e trace=pwrite64,pwritev2,fdatasync cargo run ...
//! ```
//!
//! Committers wait until a majority has their commits. A thread for each follower sends it what the leader has numbered since, while the leader
//! writes that itself, and the follower appends, flushes and acknowledges it as a whole (Son, Yeom and Han, 2017, section 3.2, flush in groups
//! on every replica; there all replicas have to answer, here a majority). The same without replication is printed beside it.

use fulgurite_env::{Env, RealEnv};
use fulgurite_log::{CommitLog, Durability, Log, LogOptions, frame_bytes};
use fulgurite_replication::{Node, TermFile};
use fulgurite_types::{DatabaseId, crc32c};
use parking_lot::{Condvar, Mutex};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const ID: DatabaseId = DatabaseId(0x7265_706c_6963_6173);
const BODY: [u8; 128] = [7; 128];

/// Wakes the threads that send, when the leader has numbered or written something.
#[derive(Default)]
struct Wake {
    events: Mutex<u64>,
    changed: Condvar,
}

impl Wake {
    fn wake(&self) {
        *self.events.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits for an event after the `seen`-th, a millisecond at most.
    fn wait(&self, seen: u64) -> u64 {
        let mut events = self.events.lock();
        if *events == seen {
            self.changed.wait_for(&mut events, Duration::from_millis(1));
        }
        *events
    }
}

fn node(env: &Arc<dyn Env>, home: &Path, number: u32) -> Result<Arc<Node>, Box<dyn Error>> {
    let home = home.join(format!("node-{number}"));
    env.disk().create_dir_all(&home)?;
    let options = LogOptions { replicated: true, ..LogOptions::default() };
    let log = Log::create(Arc::clone(env), &home.join("log"), ID, options)?;
    let dir = env.disk().open_dir(&home)?;
    TermFile::create(&dir, ID, number)?;
    Ok(Arc::new(Node::new(number, log, TermFile::open(&dir, ID, number)?)?))
}

fn commit(log: &Log) -> Result<(), fulgurite_log::LogError> {
    let admission = log.admit(frame_bytes(BODY.len() as u32), 0)?;
    let reservation = log.reserve(admission, Durability::Sync);
    let (csn, header) = (reservation.csn(), reservation.header(1, crc32c(&BODY)));
    log.fill(reservation, &header, &BODY, &[]);
    log.wait_durable(csn)
}

/// Sends a follower what the leader has, until told to stop.
fn ship(
    leader: &Node,
    follower: &Node,
    wake: &Wake,
    is_over: &AtomicBool,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (mut seen, mut after) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        seen = wake.wait(seen);
        leader.flushed()?;
        while let Some(append) = leader.append_after(after)?.filter(|append| !append.entries.is_empty()) {
            let appended = follower.append(&append)?;
            after = appended.matched.index;
            leader.acknowledged(&appended)?;
        }
    }
    Ok(())
}

/// Commits a second with so many threads.
fn measure(env: &Arc<dyn Env>, log: &Log, threads: usize, seconds: u64, is_over: &AtomicBool) -> u64 {
    let commits = AtomicU64::new(0);
    let end_ns = env.clock().monotonic_ns() + seconds * 1_000_000_000;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while env.clock().monotonic_ns() < end_ns {
                    commit(log).expect("nothing fails");
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    is_over.store(true, Ordering::Relaxed);
    commits.load(Ordering::Relaxed) / seconds
}

fn replicated(env: &Arc<dyn Env>, home: &Path, threads: usize, seconds: u64) -> Result<(), Box<dyn Error>> {
    let nodes = [node(env, home, 1)?, node(env, home, 2)?, node(env, home, 3)?];
    let fenced = nodes.iter().map(|node| node.fence(1, Some(1))).collect::<Result<Vec<_>, _>>()?;
    let wake = Arc::new(Wake::default());
    let waker = Arc::clone(&wake);
    nodes[0].log().set_entry_observer(Box::new(move |_| waker.wake()))?;
    nodes[0].appoint(1, &[1, 2, 3], &fenced)?;
    let is_over = AtomicBool::new(false);
    let rate = std::thread::scope(|scope| {
        for follower in &nodes[1..] {
            let (leader, wake, is_over) = (&nodes[0], &wake, &is_over);
            scope.spawn(move || ship(leader, follower, wake, is_over).expect("nothing fails"));
        }
        measure(env, nodes[0].log(), threads, seconds, &is_over)
    });
    println!("{threads:>4} threads, three nodes: {rate:>8} commits a second that a majority has");
    for node in &nodes {
        let (stats, commits) = (node.log().stats(), node.log().reserved_csn().0);
        let shared = commits as f64 / stats.syncs.max(1) as f64;
        println!(
            "     node {}: {commits} commits, {} syncs, {shared:.1} commits a sync",
            node.number(),
            stats.syncs
        );
    }
    nodes.iter().try_for_each(|node| node.log().close())?;
    Ok(())
}

fn alone(env: &Arc<dyn Env>, home: &Path, threads: usize, seconds: u64) -> Result<(), Box<dyn Error>> {
    let log = Log::create(Arc::clone(env), &home.join("alone"), ID, LogOptions::default())?;
    let rate = measure(env, &log, threads, seconds, &AtomicBool::new(false));
    let shared = log.reserved_csn().0 as f64 / log.stats().syncs.max(1) as f64;
    println!("{threads:>4} threads, alone:       {rate:>8} commits a second, {shared:.1} commits a sync");
    log.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("which directory? three_replicas DIR [THREADS] [SECONDS]")?);
    let threads = args.next().map_or(Ok(8), |threads| threads.parse())?;
    let seconds = args.next().map_or(Ok(3), |seconds| seconds.parse())?;
    let env: Arc<dyn Env> = RealEnv::new();
    // A directory of its own, which is left behind.
    let home = dir.join(format!("three-replicas-{}", env.random_u64()));
    env.disk().create_dir_all(&home)?;
    alone(&env, &home, threads, seconds)?;
    replicated(&env, &home, threads, seconds)
}
