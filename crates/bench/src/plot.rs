//! A report as a picture: transactions a second by threads, one line for each engine.

use plotters::prelude::*;
use plotters::style::RGBColor;

use crate::report::{Report, Series};
use crate::{Error, Result};

const SIZE: (u32, u32) = (900, 540);
/// Told apart by those who do not see red and green, too.
const COLORS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
];

/// The picture as the text of an SVG file. Numbers of threads are evenly spaced; a bar through a point goes from the
/// slowest round to the fastest.
///
/// # Errors
/// [`Error::Engine`] of the drawing, which means a report of absurd figures.
pub fn draw(report: &Report, title: &str) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        fill(report, title, &area).map_err(|error| Error::engine("drawing", error.to_string()))?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn fill(
    report: &Report,
    title: &str,
    area: &Area<'_>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut threads: Vec<u32> = report.series.iter().map(|series| series.threads).collect();
    threads.dedup();
    let rates = report.series.iter().filter_map(|series| rate(series).map(|(_, _, max)| max));
    let top = rates.fold(0.0, f64::max).max(1.0) * 1.1;
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(80)
        .build_cartesian_2d(-0.5..threads.len() as f64 - 0.5, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .label_style(("sans-serif", 16))
        .axis_desc_style(("sans-serif", 17))
        .x_labels(2 * threads.len() + 1)
        .x_label_formatter(&|x| label(&threads, *x))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc("threads")
        .y_desc("transactions/s")
        .draw()?;
    let mut engines: Vec<&str> = Vec::new();
    for series in &report.series {
        if !engines.contains(&series.engine.as_str()) {
            engines.push(&series.engine);
        }
    }
    for (engine, color) in engines.into_iter().zip(COLORS.into_iter().cycle()) {
        let found = threads.iter().enumerate();
        let points: Vec<(f64, (f64, f64, f64))> = found
            .filter_map(|(x, threads)| Some((x as f64, rate(report.find(engine, *threads)?)?)))
            .collect();
        let line = points.iter().map(|(x, (median, _, _))| (*x, *median));
        chart
            .draw_series(LineSeries::new(line.clone(), color.stroke_width(2)))?
            .label(engine)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], color.stroke_width(2)));
        chart.draw_series(line.map(|point| Circle::new(point, 4, color.filled())))?;
        let spread =
            points.iter().map(|(x, (_, min, max))| PathElement::new([(*x, *min), (*x, *max)], color));
        chart.draw_series(spread)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 16))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// Median, least and most transactions a second.
fn rate(series: &Series) -> Option<(f64, f64, f64)> {
    series.summary("transactions_per_second").map(|rate| (rate.median, rate.min, rate.max))
}

/// The number of threads at a place of the axis, if there is one.
fn label(threads: &[u32], x: f64) -> String {
    let near = x.round();
    let here = (x - near).abs() < 1e-6 && near >= 0.0;
    here.then(|| threads.get(near as usize)).flatten().map(u32::to_string).unwrap_or_default()
}
