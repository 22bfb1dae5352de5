//! Short waits of an I/O thread that stays awake: for events, instead of sleeping at once; and for commands that are on their way, so
//! that they share a flush.
//!
//! To wake a thread that sleeps takes tens of microseconds, and a client that waits for its reply sends its next command sooner than
//! that. Seastar polls while idle for the same reason; aggregated flushing (Son, Yeom and Han, 2017) has commits share one.

use std::time::Duration;

/// A wait in vain counts [`MISS`], one that succeeds takes 1 off. At [`MISSES_MAX`] there is none for the next [`PAUSE`] times: a load
/// for which they do not pay has one in 33.
const MISS: u32 = 2;
const MISSES_MAX: u32 = 16;
const PAUSE: u32 = 256;

/// How often a wait looks for events at most, whatever the clock says.
const TURNS_MAX: u32 = 1_024;

/// The longest that a thread looks for events before it sleeps.
pub(crate) const IDLE_POLL_MAX: Duration = Duration::from_millis(1);

/// A flush is put off for at most so many nanoseconds after a connection came, for at most so many in all, and for at most what a flush
/// takes.
const PUTS_OFF_NS: u64 = 60_000;
const PUTS_OFF_ALL_NS: u64 = 4 * PUTS_OFF_NS;

/// A thread that always has commands to run, most of which wait for a flush, has that wait until one in so many active connections waits
/// for it: a flush takes as much processor time as a dozen commands.
const SHARE: usize = 3;

/// ... for at most so many times what a flush takes, and for at most so many nanoseconds.
const BUSY_FLUSHES: u64 = 4;
const BUSY_PUTS_OFF_NS: u64 = 1_000_000;

