//! How much of a drafter's blocks the target accepts: over training, and along the block.

use super::axis::Axis;
use super::frame::Frame;
use super::legend::{Key, draw_legend};
use super::marker::draw_marker;
use super::sheet::{Point, Sheet, Text};
use super::style::{
    GREY, LINE_WIDTH, MARGIN, MARKER_RADIUS, TEXT_SIZE, THIN_WIDTH, faint, series_color,
};
use super::{Figure, Heading};

/// Acceptance length of one checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptancePoint {
    /// Optimizer steps trained.
    pub(crate) step: f64,
    /// Tokens a forward of the target.
    pub(crate) length: f64,
    /// Ends of its interval; NaN where there is none.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// One drafter along its block.
#[derive(Clone, Debug)]
pub(crate) struct AcceptanceSeries {
    pub(crate) name: String,
    /// Acceptance length; drawn as a line across all steps unless it is the trained drafter's.
    pub(crate) length: f64,
    /// Share of the rounds in which the block is accepted up to slot 1, 2, …
    pub(crate) slots: Vec<f64>,
}

/// The figure: acceptance length against training step where several checkpoints were evaluated,
/// and how far into their blocks drafts are accepted.
#[derive(Clone, Debug)]
pub(crate) struct Acceptance {
    pub(crate) heading: Heading,
    /// The trained drafter's checkpoints, by rising step.
    pub(crate) steps: Vec<AcceptancePoint>,
    /// The trained drafter first, then what it is compared with.
    pub(crate) series: Vec<AcceptanceSeries>,
}

/// Space between the two panels.
const GAP: f64 = 44.0;
/// Height of a panel's title.
const TITLE_SPACE: f64 = 40.0;

impl Figure for Acceptance {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        let mut shares = self.series.iter().flat_map(|series| &series.slots);
        let mut lengths = self.steps.iter().map(|point| point.length);
        !shares.any(|share| share.is_finite()) && !lengths.any(f64::is_finite)
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let top = draw_legend(sheet, top, &self.legend());
        let bottom = sheet.height - MARGIN;
        let right = sheet.width - MARGIN;
        let slots_from = if self.has_steps() {
            let middle = (MARGIN + right) / 2.0;
            self.draw_steps(sheet, (MARGIN, top), (middle - GAP / 2.0, bottom));
            middle + GAP / 2.0
        } else {
            MARGIN
        };
        self.draw_slots(sheet, (slots_from, top), (right, bottom));
    }
}

impl Acceptance {
    /// Whether there is a curve over training to draw.
    fn has_steps(&self) -> bool {
        self.steps.len() > 1
    }

    fn legend(&self) -> Vec<(Key, String)> {
        let entry = |(index, series): (usize, &AcceptanceSeries)| {
            let length = match series.length.is_finite() {
                true => format!(" (τ {:.2})", series.length),
                false => String::new(),
            };
            (Key::Series(index), format!("{}{length}", series.name))
        };
        let mut entries: Vec<_> = self.series.iter().enumerate().map(entry).collect();
        if self.has_steps() {
            entries.push((Key::Line(GREY, THIN_WIDTH), "target alone (τ 1)".to_owned()));
        }
        entries
    }

    fn draw_steps(&self, sheet: &mut Sheet, from: Point, to: Point) {
        let from = titled(sheet, from, "Acceptance length over training");
        let others = self.series.iter().skip(1).map(|series| series.length);
        let values = self.steps.iter().flat_map(|p| [p.length, p.low, p.high]);
        let frame = Frame::within(
            from,
            to,
            Axis::from_zero("Optimizer step", self.steps.iter().map(|p| p.step)).whole_ticks(),
            Axis::linear(
                "Acceptance length [tokens per target forward]",
                values.chain(others).chain([1.0]),
            ),
        );
        frame.draw(sheet);
        let alone = [
            (frame.left, frame.y_at(1.0)),
            (frame.right, frame.y_at(1.0)),
        ];
        sheet.path(&alone, GREY, THIN_WIDTH);
        for (index, series) in self.series.iter().enumerate().skip(1) {
            if series.length.is_finite() {
                let y = frame.y_at(series.length);
                let line = [(frame.left, y), (frame.right, y)];
                sheet.dashes(&line, series_color(index), THIN_WIDTH + 0.5, 12.0);
            }
        }
        let color = series_color(0);
        for point in &self.steps {
            let ends = [point.low, point.high].map(|y| frame.at(point.step, y));
            sheet.path(&ends, faint(color, 0.55), LINE_WIDTH);
        }
        let line: Vec<Point> = self
            .steps
            .iter()
            .map(|p| frame.at(p.step, p.length))
            .collect();
        sheet.path(&line, color, LINE_WIDTH);
        for at in line {
            draw_marker(sheet, 0, at, MARKER_RADIUS, color);
        }
    }

    fn draw_slots(&self, sheet: &mut Sheet, from: Point, to: Point) {
        let from = titled(sheet, from, "How far a block is accepted");
        let most = self.series.iter().map(|s| s.slots.len()).max().unwrap_or(0);
        let shares = self.series.iter().flat_map(|series| &series.slots);
        let frame = Frame::within(
            from,
            to,
            Axis::exact("Slot of the block", 0.5, most.max(1) as f64 + 0.5).whole_ticks(),
            Axis::from_zero(
                "Rounds accepted up to this slot [%]",
                shares.map(|share| 100.0 * share),
            ),
        );
        frame.draw(sheet);
        for (index, series) in self.series.iter().enumerate() {
            let place = |(slot, share): (usize, &f64)| frame.at((slot + 1) as f64, 100.0 * share);
            let line: Vec<Point> = series.slots.iter().enumerate().map(place).collect();
            sheet.path(&line, series_color(index), LINE_WIDTH);
            for at in line {
                draw_marker(sheet, index, at, MARKER_RADIUS, series_color(index));
            }
        }
    }
}

/// Writes a panel's title at its upper left corner, and returns the corner below it.
fn titled(sheet: &mut Sheet, (x, y): Point, title: &str) -> Point {
    let at = (x, y + TEXT_SIZE);
    sheet.text(Text::new(at, title).size(TEXT_SIZE).bold());
    (x, y + TITLE_SPACE)
}
