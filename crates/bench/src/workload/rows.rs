//! Keys, values and random numbers.

use super::Sizes;
use crate::Result;
use crate::engine::{Store, Transaction};

/// Preloading commits about this many bytes at a time.
const BATCH_BYTES: u64 = 64 << 10;

/// Writes the number `row` over all of `key`, in decimal with leading zeros: keys are in the order of the numbers.
pub(super) fn write_key(key: &mut [u8], row: u64) {
    let mut rest = row;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Numbers that look random (SplitMix64), the same for the same seed.
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed.wrapping_mul(0xd134_2543_de82_ef95) }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Commits the rows 0 to `rows`, many at a time; `row` puts all entries of one.
pub(super) fn preload(
    store: &dyn Store,
    rows: u64,
    sizes: Sizes,
    mut row: impl FnMut(u64, &mut dyn Transaction) -> Result<()>,
) -> Result<()> {
    let batch = (BATCH_BYTES / sizes.row_bytes()).max(1);
    let mut first = 0;
    while first < rows {
        let end = (first + batch).min(rows);
        store.commit(&mut |transaction| (first..end).try_for_each(|number| row(number, transaction)))?;
        first = end;
    }
    store.settle()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers() {
        let mut keys = [0, 9, 10, 99, 12_345_678_901].map(|row| {
            let mut key = [0; 12];
            write_key(&mut key, row);
            key
        });
        assert_eq!(&keys[4], b"012345678901");
        assert!(keys.is_sorted());
        keys.reverse();
        assert!(!keys.is_sorted());
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[random.below(10) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
    }
}
