//! A bar chart of write latencies as SVG.

use plotters::prelude::*;

use super::Report;
use super::cases::{Variant, WRITE_BYTES, WriteCase};
use super::samples::Figures;
use crate::text::size;

const PIXELS: (u32, u32) = (960, 540);
/// The palette of Okabe and Ito, made for readers with any kind of color vision.
const COLORS: [RGBColor; 4] =
    [RGBColor(230, 159, 0), RGBColor(86, 180, 233), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
/// The share of the room between two sizes that the bars take.
const GROUP_WIDTH: f64 = 0.84;
/// Ratio of the top of the scale to the largest latency: the legend is in between.
const LEGEND_ROOM: f64 = 8.0;

/// Draws, for each size and variant, a bar up to the p50 and a paler one up to the p99, on a logarithmic scale.
pub(crate) fn draw(report: &Report) -> Result<String, String> {
    let mut svg = String::new();
    draw_into(&mut svg, report).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn draw_into(svg: &mut String, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    let latencies = || report.writes.iter().filter_map(|(_, found)| found.as_ref());
    let max_us = latencies().map(|found| found.p99_us).fold(1.0, f64::max) * LEGEND_ROOM;
    let min_us =
        10f64.powf(latencies().map(|found| found.p50_us).fold(max_us, f64::min).max(0.1).log10().floor());
    let root = SVGBackend::with_string(svg, PIXELS).into_drawing_area();
    root.fill(&WHITE)?;
    let below = report.device.device.as_deref().unwrap_or("no device");
    let caption = format!("Write latency, p50 and (pale) p99: {} on {below}", report.device.file_system);
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..WRITE_BYTES.len() as f64, (min_us..max_us).log_scale())?;
    // The label is in the middle of its group, where the axis has no tick.
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc("microseconds")
        .y_label_formatter(&|us| format!("{us}"))
        .draw()?;
    for (position, variant) in Variant::ALL.into_iter().enumerate() {
        let color = COLORS[position];
        let bar = |(group, found): (usize, &Figures), top_us: f64, style: ShapeStyle| {
            let width = GROUP_WIDTH / Variant::ALL.len() as f64;
            let left = group as f64 + (1.0 - GROUP_WIDTH) / 2.0 + position as f64 * width;
            let bottom_us = if top_us > found.p50_us { found.p50_us } else { min_us };
            Rectangle::new([(left, bottom_us), (left + width * 0.9, top_us)], style)
        };
        let measured: Vec<(usize, &Figures)> = WRITE_BYTES
            .into_iter()
            .enumerate()
            .filter_map(|(group, bytes)| Some((group, report.write(WriteCase::each(variant, bytes))?)))
            .collect();
        let pale = color.mix(0.35).filled();
        chart.draw_series(measured.iter().map(|found| bar(*found, found.1.p99_us, pale)))?;
        chart
            .draw_series(measured.iter().map(|found| bar(*found, found.1.p50_us, color.filled())))?
            .label(variant.label())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    let style = ("sans-serif", 14).into_text_style(&root);
    for (group, bytes) in WRITE_BYTES.into_iter().enumerate() {
        let (x, y) = chart.backend_coord(&(group as f64 + 0.5, min_us));
        root.draw_text(&size(bytes as u64), &style, (x - 20, y + 8))?;
    }
    root.present()?;
    Ok(())
}
