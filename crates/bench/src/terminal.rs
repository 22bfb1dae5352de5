//! A report as plain text, for the terminal.

use std::fmt::Write;

use crate::head;
use crate::report::Report;
use crate::table::{Grid, PARTIAL_NOTE, TableSpec};

/// The report as text: its head, warnings, a table, tables by kind of operation, and notes. With
/// [`TableSpec::TERMINAL`], one durability throughout and labels of no more than 24 characters, the tables fit 120
/// columns.
///
/// # Panics
/// If there is no metric of a name in `table`.
pub fn text_table(report: &Report, table: &TableSpec) -> String {
    let mut text = format!("{}\n\n", report.title);
    push_facts(&mut text, &head::facts(report));
    text.push('\n');
    push_facts(&mut text, &head::engines(report));
    text.push('\n');
    let warnings = head::warnings(report);
    for warning in &warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    if !warnings.is_empty() {
        text.push('\n');
    }
    push_grid(&mut text, &Grid::of(report, table));
    if report.rows.iter().any(|row| row.is_partial()) {
        let _ = writeln!(text, "{PARTIAL_NOTE}");
    }
    for (title, grid) in Grid::of_kinds(report) {
        let _ = write!(text, "\n{title}\n\n");
        push_grid(&mut text, &grid);
    }
    if !report.notes.is_empty() {
        text.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn push_facts(text: &mut String, facts: &[(String, String)]) {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in facts {
        let _ = writeln!(text, "{name:width$}  {value}");
    }
}

/// The columns aligned, a blank line between groups of several rows, and the reasons below.
pub(crate) fn push_grid(text: &mut String, grid: &Grid) {
    let width_of = |column: usize| {
        let entries = grid.rows.iter().map(|row| &row.entries[column]);
        let texts = entries.chain([&grid.heads[column].text]);
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..grid.heads.len()).map(width_of).collect();
    let mut push_line = |entries: &mut dyn Iterator<Item = &String>| {
        let mut line = String::new();
        for ((entry, head), width) in entries.zip(&grid.heads).zip(&widths) {
            let _ = match head.is_number {
                true => write!(line, "{entry:>width$}  "),
                false => write!(line, "{entry:width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    };
    push_line(&mut grid.heads.iter().map(|head| &head.text));
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    push_line(&mut rule.iter());
    let groups = grid.rows.iter().filter(|row| row.opens_group).count();
    let has_gaps = groups < grid.rows.len();
    for (index, row) in grid.rows.iter().enumerate() {
        if has_gaps && row.opens_group && index > 0 {
            push_line(&mut [].iter());
        }
        push_line(&mut row.entries.iter());
    }
    for (index, reason) in grid.reasons.iter().enumerate() {
        let _ = writeln!(text, "n/a ({}) {reason}", index + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_tests::{assert_in_order, sample};

    #[test]
    fn columns_are_aligned() {
        let mut text = String::new();
        push_grid(&mut text, &Grid::of(&sample(), &TableSpec::TERMINAL));
        let expected = "\
threads  engine        op/s       to baseline  p50 us  p99 us  syncs/op  write amp.
-------  ---------  -------  ----------------  ------  ------  --------  ----------
      8  fulgurite   96,000  1.50 (1.50–1.50)    83.3     333     0.100        3.33
      8  rocksdb     64,000  1.00 (1.00–1.00)     125     500     0.100        3.33
      8  lmdb       n/a (1)

     64  fulgurite  768,000  1.50 (1.50–1.50)    10.4    41.7     0.100        3.33
     64  rocksdb    512,000  1.00 (1.00–1.00)    15.6    62.5     0.100        3.33
     64  lmdb       n/a (1)
n/a (1) lmdb: it has no <transactions> | of several statements
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_terminal_of_120_columns_is_enough() {
        let mut report = sample();
        report.rows[0].label = "an-engine-with-this-name".into();
        report.baseline.clone_from(&report.rows[0].label);
        report.rows[3].workload = "update-search".into();
        report.rows[3].data_point = "A1".into();
        let mut text = String::new();
        push_grid(&mut text, &Grid::of(&report, &TableSpec::TERMINAL));
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(120), "{widest:?}\n{text}");
    }

    #[test]
    fn the_text_has_head_table_kinds_and_notes() {
        let mut report = sample();
        report.machine.file_system = "tmpfs".into();
        let text = text_table(&report, &TableSpec::TERMINAL);
        let texts = [
            "Inserts & <syncs>\n\nbenchmark    fig-5a\n",
            "\n\nfulgurite  fulgurite 1.2; snapshot\n",
            "\n\nwarning: the databases are in memory",
            "\n\nthreads  engine ",
            "\ninsert by kind of operation\n\nthreads  engine     kind ",
            "\nnote: Keys come *in order*.\n",
        ];
        assert_in_order(&text, &texts);
    }
}
