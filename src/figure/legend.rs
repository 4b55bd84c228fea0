//! The legend, in rows above the data.

use plotters::style::RGBColor;

use super::font::cut;
use super::marker::{draw_cross, draw_hatched, draw_marker};
use super::sheet::{Point, Sheet, Text};
use super::style::{LINE_WIDTH, MARGIN, MARKER_RADIUS, TEXT_SIZE, series_color};

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
    /// Cross without line.
    Cross(RGBColor),
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
        Key::Cross(color) => draw_cross(sheet, center, MARKER_RADIUS, color),
        Key::Title => {}
        Key::Box(color) => sheet.rect(from, to, color),
        Key::Hatched(color) => draw_hatched(sheet, from, to, color),
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
}
