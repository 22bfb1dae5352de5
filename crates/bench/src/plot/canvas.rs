//! Lines, boxes and texts in pixels: the elements of an SVG picture.

use std::fmt::Write;

use crate::html::Escaped;

/// A vertex: to the right, and down.
pub type At = (i32, i32);

/// `#rrggbb`.
pub type Color = &'static str;

pub const INK: Color = "#222222";
pub const PALE: Color = "#dddddd";
const GREY: Color = "#999999";
const WHITE: Color = "#ffffff";

/// Height of the letters of axes and legends.
pub const TEXT: i32 = 13;
/// Height of the letters within the data.
pub const SMALL: i32 = 10;

/// Eight colors that readers with red-green color blindness can distinguish, too, on white. The first seven are those
/// of Okabe and Ito, without the yellow.
const COLORS: [Color; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444", "#882255"];
const MARKERS: usize = 5;

/// The look of the lines, markers and bars of one series. The first 24 differ as bars, the first 40 as markers.
#[derive(Clone, Copy)]
pub struct Look {
    pub color: Color,
    marker: usize,
    /// 0: filled bars and solid lines; 1: bars with stripes, dashed lines; 2: hollow bars, dashed lines.
    fill: usize,
}

impl Look {
    pub fn of(index: usize) -> Look {
        let color = COLORS[index % COLORS.len()];
        Look { color, marker: index % MARKERS, fill: index / COLORS.len() % 3 }
    }

    /// The same with solid lines.
    pub fn solid(self) -> Look {
        Look { fill: 0, ..self }
    }

    /// The same with dashed lines.
    pub fn dashed(self) -> Look {
        Look { fill: 1, ..self }
    }

    /// Of what all series have in common.
    pub fn grey() -> Look {
        Look { color: GREY, marker: 0, fill: 0 }
    }
}

/// Which vertex of a text is at its position.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// About how wide a text is.
pub fn width(text: &str, height: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(height) * 0.6).ceil() as i32
}

/// A picture that is being drawn.
pub struct Canvas(String);

impl Canvas {
    /// A white picture of this size in pixels.
    pub fn new(width: i32, height: i32) -> Canvas {
        let size = format!("width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"");
        let mut canvas = Canvas(format!("<svg {size} xmlns=\"http://www.w3.org/2000/svg\">\n"));
        canvas.rect((0, 0), (width, height), WHITE);
        canvas
    }

    /// The text of the picture.
    pub fn finish(self) -> String {
        self.0 + "</svg>\n"
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.0, "<{element}/>").expect("strings take all");
    }

    pub fn line(&mut self, (x1, y1): At, (x2, y2): At, color: Color) {
        self.element(format_args!(
            "line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{color}\" stroke-width=\"1\""
        ));
    }

    pub fn rect(&mut self, (left, top): At, (right, bottom): At, color: Color) {
        let (width, height) = (right - left, bottom - top);
        self.element(format_args!(
            "rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{color}\""
        ));
    }

    /// A line through all vertices.
    pub fn path(&mut self, vertices: &[At], Look { color, fill, .. }: Look, opacity: f64, stroke_width: u32) {
        if vertices.len() < 2 {
            return;
        }
        let dashes = if fill == 0 { "" } else { " stroke-dasharray=\"7 4\"" };
        self.element(format_args!(
            "polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{stroke_width}\" \
             opacity=\"{opacity}\"{dashes}",
            points(vertices)
        ));
    }

    pub fn marker(&mut self, (x, y): At, Look { color, marker, .. }: Look) {
        let outline: &[At] = match marker {
            0 => {
                return self.element(format_args!("circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"{color}\""));
            }
            1 => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
            2 => &[(0, -6), (5, 4), (-5, 4)],
            3 => &[(0, -6), (6, 0), (0, 6), (-6, 0)],
            _ => &[(0, 6), (5, -4), (-5, -4)],
        };
        let vertices: Vec<At> = outline.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        self.element(format_args!("polygon points=\"{}\" fill=\"{color}\"", points(&vertices)));
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
    pub fn spread(&mut self, x: i32, top: i32, bottom: i32, color: Color) {
        self.line((x, top), (x, bottom), color);
        self.line((x - 3, top), (x + 3, top), color);
        self.line((x - 3, bottom), (x + 3, bottom), color);
    }

    /// A text, vertically centered at `at`.
    pub fn text(&mut self, text: &str, at: At, height: i32, anchor: Anchor) {
        self.draw_text(text, at, height, anchor, "");
    }

    pub fn bold(&mut self, text: &str, at: At, height: i32) {
        self.draw_text(text, at, height, Anchor::Start, " font-weight=\"bold\"");
    }

    /// A text that runs upwards.
    pub fn text_upwards(&mut self, text: &str, at: At, height: i32, anchor: Anchor) {
        let turn = format!(" transform=\"rotate(270, {}, {})\"", at.0, at.1);
        self.draw_text(text, at, height, anchor, &turn);
    }

    fn draw_text(&mut self, text: &str, (x, y): At, height: i32, anchor: Anchor, more: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        writeln!(
            self.0,
            "<text x=\"{x}\" y=\"{y}\" dy=\"0.5ex\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" \
             font-size=\"{height}\" fill=\"{INK}\"{more}>{}</text>",
            Escaped(text)
        )
        .expect("strings take all");
    }
}

/// Vertices as attributes have them.
fn points(vertices: &[At]) -> String {
    vertices.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")
}
