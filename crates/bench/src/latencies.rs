//! Latencies, as a distribution.

use hdrhistogram::Histogram;

use crate::run::Latency;

/// The longest latency that is distinguished from longer ones: ten minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Latencies of operations. Percentiles resolve differences of one hundredth of a value; the mean is exact.
pub(crate) struct Latencies {
    sum_ns: u64,
    histogram_ns: Histogram<u64>,
}

impl Latencies {
    pub fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2);
        Latencies { sum_ns: 0, histogram_ns: histogram.expect("the bounds are good") }
    }

    pub fn record(&mut self, latency_ns: u64) {
        self.histogram_ns.saturating_record(latency_ns);
        self.sum_ns += latency_ns;
    }

    pub fn add(&mut self, other: &Latencies) {
        self.histogram_ns.add(&other.histogram_ns).expect("all histograms have the same bounds");
        self.sum_ns += other.sum_ns;
    }

    pub fn clear(&mut self) {
        self.histogram_ns.reset();
        self.sum_ns = 0;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram_ns.len()
    }

    pub fn summary(&self) -> Latency {
        Latency {
            mean_ns: self.sum_ns / self.count().max(1),
            p50_ns: self.histogram_ns.value_at_quantile(0.5),
            p99_ns: self.histogram_ns.value_at_quantile(0.99),
            p999_ns: self.histogram_ns.value_at_quantile(0.999),
            max_ns: self.histogram_ns.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_all() {
        let mut all = Latencies::new();
        for value_ns in [100, 300] {
            let mut one = Latencies::new();
            one.record(value_ns);
            all.add(&one);
        }
        let Latency { mean_ns, p50_ns, max_ns, .. } = all.summary();
        assert_eq!((all.count(), mean_ns), (2, 200));
        assert!((99..=101).contains(&p50_ns) && (297..=303).contains(&max_ns), "{p50_ns} {max_ns}");
        all.clear();
        assert_eq!((all.count(), all.summary()), (0, Latency::default()));
    }
}
