//! Measures how long `commit_deferred` takes its caller, and how long a durable put takes, by the length of its value.
//!
//! ```text
//! cargo run --release -p fulgurite --example deferred -- DIR [SECONDS [MIB...]]
//! ```
//!
//! One thread commits values of 200 bytes, then of 200 KiB, and polls its tickets now and then, so that at most 1,000
//! (of the large values 32) are open. Then one thread puts single values and waits for each. Then two threads put
//! values of 100 bytes and wait for each, while another commits transactions of many MiB deferred. With MIB arguments,
//! only this last measurement runs, with so many MiB.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fulgurite::{Database, Error, Options};

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn now() -> Instant {
    Instant::now()
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{what:<38} n {:>8}  p50 {:>8.4} ms  p99 {:>8.4} ms  p99.9 {:>8.4} ms  worst {:>8.3} ms",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

/// Commits values of `bytes` without waiting; how long each call took.
fn deferred(
    db: &Database,
    bytes: usize,
    open_max: usize,
    for_at_most: Duration,
) -> Result<Vec<Duration>, Error> {
    let table = db.table("deferred")?;
    let value = vec![7u8; bytes];
    let (mut open, mut times) = (VecDeque::new(), Vec::new());
    let end = now() + for_at_most;
    for n in 0u64.. {
        let mut txn = db.begin();
        // A working set of 64 MiB, in an order that scatters.
        let key = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % ((64 << 20) / bytes as u64)).to_be_bytes();
        txn.put(&table, &key, &value)?;
        let start = now();
        let ticket = txn.commit_deferred()?;
        let stop = now();
        times.push(stop - start);
        open.push_back(ticket);
        if open.len() >= open_max
            && let Some(oldest) = open.pop_front()
        {
            oldest.wait()?;
        }
        if stop >= end {
            break;
        }
    }
    open.iter().try_for_each(|ticket| ticket.wait().map(drop))?;
    Ok(times)
}

/// Puts values of `bytes`, each durable before the next.
fn puts(db: &Database, bytes: usize, for_at_most: Duration) -> Result<Vec<Duration>, Error> {
    let table = db.table("puts")?;
    let value = vec![7u8; bytes];
    let mut times = Vec::new();
    let end = now() + for_at_most;
    for n in 0u64.. {
        let start = now();
        table.put(&(n % 256).to_be_bytes(), &value)?;
        let stop = now();
        times.push(stop - start);
        if stop >= end {
            break;
        }
    }
    Ok(times)
}

/// Puts values of 100 bytes on two threads, each durable before the next, while another thread commits transactions of
/// `mib` values of 1 MiB deferred, one after the other: how long the puts took, and the transactions with their values.
fn puts_beside(
    db: &Database,
    mib: u64,
    for_at_most: Duration,
) -> Result<(Vec<Duration>, Vec<Duration>), Error> {
    let (table, large) = (db.table("small")?, db.table("large")?);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let small = |thread: u64| {
            let (table, is_over) = (&table, &is_over);
            move || {
                let mut times = Vec::new();
                for n in 0u64.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let start = now();
                    table.put([thread.to_be_bytes(), (n % 10_000).to_be_bytes()].concat(), [7; 100])?;
                    times.push(now() - start);
                }
                Ok::<_, Error>(times)
            }
        };
        let threads = [scope.spawn(small(0)), scope.spawn(small(1))];
        let value = vec![7u8; 1 << 20];
        let end = now() + for_at_most;
        let mut transactions = Vec::new();
        let outcome = (|| {
            while now() < end {
                if mib == 0 {
                    std::thread::park_timeout(for_at_most);
                    continue;
                }
                let start = now();
                let mut txn = db.begin();
                for n in 0..mib {
                    txn.put(&large, n.to_be_bytes(), &value)?;
                }
                txn.commit_deferred()?.wait()?;
                transactions.push(now() - start);
            }
            Ok(())
        })();
        is_over.store(true, Ordering::Relaxed);
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().expect("no panic")?);
        }
        outcome.map(|()| (times, transactions))
    })
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("DIR [SECONDS [MIB...]]");
    let time = Duration::from_secs_f64(args.next().map_or(2.0, |seconds| seconds.parse().expect("SECONDS")));
    let mut transactions: Vec<u64> = args.map(|mib| mib.parse().expect("MIB")).collect();
    let db = Database::open(&dir, Options::default())?;
    if transactions.is_empty() {
        transactions = vec![0, 4, 64, 256];
        report("commit_deferred, 200 bytes", deferred(&db, 200, 1000, time)?);
        report("commit_deferred, 200 KiB", deferred(&db, 200 << 10, 32, time)?);
        for kib in [1, 32, 48, 64, 96, 128, 160, 192, 224, 256] {
            report(&format!("put, {kib} KiB"), puts(&db, kib << 10, time / 4)?);
        }
    }
    for mib in transactions {
        let (puts, transactions) = puts_beside(&db, mib, time)?;
        report(&format!("put, 100 bytes, beside {mib} MiB deferred"), puts);
        if mib > 0 {
            report(&format!("transactions of {mib} MiB"), transactions);
        }
    }
    db.close()
}
