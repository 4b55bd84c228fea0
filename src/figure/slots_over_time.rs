//! HS slots in use over time, as steps, below their cap.

use super::axis::Axis;
use super::curve::{steps, thinned};
use super::frame::{Frame, LIMIT_SPACE, draw_limit};
use super::legend::{Key, draw_legend};
use super::sheet::{Point, Sheet};
use super::style::{LINE_WIDTH, series_color};
use super::{Figure, Heading};

/// Slots in use of one policy or at one place.
#[derive(Clone, Debug)]
pub(crate) struct SlotsSeries {
    /// The policy or the place.
    pub(crate) name: String,
    /// Time [s] and the slots in use from then on, by rising time.
    pub(crate) points: Vec<(f64, f64)>,
}

/// The figure: HS slots in use against time [s].
#[derive(Clone, Debug)]
pub(crate) struct SlotsOverTime {
    pub(crate) heading: Heading,
    pub(crate) series: Vec<SlotsSeries>,
    /// The most slots that may be in use.
    pub(crate) cap: Option<f64>,
}

impl Figure for SlotsOverTime {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        !self
            .points()
            .any(|(time, slots)| time.is_finite() && slots.is_finite())
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let names = self.series.iter().map(|series| series.name.clone());
        let colors = (0..).map(|index| Key::Line(series_color(index), LINE_WIDTH + 1.5));
        let entries: Vec<(Key, String)> = colors.zip(names).collect();
        let top = draw_legend(sheet, top, &entries);
        let frame = Frame::new(
            sheet,
            top,
            if self.cap.is_some() { LIMIT_SPACE } else { 0.0 },
            Axis::time("Time [s]", self.points().map(|p| p.0)),
            Axis::from_zero(
                "HS slots in use",
                self.points().map(|p| p.1).chain(self.cap),
            )
            .whole_ticks(),
        );
        frame.draw(sheet);
        if let Some(cap) = self.cap {
            draw_limit(sheet, &frame, "cap", cap);
        }
        for (index, series) in self.series.iter().enumerate() {
            let line: Vec<Point> = series.points.iter().map(|p| frame.at(p.0, p.1)).collect();
            let line = thinned(&steps(&line), 1.5);
            if self.series.len() == 1 {
                draw_ground(sheet, &frame, &line);
            }
            sheet.path(&line, series_color(index), 2.5);
            if let [only] = line[..] {
                sheet.disc(only, 6.0, series_color(index));
            }
        }
    }
}

impl SlotsOverTime {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series
            .iter()
            .flat_map(|series| series.points.iter().copied())
    }
}

fn draw_ground(sheet: &mut Sheet, frame: &Frame, line: &[Point]) {
    let (Some(first), Some(last)) = (line.first(), line.last()) else {
        return;
    };
    let mut outline = line.to_vec();
    outline.extend([(last.0, frame.bottom), (first.0, frame.bottom)]);
    sheet.area(&outline, series_color(0), 0.15);
}
