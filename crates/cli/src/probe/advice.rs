//! Conclusions from the figures: what to expect of commits, and which options to set.

use fulgurite::FlushScheme;

use super::Report;
use super::cases::{Variant, WRITE_BYTES, WriteCase};
use super::samples::Figures;

/// The assumed size of a commit in the log: a few short rows.
const COMMIT_BYTES: u64 = 256;
/// How many threads wait, for the figures with many.
const WAITING: [u64; 3] = [16, 64, 256];
/// Smaller differences are noise.
const NOTABLE: f64 = 1.1;
/// How many times slower than buffered writes direct ones have to be before they are worth leaving the default.
const SLOWER: f64 = 1.25;
/// The sizes whose latencies decide that: those of groups of commits.
const GROUP_BYTES: [usize; 4] = [4 << 10, 8 << 10, 16 << 10, 64 << 10];
/// The gain from skipping flushes that is worth a thought.
const WORTHWHILE: f64 = 1.3;
/// With less idle processor time, other programs have influenced the figures.
const IDLE_MIN: f64 = 0.5;
/// No rotating disk makes a write durable faster.
const TURNING_SYNC_US_MIN: f64 = 500.0;

/// The conclusions from a report.
pub(crate) struct Advice {
    pub(super) one_thread: Option<Expected>,
    pub(super) waiting: Vec<Expected>,
    pub(super) settings: Vec<Setting>,
    pub(super) warnings: Vec<String>,
}

/// What to expect of durable commits of [`COMMIT_BYTES`] bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Expected {
    /// How many threads commit, each waiting for its own commit.
    pub committers: u64,
    pub commits_per_second: f64,
    /// From one write to two: a commit that just missed a write waits for that one too.
    pub latency_us: (f64, f64),
}

/// An option of the library.
#[derive(Debug, PartialEq)]
pub(super) struct Setting {
    pub option: &'static str,
    pub value: String,
    pub reason: String,
}

/// Draws the conclusions.
pub(crate) fn advise(report: &Report) -> Advice {
    let log = LogWrite::of(report);
    let expected = |committers: u64| {
        let bytes = (committers * COMMIT_BYTES).next_multiple_of(WRITE_BYTES[0] as u64);
        let one_us = log.as_ref()?.p50_us(report, usize::try_from(bytes).ok()?)?;
        let (commits_per_second, two_us) = (committers as f64 * 1e6 / one_us, 2.0 * one_us);
        let latency_us = (one_us, if committers == 1 { one_us } else { two_us });
        Some(Expected { committers, commits_per_second, latency_us })
    };
    Advice {
        one_thread: expected(1),
        waiting: WAITING.into_iter().filter_map(expected).collect(),
        settings: log.iter().flat_map(|log| settings(report, log)).collect(),
        warnings: warnings(report),
    }
}

/// The best way to write the log here.
struct LogWrite {
    variant: Variant,
    /// The latency of a direct write over that of a buffered one with `fdatasync`; `None` without direct writes.
    ratio: Option<f64>,
}

impl LogWrite {
    fn of(report: &Report) -> Option<LogWrite> {
        let ratio = ratio(report);
        let direct = ratio.is_some_and(|ratio| ratio < SLOWER || is_busy(report));
        let variant = if direct { Variant::DirectSync } else { Variant::ZeroedSync };
        report.write(WriteCase::each(variant, WRITE_BYTES[0]))?;
        Some(LogWrite { variant, ratio })
    }

    fn p50_us(&self, report: &Report, bytes: usize) -> Option<f64> {
        report.write(WriteCase::each(self.variant, bytes)).map(|found| found.p50_us)
    }
}

/// The geometric mean over the sizes of groups.
fn ratio(report: &Report) -> Option<f64> {
    let mut product = 1.0;
    for bytes in GROUP_BYTES {
        let p50_us = |variant| report.write(WriteCase::each(variant, bytes)).map(|found| found.p50_us);
        product *= p50_us(Variant::DirectSync)? / p50_us(Variant::ZeroedSync)?;
    }
    Some(product.powf(1.0 / GROUP_BYTES.len() as f64))
}

/// Whether other programs have influenced the figures.
fn is_busy(report: &Report) -> bool {
    report.cpu_idle.is_some_and(|idle| idle < IDLE_MIN)
}

fn settings(report: &Report, log: &LogWrite) -> Vec<Setting> {
    [flush_scheme(report, log), Some(direct_io(report, log)), no_barrier(report)]
        .into_iter()
        .flatten()
        .collect()
}

