//! The rows of the examples that measure: which ones there are, and which are read or overwritten next.

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 100 bytes.
    Rows,
    /// 4 KiB.
    Pages,
    /// 100 bytes to 64 KiB, evenly on a logarithmic scale.
    Mixed,
}

impl Kind {
    /// The mean length of a row, with its key of 16 bytes.
    pub fn row_bytes(self) -> u64 {
        match self {
            Kind::Rows => 116,
            Kind::Pages => 4112,
            Kind::Mixed => 10_110,
        }
    }
}

/// The rows.
pub struct Data {
    pub kind: Kind,
    pub count: u64,
    /// With it a few rows are chosen most often; without, all of them alike.
    zipf: Option<Zipf>,
}

impl Data {
    pub fn new(kind: Kind, bytes: u64, is_zipfian: bool) -> Data {
        let count = bytes / kind.row_bytes();
        Data { kind, count, zipf: is_zipfian.then(|| Zipf::new(count)) }
    }

    /// The bytes of a value begin with its number.
    pub fn value(&self, n: u64, round: u64, value: &mut Vec<u8>) {
        let len = match self.kind {
            Kind::Rows => 100,
            Kind::Pages => 4096,
            Kind::Mixed => {
                let scale = (hash(n ^ round << 40) >> 11) as f64 / (1u64 << 53) as f64;
                (100.0 * 655.36f64.powf(scale)) as usize
            }
        };
        value.clear();
        value.extend_from_slice(&n.to_le_bytes());
        value.extend_from_slice(&round.to_le_bytes());
        value.resize(len, n as u8);
    }

    pub fn pick(&self, random: &mut Random) -> u64 {
        match &self.zipf {
            Some(zipf) => hash(zipf.rank(random)) % self.count,
            None => random.next() % self.count,
        }
    }
}

pub fn key(n: u64) -> [u8; 16] {
    let mut key = *b"row 000000000000";
    key[4..].copy_from_slice(format!("{n:012}").as_bytes());
    key
}

fn hash(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    n ^ n >> 29
}

/// Numbers that are the same in each run.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        hash(hash(self.0))
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Ranks with a zipfian distribution (Gray and others, SIGMOD 1994, as in YCSB).
struct Zipf {
    count: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    fn new(count: u64) -> Zipf {
        let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-Zipf::THETA)).sum();
        let zeta_2 = 1.0 + 0.5f64.powf(Zipf::THETA);
        let count = count as f64;
        Zipf { count, zeta, eta: (1.0 - (2.0 / count).powf(1.0 - Zipf::THETA)) / (1.0 - zeta_2 / zeta) }
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let at = unit * self.zeta;
        if at < 1.0 {
            return 0;
        }
        if at < 1.0 + 0.5f64.powf(Zipf::THETA) {
            return 1;
        }
        (self.count * (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - Zipf::THETA))) as u64
    }
}
