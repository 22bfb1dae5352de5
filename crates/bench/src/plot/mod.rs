//! A report as a picture: lines, bars or stacked bars by threads or by data points, and samples over time.

mod area;
mod axis;
mod canvas;
mod data;
mod draw;
#[cfg(test)]
mod plot_tests;
mod tails;

use self::data::Layers;
pub(crate) use self::data::{TAIL, row_name};
use crate::report::Report;

/// The horizontal axis of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum X {
    /// Numbers of threads, evenly spaced. Where data points differ, they belong to the names of the series.
    Threads,
    /// Data points, with workload and threads where those differ.
    DataPoints,
    /// The time of a run: always lines, or [`Kind::Tails`]. `y` is one of `operations_per_second`, `disk_mib`,
    /// `log_above_checkpoint_mib` and `space_amplification`; the last is computed with the bytes that are live at the end.
    Time,
}

/// How a plot shows its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line for each engine; a bar through a vertex spans the smallest to the largest round.
    Lines,
    /// A bar for each engine, grouped; `n/a` where the engine cannot do it.
    Bars,
    /// A bar for each engine, grouped, of several figures that add up: names of [`METRICS`](crate::METRICS), from the
    /// bottom. `y` and `log_y` mean nothing then.
    Stacked(&'static [&'static str]),
    /// Over time, p99 and the longest latency of each second, with checkpoints as ticks and the bare device's longest.
    /// `y` only names the axis.
    Tails,
}

/// The settings of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlotSpec {
    /// Above the plot.
    pub title: &'static str,
    /// From left to right.
    pub x: X,
    /// From bottom to top: the name of one of [`METRICS`](crate::METRICS).
    pub y: &'static str,
    /// How it is drawn.
    pub kind: Kind,
    /// Whether the axis is logarithmic.
    pub log_y: bool,
}

/// The picture as the text of an SVG file. A label has the same color, marker and stripes in all plots of a report
/// whose series are its labels alone.
///
/// # Panics
/// If there is no metric of a name in `spec`, or it is not known over time.
pub fn plot(report: &Report, spec: &PlotSpec) -> String {
    let layers = match spec.x {
        X::Time if spec.kind == Kind::Tails => return tails::draw(report, spec),
        X::Time => return draw::over_time(report, spec),
        X::Threads => Layers::by_threads(report),
        X::DataPoints => Layers::by_data_points(report),
    };
    match spec.kind {
        Kind::Lines | Kind::Tails => draw::lines(&layers, spec),
        Kind::Bars => draw::bars(&layers, spec),
        Kind::Stacked(metrics) => draw::stacked(&layers, spec, metrics),
    }
}
