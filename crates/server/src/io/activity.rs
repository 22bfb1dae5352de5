//! How many connections of an I/O thread sent commands lately.

/// The length of a period, in nanoseconds.
const PERIOD_NS: u64 = 50_000_000;

/// How many connections were active in this period and in the one before.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// The number of this period, from 1.
    period: u64,
    ends_ns: u64,
    now: usize,
    before: usize,
}

impl Activity {
    /// It is so late.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns < self.ends_ns {
            return;
        }
        let has_missed_one = now_ns >= self.ends_ns + PERIOD_NS;
        self.before = if has_missed_one { 0 } else { self.now };
        (self.period, self.ends_ns, self.now) = (self.period + 1, now_ns + PERIOD_NS, 0);
    }

    /// A connection sent something; `active_in` is its mark of the last time.
    pub fn note(&mut self, active_in: &mut u64) {
        if *active_in != self.period {
            *active_in = self.period;
            self.now += 1;
        }
    }

    /// How many were active lately.
    pub fn connections(&self) -> usize {
        self.now.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_once_in_a_period_and_for_one_after_it() {
        let mut activity = Activity::default();
        let mut marks = [0; 3];
        activity.tick(1_000);
        for _ in 0..2 {
            marks.iter_mut().for_each(|mark| activity.note(mark));
        }
        assert_eq!(activity.connections(), 3);
        activity.tick(1_000 + PERIOD_NS);
        activity.note(&mut marks[0]);
        assert_eq!(activity.connections(), 3);
        activity.tick(1_000 + 2 * PERIOD_NS);
        assert_eq!(activity.connections(), 1);
        activity.tick(1_000 + 9 * PERIOD_NS);
        assert_eq!(activity.connections(), 0);
    }
}
