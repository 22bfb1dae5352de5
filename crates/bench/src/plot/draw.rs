//! The data of plots: lines, bars, stacked bars, samples over time.

use super::axis::{Axis, nice_step, tick_text};
use super::canvas::{Anchor, At, Canvas, INK, Look, SMALL, TEXT, width};
use super::data::{Cell, Layers, Trace, traces};
use super::frame::{Frame, Layout, Swatch};
use super::{PlotSpec, X};
use crate::Result;
use crate::metrics::Summary;
use crate::number::number;
use crate::report::Report;

/// The least width of a bar, and the largest.
const BAR_MIN: i32 = 14;
const BAR_MAX: i32 = 56;
/// The gap between the bars of one category and those of the next.
const GAP: i32 = 24;

/// A line for each series, with the spread of the rounds.
pub fn lines(layers: &Layers<'_>, spec: &PlotSpec<'_>, text: &mut String) -> Result<()> {
    let cells = layers.cells(spec.y);
    let (names_height, upwards) = names_room(&layers.categories, 640 / layers.categories.len().max(1) as i32);
    let layout = Layout {
        title: spec.title,
        x_label: x_label(spec.x),
        y_label: spec.y_label,
        data_width: 0,
        names_height,
        legend: legend(layers, &cells, Swatch::Line),
        axis: axis(&cells, spec),
    };
    let (mut canvas, frame) = layout.draw(text);
    let count = layers.categories.len();
    for (index, cells) in cells.iter().enumerate() {
        let look = Look::of(index);
        let x = |at: usize| frame.slot(at as f64 + 0.5, count).round() as i32;
        let place = |(at, cell): (usize, &Cell<Summary>)| Some((x(at), *cell.value()?));
        let places: Vec<Option<(i32, Summary)>> = cells.iter().enumerate().map(place).collect();
        // A line stops where a value is missing.
        for stretch in places.split(Option::is_none) {
            let stretch = stretch.iter().flatten();
            let points: Vec<At> = stretch.map(|(x, summary)| (*x, frame.y(summary.median))).collect();
            canvas.path(&points, look, 1.0, 2);
        }
        for (x, summary) in places.into_iter().flatten() {
            if summary.min < summary.max {
                canvas.spread(x, frame.y(summary.max), frame.y(summary.min), look.color);
            }
            canvas.marker((x, frame.y(summary.median)), look);
        }
    }
    frame.draw_foot(&mut canvas);
    frame.draw_names(&mut canvas, &layers.categories, 0, upwards);
    canvas.finish()
}

/// A group of bars for each category, one for each series.
pub fn bars(layers: &Layers<'_>, spec: &PlotSpec<'_>, text: &mut String) -> Result<()> {
    let cells = layers.cells(spec.y);
    let slots = Slots::of(layers);
    let layout = Layout {
        title: spec.title,
        x_label: x_label(spec.x),
        y_label: spec.y_label,
        data_width: slots.data_width,
        names_height: slots.names_height,
        legend: legend(layers, &cells, Swatch::Bar),
        axis: axis(&cells, spec),
    };
    let (mut canvas, frame) = layout.draw(text);
    for (series, cells) in cells.iter().enumerate() {
        for (category, cell) in cells.iter().enumerate() {
            let (left, right) = slots.bar(&frame, category, series);
            let middle = (left + right) / 2;
            match cell {
                Cell::Absent => {}
                Cell::NotAvailable => not_available(&mut canvas, &frame, left, right),
                Cell::Value(summary) => {
                    canvas.bar((left, frame.y(summary.median)), (right, frame.bottom), Look::of(series));
                    if summary.min < summary.max {
                        canvas.spread(middle, frame.y(summary.max), frame.y(summary.min), INK);
                    }
                    let top = frame.y(summary.max);
                    figure(&mut canvas, &number(summary.median), (left, right), top);
                }
            }
        }
    }
    slots.finish(canvas, &frame, layers)
}

