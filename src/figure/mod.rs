//! Figures: plain data in, one `.svg` and one `.png` out.
//!
//! A figure is a struct of plain numbers. It draws itself on a [`Sheet`], a list of shapes, which [`save`] renders
//! twice. Nothing here computes a result: figures show what they are given. Values that are not finite are left out, and
//! a figure without a value to show says "no data".

mod acceptance;
mod axis;
mod callout;
mod curve;
mod dark;
#[cfg(test)]
mod examples;
mod font;
mod frame;
mod groups;
mod html;
mod legend;
mod loss_curve;
mod marker;
mod memory_depth;
mod mixing;
mod number;
mod pareto;
mod prediction;
mod render;
mod sheet;
mod slots_over_time;
mod style;
mod throughput_depth;
mod timeline;
mod utilisation;

use std::fs;
use std::path::Path;

use anyhow::Context;
use rayon::prelude::*;

pub(crate) use acceptance::{Acceptance, AcceptancePoint, AcceptanceSeries};
pub(crate) use groups::{GroupPanel, GroupSeries, GroupValue, Groups};
pub(crate) use html::{Part, Report, Table, report};
pub(crate) use loss_curve::{LossCurve, LossRun};
pub(crate) use memory_depth::{MemoryDepth, MemoryPoint, MemorySeries};
pub(crate) use mixing::{Mixing, MixingSeries};
pub(crate) use pareto::{Chosen, Pareto, ParetoPoint, ParetoSeries};
pub(crate) use prediction::{Pair, PairPanel, PredictionMeasurement};
pub(crate) use slots_over_time::{SlotsOverTime, SlotsSeries};
pub(crate) use throughput_depth::{DepthPoint, DepthSeries, ThroughputDepth};
pub(crate) use timeline::{Activity, StepMark, Timeline, TimelineSpan};
pub(crate) use utilisation::{Utilisation, UtilisationGroup, WorkerShares};

use font::wrap;
use sheet::{Sheet, Text};
use style::{MARGIN, MUTED, SHEET_HEIGHT, SHEET_WIDTH, SUBTITLE_SIZE, TITLE_SIZE};

/// What stands above a figure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heading {
    /// The message or the name of the figure.
    pub(crate) title: String,
    /// What is shown, in one line.
    pub(crate) shown: String,
    /// Name of the scenario or of the run.
    pub(crate) scenario: String,
    /// Seed of the run, if there is one.
    pub(crate) seed: Option<u64>,
}

impl Heading {
    fn subtitle(&self) -> String {
        let seed = self.seed.map(|seed| format!("seed {seed}"));
        let scenario = (!self.scenario.is_empty()).then(|| format!("scenario {}", self.scenario));
        let shown = (!self.shown.is_empty()).then(|| self.shown.clone());
        [shown, scenario, seed]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("  ·  ")
    }
}

/// Something that can be drawn on a sheet.
pub(crate) trait Figure {
    /// Title and subtitle.
    fn heading(&self) -> &Heading;

    /// Whether there is no finite value to show.
    fn is_empty(&self) -> bool;

    /// Draws everything below the heading, which ends at `top`.
    fn draw(&self, sheet: &mut Sheet, top: f64);

    /// Height of the sheet in logical pixels.
    fn height(&self) -> f64 {
        SHEET_HEIGHT
    }
}

/// The figure as an SVG document.
///
/// # Errors
/// If the drawing backend refuses a shape, which would be a bug here.
pub(crate) fn svg(figure: &dyn Figure) -> anyhow::Result<String> {
    render::svg(&sheet_of(figure))
}

/// A figure and the stem of its files.
pub(crate) type Named<'a> = (&'a str, Box<dyn Figure + Sync + 'a>);

/// Writes all figures as [`save`] does, several at a time, and returns them as SVG in their order.
///
/// # Errors
/// As [`save`].
pub(crate) fn save_all(dir: &Path, figures: &[Named<'_>]) -> anyhow::Result<Vec<String>> {
    figures
        .par_iter()
        .map(|(stem, figure)| save(dir, stem, figure.as_ref()))
        .collect()
}

/// Writes `figure` to `dir/stem.svg` and `dir/stem.png` and returns it as SVG; makes `dir` if it is missing.
///
/// # Errors
/// If the directory or a file cannot be written; the message names the path.
pub(crate) fn save(dir: &Path, stem: &str, figure: &dyn Figure) -> anyhow::Result<String> {
    fs::create_dir_all(dir)
        .with_context(|| format!("cannot make the directory {}", dir.display()))?;
    let sheet = sheet_of(figure);
    let svg_path = dir.join(format!("{stem}.svg"));
    let text =
        render::svg(&sheet).with_context(|| format!("cannot draw {}", svg_path.display()))?;
    fs::write(&svg_path, &text).with_context(|| format!("cannot write {}", svg_path.display()))?;
    render::write_png(&sheet, &dir.join(format!("{stem}.png")))?;
    Ok(text)
}

fn sheet_of(figure: &dyn Figure) -> Sheet {
    let mut sheet = Sheet::new(SHEET_WIDTH, figure.height().round());
    let top = draw_heading(&mut sheet, figure.heading());
    if figure.is_empty() {
        let middle = (sheet.width / 2.0, (top + sheet.height) / 2.0);
        sheet.text(
            Text::new(middle, "no data")
                .size(TITLE_SIZE)
                .color(MUTED)
                .middle(),
        );
    } else {
        figure.draw(&mut sheet, top);
    }
    sheet
}

/// Draws title and subtitle, wrapped to at most two lines each, and returns where they end.
fn draw_heading(sheet: &mut Sheet, heading: &Heading) -> f64 {
    let width = sheet.width - 2.0 * MARGIN;
    let mut y = MARGIN * 0.6;
    for line in wrap(&heading.title, TITLE_SIZE, true, width, 2) {
        y += TITLE_SIZE * 1.25;
        sheet.text(Text::new((MARGIN, y), line).size(TITLE_SIZE).bold());
    }
    y += 4.0;
    for line in wrap(&heading.subtitle(), SUBTITLE_SIZE, false, width, 2) {
        y += SUBTITLE_SIZE * 1.4;
        sheet.text(
            Text::new((MARGIN, y), line)
                .size(SUBTITLE_SIZE)
                .color(MUTED),
        );
    }
    y + 20.0
}
