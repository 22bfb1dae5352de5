//! `scan`: reading rows in order, forward or in reverse, a few or all of them.

use super::rows::{Random, Sizes, expect_rows, write_key};
use super::sealed::{check_seals, fill_sealed};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Direction, Range, Store};
use crate::{Error, Result};

/// Scans of a table without writers, as `readseq`, `readreverse` and `seekrandom` of LevelDB's benchmark are.
///
/// Each operation is one scan in a transaction that reads. A short one reads [`Scan::SHORT_ROWS`] rows (all, if there
/// are fewer) from a row on; all rows that have enough rows after them are equally likely. A long one reads the whole
/// table. Each client checks that it sees exactly the expected keys, in their order; so each operation is as many rows
/// as [`Scan::rows_per_scan`] says.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Scan {
    /// How long keys and values are: values at least [`Micro::VALUE_BYTES_MIN`](super::Micro::VALUE_BYTES_MIN).
    pub sizes: Sizes,
    /// At least one.
    pub rows: u64,
    /// How many of them a scan reads.
    pub length: ScanLength,
    /// From small keys to large ones, or the other way round.
    pub direction: Direction,
}

/// How much a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ScanLength {
    /// A few rows, from a random one on.
    Short,
    /// All rows.
    Long,
}

impl Scan {
    /// The rows of a short scan.
    pub const SHORT_ROWS: u64 = 100;

    /// How many rows each operation reads.
    pub fn rows_per_scan(&self) -> u64 {
        match self.length {
            ScanLength::Short => Scan::SHORT_ROWS.min(self.rows),
            ScanLength::Long => self.rows,
        }
    }
}

impl Workload for Scan {
    fn shape(&self) -> Shape {
        Shape {
            name: "scan".into(),
            about: format!("{} rows, {}, {} rows a scan", self.rows, self.sizes, self.rows_per_scan()),
            tables: &["rows"],
            kinds: match (self.direction, self.length) {
                (Direction::Forward, ScanLength::Short) => &["short-forward"],
                (Direction::Forward, ScanLength::Long) => &["long-forward"],
                (Direction::Reverse, ScanLength::Short) => &["short-reverse"],
                (Direction::Reverse, ScanLength::Long) => &["long-reverse"],
            },
            loaded_bytes: self.rows * self.sizes.row_bytes(),
            ..Shape::default()
        }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        fill_sealed(store, self.sizes, 0..self.rows, filling, write_key)
    }

    fn client(&self, thread: u32, _: u32) -> Client {
        let Scan { sizes, rows, length, direction } = *self;
        let wanted = self.rows_per_scan();
        let mut random = Random::new(u64::from(thread) << 32);
        let [mut first, mut next] = [(); 2].map(|()| vec![0; sizes.key_bytes]);
        Box::new(move |session| {
            let skipped = random.below(rows - wanted + 1);
            write_key(
                &mut first,
                match direction {
                    Direction::Forward => skipped,
                    Direction::Reverse => rows - 1 - skipped,
                },
            );
            let from = (length == ScanLength::Short).then_some(&first[..]);
            let seen = session.read(|open| {
                let mut seen = 0;
                next.copy_from_slice(&first);
                open.scan(Range { direction, ..Range::forward(0, from) }, &mut |key, value| {
                    if key != next || value.len() != sizes.value_bytes {
                        return Err(unexpected(key, &next));
                    }
                    seen += 1;
                    turn(&mut next, direction);
                    Ok(length == ScanLength::Long || seen < wanted)
                })?;
                Ok(seen)
            })?;
            match seen == wanted {
                true => Ok(Step::Done(0)),
                false => {
                    Err(Error::engine("scanning", format!("there were {seen} rows instead of {wanted}")))
                }
            }
        })
    }

    fn check(&self, store: &dyn Store, _: Option<&Done>) -> Result<()> {
        let mut expected = vec![0; self.sizes.key_bytes];
        let found = check_seals(store, 0, "rows", |key, seal| {
            write_key(&mut expected, seal.row);
            key == expected && seal.row < self.rows
        })?;
        expect_rows("rows", found, self.rows)
    }
}

fn unexpected(key: &[u8], expected: &[u8]) -> Error {
    let [key, expected] = [key, expected].map(String::from_utf8_lossy);
    Error::engine("scanning", format!("there is {key} where {expected} should be"))
}

/// Turns a decimal key into that of the row after or before it; the one after the last is the first.
fn turn(key: &mut [u8], direction: Direction) {
    let (from, to, by) = match direction {
        Direction::Forward => (b'9', b'0', 1),
        Direction::Reverse => (b'0', b'9', -1i8),
    };
    for digit in key.iter_mut().rev() {
        if *digit != from {
            *digit = digit.wrapping_add_signed(by);
            return;
        }
        *digit = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;
    use crate::workload::Micro;

    const VARIANTS: [(ScanLength, Direction); 4] = [
        (ScanLength::Short, Direction::Forward),
        (ScanLength::Short, Direction::Reverse),
        (ScanLength::Long, Direction::Forward),
        (ScanLength::Long, Direction::Reverse),
    ];

    #[test]
    fn scans_see_all_rows_in_their_order() {
        for (length, direction) in VARIANTS {
            for (rows, threads) in [(1, 1), (99, 1), (100, 4), (1234, 4)] {
                let (_, done) =
                    Bed::checked(Scan { sizes: Micro::SIZES, rows, length, direction }, threads, 20);
                assert_eq!(done.operations(), 20 * u64::from(threads));
            }
        }
    }

    #[test]
    fn a_row_that_is_missing_or_too_much_is_noticed() {
        for (length, direction) in VARIANTS {
            let workload = Scan { sizes: Micro::SIZES, rows: 100, length, direction };
            let (bed, done) = Bed::checked(workload, 1, 1);
            let scan = || bed.with_session(|session| workload.client(0, 1)(session));
            bed.tamper(|open| open.put(0, b"000000000000000000505", b"between"));
            assert!(scan().is_err());
            assert!(bed.check(Some(&done)).is_err());
            bed.tamper(|open| open.delete(0, b"000000000000000000505"));
            scan().expect("all is as before");
            bed.tamper(|open| open.delete(0, b"00000000000000000000"));
            bed.tamper(|open| open.delete(0, b"00000000000000000099"));
            assert!(scan().is_err());
            assert!(bed.check(Some(&done)).is_err());
        }
    }

    #[test]
    fn keys_turn_as_their_rows() {
        let mut key = *b"0199";
        turn(&mut key, Direction::Forward);
        assert_eq!(&key, b"0200");
        turn(&mut key, Direction::Reverse);
        assert_eq!(&key, b"0199");
        turn(&mut key, Direction::Reverse);
        assert_eq!(&key, b"0198");
    }
}
