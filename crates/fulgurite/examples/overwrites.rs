//! A database under steady overwrites: each second its size on disk, its live bytes, what the device wrote, and how long commits took.
//!
//! ```text
//! cargo run --release -p fulgurite --example overwrites -- DIR rows|pages|values uniform|zipf GIB BUDGET_MIB SECONDS [OPTION...]
//! ```
//! `rows` are 16-byte keys with values of 100 bytes, `pages` have 4 KiB, `values` 100 bytes to 64 KiB, evenly on a logarithmic scale.
//! One thread overwrites them, 100 in a durable commit, as fast as it can, or so many rows a second with `rate=N`. Other options:
//! `limit=MIB` bounds what checkpoints write a second, `off` switches garbage collection off, `snapshot` holds one over the first
//! half, beside a scan of ten rows a second, `tables=N` spreads the rows over so many tables, `neighbour` has another thread write and sync a
//! file beside the database as fast as it can, `csv=FILE` writes a line for each second, `bound` fails if the disk was outside of
//! its bound.
//!
//! The table at the end is about the second half. *Disk* is every file of the database. *Bound* is the disk for 1.3 times the live
//! bytes and twice the log's share: in the middle of all seconds, and for 1.5 times in the worst one. *Device* is what the kernel counts as
//! written by the process, for a byte of the rows'; *log*, *nodes*, *moved* are parts of it.

#[path = "support/data.rs"]
mod data;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fulgurite::env::{Clock, Env, OpenOptions, RealEnv, limit_arenas};
use fulgurite::{Database, Durability, Options, ResearchOptions, Stats, Table, Waits};

use self::data::{Data, Kind, Random, key};

const BATCH: u64 = 100;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    limit_arenas();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, kind, distribution, gib, budget_mib, seconds, options @ ..] = &arguments[..] else {
        return Err(
            "usage: overwrites DIR rows|pages|values uniform|zipf GIB BUDGET_MIB SECONDS [OPTION...]".into(),
        );
    };
    let kind = match &**kind {
        "rows" => Kind::Rows,
        "pages" => Kind::Pages,
        "values" => Kind::Mixed,
        _ => return Err(format!("there is no kind {kind}").into()),
    };
    let bytes = (gib.parse::<f64>()? * f64::from(1 << 30)) as u64;
    let mut run = Run {
        env: RealEnv::new(),
        dir: PathBuf::from(dir),
        data: Data::new(kind, bytes, distribution == "zipf"),
        seconds: seconds.parse()?,
        rate: None,
        has_snapshot: false,
        tables: 1,
        has_neighbour: false,
        csv: None,
        has_to_be_bounded: false,
    };
    let (mut research, mut limit) = (ResearchOptions::default(), None);
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("rate", rate) => run.rate = Some(rate.parse()?),
            ("limit", mib) => limit = Some(mib.parse::<u64>()? << 20),
            ("off", _) => research.collect = false,
            ("snapshot", _) => run.has_snapshot = true,
            ("tables", count) => run.tables = count.parse::<u64>()?.max(1),
            ("neighbour", _) => run.has_neighbour = true,
            ("csv", path) => run.csv = Some(path.into()),
            ("bound", _) => run.has_to_be_bounded = true,
            _ => return Err(format!("there is no option {option}").into()),
        }
    }
    let memory_bytes = Some(budget_mib.parse::<usize>()? << 20);
    run.run(Options { memory_bytes, research, checkpoint_bytes_per_second: limit, ..Options::default() })
}

struct Run {
    env: Arc<dyn Env>,
    dir: PathBuf,
    data: Data,
    seconds: u64,
    /// Rows a second.
    rate: Option<u64>,
    has_snapshot: bool,
    tables: u64,
    has_neighbour: bool,
    csv: Option<PathBuf>,
    has_to_be_bounded: bool,
}

/// A second.
struct Second {
    disk: u64,
    live: u64,
    rows: u64,
    /// Bytes of keys and values.
    user: u64,
    device: u64,
    stats: Stats,
    latencies_ns: Vec<u64>,
}

/// Counts of overwrites.
#[derive(Default)]
struct Overwritten {
    rows: AtomicU64,
    latencies_ns: parking_lot::Mutex<Vec<u64>>,
}

impl Run {
    fn run(&self, options: Options) -> Result<()> {
        // As the database bounds it by its budget.
        let share = options.checkpoint_log_bytes.min(options.memory_bytes.unwrap_or(0) as u64 / 4);
        let db = Database::open(&self.dir, options)?;
        let tables: Vec<Table> =
            (0..self.tables).map(|n| db.table(&format!("t{n}"))).collect::<fulgurite::Result<_>>()?;
        self.load(&db, &tables)?;
        db.checkpoint()?;
        let (overwritten, done) = (Overwritten::default(), AtomicBool::new(false));
        let seconds = std::thread::scope(|scope| {
            let writer = scope.spawn(|| self.overwrite(&db, &tables, &overwritten, &done));
            let neighbour = scope.spawn(|| self.write_beside(&done));
            let watched = self.watch(&db, &tables[0], &overwritten);
            done.store(true, Relaxed);
            writer.join().expect("the writer panicked")?;
            neighbour.join().expect("the neighbour panicked")?;
            watched
        })?;
        self.report(&seconds, share)?;
        let start_ns = self.clock().monotonic_ns();
        db.close()?;
        println!("closed in {} ms", (self.clock().monotonic_ns() - start_ns) / 1_000_000);
        Ok(())
    }

