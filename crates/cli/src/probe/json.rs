//! A report as JSON; `docs/probe.md` describes each field, and fields are only added.

use serde_json::{Value, json};

use super::Report;
use super::advice::{Advice, Expected};
use super::samples::Figures;

/// Grows when a field changes its meaning or is removed.
const VERSION: u32 = 1;

/// The report as one object.
pub(crate) fn as_json(report: &Report, advice: &Advice) -> Value {
    let device = &report.device;
    let writes = report.writes.iter().map(|(case, found)| {
        let names = json!({
            "variant": case.variant.name(),
            "bytes": case.bytes,
            "writes_per_sync": case.writes_per_sync,
        });
        with_figures(names, found.as_ref())
    });
    let reads = report
        .reads
        .iter()
        .map(|(case, found)| with_figures(json!({ "bytes": case.bytes, "depth": case.depth }), Some(found)));
    let settings = advice
        .settings
        .iter()
        .map(|setting| json!({ "option": setting.option, "value": setting.value, "reason": setting.reason }));
    json!({
        "version": VERSION,
        "directory": report.directory,
        "seconds": rounded(report.seconds, 3),
        "cpu_idle": report.cpu_idle.map(|idle| rounded(idle, 3)),
        "device": {
            "file_system": device.file_system,
            "name": device.device,
            "volatile_cache": device.volatile_cache,
            "fua": device.fua,
            "rotational": device.rotational,
            "takes_direct_writes": report.takes_direct_writes,
        },
        "writes": writes.collect::<Vec<_>>(),
        "reads": reads.collect::<Vec<_>>(),
        "expected": advice.one_thread.iter().chain(&advice.waiting).map(expected).collect::<Vec<_>>(),
        "settings": settings.collect::<Vec<_>>(),
        "warnings": advice.warnings,
    })
}

/// Adds the figures to an object; `null` for those that were not measured.
fn with_figures(mut object: Value, found: Option<&Figures>) -> Value {
    object["count"] = json!(found.map_or(0, |found| found.count));
    object["p50_us"] = json!(found.map(|found| rounded(found.p50_us, 1)));
    object["p99_us"] = json!(found.map(|found| rounded(found.p99_us, 1)));
    object["per_second"] = json!(found.map(|found| rounded(found.per_second, 1)));
    object["bytes_per_second"] = json!(found.map(|found| found.bytes_per_second.round()));
    object
}

fn expected(expected: &Expected) -> Value {
    json!({
        "committers": expected.committers,
        "commits_per_second": expected.commits_per_second.round(),
        "latency_min_us": rounded(expected.latency_us.0, 1),
        "latency_max_us": rounded(expected.latency_us.1, 1),
    })
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
