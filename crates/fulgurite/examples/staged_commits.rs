//! How long a commit of one row takes at each level, with a staging file or without.
//!
//! ```text
//! cargo run --release -p fulgurite --example staged_commits -- DIR none|staged|sync THREADS SECONDS [VALUE_BYTES [FILE [BUFFERS MIB]]]
//! ```
//!
//! FILE is on tmpfs or hugetlbfs (volatile), or on a file system in persistent memory. A million rows are loaded first. Each thread then
//! overwrites rows in no order, one after the other, and waits for the level each time.

use fulgurite::env::{Clock, Env, MemoryMedium, RealEnv};
use fulgurite::{Database, Durability, Options, StagingOptions, Table};
use std::error::Error;

const ROWS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, level, threads, seconds, rest @ ..] = &args[..] else {
        return Err("DIR none|staged|sync THREADS SECONDS [VALUE_BYTES [FILE [BUFFERS MIB]]]".into());
    };
    let durability = match level.as_str() {
        "none" => Durability::None,
        "staged" => Durability::Staged,
        _ => Durability::Sync,
    };
    let (threads, ns) = (threads.parse::<u64>()?, (seconds.parse::<f64>()? * 1e9) as u64);
    let value_bytes = rest.first().map_or(Ok(112), |bytes| bytes.parse::<usize>())?;
    let staging = rest.get(1).filter(|path| *path != "-").map(|path| {
        let medium =
            if path.starts_with("/dev/shm") { MemoryMedium::Volatile } else { MemoryMedium::Persistent };
        let mut staging = StagingOptions::new(path, medium);
        staging.buffers = rest.get(2).map_or(2, |count| count.parse().expect("a number of buffers"));
        let mib: u32 = rest.get(3).map_or(8, |mib| mib.parse().expect("MiB of a buffer"));
        staging.buffer_bytes = mib << 20;
        staging
    });
    let options = Options { durability, staging, memory_bytes: Some(2 << 30), ..Options::default() };
    let db = Database::open(dir, options)?;
    let table = db.table("rows")?;
    load(&db, &table, value_bytes)?;
    let before = db.stats();
    let env = RealEnv::new();
    let clock = env.clock();
    let start_ns = clock.monotonic_ns();
    let mut latencies = std::thread::scope(|scope| {
        let run = |thread| {
            let (table, value) = (&table, vec![7u8; value_bytes]);
            move || overwrite(table, clock, thread, start_ns + ns, &value)
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .collect::<Result<Vec<_>, _>>()
    })?
    .concat();
    let elapsed = (clock.monotonic_ns() - start_ns) as f64 / 1e9;
    latencies.sort_unstable();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize] as f64 / 1e3;
    let log = db.stats().log;
    println!(
        "{level:<7} {threads:>3} threads: {:>8.0} commits/s; p10 {:.2}, p50 {:.2}, p99 {:.2}, p99.9 {:.2}, longest {:.0} us; {} stagings, {} drains, {} waits for a \
         buffer, {} syncs",
        latencies.len() as f64 / elapsed,
        at(0.1),
        at(0.5),
        at(0.99),
        at(0.999),
        latencies[latencies.len() - 1] as f64 / 1e3,
        log.stagings - before.log.stagings,
        log.drains - before.log.drains,
        log.staging_waits - before.log.staging_waits,
        log.syncs - before.log.syncs,
    );
    db.close()?;
    Ok(())
}

/// Scatters consecutive numbers over all keys.
fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn load(db: &Database, table: &Table, value_bytes: usize) -> fulgurite::Result<()> {
    for batch in 0..ROWS / 1000 {
        let mut txn = db.begin();
        txn.set_durability(Durability::None)?;
        for n in batch * 1000..(batch + 1) * 1000 {
            txn.put(table, key(n), vec![0; value_bytes])?;
        }
        txn.commit()?;
    }
    db.checkpoint().map(|_| ())
}

fn overwrite(
    table: &Table,
    clock: &dyn Clock,
    thread: u64,
    end_ns: u64,
    value: &[u8],
) -> fulgurite::Result<Vec<u64>> {
    let mut latencies = Vec::with_capacity(1 << 22);
    let mut n = thread.wrapping_mul(0x1234_5678_9ABC);
    let mut now_ns = clock.monotonic_ns();
    while now_ns < end_ns {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        table.put(key((n >> 33) % ROWS), value)?;
        let then_ns = clock.monotonic_ns();
        latencies.push(then_ns - now_ns);
        now_ns = then_ns;
    }
    Ok(latencies)
}