/// A yield that takes longer gave the processor to a thread that keeps it: waiting awake is given up at once.
const LOST_NS: u64 = 200_000;

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
        self.misses += MISS;
        if self.misses >= MISSES_MAX {
            self.pauses();
        }
        false
    }

    /// What was awaited came.
    fn succeeds(&mut self) {
        if self.is_going_on() {
            (self.ends_ns, self.misses) = (0, self.misses.saturating_sub(1));
        }
    }

    /// The thread yielded the processor, from one time to another.
    fn yielded(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns.saturating_sub(from_ns) > LOST_NS {
            self.pauses();
        }
    }

    fn pauses(&mut self) {
        (self.ends_ns, self.misses, self.pause) = (0, 0, PAUSE);
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
    /// For so long; 0 is never.
    pub fn new(max: Duration) -> IdlePolling {
        IdlePolling { max_ns: max.min(IDLE_POLL_MAX).as_nanos() as u64, wait: Wait::default() }
    }

    /// Whether the thread looks (again) before it sleeps.
    pub fn goes_on(&mut self, now_ns: u64) -> bool {
        self.max_ns > 0 && self.wait.goes_on(now_ns, self.max_ns)
    }

    /// There were events.
    pub fn succeeds(&mut self) {
        self.wait.succeeds();
    }

    /// The thread yielded the processor, from one time to another. Whether it looks again.
    pub fn yielded(&mut self, from_ns: u64, to_ns: u64) -> bool {
        self.wait.yielded(from_ns, to_ns);
        self.wait.is_going_on()
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
    busy: Busy,
}

/// Putting a flush off while there are commands to run.
#[derive(Debug, Default)]
struct Busy {
    /// Until when; 0 if that has not begun.
    ends_ns: u64,
    /// Whether the thread had nothing to do since the last flush began.
    was_idle: bool,
    /// How many turns connections had since then.
    turns: usize,
}

impl Gathering {
    /// Whether the next flush is put off, while so many connections wait for it, of those that are active.
    pub fn puts_off(&mut self, waiting: usize, active: usize, now_ns: u64) -> bool {
        // A few writers among readers would only wait longer.
        let most_wait = 2 * waiting >= self.busy.turns;
        if most_wait && !self.busy.was_idle && waiting < active / SHARE {
            if self.busy.ends_ns == 0 {
                self.busy.ends_ns = now_ns + (BUSY_FLUSHES * self.flush_ns).min(BUSY_PUTS_OFF_NS);
            }
            return now_ns < self.busy.ends_ns;
        }
        if waiting >= self.expected {
            self.wait.succeeds();
            return false;
        }
        if !self.wait.is_going_on() {
            (self.waiting, self.latest_ns) = (waiting, now_ns + self.flush_ns.min(PUTS_OFF_ALL_NS));
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
        (self.wait.ends_ns, self.began_ns) = (0, 0);
        self.busy = Busy::default();
    }

    /// The flush begins at once.
    pub fn puts_off_no_more(&mut self) {
        self.wait.ends_ns = 0;
    }

    pub fn is_putting_off(&self) -> bool {
        self.wait.is_going_on() || self.busy.ends_ns != 0
    }

    /// The thread had nothing to do meanwhile, and yielded the processor from one time to another.
    pub fn yielded(&mut self, from_ns: u64, to_ns: u64) {
        self.wait.yielded(from_ns, to_ns);
        self.busy = Busy { was_idle: true, ..Busy::default() };
    }

    /// A connection had its turn.
    pub fn turned(&mut self) {
        self.busy.turns += 1;
    }

    /// A flush begins.
    pub fn begins(&mut self, now_ns: u64) {
        self.busy = Busy::default();
        if self.began_ns == 0 {
            self.began_ns = now_ns;
        }
    }

    /// A flush ended, by whichever thread; so many connections waited for it or wait for the next.
    pub fn ended(&mut self, waiting: usize, now_ns: u64) {
        if self.began_ns != 0 {
            // One that stalls is no measure of the next.
            let took_ns = now_ns.saturating_sub(self.began_ns).min(2 * self.flush_ns.max(PUTS_OFF_NS));
            self.flush_ns = if self.flush_ns == 0 { took_ns } else { (7 * self.flush_ns + took_ns) / 8 };
        }
        self.expected = waiting;
        self.stops();
    }

    /// What a flush takes; 0 if that is not known yet.
    pub fn flush_ns(&self) -> u64 {
        self.flush_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flushes of about 200 us; so many connections waited for the last one.
    fn gathering(waiting: usize) -> Gathering {
        let mut gathering = Gathering::default();
        for _ in 0..40 {
            gathering.begins(1_000);
            gathering.ended(waiting, 201_000);
        }
        gathering
    }

    #[test]
    fn a_flush_waits_for_the_connections_of_the_last_one() {
        let mut gathering = gathering(8);
        assert!(gathering.puts_off(5, 0, 210_000));
        assert!(gathering.is_putting_off());
        assert!(gathering.puts_off(7, 0, 240_000));
        assert!(!gathering.puts_off(8, 0, 250_000));
        assert!(!gathering.is_putting_off());
        assert!(gathering.puts_off(3, 0, 300_000), "the next one");
        gathering.ended(3, 310_000);
        assert!(!gathering.is_putting_off(), "another thread flushed");
        assert!(!gathering.puts_off(3, 0, 320_000));
    }

    #[test]
    fn each_connection_that_comes_has_a_flush_wait_longer() {
        let mut coming = gathering(8);
        assert!((0..4).all(|n| coming.puts_off(1 + n as usize, 0, 210_000 + 40_000 * n)));
        assert!(!coming.puts_off(4, 0, 330_000 + PUTS_OFF_NS), "the last one was there at 330 us");
        let mut many = gathering(100);
        assert!((0..19).all(|n| many.puts_off(1 + n as usize, 0, 1_000_000 + 10_000 * n)));
        assert!(!many.puts_off(22, 0, 1_200_000), "by what a flush takes, and no more");
    }

    #[test]
    fn a_busy_thread_has_a_flush_wait_for_a_third_of_the_active_connections() {
        let mut gathering = gathering(20);
        assert!(gathering.puts_off(30, 300, 1_000_000) && gathering.is_putting_off());
        assert!(gathering.puts_off(99, 300, 1_400_000), "more came in each look");
        assert!(!gathering.puts_off(100, 300, 1_500_000));
        gathering.begins(1_500_000);
        assert!(!gathering.is_putting_off());
        assert!(gathering.puts_off(30, 300, 2_000_000));
        assert!(!gathering.puts_off(90, 300, 2_000_000 + BUSY_FLUSHES * 200_000), "so many flushes long");
        gathering.begins(3_000_000);
        gathering.ended(20, 3_200_000);
        assert!(gathering.puts_off(30, 300, 4_000_000));
        gathering.yielded(4_010_000, 4_020_000);
        assert!(
            !gathering.puts_off(31, 300, 4_020_000),
            "it has nothing to do, and as many wait as for the last one"
        );
        gathering.begins(4_020_000);
        assert!(gathering.puts_off(31, 300, 4_300_000), "for the next flush it is busy again");
    }

    #[test]
    fn a_thread_that_is_busy_no_more_waits_for_the_connections_of_the_last_flush() {
        let mut gathering = gathering(8);
        assert!(gathering.puts_off(1, 8, 1_000_000));
        assert!(gathering.puts_off(3, 8, 1_020_000), "more than a third");
        assert!(gathering.puts_off(3, 8, 1_079_000), "60 us after the last one");
        assert!(gathering.puts_off(8, 100, 1_079_000) && !gathering.puts_off(8, 8, 1_079_500));
        gathering.begins(1_080_000);
        gathering.ended(8, 1_280_000);
        assert!(gathering.puts_off(1, 8, 2_000_000));
        gathering.yielded(2_000_000, 2_010_000);
        assert!(gathering.puts_off(1, 8, 2_010_000) && gathering.puts_off(1, 8, 2_069_000));
        assert!(!gathering.puts_off(1, 8, 2_070_000));
    }

    #[test]
    fn a_busy_thread_has_no_flush_wait_if_few_commands_write() {
        let mut gathering = gathering(3);
        (0..21).for_each(|_| gathering.turned());
        assert!(!gathering.puts_off(10, 300, 1_000_000), "of 21");
        assert!(gathering.puts_off(11, 300, 1_000_000));
        gathering.begins(1_000_000);
        (0..3).for_each(|_| gathering.turned());
        assert!(gathering.puts_off(3, 300, 1_200_000), "all of them");
    }

    #[test]
    fn a_busy_thread_has_no_flush_wait_for_a_long_one() {
        let mut gathering = Gathering::default();
        for _ in 0..80 {
            gathering.begins(1_000);
            gathering.ended(8, 30_001_000);
        }
        assert!(gathering.flush_ns() > BUSY_PUTS_OFF_NS);
        assert!(gathering.puts_off(9, 300, 100_000_000));
        assert!(gathering.puts_off(9, 300, 100_000_000 + BUSY_PUTS_OFF_NS - 1));
        assert!(!gathering.puts_off(9, 300, 100_000_000 + BUSY_PUTS_OFF_NS));
    }

    #[test]
    fn a_lone_connection_waits_for_nobody() {
        assert!(!gathering(1).puts_off(1, 0, 210_000));
        assert!(!Gathering::default().puts_off(1, 0, 1), "the first flush of all");
    }

    #[test]
    fn a_flush_is_put_off_for_what_one_takes_at_most() {
        let mut short = Gathering::default();
        short.begins(1_000);
        short.ended(8, 6_000);
        assert!(short.puts_off(1, 0, 10_000));
        assert!(!short.puts_off(1, 0, 15_000), "a flush takes 5 us");
        let mut long = gathering(8);
        assert!(long.puts_off(1, 0, 300_000));
        assert!(long.puts_off(1, 0, 300_000 + PUTS_OFF_NS - 1));
        assert!(!long.puts_off(1, 0, 300_000 + PUTS_OFF_NS));
    }

    #[test]
    fn a_flush_that_stalls_makes_the_next_ones_wait_little_longer() {
        let mut gathering = gathering(8);
        gathering.begins(1_000);
        gathering.ended(100, 2_000_000_000);
        assert!(gathering.flush_ns() < 300_000, "{}", gathering.flush_ns());
        for _ in 0..40 {
            gathering.begins(1_000);
            gathering.ended(100, 2_000_000_000);
        }
        assert!(gathering.flush_ns() > 1_000_000, "all of them are as long");
        let coming = |n: u64| 3_000_000_000 + 10_000 * n;
        let put_off = (0..90).take_while(|n| gathering.puts_off(1 + *n as usize, 0, coming(*n))).count();
        assert_eq!(put_off as u64, PUTS_OFF_ALL_NS / 10_000);
    }

    /// Begins a wait that ends in vain. Whether it began.
    fn misses(polling: &mut IdlePolling) -> bool {
        polling.goes_on(1) && !polling.goes_on(50_001)
    }

    /// Begins a wait that succeeds. Whether it began.
    fn succeeds(polling: &mut IdlePolling) -> bool {
        let began = polling.goes_on(1);
        polling.succeeds();
        began
    }

    #[test]
    fn waits_in_vain_are_given_up_for_a_while() {
        let mut polling = IdlePolling::new(Duration::from_micros(50));
        assert!((0..MISSES_MAX / MISS).all(|_| misses(&mut polling)));
        assert!((0..PAUSE).all(|_| !misses(&mut polling)));
        assert!((1..MISSES_MAX / MISS).all(|_| misses(&mut polling)));
        assert!((0..MISS).all(|_| succeeds(&mut polling)), "as many as make up for a miss");
        assert!((0..2).all(|_| misses(&mut polling)));
        assert!(!misses(&mut polling));
    }

    #[test]
    fn waits_of_which_half_are_in_vain_are_given_up() {
        let mut polling = IdlePolling::new(Duration::from_micros(50));
        let pairs = (0..1_000).take_while(|_| misses(&mut polling) && succeeds(&mut polling)).count();
        assert!(pairs < 2 * MISSES_MAX as usize, "{pairs}");
    }

    #[test]
    fn a_processor_that_does_not_come_back_ends_waiting_awake() {
        let mut polling = IdlePolling::new(Duration::from_micros(50));
        assert!(polling.goes_on(1_000));
        assert!(polling.yielded(1_000, 20_000));
        assert!(!polling.yielded(20_000, 20_001 + LOST_NS));
        assert!((0..PAUSE).all(|_| !polling.goes_on(1_000_000)));
        let mut gathering = gathering(8);
        assert!(gathering.puts_off(1, 0, 1_000));
        gathering.yielded(1_000, 1_001 + LOST_NS);
        assert!(!gathering.is_putting_off() && !gathering.puts_off(1, 0, 300_000));
    }

    #[test]
    fn a_wait_ends_also_if_the_clock_stands_still() {
        let mut polling = IdlePolling::new(Duration::from_micros(50));
        assert!((0..TURNS_MAX).all(|_| polling.goes_on(7)));
        assert!(!polling.goes_on(7));
        assert!(!IdlePolling::new(Duration::ZERO).goes_on(7));
    }
}
