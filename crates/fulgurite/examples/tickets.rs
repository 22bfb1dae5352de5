//! Measures commits that are awaited through tickets: one thread, thousands in flight.
//!
//! ```text
//! cargo run --release -p fulgurite --example tickets -- DIR [ROUNDS] [FIGURE...]
//! ```
//! `DIR` is created on the disk to be measured and removed afterwards. The figures take turns, round after round, so
//! that a slow minute of the machine affects all of them. The medians are printed at the end: the rate, and the
//! processor time of the committing thread for each commit. `sync` waits for durability with 4,096 tickets in flight,
//! `scattered` does so with keys in no order, `none` commits at level `None` and does not wait for the disk, `collect`
//! fills transactions and drops them, `empty` begins and commits transactions that do nothing. Keys have 20 bytes,
//! values 100.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite::env::{Env, OpenOptions, RealEnv};
use fulgurite::{Database, Durability, Options, Table, Ticket};

const IN_FLIGHT: usize = 4096;
const EACH: u64 = 300_000;
const FIGURES: [(&str, Figure); 5] = [
    ("sync", Figure::Sync),
    ("scattered", Figure::Scattered),
    ("none", Figure::None),
    ("collect", Figure::Collect),
    ("empty", Figure::Empty),
];

#[derive(Clone, Copy)]
enum Figure {
    Sync,
    Scattered,
    None,
    Collect,
    Empty,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().filter(|dir| !dir.starts_with('-'));
    let dir = PathBuf::from(dir.ok_or("usage: tickets DIR [ROUNDS] [FIGURE...]")?);
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let wanted: Vec<String> = arguments.collect();
    let figures: Vec<_> = FIGURES
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|word| word == name))
        .collect();
    let env: Arc<dyn Env> = RealEnv::new();
    let mut rates = vec![Vec::new(); figures.len()];
    for round in 0..rounds {
        for (rates, (name, figure)) in rates.iter_mut().zip(&figures) {
            let path = dir.join("tickets");
            let _ = std::fs::remove_dir_all(&path);
            let db = Database::open(&path, Options::default())?;
            let table = db.table("t")?;
            let (start, idle, busy) = (env.clock().monotonic_ns(), cpu_times(&*env), thread_ns(&*env));
            run(&db, &table, *figure)?;
            let seconds = (env.clock().monotonic_ns() - start) as f64 / 1e9;
            let (rate, busy) = (EACH as f64 / seconds, (thread_ns(&*env) - busy) / EACH as f64);
            rates.push((rate, busy));
            let log = db.log_stats();
            println!(
                "{round} {name}: {rate:.0}/s, {busy:.0} ns of the thread, {:.0} commits a sync, {}",
                log.commits_per_sync(),
                idle_since(&*env, idle)
            );
            db.close()?;
        }
    }
    for (rates, (name, _)) in rates.iter_mut().zip(&figures) {
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rate = rates[rounds / 2].0;
        rates.sort_by(|a, b| a.1.total_cmp(&b.1));
        println!("{name}, medians: {rate:.0}/s, {:.0} ns of the thread", rates[rounds / 2].1);
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

fn run(db: &Database, table: &Table, figure: Figure) -> fulgurite::Result<()> {
    let value = [7u8; 100];
    let mut flying: VecDeque<Ticket> = VecDeque::with_capacity(IN_FLIGHT);
    for n in 0..EACH {
        let mut txn = db.begin();
        match figure {
            Figure::Empty => {
                txn.commit()?;
                continue;
            }
            Figure::None => txn.set_durability(Durability::None)?,
            Figure::Sync | Figure::Scattered | Figure::Collect => {}
        }
        txn.put(table, &key(n, matches!(figure, Figure::Scattered)), &value)?;
        if matches!(figure, Figure::Collect) {
            continue;
        }
        flying.push_back(txn.commit_deferred()?);
        if flying.len() == IN_FLIGHT {
            reap(&mut flying)?;
        }
    }
    flying.into_iter().try_for_each(|ticket| ticket.wait().map(drop))
}

/// Waits for the oldest ticket and takes out all that are complete.
fn reap(flying: &mut VecDeque<Ticket>) -> fulgurite::Result<()> {
    flying.pop_front().expect("a ticket is in flight").wait()?;
    while let Some(outcome) = flying.front().and_then(Ticket::try_wait) {
        outcome?;
        flying.pop_front();
    }
    Ok(())
}

/// Twenty digits, ascending or not.
fn key(n: u64, scattered: bool) -> [u8; 20] {
    let mut key = *b"00000000000000000000";
    let mut rest = if scattered { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { n };
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// How many nanoseconds this thread has run; 0 where the system does not report it.
fn thread_ns(env: &dyn Env) -> f64 {
    let read = || -> Option<f64> {
        let file = env.disk().open(Path::new("/proc/thread-self/schedstat"), OpenOptions::Read).ok()?;
        let mut bytes = [0; 64];
        let len = file.read_at(&mut bytes, 0).ok()?;
        std::str::from_utf8(&bytes[..len]).ok()?.split_whitespace().next()?.parse().ok()
    };
    read().unwrap_or_default()
}

/// Idle and total jiffies of all cores.
fn cpu_times(env: &dyn Env) -> Option<(u64, u64)> {
    let file = env.disk().open(Path::new("/proc/stat"), OpenOptions::Read).ok()?;
    let mut bytes = vec![0; 256];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
    let fields: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    Some((*fields.get(3)?, fields.iter().sum()))
}

fn idle_since(env: &dyn Env, before: Option<(u64, u64)>) -> String {
    match (before, cpu_times(env)) {
        (Some(before), Some(after)) if after.1 > before.1 => {
            format!("CPU idle {} %", 100 * (after.0 - before.0) / (after.1 - before.1))
        }
        _ => "CPU idle n/a".to_string(),
    }
}
