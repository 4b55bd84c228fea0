//! The marks that stand for a series, and the legend in a row above the data.

use plotters::style::RGBColor;

use super::sheet::{Point, Sheet, Text, cut};
use super::style::{
    LINE_WIDTH, MARGIN, MARKER_RADIUS, TEXT_SIZE, WHITE, dark, faint, series_color,
};

/// What a legend shows before a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    /// Line with the marker of the series at this index.
    Series(usize),
    /// Marker of the series at this index alone.
    Marker(usize),
    /// Line without marker.
    Line(RGBColor, f64),
    /// Dashed line.
    Dashes(RGBColor, f64),
    /// Nothing: the name is a title for the entries after it.
    Title,
    /// Filled box.
    Box(RGBColor),
    /// Hatched box.
    Hatched(RGBColor),
}

impl Key {
    /// Space from the left end of the entry to its name.
    fn indent(self) -> f64 {
        match self {
            Self::Title => 0.0,
            Self::Box(_) | Self::Hatched(_) => BOX_WIDTH + 10.0,
            _ => KEY_WIDTH + 10.0,
        }
    }
}

/// Height of one row of the legend.
const ROW_HEIGHT: f64 = 36.0;
const KEY_WIDTH: f64 = 44.0;
const BOX_WIDTH: f64 = 32.0;
const GAP: f64 = 26.0;
/// Longest name shown whole.
const NAME_WIDTH: f64 = 660.0;

/// Draws the entries from `top` downwards, as many in a row as fit, and returns where the legend ends.
pub(crate) fn draw_legend(sheet: &mut Sheet, top: f64, entries: &[(Key, String)]) -> f64 {
    let right = sheet.width - MARGIN;
    let (mut x, mut y) = (MARGIN, top + ROW_HEIGHT / 2.0);
    for (key, name) in entries {
        let name = cut(name, TEXT_SIZE, false, NAME_WIDTH);
        let text = Text::new((0.0, 0.0), name).size(TEXT_SIZE);
        let indent = key.indent();
        let width = indent + text.width();
        if x > MARGIN && x + width > right {
            (x, y) = (MARGIN, y + ROW_HEIGHT);
        }
        draw_key(sheet, *key, (x, y));
        sheet.text(
            Text {
                at: (x + indent, y),
                ..text
            }
            .centred_on_line(),
        );
        x += width + GAP;
    }
    if entries.is_empty() {
        top
    } else {
        y + ROW_HEIGHT / 2.0 + 6.0
    }
}

fn draw_key(sheet: &mut Sheet, key: Key, (x, y): Point) {
    let line = [(x, y), (x + KEY_WIDTH, y)];
    let center = (x + KEY_WIDTH / 2.0, y);
    let (from, to) = ((x, y - 11.0), (x + BOX_WIDTH, y + 11.0));
    match key {
        Key::Series(index) => {
            sheet.path(&line, series_color(index), LINE_WIDTH);
            draw_marker(sheet, index, center, MARKER_RADIUS, series_color(index));
        }
        Key::Marker(index) => {
            draw_marker(sheet, index, center, MARKER_RADIUS, series_color(index));
        }
        Key::Line(color, width) => sheet.path(&line, color, width),
        Key::Dashes(color, width) => sheet.dashes(&line, color, width, 9.0),
        Key::Title => {}
        Key::Box(color) => sheet.rect(from, to, color),
        Key::Hatched(color) => draw_hatched(sheet, from, to, color),
    }
}

/// Draws the marker of the series at `index`, with a thin white edge that sets it off from lines below.
pub(crate) fn draw_marker(
    sheet: &mut Sheet,
    index: usize,
    at: Point,
    radius: f64,
    color: RGBColor,
) {
    draw_bare_marker(sheet, index, at, radius + 1.8, WHITE);
    draw_bare_marker(sheet, index, at, radius, color);
}

/// Draws the marker of the series at `index` without an edge.
pub(crate) fn draw_bare_marker(
    sheet: &mut Sheet,
    index: usize,
    at: Point,
    radius: f64,
    color: RGBColor,
) {
    match corners(index, radius) {
        Some(corners) => {
            let place = |corner: &Point| (at.0 + corner.0, at.1 + corner.1);
            let points: Vec<Point> = corners.iter().map(place).collect();
            sheet.area(&points, color, 1.0);
        }
        None => sheet.disc(at, radius, color),
    }
}

