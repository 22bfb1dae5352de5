//! Latencies over time: p99 and the longest of each second, with what may have caused them.

use super::PlotSpec;
use super::area::{Layout, PlotArea, Swatch};
use super::axis::Axis;
use super::canvas::{At, Canvas, Look};
use super::data::{TAIL, row_name};
use super::draw::{draw_seconds, mark_trace, trace_line};
use crate::report::{Report, Row};
use crate::run::{Run, Second, Watched};

/// The height of the tick of a checkpoint.
const TICK: i32 = 14;

/// The runs of a row.
struct Series<'a> {
    name: String,
    look: Look,
    /// In the order of their p99.
    runs: Vec<&'a Run>,
    middle: usize,
}

/// A figure of a second, in nanoseconds; `None` if it has none.
type Figure = fn(&Second) -> Option<u64>;

const P99: Figure = |second| (second.due > 0).then_some(second.latency.p99_ns);
const MAX: Figure = |second| (second.due > 0).then_some(second.latency.max_ns);
const BARE_MAX: Figure = |second| second.bare.map(|bare| bare.max_ns);

/// For each run a solid line of p99 and a dashed one of the longest latency; for the median run with its checkpoints: a
/// tick where one was completed, and a line along the bottom for the time that it took.
pub fn draw(report: &Report, spec: &PlotSpec) -> String {
    let series: Vec<Series<'_>> = report.rows.iter().enumerate().map(|row| Series::of(report, row)).collect();
    let seconds = || series.iter().flat_map(|series| &series.runs).copied().flat_map(seconds);
    let values = [P99, MAX, BARE_MAX].into_iter().flat_map(|figure| seconds().filter_map(figure));
    let values: Vec<f64> = values.map(us).collect();
    let (canvas, area) = Layout::new(spec, legend(&series), Axis::of(values.into_iter(), spec.log_y)).draw();
    let lengths = series.iter().flat_map(|series| &series.runs).map(|run| self::seconds(run).len());
    let mut picture = Picture { canvas, area, end: lengths.max().unwrap_or(0).max(1) as f64 };
    let with_checkpoints = series.iter().filter(|series| series.any(|second| completed(second).is_some()));
    for (level, series) in (0..).zip(with_checkpoints) {
        series.runs.get(series.middle).iter().for_each(|run| picture.checkpoints(run, series.look, level));
    }
    for is_median in [false, true] {
        for series in &series {
            let runs = series.runs.iter().enumerate();
            for (_, run) in runs.filter(|(index, _)| (*index == series.middle) == is_median) {
                picture.line(run, BARE_MAX, Look::grey(), is_median);
                picture.line(run, MAX, series.look.dashed(), is_median);
                let p99 = picture.line(run, P99, series.look, is_median);
                mark_trace(&mut picture.canvas, &p99, series.look, is_median);
            }
        }
    }
    picture.area.draw_foot(&mut picture.canvas);
    draw_seconds(&mut picture.canvas, &picture.area, picture.end);
    picture.canvas.finish()
}

impl<'a> Series<'a> {
    fn of(report: &Report, (index, row): (usize, &'a Row)) -> Series<'a> {
        let (runs, middle) = row.runs_by(TAIL);
        Series { name: row_name(report, row), look: Look::of(index).solid(), runs, middle }
    }

    fn any(&self, is: impl Fn(&Second) -> bool) -> bool {
        self.runs.iter().copied().flat_map(seconds).any(is)
    }
}

fn legend(all: &[Series<'_>]) -> Vec<(String, Swatch)> {
    let mut legend = Vec::new();
    for series in all {
        let Series { name, look, .. } = series;
        if !series.any(|_| true) {
            legend.push((format!("{name} (n/a)"), Swatch::Line(*look)));
            continue;
        }
        legend.push((format!("{name}, p99"), Swatch::Line(*look)));
        legend.push((format!("{name}, max"), Swatch::Plain(look.dashed())));
        if series.any(|second| completed(second).is_some()) {
            legend.push((format!("{name}, checkpoint"), Swatch::Tick(*look)));
        }
    }
    if all.iter().any(|series| series.any(|second| second.bare.is_some())) {
        legend.push(("bare device, max".to_string(), Swatch::Plain(Look::grey())));
    }
    legend
}

/// What was watched in a second in which a checkpoint was completed.
fn completed(second: &Second) -> Option<Watched> {
    second.watched.filter(|watched| watched.checkpoints > 0)
}

fn seconds(run: &Run) -> &[Second] {
    run.timeline.as_ref().map_or(&[], |timeline| &timeline.seconds)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The middle of a second.
fn middle_of(index: usize) -> f64 {
    index as f64 + 0.5
}

struct Picture {
    canvas: Canvas,
    area: PlotArea,
    /// Seconds from left to right.
    end: f64,
}

impl Picture {
    fn x(&self, at: f64) -> i32 {
        self.area.x(at.max(0.0) / self.end, 1).round() as i32
    }

    /// Draws a figure of all seconds; returns the vertices. The line stops where a second has none.
    fn line(&mut self, run: &Run, figure: Figure, look: Look, is_median: bool) -> Vec<At> {
        let vertex = |(index, second): (usize, &Second)| {
            Some((self.x(middle_of(index)), self.area.y(us(figure(second)?))))
        };
        let vertices: Vec<Option<At>> = seconds(run).iter().enumerate().map(vertex).collect();
        for stretch in vertices.split(Option::is_none) {
            let stretch: Vec<At> = stretch.iter().flatten().copied().collect();
            trace_line(&mut self.canvas, &stretch, look, is_median);
        }
        vertices.into_iter().flatten().collect()
    }

    /// The ticks of one series are above those of another.
    fn checkpoints(&mut self, run: &Run, look: Look, level: i32) {
        let (top, foot) = (self.area.top, self.area.bottom - level * (TICK + 2));
        for (index, second) in seconds(run).iter().enumerate() {
            let Some(Watched { checkpoint_ns, .. }) = completed(second) else { continue };
            let end = middle_of(index);
            let (from, x) = (self.x(end - checkpoint_ns as f64 / 1e9), self.x(end));
            self.canvas.path(&[(x, top), (x, foot)], look, 0.2, 1);
            self.canvas.path(&[(x, foot - TICK), (x, foot)], look, 1.0, 2);
            self.canvas.path(&[(from, foot - 3), (x, foot - 3)], look, 0.6, 4);
        }
    }
}
