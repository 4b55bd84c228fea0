//! What each worker did when: one lane a worker, coloured by bucket.

use plotters::style::RGBColor;

use super::axis::Axis;
use super::font::cut;
use super::frame::Frame;
use super::legend::{Key, draw_legend};
use super::marker::draw_hatched;
use super::sheet::{Sheet, Text};
use super::style::{
    GREY, INK, LANE, MARGIN, MUTED, PURPLE, SHEET_HEIGHT, TICK_SIZE, VERMILLION, sequence_color,
};
use super::{Figure, Heading};

/// What a worker does during a span; buckets are counted from the shortest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Forward {
        bucket: usize,
    },
    Train {
        bucket: usize,
    },
    Copy {
        bucket: usize,
    },
    Blocked,
    Barrier,
    /// The optimizer step.
    Apply,
}

/// One span of one worker's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimelineSpan {
    /// Index into the workers.
    pub(crate) worker: usize,
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    pub(crate) activity: Activity,
}

/// The end of an optimizer step.
#[derive(Clone, Debug)]
pub(crate) struct StepMark {
    pub(crate) at_s: f64,
    pub(crate) label: String,
}

/// The figure: a Gantt chart of the first optimizer steps, time in s.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) heading: Heading,
    /// Names of the buckets from short to long, such as `≤ 512`.
    pub(crate) buckets: Vec<String>,
    /// Names of the workers, one lane each, from the top.
    pub(crate) workers: Vec<String>,
    pub(crate) spans: Vec<TimelineSpan>,
    pub(crate) steps: Vec<StepMark>,
}

const LANE_MIN: f64 = 40.0;
const NAME_WIDTH: f64 = 160.0;

impl Figure for Timeline {
    fn heading(&self) -> &Heading {
        &self.heading
    }

    fn is_empty(&self) -> bool {
        self.shown().next().is_none()
    }

    fn height(&self) -> f64 {
        SHEET_HEIGHT.max(self.workers.len() as f64 * LANE_MIN + 360.0)
    }

    fn draw(&self, sheet: &mut Sheet, top: f64) {
        let top = draw_legend(sheet, top, &self.legend()) + TICK_SIZE * 1.6;
        let names: Vec<String> = self
            .workers
            .iter()
            .map(|name| cut(name, TICK_SIZE, false, NAME_WIDTH))
            .collect();
        let name_width = names
            .iter()
            .map(|name| Text::new((0.0, 0.0), name).width())
            .fold(0.0, f64::max);
        let frame = Frame {
            left: MARGIN + name_width + 16.0,
            top,
            right: sheet.width - MARGIN - 12.0,
            bottom: sheet.height - MARGIN - 84.0,
            x: Axis::time(
                "Time [s]",
                self.shown().flat_map(|span| [span.start_s, span.end_s]),
            ),
            y: Axis::exact("", 0.0, 1.0),
        };
        let pitch = (frame.bottom - frame.top) / names.len() as f64;
        for (lane, name) in names.iter().enumerate() {
            let from = frame.top + lane as f64 * pitch;
            sheet.rect(
                (frame.left, from + pitch * 0.06),
                (frame.right, from + pitch * 0.94),
                LANE,
            );
            let at = (frame.left - 14.0, from + pitch / 2.0);
            sheet.text(Text::new(at, name).end().centred_on_line());
        }
        for span in self.shown() {
            self.draw_span(sheet, &frame, span, pitch);
        }
        self.draw_steps(sheet, &frame);
        frame.draw_x(sheet);
    }
}

impl Timeline {
    /// The spans that have a lane and finite ends.
    fn shown(&self) -> impl Iterator<Item = &TimelineSpan> {
        self.spans.iter().filter(|span| {
            span.worker < self.workers.len() && span.start_s.is_finite() && span.end_s.is_finite()
        })
    }

    fn has(&self, wanted: impl Fn(Activity) -> bool) -> bool {
        self.shown().any(|span| wanted(span.activity))
    }

    fn color(&self, bucket: usize) -> RGBColor {
        sequence_color(bucket, self.buckets.len())
    }

    fn legend(&self) -> Vec<(Key, String)> {
        let buckets = self.buckets.iter().enumerate();
        let mut entries = vec![(Key::Title, "Bucket [tokens]".to_owned())];
        entries.extend(buckets.map(|(index, name)| (Key::Box(self.color(index)), name.clone())));
        if self.has(|activity| matches!(activity, Activity::Copy { .. })) {
            entries.push((
                Key::Hatched(self.color(self.buckets.len() / 2)),
                "copy".to_owned(),
            ));
        }
        if self.has(|activity| activity == Activity::Blocked) {
            entries.push((Key::Line(VERMILLION, 7.0), "blocked".to_owned()));
        }
        if self.has(|activity| activity == Activity::Barrier) {
            entries.push((Key::Line(GREY, 7.0), "barrier".to_owned()));
        }
        if self.has(|activity| activity == Activity::Apply) {
            entries.push((Key::Box(PURPLE), "optimizer step".to_owned()));
        }
        entries
    }

    /// Work fills the lane, or its upper part where copies, which may overlap it, have a strip below; waiting is a
    /// thin bar.
    fn draw_span(&self, sheet: &mut Sheet, frame: &Frame, span: &TimelineSpan, pitch: f64) {
        let lane = frame.top + span.worker as f64 * pitch;
        let left = frame.x_at(span.start_s);
        let right = frame.x_at(span.end_s).max(left + 1.0);
        let inside = |from: f64, to: f64| ((left, lane + pitch * from), (right, lane + pitch * to));
        let work_end = if self.copies(span.worker) { 0.68 } else { 0.9 };
        let middle = (0.1 + work_end) / 2.0;
        let (ends, color) = match span.activity {
            Activity::Forward { bucket } | Activity::Train { bucket } => {
                (inside(0.1, work_end), self.color(bucket))
            }
            Activity::Copy { bucket } => {
                let (from, to) = inside(0.72, 0.92);
                draw_hatched(sheet, from, to, self.color(bucket));
                return;
            }
            Activity::Blocked => (inside(middle - 0.05, middle + 0.05), VERMILLION),
            Activity::Barrier => (inside(middle - 0.05, middle + 0.05), GREY),
            Activity::Apply => (inside(0.1, work_end), PURPLE),
        };
        sheet.rect(ends.0, ends.1, color);
        sheet.path(&[(right, ends.0.1), (right, ends.1.1)], LANE, 1.5);
    }

    fn copies(&self, worker: usize) -> bool {
        let mut spans = self.spans.iter();
        spans.any(|span| span.worker == worker && matches!(span.activity, Activity::Copy { .. }))
    }

    fn draw_steps(&self, sheet: &mut Sheet, frame: &Frame) {
        let mut free_until = frame.right + 12.0;
        // From the right, so that of crowded labels the last one stays.
        for step in self.steps.iter().rev().filter(|step| step.at_s.is_finite()) {
            let x = frame.x_at(step.at_s);
            if !(frame.left..=frame.right + 0.5).contains(&x) {
                continue;
            }
            sheet.path(&[(x, frame.top - 6.0), (x, frame.bottom)], INK, 2.0);
            let label = Text::new((x, frame.top - 14.0), &step.label)
                .end()
                .color(MUTED);
            let left = x - label.width();
            if x < free_until && left > MARGIN {
                free_until = left - 16.0;
                sheet.text(label);
            }
        }
    }
}
