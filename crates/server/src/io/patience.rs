//! Short waits of an I/O thread that stays awake: for events, instead of sleeping at once; and for commands that are on their way, so
//! that they share a flush.
//!
//! To wake a thread that sleeps takes tens of microseconds, and a client that waits for its reply sends its next command sooner than
//! that. Seastar polls while idle for the same reason; aggregated flushing (Son, Yeom and Han, 2017) has commits share one.

/// After so many waits in a row in vain, the next [`PAUSE`] times there is none: a load that comes too slowly for it costs one wait in
/// 33.
const MISSES_MAX: u32 = 8;
const PAUSE: u32 = 256;

/// How often a wait looks for events at most, whatever the clock says.
const TURNS_MAX: u32 = 1_024;

/// A flush is put off for at most so many nanoseconds after a connection came, and for at most what a flush takes.
const PUTS_OFF_NS: u64 = 60_000;

/// A wait that ends in time, or in vain. A look for events is a turn.
#[derive(Debug, Default)]
struct Wait {
    /// When the one that is going on ends; 0 if there is none.
    ends_ns: u64,
    turns: u32,
    misses: u32,
    pause: u32,
}

impl Wait {
    /// Whether it begins or goes on.
    fn goes_on(&mut self, now_ns: u64, max_ns: u64) -> bool {
        if self.ends_ns == 0 {
            if self.pause > 0 {
                self.pause -= 1;
                return false;
            }
            (self.ends_ns, self.turns) = (now_ns + max_ns, 0);
        }
        self.turns += 1;
        if now_ns < self.ends_ns && self.turns <= TURNS_MAX {
            return true;
        }
        self.ends_ns = 0;
        self.misses += 1;
        if self.misses == MISSES_MAX {
            (self.misses, self.pause) = (0, PAUSE);
        }
        false
    }

    /// What was awaited came.
    fn succeeds(&mut self) {
        if self.ends_ns != 0 {
            (self.ends_ns, self.misses) = (0, 0);
        }
    }

    fn is_going_on(&self) -> bool {
        self.ends_ns != 0
    }
}

/// Looking for events for a while before the thread sleeps.
#[derive(Debug)]
pub(super) struct IdlePolling {
    max_ns: u64,
    wait: Wait,
}

impl IdlePolling {
    /// For so many nanoseconds; 0 is never.
    pub fn new(max_ns: u64) -> IdlePolling {
        IdlePolling { max_ns, wait: Wait::default() }
    }

    /// Whether the thread looks (again) before it sleeps.
    pub fn goes_on(&mut self, now_ns: u64) -> bool {
        self.max_ns > 0 && self.wait.goes_on(now_ns, self.max_ns)
    }

    /// There were events.
    pub fn succeeds(&mut self) {
        self.wait.succeeds();
    }
}

/// Putting a flush off until as many connections wait as when the last one ended.
///
/// Clients that wait for their replies send their next commands as soon as they have them, one after the other. A flush at once, for the
/// first of them, has the others wait for a second one: each command takes the time of two.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// How many connections waited when the last flush ended.
    expected: usize,
    /// When the flush that is going on began; 0 if there is none.
    began_ns: u64,
    /// What a flush takes, a moving average.
    flush_ns: u64,
    /// How many waited at the last look, while a flush is put off.
    waiting: usize,
    /// At the latest then.
    latest_ns: u64,
    wait: Wait,
}

impl Gathering {
    /// Whether the next flush is put off, while so many connections wait for it.
    pub fn puts_off(&mut self, waiting: usize, now_ns: u64) -> bool {
        if waiting >= self.expected {
            self.wait.succeeds();
            return false;
        }
        if !self.is_putting_off() {
            (self.waiting, self.latest_ns) = (waiting, now_ns + self.flush_ns);
        }
        let max_ns = PUTS_OFF_NS.min(self.latest_ns.saturating_sub(now_ns));
        if waiting > self.waiting {
            self.waiting = waiting;
            self.wait.ends_ns = now_ns + max_ns;
        }
        self.wait.goes_on(now_ns, max_ns)
    }

    /// No flush is wanted any more.
    pub fn stops(&mut self) {
        self.wait.ends_ns = 0;
    }

