//! The machine that runs the benchmark: processors, how busy they are, the file system.

use std::path::Path;

use fulgurite::env::{Env, OpenOptions};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Properties of the machine that the figures depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that are online; 0 if the kernel does not report them.
    pub processors: u64,
    /// The model of the first one, in its own words.
    pub processor: String,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The file system of the databases: `ext4`.
    pub file_system: String,
    /// The kernel's name of the device below it.
    pub device: Option<String>,
    /// Whether the device says that its cache loses its content without power.
    pub volatile_cache: Option<bool>,
}

impl Machine {
    /// Looks at the machine and at the file system and device of `dir`.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such directory.
    pub fn look(env: &dyn Env, dir: &Path) -> Result<Machine> {
        let device = env.disk().device(dir);
        let device = device.map_err(Error::io(format!("looking at {}", dir.display())))?;
        let kernel = read_text(env, Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
        Ok(Machine {
            processors: machine_times(env).map_or(0, |times| times.processors),
            processor: read_field(env, "/proc/cpuinfo", "model name").unwrap_or_default(),
            memory_bytes: read_number(env, "/proc/meminfo", "MemTotal").unwrap_or(0) << 10,
            kernel: kernel.trim().to_string(),
            file_system: device.file_system,
            device: device.device,
            volatile_cache: device.volatile_cache,
        })
    }

    /// Whether files are kept in memory alone, so that nothing is durable.
    pub fn is_in_memory(&self) -> bool {
        ["tmpfs", "ramfs"].contains(&self.file_system.as_str())
    }
}

/// A file of the kernel, whole.
fn read_text(env: &dyn Env, path: &Path) -> Option<String> {
    let file = env.disk().open(path, OpenOptions::Read).ok()?;
    let mut bytes = vec![0; 64 << 10];
    let len = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// The first field of that name in a file with lines `name: field`.
fn read_field(env: &dyn Env, path: &str, name: &str) -> Option<String> {
    let text = read_text(env, Path::new(path))?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.trim_end() == name).map(|(_, field)| field.trim().to_string())
}

/// The number with which such a field begins.
fn read_number(env: &dyn Env, path: &str, name: &str) -> Option<u64> {
    read_field(env, path, name)?.split_whitespace().next()?.parse().ok()
}

/// Bytes written to the device of `dir`, by any process; if the kernel does not count for the device, the bytes that
/// this process wrote to any device.
///
/// The count of a process is less exact: a small write to a large page of the page cache counts as all of that page.
pub(crate) fn device_bytes(env: &dyn Env, dir: &Path) -> Option<u64> {
    let device = env.disk().device(dir).ok().and_then(|info| info.device);
    let stats = read_text(env, Path::new("/proc/diskstats"));
    if let Some(sectors) = device.zip(stats).and_then(|(device, stats)| sectors_written(&stats, &device)) {
        return Some(sectors * SECTOR_BYTES);
    }
    let written = read_number(env, "/proc/self/io", "write_bytes")?;
    let cancelled = read_number(env, "/proc/self/io", "cancelled_write_bytes").unwrap_or(0);
    Some(written.saturating_sub(cancelled))
}

/// The unit of the kernel's counts, whatever the device's.
const SECTOR_BYTES: u64 = 512;

/// Reads the line of a device in `/proc/diskstats`: two numbers, its name, four numbers of reads, then completed
/// writes, merged writes, and sectors written.
fn sectors_written(stats: &str, device: &str) -> Option<u64> {
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let line = stats.lines().map(words).find(|words| words.get(2).is_some_and(|name| name == device))?;
    line.get(9)?.parse().ok()
}

/// The peak memory of this process.
pub(crate) fn peak_memory_bytes(env: &dyn Env) -> Option<u64> {
    read_number(env, "/proc/self/status", "VmHWM").map(|kib| kib << 10)
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
    /// The share of the machine's time in which processors were idle, waiting for disks included.
    pub idle_share: Option<f64>,
    /// The share that was neither idle nor used by this process.
    pub others_share: Option<f64>,
}

/// The kernel counts in ticks of 10 ms: over less time than this, shares mean nothing.
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
    parse_times(&read_text(env, Path::new("/proc/stat"))?)
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
    fn sectors_are_found_by_the_name_of_the_device() {
        let stats =
            " 254       0 vda 5 1 80 7 9 2 4096 3 0 10 20\n 254       1 vda1 5 1 80 7 9 2 8 3 0 10 20\n";
        assert_eq!(sectors_written(stats, "vda"), Some(4096));
        assert_eq!(sectors_written(stats, "vda1"), Some(8));
        assert_eq!(sectors_written(stats, "sda"), None);
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
