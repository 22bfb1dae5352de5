//! The seconds of runs as tables of texts.

use crate::metrics::mib;
use crate::number::number;
use crate::plot::{TAIL, row_name};
use crate::report::{Report, Row};
use crate::run::{Second, Timeline};
use crate::table::{Grid, GridRow, Head, MISSING, number_head};

type Column = (&'static str, fn(&Second) -> Option<f64>);

const COLUMNS: [Column; 10] = [
    ("due", |second| Some(second.due as f64)),
    ("completed", |second| Some(second.completed as f64)),
    ("p50 us", |second| of_due(second, second.latency.p50_ns)),
    ("p99 us", |second| of_due(second, second.latency.p99_ns)),
    ("p99.9 us", |second| of_due(second, second.latency.p999_ns)),
    ("max us", |second| of_due(second, second.latency.max_ns)),
    ("bare max us", |second| Some(us(second.bare?.max_ns))),
    ("checkpoints", |second| Some(second.watched?.checkpoints as f64)),
    ("log above MiB", |second| Some(mib(second.watched?.log_bytes))),
    ("stats max us", |second| Some(us(second.watched?.stats_ns_max))),
];

fn of_due(second: &Second, ns: u64) -> Option<f64> {
    (second.due > 0).then(|| us(ns))
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Grid {
    /// A row for each second of the run in the middle by p99, one grid with a title for each row of the report that has
    /// a timeline.
    pub fn of_seconds(report: &Report) -> Vec<(String, Grid)> {
        let of_row = |row: &Row| {
            let (runs, middle) = row.runs_by(TAIL);
            let run = runs.get(middle)?;
            let title = format!("{}, second by second (round {})", row_name(report, row), run.round);
            Some((title, of_timeline(run.timeline.as_ref()?)))
        };
        report.rows.iter().filter_map(of_row).collect()
    }
}

fn of_timeline(timeline: &Timeline) -> Grid {
    let any = |(_, of): &&Column| timeline.seconds.iter().any(|second| of(second).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(any).collect();
    let heads = [number_head("second")].into_iter().chain(columns.iter().map(|(name, _)| number_head(name)));
    let row = |(index, second): (usize, &Second)| {
        let figures = columns.iter().map(|(_, of)| of(second).map_or(MISSING.to_string(), number));
        let entries = [(index + 1).to_string()].into_iter().chain(figures).collect();
        GridRow { entries, opens_group: false }
    };
    Grid {
        heads: heads.collect::<Vec<Head>>(),
        rows: timeline.seconds.iter().enumerate().map(row).collect(),
        reasons: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_tests::{paced, row, run, sample};

    #[test]
    fn seconds_are_those_of_the_run_in_the_middle() {
        let rows = vec![row("a", 1, vec![paced(1, 100), paced(2, 300), paced(3, 200)])];
        let grids = Grid::of_seconds(&Report { rows, ..sample() });
        let [(title, grid)] = &grids[..] else { panic!("one row: {}", grids.len()) };
        assert_eq!(title, "a, second by second (round 3)");
        let lines: Vec<String> = grid.rows.iter().map(|row| row.entries.join("|")).collect();
        assert_eq!(lines[1], "2|200|200|100|2,000|0|20,000|500|1|2|30");
        assert_eq!(lines[4], "5|0|1|–|–|–|–|–|–|–|–");
        assert_eq!(grid.heads.len(), 11);
    }

    #[test]
    fn columns_without_a_figure_are_left_out() {
        let mut paced = paced(1, 100);
        for second in &mut paced.timeline.as_mut().expect("its seconds").seconds {
            (second.bare, second.watched) = (None, None);
        }
        let rows = vec![row("a", 1, vec![paced]), row("b", 1, vec![run(1, 5)]), row("c", 1, vec![])];
        let grids = Grid::of_seconds(&Report { rows, ..sample() });
        assert_eq!(grids.iter().map(|(_, grid)| grid.heads.len()).collect::<Vec<_>>(), [7]);
    }
}
