//! How well each policy mixes lengths: one row a policy, with the distribution of the total variation distance of its
//! optimizer steps and the number of distinct buckets they hold.

use plotters::style::RGBColor;

use super::axis::{Axis, Frame};
use super::number::{percent, percent_number, short};
use super::sheet::{Point, Sheet, Text, cut, wrap};
use super::style::{
    AXIS, INK, MARGIN, MUTED, SHEET_HEIGHT, SMALL_SIZE, TEXT_SIZE, THIN_WIDTH, TICK_SIZE, faint,
    series_color,
};
use super::{Figure, Heading};

/// The optimizer steps of one policy.
#[derive(Clone, Debug)]
pub(crate) struct MixingSeries {
    pub(crate) policy: String,
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
const BINS: usize = 48;
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
        SHEET_HEIGHT.max(self.policies.len() as f64 * ROW_MIN + 330.0)
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
        let distance = Frame {
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
            ..distance.clone()
        };
        let what = "histogram of the steps; line: mean, triangle: worst";
        draw_panel_title(sheet, &distance, "Distance from the data's buckets", what);
        let scale = BarScale::over(&self.policies, &distinct);
        let title = "Distinct buckets in a step";
        draw_panel_title(sheet, &distinct, title, &scale.explanation());
        distance.draw_x(sheet);
        distinct.draw_x(sheet);
        let pitch = (bottom - top) / self.policies.len() as f64;
        for (index, series) in self.policies.iter().enumerate() {
            let base = top + (index + 1) as f64 * pitch;
            draw_name(sheet, series, base, pitch);
            draw_distances(sheet, &distance, series, index, (base, pitch));
            let color = series_color(index);
            draw_shares(sheet, &distinct, series, color, (base, pitch), &scale);
        }
    }
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

fn draw_name(sheet: &mut Sheet, series: &MixingSeries, base: f64, pitch: f64) {
    let width = NAME_WIDTH - 24.0;
    let name = wrap(&series.policy, TEXT_SIZE, true, width, 2);
    let mut y = base - pitch * 0.42 - (name.len() as f64 - 1.0) * TEXT_SIZE * 0.6;
    for line in name {
        sheet.text(Text::new((MARGIN, y), line).size(TEXT_SIZE).bold());
        y += TEXT_SIZE * 1.25;
    }
    let values: Vec<f64> = finite(&series.tv).collect();
    if values.is_empty() {
        return;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let worst = values.iter().copied().fold(0.0, f64::max);
    let text = format!("mean {}, worst {}", distance(mean), distance(worst));
    let text = cut(&text, TICK_SIZE, false, width);
    sheet.text(Text::new((MARGIN, y), text).color(MUTED));
}

/// A distance with two decimals, as long as it is one: a share of at most 1.
fn distance(value: f64) -> String {
    if (0.0..=1.0).contains(&value) {
        format!("{value:.2}")
    } else {
        short(value)
    }
}

/// A histogram on its own base line, as high as its row, with a line at the mean and a mark at the worst step.
fn draw_distances(
    sheet: &mut Sheet,
    frame: &Frame,
    series: &MixingSeries,
    index: usize,
    row: (f64, f64),
) {
    let (base, pitch) = row;
    sheet.path(&[(frame.left, base), (frame.right, base)], AXIS, 1.5);
    let values: Vec<f64> = finite(&series.tv).collect();
    let bin_width = (frame.right - frame.left) / BINS as f64;
    let mut counts = [0_u32; BINS];
    for value in &values {
        let bin = (frame.x.share(*value) * BINS as f64) as usize;
        counts[bin.min(BINS - 1)] += 1;
    }
    let Some(most) = counts.iter().copied().max().filter(|most| *most > 0) else {
        return;
    };
    let height = |count: u32| f64::from(count) / f64::from(most) * pitch * 0.72;
    let filled = |count: &u32| *count > 0;
    let first = counts.iter().position(filled).unwrap_or(0);
    let last = counts.iter().rposition(filled).unwrap_or(0);
    let x = |bin: usize| frame.left + bin as f64 * bin_width;
    let mut outline: Vec<Point> = vec![(x(first), base)];
    for (bin, count) in counts.iter().enumerate().take(last + 1).skip(first) {
        outline.extend([
            (x(bin), base - height(*count)),
            (x(bin + 1), base - height(*count)),
        ]);
    }
    outline.push((x(last + 1), base));
    sheet.area(&outline, faint(series_color(index), 0.55), 1.0);
    sheet.path(&outline, series_color(index), THIN_WIDTH);
    let mean = frame.x_at(values.iter().sum::<f64>() / values.len() as f64);
    sheet.path(&[(mean, base), (mean, base - pitch * 0.78)], INK, 3.0);
    let worst = frame.x_at(values.iter().copied().fold(0.0, f64::max));
    sheet.area(
        &[
            (worst - 8.0, base - 20.0),
            (worst + 8.0, base - 20.0),
            (worst, base - 4.0),
        ],
        INK,
        1.0,
    );
}

/// How the bars of all policies are drawn.
struct BarScale {
    /// The share whose bar is the highest.
    most: f64,
    /// Whether each bar carries its share.
    labelled: bool,
}

impl BarScale {
    /// One scale for all policies; if bars are too narrow for one of the labels, none carries one.
    fn over(policies: &[MixingSeries], frame: &Frame) -> Self {
        let shares = || {
            policies
                .iter()
                .flat_map(|policy| finite(&policy.share_by_distinct))
        };
        let slot = frame.x_at(2.0) - frame.x_at(1.0) - 4.0;
        let fits = |share: f64| share_label(share, (0.0, 0.0)).width() < slot;
        Self {
            most: shares().fold(0.0, f64::max),
            labelled: shares().all(fits),
        }
    }

    fn explanation(&self) -> String {
        if self.labelled {
            return "share of the steps [%]".to_owned();
        }
        format!("share of the steps; highest bar: {}", percent(self.most))
    }
}

fn draw_shares(
    sheet: &mut Sheet,
    frame: &Frame,
    series: &MixingSeries,
    color: RGBColor,
    (base, pitch): (f64, f64),
    scale: &BarScale,
) {
    sheet.path(&[(frame.left, base), (frame.right, base)], AXIS, 1.5);
    for (k, share) in series.share_by_distinct.iter().enumerate() {
        if !share.is_finite() || *share <= 0.0 {
            continue;
        }
        let (left, right) = (frame.x_at(k as f64 + 0.64), frame.x_at(k as f64 + 1.36));
        let top = base - (share / scale.most * pitch * 0.62).max(2.0);
        sheet.rect((left, top), (right, base), color);
        if scale.labelled {
            sheet.text(share_label(*share, ((left + right) / 2.0, top - 6.0)));
        }
    }
}

fn share_label(share: f64, at: Point) -> Text {
    Text::new(at, percent_number(share))
        .size(SMALL_SIZE)
        .middle()
        .color(INK)
}

fn finite(values: &[f64]) -> impl Iterator<Item = f64> {
    values.iter().copied().filter(|value| value.is_finite())
}
