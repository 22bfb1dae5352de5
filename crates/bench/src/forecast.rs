//! How long the rest will take.

use crate::plan::{Limit, Plan};

/// One run among all: the round from 1, the places of the number of threads and of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    pub round: u32,
    pub threads: usize,
    pub engine: usize,
}

/// Seconds that a run takes beside what a limit of time gives it: making, filling, counting, closing, the bare device.
const AROUND_SECONDS: f64 = 1.0;

/// What is known about the runs: how long each took in the last round, and what the rate was of the newest.
pub(crate) struct Forecast {
    limit: Limit,
    warm_up: u64,
    rounds: u32,
    threads: Vec<u32>,
    engines: usize,
    /// By threads and engine.
    took_seconds: Vec<Option<f64>>,
    /// Of the newest run, whichever it was.
    transactions_per_second: Option<f64>,
    at: Step,
    /// Since the run at hand began.
    elapsed_seconds: f64,
}

impl Forecast {
    pub fn new(plan: &Plan) -> Forecast {
        Forecast {
            limit: plan.limit,
            warm_up: plan.warm_up,
            rounds: plan.rounds,
            threads: plan.threads.clone(),
            engines: plan.engines.len(),
            took_seconds: vec![None; plan.threads.len() * plan.engines.len()],
            transactions_per_second: None,
            at: Step { round: 1, threads: 0, engine: 0 },
            elapsed_seconds: 0.0,
        }
    }

    /// The run at hand has done so much.
    pub fn now(&mut self, step: Step, transactions: u64, elapsed_seconds: f64) {
        (self.at, self.elapsed_seconds) = (step, elapsed_seconds);
        // The first moments of a run tell nothing.
        if elapsed_seconds > 0.5 && transactions > 0 {
            self.transactions_per_second = Some(transactions as f64 / elapsed_seconds);
        }
    }

    /// A run is over.
    pub fn finished(&mut self, step: Step, seconds: f64) {
        let place = self.place(step.threads, step.engine);
        self.took_seconds[place] = Some(seconds);
        let all = self.all_transactions(step.threads);
        if let Some(all) = all.filter(|_| seconds > 0.0) {
            self.transactions_per_second = Some(all / seconds);
        }
        self.elapsed_seconds = 0.0;
        self.at = self.next(step);
    }

    /// About how many seconds all that is not done will take.
    pub fn left_seconds(&self) -> Option<f64> {
        let mut sum = 0.0;
        let mut step = self.at;
        while step.round <= self.rounds {
            sum += self.expected_seconds(step)?;
            step = self.next(step);
        }
        Some((sum - self.elapsed_seconds).max(0.0))
    }

    fn expected_seconds(&self, step: Step) -> Option<f64> {
        if let Some(seconds) = self.took_seconds[self.place(step.threads, step.engine)] {
            return Some(seconds);
        }
        match self.limit {
            Limit::Time(time) => Some(time.as_secs_f64() + AROUND_SECONDS),
            Limit::Transactions(_) => {
                Some(self.all_transactions(step.threads)? / self.transactions_per_second?)
            }
        }
    }

    fn all_transactions(&self, threads: usize) -> Option<f64> {
        match self.limit {
            Limit::Transactions(each) => {
                Some((each + self.warm_up) as f64 * f64::from(self.threads[threads]))
            }
            Limit::Time(_) => None,
        }
    }

    fn place(&self, threads: usize, engine: usize) -> usize {
        threads * self.engines + engine
    }

    fn next(&self, step: Step) -> Step {
        if step.engine + 1 < self.engines {
            Step { engine: step.engine + 1, ..step }
        } else if step.threads + 1 < self.threads.len() {
            Step { threads: step.threads + 1, engine: 0, ..step }
        } else {
            Step { round: step.round + 1, threads: 0, engine: 0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(limit: Limit) -> Forecast {
        Forecast {
            limit,
            warm_up: 0,
            rounds: 2,
            threads: vec![1, 2],
            engines: 1,
            took_seconds: vec![None; 2],
            transactions_per_second: None,
            at: Step { round: 1, threads: 0, engine: 0 },
            elapsed_seconds: 0.0,
        }
    }

    #[test]
    fn a_limit_of_time_is_known_beforehand() {
        let forecast = forecast(Limit::Time(std::time::Duration::from_secs(9)));
        assert_eq!(forecast.left_seconds(), Some(40.0));
    }

    #[test]
    fn rates_tell_at_first_and_earlier_rounds_later() {
        let mut forecast = forecast(Limit::Transactions(100));
        assert_eq!(forecast.left_seconds(), None);
        let step = Step { round: 1, threads: 0, engine: 0 };
        forecast.now(step, 50, 1.0);
        assert_eq!(forecast.left_seconds(), Some(2.0 + 4.0 + 2.0 + 4.0 - 1.0));
        forecast.finished(step, 1.0);
        assert_eq!(forecast.left_seconds(), Some(2.0 + 1.0 + 2.0));
        forecast.finished(Step { threads: 1, ..step }, 5.0);
        assert_eq!(forecast.left_seconds(), Some(1.0 + 5.0));
    }
}