/// A group of bars for each category, one for each series, with its name below it; each bar is a stack of figures.
pub fn stacked(
    layers: &Layers<'_>,
    spec: &PlotSpec<'_>,
    parts: &[(&str, &str)],
    text: &mut String,
) -> Result<()> {
    let stacks = layers.stacks(parts);
    let mut slots = Slots::of(layers);
    let names_height = layers.series.iter().map(|(name, _)| width(name, TEXT)).max().unwrap_or(0) + 6;
    slots.names_height += names_height;
    slots.series_names_height = names_height;
    let sums = stacks.iter().flatten().filter_map(Cell::value).map(|stack| stack.iter().sum::<f64>());
    let legend = parts.iter().enumerate();
    let layout = Layout {
        title: spec.title,
        x_label: x_label(spec.x),
        y_label: spec.y_label,
        data_width: slots.data_width,
        names_height: slots.names_height,
        legend: legend
            .map(|(index, (_, name))| (name.to_string(), Swatch::Bar(Look::of(index))))
            .rev()
            .collect(),
        axis: Axis::of(sums, false),
    };
    let (mut canvas, frame) = layout.draw(text);
    for (series, ((name, _), cells)) in layers.series.iter().zip(&stacks).enumerate() {
        for (category, cell) in cells.iter().enumerate() {
            let (left, right) = slots.bar(&frame, category, series);
            canvas.text_upwards(name, ((left + right) / 2, frame.bottom + 8), TEXT, Anchor::End);
            match cell {
                Cell::Absent => {}
                Cell::NotAvailable => not_available(&mut canvas, &frame, left, right),
                Cell::Value(stack) => {
                    let mut sum = 0.0;
                    for (index, part) in stack.iter().enumerate() {
                        let foot = frame.y(sum);
                        sum += part;
                        canvas.bar((left, frame.y(sum)), (right, foot), Look::of(index));
                    }
                    figure(&mut canvas, &number(sum), (left, right), frame.y(sum));
                }
            }
        }
    }
    slots.finish(canvas, &frame, layers)
}

/// A line for each run; that of the median run is fully opaque.
pub fn over_time(report: &Report, spec: &PlotSpec<'_>, text: &mut String) -> Result<()> {
    let (names, traces) = traces(report, spec.y)?;
    let legend = names.iter().enumerate().map(|(index, name)| {
        let has_any = traces.iter().any(|trace| trace.series == index && !trace.points.is_empty());
        let name = if has_any { name.clone() } else { format!("{name} (n/a)") };
        (name, Swatch::Line(Look::of(index)))
    });
    let points = || traces.iter().flat_map(|trace| &trace.points);
    let layout = Layout {
        title: spec.title,
        x_label: x_label(spec.x),
        y_label: spec.y_label,
        data_width: 0,
        names_height: TEXT,
        legend: legend.collect(),
        axis: Axis::of(points().map(|(_, value)| *value), spec.log_y),
    };
    let (mut canvas, frame) = layout.draw(text);
    let end = points().map(|(at, _)| *at).fold(0.0, f64::max).max(1e-9);
    let x = |at: f64| frame.slot(at / end, 1).round() as i32;
    let (medians, others): (Vec<&Trace>, Vec<&Trace>) = traces.iter().partition(|trace| trace.is_median);
    for trace in others.into_iter().chain(medians) {
        let look = Look::of(trace.series);
        let points: Vec<At> = trace.points.iter().map(|(at, value)| (x(*at), frame.y(*value))).collect();
        let (opacity, stroke_width) = if trace.is_median { (1.0, 2) } else { (0.35, 1) };
        canvas.path(&points, look, opacity, stroke_width);
        // Enough markers to identify the line, too few to hide it.
        let step = points.len().div_ceil(6).max(1);
        for point in points.iter().skip(step / 2).step_by(step).filter(|_| trace.is_median) {
            canvas.marker(*point, look);
        }
    }
    frame.draw_foot(&mut canvas);
    let step = nice_step(end / 8.0);
    for at in (0..).map(|index| f64::from(index) * step).take_while(|at| *at <= end * 1.000_001) {
        canvas.line((x(at), frame.bottom), (x(at), frame.bottom + 4), INK);
        canvas.text(&tick_text(at), (x(at), frame.bottom + 10 + TEXT / 2), TEXT, Anchor::Middle);
    }
    canvas.finish()
}

