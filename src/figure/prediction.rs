//! What was predicted beside what was measured: pairs of bars, with the error above each pair.

use plotters::style::RGBColor;

use super::axis::Axis;
use super::font::{cut, wrap};
use super::frame::Frame;
use super::legend::{Key, draw_legend};
use super::number::percent_number;
use super::sheet::{Anchor, Sheet, Text};
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
    /// Quantity and unit, such as `Time (ms)`.
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
/// Room for the axis of a panel, and the fewest pairs for which it has room.
const AXIS_SPACE: f64 = 110.0;
const PAIRS_MIN: usize = 2;
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
        let top = draw_legend(sheet, top, &entries) + TEXT_SIZE * 1.9;
        let panels: Vec<&PairPanel> = self
            .panels
            .iter()
            .filter(|panel| !panel.pairs.is_empty())
            .collect();
        let weight = |panel: &PairPanel| panel.pairs.len().max(PAIRS_MIN) as f64;
        let total: f64 = panels.iter().map(|panel| weight(panel)).sum();
        let count = panels.len() as f64;
        let room = sheet.width - 2.0 * MARGIN - PANEL_GAP * (count - 1.0) - AXIS_SPACE * count;
        let mut left = MARGIN;
        for panel in panels {
            let right = left + AXIS_SPACE + room * weight(panel) / total;
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
    let labels = Labels::new(&panel.pairs, slot);
    frame.bottom -= labels.extra_height();
    frame.draw(sheet);
    let title = wrap(&panel.title, TEXT_SIZE, true, right - left, 1);
    if let Some(line) = title.into_iter().next() {
        let at = (left, top - 14.0);
        sheet.text(Text::new(at, line).size(TEXT_SIZE).bold());
    }
    for (index, pair) in panel.pairs.iter().enumerate() {
        let center = frame.x_at(index as f64 + 0.5);
        draw_pair(sheet, &frame, pair, center, slot);
        labels.draw(sheet, index, (center, frame.bottom));
    }
}

/// Characters at the end of a long name that stay: names that begin alike often differ there.
const TAIL: usize = 10;

/// A name within so many pixels, without its middle where it is longer.
fn shortened(label: &str, width: f64) -> String {
    let is_short = Text::new((0.0, 0.0), label).size(TICK_SIZE).width() <= width;
    let (split, _) = match label.char_indices().rev().nth(TAIL - 1) {
        Some(place) if !is_short => place,
        _ => return label.to_owned(),
    };
    let (head, tail) = label.split_at(split);
    let room = width - Text::new((0.0, 0.0), tail).size(TICK_SIZE).width();
    format!("{}{tail}", cut(head, TICK_SIZE, false, room))
}

/// The names of the pairs below the axis: in lines, or turned if a word is wider than its pair.
enum Labels {
    Lines(Vec<Vec<String>>),
    Turned(Vec<String>),
}

impl Labels {
    const LINES_MAX: usize = 3;
    const LENGTH_MAX: f64 = 260.0;

    fn new(pairs: &[Pair], slot: f64) -> Self {
        let is_wide = |word: &str| Text::new((0.0, 0.0), word).width() > slot - 6.0;
        if pairs
            .iter()
            .any(|pair| pair.label.split_whitespace().any(is_wide))
        {
            let short = |pair: &Pair| shortened(&pair.label, Self::LENGTH_MAX);
            return Self::Turned(pairs.iter().map(short).collect());
        }
        let lines = |pair: &Pair| wrap(&pair.label, TICK_SIZE, false, slot - 6.0, Self::LINES_MAX);
        Self::Lines(pairs.iter().map(lines).collect())
    }

    /// Height beyond the one line that a frame has room for.
    fn extra_height(&self) -> f64 {
        match self {
            Self::Lines(labels) => {
                let lines = labels.iter().map(Vec::len).max().unwrap_or(1).max(1);
                (lines - 1) as f64 * TICK_SIZE * 1.2
            }
            Self::Turned(labels) => {
                let widths = labels
                    .iter()
                    .map(|label| Text::new((0.0, 0.0), label).width());
                (widths.fold(0.0, f64::max) - TICK_SIZE).max(0.0)
            }
        }
    }

    fn draw(&self, sheet: &mut Sheet, index: usize, (center, axis): (f64, f64)) {
        match self {
            Self::Lines(labels) => {
                for (line, text) in labels[index].iter().enumerate() {
                    let y = axis + TICK_SIZE * (1.25 + 1.2 * line as f64);
                    sheet.text(Text::new((center, y), text).middle());
                }
            }
            Self::Turned(labels) => {
                let at = (center + TICK_SIZE * 0.36, axis + 10.0);
                sheet.text(Text::new(at, &labels[index]).end().upwards());
            }
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
    let above = (highest - 10.0).max(frame.top + TICK_SIZE);
    let error = (pair.predicted - pair.measured) / pair.measured;
    if !error.is_finite() {
        return;
    }
    let sign = if error > 0.0 { "+" } else { "" };
    let number = percent_number(error).replace('-', "−");
    let text = Text::new((center, above), format!("{sign}{number} %"))
        .middle()
        .color(INK);
    let fits = (slot - 4.0) / text.width();
    if fits >= 0.75 {
        sheet.text(Text {
            size: text.size * fits.min(1.0),
            ..text
        });
    } else if slot > TICK_SIZE {
        let at = (center + TICK_SIZE * 0.36, above);
        sheet.text(
            Text {
                at,
                anchor: Anchor::Start,
                ..text
            }
            .upwards(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_middle_and_stay_apart() {
        assert_eq!(shortened("staged-fifo-2", 260.0), "staged-fifo-2");
        let names = [2, 4].map(|n| format!("drafter-queues-two-targets-optimal-{n}"));
        let short = names.map(|name| shortened(&name, 200.0));
        assert!(short[0].starts_with("drafter") && short[0].ends_with("-optimal-2"));
        assert!(short[0].contains('…') && short[0] != short[1], "{short:?}");
    }
}
