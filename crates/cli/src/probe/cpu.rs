//! The idle share of processor time, from `/proc/stat`.

use std::path::Path;

use fulgurite::env::{Env, OpenOptions};

/// Time of all processors in ticks: since the system began, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    idle: u64,
    total: u64,
}

/// The time now; `None` where the system does not report it.
pub(super) fn now(env: &dyn Env) -> Option<CpuTime> {
    let file = env.disk().open(Path::new("/proc/stat"), OpenOptions::Read).ok()?;
    let mut bytes = [0; 512];
    let count = file.read_at(&mut bytes, 0).ok()?;
    parse(&String::from_utf8_lossy(&bytes[..count]))
}

/// The first line: user, nice, system, idle, waiting for a device, two kinds of interrupts, stolen by other machines.
/// What follows is contained in the first two.
fn parse(text: &str) -> Option<CpuTime> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> =
        line.split_whitespace().take(8).map(|tick| tick.parse().ok()).collect::<Option<_>>()?;
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(CpuTime { idle, total: ticks.iter().sum() })
}

impl CpuTime {
    /// The time between two moments.
    pub fn until(self, later: CpuTime) -> CpuTime {
        let passed = |now: fn(&CpuTime) -> u64| now(&later).saturating_sub(now(&self));
        CpuTime { idle: passed(|time| time.idle), total: passed(|time| time.total) }
    }

    /// The sum of both.
    pub fn and(self, other: CpuTime) -> CpuTime {
        CpuTime { idle: self.idle + other.idle, total: self.total + other.total }
    }

    /// The share of it that was idle; `None` if it is too short to tell.
    pub fn idle_share(self) -> Option<f64> {
        (self.total > 0).then(|| self.idle as f64 / self.total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_all_processors() {
        let early = parse("cpu  10 0 20 30 40 0 0 0 7 7\ncpu0 1 1 1 1").expect("understood");
        assert_eq!(early, CpuTime { idle: 70, total: 100 });
        let later = parse("cpu  10 0 20 90 80 0 0 100 0 0\n").expect("understood");
        let between = early.until(later);
        assert_eq!(between, CpuTime { idle: 100, total: 200 });
        assert_eq!(between.and(CpuTime { idle: 0, total: 50 }).idle_share(), Some(0.4));
        assert_eq!(early.until(early).idle_share(), None);
        assert_eq!(parse("intr 1 2 3"), None);
        assert_eq!(parse("cpu  1 2"), None);
    }
}
