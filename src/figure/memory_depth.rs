//! Memory against depth: the HS of each policy, and what the host holds in all.

use super::axis::Axis;
use super::frame::Frame;
use super::legend::{Key, draw_legend};
use super::marker::draw_marker;
use super::sheet::{Point, Sheet};
use super::style::{LINE_WIDTH, MARKER_RADIUS, MUTED, THIN_WIDTH, series_color};
use super::{Figure, Heading};

/// Memory of one policy at one depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryPoint {
    /// HS slots in all.
    pub(crate) depth: f64,
    /// Peak of all HS alive.
    pub(crate) hs_gib: f64,
    /// Peak of host memory; NaN where it is not known.
    pub(crate) host_gib: f64,
}

/// One policy over its depths, in rising order.
#[derive(Clone, Debug)]
pub(crate) struct MemorySeries {
    pub(crate) policy: String,
    pub(crate) points: Vec<MemoryPoint>,
}

/// The figure: HS memory and peak host memory (GiB) against total depth (HS slots).
#[derive(Clone, Debug)]
pub(crate) struct MemoryDepth {
    pub(crate) heading: Heading,
    pub(crate) policies: Vec<MemorySeries>,
}

impl Figure for MemoryDepth {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        let shows = |p: &MemoryPoint| {
            p.depth.is_finite() && (p.hs_gib.is_finite() || p.host_gib.is_finite())
        };
        !self.points().any(shows)
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let top = draw_legend(sheet, top, &self.legend());
        let frame = Frame::new(
            sheet,
            top,
            0.0,
            Axis::spread("Total depth [HS slots]", self.points().map(|p| p.depth)).whole_ticks(),
            Axis::from_zero(
                "Memory [GiB]",
                self.points().flat_map(|p| [p.hs_gib, p.host_gib]),
            ),
        );
        frame.draw(sheet);
        for (index, series) in self.policies.iter().enumerate() {
            let host: Vec<Point> = series
                .points
                .iter()
                .map(|p| frame.at(p.depth, p.host_gib))
                .collect();
            sheet.dashes(&host, series_color(index), THIN_WIDTH, 9.0);
        }
        for (index, series) in self.policies.iter().enumerate() {
            // Policies with the same memory share one line; those below are drawn wider, so that all show.
            let same = |other: &&MemorySeries| coincide(&series.points, &other.points);
            let below = self.policies[index + 1..]
                .iter()
                .filter(same)
                .count()
                .min(3) as f64;
            let places = series.points.iter().map(|p| frame.at(p.depth, p.hs_gib));
            let line: Vec<Point> = places.collect();
            sheet.path(&line, series_color(index), LINE_WIDTH + 5.0 * below);
            for at in line {
                draw_marker(
                    sheet,
                    index,
                    at,
                    MARKER_RADIUS + 3.5 * below,
                    series_color(index),
                );
            }
        }
    }
}

/// Whether two policies have the same memory, to within a hundredth, at each depth that both have, and have one in common.
fn coincide(a: &[MemoryPoint], b: &[MemoryPoint]) -> bool {
    let mut common = a
        .iter()
        .flat_map(|p| b.iter().map(move |q| (p, q)))
        .filter(|(p, q)| p.depth == q.depth)
        .peekable();
    common.peek().is_some()
        && common.all(|(p, q)| (p.hs_gib - q.hs_gib).abs() <= 0.01 * p.hs_gib.abs())
}

impl MemoryDepth {
    fn points(&self) -> impl Iterator<Item = &MemoryPoint> {
        self.policies.iter().flat_map(|series| &series.points)
    }

    fn legend(&self) -> Vec<(Key, String)> {
        let shown = self.policies.iter().enumerate();
        let mut entries: Vec<(Key, String)> = shown
            .filter(|(_, series)| !series.points.is_empty())
            .map(|(index, series)| (Key::Series(index), series.policy.clone()))
            .collect();
        if self.points().any(|p| p.host_gib.is_finite()) {
            entries.push((Key::Line(MUTED, LINE_WIDTH), "HS".to_owned()));
            entries.push((
                Key::Dashes(MUTED, THIN_WIDTH),
                "peak host memory".to_owned(),
            ));
        }
        entries
    }
}
