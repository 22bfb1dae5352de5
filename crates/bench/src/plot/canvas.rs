//! Lines, boxes and texts in pixels.

use plotters::element::{DashedPathElement, Drawable};
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::{Error, Result};

/// A vertex: to the right, and down.
pub type At = (i32, i32);

pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub const PALE: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Height of the letters of axes and legends.
pub const TEXT: i32 = 13;
/// Height of the letters within the data.
pub const SMALL: i32 = 10;

/// Eight colors that readers with red-green color blindness can distinguish, too, on white. The first seven are those
/// of Okabe and Ito, without the yellow.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x44, 0x44, 0x44),
    RGBColor(0x88, 0x22, 0x55),
];
const MARKERS: usize = 5;

/// The look of the lines, markers and bars of one series. The first 24 differ as bars, the first 40 as markers.
#[derive(Clone, Copy)]
pub struct Look {
    pub color: RGBColor,
    marker: usize,
    /// 0: filled bars and solid lines; 1: bars with stripes, dashed lines; 2: hollow bars, dashed lines.
    fill: usize,
}

impl Look {
    pub fn of(index: usize) -> Look {
        let color = COLORS[index % COLORS.len()];
        Look { color, marker: index % MARKERS, fill: index / COLORS.len() % 3 }
    }
}

/// Which vertex of a text is at its position.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// Its start.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// About how wide a text is.
pub fn width(text: &str, height: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(height) * 0.6).ceil() as i32
}

pub struct Canvas<'a> {
    backend: SVGBackend<'a>,
    failure: Option<String>,
    size: (u32, u32),
}

impl<'a> Canvas<'a> {
    /// A white picture of this size in pixels.
    pub fn new(text: &'a mut String, width: i32, height: i32) -> Canvas<'a> {
        let size = (width.max(1) as u32, height.max(1) as u32);
        let mut canvas = Canvas { backend: SVGBackend::with_string(text, size), failure: None, size };
        canvas.rect((0, 0), (width, height), WHITE);
        canvas
    }

    /// Ends the text of the picture.
    pub fn finish(mut self) -> Result<()> {
        let done = self.backend.present();
        self.note(done);
        match self.failure {
            None => Ok(()),
            Some(failure) => Err(Error::engine("drawing a plot", failure)),
        }
    }

    /// Keeps the first failure, for [`Canvas::finish`].
    fn note<E: std::error::Error>(&mut self, done: Result<(), E>) {
        if let Err(error) = done {
            self.failure.get_or_insert(error.to_string());
        }
    }

    pub fn line(&mut self, from: At, to: At, color: RGBColor) {
        let done = self.backend.draw_line(from, to, &color.stroke_width(1));
        self.note(done);
    }

    pub fn rect(&mut self, from: At, to: At, color: RGBColor) {
        let done = self.backend.draw_rect(from, to, &color, true);
        self.note(done);
    }

    /// A line through all vertices.
    pub fn path(&mut self, vertices: &[At], look: Look, opacity: f64, stroke_width: u32) {
        if vertices.len() < 2 {
            return;
        }
        let style = ShapeStyle { color: look.color.mix(opacity), filled: false, stroke_width };
        let done = match look.fill {
            0 => self.backend.draw_path(vertices.iter().copied(), &style),
            _ => DashedPathElement::new(vertices.iter().copied(), 7, 4, style).draw(
                vertices.iter().copied(),
                &mut self.backend,
                self.size,
            ),
        };
        self.note(done);
    }

    pub fn marker(&mut self, (x, y): At, look: Look) {
        let outline: &[At] = match look.marker {
            0 => {
                let done = self.backend.draw_circle((x, y), 5, &look.color, true);
                return self.note(done);
            }
            1 => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
            2 => &[(0, -6), (5, 4), (-5, 4)],
            3 => &[(0, -6), (6, 0), (0, 6), (-6, 0)],
            _ => &[(0, 6), (5, -4), (-5, -4)],
        };
        let done = self.backend.fill_polygon(outline.iter().map(|(dx, dy)| (x + dx, y + dy)), &look.color);
        self.note(done);
    }

    /// A bar whose base is at the lower corner.
    pub fn bar(&mut self, top_left: At, bottom_right: At, look: Look) {
        self.rect(top_left, bottom_right, look.color);
        let ((left, top), (right, bottom)) = (top_left, bottom_right);
        match look.fill {
            0 => {}
            1 => {
                for y in (top + 2..bottom - 1).step_by(5) {
                    self.rect((left + 1, y), (right - 1, (y + 2).min(bottom)), WHITE);
                }
            }
            _ if right - left > 4 && bottom - top > 4 => {
                self.rect((left + 2, top + 2), (right - 2, bottom - 2), WHITE);
            }
            _ => {}
        }
    }

    /// A vertical line with end marks, from the least value to the largest.
    pub fn spread(&mut self, x: i32, top: i32, bottom: i32, color: RGBColor) {
        self.line((x, top), (x, bottom), color);
        self.line((x - 3, top), (x + 3, top), color);
        self.line((x - 3, bottom), (x + 3, bottom), color);
    }

    /// A text, vertically centered at `at`.
    pub fn text(&mut self, text: &str, at: At, height: i32, anchor: Anchor) {
        self.draw_text(text, at, height, anchor, FontTransform::None, FontStyle::Normal);
    }

    pub fn bold(&mut self, text: &str, at: At, height: i32) {
        self.draw_text(text, at, height, Anchor::Start, FontTransform::None, FontStyle::Bold);
    }

    /// A text that runs upwards.
    pub fn text_upwards(&mut self, text: &str, at: At, height: i32, anchor: Anchor) {
        self.draw_text(text, at, height, anchor, FontTransform::Rotate270, FontStyle::Normal);
    }

    fn draw_text(
        &mut self,
        text: &str,
        at: At,
        height: i32,
        anchor: Anchor,
        turn: FontTransform,
        style: FontStyle,
    ) {
        let anchor = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        // The backend divides sizes by this.
        let size = f64::from(height) * 1.24;
        let font = FontDesc::new(FontFamily::SansSerif, size, style).transform(turn);
        let style = TextStyle::from(font).color(&INK).pos(Pos::new(anchor, VPos::Center));
        let done = self.backend.draw_text(text, &style, at);
        self.note(done);
    }
}
