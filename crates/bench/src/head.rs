//! The head of a report, above its figures: what was run, where and how.

use crate::machine::Machine;
use crate::number::{bytes, utc};
use crate::report::{End, Report, Row};

/// Names and values, in the order in which they are shown.
pub(crate) fn facts(report: &Report) -> Vec<(String, String)> {
    let machine = &report.machine;
    let mut facts = vec![
        ("benchmark", report.name.clone()),
        ("began", utc(report.began_ms)),
        ("program", format!("version {}", report.version)),
        ("machine", processors(machine)),
        ("device", device(machine)),
        ("file system", machine.file_system.clone()),
        ("kernel", machine.kernel.clone()),
    ];
    facts.extend(workloads(report).into_iter().map(|workload| ("workload", workload)));
    facts.push(("durability", distinct(report.rows.iter().map(|row| row.level.clone())).join(", ")));
    facts.push(("cache", distinct(report.rows.iter().map(|row| bytes(row.cache_bytes))).join(", ")));
    facts.push(("baseline", report.baseline.clone()));
    let facts = facts.into_iter().map(|(name, value)| (name.to_string(), value));
    facts.chain(report.settings.clone()).filter(|(_, value)| !value.is_empty()).collect()
}

/// Each label with the engine that it names.
pub(crate) fn engines(report: &Report) -> Vec<(String, String)> {
    let engines = report.rows.iter().map(|row| {
        let texts =
            [(row.engine != row.label).then_some(&row.engine), Some(&row.about), Some(&row.isolation)];
        let texts: Vec<&str> = texts.into_iter().flatten().map(String::as_str).collect();
        let texts = texts.into_iter().filter(|text| !text.is_empty());
        (row.label.clone(), texts.collect::<Vec<_>>().join("; "))
    });
    distinct(engines)
}

/// Reasons why the figures are doubtful or incomplete, in sentences.
pub(crate) fn warnings(report: &Report) -> Vec<String> {
    let end = match &report.end {
        End::Complete => None,
        End::Interrupted => {
            Some("it was interrupted: the rows hold what was measured until then".to_string())
        }
        End::Failed(error) => Some(format!("it failed: {error}; the rows hold what was measured until then")),
    };
    end.into_iter().chain(report.warnings()).collect()
}

/// `8 processors (Some Processor 9000), 32 GiB of memory`.
pub(crate) fn processors(machine: &Machine) -> String {
    let processors = match machine.processors {
        0 => "processors not known".to_string(),
        1 => "1 processor".to_string(),
        processors => format!("{processors} processors"),
    };
    let model = Some(&machine.processor).filter(|model| !model.is_empty());
    let model = model.map_or(String::new(), |model| format!(" ({model})"));
    format!("{processors}{model}, {} of memory", bytes(machine.memory_bytes))
}

/// The device, and the effect of a sync on it.
pub(crate) fn device(machine: &Machine) -> String {
    let cache = match machine.volatile_cache {
        Some(true) => "its cache does not outlive a power cut, a sync flushes it",
        Some(false) => "it says that its cache outlives a power cut",
        None => "whether its cache outlives a power cut is not known",
    };
    format!("{}, {cache}", machine.device.as_deref().unwrap_or("not known"))
}

fn workloads(report: &Report) -> Vec<String> {
    // Data points with the same parameters share a line here.
    let name = |row: &Row| {
        let beside = |other: &&Row| other.workload == row.workload;
        let differs = report.rows.iter().filter(beside).any(|other| other.parameters != row.parameters);
        let data_point = if differs && !row.data_point.is_empty() {
            format!(" {}", row.data_point)
        } else {
            String::new()
        };
        format!("{}{data_point}: {}", row.workload, row.parameters)
    };
    distinct(report.rows.iter().map(name))
}

/// The values, each once, in the order of their first occurrence.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_tests::sample;

    #[test]
    fn the_head_names_the_workload_and_the_machine() {
        let facts = facts(&sample());
        let lines: Vec<String> = facts.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "benchmark: fig-5a",
            "began: 2026-03-01 17:05 UTC",
            "program: version 0.1.0",
            "machine: 8 processors (Some Processor 9000), 32 GiB of memory",
            "device: nvme0n1, its cache does not outlive a power cut, a sync flushes it",
            "file system: ext4",
            "kernel: 6.1.0",
            "workload: insert: 20-byte keys, 100-byte values",
            "durability: sync",
            "cache: 64 MiB",
            "baseline: rocksdb",
            "limit: 2 s",
            "rounds: 3",
            "warm-up: 0.5 s",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn points_are_named_where_their_parameters_differ() {
        let mut report = sample();
        report.rows[0].data_point = "A1".into();
        assert_eq!(workloads(&report), ["insert: 20-byte keys, 100-byte values"]);
        report.rows[0].parameters = "other".into();
        assert_eq!(workloads(&report), ["insert A1: other", "insert: 20-byte keys, 100-byte values"]);
    }

    #[test]
    fn engines_are_named_once() {
        let mut report = sample();
        report.rows[0].engine = "fulgurite:combined".into();
        let first = ("fulgurite".to_string(), "fulgurite:combined; fulgurite 1.2; snapshot".to_string());
        let engines = engines(&report);
        assert_eq!(engines[0], first);
        assert_eq!(engines.len(), 4);
    }

    #[test]
    fn a_benchmark_that_failed_says_so() {
        let mut report = sample();
        assert!(warnings(&report).is_empty());
        report.end = End::Failed("no space".into());
        assert!(warnings(&report)[0].starts_with("it failed: no space;"));
    }
}
