//! A report as JSON; `docs/performance.md` describes it.

use serde_json::{Map, Value, json};

use crate::metrics::{METRICS, Summary};
use crate::plan::Limit;
use crate::report::{End, Report, Series};
use crate::run::Run;

/// The report as one object. `settings` are the engine's, added to those of the report.
pub fn json(report: &Report, settings: &[(&str, String)]) -> Value {
    let (state, error) = match &report.end {
        End::Complete => ("complete", Value::Null),
        End::Interrupted => ("interrupted", Value::Null),
        End::Failed(error) => ("failed", error.to_string().into()),
    };
    json!({
        "benchmark": "commit",
        "format": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "state": state,
        "error": error,
        "warnings": report.warnings(),
        "machine": {
            "processors": report.machine.processors,
            "file_system": report.machine.device.file_system,
            "device": report.machine.device.device,
            "volatile_cache": report.machine.device.volatile_cache,
        },
        "settings": settings_of(report, settings),
        "bare_writes_per_second": {
            "direct": report.bare_is_direct,
            "summary": Summary::of(report.bare_writes_per_second.clone()).map(summary_value),
            "all": rounded_all(&report.bare_writes_per_second),
        },
        "series": report.series.iter().map(|series| series_value(report, series)).collect::<Vec<_>>(),
    })
}

fn settings_of(report: &Report, more: &[(&str, String)]) -> Value {
    let (transactions, seconds) = match report.limit {
        Limit::Transactions(transactions) => (Some(transactions), None),
        Limit::Time(time) => (None, Some(time.as_secs_f64())),
    };
    let mut settings = json!({
        "workload": report.workload,
        "key_bytes": report.sizes.key_bytes,
        "value_bytes": report.sizes.value_bytes,
        "preloaded_rows": report.preloaded,
        "transactions_per_thread": transactions,
        "seconds": seconds,
        "warm_up_transactions_per_thread": report.warm_up,
        "tickets": report.tickets,
        "rounds": report.rounds,
        "baseline": report.baseline,
    });
    if let Value::Object(settings) = &mut settings {
        settings.extend(more.iter().map(|(name, value)| (name.to_string(), value.as_str().into())));
    }
    settings
}

fn series_value(report: &Report, series: &Series) -> Value {
    let summaries = METRICS.iter().map(|metric| {
        (metric.name.to_string(), series.summary(metric.name).map_or(Value::Null, summary_value))
    });
    json!({
        "engine": series.engine,
        "threads": series.threads,
        "partial": series.is_partial(),
        "of_baseline": report.ratio(series).map(rounded),
        "summary": summaries.collect::<Map<_, _>>(),
        "runs": series.runs.iter().map(run_value).collect::<Vec<_>>(),
    })
}

fn run_value(run: &Run) -> Value {
    let mut value = json!({
        "round": run.round,
        "interrupted": run.interrupted,
        "transactions": run.transactions,
        "commits": run.counters.commits,
        "groups": run.counters.groups,
        "requests_completed": run.counters.requests_completed,
        "elapsed_seconds": rounded(run.elapsed_ns as f64 / 1e9),
        "bare_writes_per_second": rounded(run.bare_writes_per_second),
        "rows": run.rows,
    });
    if let Value::Object(value) = &mut value {
        let metrics =
            METRICS.iter().map(|metric| (metric.name.to_string(), metric.of(run).map(rounded).into()));
        value.extend(metrics);
    }
    value
}

fn summary_value(summary: Summary) -> Value {
    json!({
        "median": rounded(summary.median),
        "min": rounded(summary.min),
        "max": rounded(summary.max),
    })
}

fn rounded_all(values: &[f64]) -> Vec<f64> {
    values.iter().copied().map(rounded).collect()
}

/// More digits than this are noise.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
