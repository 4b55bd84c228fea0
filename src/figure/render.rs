//! Turns a sheet into SVG text or a PNG file, through the two backends of plotters.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ColorType, ImageEncoder};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle,
};

use super::curve::dashes;
use super::font::{FAMILY, rasterise};
use super::sheet::{Anchor, Point, Shape, Sheet, Text};
use super::style::WHITE;

/// Backends place shapes on whole pixels, so SVG is drawn large and shown smaller.
const SVG_SCALE: f64 = 4.0;
/// Bitmaps are drawn three times as large and averaged, which smooths every edge.
const BITMAP_SCALE: usize = 3;

/// The sheet as an SVG document.
pub(super) fn svg(sheet: &Sheet) -> anyhow::Result<String> {
    let mut text = String::new();
    let size = scaled_size(sheet, SVG_SCALE);
    let pen = Pen {
        scale: SVG_SCALE,
        medium: Medium::Svg,
    };
    draw(sheet, SVGBackend::with_string(&mut text, size), &pen)
        .map_err(|error| anyhow!("the SVG backend refused a shape: {error}"))?;
    let drawn = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
    let shown = format!("width=\"{}\" height=\"{}\"", sheet.width, sheet.height);
    Ok(text.replacen(&drawn, &shown, 1))
}

/// Writes the sheet to `path` as a PNG of the sheet's size.
pub(super) fn write_png(sheet: &Sheet, path: &Path) -> anyhow::Result<()> {
    let size = scaled_size(sheet, BITMAP_SCALE as f64);
    let mut pixels = vec![255; size.0 as usize * size.1 as usize * 3];
    let pen = Pen {
        scale: BITMAP_SCALE as f64,
        medium: Medium::Bitmap,
    };
    draw(sheet, BitMapBackend::with_buffer(&mut pixels, size), &pen)
        .map_err(|error| anyhow!("the bitmap backend refused a shape: {error}"))?;
    let shown = scaled_size(sheet, 1.0);
    let pixels = averaged(&pixels, size.0 as usize, shown);
    // Filters are for photographs: they take longer than all else here, and blank paper is as small without.
    let mut png = Vec::new();
    PngEncoder::new_with_quality(&mut png, CompressionType::Default, FilterType::NoFilter)
        .write_image(&pixels, shown.0, shown.1, ColorType::Rgb8)
        .with_context(|| format!("cannot draw {}", path.display()))?;
    // In one piece: what the encoder writes last goes out when it is dropped, and a full disk would not be heard of.
    fs::write(path, png).with_context(|| format!("cannot write {}", path.display()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Medium {
    Svg,
    Bitmap,
}

/// How logical pixels become those of a backend.
struct Pen {
    scale: f64,
    medium: Medium,
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
type Paper<B> = DrawingArea<B, Shift>;

fn draw<B: DrawingBackend>(sheet: &Sheet, backend: B, pen: &Pen) -> Drawn<B> {
    let paper = backend.into_drawing_area();
    if pen.medium == Medium::Svg {
        paper.fill(&WHITE)?;
    }
    for shape in &sheet.shapes {
        match shape {
            Shape::Path {
                points,
                color,
                width,
                dash,
            } => {
                let lines = match dash {
                    Some(dash) => dashes(points, *dash),
                    None => vec![points.clone()],
                };
                for line in lines {
                    draw_path(&paper, pen, &line, color, *width)?;
                }
            }
            Shape::Area {
                points,
                color,
                alpha,
            } => {
                paper.draw(&Polygon::new(pen.all(points), color.mix(*alpha)))?;
            }
            Shape::Rect { from, to, color } => {
                paper.draw(&Rectangle::new([pen.at(from), pen.at(to)], color.filled()))?;
            }
            Shape::Disc {
                center,
                radius,
                color,
            } => {
                paper.draw(&Circle::new(
                    pen.at(center),
                    pen.length(*radius),
                    color.filled(),
                ))?;
            }
            Shape::Text(text) if pen.medium == Medium::Svg => write_svg(&paper, pen, text)?,
            Shape::Text(text) => write_pixels(&paper, pen, text)?,
        }
    }
    paper.present()
}

fn draw_path<B: DrawingBackend>(
    paper: &Paper<B>,
    pen: &Pen,
    line: &[Point],
    color: &RGBColor,
    width: f64,
) -> Drawn<B> {
    if pen.medium == Medium::Svg {
        let style = ShapeStyle::from(color).stroke_width(pen.length(width));
        return paper.draw(&PathElement::new(pen.all(line), style));
    }
    // The bitmap backend joins the segments of a wide line with spikes where it turns back sharply. So each segment
    // is a polygon of its own, with a disc at each joint.
    for pair in line.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let length = (to.0 - from.0).hypot(to.1 - from.1).max(1e-9);
        let half = width.max(1.0 / pen.scale) / 2.0 / length;
        let (x, y) = ((from.1 - to.1) * half, (to.0 - from.0) * half);
        let corners = [
            (from.0 + x, from.1 + y),
            (to.0 + x, to.1 + y),
            (to.0 - x, to.1 - y),
            (from.0 - x, from.1 - y),
        ];
        paper.draw(&Polygon::new(pen.all(&corners), color))?;
    }
    if width * pen.scale >= 4.0 && line.len() > 2 {
        for joint in &line[1..line.len() - 1] {
            let radius = (width * pen.scale / 2.0).floor() as u32;
            paper.draw(&Circle::new(pen.at(joint), radius, color.filled()))?;
        }
    }
    Ok(())
}

/// Writes a text for the viewer to set, anchored so that a font of other width stays in place.
fn write_svg<B: DrawingBackend>(paper: &Paper<B>, pen: &Pen, text: &Text) -> Drawn<B> {
    // The backend hangs a text 0.76 em above its baseline and takes 1.24 em for the font size.
    const HANG: f64 = 0.76;
    const SIZE_PER_EM: f64 = 1.24;
    let (x, y) = text.at;
    let (at, transform) = if text.upwards {
        ((x - HANG * text.size, y), FontTransform::Rotate270)
    } else {
        ((x, y - HANG * text.size), FontTransform::None)
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
    let size = text.size * pen.scale * SIZE_PER_EM;
    let font = FontDesc::new(FontFamily::Name(FAMILY), size, weight).transform(transform);
    let style = TextStyle::from(font)
        .color(&text.color)
        .pos(Pos::new(horizontal, VPos::Top));
    paper.draw_text(&text.text, &style, pen.at(&at))
}

/// Writes a text glyph by glyph: the bitmap backend would set every glyph flush left, with uneven gaps.
fn write_pixels<B: DrawingBackend>(paper: &Paper<B>, pen: &Pen, text: &Text) -> Drawn<B> {
    let before = match text.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => text.width() / 2.0,
        Anchor::End => text.width(),
    };
    let (x, y) = text.at;
    let start = pen.at(&if text.upwards {
        (x, y + before)
    } else {
        (x - before, y)
    });
    let mut drawn = Ok(());
    rasterise(
        &text.text,
        text.size * pen.scale,
        text.bold,
        |along, down, covered| {
            let offset = if text.upwards {
                (down, -along)
            } else {
                (along, down)
            };
            let pixel = (start.0 + offset.0, start.1 + offset.1);
            if drawn.is_ok() && covered > 0.0 {
                drawn = paper.draw_pixel(pixel, &text.color.mix(f64::from(covered).min(1.0)));
            }
        },
    );
    drawn
}

fn scaled_size(sheet: &Sheet, scale: f64) -> (u32, u32) {
    (
        (sheet.width * scale).round() as u32,
        (sheet.height * scale).round() as u32,
    )
}

/// The mean of each square of `BITMAP_SCALE`² pixels, RGB.
fn averaged(pixels: &[u8], row_pixels: usize, size: (u32, u32)) -> Vec<u8> {
    const SIDE: usize = BITMAP_SCALE * 3;
    const BLANK: [u8; SIDE] = [255; SIDE];
    let mut out = vec![255; size.0 as usize * size.1 as usize * 3];
    for (index, mean) in out.chunks_exact_mut(3).enumerate() {
        let (x, y) = (index % size.0 as usize, index / size.0 as usize);
        let start = (y * BITMAP_SCALE * row_pixels + x * BITMAP_SCALE) * 3;
        let row = |row: usize| &pixels[start + row * row_pixels * 3..][..SIDE];
        let rows: [&[u8]; BITMAP_SCALE] = std::array::from_fn(row);
        // Most of a sheet is blank paper, which needs no arithmetic.
        if rows == [&BLANK; BITMAP_SCALE] {
            continue;
        }
        let mut sums = [0_u32; 3];
        for pixel in rows.iter().flat_map(|row| row.as_chunks::<3>().0) {
            for (sum, sample) in sums.iter_mut().zip(pixel) {
                *sum += u32::from(*sample);
            }
        }
        for (value, sum) in mean.iter_mut().zip(sums) {
            *value = (sum / (BITMAP_SCALE * BITMAP_SCALE) as u32) as u8;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averaging_halves_an_edge() {
        let side = BITMAP_SCALE;
        let mut pixels = vec![255_u8; side * side * 3];
        pixels[..side * 3].fill(0);
        let mean = averaged(&pixels, side, (1, 1));
        assert_eq!(mean, vec![170, 170, 170]);
    }
}
