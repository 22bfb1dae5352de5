//! Measures the figures of `docs/performance.md`: loading, gets, scans, durable commits, reopening, replay.
//!
//! ```text
//! cargo run --release -p fulgurite --example figures -- DIR [ROWS.tsv.gz]
//! ```
//! `DIR` is created on the disk to be measured and removed afterwards. Without a file of rows it makes up 886,323.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite::env::{Env, OpenOptions, RealEnv};
use fulgurite::{Database, Options};

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("usage: figures DIR [ROWS.tsv.gz] [FIGURE...]")?);
    let env: Arc<dyn Env> = RealEnv::new();
    let rows = match arguments.next().filter(|path| path != "-") {
        Some(path) => read_rows(&*env, Path::new(&path))?,
        None => made_up_rows(),
    };
    let wanted: Vec<String> = arguments.collect();
    let wants = |figure: &str| wanted.is_empty() || wanted.iter().any(|name| name == figure);
    println!("rows: {}, mean {} bytes", rows.len(), mean_bytes(&rows));
    let bench = Bench { env, dir: dir.clone(), rows };
    if wants("load") || wants("get") || wants("scan") || wants("reopen") {
        bench.load_and_read()?;
    }
    if wants("commit") {
        bench.commits()?;
    }
    if wants("replay") {
        bench.replay()?;
    }
    Ok(())
}

struct Bench {
    env: Arc<dyn Env>,
    dir: PathBuf,
    rows: Rows,
}

impl Bench {
    fn seconds<T>(&self, work: impl FnOnce() -> T) -> (f64, T) {
        let start = self.env.clock().monotonic_ns();
        let value = work();
        ((self.env.clock().monotonic_ns() - start) as f64 / 1e9, value)
    }

    fn fresh(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        remove(&path);
        path
    }

    fn load_and_read(&self) -> Result<(), Box<dyn std::error::Error>> {
        let path = self.fresh("rows");
        for round in 0..3 {
            remove(&path);
            let idle = cpu_times(&*self.env);
            let (seconds, db) = self.seconds(|| -> fulgurite::Result<Database> {
                let db = Database::open(&path, Options::default())?;
                let table = db.table("packages")?;
                for batch in self.rows.chunks(1000) {
                    let mut txn = db.begin();
                    for (key, value) in batch {
                        txn.put(&table, key, value)?;
                    }
                    txn.commit()?;
                }
                Ok(db)
            });
            let db = db?;
            let rate = self.rows.len() as f64 / seconds;
            println!(
                "load {round}: {rate:.0} rows/s, durable, 1,000 a commit, {seconds:.2} s, {}",
                idle_since(&*self.env, idle)
            );
            db.close()?;
        }
        let (seconds, db) = self.seconds(|| Database::open(&path, Options::default()));
        println!("reopen after a clean close: {:.1} ms", seconds * 1e3);
        let db = db?;
        self.gets(&db)?;
        self.scans(&db)?;
        Ok(())
    }

    fn gets(&self, db: &Database) -> Result<(), Box<dyn std::error::Error>> {
        let table = db.open_table("packages")?;
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for index in (1..order.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(index, (state >> 33) as usize % (index + 1));
        }
        for round in 0..4 {
            let idle = cpu_times(&*self.env);
            let (seconds, result) = self.seconds(|| -> fulgurite::Result<u64> {
                let mut bytes = 0;
                for &index in &order {
                    let (key, _) = &self.rows[index as usize];
                    bytes += table.get(key)?.expect("every row is there").len() as u64;
                }
                Ok(bytes)
            });
            result?;
            let rate = order.len() as f64 / seconds;
            let state = if round == 0 { "cold" } else { "warm" };
            println!(
                "get {round} ({state}): {rate:.0}/s, one thread, random order, {}",
                idle_since(&*self.env, idle)
            );
        }
        Ok(())
    }

    fn scans(&self, db: &Database) -> Result<(), Box<dyn std::error::Error>> {
        let table = db.open_table("packages")?;
        for round in 0..4 {
            for reverse in [false, true] {
                let (seconds, result) = self.seconds(|| -> fulgurite::Result<(u64, u64)> {
                    let mut count = (0, 0);
                    let range = table.range(..)?;
                    let mut add = |entry: fulgurite::Result<(fulgurite::Value, fulgurite::Value)>| {
                        let (key, value) = entry?;
                        count = (count.0 + 1, count.1 + (key.len() + value.len()) as u64);
                        Ok::<_, fulgurite::Error>(())
                    };
                    if reverse {
                        range.rev().try_for_each(&mut add)?;
                    } else {
                        let mut range = range;
                        range.try_for_each(&mut add)?;
                    }
                    Ok(count)
                });
                let (rows, _) = result?;
                let direction = if reverse { "reverse" } else { "forward" };
                println!("scan {round} {direction}: {:.1} million rows/s", rows as f64 / seconds / 1e6);
            }
        }
        Ok(())
    }

