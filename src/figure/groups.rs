//! Variants beside each other, group by group: a mean with its interval, and every run as a faint dot.

use super::axis::Axis;
use super::font::wrap;
use super::frame::Frame;
use super::legend::{Key, draw_legend};
use super::sheet::{Sheet, Text};
use super::style::{LINE_WIDTH, MARGIN, TEXT_SIZE, TICK_SIZE, faint, series_color};
use super::{Figure, Heading};

/// One variant in one group.
#[derive(Clone, Debug)]
pub(crate) struct GroupValue {
    pub(crate) mean: f64,
    /// Ends of its interval.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// The runs that it is the mean of.
    pub(crate) runs: Vec<f64>,
}

/// One variant in all groups, in their order.
#[derive(Clone, Debug)]
pub(crate) struct GroupSeries {
    pub(crate) name: String,
    pub(crate) values: Vec<GroupValue>,
}

/// One quantity.
#[derive(Clone, Debug)]
pub(crate) struct GroupPanel {
    pub(crate) title: String,
    /// Quantity and unit.
    pub(crate) axis: String,
    pub(crate) groups: Vec<String>,
    pub(crate) series: Vec<GroupSeries>,
}

/// The figure: panels above each other.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub(crate) heading: Heading,
    pub(crate) panels: Vec<GroupPanel>,
}

const PANEL_HEIGHT: f64 = 440.0;
const TITLE_SPACE: f64 = 40.0;
/// Width of a group that its variants share.
const SHARED: f64 = 0.7;

impl Figure for Groups {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        !series
            .flat_map(|series| &series.values)
            .any(|value| value.mean.is_finite())
    }

    fn height(&self) -> f64 {
        260.0 + PANEL_HEIGHT * self.panels.len() as f64
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let names = self.panels.first().map(|panel| &panel.series);
        let entries: Vec<(Key, String)> = names
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(i, s)| (Key::Line(series_color(i), LINE_WIDTH + 1.5), s.name.clone()))
            .collect();
        let top = draw_legend(sheet, top, &entries);
        let each = (sheet.height - MARGIN - top) / self.panels.len() as f64;
        for (index, panel) in self.panels.iter().enumerate() {
            let top = top + each * index as f64;
            panel.draw(sheet, top, top + each);
        }
    }
}

impl GroupPanel {
    fn draw(&self, sheet: &mut Sheet, top: f64, bottom: f64) {
        let title = Text::new((MARGIN, top + TEXT_SIZE * 1.1), &self.title);
        sheet.text(title.size(TEXT_SIZE).bold());
        let values = self.series.iter().flat_map(|series| &series.values);
        let ends = values.flat_map(|v| v.runs.iter().copied().chain([v.low, v.high]));
        let mut x = Axis::exact("", 0.0, self.groups.len() as f64);
        x.ticks.clear();
        let frame = Frame::within(
            (MARGIN, top + TITLE_SPACE),
            (sheet.width - MARGIN, bottom - TICK_SIZE * 1.6),
            x,
            Axis::linear(&self.axis, ends),
        );
        frame.draw(sheet);
        let slot = (frame.right - frame.left) / self.groups.len().max(1) as f64;
        for (group, name) in self.groups.iter().enumerate() {
            let center = frame.x_at(group as f64 + 0.5);
            for (line, text) in wrap(name, TICK_SIZE, false, slot - 8.0, 2)
                .iter()
                .enumerate()
            {
                let y = frame.bottom + TICK_SIZE * (1.25 + 1.2 * line as f64);
                sheet.text(Text::new((center, y), text).middle());
            }
            self.draw_group(sheet, &frame, group);
        }
    }

    fn draw_group(&self, sheet: &mut Sheet, frame: &Frame, group: usize) {
        let count = self.series.len() as f64;
        for (index, series) in self.series.iter().enumerate() {
            let Some(value) = series.values.get(group).filter(|v| v.mean.is_finite()) else {
                continue;
            };
            let place = (index as f64 + 0.5) / count;
            let x = frame.x_at(group as f64 + 0.5 + (place - 0.5) * SHARED);
            let color = series_color(index);
            for run in value.runs.iter().filter(|run| run.is_finite()) {
                sheet.disc((x, frame.y_at(*run)), 4.5, faint(color, 0.45));
            }
            if value.low.is_finite() && value.high > value.low {
                let ends = [(x, frame.y_at(value.low)), (x, frame.y_at(value.high))];
                sheet.path(&ends, color, LINE_WIDTH);
            }
            let half = 12.0;
            let y = frame.y_at(value.mean);
            sheet.path(&[(x - half, y), (x + half, y)], color, LINE_WIDTH + 1.5);
        }
    }
}
