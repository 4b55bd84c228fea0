//! The shares of one policy's steps by their number of distinct buckets.

use super::super::frame::Frame;
use super::super::number::{percent, percent_number};
use super::super::sheet::{Point, Sheet, Text};
use super::super::style::{AXIS, INK, SMALL_SIZE};
use super::{MixingSeries, Row, finite};

/// How the bars of all policies are drawn.
pub(super) struct BarScale {
    /// The share whose bar is the highest.
    most: f64,
    /// Whether each bar carries its share.
    labelled: bool,
}

impl BarScale {
    /// One scale for all policies; if bars are too narrow for one of the labels, none carries one.
    pub(super) fn over(policies: &[MixingSeries], frame: &Frame) -> Self {
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

    /// What the bars show, for the line below the panel's title.
    pub(super) fn explanation(&self) -> String {
        if self.labelled {
            return "share of the steps [%]".to_owned();
        }
        format!("share of the steps; highest bar: {}", percent(self.most))
    }
}

/// A bar for each number of buckets, at index k for k + 1.
pub(super) fn draw_shares(
    sheet: &mut Sheet,
    frame: &Frame,
    row: &Row,
    shares: &[f64],
    scale: &BarScale,
) {
    let Row { base, pitch, color } = *row;
    sheet.path(&[(frame.left, base), (frame.right, base)], AXIS, 1.5);
    for (k, share) in shares.iter().enumerate() {
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
