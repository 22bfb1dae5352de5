//! The data of plots: lines, bars, stacked bars, samples over time.

use super::PlotSpec;
use super::area::{Layout, PlotArea, Swatch};
use super::axis::{Axis, nice_step, tick_text};
use super::canvas::{Anchor, At, Canvas, INK, Look, SMALL, TEXT, width};
use super::data::{Entry, Layers, Trace, traces};
use crate::metrics::{Metric, Summary};
use crate::number::number;
use crate::report::Report;

/// The least width of a bar, and the largest.
const BAR_MIN: i32 = 14;
const BAR_MAX: i32 = 56;
/// The gap between the bars of one category and those of the next.
const GAP: i32 = 24;

/// A line for each series, with the spread of the rounds.
pub fn lines(layers: &Layers<'_>, spec: &PlotSpec) -> String {
    let entries = layers.entries(spec.y);
    let (names_height, upwards) = names_room(&layers.categories, 640 / layers.categories.len().max(1) as i32);
    let layout = Layout::new(spec, legend(layers, &entries, Swatch::Line), axis(&entries, spec));
    let (mut canvas, area) = Layout { names_height, ..layout }.draw();
    let count = layers.categories.len();
    for (index, entries) in entries.iter().enumerate() {
        let look = Look::of(index);
        let x = |at: usize| area.x(at as f64 + 0.5, count).round() as i32;
        let median = |(at, entry): (usize, &Entry<Summary>)| Some((x(at), *entry.value()?));
        let medians: Vec<Option<(i32, Summary)>> = entries.iter().enumerate().map(median).collect();
        // A line stops where a value is missing.
        for stretch in medians.split(Option::is_none) {
            let stretch = stretch.iter().flatten();
            let vertices: Vec<At> = stretch.map(|(x, summary)| (*x, area.y(summary.median))).collect();
            canvas.path(&vertices, look, 1.0, 2);
        }
        for (x, summary) in medians.into_iter().flatten() {
            if summary.min < summary.max {
                canvas.spread(x, area.y(summary.max), area.y(summary.min), look.color);
            }
            canvas.marker((x, area.y(summary.median)), look);
        }
    }
    area.draw_foot(&mut canvas);
    area.draw_names(&mut canvas, &layers.categories, 0, upwards);
    canvas.finish()
}

/// A group of bars for each category, one for each series.
pub fn bars(layers: &Layers<'_>, spec: &PlotSpec) -> String {
    let entries = layers.entries(spec.y);
    let layout = Layout::new(spec, legend(layers, &entries, Swatch::Bar), axis(&entries, spec));
    BarLayout::of(layers, 0).draw(layout, layers, &entries, |canvas, area, series, (left, right), summary| {
        canvas.bar((left, area.y(summary.median)), (right, area.bottom), Look::of(series));
        let top = area.y(summary.max);
        if summary.min < summary.max {
            canvas.spread((left + right) / 2, top, area.y(summary.min), INK);
        }
        (summary.median, top)
    })
}

/// A group of bars for each category, one for each series, with its name below it; each bar is a stack of figures.
pub fn stacked(layers: &Layers<'_>, spec: &PlotSpec, metrics: &[&str]) -> String {
    let stacks = layers.stacks(metrics);
    let names_height = layers.series.iter().map(|(name, _)| width(name, TEXT)).max().unwrap_or(0) + 6;
    let sums = stacks.iter().flatten().filter_map(Entry::value).map(|stack| stack.iter().sum::<f64>());
    let swatch = |(index, metric): (usize, &&str)| {
        (Metric::named(metric).label.to_string(), Swatch::Bar(Look::of(index)))
    };
    let legend = metrics.iter().enumerate().map(swatch).rev().collect();
    let layout = Layout::new(spec, legend, Axis::of(sums, false));
    BarLayout::of(layers, names_height).draw(
        layout,
        layers,
        &stacks,
        |canvas, area, _, (left, right), stack| {
            let mut sum = 0.0;
            for (index, figure) in stack.iter().enumerate() {
                let foot = area.y(sum);
                sum += figure;
                canvas.bar((left, area.y(sum)), (right, foot), Look::of(index));
            }
            (sum, area.y(sum))
        },
    )
}

/// A line for each run; that of the median run is fully opaque.
pub fn over_time(report: &Report, spec: &PlotSpec) -> String {
    let (names, traces) = traces(report, spec.y);
    let legend = names.iter().enumerate().map(|(index, name)| {
        let has_any = traces.iter().any(|trace| trace.series == index && !trace.values.is_empty());
        let name = if has_any { name.clone() } else { format!("{name} (n/a)") };
        (name, Swatch::Line(Look::of(index)))
    });
    let values = || traces.iter().flat_map(|trace| &trace.values);
    let axis = Axis::of(values().map(|(_, value)| *value), spec.log_y);
    let (mut canvas, area) = Layout::new(spec, legend.collect(), axis).draw();
    let end = values().map(|(at, _)| *at).fold(0.0, f64::max).max(1e-9);
    let x = |at: f64| area.x(at / end, 1).round() as i32;
    let (medians, others): (Vec<&Trace>, Vec<&Trace>) = traces.iter().partition(|trace| trace.is_median);
    for trace in others.into_iter().chain(medians) {
        let look = Look::of(trace.series);
        let vertices: Vec<At> = trace.values.iter().map(|(at, value)| (x(*at), area.y(*value))).collect();
        trace_line(&mut canvas, &vertices, look, trace.is_median);
        mark_trace(&mut canvas, &vertices, look, trace.is_median);
    }
    area.draw_foot(&mut canvas);
    draw_seconds(&mut canvas, &area, end);
    canvas.finish()
}

