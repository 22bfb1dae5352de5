//! A report as Markdown, for documents.

use std::fmt::Write;

use crate::head;
use crate::report::Report;
use crate::table::{Grid, PARTIAL_NOTE, TableSpec};

/// The report as a section of a document: its head, warnings, a table, tables by kind of operation, and notes.
///
/// # Panics
/// If there is no metric of a name in `table`.
pub fn markdown(report: &Report, table: &TableSpec) -> String {
    let mut text = format!("## {}\n\n", escaped(&report.title));
    push_facts(&mut text, &head::facts(report));
    push_list(&mut text, "Warnings", &head::warnings(report));
    for (title, grid) in Grid::all(report, table).into_iter().chain(Grid::of_seconds(report)) {
        let _ = write!(text, "### {}\n\n", escaped(&title));
        push_grid(&mut text, &grid);
    }
    if report.rows.iter().any(|row| row.is_partial()) {
        let _ = write!(text, "{PARTIAL_NOTE}\n\n");
    }
    push_list(&mut text, "Notes", &report.notes);
    text += "### Engines\n\n";
    push_facts(&mut text, &head::engines(report));
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn push_facts(text: &mut String, facts: &[(String, String)]) {
    for (name, value) in facts {
        let _ = writeln!(text, "- **{}**: {}", escaped(name), escaped(value));
    }
    text.push('\n');
}

fn push_list(text: &mut String, title: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = write!(text, "### {title}\n\n");
    for sentence in sentences {
        let _ = writeln!(text, "- {}", escaped(sentence));
    }
    text.push('\n');
}

fn push_grid(text: &mut String, grid: &Grid) {
    let mut push_line = |entries: Vec<String>| {
        let _ = writeln!(text, "| {} |", entries.join(" | "));
    };
    push_line(grid.heads.iter().map(|head| escaped(&head.text)).collect());
    push_line(grid.heads.iter().map(|head| if head.is_number { "--:" } else { ":--" }.to_string()).collect());
    for row in &grid.rows {
        push_line(row.entries.iter().map(|entry| escaped(entry)).collect());
    }
    text.push('\n');
    if grid.reasons.is_empty() {
        return;
    }
    text.push_str("n/a:\n\n");
    for (index, reason) in grid.reasons.iter().enumerate() {
        let _ = writeln!(text, "{}. {}", index + 1, escaped(reason));
    }
    text.push('\n');
}

/// Text that Markdown shows verbatim, on one line.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        // Within a word an underscore has no meaning.
        let in_word = before.is_alphanumeric() && rest.peek().is_some_and(|next| next.is_alphanumeric());
        match character {
            '\n' | '\r' => escaped.push(' '),
            '_' if in_word => escaped.push('_'),
            '\\' | '`' | '*' | '_' | '<' | '>' | '|' | '[' | ']' | '&' | '~' => {
                escaped.extend(['\\', character])
            }
            _ => escaped.push(character),
        }
        before = character;
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::End;
    use crate::report_tests::sample;

    const SPEC: TableSpec = TableSpec("operations_per_second p99_latency_us");

    #[test]
    fn a_report_becomes_a_section() {
        let mut report = sample();
        report.rows.truncate(3);
        report.end = End::Interrupted;
        for run in report.rows.iter_mut().flat_map(|row| &mut row.runs) {
            run.kinds.truncate(1);
        }
        let expected = "\
## Inserts \\& \\<syncs\\>

- **benchmark**: fig-5a
- **began**: 2026-03-01 17:05 UTC
- **program**: version 0.1.0
- **machine**: 8 processors (Some Processor 9000), 32 GiB of memory
- **device**: nvme0n1, its cache does not outlive a power cut, a sync flushes it
- **file system**: ext4
- **kernel**: 6.1.0
- **workload**: insert: 20-byte keys, 100-byte values
- **durability**: sync
- **cache**: 64 MiB
- **baseline**: rocksdb
- **limit**: 2 s
- **rounds**: 3
- **warm-up**: 0.5 s

### Warnings

- it was interrupted: the rows hold what was measured until then

### Figures

| threads | engine | op/s | to baseline | p99 us |
| --: | :-- | --: | --: | --: |
| 8 | fulgurite | 96,000 | 1.50 (1.50–1.50) | 333 |
| 8 | rocksdb | 64,000 | 1.00 (1.00–1.00) | 500 |
| 8 | lmdb | n/a (1) |  |  |

n/a:

1. lmdb: it has no \\<transactions\\> \\| of several statements

### Notes

- Keys come \\*in order\\*.

### Engines

- **fulgurite**: fulgurite 1.2; snapshot
- **rocksdb**: rocksdb 1.2; snapshot
- **lmdb**: lmdb 1.2; snapshot
";
        assert_eq!(markdown(&report, &SPEC), expected);
    }

    #[test]
    fn kinds_and_partial_rows_are_shown() {
        let mut report = sample();
        report.rows[0].runs.truncate(1);
        report.rows[0].runs[0].interrupted = true;
        let text = markdown(&report, &SPEC);
        assert!(text.contains("| 8 | fulgurite (partial) | 91,200 | "), "{text}");
        assert!(text.contains("\npartial: the run was ended before its limit"), "{text}");
        let kinds = "### insert by kind of operation\n\n| threads | engine | kind | op/s | p50 us |";
        assert!(text.contains(kinds), "{text}");
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escaped("a_b _c_ `d`\ne"), "a_b \\_c\\_ \\`d\\` e");
    }
}