/// The positions of bars and of the names below them.
struct Slots {
    data_width: i32,
    names_height: i32,
    /// The height of the names of series within it.
    series_names_height: i32,
    upwards: bool,
    categories: usize,
    series: usize,
}

impl Slots {
    fn of(layers: &Layers<'_>) -> Slots {
        let (categories, series) = (layers.categories.len().max(1), layers.series.len().max(1));
        let data_width = (categories as i32 * (series as i32 * BAR_MIN + GAP)).max(640);
        let (names_height, upwards) = names_room(&layers.categories, data_width / categories as i32);
        Slots { data_width, names_height, series_names_height: 0, upwards, categories, series }
    }

    /// The left and the right end of a bar.
    fn bar(&self, frame: &Frame, category: usize, series: usize) -> (i32, i32) {
        let slot = (frame.right - frame.left) / self.categories as i32;
        let bar = ((slot - GAP) / self.series as i32).clamp(1, BAR_MAX);
        let middle = frame.slot(category as f64 + 0.5, self.categories).round() as i32;
        let left = middle - bar * self.series as i32 / 2 + bar * series as i32;
        (left + 1, left + bar)
    }

    fn finish(&self, mut canvas: Canvas<'_>, frame: &Frame, layers: &Layers<'_>) -> Result<()> {
        frame.draw_foot(&mut canvas);
        let offset = self.series_names_height;
        frame.draw_names(&mut canvas, &layers.categories, offset, self.upwards);
        canvas.finish()
    }
}

/// An axis for medians and their spread.
fn axis(cells: &[Vec<Cell<Summary>>], spec: &PlotSpec<'_>) -> Axis {
    let summaries = cells.iter().flatten().filter_map(Cell::value);
    Axis::of(summaries.flat_map(|summary| [summary.min, summary.max]), spec.log_y)
}

/// The height of the names below slots of this width, and whether they have to be vertical.
fn names_room(names: &[String], slot: i32) -> (i32, bool) {
    let widest = names.iter().map(|name| width(name, TEXT)).max().unwrap_or(0);
    if widest + 8 <= slot { (TEXT, false) } else { (widest, true) }
}

/// Marks the series that have no values at all.
fn legend(
    layers: &Layers<'_>,
    cells: &[Vec<Cell<Summary>>],
    swatch: fn(Look) -> Swatch,
) -> Vec<(String, Swatch)> {
    let names = layers.series.iter().zip(cells).enumerate();
    names
        .map(|(index, ((name, _), cells))| {
            let is_empty = cells.iter().all(|cell| cell.value().is_none());
            let name = if is_empty { format!("{name} (n/a)") } else { name.clone() };
            (name, swatch(Look::of(index)))
        })
        .collect()
}

fn x_label(x: X) -> &'static str {
    match x {
        X::Threads => "threads",
        X::Points => "",
        X::Time => "seconds",
    }
}

/// `n/a` instead of a bar.
fn not_available(canvas: &mut Canvas<'_>, frame: &Frame, left: i32, right: i32) {
    canvas.text_upwards("n/a", ((left + right) / 2, frame.bottom - 4), SMALL, Anchor::Start);
}

/// A figure above a bar: horizontal if there is room.
fn figure(canvas: &mut Canvas<'_>, text: &str, (left, right): (i32, i32), top: i32) {
    let middle = (left + right) / 2;
    match width(text, SMALL) <= right - left {
        true => canvas.text(text, (middle, top - 8), SMALL, Anchor::Middle),
        false => canvas.text_upwards(text, (middle, top - 5), SMALL, Anchor::Start),
    }
}
