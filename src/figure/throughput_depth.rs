//! Throughput against depth, one line per policy with its confidence band, below the bound.

use super::axis::Axis;
use super::frame::{Frame, LIMIT_SPACE, draw_limit};
use super::legend::{Key, draw_legend};
use super::marker::{draw_cross, draw_marker};
use super::sheet::{Point, Sheet};
use super::style::{LINE_WIDTH, MARKER_RADIUS, MUTED, series_color};
use super::{Figure, Heading};

/// Throughput of one policy at one depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DepthPoint {
    /// HS slots in all.
    pub(crate) depth: f64,
    pub(crate) throughput_tok_s: f64,
    /// Ends of the confidence interval; NaN where there is none.
    pub(crate) ci_low_tok_s: f64,
    pub(crate) ci_high_tok_s: f64,
}

/// One policy over its depths, in rising order.
#[derive(Clone, Debug)]
pub(crate) struct DepthSeries {
    pub(crate) policy: String,
    pub(crate) points: Vec<DepthPoint>,
    /// Depths at which it ends in a deadlock.
    pub(crate) deadlocks: Vec<f64>,
}

impl DepthSeries {
    fn is_empty(&self) -> bool {
        self.points.is_empty() && self.deadlocks.is_empty()
    }

    /// Whether one of its markers hides that of `point`.
    fn covers(&self, frame: &Frame, point: &DepthPoint) -> bool {
        let place = |p: &DepthPoint| frame.at(p.depth, p.throughput_tok_s);
        let (x, y) = place(point);
        self.points
            .iter()
            .map(place)
            .any(|at| (at.0 - x).hypot(at.1 - y) < MARKER_RADIUS)
    }
}

/// The figure: throughput (tok/s) against total depth (HS slots).
#[derive(Clone, Debug)]
pub(crate) struct ThroughputDepth {
    pub(crate) heading: Heading,
    pub(crate) policies: Vec<DepthSeries>,
    /// The throughput that no policy can exceed.
    pub(crate) bound_tok_s: Option<f64>,
}

impl Figure for ThroughputDepth {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        let shows = |p: &DepthPoint| p.depth.is_finite() && p.throughput_tok_s.is_finite();
        !self.points().any(shows)
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let top = draw_legend(sheet, top, &self.legend());
        let values = self
            .points()
            .flat_map(|p| [p.throughput_tok_s, p.ci_low_tok_s, p.ci_high_tok_s]);
        let frame = Frame::new(
            sheet,
            top,
            if self.bound_tok_s.is_some() {
                LIMIT_SPACE
            } else {
                0.0
            },
            Axis::spread("Total depth [HS slots]", self.depths()).whole_ticks(),
            Axis::linear("Throughput [tok/s]", values.chain(self.bound_tok_s)),
        );
        frame.draw(sheet);
        if let Some(bound) = self.bound_tok_s {
            draw_limit(sheet, &frame, "bound", bound);
        }
        for (index, series) in self.policies.iter().enumerate() {
            draw_band(sheet, &frame, index, &series.points);
        }
        for (index, series) in self.policies.iter().enumerate() {
            let line: Vec<Point> = series
                .points
                .iter()
                .map(|p| frame.at(p.depth, p.throughput_tok_s))
                .collect();
            sheet.path(&line, series_color(index), LINE_WIDTH);
            for (at, point) in line.into_iter().zip(&series.points) {
                // Markers in one place show one around the other.
                let above = self.policies[index + 1..].iter();
                let covered = above.filter(|other| other.covers(&frame, point)).count();
                let radius = MARKER_RADIUS + 4.0 * covered.min(3) as f64;
                draw_marker(sheet, index, at, radius, series_color(index));
            }
            for depth in &series.deadlocks {
                let at = (frame.x_at(*depth), frame.bottom);
                draw_cross(sheet, at, MARKER_RADIUS, series_color(index));
            }
        }
    }
}

impl ThroughputDepth {
    fn points(&self) -> impl Iterator<Item = &DepthPoint> {
        self.policies.iter().flat_map(|series| &series.points)
    }

    fn depths(&self) -> impl Iterator<Item = f64> {
        let deadlocks = self.policies.iter().flat_map(|series| &series.deadlocks);
        self.points().map(|p| p.depth).chain(deadlocks.copied())
    }

    fn legend(&self) -> Vec<(Key, String)> {
        let shown = self.policies.iter().enumerate();
        let mut entries: Vec<(Key, String)> = shown
            .filter(|(_, series)| !series.is_empty())
            .map(|(index, series)| (Key::Series(index), series.policy.clone()))
            .collect();
        if self
            .policies
            .iter()
            .any(|series| !series.deadlocks.is_empty())
        {
            entries.push((Key::Cross(MUTED), "deadlock".to_owned()));
        }
        entries
    }
}

fn draw_band(sheet: &mut Sheet, frame: &Frame, index: usize, points: &[DepthPoint]) {
    let known: Vec<&DepthPoint> = points
        .iter()
        .filter(|p| p.ci_low_tok_s.is_finite() && p.ci_high_tok_s.is_finite())
        .collect();
    if let [only] = known[..] {
        // A band needs two depths; one interval is a bar.
        let ends = [only.ci_low_tok_s, only.ci_high_tok_s].map(|y| frame.at(only.depth, y));
        sheet.path(&ends, series_color(index), LINE_WIDTH);
        return;
    }
    let low = known.iter().map(|p| frame.at(p.depth, p.ci_low_tok_s));
    let high = known
        .iter()
        .rev()
        .map(|p| frame.at(p.depth, p.ci_high_tok_s));
    let outline: Vec<Point> = low.chain(high).collect();
    sheet.area(&outline, series_color(index), 0.2);
}
