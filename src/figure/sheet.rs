//! The sheet a figure is drawn on: a list of shapes in logical pixels, x to the right and y down.
//!
//! Figures know nothing of SVG or PNG; the renderer turns the same list into both. Shapes with a coordinate that is
//! not finite are left out here, so that no figure has to think about them.

use plotters::style::RGBColor;

use super::font::width_of;
use super::style::{INK, TICK_SIZE};

/// A place on the sheet: x, y.
pub(crate) type Point = (f64, f64);

/// One mark on the sheet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// An open line; `dash` is the length of a dash and of the gap after it.
    Path {
        points: Vec<Point>,
        color: RGBColor,
        width: f64,
        dash: Option<f64>,
    },
    /// A filled polygon.
    Area {
        points: Vec<Point>,
        color: RGBColor,
        alpha: f64,
    },
    /// A filled rectangle.
    Rect {
        from: Point,
        to: Point,
        color: RGBColor,
    },
    /// A filled circle.
    Disc {
        center: Point,
        radius: f64,
        color: RGBColor,
    },
    /// A line of text.
    Text(Text),
}

/// Which end of a text lies at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A line of text; `at` lies on its baseline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) at: Point,
    pub(crate) text: String,
    pub(crate) size: f64,
    pub(crate) bold: bool,
    pub(crate) color: RGBColor,
    pub(crate) anchor: Anchor,
    /// Whether the text runs upwards.
    pub(crate) upwards: bool,
}

impl Text {
    /// A text in tick size that starts at `at`.
    pub(crate) fn new(at: Point, text: impl Into<String>) -> Self {
        Self {
            at,
            text: text.into(),
            size: TICK_SIZE,
            bold: false,
            color: INK,
            anchor: Anchor::Start,
            upwards: false,
        }
    }

    pub(crate) fn size(self, size: f64) -> Self {
        Self { size, ..self }
    }

    pub(crate) fn color(self, color: RGBColor) -> Self {
        Self { color, ..self }
    }

    pub(crate) fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(crate) fn middle(self) -> Self {
        Self {
            anchor: Anchor::Middle,
            ..self
        }
    }

    pub(crate) fn end(self) -> Self {
        Self {
            anchor: Anchor::End,
            ..self
        }
    }

    pub(crate) fn upwards(self) -> Self {
        Self {
            upwards: true,
            ..self
        }
    }

    /// Moves the text down so that capitals are centred on the height given before.
    pub(crate) fn centred_on_line(mut self) -> Self {
        self.at.1 += 0.36 * self.size;
        self
    }

    /// Length of the text in logical pixels.
    pub(crate) fn width(&self) -> f64 {
        width_of(&self.text, self.size, self.bold)
    }
}

/// A sheet of a given size and what has been drawn on it so far.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) shapes: Vec<Shape>,
}

impl Sheet {
    /// An empty sheet.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            shapes: Vec::new(),
        }
    }

    /// Draws a solid line; it is interrupted where a point is not finite.
    pub(crate) fn path(&mut self, points: &[Point], color: RGBColor, width: f64) {
        self.any_path(points, color, width, None);
    }

    /// Draws a dashed line.
    pub(crate) fn dashes(&mut self, points: &[Point], color: RGBColor, width: f64, dash: f64) {
        self.any_path(points, color, width, Some(dash));
    }

    /// Fills a polygon; points that are not finite are left out.
    pub(crate) fn area(&mut self, points: &[Point], color: RGBColor, alpha: f64) {
        let points: Vec<Point> = points.iter().copied().filter(is_finite).collect();
        if points.len() > 2 {
            self.shapes.push(Shape::Area {
                points,
                color,
                alpha,
            });
        }
    }

    /// Fills a rectangle between two opposite corners.
    pub(crate) fn rect(&mut self, a: Point, b: Point, color: RGBColor) {
        if is_finite(&a) && is_finite(&b) {
            let from = (a.0.min(b.0), a.1.min(b.1));
            let to = (a.0.max(b.0), a.1.max(b.1));
            self.shapes.push(Shape::Rect { from, to, color });
        }
    }

    /// Fills a circle.
    pub(crate) fn disc(&mut self, center: Point, radius: f64, color: RGBColor) {
        if is_finite(&center) && radius > 0.0 {
            self.shapes.push(Shape::Disc {
                center,
                radius,
                color,
            });
        }
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, text: Text) {
        if is_finite(&text.at) && !text.text.is_empty() {
            self.shapes.push(Shape::Text(text));
        }
    }

    fn any_path(&mut self, points: &[Point], color: RGBColor, width: f64, dash: Option<f64>) {
        for piece in points.split(|point| !is_finite(point)) {
            let mut points = piece.to_vec();
            points.dedup();
            if points.len() > 1 {
                self.shapes.push(Shape::Path {
                    points,
                    color,
                    width,
                    dash,
                });
            }
        }
    }
}

/// Far outside any sheet, yet safe to round to a pixel number.
const FAR: f64 = 1e5;

fn is_finite(point: &Point) -> bool {
    point.0.abs() < FAR && point.1.abs() < FAR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_where_a_point_is_missing() {
        let mut sheet = Sheet::new(100.0, 100.0);
        let nan = f64::NAN;
        sheet.path(
            &[(0.0, 0.0), (1.0, 1.0), (2.0, nan), (3.0, 3.0), (4.0, 4.0)],
            INK,
            1.0,
        );
        assert_eq!(sheet.shapes.len(), 2);
        sheet.disc((f64::INFINITY, 0.0), 3.0, INK);
        sheet.rect((0.0, 0.0), (nan, 1.0), INK);
        assert_eq!(sheet.shapes.len(), 2);
    }
}
