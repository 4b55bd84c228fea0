//! HS slots in use over time, as steps below their cap: one panel a policy, on one time axis.

use super::axis::Axis;
use super::curve::{steps, thinned};
use super::font::cut;
use super::frame::{Frame, LIMIT_SPACE, draw_limit};
use super::sheet::{Point, Sheet, Text};
use super::style::{MARGIN, SHEET_HEIGHT, TEXT_SIZE, TICK_SIZE, series_color};
use super::{Figure, Heading};

/// Slots in use of one policy.
#[derive(Clone, Debug)]
pub(crate) struct SlotsSeries {
    /// What stands above the panel: the policy.
    pub(crate) name: String,
    /// Which of the series colours it has.
    pub(crate) color: usize,
    /// Time (s) and the slots in use from then on, by rising time.
    pub(crate) points: Vec<(f64, f64)>,
    /// The most slots that may be in use.
    pub(crate) cap: Option<f64>,
}

/// The figure: HS slots in use against time (s).
#[derive(Clone, Debug)]
pub(crate) struct SlotsOverTime {
    pub(crate) heading: Heading,
    pub(crate) series: Vec<SlotsSeries>,
}

/// Least height of a panel with its name and the labels below it.
const PANEL_MIN: f64 = 190.0;
/// Greatest height of a panel.
const PANEL_MAX: f64 = 420.0;
/// Height taken by heading and axis title, generously.
const AROUND: f64 = 230.0;
/// Ticks that a low panel has room for.
const TICKS_MAX: usize = 5;
/// Height of the line with a policy's name.
const NAME_HEIGHT: f64 = 38.0;

impl Figure for SlotsOverTime {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        !self
            .points()
            .any(|(time, slots)| time.is_finite() && slots.is_finite())
    }

    fn height(&self) -> f64 {
        let needed = |panel: f64| self.series.len().max(1) as f64 * panel + AROUND;
        SHEET_HEIGHT.min(needed(PANEL_MAX)).max(needed(PANEL_MIN))
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let widest = self
            .series
            .iter()
            .map(|series| series.axis().widest_label())
            .fold(0.0, f64::max);
        let title_space = TEXT_SIZE * 1.5;
        let pitch = (sheet.height - MARGIN - title_space - top) / self.series.len() as f64;
        for (index, series) in self.series.iter().enumerate() {
            let is_last = index + 1 == self.series.len();
            let from = top + index as f64 * pitch + NAME_HEIGHT;
            let mut x = Axis::time("", self.points().map(|p| p.0));
            let mut to = from + pitch - NAME_HEIGHT;
            if is_last {
                x.title = "Time [s]".to_owned();
                to += title_space;
            } else {
                // The labels of the last panel serve all.
                x.ticks.iter_mut().for_each(|(_, label)| label.clear());
                to += TICK_SIZE * 1.2;
            }
            let y = series.axis();
            // Panels line up, whatever the width of their labels.
            let left = MARGIN + title_space + widest - y.widest_label();
            let right = sheet.width - MARGIN - self.limit_space();
            let frame = Frame::within((left, from), (right, to), x, y);
            let name = cut(&series.name, TEXT_SIZE, true, frame.right - frame.left);
            let at = (frame.left, from);
            sheet.text(Text::new(at, name).size(TEXT_SIZE).bold());
            frame.draw(sheet);
            draw_series(sheet, &frame, series);
        }
        let middle = (top + sheet.height - MARGIN - title_space) / 2.0;
        let title = Text::new((MARGIN + TEXT_SIZE, middle), "HS slots in use");
        sheet.text(title.size(TEXT_SIZE).middle().upwards());
    }
}

impl SlotsSeries {
    fn axis(&self) -> Axis {
        let values = self.points.iter().map(|p| p.1).chain(self.cap);
        Axis::from_zero("", values).whole_ticks().sparse(TICKS_MAX)
    }
}

impl SlotsOverTime {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series
            .iter()
            .flat_map(|series| series.points.iter().copied())
    }

    fn limit_space(&self) -> f64 {
        let has_cap = self.series.iter().any(|series| series.cap.is_some());
        if has_cap { LIMIT_SPACE } else { 0.0 }
    }
}

fn draw_series(sheet: &mut Sheet, frame: &Frame, series: &SlotsSeries) {
    if let Some(cap) = series.cap {
        draw_limit(sheet, frame, "cap", cap);
    }
    let color = series_color(series.color);
    let line: Vec<Point> = series.points.iter().map(|p| frame.at(p.0, p.1)).collect();
    let line = thinned(&steps(&line), 1.5);
    if let (Some(first), Some(last)) = (line.first(), line.last()) {
        let mut outline = line.clone();
        outline.extend([(last.0, frame.bottom), (first.0, frame.bottom)]);
        sheet.area(&outline, color, 0.15);
    }
    sheet.path(&line, color, 2.0);
    if let [only] = line[..] {
        sheet.disc(only, 6.0, color);
    }
}
