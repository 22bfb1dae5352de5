//! Two reports of the same benchmark: which rates and latencies changed, and which differences are noise.

use std::fmt;

use crate::head::{device, distinct, processors};
use crate::metrics::{Metric, Summary};
use crate::number::{number, utc};
use crate::report::{Report, Row};
use crate::table::{Grid, GridRow, number_head, text_head};
use crate::terminal::push_grid;

/// Medians that differ by less than this share are the same, whatever the rounds are.
const CHANGE_MIN: f64 = 0.05;
/// With fewer rounds there is no verdict.
const ROUNDS_MIN: usize = 3;

/// The compared rate: more is better.
const RATE: &str = "operations_per_second";
/// The compared latency: less is better.
const LATENCY: &str = "p99_latency_us";

/// The difference between an old report and a new one. `Display` is a table for the terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The version and the date of the old report.
    pub old: String,
    /// The same of the new one.
    pub new: String,
    /// Differences that make the reports hard to compare, in sentences: another machine, other settings.
    pub warnings: Vec<String>,
    /// One for each row that both reports measured, in the order of the new report.
    pub rows: Vec<ComparedRow>,
    /// Rows that only the old report has figures of: their description, and the reason if it is known.
    pub only_old: Vec<String>,
    /// Rows that only the new report has figures of.
    pub only_new: Vec<String>,
}

/// A row of both reports.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedRow {
    /// That of the new report.
    pub row: Row,
    /// Operations a second: more is better.
    pub rate: Change,
    /// 99th percentile of the latency, microseconds: less is better.
    pub p99: Change,
}

/// A figure in both reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Over the rounds of the old report.
    pub old: Summary,
    /// Over the rounds of the new one.
    pub new: Summary,
    /// How much more the new median is, in percent of the old one.
    pub percent: f64,
    /// The verdict on the change.
    pub verdict: Verdict,
}

/// The meaning of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It became worse: all rounds are worse than all rounds before, and the medians differ by more than 5 %.
    Regression,
    /// It became better, by the same measure.
    Improvement,
    /// Neither.
    Unchanged,
    /// Fewer than three rounds in one of the reports: too few to tell.
    TooFewRounds,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Regression => "WORSE",
            Verdict::Improvement => "better",
            Verdict::Unchanged => "same",
            Verdict::TooFewRounds => "too few rounds to tell",
        })
    }
}

/// Compares the rows of two reports that have the same workload, data point, number of threads, label and durability.
pub fn compare(old: &Report, new: &Report) -> Comparison {
    let mut comparison = Comparison {
        old: format!("version {}, {}", old.version, utc(old.began_ms)),
        new: format!("version {}, {}", new.version, utc(new.began_ms)),
        warnings: warnings(old, new),
        rows: Vec::new(),
        only_old: Vec::new(),
        only_new: Vec::new(),
    };
    for row in &new.rows {
        let before = twin(old, row);
        if let Some(compared) = before.and_then(|before| compare_rows(before, row)) {
            comparison.rows.push(compared);
        } else if is_measured(row) {
            comparison.only_new.push(describe(row, before));
        }
    }
    for row in old.rows.iter().filter(|row| is_measured(row)) {
        let after = twin(new, row);
        if !after.is_some_and(is_measured) {
            comparison.only_old.push(describe(row, after));
        }
    }
    comparison
}

impl Comparison {
    /// Whether anything became worse.
    pub fn has_regressions(&self) -> bool {
        self.count(Verdict::Regression) > 0
    }

    /// How many rates and latencies have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let verdicts = self.rows.iter().flat_map(|row| [row.rate.verdict, row.p99.verdict]);
        verdicts.filter(|found| *found == verdict).count()
    }
}

fn is_measured(row: &Row) -> bool {
    row.summary(RATE).is_some()
}

fn twin<'a>(report: &'a Report, row: &Row) -> Option<&'a Row> {
    let is_twin = |other: &&Row| other.is_beside(row) && other.label == row.label && other.level == row.level;
    report.rows.iter().find(is_twin)
}

fn compare_rows(old: &Row, new: &Row) -> Option<ComparedRow> {
    Some(ComparedRow {
        row: new.clone(),
        rate: change(old, new, RATE, true)?,
        p99: change(old, new, LATENCY, false)?,
    })
}

