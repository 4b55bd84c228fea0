//! Marks that are told apart without colour: markers and hatching.

use plotters::style::RGBColor;

use super::sheet::{Point, Sheet};
use super::style::{LINE_WIDTH, WHITE, dark, faint};

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

/// Draws a cross.
pub(crate) fn draw_cross(sheet: &mut Sheet, at: Point, radius: f64, color: RGBColor) {
    let (x, y) = at;
    for side in [radius, -radius] {
        sheet.path(
            &[(x - radius, y - side), (x + radius, y + side)],
            color,
            LINE_WIDTH,
        );
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
    use super::super::style::INK;
    use super::*;

    #[test]
    fn hatching_stays_inside_its_box() {
        let mut sheet = Sheet::new(100.0, 100.0);
        draw_hatched(&mut sheet, (10.0, 10.0), (40.0, 30.0), INK);
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
}
