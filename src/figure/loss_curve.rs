//! Loss against optimizer step, raw and smoothed, with the learning rate on an axis of its own.

use super::axis::Axis;
use super::curve::{smoothed, thinned};
use super::frame::Frame;
use super::legend::{Key, draw_legend};
use super::sheet::{Point, Sheet, Text};
use super::style::{GREY, LINE_WIDTH, MUTED, TEXT_SIZE, THIN_WIDTH, faint, series_color};
use super::{Figure, Heading};

/// The loss of one run.
#[derive(Clone, Debug)]
pub(crate) struct LossRun {
    pub(crate) name: String,
    /// Optimizer step and loss, by rising step.
    pub(crate) loss: Vec<(f64, f64)>,
}

/// The figure: loss against optimizer step, and the learning rate.
#[derive(Clone, Debug)]
pub(crate) struct LossCurve {
    pub(crate) heading: Heading,
    pub(crate) runs: Vec<LossRun>,
    /// Optimizer step and learning rate; may be empty.
    pub(crate) learning_rate: Vec<(f64, f64)>,
}

impl Figure for LossCurve {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        !self
            .points()
            .any(|(step, loss)| step.is_finite() && loss.is_finite())
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let window = self.window();
        let top = draw_legend(sheet, top, &self.legend(window));
        let rate = Axis::from_zero("Learning rate", self.learning_rate.iter().map(|p| p.1));
        let frame = Frame::new(
            sheet,
            top,
            if self.learning_rate.is_empty() {
                0.0
            } else {
                120.0
            },
            Axis::time("Optimizer step", self.points().map(|p| p.0)).whole_ticks(),
            Axis::linear("Loss", self.points().map(|p| p.1)),
        );
        frame.draw(sheet);
        self.draw_rate(sheet, &frame, rate);
        let line = |points: &[Point]| {
            let places: Vec<Point> = points.iter().map(|p| frame.at(p.0, p.1)).collect();
            thinned(&places, 1.5)
        };
        for (index, run) in self.runs.iter().enumerate() {
            sheet.path(&line(&run.loss), faint(series_color(index), 0.35), 1.5);
        }
        for (index, run) in self.runs.iter().enumerate() {
            sheet.path(
                &line(&smoothed(&run.loss, window)),
                series_color(index),
                LINE_WIDTH,
            );
            if let [only] = run.loss[..] {
                sheet.disc(frame.at(only.0, only.1), 6.0, series_color(index));
            }
        }
    }
}

impl LossCurve {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.runs.iter().flat_map(|run| run.loss.iter().copied())
    }

    /// Steps over which the bold line averages: a fortieth of the longest run, odd.
    fn window(&self) -> usize {
        let longest = self
            .runs
            .iter()
            .map(|run| run.loss.len())
            .max()
            .unwrap_or(0);
        longest / 40 / 2 * 2 + 1
    }

    fn legend(&self, window: usize) -> Vec<(Key, String)> {
        let mean = if window > 1 {
            format!(", mean of {window} steps")
        } else {
            String::new()
        };
        let mut entries: Vec<(Key, String)> = (0..)
            .map(|index| Key::Line(series_color(index), LINE_WIDTH + 1.5))
            .zip(self.runs.iter().map(|run| format!("{}{mean}", run.name)))
            .collect();
        if window > 1 {
            entries.push((
                Key::Line(faint(series_color(0), 0.35), THIN_WIDTH),
                "each step".to_owned(),
            ));
        }
        if !self.learning_rate.is_empty() {
            entries.push((Key::Line(GREY, THIN_WIDTH), "learning rate".to_owned()));
        }
        entries
    }

    /// Draws the learning rate with its axis at the right of the frame.
    fn draw_rate(&self, sheet: &mut Sheet, frame: &Frame, rate: Axis) {
        if self.learning_rate.is_empty() {
            return;
        }
        let right = Frame {
            y: rate,
            ..frame.clone()
        };
        for (value, label) in &right.y.ticks {
            let at = (right.right + 12.0, right.y_at(*value));
            sheet.text(Text::new(at, label).color(MUTED).centred_on_line());
        }
        let title = Text::new(
            (sheet.width - 42.0, (right.top + right.bottom) / 2.0),
            &right.y.title,
        );
        sheet.text(title.size(TEXT_SIZE).middle().upwards());
        let line: Vec<Point> = self
            .learning_rate
            .iter()
            .map(|p| right.at(p.0, p.1))
            .collect();
        sheet.path(&thinned(&line, 1.5), GREY, THIN_WIDTH);
    }
}
