//! Turns a sheet into SVG text or a PNG file, through the two backends of plotters.

use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, FontTransform, IntoFont, ShapeStyle, TextStyle};

use super::font::{BITMAP_SIZE_PER_EM, FAMILY, SVG_SIZE_PER_EM, register};
use super::sheet::{Anchor, Point, Shape, Sheet, Text};
use super::style::WHITE;

/// Backends place shapes on whole pixels, so SVG is drawn large and shown smaller.
const SVG_SCALE: f64 = 4.0;
/// Bitmaps are drawn three times as large and averaged, which smooths every edge.
const BITMAP_SCALE: usize = 3;

/// The sheet as an SVG document.
pub(super) fn svg(sheet: &Sheet) -> anyhow::Result<String> {
    register();
    let mut text = String::new();
    let size = scaled_size(sheet, SVG_SCALE);
    let pen = Pen {
        scale: SVG_SCALE,
        size_per_em: SVG_SIZE_PER_EM,
        ascent_per_em: 0.76,
    };
    draw(sheet, SVGBackend::with_string(&mut text, size), &pen)
        .map_err(|error| anyhow!("the SVG backend refused a shape: {error}"))?;
    let drawn = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
    let shown = format!("width=\"{}\" height=\"{}\"", sheet.width, sheet.height);
    Ok(text.replacen(&drawn, &shown, 1))
}

