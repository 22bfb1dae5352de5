//! `CLIENT PAUSE`: for a while no command runs, or none that writes.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// The longest pause: some hundred million years.
const UNTIL_MS_MAX: u64 = u64::MAX >> 1;

/// Set in the state of a pause of all commands.
const ALL: u64 = 1;

/// Whether, and until when, commands are paused.
///
/// A command that writes looks at it once it has the locks of its keys. `CLIENT PAUSE` sets it, and then takes each of these locks
/// once; so when it replies, no command is about to commit that did not see the pause.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// 0 without a pause. Else its end, a monotonic time in milliseconds, twice, and [`ALL`].
    state: AtomicU64,
}

impl Pause {
    /// Pauses all commands, or those that write. Of a pause that goes on the wider kind stays.
    pub fn begin(&self, until_ms: u64, of_all: bool, now_ms: u64) {
        let before = self.state.load(SeqCst);
        let keeps_all = before & ALL == ALL && before >> 1 > now_ms;
        self.state.store(until_ms.min(UNTIL_MS_MAX) << 1 | u64::from(of_all || keeps_all), SeqCst);
    }

    pub fn end(&self) {
        self.state.store(0, SeqCst);
    }

    /// Whether a command has to wait that writes, or does not.
    #[inline]
    pub fn holds(&self, writes: impl FnOnce() -> bool, now_ms: impl FnOnce() -> u64) -> bool {
        let state = self.state.load(SeqCst);
        state != 0 && state >> 1 > now_ms() && (state & ALL == ALL || writes())
    }

    /// How long the pause is still to last.
    pub fn remaining(&self, now_ms: u64) -> Duration {
        Duration::from_millis((self.state.load(SeqCst) >> 1).saturating_sub(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_holds_its_kind_until_its_end() {
        let pause = Pause::default();
        assert!(!pause.holds(|| true, || 1_000));
        pause.begin(2_000, false, 1_000);
        assert!(
            pause.holds(|| true, || 1_999)
                && !pause.holds(|| false, || 1_000)
                && !pause.holds(|| true, || 2_000)
        );
        pause.begin(3_000, true, 1_000);
        pause.begin(4_000, false, 1_000);
        assert!(pause.holds(|| false, || 3_999), "the wider kind stays");
        assert_eq!(pause.remaining(3_000), Duration::from_secs(1));
        pause.begin(9_000, false, 5_000);
        assert!(!pause.holds(|| false, || 6_000), "that of a pause that is over does not");
        pause.end();
        assert!(!pause.holds(|| true, || 6_000) && pause.remaining(6_000).is_zero());
        pause.begin(u64::MAX, true, 6_000);
        assert!(pause.holds(|| false, || u64::MAX >> 2));
    }
}