fn change(old: &Row, new: &Row, metric: &str, more_is_better: bool) -> Option<Change> {
    let rounds = old.counting().count().min(new.counting().count());
    let is_partial = old.is_partial() || new.is_partial();
    let (old, new) = (old.summary(metric)?, new.summary(metric)?);
    let change_share = match old.median == new.median {
        true => 0.0,
        false => new.median / old.median - 1.0,
    };
    let rises = old.max < new.min && change_share > CHANGE_MIN;
    let falls = new.max < old.min && change_share < -CHANGE_MIN;
    let verdict = match rises || falls {
        _ if rounds < ROUNDS_MIN || is_partial => Verdict::TooFewRounds,
        true if rises == more_is_better => Verdict::Improvement,
        true => Verdict::Regression,
        false => Verdict::Unchanged,
    };
    Some(Change { old, new, percent: change_share * 100.0, verdict })
}

/// A row that only one report has, and the reason why the other has not; `other` is that report's row of the same kind.
fn describe(row: &Row, other: Option<&Row>) -> String {
    let data_point = if row.data_point.is_empty() { String::new() } else { format!(" {}", row.data_point) };
    let why = match other {
        None => "no such row",
        Some(other) => other.not_available.as_deref().unwrap_or("not run"),
    };
    let Row { workload, threads, label, level, .. } = row;
    format!("{workload}{data_point}, threads {threads}, {label}, {level} (in the other report: {why})")
}

fn warnings(old: &Report, new: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut note = |what: &str, old: String, new: String| {
        if old != new {
            warnings.push(format!("ran {what}: {}, now {}", shown(&old), shown(&new)));
        }
    };
    note("another benchmark", old.name.clone(), new.name.clone());
    note("on another machine", processors(&old.machine), processors(&new.machine));
    note("on another device", device(&old.machine), device(&new.machine));
    note("on another file system", old.machine.file_system.clone(), new.machine.file_system.clone());
    note("on another kernel", old.machine.kernel.clone(), new.machine.kernel.clone());
    for name in
        old.settings.keys().chain(new.settings.keys().filter(|name| !old.settings.contains_key(*name)))
    {
        let value = |report: &Report| report.settings.get(name).cloned().unwrap_or_default();
        note(&format!("with another setting `{name}`"), value(old), value(new));
    }
    for row in &new.rows {
        let Some(before) = twin(old, row) else { continue };
        let workload = format!("`{}` with other parameters", row.workload);
        note(&workload, before.parameters.clone(), row.parameters.clone());
        note(
            &format!("`{}` in another version or with other settings", row.label),
            before.about.clone(),
            row.about.clone(),
        );
        let cache = |row: &Row| crate::number::bytes(row.cache_bytes);
        note(&format!("`{}` with another cache", row.label), cache(before), cache(row));
    }
    for (which, report) in [("old", old), ("new", new)] {
        let found = crate::head::warnings(report);
        warnings.extend(found.into_iter().map(|warning| format!("in the {which} report: {warning}")));
    }
    distinct(warnings.into_iter())
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "old: {}\nnew: {}", self.old, self.new)?;
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let mut table = String::new();
        push_grid(&mut table, &self.grid());
        write!(f, "\n{table}\n")?;
        for (which, rows) in [("old", &self.only_old), ("new", &self.only_new)] {
            for row in rows {
                writeln!(f, "only in the {which} report: {row}")?;
            }
        }
        writeln!(
            f,
            "{} worse, {} better, {} the same, {} with too few rounds to tell",
            self.count(Verdict::Regression),
            self.count(Verdict::Improvement),
            self.count(Verdict::Unchanged),
            self.count(Verdict::TooFewRounds)
        )
    }
}

