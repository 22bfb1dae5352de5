//! What a load does: its settings, and the rows that each of its commits writes, which follow from them.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use fulgurite::{Durability, Options};

pub const KEY_BYTES: usize = 8;
pub const VALUE_BYTES: usize = 100;

/// The transaction of a gigabyte: so many rows of so many bytes, which a leaf just holds.
pub const LARGE_ROWS: u64 = 1 << 20;
pub const LARGE_ROW_BYTES: usize = 1_016;
/// What it takes in the log, at most.
pub const LARGE_BYTES_MAX: u64 = LARGE_ROWS * 1_056;
/// The largest value that a database takes.
pub const HUGE_BYTES: usize = 512 << 20;

/// A load. The child that runs it is given it as a line of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub threads: u64,
    /// An index of [`LEVELS`].
    pub level: u64,
    pub tables: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Rows that a commit writes.
    pub batch: u64,
    /// Whether transactions of a gigabyte and values of 512 MiB are written beside the small commits.
    pub is_large: u64,
    /// How many seconds a snapshot is held, one of which is opened each second; 0: none.
    pub snapshot_seconds: u64,
}

pub const LEVELS: [(&str, Durability); 4] = [
    ("sync", Durability::Sync),
    ("no-barrier", Durability::NoBarrier),
    ("async", Durability::Async { interval: Duration::from_millis(10) }),
    ("none", Durability::None),
];

impl Case {
    /// One thread, a hundred rows a durable commit, one table.
    pub fn plain(rows: u64) -> Case {
        Case { threads: 1, level: 0, tables: 1, rows, batch: 100, is_large: 0, snapshot_seconds: 0 }
    }

    pub fn level(&self) -> Durability {
        LEVELS[self.level as usize].1
    }

    /// Whether an acknowledged commit survives a kill.
    pub fn is_synchronous(&self) -> bool {
        matches!(self.level(), Durability::Sync | Durability::NoBarrier)
    }

    pub fn options(&self) -> Options {
        let level = self.level();
        Options {
            durability: level,
            // It does not survive a power cut here, but there is none.
            assume_power_safe_cache: level == Durability::NoBarrier,
            transaction_bytes_max: if self.is_large > 0 {
                3 << 30
            } else {
                Options::default().transaction_bytes_max
            },
            ..Options::default()
        }
    }

    pub fn table_of(&self, row: u64) -> u64 {
        row % self.tables
    }

    /// The rows that commit number `commit` of a thread writes. The numbers of each thread begin at 1; no other thread
    /// writes the same rows.
    pub fn picks(&self, thread: u64, commit: u64) -> impl Iterator<Item = u64> {
        let Case { threads, rows, batch, .. } = *self;
        (0..batch).map(move |n| mix(thread << 48 ^ commit << 12 ^ n) % (rows / threads) * threads + thread)
    }
}

impl Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { threads, level, tables, rows, batch, is_large, snapshot_seconds } = self;
        write!(f, "{threads} {level} {tables} {rows} {batch} {is_large} {snapshot_seconds}")
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(line: &str) -> Result<Case, String> {
        let numbers: Option<Vec<u64>> = line.split(' ').map(|number| number.parse().ok()).collect();
        let Some([threads, level, tables, rows, batch, is_large, snapshot_seconds]) =
            numbers.and_then(|numbers| <[u64; 7]>::try_from(numbers).ok())
        else {
            return Err(format!("{line:?} is no case"));
        };
        Ok(Case { threads, level, tables, rows, batch, is_large, snapshot_seconds })
    }
}

/// The finalizer of SplitMix64.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// Odd, so that keys are as many as rows.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The inverse of [`SCATTER`] modulo 2^64.
const GATHER: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(SCATTER.wrapping_mul(GATHER) == 1);

/// Rows that follow one another have keys far apart.
pub fn key(row: u64) -> [u8; KEY_BYTES] {
    row.wrapping_mul(SCATTER).to_be_bytes()
}

pub fn row_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?).wrapping_mul(GATHER))
}

/// A value begins with the number of the commit that wrote it; the rest follows from that and the row.
pub fn fill_value(row: u64, commit: u64, value: &mut [u8]) {
    let (head, rest) = value.split_at_mut(8);
    head.copy_from_slice(&commit.to_be_bytes());
    let word = mix(row ^ commit << 32).to_le_bytes();
    for piece in rest.chunks_mut(8) {
        piece.copy_from_slice(&word[..piece.len()]);
    }
}

/// The number of the commit that wrote a value, if it is whole and belongs to the row.
pub fn commit_of(row: u64, value: &[u8]) -> Option<u64> {
    let commit = u64::from_be_bytes(value.get(..8)?.try_into().ok()?);
    let mut expected = vec![0; value.len()];
    fill_value(row, commit, &mut expected);
    (value == expected).then_some(commit)
}

#[test]
fn rows_cases_and_values_are_told_apart() {
    assert_eq!(row_of(&key(12_345)), Some(12_345));
    let case = Case { threads: 4, level: 2, tables: 100, snapshot_seconds: 60, ..Case::plain(1_000) };
    assert_eq!(case.to_string().parse(), Ok(case));
    for thread in 0..4 {
        assert!(case.picks(thread, 7).all(|row| row < 1_000 && row % 4 == thread));
    }
    let mut value = [0; VALUE_BYTES];
    fill_value(5, 9, &mut value);
    assert_eq!((commit_of(5, &value), commit_of(6, &value)), (Some(9), None));
    value[99] ^= 1;
    assert_eq!(commit_of(5, &value), None);
}