/// The line of a run over time.
pub fn trace_line(canvas: &mut Canvas, vertices: &[At], look: Look, is_median: bool) {
    let (opacity, stroke_width) = if is_median { (1.0, 2) } else { (0.35, 1) };
    canvas.path(vertices, look, opacity, stroke_width);
}

/// Enough markers to identify the line of the median run, too few to hide it.
pub fn mark_trace(canvas: &mut Canvas, vertices: &[At], look: Look, is_median: bool) {
    let step = vertices.len().div_ceil(6).max(1);
    for vertex in vertices.iter().skip(step / 2).step_by(step).filter(|_| is_median) {
        canvas.marker(*vertex, look);
    }
}

/// The horizontal axis of a plot over time, up to `end` seconds.
pub fn draw_seconds(canvas: &mut Canvas, area: &PlotArea, end: f64) {
    let step = nice_step(end / 8.0);
    for at in (0..).map(|index| f64::from(index) * step).take_while(|at| *at <= end * 1.000_001) {
        let x = area.x(at / end, 1).round() as i32;
        canvas.line((x, area.bottom), (x, area.bottom + 4), INK);
        canvas.text(&tick_text(at), (x, area.bottom + 10 + TEXT / 2), TEXT, Anchor::Middle);
    }
}

/// The positions of bars and of the names below them.
struct BarLayout {
    data_width: i32,
    names_height: i32,
    /// The height of the names of series within it; 0: the legend names them.
    series_names_height: i32,
    upwards: bool,
    categories: usize,
    series: usize,
}

impl BarLayout {
    fn of(layers: &Layers<'_>, series_names_height: i32) -> BarLayout {
        let (categories, series) = (layers.categories.len().max(1), layers.series.len().max(1));
        let data_width = (categories as i32 * (series as i32 * BAR_MIN + GAP)).max(640);
        let (names_height, upwards) = names_room(&layers.categories, data_width / categories as i32);
        let names_height = names_height + series_names_height;
        BarLayout { data_width, names_height, series_names_height, upwards, categories, series }
    }

    /// The left and the right end of a bar.
    fn bar(&self, area: &PlotArea, category: usize, series: usize) -> (i32, i32) {
        let category_width = (area.right - area.left) / self.categories as i32;
        let bar = ((category_width - GAP) / self.series as i32).clamp(1, BAR_MAX);
        let middle = area.x(category as f64 + 0.5, self.categories).round() as i32;
        let left = middle - bar * self.series as i32 / 2 + bar * series as i32;
        (left + 1, left + bar)
    }

    /// The picture, in which `draw` draws each entry that there is, by the number of its series and its left and right
    /// end, and returns the figure to be written above it, and where it ends.
    fn draw<T>(
        &self,
        layout: Layout,
        layers: &Layers<'_>,
        entries: &[Vec<Entry<T>>],
        draw: impl Fn(&mut Canvas, &PlotArea, usize, (i32, i32), &T) -> (f64, i32),
    ) -> String {
        let (data_width, names_height) = (self.data_width, self.names_height);
        let (mut canvas, area) = Layout { data_width, names_height, ..layout }.draw();
        for (series, ((name, _), entries)) in layers.series.iter().zip(entries).enumerate() {
            for (category, entry) in entries.iter().enumerate() {
                let (left, right) = self.bar(&area, category, series);
                let middle = (left + right) / 2;
                if self.series_names_height > 0 {
                    canvas.text_upwards(name, (middle, area.bottom + 8), TEXT, Anchor::End);
                }
                match entry {
                    Entry::Absent => {}
                    Entry::NotAvailable => {
                        canvas.text_upwards("n/a", (middle, area.bottom - 4), SMALL, Anchor::Start);
                    }
                    Entry::Value(value) => {
                        let (figure, top) = draw(&mut canvas, &area, series, (left, right), value);
                        let text = number(figure);
                        match width(&text, SMALL) <= right - left {
                            true => canvas.text(&text, (middle, top - 8), SMALL, Anchor::Middle),
                            false => canvas.text_upwards(&text, (middle, top - 5), SMALL, Anchor::Start),
                        }
                    }
                }
            }
        }
        area.draw_foot(&mut canvas);
        area.draw_names(&mut canvas, &layers.categories, self.series_names_height, self.upwards);
        canvas.finish()
    }
}

/// An axis for medians and their spread.
fn axis(entries: &[Vec<Entry<Summary>>], spec: &PlotSpec) -> Axis {
    let summaries = entries.iter().flatten().filter_map(Entry::value);
    Axis::of(summaries.flat_map(|summary| [summary.min, summary.max]), spec.log_y)
}

/// The height of the names below categories of this width, and whether they have to be vertical.
fn names_room(names: &[String], category_width: i32) -> (i32, bool) {
    let widest = names.iter().map(|name| width(name, TEXT)).max().unwrap_or(0);
    if widest + 8 <= category_width { (TEXT, false) } else { (widest, true) }
}

/// Marks the series that have no values at all.
fn legend(
    layers: &Layers<'_>,
    entries: &[Vec<Entry<Summary>>],
    swatch: fn(Look) -> Swatch,
) -> Vec<(String, Swatch)> {
    let names = layers.series.iter().zip(entries).enumerate();
    names
        .map(|(index, ((name, _), entries))| {
            let is_empty = entries.iter().all(|entry| entry.value().is_none());
            let name = if is_empty { format!("{name} (n/a)") } else { name.clone() };
            (name, swatch(Look::of(index)))
        })
        .collect()
}