fn flush_scheme(report: &Report, log: &LogWrite) -> Option<Setting> {
    let (one_us, sixteen_us) = (log.p50_us(report, 4 << 10)?, log.p50_us(report, 64 << 10)?);
    let gain = 16.0 * one_us / sixteen_us;
    let judgement = match gain >= NOTABLE {
        true => format!("{gain:.1} times as fast: one write for all waiters"),
        false => "sharing a write gains nothing here, and costs nothing".to_string(),
    };
    Some(Setting {
        option: "research.flush_scheme",
        value: FlushScheme::Combined.name().to_string(),
        reason: format!(
            "64 KiB at once take {sixteen_us:.0} us, one by one in writes of 4 KiB {:.0} us; {judgement}",
            16.0 * one_us
        ),
    })
}

fn direct_io(report: &Report, log: &LogWrite) -> Setting {
    let Some(ratio) = log.ratio else {
        let file_system = &report.device.file_system;
        let reason = format!("{file_system} takes no direct writes: the option has no effect here");
        return Setting { option: "direct_io", value: true.to_string(), reason };
    };
    let direct = log.variant == Variant::DirectSync;
    let mut reason = format!(
        "from 4 to 64 KiB a direct, data-synchronous write takes {ratio:.2} times as long (p50) as a buffered one with \
         fdatasync"
    );
    if direct && ratio >= SLOWER {
        reason.push_str(
            "; the machine was too busy to leave the default for that: probe again when it is idle",
        );
    } else if direct && ratio > 1.0 {
        reason.push_str(": not enough to leave the default, which also keeps the log out of the page cache");
    }
    Setting { option: "direct_io", value: direct.to_string(), reason }
}

/// Whether skipping flushes is allowed, needs the operator's word, and would be worth it.
fn no_barrier(report: &Report) -> Option<Setting> {
    let p50_us = |variant| report.write(WriteCase::each(variant, WRITE_BYTES[0])).map(|found| found.p50_us);
    let (sync_us, direct_us) = (p50_us(Variant::DirectSync)?, p50_us(Variant::Direct)?);
    let worth = sync_us >= direct_us * WORTHWHILE;
    let compared =
        format!("a direct write of 4 KiB takes {direct_us:.0} us without a flush, {sync_us:.0} us with");
    let word = "assume_power_safe_cache: true";
    let allowed = match report.device.volatile_cache {
        Some(false) => {
            "NoBarrier is allowed as it is: the device says that it has no volatile cache".to_string()
        }
        Some(true) => format!(
            "the device admits to a volatile cache: NoBarrier needs {word}, your word that this cache survives a power \
             cut; if it does not, acknowledged commits are lost"
        ),
        None => format!("nothing is known of the device's cache: NoBarrier needs {word}, your word for it"),
    };
    let no_barrier = report.device.volatile_cache == Some(false) && worth;
    let gain = if worth { "" } else { ", too little to gain to leave Sync" };
    Some(Setting {
        option: "durability",
        value: if no_barrier { "no-barrier" } else { "sync" }.to_string(),
        reason: format!("{compared}{gain}; {allowed}"),
    })
}

