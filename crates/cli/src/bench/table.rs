//! The figures as tables for people.

use fulgurite_bench::{End, Limit, Report, Series, Summary};

use crate::failure::Failure;
use crate::output::Output;
use crate::text::{aligned, count, number};

/// A column: its heading, its metric, and how its figures are written.
type Column = (&'static str, &'static str, fn(f64) -> String);

/// Where the time of a transaction goes, and what it took of locks and syncs.
const COSTS: [Column; 8] = [
    ("latency us", "mean_latency_us", tenths),
    ("sync lock us", "sync_lock_us", tenths),
    ("sync us", "sync_us", tenths),
    ("flush wait us", "flush_wait_us", tenths),
    ("sync locks", "sync_locks", whole),
    ("syncs", "syncs", whole),
    ("consol.", "consolidation", tenths),
    ("aggre.", "aggregation", tenths),
];

/// How latencies spread, and what it took of the machine.
const LATENCIES: [Column; 9] = [
    ("p50 us", "p50_latency_us", whole),
    ("p99 us", "p99_latency_us", whole),
    ("p99.9 us", "p999_latency_us", whole),
    ("max us", "max_latency_us", whole),
    ("cpu us", "cpu_us", tenths),
    ("idle", "idle_share", percent),
    ("others", "others_share", percent),
    ("fairness", "fairness", hundredths),
    ("conflicts", "conflicts", whole),
];

/// Prints all there is.
pub(super) fn print(
    report: &Report,
    settings: &[(&'static str, String)],
    output: &mut Output,
) -> Result<(), Failure> {
    head(report, settings, output)?;
    let series: Vec<&Series> = report.series.iter().filter(|series| !series.runs.is_empty()).collect();
    print_table(output, &rates_heading(report), &series, |series| rates(report, series), &COSTS)?;
    print_table(output, &[], &series, |_| Vec::new(), &LATENCIES)?;
    foot(report, &series, output)
}

fn head(report: &Report, settings: &[(&'static str, String)], output: &mut Output) -> Result<(), Failure> {
    let limit = match report.limit {
        Limit::Transactions(each) => format!("{} a thread", count(each, "transaction")),
        Limit::Time(time) => format!("{} s", time.as_secs_f64()),
    };
    let tickets = match report.tickets {
        0 => String::new(),
        tickets => format!(", {} in flight a thread", number(tickets.into())),
    };
    output.line(format!(
        "{}: {}-byte keys, {}-byte values, {limit}{tickets}, {}",
        report.workload,
        report.sizes.key_bytes,
        report.sizes.value_bytes,
        count(report.rounds.into(), "round"),
    ))?;
    let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    output.line(format!("{}; {}", settings.join(", "), machine(report)))?;
    match Summary::of(report.bare_writes_per_second.clone()) {
        None => Ok(()),
        Some(bare) => output.line(format!(
            "bare device, one durable {}write of 4 KiB after the other: {}/s ({})",
            if report.bare_is_direct { "direct " } else { "" },
            whole(bare.median),
            spread(&bare)
        )),
    }
}

fn machine(report: &Report) -> String {
    let device = &report.machine.device;
    let name = device.device.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
    let cache = match device.volatile_cache {
        None => "",
        Some(true) => " with a volatile cache",
        Some(false) => " without a volatile cache",
    };
    format!("{}{name}{cache}, {}", device.file_system, count(report.machine.processors, "processor"))
}

fn rates_heading(report: &Report) -> Vec<String> {
    ["tx/s", "from - to", &format!("of {}", report.baseline), "of bare"].map(String::from).to_vec()
}

fn rates(report: &Report, series: &Series) -> Vec<String> {
    let rate = series.summary("transactions_per_second");
    vec![
        rate.map_or_else(missing, |rate| whole(rate.median)),
        rate.map_or_else(missing, |rate| spread(&rate)),
        report.ratio(series).map_or_else(missing, hundredths),
        cell(series, "of_bare_writes", hundredths),
    ]
}

/// A table with a row for each series: its name, what `first` says, and the metrics of `columns`.
fn print_table(
    output: &mut Output,
    heading: &[String],
    series: &[&Series],
    first: impl Fn(&Series) -> Vec<String>,
    columns: &[Column],
) -> Result<(), Failure> {
    let mut top = vec!["threads".to_string(), "scheme".to_string()];
    top.extend_from_slice(heading);
    top.extend(columns.iter().map(|(name, _, _)| (*name).to_string()));
    let mut rows = vec![top];
    for series in series {
        let mark = if series.is_partial() { " *" } else { "" };
        let mut row = vec![series.threads.to_string(), format!("{}{mark}", series.engine)];
        row.extend(first(series));
        row.extend(columns.iter().map(|(_, metric, write)| cell(series, metric, *write)));
        rows.push(row);
    }
    let right: Vec<usize> = (0..rows[0].len()).filter(|column| *column != 1).collect();
    output.line("")?;
    aligned(&rows, &right).into_iter().try_for_each(|line| output.line(line))
}

fn foot(report: &Report, series: &[&Series], output: &mut Output) -> Result<(), Failure> {
    output.line("")?;
    if series.iter().any(|series| series.is_partial()) {
        output.line("* from a run that was ended before its limit")?;
    }
    if !matches!(report.end, End::Complete) {
        let done =
            report.series.iter().flat_map(|series| &series.runs).filter(|run| !run.interrupted).count();
        let all = u64::from(report.rounds) * report.series.len() as u64;
        output.line(format!("ended early: {} of {} done", number(done as u64), count(all, "run")))?;
    }
    for warning in report.warnings() {
        output.line(format!("warning: {warning}"))?;
    }
    output.flush()
}

fn cell(series: &Series, metric: &str, write: fn(f64) -> String) -> String {
    series.summary(metric).map_or_else(missing, |summary| write(summary.median))
}

fn missing() -> String {
    "-".to_string()
}

fn spread(summary: &Summary) -> String {
    format!("{} - {}", whole(summary.min), whole(summary.max))
}

fn whole(value: f64) -> String {
    number(value.round() as u64)
}

/// With one decimal; large figures without.
fn tenths(value: f64) -> String {
    if value >= 1000.0 { whole(value) } else { format!("{value:.1}") }
}

fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}