/// Writes the sheet to `path` as a PNG of the sheet's size.
pub(super) fn write_png(sheet: &Sheet, path: &Path) -> anyhow::Result<()> {
    register();
    let size = scaled_size(sheet, BITMAP_SCALE as f64);
    let mut pixels = vec![255; size.0 as usize * size.1 as usize * 3];
    let pen = Pen {
        scale: BITMAP_SCALE as f64,
        size_per_em: BITMAP_SIZE_PER_EM,
        ascent_per_em: BITMAP_SIZE_PER_EM / 2.0,
    };
    draw(sheet, BitMapBackend::with_buffer(&mut pixels, size), &pen)
        .map_err(|error| anyhow!("the bitmap backend refused a shape: {error}"))?;
    let shown = scaled_size(sheet, 1.0);
    let pixels = averaged(&pixels, size.0 as usize, shown);
    let mut file = BitMapBackend::new(path, shown);
    file.blit_bitmap((0, 0), shown, &pixels)
        .and_then(|()| file.present())
        .map_err(|error| anyhow!("{error}"))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// How logical pixels become those of a backend.
struct Pen {
    scale: f64,
    /// The backend's font size for one em.
    size_per_em: f64,
    /// Distance from the top at which the backend hangs a text up to its baseline, in em.
    ascent_per_em: f64,
}

impl Pen {
    fn at(&self, point: &Point) -> (i32, i32) {
        (
            (point.0 * self.scale).round() as i32,
            (point.1 * self.scale).round() as i32,
        )
    }

    fn all(&self, points: &[Point]) -> Vec<(i32, i32)> {
        points.iter().map(|point| self.at(point)).collect()
    }

    fn length(&self, length: f64) -> u32 {
        (length * self.scale).round().max(1.0) as u32
    }
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw<B: DrawingBackend>(sheet: &Sheet, backend: B, pen: &Pen) -> Drawn<B> {
    let area = backend.into_drawing_area();
    area.fill(&WHITE)?;
    for shape in &sheet.shapes {
        match shape {
            Shape::Path {
                points,
                color,
                width,
                dash,
            } => {
                let style = ShapeStyle::from(color).stroke_width(pen.length(*width));
                let lines = match dash {
                    Some(dash) => dashes(points, *dash),
                    None => vec![points.clone()],
                };
                for line in lines {
                    area.draw(&PathElement::new(pen.all(&line), style))?;
                }
            }
            Shape::Area {
                points,
                color,
                alpha,
            } => {
                area.draw(&Polygon::new(pen.all(points), color.mix(*alpha)))?;
            }
            Shape::Rect { from, to, color } => {
                area.draw(&Rectangle::new([pen.at(from), pen.at(to)], color.filled()))?;
            }
            Shape::Disc {
                center,
                radius,
                color,
            } => {
                area.draw(&Circle::new(
                    pen.at(center),
                    pen.length(*radius),
                    color.filled(),
                ))?;
            }
            Shape::Text(text) => write(text, &area, pen)?,
        }
    }
    area.present()
}

fn write<B: DrawingBackend>(text: &Text, area: &DrawingArea<B, Shift>, pen: &Pen) -> Drawn<B> {
    let hang = pen.ascent_per_em * text.size;
    let (x, y) = text.at;
    let (at, transform) = if text.upwards {
        ((x - hang, y), FontTransform::Rotate270)
    } else {
        ((x, y - hang), FontTransform::None)
    };
    let horizontal = match text.anchor {
        Anchor::Start => HPos::Left,
        Anchor::Middle => HPos::Center,
        Anchor::End => HPos::Right,
    };
    let weight = if text.bold {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    let font = (FAMILY, text.size * pen.scale * pen.size_per_em)
        .into_font()
        .style(weight);
    let style = TextStyle::from(font.transform(transform))
        .color(&text.color)
        .pos(Pos::new(horizontal, VPos::Top));
    area.draw_text(&text.text, &style, pen.at(&at))
}

/// Cuts a line into dashes of length `dash` with gaps of 0.7 × `dash`.
fn dashes(points: &[Point], dash: f64) -> Vec<Vec<Point>> {
    let gap = 0.7 * dash;
    let mut lines: Vec<Vec<Point>> = Vec::new();
    let (mut drawing, mut left) = (true, dash);
    let mut line = points.first().map(|first| vec![*first]).unwrap_or_default();
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            if length <= left {
                left -= length;
                line.push(to);
                break;
            }
            let share = left / length;
            from = (
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            );
            line.push(from);
            if drawing {
                lines.push(std::mem::take(&mut line));
            }
            line = vec![from];
            drawing = !drawing;
            left = if drawing { dash } else { gap };
        }
    }
    if drawing && line.len() > 1 {
        lines.push(line);
    }
    lines
}

fn scaled_size(sheet: &Sheet, scale: f64) -> (u32, u32) {
    (
        (sheet.width * scale).round() as u32,
        (sheet.height * scale).round() as u32,
    )
}

/// The mean of each square of `BITMAP_SCALE`² pixels, RGB.
fn averaged(pixels: &[u8], row_pixels: usize, size: (u32, u32)) -> Vec<u8> {
    let mut out = Vec::with_capacity(size.0 as usize * size.1 as usize * 3);
    for y in 0..size.1 as usize {
        for x in 0..size.0 as usize {
            let mut sum = [0_u32; 3];
            for row in y * BITMAP_SCALE..(y + 1) * BITMAP_SCALE {
                let start = (row * row_pixels + x * BITMAP_SCALE) * 3;
                for pixel in pixels[start..start + BITMAP_SCALE * 3].chunks_exact(3) {
                    for (total, channel) in sum.iter_mut().zip(pixel) {
                        *total += u32::from(*channel);
                    }
                }
            }
            out.extend(sum.map(|total| (total / (BITMAP_SCALE * BITMAP_SCALE) as u32) as u8));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_cover_ten_seventeenths_of_a_line() {
        let drawn: f64 = dashes(&[(0.0, 0.0), (50.0, 0.0), (170.0, 0.0)], 10.0)
            .iter()
            .map(|line| line[line.len() - 1].0 - line[0].0)
            .sum();
        assert!((drawn - 100.0).abs() < 1e-9, "{drawn}");
    }

    #[test]
    fn averaging_halves_an_edge() {
        let side = BITMAP_SCALE;
        let mut pixels = vec![255_u8; side * side * 3];
        pixels[..side * 3].fill(0);
        let mean = averaged(&pixels, side, (1, 1));
        assert_eq!(mean, vec![170, 170, 170]);
    }
}