    pub fn is_putting_off(&self) -> bool {
        self.wait.is_going_on()
    }

    /// A flush begins.
    pub fn begins(&mut self, now_ns: u64) {
        if self.began_ns == 0 {
            self.began_ns = now_ns;
        }
    }

    /// A flush ended, by whichever thread; so many connections waited for it or wait for the next.
    pub fn ended(&mut self, waiting: usize, now_ns: u64) {
        self.expected = waiting;
        self.stops();
        let began_ns = std::mem::take(&mut self.began_ns);
        if began_ns != 0 {
            let took_ns = now_ns.saturating_sub(began_ns);
            self.flush_ns = if self.flush_ns == 0 { took_ns } else { (7 * self.flush_ns + took_ns) / 8 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flushes of 200 us with so many connections.
    fn gathering(waiting: usize) -> Gathering {
        let mut gathering = Gathering::default();
        gathering.begins(1_000);
        gathering.ended(waiting, 201_000);
        gathering
    }

    #[test]
    fn a_flush_waits_for_the_connections_of_the_last_one() {
        let mut gathering = gathering(8);
        assert!(gathering.puts_off(5, 210_000));
        assert!(gathering.is_putting_off());
        assert!(gathering.puts_off(7, 240_000));
        assert!(!gathering.puts_off(8, 250_000));
        assert!(!gathering.is_putting_off());
        assert!(gathering.puts_off(3, 300_000), "the next one");
        gathering.ended(3, 310_000);
        assert!(!gathering.is_putting_off(), "another thread flushed");
        assert!(!gathering.puts_off(3, 320_000));
    }

    #[test]
    fn each_connection_that_comes_has_a_flush_wait_longer() {
        let mut gathering = gathering(8);
        assert!((0..4).all(|n| gathering.puts_off(1 + n as usize, 210_000 + 40_000 * n)));
        assert!(!gathering.puts_off(4, 330_000 + PUTS_OFF_NS), "the last one was there at 330 us");
        let mut slow = super::tests::gathering(100);
        assert!((0..20).all(|n| slow.puts_off(1 + n as usize, 1_000_000 + 10_000 * n)));
        assert!(!slow.puts_off(22, 1_200_000), "by what a flush takes, and no more");
    }

    #[test]
    fn a_lone_connection_waits_for_nobody() {
        assert!(!gathering(1).puts_off(1, 210_000));
        assert!(!Gathering::default().puts_off(1, 1), "the first flush of all");
    }

    #[test]
    fn a_flush_is_put_off_for_what_one_takes_at_most() {
        let mut short = Gathering::default();
        short.begins(1_000);
        short.ended(8, 6_000);
        assert!(short.puts_off(1, 10_000));
        assert!(!short.puts_off(1, 15_000), "a flush takes 5 us");
        let mut long = gathering(8);
        assert!(long.puts_off(1, 300_000));
        assert!(long.puts_off(1, 300_000 + PUTS_OFF_NS - 1));
        assert!(!long.puts_off(1, 300_000 + PUTS_OFF_NS));
    }

    #[test]
    fn waits_in_vain_are_given_up_for_a_while() {
        let mut polling = IdlePolling::new(50_000);
        let mut now_ns = 1;
        let mut misses = |polling: &mut IdlePolling| {
            now_ns += 1_000_000;
            polling.goes_on(now_ns) && !polling.goes_on(now_ns + 50_000)
        };
        assert!((0..MISSES_MAX).all(|_| misses(&mut polling)));
        assert!((0..PAUSE).all(|_| !misses(&mut polling)));
        assert!((1..MISSES_MAX).all(|_| misses(&mut polling)));
        assert!(polling.goes_on(1));
        polling.succeeds();
        assert!((0..MISSES_MAX).all(|_| misses(&mut polling)), "one that succeeds begins the count anew");
        assert!(!misses(&mut polling));
    }

    #[test]
    fn a_clock_that_stands_still_ends_no_wait_never() {
        let mut polling = IdlePolling::new(50_000);
        assert!((0..TURNS_MAX).all(|_| polling.goes_on(7)));
        assert!(!polling.goes_on(7));
        assert!(!IdlePolling::new(0).goes_on(7));
    }
}