/// Corners of a marker around its centre; none for a circle.
fn corners(index: usize, radius: f64) -> Option<Vec<Point>> {
    let r = radius;
    let polygon = match index % 8 {
        0 => return None,
        1 => vec![
            (-0.9 * r, -0.9 * r),
            (0.9 * r, -0.9 * r),
            (0.9 * r, 0.9 * r),
            (-0.9 * r, 0.9 * r),
        ],
        2 => vec![(0.0, -1.2 * r), (1.15 * r, 0.8 * r), (-1.15 * r, 0.8 * r)],
        3 => vec![
            (0.0, -1.25 * r),
            (1.25 * r, 0.0),
            (0.0, 1.25 * r),
            (-1.25 * r, 0.0),
        ],
        4 => vec![(0.0, 1.2 * r), (1.15 * r, -0.8 * r), (-1.15 * r, -0.8 * r)],
        5 => star(5, 1.35 * r, 0.6 * r),
        6 => star(4, 1.35 * r, 0.55 * r),
        _ => vec![
            (-1.2 * r, -0.6 * r),
            (1.2 * r, -0.6 * r),
            (1.2 * r, 0.6 * r),
            (-1.2 * r, 0.6 * r),
        ],
    };
    Some(polygon)
}

fn star(points: u32, outer: f64, inner: f64) -> Vec<Point> {
    let corner = |i: u32| {
        let angle = std::f64::consts::PI * f64::from(i) / f64::from(points);
        let radius = if i.is_multiple_of(2) { outer } else { inner };
        (radius * angle.sin(), -radius * angle.cos())
    };
    (0..2 * points).map(corner).collect()
}

/// Fills a rectangle with slanted lines of `color` on white.
pub(crate) fn draw_hatched(sheet: &mut Sheet, from: Point, to: Point, color: RGBColor) {
    const PITCH: f64 = 7.0;
    if to.0.is_nan() || from.0.is_nan() || to.0 - from.0 > 1e5 {
        return;
    }
    sheet.rect(from, to, faint(color, 0.35));
    let height = to.1 - from.1;
    let mut foot = (from.0 / PITCH).ceil() * PITCH;
    while foot - height < to.0 {
        // The line runs from (foot, bottom) up to (foot + height, top); both ends are clipped to the box.
        let cut = |x: f64| (x, to.1 - (x - (foot - height)));
        let (start, end) = ((foot - height).max(from.0), foot.min(to.0));
        if end > start {
            sheet.path(&[cut(start), cut(end)], dark(color), 2.0);
        }
        foot += PITCH;
    }
}

#[cfg(test)]
mod tests {
    use super::super::sheet::Shape;
    use super::*;

    #[test]
    fn long_legends_wrap_inside_the_sheet() {
        let mut sheet = Sheet::new(1600.0, 1000.0);
        let name = "a policy with a rather long name that says everything".to_owned();
        let entries: Vec<_> = (0..8).map(|i| (Key::Series(i), name.clone())).collect();
        let end = draw_legend(&mut sheet, 100.0, &entries);
        assert!(end > 100.0 + 2.0 * ROW_HEIGHT, "{end}");
        for shape in &sheet.shapes {
            if let Shape::Text(text) = shape {
                assert!(text.at.0 + text.width() <= 1600.0, "{text:?}");
            }
        }
    }

    #[test]
    fn hatching_stays_inside_its_box() {
        let mut sheet = Sheet::new(100.0, 100.0);
        draw_hatched(&mut sheet, (10.0, 10.0), (40.0, 30.0), INK_FOR_TEST);
        assert!(sheet.shapes.len() > 4);
        for shape in &sheet.shapes {
            if let Shape::Path { points, .. } = shape {
                assert!(
                    points.iter().all(|p| (10.0..=40.0).contains(&p.0)),
                    "{points:?}"
                );
                assert!(
                    points.iter().all(|p| (9.9..=30.1).contains(&p.1)),
                    "{points:?}"
                );
            }
        }
    }

    const INK_FOR_TEST: RGBColor = RGBColor(0, 0, 0);
}
