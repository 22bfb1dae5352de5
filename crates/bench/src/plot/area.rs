//! The area of the data: title, axes, legend. Each has room of its own, so that nothing overlaps.

use super::axis::Axis;
use super::canvas::{Anchor, At, Canvas, INK, Look, PALE, TEXT, width};
use super::{Kind, PlotSpec, X};
use crate::metrics::Metric;

/// The settings of an area.
pub struct Layout {
    pub title: &'static str,
    pub x_label: &'static str,
    pub y_label: &'static str,
    /// The least width of the data.
    pub data_width: i32,
    /// The height of the names below the data.
    pub names_height: i32,
    pub legend: Vec<(String, Swatch)>,
    pub axis: Axis,
}

/// The mark beside a name in the legend.
#[derive(Clone, Copy)]
pub enum Swatch {
    Bar(Look),
    Line(Look),
    /// A line without a marker.
    Plain(Look),
    Tick(Look),
}

/// The area of the data.
pub struct PlotArea {
    pub left: i32,
    pub right: i32,
    pub top: i32,
    pub bottom: i32,
    axis: Axis,
}

const TITLE: i32 = 18;
const MARGIN: i32 = 16;
const DATA_WIDTH_MIN: i32 = 640;
const DATA_HEIGHT: i32 = 380;
const LEGEND_LINE: i32 = 20;
const SWATCH: i32 = 30;

impl Layout {
    /// The least width, and room for one line of names.
    pub fn new(spec: &PlotSpec, legend: Vec<(String, Swatch)>, axis: Axis) -> Layout {
        let x_label = match spec.x {
            X::Threads => "threads",
            X::DataPoints => "",
            X::Time => "seconds",
        };
        let y_label = match spec.kind {
            // The legend names the figures of a stack.
            Kind::Stacked(_) => "",
            Kind::Tails => "us",
            Kind::Lines | Kind::Bars => Metric::named(spec.y).label,
        };
        Layout { title: spec.title, x_label, y_label, data_width: 0, names_height: TEXT, legend, axis }
    }

    /// Draws it on a new picture of the size that it needs.
    pub fn draw(&self) -> (Canvas, PlotArea) {
        let ticks = self.axis.ticks();
        let ticks_width = ticks.iter().map(|(_, text)| width(text, TEXT)).max().unwrap_or(0);
        let legend_width = self.legend.iter().map(|(name, _)| width(name, TEXT) + SWATCH).max();
        let left = MARGIN + 24 + ticks_width + 8;
        let right = left + self.data_width.max(DATA_WIDTH_MIN);
        let picture_width = right + legend_width.map_or(0, |width| MARGIN + width) + MARGIN;
        let title = wrapped(self.title, (picture_width - 2 * MARGIN) / width("x", TITLE));
        let top = MARGIN + title.len() as i32 * (TITLE + 6) + 10;
        let legend_height = self.legend.len() as i32 * LEGEND_LINE;
        let bottom = top + DATA_HEIGHT.max(legend_height);
        let label_height = if self.x_label.is_empty() { 0 } else { 10 + TEXT };
        let picture_height = bottom + 10 + self.names_height + label_height + MARGIN;

        let mut canvas = Canvas::new(picture_width, picture_height);
        let area = PlotArea { left, right, top, bottom, axis: self.axis };
        for (line, y) in title.iter().zip((MARGIN + TITLE / 2..).step_by(TITLE as usize + 6)) {
            canvas.bold(line, (MARGIN, y), TITLE);
        }
        for (value, text) in ticks {
            let y = area.y(value);
            canvas.line((left, y), (right, y), PALE);
            canvas.text(&text, (left - 8, y), TEXT, Anchor::End);
        }
        let middle = (top + bottom) / 2;
        canvas.text_upwards(self.y_label, (MARGIN + TEXT / 2, middle), TEXT, Anchor::Middle);
        let below = picture_height - MARGIN - TEXT / 2;
        canvas.text(self.x_label, ((left + right) / 2, below), TEXT, Anchor::Middle);
        self.draw_legend(&mut canvas, (right + MARGIN, top));
        (canvas, area)
    }

    fn draw_legend(&self, canvas: &mut Canvas, (x, top): At) {
        for ((name, swatch), y) in
            self.legend.iter().zip((top + LEGEND_LINE / 2..).step_by(LEGEND_LINE as usize))
        {
            match swatch {
                Swatch::Bar(look) => canvas.bar((x + 4, y - 6), (x + 20, y + 6), *look),
                Swatch::Plain(look) => canvas.path(&[(x, y), (x + 24, y)], *look, 1.0, 2),
                Swatch::Tick(look) => canvas.path(&[(x + 12, y - 8), (x + 12, y + 8)], look.solid(), 1.0, 2),
                Swatch::Line(look) => {
                    canvas.path(&[(x, y), (x + 24, y)], *look, 1.0, 2);
                    canvas.marker((x + 12, y), *look);
                }
            }
            canvas.text(name, (x + SWATCH, y), TEXT, Anchor::Start);
        }
    }
}

impl PlotArea {
    /// The vertical position of a value.
    pub fn y(&self, value: f64) -> i32 {
        self.bottom - (self.axis.height(value) * f64::from(self.bottom - self.top)).round() as i32
    }

    /// The left end of one of `count` categories that share the width; `category` may be a fraction, and `count` is
    /// the end of the last.
    pub fn x(&self, category: f64, count: usize) -> f64 {
        f64::from(self.left) + category * f64::from(self.right - self.left) / count.max(1) as f64
    }

    /// The bottom line of the data, drawn after them.
    pub fn draw_foot(&self, canvas: &mut Canvas) {
        canvas.line((self.left, self.bottom), (self.right, self.bottom), INK);
    }

    /// The names of categories `offset` below the bottom line, vertical if `upwards` is set.
    pub fn draw_names(&self, canvas: &mut Canvas, names: &[String], offset: i32, upwards: bool) {
        for (index, name) in names.iter().enumerate() {
            let x = self.x(index as f64 + 0.5, names.len()).round() as i32;
            match upwards {
                true => canvas.text_upwards(name, (x, self.bottom + offset + 8), TEXT, Anchor::End),
                false => canvas.text(name, (x, self.bottom + offset + 10 + TEXT / 2), TEXT, Anchor::Middle),
            }
        }
    }
}

/// Breaks a text at spaces into lines of at most `line_len_max` characters; a longer word has a line of its own.
fn wrapped(text: &str, line_len_max: i32) -> Vec<String> {
    let line_len_max = usize::try_from(line_len_max).unwrap_or(0);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= line_len_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_titles_have_several_lines() {
        assert_eq!(wrapped("a title of words", 8), ["a title", "of words"]);
        assert_eq!(wrapped("unbreakable title", 4), ["unbreakable", "title"]);
        assert!(wrapped("", 4).is_empty());
    }
}
