//! A fixed pseudorandom order of numbers.

use super::rows::Random;

/// A fixed order of the numbers below a bound that looks random: a Feistel network over the smallest square of a power
/// of two that holds them, walked until it comes out below the bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    bound: u64,
    half_bits: u32,
}

impl Shuffle {
    const ROUNDS: u64 = 4;

    /// Of the numbers 0 to `bound`, the last excluded: at least one.
    pub fn new(bound: u64) -> Shuffle {
        let bits = u64::BITS - (bound - 1).leading_zeros();
        Shuffle { bound, half_bits: bits.div_ceil(2).max(1) }
    }

    /// The number at an index below the bound.
    pub fn item_at(&self, index: u64) -> u64 {
        let mut item = self.once(index);
        while item >= self.bound {
            item = self.once(item);
        }
        item
    }

    fn once(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..Shuffle::ROUNDS {
            let mixed = Random::new(right << 8 | round).next() & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_is_a_permutation_far_from_sorted() {
        for bound in [1, 2, 3, 16, 17, 1000] {
            let shuffle = Shuffle::new(bound);
            let mut items: Vec<u64> = (0..bound).map(|index| shuffle.item_at(index)).collect();
            if bound == 1000 {
                let rises = items.windows(2).filter(|pair| pair[0] < pair[1]).count();
                assert!((400..600).contains(&rises), "{rises} rises");
            }
            items.sort_unstable();
            assert!(items.into_iter().eq(0..bound));
        }
    }
}
