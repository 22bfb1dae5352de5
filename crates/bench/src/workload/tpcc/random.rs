//! Random text, names and non-uniform numbers.

use super::super::rows::Random;

/// 64 of them, so that six bits make one.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";

const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// How many last names there are.
pub(super) const NAMES: u32 = 1000;

/// Text of up to `N` bytes.
pub(super) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> std::ops::Deref for Text<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// `N` letters.
pub(super) fn letters<const N: usize>(random: &mut Random) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes.map(|byte| LETTERS[usize::from(byte & 63)])
}

/// `N` digits.
pub(super) fn digits<const N: usize>(random: &mut Random) -> [u8; N] {
    [(); N].map(|()| b'0' + random.below(10) as u8)
}

/// Between `min` and `N` letters.
pub(super) fn text<const N: usize>(random: &mut Random, min: usize) -> Text<N> {
    Text { bytes: letters(random), length: random.within(min as u64, N as u64) as usize }
}

/// The data of items and stock: 26 to 50 letters, with `ORIGINAL` somewhere in one of ten.
pub(super) fn data(random: &mut Random) -> Text<50> {
    let mut data = text(random, 26);
    if random.below(10) == 0 {
        let start = random.below((data.length - ORIGINAL.len() + 1) as u64) as usize;
        data.bytes[start..start + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    data
}

const ORIGINAL: &[u8] = b"ORIGINAL";

/// Whether the data of an item or of stock has `ORIGINAL` in it.
pub(super) fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|window| window == ORIGINAL)
}

/// The last name of a number below [`NAMES`]: one syllable for each of its digits.
pub(super) fn last_name(number: u32) -> Text<16> {
    let mut name = Text { bytes: [0; 16], length: 0 };
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        name.bytes[name.length..][..syllable.len()].copy_from_slice(syllable);
        name.length += syllable.len();
    }
    name
}

/// The numbers from 1 to `count` in a random order.
pub(super) fn permutation(random: &mut Random, count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (1..=count).collect();
    shuffle(random, &mut numbers);
    numbers
}

/// Puts the items into a random order.
pub(super) fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for index in (1..items.len()).rev() {
        items.swap(index, random.below(index as u64 + 1) as usize);
    }
}

/// Non-uniform random numbers, NURand of the specification: the bitwise or of two numbers makes some numbers more
/// likely, and a constant decides which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Skew {
    /// A power of two less one.
    spread: u64,
    /// From 0 to `spread`.
    constant: u64,
}

impl Skew {
    fn new(random: &mut Random, spread: u64) -> Skew {
        Skew { spread, constant: random.within(0, spread) }
    }

    /// A number from `low` to `high`, both included.
    pub fn pick(self, random: &mut Random, low: u32, high: u32) -> u32 {
        let (low, high) = (u64::from(low), u64::from(high));
        let either = random.within(0, self.spread) | random.within(low, high);
        ((either + self.constant) % (high - low + 1) + low) as u32
    }
}

/// The last names, customers and items that are likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Skews {
    pub name: Skew,
    pub customer: Skew,
    pub item: Skew,
}

impl Skews {
    /// For filling.
    pub fn load(seed: u64) -> Skews {
        let mut random = Random::new(seed);
        Skews {
            name: Skew::new(&mut random, 255),
            customer: Skew::new(&mut random, 1023),
            item: Skew::new(&mut random, 8191),
        }
    }

    /// For the run after that filling: the constant of the last names differs by 65 to 119, though not by 96 or 112.
    pub fn run(seed: u64) -> Skews {
        let load = Skews::load(seed);
        let mut random = Random::new(!seed);
        let name = loop {
            let name = Skew::new(&mut random, 255);
            let difference = name.constant.abs_diff(load.name.constant);
            if (65..=119).contains(&difference) && difference != 96 && difference != 112 {
                break name;
            }
        };
        Skews { name, ..load }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_syllables() {
        assert_eq!(&*last_name(0), b"BARBARBAR");
        assert_eq!(&*last_name(371), b"PRICALLYOUGHT");
        assert_eq!(&*last_name(778), b"CALLYCALLYATION");
        assert!((0..NAMES).all(|number| last_name(number).len() <= 16));
    }

    #[test]
    fn text_keeps_its_lengths() {
        let mut random = Random::new(5);
        let mut lengths = [0; 21];
        for _ in 0..2000 {
            lengths[text::<20>(&mut random, 10).len()] += 1;
            assert!(digits::<4>(&mut random).iter().all(u8::is_ascii_digit));
        }
        assert!(lengths[..10].iter().all(|count| *count == 0));
        assert!(lengths[10..].iter().all(|count| *count > 0));
    }

    #[test]
    fn one_in_ten_is_original() {
        let mut random = Random::new(6);
        let originals = (0..10_000).filter(|_| is_original(&data(&mut random))).count();
        assert!((850..1150).contains(&originals), "{originals}");
    }

    #[test]
    fn permutations_have_every_number_once() {
        let mut numbers = permutation(&mut Random::new(7), 3000);
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=3000));
    }

    #[test]
    fn constants_of_load_and_run_differ_as_they_must() {
        for seed in 0..1000 {
            let (load, run) = (Skews::load(seed), Skews::run(seed));
            let difference = load.name.constant.abs_diff(run.name.constant);
            assert!((65..=119).contains(&difference) && difference != 96 && difference != 112, "{seed}");
            assert!(run.name.constant <= 255 && run.customer == load.customer && run.item == load.item);
        }
    }

    #[test]
    fn some_numbers_are_likelier_than_others() {
        let mut random = Random::new(8);
        let skew = Skews::run(1).customer;
        let mut counts = vec![0u32; 3001];
        for _ in 0..300_000 {
            counts[skew.pick(&mut random, 1, 3000) as usize] += 1;
        }
        assert_eq!(counts.remove(0), 0, "from 1");
        assert!(counts.iter().any(|count| *count > 400), "100 would be even");
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let tenth: u32 = counts[..300].iter().sum();
        assert!((90_000..240_000).contains(&tenth), "the likeliest tenth has {tenth} of 300,000");
        let shared = (1..100).all(|_| (3..=4).contains(&skew.pick(&mut random, 3, 4)));
        assert!(shared, "small ranges");
    }
}
