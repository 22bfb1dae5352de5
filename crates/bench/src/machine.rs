//! The machine under the benchmark: processors, how busy they are, the file system.

use std::path::Path;

use fulgurite::env::{DeviceInfo, Env, OpenOptions};
use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Result};

/// What the figures depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Processors that are on line; 0 if the kernel does not tell.
    pub processors: u64,
    /// The file system of the databases and the device below.
    pub device: DeviceInfo,
}

impl Machine {
    /// Looks at the machine and at what is below `dir`.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such directory.
    pub fn look(env: &dyn Env, dir: &Path) -> Result<Machine> {
        let device = env.disk().device(dir);
        let device = device.map_err(Error::io(format!("looking at {}", dir.display())))?;
        Ok(Machine { processors: machine_times(env).map_or(0, |times| times.processors), device })
    }

    /// Whether files are kept in memory alone, so that nothing is durable.
    pub fn is_in_memory(&self) -> bool {
        ["tmpfs", "ramfs"].contains(&self.device.file_system.as_str())
    }
}

/// Processor time that was used up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    at_ns: u64,
    own_ns: u64,
    machine: Option<MachineTimes>,
}

/// Ticks of all processors together, and how many processors there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MachineTimes {
    idle: u64,
    busy: u64,
    processors: u64,
}

/// Processor time between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuUse {
    /// Nanoseconds of this process, in the kernel and outside.
    pub own_ns: u64,
    /// The part of the machine's time in which processors were idle, waiting for disks included.
    pub idle_share: Option<f64>,
    /// The part that neither was idle nor went to this process.
    pub others_share: Option<f64>,
}

/// The kernel counts in ticks of 10 ms: shares of less time than this say nothing.
const SHARE_NS_MIN: u64 = 200_000_000;

impl CpuTimes {
    pub fn now(env: &dyn Env) -> CpuTimes {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = u64::try_from(own.tv_sec).unwrap_or(0);
        CpuTimes {
            at_ns: env.clock().monotonic_ns(),
            own_ns: seconds * 1_000_000_000 + u64::try_from(own.tv_nsec).unwrap_or(0),
            machine: machine_times(env),
        }
    }

    pub fn since(&self, before: &CpuTimes) -> CpuUse {
        let own_ns = self.own_ns.saturating_sub(before.own_ns);
        let elapsed_ns = self.at_ns.saturating_sub(before.at_ns);
        let machine = self.machine.zip(before.machine).filter(|_| elapsed_ns >= SHARE_NS_MIN);
        let Some((after, before)) = machine else {
            return CpuUse { own_ns, ..CpuUse::default() };
        };
        let idle = after.idle.saturating_sub(before.idle) as f64;
        let busy = after.busy.saturating_sub(before.busy) as f64;
        let busy_share = busy / (busy + idle).max(1.0);
        let own_share = own_ns as f64 / (elapsed_ns * after.processors) as f64;
        CpuUse {
            own_ns,
            idle_share: Some(1.0 - busy_share),
            others_share: Some((busy_share - own_share).clamp(0.0, 1.0)),
        }
    }
}

fn machine_times(env: &dyn Env) -> Option<MachineTimes> {
    let file = env.disk().open(Path::new("/proc/stat"), OpenOptions::Read).ok()?;
    let mut bytes = vec![0; 64 << 10];
    let len = file.read_at(&mut bytes, 0).ok()?;
    parse_times(&String::from_utf8_lossy(&bytes[..len]))
}

/// Reads the lines of `/proc/stat` that begin with `cpu`: user, nice, system, idle, iowait, irq, softirq, steal.
fn parse_times(text: &str) -> Option<MachineTimes> {
    let total = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = total.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let processors = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
    Some(MachineTimes { idle, busy: ticks.iter().sum::<u64>() - idle, processors: processors.max(1) as u64 })
}

#[cfg(test)]
mod tests {
    use fulgurite::env::RealEnv;

    use super::*;

    #[test]
    fn the_kernels_table_is_understood() {
        let text =
            "cpu  10 1 5 100 20 2 3 4 50 0\ncpu0 5 0 2 50 10 1 1 2 0 0\ncpu1 5 1 3 50 10 1 2 2 0 0\nintr 1\n";
        assert_eq!(parse_times(text), Some(MachineTimes { idle: 120, busy: 25, processors: 2 }));
        assert_eq!(parse_times("cpu  1 2\n"), None);
        assert_eq!(parse_times(""), None);
    }

    #[test]
    fn shares_add_up() {
        let times = |at_ns, own_ns, idle, busy| CpuTimes {
            at_ns,
            own_ns,
            machine: Some(MachineTimes { idle, busy, processors: 2 }),
        };
        let used = times(1_000_000_000, 500_000_000, 100, 100).since(&times(0, 0, 0, 0));
        assert_eq!((used.own_ns, used.idle_share, used.others_share), (500_000_000, Some(0.5), Some(0.25)));
        let short = times(1_000_000, 500_000, 1, 0).since(&times(0, 0, 0, 0));
        assert_eq!((short.own_ns, short.idle_share), (500_000, None));
    }

    #[test]
    fn this_process_uses_time() {
        let env = RealEnv::new();
        let before = CpuTimes::now(&*env);
        let mut sum = 0u64;
        while CpuTimes::now(&*env).since(&before).own_ns == 0 {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
    }
}
