//! Verification of a whole database, while other threads use it.
//!
//! A check reads the trees that were written last when it began, and the segments of that moment. It holds the lock of
//! the space only to list them: written trees never change, and no listed segment is freed while the check runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_index::btree::{EntryInfo, RecordInfo, TreeVisitor};
use fulgurite_index::{Base, IndexError, OutOfLine};
use fulgurite_log::{LogError, ScanItem, SegmentInfo, Stream};
use fulgurite_types::{Lsn, TableId};

use crate::Result;
use crate::catalog::TableState;
use crate::engine::Engine;
use crate::error::OrError;
use crate::error::readable;
use crate::space::accounts::Written;
use crate::space::pins::CheckPin;

/// How far a check has come.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// db.check(|progress| println!("{}: {} of about {}", progress.what, progress.done, progress.total))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// The object under check: a table, or the log.
    pub what: String,
    /// Entries or bytes checked so far.
    pub done: u64,
    /// About how many it has.
    pub total: u64,
}

/// The result of a check.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// db.table("users")?.put("alice", "1")?;
/// let report = db.check(|_| {})?;
/// assert!(report.problems.is_empty(), "{:?}", report.problems);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Tables, the catalog not counted.
    pub tables: u64,
    /// Entries in their leaves, as the trees were written last.
    pub entries: u64,
    /// Versions in their memtables and in the log, not merged into the trees yet.
    pub recent_versions: u64,
    /// Node records, those of the catalog included.
    pub node_records: u64,
    /// Values outside the leaves, each read and verified.
    pub values: u64,
    /// Their bytes.
    pub value_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Frames in the kept log.
    pub frames: u64,
    /// One sentence for each problem; empty if the database is sound.
    pub problems: Vec<String>,
    /// How many of the problems the next opening for writing mends. If it is all of them, there is no need of a backup.
    pub mendable_problems: u64,
    /// One sentence for each finding that is no problem.
    pub notes: Vec<String>,
}

/// How many entries are checked between two progress reports.
const PROGRESS_STEP: u64 = 4096;

/// Problems beyond this many are counted, not listed.
const PROBLEMS_MAX: usize = 100;

/// The input of a check: the database at one moment.
struct View<'c> {
    tables: Vec<CheckedTable>,
    segments: Vec<SegmentInfo>,
    _pin: CheckPin<'c>,
}

/// A table, and its tree as it was written last.
struct CheckedTable {
    state: Arc<TableState>,
    written: Written,
}

impl View<'_> {
    /// Taken under the lock of the space: no write-out of a tree ends meanwhile, and no segment is freed.
    fn take(engine: &Engine) -> Result<View<'_>> {
        let space = engine.space.lock();
        engine.check_open()?;
        let mut segments = engine.log.segments();
        let newest = segments.iter().map(|segment| segment.number).max().unwrap_or(0);
        let pin = engine.checks.pin(newest, engine.env.clock().monotonic_ns());
        // Nothing refers to a retired segment.
        segments.retain(|segment| !space.is_retiring(segment.number));
        let tables = engine.tables.all().into_iter().filter(|table| table.dropped().is_none());
        let tables = tables.map(|state| {
            let written = space.accounts.written(state.id);
            CheckedTable { state, written }
        });
        Ok(View { tables: tables.collect(), segments, _pin: pin })
    }
}

/// Verifies every table as it was written last, and the kept log. Neither commits nor maintenance wait for it; segments
/// that become free meanwhile are freed after it. Fails if the database is closed meanwhile.
pub(crate) fn check(engine: &Engine, mut progress: impl FnMut(CheckProgress)) -> Result<CheckReport> {
    let view = View::take(engine)?;
    let mut report = CheckReport::default();
    for table in &view.tables {
        let recount = check_table(engine, table, &mut report, &mut progress)?;
        let Written { live, data_bytes, .. } = &table.written;
        let booked = (live, *data_bytes);
        let is_same = |(live, bytes): &(BTreeMap<u32, i64>, u64)| {
            *live == *booked.0 && booked.1.is_none_or(|booked| booked == *bytes)
        };
        if let Some(recount) = recount.filter(|recount| !is_same(recount)) {
            report.problem(format!(
                "the accounts of table `{}` do not match its records: booked {booked:?}, counted {recount:?}",
                table.state.name()
            ));
        }
        if table.state.id != TableId::CATALOG {
            report.tables += 1;
            report.recent_versions += table.state.index.memtables().entries();
        }
    }
    report.superblock(engine)?;
    check_log(engine, &view.segments, &mut report, &mut progress)?;
    // After a close the files may have changed: a problem found since then proves nothing.
    engine.check_open()?;
    Ok(report)
}

impl CheckReport {
    pub(crate) fn problem(&mut self, what: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what);
        } else if self.problems.len() == PROBLEMS_MAX {
            self.problems.push("there are more problems than are listed".to_string());
        }
    }
}

