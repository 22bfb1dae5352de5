//! Three replicas in one process, each with a database on the real file system: what a commit costs that a majority has, and how many share a
//! sync on each of them. At the end all three have the same rows.
//!
//! ```sh
//! cargo run --release -p fulgurite-replication --example three_replicas -- DIR [THREADS] [SECONDS]
//! strace -f -c -e trace=pwrite64,pwritev2,fdatasync cargo run ...
//! ```
//!
//! Committers wait until a majority has their commits. A thread for each follower sends it what the leader has numbered since, while the leader
//! writes that itself, and the follower appends, flushes and acknowledges it as a whole (Son, Yeom and Han, 2017, section 3.2, flush in groups
//! on every replica; there all replicas have to answer, here a majority). The same without replication is printed beside it.

use fulgurite::{Database, Options, Table};
use fulgurite_env::{Env, RealEnv};
use fulgurite_replication::{Cluster, ClusterId, Message, Network, NodeError, Replica};
use parking_lot::{Condvar, Mutex};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const VALUE: [u8; 100] = [7; 100];

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

/// The network between two nodes of this process.
#[derive(Default)]
struct Wire(Mutex<Vec<Message>>);

impl Network for Wire {
    fn send(&self, message: Message) {
        self.0.lock().push(message);
    }
}

/// Carries what the leader and a follower send each other, until all is sent: what is committed while the follower writes goes with the next message.
fn carry(leader: &Replica, follower: &Replica, wake: &Wake, is_over: &AtomicBool) -> Result<(), NodeError> {
    let (wire, mut seen) = (Wire::default(), 0);
    while !is_over.load(Ordering::Relaxed) {
        seen = wake.wait(seen);
        leader.node().flushed()?;
        leader.send(follower.number(), &wire)?;
        while let Some(message) = { wire.0.lock().pop() } {
            let to = if message.to() == leader.number() { leader } else { follower };
            to.receive(&message, &wire)?;
        }
    }
    Ok(())
}

/// Commits a second with so many threads, each to rows of its own.
fn measure(env: &Arc<dyn Env>, table: &Table, threads: usize, seconds: u64) -> u64 {
    let commits = AtomicU64::new(0);
    let end_ns = env.clock().monotonic_ns() + seconds * 1_000_000_000;
    std::thread::scope(|scope| {
        for thread in 0..threads as u32 {
            let commits = &commits;
            scope.spawn(move || {
                for n in 0_u32.. {
                    if env.clock().monotonic_ns() >= end_ns {
                        break;
                    }
                    let key = [thread.to_be_bytes(), n.to_be_bytes()].concat();
                    table.put(key, VALUE).expect("nothing fails");
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    commits.load(Ordering::Relaxed) / seconds
}

fn print_syncs(name: &str, database: &Database) {
    let (commits, syncs) = (database.visible_csn().0, database.log_stats().syncs);
    let shared = commits as f64 / syncs.max(1) as f64;
    println!("     {name}: {commits} commits, {syncs} syncs, {shared:.1} commits a sync");
}

fn replicated(env: &Arc<dyn Env>, home: &Path, threads: usize, seconds: u64) -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::new(ClusterId(env.random_u64().into()), [1, 2, 3]);
    let open = |number: u32| {
        let path = home.join(format!("replica-{number}"));
        Replica::create(Arc::clone(env), path, Options::default(), &cluster, number)
    };
    let replicas = [open(1)?, open(2)?, open(3)?];
    let fenced = replicas.iter().map(|replica| replica.fence(1, Some(1))).collect::<Result<Vec<_>, _>>()?;
    let wake = Arc::new(Wake::default());
    let waker = Arc::clone(&wake);
    let (leader, database) = (&replicas[0], replicas[0].database());
    leader.node().log().set_entry_observer(Box::new(move |_| waker.wake()))?;
    leader.appoint(1, &fenced)?;
    leader.flush()?;
    let is_over = AtomicBool::new(false);
    let (rate, rows) = std::thread::scope(|scope| {
        for follower in &replicas[1..] {
            let (wake, is_over) = (&wake, &is_over);
            scope.spawn(move || carry(leader, follower, wake, is_over).expect("nothing fails"));
        }
        // Also if it fails: the threads end then.
        let measured = || -> Result<_, Box<dyn Error>> {
            // It takes commits once its first entry is agreed and applied.
            let table = loop {
                match database.table("rows") {
                    Err(fulgurite::Error::NotLeader { .. }) => env.clock().sleep(Duration::from_millis(1)),
                    table => break table?,
                }
            };
            let rate = measure(env, &table, threads, seconds);
            let newest = database.visible_csn();
            let mut rows = Vec::new();
            for replica in &replicas {
                replica.database().wait_applied(newest, Duration::from_secs(10))?;
                rows.push(replica.database().open_table("rows")?.range(..)?.count());
            }
            Ok((rate, rows))
        };
        let measured = measured();
        is_over.store(true, Ordering::Relaxed);
        measured
    })?;
    println!("{threads:>4} threads, three replicas: {rate:>8} commits a second that a majority has");
    for replica in &replicas {
        print_syncs(&format!("replica {}", replica.number()), &replica.database());
    }
    assert!(rows.iter().all(|count| *count == rows[0]), "the replicas differ: {rows:?} rows");
    println!("     {} rows on each", rows[0]);
    replicas.into_iter().try_for_each(Replica::close)?;
    Ok(())
}

fn alone(env: &Arc<dyn Env>, home: &Path, threads: usize, seconds: u64) -> Result<(), Box<dyn Error>> {
    let database = Database::open_with(Arc::clone(env), home.join("alone"), Options::default(), |_| {})?;
    let rate = measure(env, &database.table("rows")?, threads, seconds);
    println!("{threads:>4} threads, alone:          {rate:>8} commits a second");
    print_syncs("alone", &database);
    database.close()?;
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
