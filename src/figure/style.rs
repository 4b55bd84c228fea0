//! The look that all figures share: colours, sizes and margins, in logical pixels.
//!
//! The series colours are those of Okabe and Ito (<https://jfly.uni-koeln.de/color/>), which people with any kind of
//! colour blindness can tell apart; they are ordered so that neighbours also differ in lightness. Markers repeat the
//! distinction for print in greyscale.

use plotters::style::RGBColor;

/// Width of a sheet.
pub(crate) const SHEET_WIDTH: f64 = 1600.0;
/// Usual height of a sheet; figures with many rows grow taller.
pub(crate) const SHEET_HEIGHT: f64 = 1000.0;
/// Free space at the four sides of a sheet.
pub(crate) const MARGIN: f64 = 40.0;

/// Font size of the title.
pub(crate) const TITLE_SIZE: f64 = 34.0;
/// Font size of the line below the title.
pub(crate) const SUBTITLE_SIZE: f64 = 23.0;
/// Font size of axis titles, panel titles and legends.
pub(crate) const TEXT_SIZE: f64 = 24.0;
/// Font size of tick labels and of values written at marks.
pub(crate) const TICK_SIZE: f64 = 22.0;
/// Smallest font size that still reads in a printed column.
pub(crate) const SMALL_SIZE: f64 = 18.0;

/// Width of a line that carries data.
pub(crate) const LINE_WIDTH: f64 = 3.5;
/// Width of a line of secondary importance.
pub(crate) const THIN_WIDTH: f64 = 2.0;
/// Radius of a marker.
pub(crate) const MARKER_RADIUS: f64 = 7.5;

pub(crate) const WHITE: RGBColor = RGBColor(255, 255, 255);
/// Titles and the lines that matter most.
pub(crate) const INK: RGBColor = RGBColor(28, 28, 28);
/// Secondary text: subtitle, tick labels.
pub(crate) const MUTED: RGBColor = RGBColor(92, 92, 92);
/// The axis line.
pub(crate) const AXIS: RGBColor = RGBColor(130, 130, 130);
/// Grid lines, behind everything.
pub(crate) const GRID: RGBColor = RGBColor(228, 228, 228);
/// The ground of an empty lane.
pub(crate) const LANE: RGBColor = RGBColor(246, 246, 246);

pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(crate) const VERMILLION: RGBColor = RGBColor(213, 94, 0);
pub(crate) const SKY: RGBColor = RGBColor(86, 180, 233);
pub(crate) const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub(crate) const YELLOW: RGBColor = RGBColor(240, 228, 66);
pub(crate) const GREY: RGBColor = RGBColor(153, 153, 153);

const SERIES: [RGBColor; 8] = [
    BLUE,
    ORANGE,
    GREEN,
    PURPLE,
    VERMILLION,
    SKY,
    INK,
    // Okabe and Ito's yellow, darkened: the original vanishes on white paper.
    RGBColor(184, 170, 20),
];

/// Sequential stops from light to dark (ColorBrewer YlGnBu), monotone in greyscale.
const SEQUENCE: [RGBColor; 6] = [
    RGBColor(226, 242, 178),
    RGBColor(145, 212, 185),
    RGBColor(65, 182, 196),
    RGBColor(29, 131, 188),
    RGBColor(34, 84, 163),
    RGBColor(12, 30, 96),
];

/// The colour of the series at `index`; the n-th policy has the n-th colour in every figure.
pub(crate) fn series_color(index: usize) -> RGBColor {
    SERIES[index % SERIES.len()]
}

/// The colour of rank `index` out of `count`, from light (first) to dark (last).
pub(crate) fn sequence_color(index: usize, count: usize) -> RGBColor {
    let last = (SEQUENCE.len() - 1) as f64;
    let position = if count < 2 {
        last / 2.0
    } else {
        index as f64 / (count - 1) as f64 * last
    };
    let position = position.clamp(0.0, last);
    let below = position.floor() as usize;
    let above = (below + 1).min(SEQUENCE.len() - 1);
    mix(SEQUENCE[below], SEQUENCE[above], position - below as f64)
}

/// `color` mixed with white: `strength` 1 is the colour itself, 0 is white.
pub(crate) fn faint(color: RGBColor, strength: f64) -> RGBColor {
    mix(WHITE, color, strength)
}

/// `color` mixed with ink, for lines on a ground of the same hue.
pub(crate) fn dark(color: RGBColor) -> RGBColor {
    mix(color, INK, 0.4)
}

/// Whether white text reads better than dark text on `ground`.
pub(crate) fn is_dark(ground: RGBColor) -> bool {
    luma(ground) < 140.0
}

fn luma(color: RGBColor) -> f64 {
    0.299 * f64::from(color.0) + 0.587 * f64::from(color.1) + 0.114 * f64::from(color.2)
}

fn mix(from: RGBColor, to: RGBColor, share: f64) -> RGBColor {
    let share = share.clamp(0.0, 1.0);
    let channel =
        |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
    RGBColor(
        channel(from.0, to.0),
        channel(from.1, to.1),
        channel(from.2, to.2),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_darkens_from_short_to_long() {
        let lightness: Vec<f64> = (0..9).map(|i| luma(sequence_color(i, 9))).collect();
        assert!(
            lightness.windows(2).all(|pair| pair[0] > pair[1]),
            "{lightness:?}"
        );
    }

    #[test]
    fn neighbouring_series_differ_in_greyscale() {
        for i in 0..SERIES.len() - 1 {
            let difference = (luma(series_color(i)) - luma(series_color(i + 1))).abs();
            assert!(
                difference > 25.0,
                "series {i} and {} differ by {difference}",
                i + 1
            );
        }
    }

    #[test]
    fn one_bucket_has_a_colour() {
        assert_eq!(sequence_color(0, 1), sequence_color(0, 0));
    }
}