/// Counts the entries and records of one table; returns its live bytes by segment, and the bytes of its data.
fn check_table(
    engine: &Engine,
    table: &CheckedTable,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<Option<(BTreeMap<u32, i64>, u64)>> {
    let tree = table.state.index.base();
    let total = tree.len_estimate();
    let name = table.state.name();
    let mut checker = Checker {
        engine,
        table: table.state.id,
        name: &name,
        report,
        progress,
        total,
        entries: 0,
        live: BTreeMap::new(),
        data_bytes: 0,
        damaged: false,
    };
    tree.walk_written(table.written.root, &mut checker).or_error()?;
    // In a damaged table some records were not counted.
    Ok((!checker.damaged).then_some((checker.live, checker.data_bytes)))
}

struct Checker<'c> {
    engine: &'c Engine,
    table: TableId,
    name: &'c str,
    report: &'c mut CheckReport,
    progress: &'c mut dyn FnMut(CheckProgress),
    total: u64,
    entries: u64,
    live: BTreeMap<u32, i64>,
    data_bytes: u64,
    damaged: bool,
}

impl Checker<'_> {
    fn check_open(&self, lsn: Lsn) -> Result<(), IndexError> {
        let closed = |_| IndexError::Store { table: self.table, lsn, source: Box::new(LogError::Closed) };
        self.engine.check_open().map_err(closed)
    }

    fn count(&mut self, lsn: Lsn, bytes: u32) {
        *self.live.entry(lsn.segment()).or_default() += i64::from(bytes);
    }
}

impl TreeVisitor for Checker<'_> {
    fn record(&mut self, record: RecordInfo) -> Result<(), IndexError> {
        self.check_open(record.lsn)?;
        self.report.node_records += 1;
        self.count(record.lsn, record.bytes);
        Ok(())
    }

    fn problem(&mut self, error: IndexError) -> Result<(), IndexError> {
        self.damaged = true;
        match error {
            error @ (IndexError::Corrupt { .. }
            | IndexError::LeafTooLong { .. }
            | IndexError::WouldBlock
            | IndexError::Unordered) => self.report.problem(error.to_string()),
            IndexError::Store { table, lsn, source } => match source.downcast::<LogError>() {
                Ok(error) if matches!(*error, LogError::Damaged(_)) => {
                    self.report.problem(format!("table `{}`: {error}", self.name));
                }
                Ok(source) => return Err(IndexError::Store { table, lsn, source }),
                Err(source) => return Err(IndexError::Store { table, lsn, source }),
            },
        }
        Ok(())
    }

    fn entry(&mut self, entry: EntryInfo<'_>) -> Result<(), IndexError> {
        self.report.entries += u64::from(self.table != TableId::CATALOG);
        self.entries += 1;
        if self.entries.is_multiple_of(PROGRESS_STEP) {
            (self.progress)(CheckProgress {
                what: format!("table `{}`", self.name),
                done: self.entries,
                total: self.total.max(self.entries),
            });
        }
        if self.table == TableId::CATALOG {
            self.report.catalog_row(self.engine, &entry);
        }
        let out_of_line = entry.flags.is_out_of_line().then(|| OutOfLine::decode(entry.payload));
        if entry.is_newest && !entry.flags.is_tombstone() {
            let value_bytes = match &out_of_line {
                Some(Ok(value)) => value.len,
                _ => entry.payload.len() as u64,
            };
            self.data_bytes += entry.key.len() as u64 + value_bytes;
        }
        let Some(value) = out_of_line else { return Ok(()) };
        for extent in value.iter().flat_map(|value| &value.extents) {
            self.count(extent.lsn, extent.len);
        }
        match self.engine.values.verify(self.table, entry.key, entry.csn, entry.payload) {
            Ok(bytes) => {
                self.report.values += 1;
                self.report.value_bytes += bytes;
            }
            Err(error) => {
                let what = format!("table `{}`, key {}: {error}", self.name, readable(entry.key));
                self.report.problem(what);
            }
        }
        Ok(())
    }
}

/// Decodes every segment in use, except those that are being written.
fn check_log(
    engine: &Engine,
    segments: &[SegmentInfo],
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<()> {
    let total = segments.iter().map(|segment| u64::from(segment.bytes)).sum();
    let mut done = 0;
    for segment in segments {
        engine.check_open()?;
        report.segments += 1;
        let needed = segment.stream.is_some() && !segment.open;
        if needed {
            let scan = engine.log.scan_segment(segment.number).or_error()?;
            for item in &scan.items {
                report.frames += u64::from(matches!(item, ScanItem::Frame { .. }));
            }
            // Bytes after the end of an epoch, or after a dead bulk tail, are dead by definition. Only damage before
            // live data counts; the walk of the tables and the next open find that.
            if segment.stream == Some(Stream::Commit) && segment.epoch == engine.log.epoch() {
                for problem in &scan.problems {
                    report.problem(format!(
                        "{} at byte {}: {}",
                        scan.path.display(),
                        problem.offset,
                        problem.what
                    ));
                }
            }
        }
        done += u64::from(segment.bytes);
        progress(CheckProgress { what: "log".to_string(), done, total });
    }
    Ok(())
}
