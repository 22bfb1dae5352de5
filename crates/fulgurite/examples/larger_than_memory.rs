//! A database ten times larger than its memory budget: what the process takes each second, while rows or values are loaded,
//! read, overwritten, and scanned.
//!
//! ```text
//! cargo run --release -p fulgurite --example larger_than_memory -- DIR rows|pages|values GIB BUDGET_MIB SECONDS PHASE...
//! ```
//! `rows` are 16-byte keys with values of 100 bytes, uniform; `pages` have 4 KiB, `values` 100 bytes to 64 KiB, evenly on a logarithmic scale, and
//! are read and overwritten with a zipfian distribution (0.99). The phases are `load`, `read`, `overwrite`, `beside` (both, beside
//! a scan of everything, again and again), and `open`, which opens and closes. For each it prints a row of a table; resident
//! memory is that without files. `scripts/larger_than_memory.sh` runs it in a control group, and kills it.

#[path = "support/data.rs"]
mod data;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fulgurite::env::{Env, OpenOptions, RealEnv, limit_arenas};
use fulgurite::{Database, Options, Table};

use self::data::{Data, Kind, Random, key};

/// What a process may take beside a tenth more than the budget.
const BASE_BYTES: u64 = 64 << 20;
const BATCH: u64 = 200;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    limit_arenas();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, kind, gib, budget_mib, seconds, phases @ ..] = &arguments[..] else {
        return Err("usage: larger_than_memory DIR rows|pages|values GIB BUDGET_MIB SECONDS PHASE...".into());
    };
    let (kind, is_zipfian) = match &**kind {
        "rows" => (Kind::Rows, false),
        "pages" => (Kind::Pages, true),
        "values" => (Kind::Mixed, true),
        _ => return Err(format!("there is no kind {kind}").into()),
    };
    let bytes = (gib.parse::<f64>()? * f64::from(1 << 30)) as u64;
    let run = Run {
        env: RealEnv::new(),
        dir: PathBuf::from(dir),
        budget: budget_mib.parse::<usize>()? << 20,
        seconds: seconds.parse()?,
        data: Data::new(kind, bytes, is_zipfian),
    };
    println!(
        "| phase | operations | per second | at most resident, MiB | of it counted, and with freed | seconds above | nodes, values evicted | \
         waits | value hits | open, ms | close, ms |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
    phases.iter().try_for_each(|phase| run.phase(phase))
}

struct Run {
    env: Arc<dyn Env>,
    dir: PathBuf,
    budget: usize,
    seconds: u64,
    data: Data,
}

/// The most that was seen in a phase.
#[derive(Default)]
struct Seen {
    resident: u64,
    counted: u64,
    freed: u64,
    seconds_above: u64,
}

