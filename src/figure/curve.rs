//! Curves with many points: thinned to what a sheet can show, smoothed, drawn as steps or dashes.

use super::sheet::Point;

/// Keeps of each column of `column` logical pixels the first, lowest, highest and last point, in order.
///
/// The drawn line looks the same, while a run of a million points stays a small file.
pub(crate) fn thinned(points: &[Point], column: f64) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    for column in points.chunk_by(|a, b| (a.0 / column).floor() == (b.0 / column).floor()) {
        if column.len() <= 4 {
            kept.extend_from_slice(column);
            continue;
        }
        let by_height = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
        let mut picks = [
            Some(0),
            (0..column.len()).min_by(by_height),
            (0..column.len()).max_by(by_height),
            Some(column.len() - 1),
        ];
        picks.sort_unstable();
        kept.extend(picks.into_iter().flatten().map(|index| column[index]));
    }
    kept.dedup();
    kept
}

/// The corners of a line that keeps each value until the next point.
pub(crate) fn steps(points: &[Point]) -> Vec<Point> {
    let mut corners = Vec::with_capacity(2 * points.len());
    for (i, point) in points.iter().enumerate() {
        if i > 0 {
            corners.push((point.0, points[i - 1].1));
        }
        corners.push(*point);
    }
    corners
}

/// Mean of each value with its neighbours in a window of `window` points around it.
///
/// Near the ends the window shrinks, to stay symmetric; where less than half of it is left, there is no mean, since
/// the line would follow the noise of a few points. Values that are not finite are left out; where the window holds no
/// other, the mean is NaN.
pub(crate) fn smoothed(points: &[Point], window: usize) -> Vec<Point> {
    let half = (window / 2).min(points.len().saturating_sub(1) / 2);
    let mut totals = vec![(0.0, 0_u32)];
    for (_, value) in points {
        let (sum, count) = totals[totals.len() - 1];
        totals.push(if value.is_finite() {
            (sum + value, count + 1)
        } else {
            (sum, count)
        });
    }
    let mean = |i: usize| {
        let half = half.min(i).min(points.len() - 1 - i);
        let (before, after) = (totals[i - half], totals[i + half + 1]);
        (
            points[i].0,
            (after.0 - before.0) / f64::from(after.1 - before.1),
        )
    };
    (half / 2..points.len() - half / 2).map(mean).collect()
}

/// Cuts a line into dashes of length `dash` with gaps of 0.7 × `dash`.
pub(crate) fn dashes(points: &[Point], dash: f64) -> Vec<Vec<Point>> {
    let gap = 0.7 * dash;
    let mut lines: Vec<Vec<Point>> = Vec::new();
    let (mut drawing, mut left) = (true, dash);
    let mut line = points.first().map(|first| vec![*first]).unwrap_or_default();
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            if length <= left {
                left -= length;
                line.push(to);
                break;
            }
            let share = left / length;
            from = (
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            );
            line.push(from);
            if drawing {
                lines.push(std::mem::take(&mut line));
            }
            line = vec![from];
            drawing = !drawing;
            left = if drawing { dash } else { gap };
        }
    }
    if drawing && line.len() > 1 {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_extremes() {
        let points: Vec<Point> = (0..10_000)
            .map(|i| {
                (
                    f64::from(i) / 100.0,
                    if i == 5_055 { 99.0 } else { f64::from(i % 7) },
                )
            })
            .collect();
        let kept = thinned(&points, 1.0);
        assert!(kept.len() <= 400, "{}", kept.len());
        assert!(kept.contains(&(50.55, 99.0)));
        assert!(kept.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn steps_hold_the_value() {
        assert_eq!(
            steps(&[(0.0, 1.0), (2.0, 3.0)]),
            [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0)]
        );
        assert!(steps(&[]).is_empty());
    }

    #[test]
    fn smoothing_keeps_a_straight_line_and_skips_nan() {
        let line: Vec<Point> = (0..9).map(|i| (f64::from(i), f64::from(2 * i))).collect();
        assert_eq!(smoothed(&line, 5), line[1..8]);
        assert_eq!(smoothed(&line, 1), line);
        assert!(smoothed(&[], 5).is_empty());
        let gap = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)];
        assert_eq!(smoothed(&gap, 3)[1], (1.0, 2.0));
        assert!(smoothed(&[(0.0, f64::NAN)], 3)[0].1.is_nan());
    }

    #[test]
    fn dashes_cover_ten_seventeenths_of_a_line() {
        let drawn: f64 = dashes(&[(0.0, 0.0), (50.0, 0.0), (170.0, 0.0)], 10.0)
            .iter()
            .map(|line| line[line.len() - 1].0 - line[0].0)
            .sum();
        assert!((drawn - 100.0).abs() < 1e-9, "{drawn}");
    }
}
