//! How soon the disk is full: the rate at which the room for puts has shrunk lately.
//!
//! What may still be put is what the room has beside all that is kept, and what checkpoints would free. The log that a
//! checkpoint covers counts as freed, so this falls by what stays, not with the log between two checkpoints; and it falls
//! with what other programs write to the disk, too.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// The rate is that of the last minute.
const WINDOW_NS: u64 = 60_000_000_000;

/// How often a sample is taken, if anything looks.
const EVERY_NS: u64 = 2_000_000_000;

/// Over a shorter time there is no rate.
const SPAN_NS_MIN: u64 = 4_000_000_000;

/// The room for puts at some times of the last minute, oldest first.
#[derive(Default)]
pub(crate) struct Growth(Mutex<VecDeque<Sample>>);

#[derive(Clone, Copy)]
struct Sample {
    at_ns: u64,
    left_bytes: u64,
}

impl Growth {
    /// Notes how much is left, if a sample is due. `left_bytes` is asked for only then.
    pub fn note(&self, now_ns: u64, left_bytes: impl FnOnce() -> Option<u64>) {
        let is_due = |samples: &VecDeque<Sample>| {
            samples.back().is_none_or(|last| now_ns.saturating_sub(last.at_ns) >= EVERY_NS)
        };
        if !is_due(&self.0.lock()) {
            return;
        }
        // Not under the lock: that takes others.
        let Some(left_bytes) = left_bytes() else { return };
        let mut samples = self.0.lock();
        if is_due(&samples) {
            samples.push_back(Sample { at_ns: now_ns, left_bytes });
            drop_old(&mut samples, now_ns);
        }
    }

    /// After how many seconds nothing is left, if `left_bytes` are now, at the rate of the last minute, or of the time
    /// since the first sample in it. `None` if less than that shrinks, or for too short a time.
    pub fn seconds_left(&self, now_ns: u64, left_bytes: u64) -> Option<u64> {
        let mut samples = self.0.lock();
        drop_old(&mut samples, now_ns);
        let first = samples.front()?;
        let span_ns = now_ns.saturating_sub(first.at_ns);
        let shrunk = first.left_bytes.checked_sub(left_bytes).filter(|bytes| *bytes > 0)?;
        let seconds = u128::from(left_bytes) * u128::from(span_ns) / u128::from(shrunk) / 1_000_000_000;
        (span_ns >= SPAN_NS_MIN).then(|| u64::try_from(seconds).unwrap_or(u64::MAX))
    }
}

fn drop_old(samples: &mut VecDeque<Sample>, now_ns: u64) {
    while samples.front().is_some_and(|first| now_ns.saturating_sub(first.at_ns) > WINDOW_NS) {
        samples.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_rate_is_that_of_the_last_minute() {
        let growth = Growth::default();
        assert_eq!(growth.seconds_left(0, 1000), None, "nothing is known");
        // 10 bytes a second, later 1.
        for second in 0..200 {
            let left = if second < 100 { 10_000 - 10 * second } else { 9_100 - second };
            growth.note(second * SECOND, || Some(left));
            let expected = match second {
                0..4 => None,
                4..100 => Some(left / 10),
                160.. => Some(left),
                _ => growth.seconds_left(second * SECOND, left),
            };
            assert_eq!(growth.seconds_left(second * SECOND, left), expected, "second {second}");
        }
        assert_eq!(growth.seconds_left(300 * SECOND, 8_000), None, "nothing looked for longer than a minute");
    }

    #[test]
    fn what_does_not_shrink_has_no_end() {
        let growth = Growth::default();
        growth.note(0, || Some(100));
        growth.note(SECOND, || panic!("no sample is due"));
        assert_eq!(growth.seconds_left(10 * SECOND, 100), None);
        assert_eq!(growth.seconds_left(10 * SECOND, 200), None);
        assert_eq!(growth.seconds_left(10 * SECOND, 0), Some(0));
        growth.note(20 * SECOND, || None);
        assert_eq!(growth.0.lock().len(), 1, "the free space was not known");
    }
}
