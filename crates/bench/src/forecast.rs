//! Estimates how long the rest of a benchmark takes.

/// Data on the runs of a plan: how long each took in the last round, and what its limit implies.
pub(crate) struct Forecast {
    rounds: u32,
    /// For each run of a round, in order: the expected time before its first round; `None` if it is unknown.
    expected_seconds: Vec<Option<f64>>,
    took_seconds: Vec<Option<f64>>,
    round: u32,
    run: usize,
    /// Since the current run began.
    elapsed_seconds: f64,
    /// The share of the current run that is done, if it is known.
    share: f64,
}

impl Forecast {
    pub fn new(rounds: u32, expected_seconds: Vec<Option<f64>>) -> Forecast {
        let took_seconds = vec![None; expected_seconds.len()];
        Forecast {
            rounds,
            expected_seconds,
            took_seconds,
            round: 1,
            run: 0,
            elapsed_seconds: 0.0,
            share: 0.0,
        }
    }

    /// The current run has come this far.
    pub fn now(&mut self, round: u32, run: usize, elapsed_seconds: f64, share: f64) {
        (self.round, self.run, self.elapsed_seconds, self.share) = (round, run, elapsed_seconds, share);
    }

    /// The current run is over.
    pub fn finished(&mut self, round: u32, run: usize, elapsed_seconds: f64) {
        self.now(round, run, elapsed_seconds, 1.0);
        self.took_seconds[run] = Some(elapsed_seconds);
    }

    /// About how many seconds the rest takes; `None` while there is no estimate.
    pub fn left_seconds(&self) -> Option<f64> {
        let of_run = |run: usize| self.took_seconds[run].or(self.expected_seconds[run]);
        let runs = self.took_seconds.len();
        // The share that is done gives an estimate for the current run, and, for lack of a better one, for the runs
        // after it.
        let by_share = (self.share > 0.02).then(|| self.elapsed_seconds / self.share);
        let known: Vec<f64> = (0..runs).filter_map(of_run).chain(by_share).collect();
        let average = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        let mut left = of_run(self.run).or(by_share).or(average)? - self.elapsed_seconds;
        left = left.max(0.0);
        for run in self.run + 1..runs {
            left += of_run(run).or(average)?;
        }
        let round: Option<f64> = (0..runs).map(|run| of_run(run).or(average)).sum();
        Some(left + round? * f64::from(self.rounds - self.round))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_time_are_known_beforehand() {
        let forecast = Forecast::new(2, vec![Some(10.0), Some(5.0)]);
        assert_eq!(forecast.left_seconds(), Some(30.0));
    }

    #[test]
    fn measured_times_replace_expected_ones() {
        let mut forecast = Forecast::new(2, vec![Some(10.0), None]);
        forecast.finished(1, 0, 12.0);
        forecast.now(1, 1, 1.0, 0.25);
        assert_eq!(forecast.left_seconds(), Some(3.0 + 12.0 + 8.0));
    }

    #[test]
    fn without_figures_there_is_no_estimate() {
        assert_eq!(Forecast::new(1, vec![None]).left_seconds(), None);
    }
}
