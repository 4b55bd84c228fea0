//! The distribution of one policy's total variation distances.

use super::super::frame::Frame;
use super::super::sheet::{Point, Sheet};
use super::super::style::{AXIS, INK, THIN_WIDTH, faint};
use super::Row;

const BINS: usize = 48;

/// A histogram on its own base line, as high as its row, with a line at the mean and a mark at the worst step.
pub(super) fn draw_distances(sheet: &mut Sheet, frame: &Frame, row: &Row, values: &[f64]) {
    let Row { base, pitch, color } = *row;
    sheet.path(&[(frame.left, base), (frame.right, base)], AXIS, 1.5);
    let bin_width = (frame.right - frame.left) / BINS as f64;
    let mut counts = [0_u32; BINS];
    for value in values {
        let bin = (frame.x.share(*value) * BINS as f64) as usize;
        counts[bin.min(BINS - 1)] += 1;
    }
    let Some(most) = counts.iter().copied().max().filter(|most| *most > 0) else {
        return;
    };
    let height = |count: u32| f64::from(count) / f64::from(most) * pitch * 0.72;
    let filled = |count: &u32| *count > 0;
    let first = counts.iter().position(filled).unwrap_or(0);
    let last = counts.iter().rposition(filled).unwrap_or(0);
    let x = |bin: usize| frame.left + bin as f64 * bin_width;
    let mut outline: Vec<Point> = vec![(x(first), base)];
    for (bin, count) in counts.iter().enumerate().take(last + 1).skip(first) {
        outline.extend([
            (x(bin), base - height(*count)),
            (x(bin + 1), base - height(*count)),
        ]);
    }
    outline.push((x(last + 1), base));
    sheet.area(&outline, faint(color, 0.55), 1.0);
    sheet.path(&outline, color, THIN_WIDTH);
    let mean = frame.x_at(values.iter().sum::<f64>() / values.len() as f64);
    sheet.path(&[(mean, base), (mean, base - pitch * 0.78)], INK, 3.0);
    let worst = frame.x_at(values.iter().copied().fold(0.0, f64::max));
    sheet.area(
        &[
            (worst - 8.0, base - 20.0),
            (worst + 8.0, base - 20.0),
            (worst, base - 4.0),
        ],
        INK,
        1.0,
    );
}
