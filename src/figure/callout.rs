//! A ring around one point, and a label for it beside the data.

use super::font::cut;
use super::frame::Frame;
use super::sheet::{Point, Sheet, Text};
use super::style::{INK, TEXT_SIZE, THIN_WIDTH, WHITE};

/// Rings the point at `at` and writes `label` where it covers few of the `marks`, with a line to the ring.
pub(super) fn draw_callout(
    sheet: &mut Sheet,
    frame: &Frame,
    at: Point,
    label: &str,
    marks: &[Point],
) {
    let ring: Vec<Point> = (0..=48)
        .map(|i| f64::from(i) * std::f64::consts::TAU / 48.0)
        .map(|angle| (at.0 + RADIUS * angle.cos(), at.1 + RADIUS * angle.sin()))
        .collect();
    sheet.path(&ring, INK, 3.0);
    let room = frame.right - frame.left - 60.0;
    let text = cut(label, TEXT_SIZE, true, room);
    let text = Text::new(at, text).size(TEXT_SIZE).bold().middle();
    let half = (text.width() / 2.0 + 10.0, TEXT_SIZE * 0.75);
    let Some(center) = place(frame, at, half, marks) else {
        return;
    };
    let down = (center.1 - at.1).signum();
    let foot = (center.0, center.1 - down * half.1);
    let away = (foot.0 - at.0).hypot(foot.1 - at.1).max(1.0);
    let edge = (
        at.0 + (foot.0 - at.0) * RADIUS / away,
        at.1 + (foot.1 - at.1) * RADIUS / away,
    );
    sheet.path(&[edge, foot], INK, THIN_WIDTH);
    sheet.rect(
        (center.0 - half.0, center.1 - half.1),
        (center.0 + half.0, center.1 + half.1),
        WHITE,
    );
    sheet.text(Text { at: center, ..text }.centred_on_line());
}

/// The centre of a label of half the size `half` that lies inside the frame, near `at`, on few marks.
fn place(frame: &Frame, at: Point, half: (f64, f64), marks: &[Point]) -> Option<Point> {
    let is_inside = |center: &Point| {
        center.0 - half.0 > frame.left
            && center.0 + half.0 < frame.right
            && center.1 - half.1 > frame.top
            && center.1 + half.1 < frame.bottom
    };
    let is_covered = |center: Point, mark: &Point| {
        (mark.0 - center.0).abs() < half.0 + 8.0 && (mark.1 - center.1).abs() < half.1 + 8.0
    };
    // A covered mark weighs as much as a line that is 15 pixels longer.
    let cost = |center: &Point| {
        let covered = marks
            .iter()
            .filter(|mark| is_covered(*center, mark))
            .count();
        15.0 * covered as f64 + (center.0 - at.0).hypot(center.1 - at.1)
    };
    let mut places: Vec<Point> = Vec::new();
    for away in [46.0, 70.0, 110.0, 160.0, 220.0] {
        for side in [0.0, 0.5, 1.0, -0.5, -1.0] {
            places.extend([-away, away].map(|down| (at.0 + side * half.0, at.1 + down)));
        }
    }
    places
        .into_iter()
        .filter(is_inside)
        .min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

const RADIUS: f64 = 15.0;