impl Run {
    fn phase(&self, phase: &str) -> Result<()> {
        let options = Options { memory_bytes: Some(self.budget), ..Options::default() };
        let start_ns = self.env.clock().monotonic_ns();
        let db = Database::open(&self.dir, options)?;
        let open_ns = self.env.clock().monotonic_ns() - start_ns;
        let table = db.table("t")?;
        let (done, operations) = (AtomicBool::new(false), AtomicU64::new(0));
        let before = db.stats().memory;
        let start_ns = self.env.clock().monotonic_ns();
        let is_over = || self.env.clock().monotonic_ns() - start_ns > self.seconds * 1_000_000_000;
        let (ended, seen) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| self.watch(&db, &done));
            let ended = self.work(phase, &db, &table, &operations, &is_over).and_then(|()| {
                let seconds = (self.env.clock().monotonic_ns() - start_ns) as f64 / 1e9;
                let memory = db.stats().memory;
                let start_ns = self.env.clock().monotonic_ns();
                db.clone().close()?;
                Ok((seconds, memory, (self.env.clock().monotonic_ns() - start_ns) / 1_000_000))
            });
            done.store(true, Relaxed);
            watcher.thread().unpark();
            (ended, watcher.join().expect("the watcher panicked"))
        });
        let (seconds, memory, close_ms) = ended?;
        let evicted =
            memory.evicted_nodes + memory.evicted_values - before.evicted_nodes - before.evicted_values;
        let operations = operations.load(Relaxed);
        let hits = memory.value_hits - before.value_hits;
        let looks = hits + memory.value_misses - before.value_misses;
        println!(
            "| {phase} | {operations} | {:.0} | {} | {:.2}, {:.2} | {} of {seconds:.0} | {evicted} | {} | {:.3} | {} | {close_ms} |",
            operations as f64 / seconds,
            seen.resident >> 20,
            seen.counted as f64 / seen.resident.max(1) as f64,
            (seen.counted + seen.freed) as f64 / seen.resident.max(1) as f64,
            seen.seconds_above,
            memory.waits.count() - before.waits.count(),
            hits as f64 / looks.max(1) as f64,
            open_ns / 1_000_000,
        );
        Ok(())
    }

    fn work(
        &self,
        phase: &str,
        db: &Database,
        table: &Table,
        operations: &AtomicU64,
        is_over: &(dyn Fn() -> bool + Sync),
    ) -> Result<()> {
        match phase {
            "load" => self.load(db, table, operations),
            "read" => self.read(table, operations, is_over),
            "overwrite" => self.overwrite(db, table, operations, is_over),
            "beside" => std::thread::scope(|scope| {
                let reader = scope.spawn(|| self.read(table, operations, is_over));
                let scanner = scope.spawn(|| scan(table, is_over));
                self.overwrite(db, table, operations, is_over)?;
                reader.join().expect("the reader panicked")?;
                scanner.join().expect("the scan panicked")
            }),
            "open" => Ok(()),
            _ => Err(format!("there is no phase {phase}").into()),
        }
    }

    /// Looks at resident memory four times a second, over the close, too.
    fn watch(&self, db: &Database, done: &AtomicBool) -> Seen {
        let mut seen = Seen::default();
        let allowed = self.budget as u64 / 10 * 11 + BASE_BYTES;
        let mut above = 0;
        while !done.load(Relaxed) {
            let (resident, memory) = (resident_bytes(&*self.env), db.stats().memory);
            above += u64::from(resident > allowed);
            if resident > seen.resident {
                seen.resident = resident;
                (seen.counted, seen.freed) = (memory.total_bytes(), memory.freed_bytes);
            }
            std::thread::park_timeout(Duration::from_millis(250));
        }
        seen.seconds_above = above.div_ceil(4);
        seen
    }

    fn load(&self, db: &Database, table: &Table, operations: &AtomicU64) -> Result<()> {
        let mut value = Vec::new();
        for first in (0..self.data.count).step_by(BATCH as usize) {
            let last = (first + BATCH).min(self.data.count);
            let mut txn = db.begin();
            txn.set_durability(fulgurite::Durability::Async { interval: Duration::from_millis(100) })?;
            for n in first..last {
                self.data.value(n, 0, &mut value);
                txn.put(table, key(n), &value)?;
            }
            txn.commit()?;
            operations.fetch_add(last - first, Relaxed);
        }
        Ok(())
    }

    fn read(&self, table: &Table, operations: &AtomicU64, is_over: &dyn Fn() -> bool) -> Result<()> {
        let mut random = Random(1);
        while !is_over() {
            for _ in 0..10 {
                let n = self.data.pick(&mut random);
                let value = table.get(key(n))?.ok_or("a row is missing")?;
                if value[..8] != n.to_le_bytes() {
                    return Err(format!("row {n} has another one's value").into());
                }
            }
            operations.fetch_add(10, Relaxed);
        }
        Ok(())
    }

    fn overwrite(
        &self,
        db: &Database,
        table: &Table,
        operations: &AtomicU64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (mut random, mut value, mut round) = (Random(2), Vec::new(), 1);
        while !is_over() {
            let mut txn = db.begin();
            for _ in 0..BATCH {
                let n = self.data.pick(&mut random);
                self.data.value(n, round, &mut value);
                txn.put(table, key(n), &value)?;
            }
            txn.commit()?;
            round += 1;
            operations.fetch_add(BATCH, Relaxed);
        }
        Ok(())
    }
}

fn scan(table: &Table, is_over: &dyn Fn() -> bool) -> Result<()> {
    while !is_over() {
        let mut range = table.range(..)?;
        while !is_over() && range.next_entry()?.is_some() {}
    }
    Ok(())
}

/// The resident bytes of this process that are not of files.
fn resident_bytes(env: &dyn Env) -> u64 {
    let read = || -> Option<u64> {
        let file = env.disk().open("/proc/self/statm".as_ref(), OpenOptions::Read).ok()?;
        let mut text = [0; 128];
        let len = file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..len]).ok()?;
        let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        Some((fields.get(1)? - fields.get(2)?) * 4096)
    };
    read().expect("Linux has /proc/self/statm")
}
