//! The bar of one worker.

use plotters::style::RGBColor;

use super::super::font::cut;
use super::super::frame::Frame;
use super::super::number::percent_number;
use super::super::sheet::{Sheet, Text};
use super::super::style::{
    BLUE, INK, SKY, SMALL_SIZE, TICK_SIZE, VERMILLION, WHITE, YELLOW, is_dark,
};
use super::{NAME_WIDTH, WorkerShares};

/// In the order of the stack; neighbours differ in lightness.
pub(super) const STATES: [(&str, RGBColor); 5] = [
    ("busy", BLUE),
    ("copying", SKY),
    ("blocked", VERMILLION),
    ("starved", YELLOW),
    ("barrier", RGBColor(150, 150, 150)),
];

/// The ground of a bar: what no state accounts for.
pub(super) const REST: RGBColor = RGBColor(232, 232, 232);

/// The shares of a worker in the order of [`STATES`].
pub(super) fn shares(worker: &WorkerShares) -> [f64; 5] {
    [
        worker.busy,
        worker.copying,
        worker.blocked,
        worker.starved,
        worker.barrier,
    ]
}

/// Draws the name of a worker and its stacked bar, with the percentages that find room.
pub(super) fn draw_worker(
    sheet: &mut Sheet,
    frame: &Frame,
    worker: &WorkerShares,
    top: f64,
    pitch: f64,
) {
    let (from, to) = (top + pitch * 0.09, top + pitch * 0.91);
    let name = cut(&worker.worker, TICK_SIZE, false, NAME_WIDTH);
    let label =
        Text::new((frame.left - 12.0, (from + to) / 2.0), name).size(TICK_SIZE.min(pitch * 0.75));
    sheet.text(label.end().color(INK).centred_on_line());
    sheet.rect((frame.left, from), (frame.right, to), REST);
    let mut before = 0.0;
    for (share, (_, color)) in shares(worker).into_iter().zip(STATES) {
        if !share.is_finite() || share <= 0.0 {
            continue;
        }
        let until = (before + share).min(1.0);
        let (left, right) = (frame.x_at(100.0 * before), frame.x_at(100.0 * until));
        sheet.rect((left, from), (right, to), color);
        if before > 0.0 {
            sheet.path(&[(left, from), (left, to)], WHITE, 1.5);
        }
        let ink = if is_dark(color) { WHITE } else { INK };
        let text = Text::new(
            ((left + right) / 2.0, (from + to) / 2.0),
            percent_number(share),
        )
        .size(SMALL_SIZE.min(pitch * 0.62))
        .color(ink)
        .middle();
        if text.width() + 10.0 < right - left {
            sheet.text(text.centred_on_line());
        }
        before = until;
    }
}