fn warnings(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(idle) = report.cpu_idle.filter(|_| is_busy(report)) {
        warnings.push(format!(
            "the processors were only {:.0} % idle: something else ran, or the machine is too small for the device; \
             do not trust these figures",
            idle * 100.0
        ));
    }
    if matches!(report.device.file_system.as_str(), "tmpfs" | "ramfs") {
        warnings.push("this file system is in memory: nothing in it is durable".to_string());
    }
    let synced = report.write(WriteCase::each(Variant::ZeroedSync, WRITE_BYTES[0]));
    let too_fast = |found: &&Figures| found.p50_us < TURNING_SYNC_US_MIN;
    if report.device.rotational == Some(true)
        && let Some(found) = synced.filter(too_fast)
    {
        warnings.push(format!(
            "the device says that it turns, and syncs in {:.0} us: what the sync reached is a cache (fine if it is \
             power-safe, or if a host of this virtual machine answers for it)",
            found.p50_us
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use fulgurite::env::DeviceInfo;

    use super::*;

    fn device(volatile_cache: Option<bool>) -> DeviceInfo {
        DeviceInfo {
            file_system: "ext4".into(),
            device: Some("vda".into()),
            volatile_cache,
            fua: Some(false),
            rotational: Some(false),
        }
    }

    /// The latency of 4 KiB for each variant; eight times the size takes twice as long.
    fn report(p50_us: [Option<f64>; 4], volatile_cache: Option<bool>) -> Report {
        let figures = |case: WriteCase| {
            let position = Variant::ALL.iter().position(|variant| *variant == case.variant)?;
            let p50_us = p50_us[position]? * (case.bytes as f64 / 4096.0).powf(1.0 / 3.0);
            Some(Figures { count: 100, p50_us, p99_us: p50_us, per_second: 1.0, bytes_per_second: 1.0 })
        };
        Report {
            directory: "/d".into(),
            device: device(volatile_cache),
            takes_direct_writes: p50_us[2].is_some(),
            writes: WriteCase::all().into_iter().map(|case| (case, figures(case))).collect(),
            reads: Vec::new(),
            seconds: 1.0,
            cpu_idle: Some(0.9),
        }
    }

    fn setting(advice: &Advice, option: &str) -> (String, String) {
        let found = advice.settings.iter().find(|setting| setting.option == option).expect("there");
        (found.value.clone(), found.reason.clone())
    }

    const TYPICAL: [Option<f64>; 4] = [Some(900.0), Some(600.0), Some(200.0), Some(100.0)];

    #[test]
    fn the_rate_of_one_thread_is_one_write_after_the_other() {
        let advice = advise(&report(TYPICAL, Some(true)));
        let one = advice.one_thread.expect("figures");
        assert_eq!((one.commits_per_second, one.latency_us), (5_000.0, (200.0, 200.0)));
        let waiting: Vec<(u64, u64)> =
            advice.waiting.iter().map(|many| (many.committers, many.commits_per_second as u64)).collect();
        assert_eq!(waiting[0], (16, 80_000), "a group of 16 commits is 4 KiB");
        assert_eq!(waiting[2].0, 256);
        assert!(waiting[2].1 > 2 * waiting[1].1, "{waiting:?}");
    }

    #[test]
    fn direct_writes_are_advised_where_they_are_faster() {
        let advice = advise(&report(TYPICAL, Some(true)));
        assert_eq!(setting(&advice, "direct_io").0, "true");
        assert_eq!(setting(&advice, "research.flush_scheme").0, "combined");
        let slow = [Some(900.0), Some(200.0), Some(300.0), Some(100.0)];
        let advice = advise(&report(slow, Some(true)));
        assert_eq!(setting(&advice, "direct_io").0, "false");
        assert_eq!(advice.one_thread.expect("figures").commits_per_second, 5_000.0, "of buffered writes");
    }

    #[test]
    fn the_default_is_not_given_up_for_noise() {
        let little = [Some(900.0), Some(200.0), Some(240.0), Some(100.0)];
        let (value, reason) = setting(&advise(&report(little, Some(true))), "direct_io");
        assert!(
            value == "true" && reason.contains("1.20 times") && reason.contains("not enough"),
            "{reason}"
        );
        let slow = [Some(900.0), Some(200.0), Some(300.0), Some(100.0)];
        let busy = Report { cpu_idle: Some(0.1), ..report(slow, Some(true)) };
        let (value, reason) = setting(&advise(&busy), "direct_io");
        assert!(value == "true" && reason.contains("too busy"), "{reason}");
    }

    #[test]
    fn skipping_flushes_needs_the_operators_word_unless_the_device_gives_its_own() {
        let (value, reason) = setting(&advise(&report(TYPICAL, Some(true))), "durability");
        assert!(value == "sync" && reason.contains("assume_power_safe_cache"), "{reason}");
        let (value, reason) = setting(&advise(&report(TYPICAL, None)), "durability");
        assert!(value == "sync" && reason.contains("assume_power_safe_cache"), "{reason}");
        let (value, reason) = setting(&advise(&report(TYPICAL, Some(false))), "durability");
        assert!(value == "no-barrier" && reason.contains("allowed as it is"), "{reason}");
        let alike = [Some(900.0), Some(600.0), Some(110.0), Some(100.0)];
        let (value, reason) = setting(&advise(&report(alike, Some(false))), "durability");
        assert!(value == "sync" && reason.contains("too little to gain"), "{reason}");
    }

    #[test]
    fn without_direct_writes_there_is_still_advice() {
        let advice = advise(&report([Some(900.0), Some(500.0), None, None], None));
        assert_eq!(advice.one_thread.as_ref().expect("figures").commits_per_second, 2_000.0);
        assert!(setting(&advice, "direct_io").1.contains("no effect"));
        assert!(!advice.settings.iter().any(|setting| setting.option == "durability"));
    }

    #[test]
    fn warnings_name_what_spoils_the_figures() {
        let quiet = report(TYPICAL, Some(true));
        assert!(advise(&quiet).warnings.is_empty());
        let busy = Report { cpu_idle: Some(0.4), ..report(TYPICAL, Some(true)) };
        assert!(advise(&busy).warnings[0].contains("only 40 % idle"));
        let memory = DeviceInfo { file_system: "tmpfs".into(), ..device(None) };
        let memory = Report { device: memory, ..report(TYPICAL, None) };
        assert!(advise(&memory).warnings[0].contains("in memory"));
        let turning = DeviceInfo { rotational: Some(true), ..device(Some(true)) };
        let fast = [Some(900.0), Some(100.0), Some(90.0), Some(80.0)];
        let fast = Report { device: turning.clone(), ..report(fast, Some(true)) };
        assert!(advise(&fast).warnings[0].contains("turns"));
        let slow = Report { device: turning, ..report(TYPICAL, Some(true)) };
        assert!(advise(&slow).warnings.is_empty());
    }
}
