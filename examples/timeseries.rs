//! Measurements over time: two tables, one transaction, range deletes.
//!
//! ```text
//! cargo run -p fulgurite --example timeseries [DIR]
//! ```
//!
//! What is worth copying:
//! - The key is what is asked for: the series, then the time in big-endian bytes, so that byte order is time order and a
//!   range of time is a range of keys.
//! - Rolling an hour up reads its points, writes their mean into another table and deletes them, in one transaction: no
//!   reader ever sees an hour twice or not at all, and a point that comes late makes it run again.
//! - A range delete costs the same for one point and for a million.
//! - A report reads a snapshot: all of it is of one moment, however long it takes, and writers do not wait.

use std::ops::Range;
use std::path::Path;

use fulgurite::{Database, Options, Snapshot, Table};

const HOUR_MS: u64 = 3_600_000;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    time_ms: u64,
    value: f64,
}

struct Series {
    db: Database,
    /// Series, zero byte, time: the value.
    points: Table,
    /// Series, zero byte, hour: the mean of its points.
    hours: Table,
}

impl Series {
    fn open(dir: &Path) -> fulgurite::Result<Series> {
        let db = Database::open(dir, Options::default())?;
        Ok(Series { points: db.table("points")?, hours: db.table("hours")?, db })
    }

    /// Records measurements, all or none; durable when it returns. A thousand a call is a good size: the commit's one
    /// write is shared by all of them.
    fn record(&self, series: &str, points: &[Point]) -> fulgurite::Result<()> {
        self.db.transact(|txn| {
            for point in points {
                txn.put(&self.points, key(series, point.time_ms), point.value.to_be_bytes())?;
            }
            Ok(())
        })
    }

    /// Rolls the points of an hour up into one; false if there are none.
    fn roll_up(&self, series: &str, hour_ms: u64) -> fulgurite::Result<bool> {
        let hour = key(series, hour_ms)..key(series, hour_ms + HOUR_MS);
        self.db.transact(|txn| {
            let (mut sum, mut count) = (0.0, 0.0);
            let mut points = txn.range(&self.points, &hour)?;
            // Entries are lent, one after the other: nothing is allocated for them.
            while let Some((_, value)) = points.next_entry()? {
                sum += number(value);
                count += 1.0;
            }
            drop(points);
            if count == 0.0 {
                return Ok(false);
            }
            txn.put(&self.hours, key(series, hour_ms), f64::to_be_bytes(sum / count))?;
            // Read and deleted: a point that another transaction adds meanwhile is a conflict, and all of this runs again.
            txn.delete_range(&self.points, &hour)?;
            Ok(true)
        })
    }

    /// Forgets what is older than `time_ms`, in both tables at once.
    fn forget_before(&self, series: &str, time_ms: u64) -> fulgurite::Result<()> {
        self.db.transact(|txn| {
            txn.delete_range(&self.points, key(series, 0)..key(series, time_ms))?;
            txn.delete_range(&self.hours, key(series, 0)..key(series, time_ms))
        })
    }

    /// Hours, and after them points, of one moment.
    fn report(&self, series: &str, times_ms: Range<u64>) -> fulgurite::Result<(Vec<Point>, Vec<Point>)> {
        let snapshot = self.db.snapshot();
        let read = |table| read(&snapshot, table, series, times_ms.clone());
        Ok((read(&self.hours)?, read(&self.points)?))
    }

    /// The newest measurement.
    fn latest(&self, series: &str) -> fulgurite::Result<Option<Point>> {
        let mut entries = self.points.prefix(key_prefix(series))?;
        Ok(entries.next_back().transpose()?.map(|(key, value)| point(&key, &value)))
    }
}

fn read(
    snapshot: &Snapshot,
    table: &Table,
    series: &str,
    times_ms: Range<u64>,
) -> fulgurite::Result<Vec<Point>> {
    let range = snapshot.range(table, key(series, times_ms.start)..key(series, times_ms.end))?;
    range.map(|entry| entry.map(|(key, value)| point(&key, &value))).collect()
}

fn key_prefix(series: &str) -> Vec<u8> {
    [series.as_bytes(), &[0]].concat()
}

fn key(series: &str, time_ms: u64) -> Vec<u8> {
    [series.as_bytes(), &[0], &time_ms.to_be_bytes()].concat()
}

fn point(key: &[u8], value: &[u8]) -> Point {
    let time_ms = key.last_chunk().map_or(0, |time| u64::from_be_bytes(*time));
    Point { time_ms, value: number(value) }
}

fn number(value: &[u8]) -> f64 {
    f64::from_be_bytes(value.try_into().expect("only `record` and `roll_up` write values"))
}

fn main() -> fulgurite::Result<()> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let dir = std::env::args().nth(1).map_or(scratch.path().join("series.db"), Into::into);
    run(&dir)
}

fn run(dir: &Path) -> fulgurite::Result<()> {
    let series = Series::open(dir)?;
    let start = 480_000 * HOUR_MS;
    // Three hours, a point each second.
    for hour in 0..3 {
        let at = |n: u64| Point { time_ms: start + hour * HOUR_MS + n * 1000, value: (hour * 10) as f64 };
        let points: Vec<Point> = (0..3600).map(at).collect();
        series.record("roof/temperature", &points)?;
    }
    series.record("roof/wind", &[Point { time_ms: start, value: 3.5 }])?;

    assert!(series.roll_up("roof/temperature", start)?);
    assert!(series.roll_up("roof/temperature", start + HOUR_MS)?);
    assert!(!series.roll_up("roof/temperature", start + HOUR_MS)?, "its points are gone");
    let (hours, points) = series.report("roof/temperature", start..start + 3 * HOUR_MS)?;
    assert_eq!(hours.iter().map(|hour| hour.value).collect::<Vec<_>>(), [0.0, 10.0]);
    assert_eq!(points.len(), 3600);

    series.forget_before("roof/temperature", start + HOUR_MS)?;
    let (hours, points) = series.report("roof/temperature", start..start + 3 * HOUR_MS)?;
    assert_eq!((hours.len(), points.len()), (1, 3600));
    assert_eq!(series.report("roof/wind", start..start + 1)?.1.len(), 1, "another series is not touched");
    println!("latest: {:?}", series.latest("roof/temperature")?);
    series.db.close()
}

#[test]
fn the_page_works() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("series.db")).unwrap();
}
