//! The frame in which a figure draws its data: two axes with grid, labels and titles, and the limits across it.

use super::axis::Axis;
use super::font::wrap;
use super::number::short;
use super::sheet::{Point, Sheet, Text};
use super::style::{AXIS, GRID, INK, MARGIN, MUTED, TEXT_SIZE, THIN_WIDTH, TICK_SIZE};

/// A rectangle of the sheet with an axis below and one at its left.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
}

impl Frame {
    /// A frame inside the sheet below `top` that leaves `right_space` free at its right for labels.
    pub(crate) fn new(sheet: &Sheet, top: f64, right_space: f64, x: Axis, y: Axis) -> Self {
        Self::within(
            (MARGIN, top),
            (sheet.width - MARGIN - right_space, sheet.height - MARGIN),
            x,
            y,
        )
    }

    /// The largest frame whose axes, with their labels and titles, fit between two corners.
    pub(crate) fn within(upper_left: Point, lower_right: Point, x: Axis, y: Axis) -> Self {
        let title_space = if y.title.is_empty() {
            0.0
        } else {
            TEXT_SIZE * 1.5
        };
        let below = if x.title.is_empty() {
            TICK_SIZE * 1.7
        } else {
            TICK_SIZE * 1.6 + TEXT_SIZE * 1.5
        };
        Self {
            left: upper_left.0 + title_space + y.widest_label() + 16.0,
            top: upper_left.1 + TICK_SIZE * 0.6,
            right: lower_right.0 - 12.0,
            bottom: lower_right.1 - below,
            x,
            y,
        }
    }

    /// Place of a value pair on the sheet.
    pub(crate) fn at(&self, x: f64, y: f64) -> Point {
        (self.x_at(x), self.y_at(y))
    }

    pub(crate) fn x_at(&self, x: f64) -> f64 {
        self.left + self.x.share(x) * (self.right - self.left)
    }

    pub(crate) fn y_at(&self, y: f64) -> f64 {
        self.bottom - self.y.share(y) * (self.bottom - self.top)
    }

    /// Draws grid, axis line, tick labels and titles.
    pub(crate) fn draw(&self, sheet: &mut Sheet) {
        self.draw_y(sheet);
        self.draw_x(sheet);
    }

    fn draw_y(&self, sheet: &mut Sheet) {
        for (value, label) in &self.y.ticks {
            let y = self.y_at(*value);
            sheet.path(&[(self.left, y), (self.right, y)], GRID, 1.5);
            let text = Text::new((self.left - 12.0, y), label).end().color(MUTED);
            sheet.text(text.centred_on_line());
        }
        // Turned text cannot be wrapped, so it shrinks to the height of the frame.
        let title = Text::new((0.0, 0.0), &self.y.title)
            .size(TEXT_SIZE)
            .middle()
            .upwards();
        let room = (self.bottom - self.top + 40.0) / title.width().max(1.0);
        let x = self.left - self.y.widest_label() - 16.0 - TEXT_SIZE * 0.6;
        sheet.text(Text {
            at: (x, (self.top + self.bottom) / 2.0),
            size: TEXT_SIZE * room.min(1.0),
            color: INK,
            ..title
        });
    }

    /// Draws the axis below the frame alone.
    pub(crate) fn draw_x(&self, sheet: &mut Sheet) {
        sheet.path(
            &[(self.left, self.bottom), (self.right, self.bottom)],
            AXIS,
            THIN_WIDTH,
        );
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in &self.x.ticks {
            let x = self.x_at(*value);
            sheet.path(
                &[(x, self.bottom), (x, self.bottom + 7.0)],
                AXIS,
                THIN_WIDTH,
            );
            let text = Text::new((x, self.bottom + 12.0 + TICK_SIZE * 0.85), label)
                .middle()
                .color(MUTED);
            let half = text.width() / 2.0;
            if x - half >= free_from {
                free_from = x + half + 12.0;
                sheet.text(text);
            }
        }
        let at = (
            (self.left + self.right) / 2.0,
            self.bottom + TICK_SIZE * 1.6 + TEXT_SIZE * 1.1,
        );
        let title = wrap(
            &self.x.title,
            TEXT_SIZE,
            false,
            self.right - self.left + 60.0,
            1,
        );
        if let Some(line) = title.into_iter().next() {
            sheet.text(Text::new(at, line).size(TEXT_SIZE).middle());
        }
    }
}

/// Space that [`draw_limit`] needs at the right of a frame.
pub(crate) const LIMIT_SPACE: f64 = 108.0;

/// Draws a dashed line across the frame at `value`, with name and value beside its right end.
pub(crate) fn draw_limit(sheet: &mut Sheet, frame: &Frame, name: &str, value: f64) {
    let y = frame.y_at(value);
    if !(frame.top - 1.0..=frame.bottom + 1.0).contains(&y) {
        return;
    }
    sheet.dashes(&[(frame.left, y), (frame.right, y)], INK, THIN_WIDTH, 12.0);
    let at = (
        frame.right + 18.0,
        y.min(frame.bottom - TICK_SIZE * 1.4) - 4.0,
    );
    sheet.text(Text::new(at, name));
    sheet.text(Text::new((at.0, at.1 + TICK_SIZE * 1.2), short(value)));
}