    /// One-row durable commits beside the bare write and sync of the same size, in turns.
    fn commits(&self) -> Result<(), Box<dyn std::error::Error>> {
        const ROUNDS: usize = 7;
        const EACH: usize = 2000;
        let path = self.fresh("commits");
        let db = Database::open(&path, Options::default())?;
        let table = db.table("t")?;
        let bare_path = self.dir.join("bare");
        let bare = make_bare(&*self.env, &bare_path)?;
        let value = [7u8; 100];
        let (mut ratios, mut offset) = (Vec::new(), 0u64);
        for round in 0..ROUNDS {
            let idle = cpu_times(&*self.env);
            let (ours, result) = self.seconds(|| -> fulgurite::Result<()> {
                for n in 0..EACH {
                    table.put(format!("{round:04}-{n:015}").as_bytes(), &value)?;
                }
                Ok(())
            });
            result?;
            let (device, result) = self.seconds(|| -> std::io::Result<()> {
                for _ in 0..EACH {
                    bare.write_at(&[9u8; 240], offset % BARE_BYTES)?;
                    bare.sync_data()?;
                    offset += 240;
                }
                Ok(())
            });
            result?;
            let (ours, device) = (ours * 1e6 / EACH as f64, device * 1e6 / EACH as f64);
            ratios.push(ours / device);
            println!(
                "commit {round}: {ours:.1} us, bare write and sync {device:.1} us, ratio {:.3}, {}",
                ours / device,
                idle_since(&*self.env, idle)
            );
        }
        ratios.sort_by(f64::total_cmp);
        println!("commit, median ratio over the bare write and sync: {:.3}", ratios[ROUNDS / 2]);
        Ok(())
    }

    /// A log of 256 MiB of commits of one row, and how long it takes until the database serves again.
    fn replay(&self) -> Result<(), Box<dyn std::error::Error>> {
        let path = self.fresh("replay");
        let options = Options::default();
        // Without threads nothing is merged and no checkpoint is written: all of the log has to be replayed.
        let idle = Options { memtable_bytes_max: Some(4 << 30), background: false, ..Options::default() };
        let db = Database::open(&path, idle)?;
        let table = db.table("t")?;
        let value = [7u8; 88];
        let mut state = 1u64;
        let mut last = None;
        while db.log_stats().written_bytes < 256 << 20 {
            for _ in 0..4096 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let mut txn = db.begin();
                txn.put(&table, format!("{:020}", state).as_bytes(), &value)?;
                last = Some(txn.commit_deferred()?);
            }
            last.as_ref().expect("there was a commit").wait()?;
        }
        let commits = db.stats().visible.0;
        let bytes = db.log_stats().written_bytes;
        println!("replay: {commits} commits, {} bytes of log, {} a commit", bytes, bytes / commits);
        // Like a kill: no checkpoint, no close. The lock is released only with the process, so a copy is opened.
        let copy = self.fresh("replay-copy");
        copy_dir(&path, &copy);
        drop((table, last));
        db.close()?;
        for round in 0..3 {
            let again = self.fresh("replay-again");
            copy_dir(&copy, &again);
            let idle = cpu_times(&*self.env);
            let (seconds, db) = self.seconds(|| Database::open(&again, options.clone()));
            println!(
                "replay {round}: {:.0} ms until it serves, {:.2} million commits/s, {}",
                seconds * 1e3,
                commits as f64 / seconds / 1e6,
                idle_since(&*self.env, idle)
            );
            let db = db?;
            let stats = db.stats();
            assert_eq!((stats.visible.0, stats.checkpoint_covered.0), (commits, 0), "all of it was replayed");
            db.close()?;
        }
        Ok(())
    }
}

const BARE_BYTES: u64 = 16 << 20;

fn make_bare(env: &dyn Env, path: &Path) -> std::io::Result<Arc<dyn fulgurite::env::File>> {
    remove(path);
    let file = env.disk().open(path, OpenOptions::CreateNew)?;
    let zeros = vec![0; 1 << 20];
    for offset in (0..BARE_BYTES + (1 << 20)).step_by(1 << 20) {
        file.write_at(&zeros, offset)?;
    }
    file.sync_data()?;
    env.disk().sync_dir(path.parent().expect("the path has a directory"))?;
    Ok(file)
}

fn mean_bytes(rows: &Rows) -> usize {
    rows.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() / rows.len().max(1)
}

fn read_rows(env: &dyn Env, path: &Path) -> Result<Rows, Box<dyn std::error::Error>> {
    let file = env.disk().open(path, OpenOptions::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let mut rows = Rows::new();
    for line in BufReader::new(flate2::read::MultiGzDecoder::new(bytes.as_slice())).split(b'\n').skip(1) {
        let line = line?;
        let tab = line.iter().position(|&byte| byte == b'\t').ok_or("a line without a tab")?;
        rows.push((line[..tab].to_vec(), line[tab + 1..].to_vec()));
    }
    Ok(rows)
}

fn made_up_rows() -> Rows {
    let mut state = 7u64;
    (0..886_323)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (format!("{:013x}", state >> 12).into_bytes(), vec![b'v'; 40 + (state >> 58) as usize])
        })
        .collect()
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

#[expect(clippy::disallowed_methods, reason = "a benchmark copies a database behind its back")]
fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the target can be created");
    for entry in std::fs::read_dir(from).expect("the source can be listed") {
        let entry = entry.expect("the source can be listed");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("there is room for a copy");
        }
    }
}

fn remove(path: &Path) {
    let _ = std::fs::remove_dir_all(path).or_else(|_| {
        #[expect(clippy::disallowed_methods, reason = "a benchmark cleans up after itself")]
        std::fs::remove_file(path)
    });
}
