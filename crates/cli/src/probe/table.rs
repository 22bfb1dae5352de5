//! A report as text.

use fulgurite::env::DeviceInfo;

use super::Report;
use super::advice::{Advice, Expected};
use super::samples::Figures;
use crate::text::{aligned, number, size};

/// The report, line by line.
pub(crate) fn lines(report: &Report, advice: &Advice) -> Vec<String> {
    let mut lines = about(report);
    lines.push(String::new());
    lines.extend(writes(report));
    lines.push(String::new());
    lines.extend(reads(report));
    lines.push(String::new());
    lines.extend(expectations(advice));
    if !advice.settings.is_empty() {
        lines.push(String::new());
        lines.push("OPTIONS TO SET".into());
    }
    for setting in &advice.settings {
        lines.push(format!("  {}: {}", setting.option, setting.value));
        lines.extend(wrapped(&setting.reason, 6));
    }
    if !advice.warnings.is_empty() {
        lines.push(String::new());
    }
    for warning in &advice.warnings {
        lines.extend(wrapped(&format!("WARNING: {warning}"), 0));
    }
    lines
}

fn about(report: &Report) -> Vec<String> {
    let device = &report.device;
    let yes_or_no = |known: Option<bool>| known.map_or("unknown", |yes| if yes { "yes" } else { "no" });
    let below = device.device.as_deref().map_or_else(String::new, |name| format!(" on {name}"));
    let idle = report.cpu_idle.map_or_else(|| "unknown".to_string(), |idle| format!("{:.0} %", idle * 100.0));
    let rows = [
        ("directory", format!("{}, {}{below}", report.directory, device.file_system)),
        ("the device's cache", cache(device).to_string()),
        ("FUA", format!("{} (durable writes without a flush of the whole cache)", yes_or_no(device.fua))),
        ("turns", yes_or_no(device.rotational).to_string()),
        ("takes direct writes", yes_or_no(Some(report.takes_direct_writes)).to_string()),
        ("measured", format!("{:.1} s, the processors {idle} idle during the writes", report.seconds)),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_string(), value]).collect();
    aligned(&rows, &[])
}

fn cache(device: &DeviceInfo) -> &'static str {
    match device.volatile_cache {
        Some(true) => "volatile (write-back), as the device claims",
        Some(false) => "not volatile (write-through), as the device claims",
        None => "unknown",
    }
}

fn heading(name: &str, of: &str, rate: &str) -> Vec<String> {
    [name, of, "p50 us", "p99 us", rate, "MB/s", "measured"].map(String::from).to_vec()
}

fn row(name: String, of: String, found: Option<&Figures>) -> Vec<String> {
    let Some(found) = found else {
        let rest = ["n/a"; 5].map(String::from);
        return [name, of].into_iter().chain(rest).collect();
    };
    vec![
        name,
        of,
        microseconds(found.p50_us),
        microseconds(found.p99_us),
        number(found.per_second.round() as u64),
        format!("{:.1}", found.bytes_per_second / 1e6),
        number(found.count),
    ]
}

fn writes(report: &Report) -> Vec<String> {
    let mut rows = vec![heading("WRITES, one thread", "size", "writes/s")];
    for (case, found) in &report.writes {
        let name = match case.writes_per_sync {
            1 => case.variant.label().to_string(),
            several => format!("over zeros, fdatasync every {several} writes"),
        };
        rows.push(row(name, size(case.bytes as u64), found.as_ref()));
    }
    aligned(&rows, &[1, 2, 3, 4, 5, 6])
}

fn reads(report: &Report) -> Vec<String> {
    let mut rows = vec![heading("RANDOM DIRECT READS", "size", "reads/s")];
    for (case, found) in &report.reads {
        rows.push(row(format!("depth {}", case.depth), size(case.bytes as u64), Some(found)));
    }
    aligned(&rows, &[1, 2, 3, 4, 5, 6])
}

fn expectations(advice: &Advice) -> Vec<String> {
    let heading = ["EXPECT of durable commits of 256 bytes", "commits/s at most", "us, p50"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    let row = |expected: &Expected| {
        let (min, max) = (microseconds(expected.latency_us.0), microseconds(expected.latency_us.1));
        vec![
            match expected.committers {
                1 => "1 thread".to_string(),
                many => format!("{many} threads that wait"),
            },
            number(expected.commits_per_second.round() as u64),
            if min == max { min } else { format!("{min} to {max}") },
        ]
    };
    rows.extend(advice.one_thread.iter().chain(&advice.waiting).map(row));
    aligned(&rows, &[1, 2])
}

/// Microseconds with as many digits as are significant.
fn microseconds(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { number(value.round() as u64) }
}

/// Text in lines of at most 100 characters, each indented by `indent` spaces.
fn wrapped(text: &str, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < 100 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{}{word}", " ".repeat(indent))),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reasons_are_wrapped() {
        let text = "word ".repeat(50);
        let lines = wrapped(&text, 4);
        assert!(
            lines.len() == 3 && lines.iter().all(|line| line.len() <= 100 && line.starts_with("    word"))
        );
        assert_eq!(lines.join(" ").split_whitespace().count(), 50);
    }

    #[test]
    fn small_latencies_have_a_fraction() {
        assert_eq!([9.87, 99.96, 1_234.5].map(microseconds), ["9.9", "100.0", "1,235"]);
    }
}
