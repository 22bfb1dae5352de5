//! Latencies, and the figures computed from them.

/// What one case took, over all of its turns.
#[derive(Debug, Default)]
pub(super) struct Samples {
    latencies_ns: Vec<u64>,
    elapsed_ns: u64,
}

/// The figures of a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    /// How many operations were measured; with a sync for several writes each such group counts as one.
    pub count: u64,
    /// Half of them took at most this long, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 took at most this long.
    pub p99_us: f64,
    /// Writes or reads a second.
    pub per_second: f64,
    pub bytes_per_second: f64,
}

impl Samples {
    /// One thread did this operation, and nothing else meanwhile.
    pub fn add(&mut self, latency_ns: u64) {
        self.latencies_ns.push(latency_ns);
        self.elapsed_ns += latency_ns;
    }

    /// Several threads did these operations within `elapsed_ns`.
    pub fn add_all(&mut self, latencies_ns: &[u64], elapsed_ns: u64) {
        self.latencies_ns.extend_from_slice(latencies_ns);
        self.elapsed_ns += elapsed_ns;
    }

    /// The figures, if each operation counts as `writes` and each write moves `bytes`.
    pub fn figures(mut self, writes: u64, bytes: usize) -> Figures {
        self.latencies_ns.sort_unstable();
        let count = self.latencies_ns.len() as u64;
        let seconds = (self.elapsed_ns as f64 / 1e9).max(1e-9);
        let per_second = (count * writes) as f64 / seconds;
        Figures {
            count,
            p50_us: self.percentile_us(50),
            p99_us: self.percentile_us(99),
            per_second,
            bytes_per_second: per_second * bytes as f64,
        }
    }

    /// The smallest latency that this percentage of operations does not exceed; the list is sorted.
    fn percentile_us(&self, percent: usize) -> f64 {
        let rank = (self.latencies_ns.len() * percent).div_ceil(100).max(1);
        self.latencies_ns.get(rank - 1).map_or(0.0, |ns| *ns as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_latencies_that_occurred() {
        let mut samples = Samples::default();
        (1..=200u64).rev().for_each(|us| samples.add(us * 1_000));
        let figures = samples.figures(1, 4_096);
        assert_eq!((figures.count, figures.p50_us, figures.p99_us), (200, 100.0, 198.0));
        assert_eq!(figures.per_second.round(), (200.0 / 0.0201_f64).round());
        assert_eq!(figures.bytes_per_second, figures.per_second * 4_096.0);
    }

    #[test]
    fn a_group_of_writes_counts_as_so_many() {
        let mut samples = Samples::default();
        samples.add_all(&[500_000; 4], 1_000_000);
        let figures = samples.figures(16, 4_096);
        assert_eq!((figures.count, figures.p50_us, figures.p99_us), (4, 500.0, 500.0));
        assert_eq!(figures.per_second, 64_000.0);
    }
}
