//! The traces: reads of leaves, as the workloads make them.

/// How many rows of 100 bytes a leaf has.
const ROWS: u64 = 70;
/// How many rows a scan of YCSB E reads at most.
const SCAN_ROWS_MAX: u64 = 100;
/// How many rows a scan reads that seeks its key again for each page.
const PAGE_ROWS: u64 = 20;
const THETA: f64 = 0.99;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    /// A read of the hot set.
    Hot,
    /// A merge: it loads the leaf before it takes the tree's lock, and reads it under the lock.
    Merge,
    /// A new leaf, made in memory.
    New,
    /// The leaf leaves the tree.
    Drop,
}

/// A step of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub leaf: u32,
    pub kind: Kind,
}

/// How a scan goes over all leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    Forward,
    Reverse,
    /// Forward, with a seek for each page of [`PAGE_ROWS`].
    Pages,
}

type Make = fn(Maker) -> Vec<Step>;

/// The traces of the table. Ratios are of reads of single rows to rows of a scan.
pub const TRACES: [(&str, Make); 18] = [
    ("zipfian, scattered keys (YCSB C)", |maker| maker.zipfian(true)),
    ("zipfian, clustered keys", |maker| maker.zipfian(false)),
    ("uniform", |maker| maker.uniform()),
    ("latest (YCSB D)", |maker| maker.latest()),
    ("short scans (YCSB E)", |maker| maker.short_scans()),
    ("hot set, scan, 4 : 1", |maker| maker.hot_beside_scan(4.0, Scan::Forward)),
    ("hot set, scan, 1 : 1", |maker| maker.hot_beside_scan(1.0, Scan::Forward)),
    ("hot set, scan, 1 : 4", |maker| maker.hot_beside_scan(0.25, Scan::Forward)),
    ("hot set, scan, 1 : 70", |maker| maker.hot_beside_scan(1.0 / 70.0, Scan::Forward)),
    ("hot set, scan, 1 : 280", |maker| maker.hot_beside_scan(1.0 / 280.0, Scan::Forward)),
    ("hot set, reverse scan, 1 : 280", |maker| maker.hot_beside_scan(1.0 / 280.0, Scan::Reverse)),
    ("hot set, scan in pages, 1 : 70", |maker| maker.hot_beside_scan(1.0 / 70.0, Scan::Pages)),
    ("zipfian beside scan, 1 : 70", |maker| maker.zipfian_beside_scan()),
    ("moving hot set, 20 reads a leaf", |maker| maker.moving_hot_set(20)),
    ("moving hot set, 5 reads a leaf", |maker| maker.moving_hot_set(5)),
    ("queue", |maker| maker.queue()),
    ("hot set, scattered reads, 1 : 1", |maker| maker.hot_beside_others(Kind::Read)),
    ("hot set, scattered merges, 1 : 1", |maker| maker.hot_beside_others(Kind::Merge)),
];

/// Makes a trace.
pub struct Maker {
    leaves: u64,
    len: usize,
    /// How many leaves are hot.
    hot: u64,
    random: Random,
    /// The leaves in random order: the first ones are hot.
    shuffled: Vec<u32>,
    steps: Vec<Step>,
}

impl Maker {
    pub fn new(leaves: u32, len: usize, hot: u32, seed: u64) -> Maker {
        let mut random = Random(seed);
        let mut shuffled: Vec<u32> = (0..leaves).collect();
        for end in (1..shuffled.len()).rev() {
            shuffled.swap(end, random.below(end as u64 + 1) as usize);
        }
        let leaves = u64::from(leaves);
        Maker {
            leaves,
            len,
            hot: u64::from(hot),
            random,
            shuffled,
            steps: Vec::with_capacity(len + ROWS as usize),
        }
    }

    fn add(&mut self, leaf: u64, kind: Kind) {
        self.steps.push(Step { leaf: leaf as u32, kind });
    }

    /// Adds steps until there are enough.
    fn fill(mut self, mut more: impl FnMut(&mut Maker)) -> Vec<Step> {
        while self.steps.len() < self.len {
            more(&mut self);
        }
        self.steps
    }

    fn rows(&self) -> u64 {
        self.leaves * ROWS
    }

    fn read_hot(&mut self) {
        let leaf = self.shuffled[self.random.below(self.hot) as usize];
        self.add(leaf.into(), Kind::Hot);
    }

    fn zipfian(self, is_scattered: bool) -> Vec<Step> {
        let zipf = Zipf::new(self.rows());
        self.fill(|maker| {
            let rank = zipf.next(&mut maker.random);
            let row = if is_scattered { mix(rank) % maker.rows() } else { rank };
            maker.add(row / ROWS, Kind::Read);
        })
    }

    fn uniform(self) -> Vec<Step> {
        self.fill(|maker| {
            let leaf = maker.random.below(maker.leaves);
            maker.add(leaf, Kind::Read);
        })
    }