    fn clock(&self) -> &dyn Clock {
        self.env.clock()
    }

    /// The table of a row.
    fn table_of<'t>(&self, tables: &'t [Table], n: u64) -> &'t Table {
        &tables[(n % self.tables) as usize]
    }

    /// Writes and syncs a file of 64 MiB beside the database, again and again.
    fn write_beside(&self, done: &AtomicBool) -> Result<()> {
        if !self.has_neighbour {
            return Ok(());
        }
        let path = self.dir.with_extension("neighbour");
        let file = self.env.disk().open(&path, OpenOptions::CreateNew)?;
        let piece = vec![1; 1 << 20];
        for nth in (0..64).cycle() {
            if done.load(Relaxed) {
                break;
            }
            file.write_at(&piece, nth << 20)?;
            file.sync_data()?;
        }
        Ok(self.env.disk().remove(&path)?)
    }

    fn load(&self, db: &Database, tables: &[Table]) -> Result<()> {
        let mut value = Vec::new();
        for first in (0..self.data.count).step_by(BATCH as usize) {
            let mut txn = db.begin();
            txn.set_durability(Durability::Async { interval: Duration::from_millis(100) })?;
            for n in first..(first + BATCH).min(self.data.count) {
                self.data.value(n, 0, &mut value);
                txn.put(self.table_of(tables, n), key(n), &value)?;
            }
            txn.commit()?;
        }
        Ok(())
    }

    fn overwrite(
        &self,
        db: &Database,
        tables: &[Table],
        overwritten: &Overwritten,
        done: &AtomicBool,
    ) -> Result<()> {
        let (mut random, mut value, mut round) = (Random(2), Vec::new(), 1);
        let begun_ns = self.clock().monotonic_ns();
        while !done.load(Relaxed) {
            let mut start_ns = self.clock().monotonic_ns();
            if let Some(rate) = self.rate {
                // A commit that is late counts from when it was due.
                let due_ns = begun_ns + (round - 1) * BATCH * 1_000_000_000 / rate;
                self.clock().sleep(Duration::from_nanos(due_ns.saturating_sub(start_ns)));
                start_ns = due_ns;
            }
            let mut txn = db.begin();
            for _ in 0..BATCH {
                let n = self.data.pick(&mut random);
                self.data.value(n, round, &mut value);
                txn.put(self.table_of(tables, n), key(n), &value)?;
            }
            txn.commit()?;
            overwritten.latencies_ns.lock().push(self.clock().monotonic_ns() - start_ns);
            overwritten.rows.fetch_add(BATCH, Relaxed);
            round += 1;
        }
        Ok(())
    }

    /// Looks at everything once a second.
    fn watch(&self, db: &Database, table: &Table, overwritten: &Overwritten) -> Result<Vec<Second>> {
        let begun_ns = self.clock().monotonic_ns();
        let mut snapshot = self.has_snapshot.then(|| db.snapshot());
        let mut seconds = Vec::new();
        for second in 0..=self.seconds {
            let due_ns = begun_ns + second * 1_000_000_000;
            self.clock().sleep(Duration::from_nanos(due_ns.saturating_sub(self.clock().monotonic_ns())));
            if second > self.seconds / 2 {
                snapshot = None;
            }
            if let Some(snapshot) = &snapshot {
                let first = key(second * 7919 % self.data.count);
                for row in snapshot.range(table, &first[..]..)?.take(10) {
                    row?;
                }
            }
            let stats = db.stats();
            seconds.push(Second {
                disk: disk_bytes(&self.dir)?,
                live: stats.space.live_bytes(),
                rows: overwritten.rows.load(Relaxed),
                user: stats.user_bytes,
                device: self.device_bytes()?,
                stats,
                latencies_ns: std::mem::take(&mut overwritten.latencies_ns.lock()),
            });
        }
        Ok(seconds)
    }

    /// What this process has handed to block devices, as the kernel counts it.
    fn device_bytes(&self) -> Result<u64> {
        let file = self.env.disk().open("/proc/self/io".as_ref(), OpenOptions::Read)?;
        let mut text = [0; 512];
        let len = file.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..len])?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(line.ok_or("/proc/self/io has no write_bytes")?.trim().parse()?)
    }

    fn report(&self, seconds: &[Second], share: u64) -> Result<()> {
        let mut lines = String::from(
            "second,rows,user_bytes,disk_bytes,segment_bytes,live_bytes,moved_bytes,node_bytes,device_bytes,checkpoints,\
             p50_us,p99_us,longest_us\n",
        );
        for (second, pair) in seconds.windows(2).enumerate() {
            let [before, at] = pair else { unreachable!("windows of two") };
            let mut ns = at.latencies_ns.clone();
            ns.sort_unstable();
            let log = |of: fn(&Stats) -> u64| of(&at.stats) - of(&before.stats);
            writeln!(
                lines,
                "{second},{},{},{},{},{},{},{},{},{},{},{},{}",
                at.rows - before.rows,
                at.user - before.user,
                at.disk,
                at.stats.segment_bytes,
                at.live,
                log(|stats| stats.log.moved_value_bytes),
                log(|stats| stats.log.node_bytes),
                at.device - before.device,
                log(|stats| stats.checkpoints),
                percentile(&ns, 0.5) / 1000,
                percentile(&ns, 0.99) / 1000,
                ns.last().unwrap_or(&0) / 1000,
            )?;
        }
        if let Some(path) = &self.csv {
            let file = self.env.disk().open(path, OpenOptions::CreateNew)?;
            file.write_at(lines.as_bytes(), 0)?;
        }
        let half = &seconds[seconds.len() / 2..];
        let (first, last) = (&half[0], &half[half.len() - 1]);
        let took = (half.len() - 1) as f64;
        let mut ns: Vec<u64> =
            half[1..].iter().flat_map(|second| second.latencies_ns.iter().copied()).collect();
        ns.sort_unstable();
        let rows_bytes = self.data.count * self.data.kind.row_bytes();
        let sorted = |of: &dyn Fn(&Second) -> f64| {
            let mut all: Vec<f64> = half.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            (all[all.len() / 2], all[all.len() - 1])
        };
        let of_live = sorted(&|second| second.disk as f64 / second.live as f64);
        let of_rows = sorted(&|second| second.disk as f64 / rows_bytes as f64);
        let of_bound = |times: f64| {
            sorted(&|second| second.disk as f64 / (second.live as f64 * times + 2.0 * share as f64))
        };
        let (typical, worst) = (of_bound(1.3).0, of_bound(1.5).1);
        let user = (last.user - first.user) as f64;
        let written = |of: fn(&Stats) -> u64| (of(&last.stats) - of(&first.stats)) as f64 / user;
        println!(
            "| rows/s | MB/s | disk/live, typical, most | disk/rows | bound, 1.3, 1.5 | device | log | nodes | moved | checkpoints | \
             p50, p99, p99.9, longest, ms |\n|---|---|---|---|---|---|---|---|---|---|---|"
        );
        let ms = |share: f64| percentile(&ns, share) as f64 / 1e6;
        println!(
            "| {:.0} | {:.1} | {:.2}, {:.2} | {:.2}, {:.2} | {typical:.2}, {worst:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} | \
             {:.2}, {:.1}, {:.1}, {:.1} |",
            (last.rows - first.rows) as f64 / took,
            user / took / 1e6,
            of_live.0,
            of_live.1,
            of_rows.0,
            of_rows.1,
            (last.device - first.device) as f64 / user,
            written(|stats| stats.log.written_bytes + stats.log.chunk_bytes),
            written(|stats| stats.log.node_bytes),
            written(|stats| stats.log.moved_value_bytes),
            last.stats.checkpoints - first.stats.checkpoints,
            ms(0.5),
            ms(0.99),
            ms(0.999),
            ms(1.0),
        );
        let (before, after) = (first.stats.writes().by_cause(), last.stats.writes().by_cause());
        let causes = before.iter().zip(after);
        let causes: Vec<String> = causes
            .map(|((cause, before), (_, after))| {
                format!("{cause} {:.2}", (after as f64 - *before as f64) / user)
            })
            .collect();
        println!("bytes written for each of the rows', by cause: {}", causes.join(", "));
        let collection = &last.stats.collection;
        println!(
            "collected {} segments, {:.2} live, by tenths {:?}; moved {} MiB",
            collection.victims,
            collection.victim_live_bytes as f64 / collection.victim_bytes.max(1) as f64,
            collection.victims_by_tenths,
            collection.moved_bytes >> 20,
        );
        let Waits { merging, memtables, checkpoint, collection, space, .. } = last.stats.waits;
        println!(
            "commits waited for merging: {merging}; memtables: {memtables}; a checkpoint: {checkpoint}; collection: {collection}; \
             space: {space}"
        );
        for (reason, group) in &last.stats.space.uses {
            println!(
                "{reason:?}: {} segments, {} MiB, {} live",
                group.count,
                group.bytes >> 20,
                group.live_bytes >> 20
            );
        }
        if self.has_to_be_bounded && (typical > 1.0 || worst > 1.0) {
            return Err("the database took more of the disk than its bound".into());
        }
        Ok(())
    }
}

fn percentile(sorted: &[u64], share: f64) -> u64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}

/// The bytes that the files of a directory take, as `du` counts them.
#[expect(clippy::disallowed_methods, reason = "asks for blocks, as du does")]
fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes += disk_bytes(&entry.path())?,
            Ok(metadata) => bytes += metadata.blocks() * 512,
            // It was removed meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
