//! What was predicted beside what was measured: pairs of bars, with the error above each pair.

use plotters::style::RGBColor;

use super::axis::{Axis, Frame};
use super::legend::{Key, draw_legend};
use super::number::percent_number;
use super::sheet::{Sheet, Text, wrap};
use super::style::{BLUE, INK, MARGIN, SKY, TEXT_SIZE, TICK_SIZE};
use super::{Figure, Heading};

/// One quantity, predicted and measured, in the unit of its panel.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// Stage, bucket or total.
    pub(crate) label: String,
    pub(crate) predicted: f64,
    pub(crate) measured: f64,
}

/// Pairs that share an axis.
#[derive(Clone, Debug)]
pub(crate) struct PairPanel {
    pub(crate) title: String,
    /// Quantity and unit, such as `Time [ms]`.
    pub(crate) axis: String,
    pub(crate) pairs: Vec<Pair>,
}

/// The figure: predicted and measured values, panel by panel from the left.
#[derive(Clone, Debug)]
pub(crate) struct PredictionMeasurement {
    pub(crate) heading: Heading,
    pub(crate) panels: Vec<PairPanel>,
}

const PREDICTED: RGBColor = SKY;
const MEASURED: RGBColor = BLUE;
/// Share of the frame above the highest bar that stays free for its error.
const HEADROOM: f64 = 1.12;
const PANEL_GAP: f64 = 36.0;

impl Figure for PredictionMeasurement {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        let mut pairs = self.panels.iter().flat_map(|panel| &panel.pairs);
        !pairs.any(|pair| pair.predicted.is_finite() || pair.measured.is_finite())
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let entries = [
            (Key::Box(PREDICTED), "predicted".to_owned()),
            (Key::Box(MEASURED), "measured".to_owned()),
        ];
        let top = draw_legend(sheet, top, &entries) + TEXT_SIZE * 1.6;
        let panels: Vec<&PairPanel> = self
            .panels
            .iter()
            .filter(|panel| !panel.pairs.is_empty())
            .collect();
        // A panel also needs room for its axis, which counts as two pairs.
        let weight = |panel: &PairPanel| panel.pairs.len() as f64 + 2.0;
        let total: f64 = panels.iter().map(|panel| weight(panel)).sum();
        let room = sheet.width - 2.0 * MARGIN - PANEL_GAP * (panels.len() as f64 - 1.0);
        let mut left = MARGIN;
        for panel in panels {
            let right = left + room * weight(panel) / total;
            draw_panel(sheet, panel, (left, right), top);
            left = right + PANEL_GAP;
        }
    }
}

fn draw_panel(sheet: &mut Sheet, panel: &PairPanel, (left, right): (f64, f64), top: f64) {
    let values = panel
        .pairs
        .iter()
        .flat_map(|pair| [pair.predicted, pair.measured]);
    let y = Axis::from_zero(&panel.axis, values.map(|value| value * HEADROOM));
    let mut x = Axis::exact("", 0.0, panel.pairs.len() as f64);
    x.ticks.clear();
    let mut frame = Frame::within((left, top), (right, sheet.height - MARGIN), x, y);
    let slot = (frame.right - frame.left) / panel.pairs.len() as f64;
    let labels: Vec<Vec<String>> = panel
        .pairs
        .iter()
        .map(|pair| wrap(&pair.label, TICK_SIZE, false, slot - 6.0))
        .collect();
    let lines = labels
        .iter()
        .map(|lines| lines.len())
        .max()
        .unwrap_or(1)
        .min(3);
    frame.bottom -= (lines - lines.min(1)) as f64 * TICK_SIZE * 1.2;
    frame.draw(sheet);
    let title = wrap(&panel.title, TEXT_SIZE, true, frame.right - frame.left);
    if let Some(line) = title.into_iter().next() {
        let at = ((frame.left + frame.right) / 2.0, top - 8.0);
        sheet.text(Text::new(at, line).size(TEXT_SIZE).bold().middle());
    }
    for (index, (pair, label)) in panel.pairs.iter().zip(labels).enumerate() {
        let center = frame.x_at(index as f64 + 0.5);
        draw_pair(sheet, &frame, pair, center, slot);
        for (line, text) in label.into_iter().take(3).enumerate() {
            let y = frame.bottom + TICK_SIZE * (1.25 + 1.2 * line as f64);
            sheet.text(Text::new((center, y), text).middle());
        }
    }
}

fn draw_pair(sheet: &mut Sheet, frame: &Frame, pair: &Pair, center: f64, slot: f64) {
    let width = (slot * 0.36).min(56.0);
    let zero = frame.y_at(0.0);
    let bars = [
        (pair.predicted, center - width - 1.0, PREDICTED),
        (pair.measured, center + 1.0, MEASURED),
    ];
    let mut highest = zero;
    for (value, left, color) in bars {
        let top = frame.y_at(value);
        sheet.rect((left, top), (left + width, zero), color);
        highest = highest.min(top);
    }
    let error = (pair.predicted - pair.measured) / pair.measured;
    if !error.is_finite() {
        return;
    }
    let sign = if error > 0.0 { "+" } else { "" };
    let number = percent_number(error).replace('-', "−");
    let text = Text::new((center, highest - 10.0), format!("{sign}{number} %"))
        .middle()
        .color(INK);
    let fits = (slot - 4.0) / text.width();
    if fits >= 0.75 {
        sheet.text(Text {
            size: text.size * fits.min(1.0),
            ..text
        });
    } else if slot > TICK_SIZE {
        let at = (center + TICK_SIZE * 0.36, highest - 10.0);
        sheet.text(
            Text {
                at,
                anchor: super::sheet::Anchor::Start,
                ..text
            }
            .upwards(),
        );
    }
}
