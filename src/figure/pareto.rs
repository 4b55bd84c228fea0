//! Throughput against memory: every point of a search, the front of those that no other point beats, the choice.

use std::collections::HashSet;

use super::axis::Axis;
use super::callout::draw_callout;
use super::curve::steps;
use super::frame::{Frame, LIMIT_SPACE, draw_limit};
use super::legend::{Key, draw_legend};
use super::marker::{draw_bare_marker, draw_marker};
use super::sheet::{Point, Sheet};
use super::style::{INK, LINE_WIDTH, MARKER_RADIUS, faint, series_color};
use super::{Figure, Heading};

/// One point of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ParetoPoint {
    pub(crate) hs_gib: f64,
    pub(crate) throughput_tok_s: f64,
}

/// All points of one policy.
#[derive(Clone, Debug)]
pub(crate) struct ParetoSeries {
    pub(crate) policy: String,
    pub(crate) points: Vec<ParetoPoint>,
}

/// The point that was chosen, and what to write at it.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) point: ParetoPoint,
    pub(crate) label: String,
}

/// The figure: throughput (tok/s) against peak HS memory (GiB), with the Pareto front.
#[derive(Clone, Debug)]
pub(crate) struct Pareto {
    pub(crate) heading: Heading,
    pub(crate) policies: Vec<ParetoSeries>,
    /// Those of the points that no other eligible point beats, by rising memory.
    pub(crate) front: Vec<ParetoPoint>,
    pub(crate) chosen: Option<Chosen>,
    pub(crate) bound_tok_s: Option<f64>,
}

/// So many points have room for markers of full size.
const FEW_POINTS: usize = 60;

impl Figure for Pareto {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        !self
            .points()
            .any(|p| p.hs_gib.is_finite() && p.throughput_tok_s.is_finite())
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let top = draw_legend(sheet, top, &self.legend());
        let chosen = self.chosen.iter().map(|chosen| chosen.point);
        let all: Vec<ParetoPoint> = self.points().copied().chain(chosen).collect();
        let speeds = || {
            all.iter()
                .map(|p| p.throughput_tok_s)
                .chain(self.bound_tok_s)
        };
        // Front and bound leave no place for the label of the chosen point but above them.
        let label_room = 1.1
            * speeds()
                .filter(|speed| speed.is_finite())
                .fold(0.0, f64::max);
        let frame = Frame::new(
            sheet,
            top,
            if self.bound_tok_s.is_some() {
                LIMIT_SPACE
            } else {
                0.0
            },
            Axis::spread("Peak HS memory [GiB]", all.iter().map(|p| p.hs_gib)),
            Axis::linear("Throughput [tok/s]", speeds().chain([label_room])),
        );
        frame.draw(sheet);
        if let Some(bound) = self.bound_tok_s {
            draw_limit(sheet, &frame, "bound", bound);
        }
        self.draw_points(sheet, &frame);
        if let Some(chosen) = &self.chosen {
            let marks: Vec<Point> = all
                .iter()
                .map(|p| frame.at(p.hs_gib, p.throughput_tok_s))
                .collect();
            let at = frame.at(chosen.point.hs_gib, chosen.point.throughput_tok_s);
            draw_callout(sheet, &frame, at, &chosen.label, &marks);
        }
    }
}

impl Pareto {
    fn points(&self) -> impl Iterator<Item = &ParetoPoint> {
        self.policies.iter().flat_map(|series| &series.points)
    }

    fn legend(&self) -> Vec<(Key, String)> {
        let shown = self.policies.iter().enumerate();
        let mut entries: Vec<(Key, String)> = shown
            .filter(|(_, series)| !series.points.is_empty())
            .map(|(index, series)| (Key::Marker(index), series.policy.clone()))
            .collect();
        if self.front.len() > 1 {
            entries.push((Key::Line(INK, LINE_WIDTH), "Pareto front".to_owned()));
        }
        entries
    }

    /// Draws the points beside the front faintly, then the front, then the points on it.
    fn draw_points(&self, sheet: &mut Sheet, frame: &Frame) {
        let front = &self.front;
        let line: Vec<Point> = front
            .iter()
            .map(|p| frame.at(p.hs_gib, p.throughput_tok_s))
            .collect();
        let mut taken = HashSet::new();
        let radius = if self.points().count() > FEW_POINTS {
            5.0
        } else {
            MARKER_RADIUS
        };
        for (index, series) in self.policies.iter().enumerate() {
            for point in series.points.iter().filter(|point| !front.contains(point)) {
                let at = frame.at(point.hs_gib, point.throughput_tok_s);
                // Thousands of points share few places: one mark per policy and 4 × 4 pixels is enough.
                if taken.insert((index, (at.0 / 4.0) as i64, (at.1 / 4.0) as i64)) {
                    draw_bare_marker(sheet, index, at, radius, faint(series_color(index), 0.5));
                }
            }
        }
        sheet.path(&steps(&line), INK, LINE_WIDTH);
        for (index, series) in self.policies.iter().enumerate() {
            for point in series.points.iter().filter(|point| front.contains(point)) {
                let at = frame.at(point.hs_gib, point.throughput_tok_s);
                draw_marker(sheet, index, at, MARKER_RADIUS, series_color(index));
            }
        }
    }
}