    /// One row in twenty is new; the newest are read most. Keys are hashed, so each is in some leaf.
    fn latest(self) -> Vec<Step> {
        let zipf = Zipf::new(self.rows());
        let mut newest = self.rows();
        self.fill(|maker| {
            let is_new = maker.random.below(20) == 0;
            newest += u64::from(is_new);
            let age = if is_new { 0 } else { zipf.next(&mut maker.random) };
            maker.add(mix(newest - age) % maker.leaves, if is_new { Kind::Merge } else { Kind::Read });
        })
    }

    fn short_scans(self) -> Vec<Step> {
        let zipf = Zipf::new(self.rows());
        self.fill(|maker| {
            let start = mix(zipf.next(&mut maker.random)) % maker.rows();
            let end = start + 1 + maker.random.below(SCAN_ROWS_MAX);
            for leaf in start / ROWS..=((end - 1) / ROWS).min(maker.leaves - 1) {
                maker.add(leaf, Kind::Read);
            }
        })
    }

    /// Reads of the hot set, so many for each row of a scan over all leaves that has no end.
    fn hot_beside_scan(self, reads_per_row: f64, scan: Scan) -> Vec<Step> {
        let rows_per_seek = if scan == Scan::Pages { PAGE_ROWS } else { ROWS };
        let (mut row, mut owed) = (0, 0.0);
        self.fill(|maker| {
            for leaf in row / ROWS..=(row + rows_per_seek - 1) / ROWS {
                let leaf = leaf % maker.leaves;
                maker.add(if scan == Scan::Reverse { maker.leaves - 1 - leaf } else { leaf }, Kind::Read);
            }
            row = (row + rows_per_seek) % maker.rows();
            owed += reads_per_row * rows_per_seek as f64;
            while owed >= 1.0 {
                owed -= 1.0;
                maker.read_hot();
            }
        })
    }

    /// The zipfian reads count as those of the hot set.
    fn zipfian_beside_scan(self) -> Vec<Step> {
        let zipf = Zipf::new(self.rows());
        let mut scanned = 0;
        self.fill(|maker| {
            maker.add(scanned % maker.leaves, Kind::Read);
            scanned += 1;
            let row = mix(zipf.next(&mut maker.random)) % maker.rows();
            maker.add(row / ROWS, Kind::Hot);
        })
    }

    /// Nine reads in ten are of the hot set, of which a tenth is replaced at a time, so that each of its leaves is read about
    /// so often.
    fn moving_hot_set(self, reads_per_leaf: u64) -> Vec<Step> {
        let (mut first, mut reads) = (0, 0);
        self.fill(|maker| {
            if maker.random.below(10) == 0 {
                let leaf = maker.random.below(maker.leaves);
                maker.add(leaf, Kind::Read);
                return;
            }
            let index = (first + maker.random.below(maker.hot)) % maker.leaves;
            let leaf = maker.shuffled[index as usize];
            maker.add(leaf.into(), Kind::Hot);
            reads += 1;
            if reads % (maker.hot * reads_per_leaf / 10) == 0 {
                first += maker.hot / 10;
            }
        })
    }

    /// Leaves are appended at one end, and read, row after row, and deleted at the other.
    fn queue(self) -> Vec<Step> {
        let mut head = 0;
        self.fill(|maker| {
            maker.add(head + maker.leaves, Kind::New);
            (0..ROWS).for_each(|_| maker.add(head, Kind::Read));
            maker.add(head, Kind::Drop);
            head += 1;
        })
    }

    /// Reads of the hot set, each beside a step at any leaf.
    fn hot_beside_others(self, other: Kind) -> Vec<Step> {
        self.fill(|maker| {
            let leaf = maker.random.below(maker.leaves);
            maker.add(leaf, other);
            maker.read_hot();
        })
    }
}

/// Pseudorandom numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Scatters numbers.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Draws rank r, from 0, in proportion to 1 / (r + 1)^0.99.
struct Zipf {
    /// The share of the ranks up to each.
    shares: Vec<f64>,
}

impl Zipf {
    fn new(ranks: u64) -> Zipf {
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=ranks)
            .map(|rank| {
                sum += (rank as f64).powf(-THETA);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        Zipf { shares }
    }

    fn next(&self, random: &mut Random) -> u64 {
        let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        self.shares.partition_point(|share| *share <= unit) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_in_proportion() {
        let zipf = Zipf::new(1_000);
        let mut random = Random(3);
        let mut counts = [0.0; 1_000];
        (0..1_000_000).for_each(|_| counts[zipf.next(&mut random) as usize] += 1.0);
        for rank in [1, 2, 9] {
            let ratio = counts[0] / counts[rank] / (rank as f64 + 1.0).powf(THETA);
            assert!((0.95..1.05).contains(&ratio), "rank {rank}: {ratio}");
        }
        let tail: f64 = counts[500..].iter().sum();
        assert!((tail / 1e6 - (1.0 - zipf.shares[499])).abs() < 0.002);
    }

    #[test]
    fn the_same_seed_makes_the_same_trace() {
        for (name, make) in TRACES {
            let trace = |seed| {
                make(Maker::new(400, 2_000, 50, seed)).iter().map(|step| step.leaf).collect::<Vec<_>>()
            };
            assert_eq!(trace(1), trace(1), "{name}");
        }
    }
}
