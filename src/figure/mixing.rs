//! How well each policy mixes lengths: one row a policy, with the distribution of the total variation distance of its
//! optimizer steps and the number of distinct buckets they hold.

mod distance;
mod distinct;

use plotters::style::RGBColor;

use super::axis::Axis;
use super::font::{cut, wrap};
use super::frame::Frame;
use super::number::short;
use super::sheet::{Sheet, Text};
use super::style::{MARGIN, MUTED, SHEET_HEIGHT, TEXT_SIZE, TICK_SIZE, series_color};
use super::{Figure, Heading};
use distance::draw_distances;
use distinct::{BarScale, draw_shares};

/// The optimizer steps of one policy.
#[derive(Clone, Debug)]
pub(crate) struct MixingSeries {
    pub(crate) policy: String,
    /// Which of the series colours it has.
    pub(crate) color: usize,
    /// Total variation distance of each step's bucket mix from the data's, 0 to 1.
    pub(crate) tv: Vec<f64>,
    /// Share of the steps that hold k + 1 distinct buckets, at index k.
    pub(crate) share_by_distinct: Vec<f64>,
}

/// The figure: total variation distance and distinct buckets per optimizer step.
#[derive(Clone, Debug)]
pub(crate) struct Mixing {
    pub(crate) heading: Heading,
    pub(crate) policies: Vec<MixingSeries>,
}

const NAME_WIDTH: f64 = 290.0;
const ROW_MIN: f64 = 110.0;
const ROW_MAX: f64 = 240.0;
const PANEL_GAP: f64 = 60.0;

impl Figure for Mixing {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        let finite = |values: &[f64]| values.iter().any(|value| value.is_finite());
        !self
            .policies
            .iter()
            .any(|p| finite(&p.tv) || finite(&p.share_by_distinct))
    }

    fn height(&self) -> f64 {
        let needed = |row: f64| self.policies.len() as f64 * row + 330.0;
        SHEET_HEIGHT.min(needed(ROW_MAX)).max(needed(ROW_MIN))
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let top = top + TEXT_SIZE * 2.2;
        let bottom = sheet.height - MARGIN - 90.0;
        let left = MARGIN + NAME_WIDTH;
        let middle = left + (sheet.width - MARGIN - left) * 0.52;
        let greatest = self
            .policies
            .iter()
            .flat_map(|p| finite(&p.tv))
            .fold(0.0, f64::max);
        let none = || Axis::exact("", 0.0, 1.0);
        let distances = Frame {
            left,
            top,
            right: middle - PANEL_GAP / 2.0,
            bottom,
            x: Axis::from_zero("Total variation distance", [0.0, greatest]),
            y: none(),
        };
        let buckets = self
            .policies
            .iter()
            .map(|p| p.share_by_distinct.len())
            .max()
            .unwrap_or(0)
            .max(1);
        let distinct = Frame {
            left: middle + PANEL_GAP / 2.0,
            right: sheet.width - MARGIN,
            x: bucket_axis(buckets),
            ..distances.clone()
        };
        let what = "histogram of the steps; line: mean, triangle: worst";
        draw_panel_title(sheet, &distances, "Distance from the data's buckets", what);
        let scale = BarScale::over(&self.policies, &distinct);
        let title = "Distinct buckets in a step";
        draw_panel_title(sheet, &distinct, title, &scale.explanation());
        distances.draw_x(sheet);
        distinct.draw_x(sheet);
        let pitch = (bottom - top) / self.policies.len() as f64;
        for (index, series) in self.policies.iter().enumerate() {
            let base = top + (index + 1) as f64 * pitch;
            let row = Row {
                base,
                pitch,
                color: series_color(series.color),
            };
            let values: Vec<f64> = finite(&series.tv).collect();
            draw_name(sheet, &row, &series.policy, &values);
            draw_distances(sheet, &distances, &row, &values);
            draw_shares(sheet, &distinct, &row, &series.share_by_distinct, &scale);
        }
    }
}

/// The place of one policy: where its bars stand, how high the row is, and its colour.
struct Row {
    base: f64,
    pitch: f64,
    color: RGBColor,
}

/// Numbers of buckets, with room for half a bar at both ends and not too many labels.
fn bucket_axis(buckets: usize) -> Axis {
    let mut axis = Axis::exact("Distinct buckets", 0.4, buckets as f64 + 0.6);
    let every = buckets.div_ceil(16);
    axis.ticks = (1..=buckets)
        .filter(|k| (k - 1).is_multiple_of(every))
        .map(|k| (k as f64, k.to_string()))
        .collect();
    axis
}

fn draw_panel_title(sheet: &mut Sheet, frame: &Frame, title: &str, what: &str) {
    let at = (frame.left, frame.top - TEXT_SIZE * 1.1);
    sheet.text(Text::new(at, title).size(TEXT_SIZE).bold());
    sheet.text(Text::new((at.0, at.1 + TICK_SIZE * 1.35), what).color(MUTED));
}

fn draw_name(sheet: &mut Sheet, row: &Row, policy: &str, values: &[f64]) {
    let width = NAME_WIDTH - 24.0;
    let name = wrap(policy, TEXT_SIZE, true, width, 2);
    let mut y = row.base - row.pitch * 0.42 - (name.len() as f64 - 1.0) * TEXT_SIZE * 0.6;
    for line in name {
        sheet.text(Text::new((MARGIN, y), line).size(TEXT_SIZE).bold());
        y += TEXT_SIZE * 1.25;
    }
    if values.is_empty() {
        return;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let worst = values.iter().copied().fold(0.0, f64::max);
    let text = format!("mean {}, worst {}", two_decimals(mean), two_decimals(worst));
    let text = cut(&text, TICK_SIZE, false, width);
    sheet.text(Text::new((MARGIN, y), text).color(MUTED));
}

/// A distance with two decimals, as long as it is one: a share of at most 1.
fn two_decimals(value: f64) -> String {
    if (0.0..=1.0).contains(&value) {
        format!("{value:.2}")
    } else {
        short(value)
    }
}

fn finite(values: &[f64]) -> impl Iterator<Item = f64> {
    values.iter().copied().filter(|value| value.is_finite())
}
