//! What each worker did with its time: one stacked bar a worker, grouped by policy.

mod bar;

use super::axis::Axis;
use super::font::cut;
use super::frame::Frame;
use super::legend::{Key, draw_legend};
use super::sheet::{Sheet, Text};
use super::style::{GRID, MARGIN, SHEET_HEIGHT, TEXT_SIZE, TICK_SIZE, WHITE};
use super::{Figure, Heading};
use bar::{REST, STATES, draw_worker, shares};

/// Shares of one worker's time, 0 to 1; what is missing to 1 is shown as "other".
#[derive(Clone, Debug)]
pub(crate) struct WorkerShares {
    /// Short name: `t0`, `d2`.
    pub(crate) worker: String,
    pub(crate) busy: f64,
    pub(crate) copying: f64,
    pub(crate) blocked: f64,
    pub(crate) starved: f64,
    pub(crate) barrier: f64,
}

/// The workers of one policy.
#[derive(Clone, Debug)]
pub(crate) struct UtilisationGroup {
    pub(crate) policy: String,
    pub(crate) workers: Vec<WorkerShares>,
}

/// The figure: shares of wall time (%) per worker.
#[derive(Clone, Debug)]
pub(crate) struct Utilisation {
    pub(crate) heading: Heading,
    pub(crate) groups: Vec<UtilisationGroup>,
}

/// Longest name of a worker shown whole.
const NAME_WIDTH: f64 = 160.0;
/// Least share that can be seen.
const SHARE_SHOWN: f64 = 0.0005;
const GROUP_HEADER: f64 = 46.0;
const ROW_MIN: f64 = 32.0;
const ROW_MAX: f64 = 72.0;
/// Height taken by heading, legend and axis, generously.
const AROUND: f64 = 290.0;
const AXIS_HEIGHT: f64 = 76.0;
const COLUMN_GAP: f64 = 50.0;

impl Figure for Utilisation {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        !self
            .workers()
            .any(|worker| shares(worker).iter().any(|share| share.is_finite()))
    }

    fn height(&self) -> f64 {
        let needed = |pitch: f64| {
            let columns = self.columns();
            let heights = columns.iter().map(|groups| self.rows_height(groups, pitch));
            heights.fold(0.0, f64::max) + AROUND
        };
        SHEET_HEIGHT.min(needed(ROW_MAX)).max(needed(ROW_MIN))
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let used = |index: &usize| {
            self.workers()
                .any(|worker| shares(worker)[*index] >= SHARE_SHOWN)
        };
        let has_rest = self
            .workers()
            .any(|worker| shares(worker).iter().sum::<f64>() < 0.99);
        let entries: Vec<(Key, String)> = (0..STATES.len())
            .filter(used)
            .map(|index| (Key::Box(STATES[index].1), STATES[index].0.to_owned()))
            .chain(has_rest.then(|| (Key::Box(REST), "other".to_owned())))
            .collect();
        let top = draw_legend(sheet, top, &entries);
        let columns = self.columns();
        let room = sheet.height - top - MARGIN - AXIS_HEIGHT;
        let pitch = columns
            .iter()
            .map(|groups| {
                let rows: usize = groups.iter().map(|group| group.workers.len()).sum();
                (room - self.header() * groups.len() as f64) / rows.max(1) as f64
            })
            .fold(ROW_MAX, f64::min);
        let count = columns.len() as f64;
        let width = (sheet.width - 2.0 * MARGIN - COLUMN_GAP * (count - 1.0)) / count;
        for (index, groups) in columns.into_iter().enumerate() {
            let left = MARGIN + index as f64 * (width + COLUMN_GAP);
            self.draw_column(
                sheet,
                groups,
                (left, left + width),
                top,
                pitch.max(ROW_MIN * 0.9),
            );
        }
    }
}

impl Utilisation {
    fn workers(&self) -> impl Iterator<Item = &WorkerShares> {
        self.groups.iter().flat_map(|group| &group.workers)
    }

    /// The groups in one column, or in two from three groups on.
    fn columns(&self) -> Vec<&[UtilisationGroup]> {
        let columns = if self.groups.len() > 2 { 2 } else { 1 };
        self.groups
            .chunks(self.groups.len().div_ceil(columns).max(1))
            .collect()
    }

    fn rows_height(&self, groups: &[UtilisationGroup], pitch: f64) -> f64 {
        let rows: usize = groups.iter().map(|group| group.workers.len()).sum();
        groups.len() as f64 * self.header() + rows as f64 * pitch
    }

    /// Height of the line with a group's name; a single group needs none.
    fn header(&self) -> f64 {
        if self.groups.len() > 1 {
            GROUP_HEADER
        } else {
            0.0
        }
    }

    fn draw_column(
        &self,
        sheet: &mut Sheet,
        groups: &[UtilisationGroup],
        (left, right): (f64, f64),
        top: f64,
        pitch: f64,
    ) {
        let names = groups
            .iter()
            .flat_map(|group| &group.workers)
            .map(|worker| &worker.worker);
        let name_width = names
            .map(|name| Text::new((0.0, 0.0), cut(name, TICK_SIZE, false, NAME_WIDTH)).width())
            .fold(0.0, f64::max);
        let rows: usize = groups.iter().map(|group| group.workers.len()).sum();
        let bottom = top + self.header() * groups.len() as f64 + pitch * rows as f64 + 6.0;
        let frame = Frame {
            left: left + name_width + 14.0,
            top,
            right: right - 30.0,
            bottom,
            x: Axis::exact("Share of wall time [%]", 0.0, 100.0),
            y: Axis::exact("", 0.0, 1.0),
        };
        for (value, _) in &frame.x.ticks {
            let x = frame.x_at(*value);
            sheet.path(
                &[(x, top + self.header() + pitch * 0.09), (x, bottom)],
                GRID,
                1.5,
            );
        }
        frame.draw_x(sheet);
        let mut y = top;
        for group in groups {
            if self.groups.len() > 1 {
                let name = cut(&group.policy, TEXT_SIZE, true, frame.right - frame.left);
                sheet.rect(
                    (frame.left - 1.0, y),
                    (frame.right + 2.0, y + GROUP_HEADER),
                    WHITE,
                );
                let at = (frame.left, y + GROUP_HEADER - 12.0);
                sheet.text(Text::new(at, name).size(TEXT_SIZE).bold());
                y += GROUP_HEADER;
            }
            for worker in &group.workers {
                draw_worker(sheet, &frame, worker, y, pitch);
                y += pitch;
            }
        }
    }
}