impl Comparison {
    fn grid(&self) -> Grid {
        let mut heads = vec![text_head("workload"), text_head("point"), number_head("threads")];
        heads.extend(["engine", "durability"].map(text_head));
        for metric in [RATE, LATENCY].map(Metric::named) {
            heads.extend(["old", "new"].map(|which| number_head(&format!("{which} {}", metric.label))));
            heads.extend([number_head("change"), text_head("")]);
        }
        let row = |ComparedRow { row, rate, p99 }: &ComparedRow| {
            let Row { workload, data_point, label, level, threads, .. } = row;
            let mut entries =
                vec![workload.clone(), data_point.clone(), threads.to_string(), label.clone(), level.clone()];
            for Change { old, new, percent, verdict } in [*rate, *p99] {
                entries.extend([number(old.median), number(new.median)]);
                entries.extend([format!("{percent:+.1} %"), verdict.to_string()]);
            }
            GridRow { entries, opens_group: true }
        };
        Grid { heads, rows: self.rows.iter().map(row).collect(), reasons: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_tests::{rounds, row, run, sample};

    /// A report of one row.
    fn of(rates: &[u64]) -> Report {
        let runs = rates.iter().zip(1..).map(|(rate, round)| run(round, *rate)).collect();
        Report { rows: vec![row("a", 8, runs)], ..sample() }
    }

    fn verdicts(old: &[u64], new: &[u64]) -> (Verdict, Verdict) {
        let comparison = compare(&of(old), &of(new));
        (comparison.rows[0].rate.verdict, comparison.rows[0].p99.verdict)
    }

    #[test]
    fn a_change_beyond_the_noise_is_reported() {
        use Verdict::{Improvement, Regression};
        assert_eq!(verdicts(&[100, 102, 104], &[80, 85, 90]), (Regression, Regression));
        assert_eq!(verdicts(&[80, 85, 90], &[100, 102, 104]), (Improvement, Improvement));
        let worse = compare(&of(&[100, 100, 100]), &of(&[50, 50, 50]));
        assert_eq!((worse.rows[0].rate.percent, worse.rows[0].p99.percent), (-50.0, 100.0));
        assert!(worse.has_regressions());
    }

    #[test]
    fn rounds_that_overlap_are_noise() {
        let unchanged = (Verdict::Unchanged, Verdict::Unchanged);
        assert_eq!(verdicts(&[100, 110, 120], &[60, 70, 101]), unchanged);
        assert_eq!(verdicts(&[100, 100, 100], &[100, 100, 100]), unchanged);
    }

    #[test]
    fn small_changes_are_none() {
        assert_eq!(verdicts(&[1000, 1001, 1002], &[960, 961, 962]).0, Verdict::Unchanged);
        assert_eq!(verdicts(&[1000, 1001, 1002], &[940, 941, 942]).0, Verdict::Regression);
    }

    #[test]
    fn two_rounds_give_no_verdict() {
        let few = (Verdict::TooFewRounds, Verdict::TooFewRounds);
        assert_eq!(verdicts(&[100, 101, 102], &[10, 11]), few);
        assert_eq!(verdicts(&[100], &[10, 11, 12]), few);
        assert!(!compare(&of(&[100]), &of(&[10])).has_regressions());
    }

    #[test]
    fn rows_of_one_report_are_listed() {
        let (mut old, mut new) = (sample(), sample());
        old.rows.push(row("gone", 8, rounds(10)));
        old.rows.push(row("broken", 8, rounds(10)));
        let mut broken = row("broken", 8, vec![]);
        broken.not_available = Some("it has no scans".into());
        new.rows.push(broken);
        new.rows[1].level = "no-barrier".into();
        let comparison = compare(&old, &new);
        assert_eq!(comparison.rows.len(), 3);
        let only_old = [
            "insert, threads 8, rocksdb, sync (in the other report: no such row)",
            "insert, threads 8, gone, sync (in the other report: no such row)",
            "insert, threads 8, broken, sync (in the other report: it has no scans)",
        ];
        assert_eq!(comparison.only_old, only_old);
        assert_eq!(
            comparison.only_new,
            ["insert, threads 8, rocksdb, no-barrier (in the other report: no such row)"]
        );
    }

    #[test]
    fn other_machines_and_settings_are_warned_of() {
        let (old, mut new) = (sample(), sample());
        assert!(compare(&old, &new).warnings.is_empty());
        new.machine.device = Some("sda".into());
        new.machine.kernel = "6.2.0".into();
        new.settings.insert("rounds".into(), "5".into());
        new.settings.insert("pinned".into(), "yes".into());
        new.rows[0].about = "fulgurite 1.3".into();
        new.rows[3].about = "fulgurite 1.3".into();
        let cache = "its cache does not outlive a power cut, a sync flushes it";
        let expected = [
            format!("ran on another device: nvme0n1, {cache}, now sda, {cache}"),
            "ran on another kernel: 6.1.0, now 6.2.0".into(),
            "ran with another setting `rounds`: 3, now 5".into(),
            "ran with another setting `pinned`: nothing, now yes".into(),
            "ran `fulgurite` in another version or with other settings: fulgurite 1.2, now fulgurite 1.3"
                .into(),
        ];
        assert_eq!(compare(&old, &new).warnings, expected);
    }

    #[test]
    fn the_table_has_rows_and_totals() {
        let mut new = of(&[80, 85, 90]);
        new.rows.push(row("b", 8, rounds(10)));
        let text = compare(&of(&[100, 102, 104]), &new).to_string();
        let expected = "\
old: version 0.1.0, 2026-03-01 17:05 UTC
new: version 0.1.0, 2026-03-01 17:05 UTC

workload  point  threads  engine  durability  old op/s  new op/s   change         old p99 us  new p99 us   change
--------  -----  -------  ------  ----------  --------  --------  -------  -----  ----------  ----------  -------  -----
insert                 8  a       sync             102        85  -16.7 %  WORSE     314,000     376,000  +20.0 %  WORSE

only in the new report: insert, threads 8, b, sync (in the other report: no such row)
2 worse, 0 better, 0 the same, 0 with too few rounds to tell
";
        assert_eq!(text, expected);
    }
}
