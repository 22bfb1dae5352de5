//! A blocked Bloom filter in front of a memtable: one cache line a look-up.
//!
//! A key sets three bits in each of two words of one 64-byte line (Putze, Sanders and Singler, "Cache-, Hash- and
//! Space-Efficient Bloom Filters", 2007). Sixteen bits an entry give about 0.4 % false positives. The filter starts at
//! the size that its memtable is expected to need; one that outgrows it continues in a filter eight times as large.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const LINE_BYTES: usize = 64;
const ENTRIES_PER_LINE: u64 = 32;
const FIRST_LINES_MIN: usize = 4096 / LINE_BYTES;
const FIRST_LINES_MAX: usize = (16 << 20) / LINE_BYTES;
const GROWTH: u64 = 8;
const LEVELS: usize = 4;

#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// An empty memtable's filter takes no memory.
pub(super) struct Filter {
    levels: [OnceLock<Box<[Line]>>; LEVELS],
    first_lines: u64,
}

/// The line and the bits of a key in each level.
#[derive(Clone, Copy)]
struct Probe {
    line: u64,
    words: [usize; 2],
    bits: [u64; 2],
}

impl Probe {
    #[inline]
    fn new(hash: u64) -> Probe {
        let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bit = |shift: u32| 1u64 << ((mixed >> shift) & 63);
        let first = (mixed >> 61) as usize;
        let second = first ^ (1 + ((mixed >> 59) & 3) as usize);
        Probe {
            line: hash >> 32,
            words: [first, second],
            bits: [bit(53) | bit(47) | bit(41), bit(35) | bit(29) | bit(23)],
        }
    }

    #[inline]
    fn line_of<'a>(&self, lines: &'a [Line]) -> &'a Line {
        &lines[((self.line * lines.len() as u64) >> 32) as usize]
    }
}

impl Filter {
    pub fn new(entries: u64) -> Filter {
        let lines = usize::try_from(entries.div_ceil(ENTRIES_PER_LINE)).unwrap_or(usize::MAX);
        let lines = lines.clamp(FIRST_LINES_MIN, FIRST_LINES_MAX);
        Filter { levels: Default::default(), first_lines: lines as u64 }
    }

    /// Whether the key may have been added; `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let probe = Probe::new(hash);
        self.levels.iter().map_while(OnceLock::get).any(|lines| {
            let line = probe.line_of(lines);
            let word = |i: usize| line.0[probe.words[i]].load(Ordering::Relaxed);
            word(0) & probe.bits[0] == probe.bits[0] && word(1) & probe.bits[1] == probe.bits[1]
        })
    }

    /// Starts loading the lines of a key.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let probe = Probe::new(hash);
        self.levels.iter().map_while(OnceLock::get).for_each(|lines| super::prefetch(probe.line_of(lines)));
    }

    /// The level that takes new entries when the memtable has `entries`, including them. If a larger level cannot be
    /// allocated, the filter does without it: more false positives, nothing else. What it allocates is added to `memory`.
    pub fn level(&self, entries: u64, memory: &AtomicUsize) -> FilterLevel<'_> {
        let count = |lines: &[Line]| _ = memory.fetch_add(size_of_val(lines), Ordering::Relaxed);
        let mut capacity = self.first_lines * ENTRIES_PER_LINE;
        let mut level_lines = self.first_lines;
        let mut lines = self.levels[0].get_or_init(|| {
            let first: Box<[Line]> =
                std::iter::repeat_with(Line::default).take(level_lines as usize).collect();
            count(&first);
            first
        });
        for level in &self.levels[1..] {
            if entries <= capacity {
                break;
            }
            level_lines *= GROWTH;
            capacity += level_lines * ENTRIES_PER_LINE;
            if level.get().is_none() {
                let mut larger = Vec::new();
                if larger.try_reserve_exact(level_lines as usize).is_err() {
                    break;
                }
                larger.resize_with(level_lines as usize, Line::default);
                level.get_or_init(|| {
                    count(&larger);
                    larger.into_boxed_slice()
                });
            }
            lines = level.get().expect("it was made above");
        }
        FilterLevel(lines)
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.levels.iter().map_while(OnceLock::get).map(|lines| lines.len() * LINE_BYTES).sum()
    }
}

/// The level of a filter that takes new entries.
#[derive(Clone, Copy)]
pub(super) struct FilterLevel<'a>(&'a [Line]);

impl FilterLevel<'_> {
    #[inline]
    pub fn add(self, hash: u64) {
        let probe = Probe::new(hash);
        let line = probe.line_of(self.0);
        for (word, bits) in probe.words.into_iter().zip(probe.bits) {
            if line.0[word].load(Ordering::Relaxed) & bits != bits {
                line.0[word].fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    /// Starts loading the key's line.
    pub fn prefetch(self, hash: u64) {
        super::prefetch(Probe::new(hash).line_of(self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(i: u64) -> u64 {
        fulgurite_types::hash_key(fulgurite_types::TableId(1), &i.to_le_bytes())
    }

    #[test]
    fn few_false_positives_and_no_false_negative_as_it_grows() {
        for expected in [0, 1_000_000] {
            let filter = Filter::new(expected);
            let memory = AtomicUsize::new(0);
            for i in 0..1_000_000u64 {
                filter.level(i + 1, &memory).add(hash(i));
                if [1_000, 30_000, 200_000, 999_999].contains(&i) {
                    assert!((0..=i).step_by(7).all(|i| filter.may_contain(hash(i))));
                    let wrong = (0..100_000).filter(|j| filter.may_contain(hash(1 << 40 | j))).count();
                    assert!(wrong < 2_000, "{wrong} of 100,000 at {i} entries, {expected} expected");
                }
            }
            assert_eq!(memory.into_inner(), filter.bytes());
        }
    }

    #[test]
    fn an_empty_one_takes_nothing() {
        assert_eq!(Filter::new(1_000_000).bytes(), 0);
        assert!(!Filter::new(0).may_contain(hash(1)));
    }
}
