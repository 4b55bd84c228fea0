//! Every figure from invented data: usual cases, and those that break a layout.
//!
//! With `DFLASH_FIGURES` set to a directory, the usual cases are also written there, to be looked at.

mod invented;

use std::path::Path;

use super::sheet::{Anchor, Shape};
use super::*;
use invented::*;

#[test]
fn every_figure_is_written_twice() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    save_all(dir.path());
}

#[test]
fn figures_can_be_kept() {
    if let Ok(dir) = std::env::var("DFLASH_FIGURES") {
        save_all(Path::new(&dir));
        save_stress(Path::new(&dir));
    }
}

#[test]
fn a_path_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("file");
    fs::write(&file, "").expect("a file for the test");
    let error =
        save(&file.join("inside"), "loss", &loss_curve()).expect_err("a file is no directory");
    assert!(format!("{error:#}").contains("file/inside"), "{error:#}");
    fs::create_dir(dir.path().join("loss.png")).expect("a directory for the test");
    let error = save(dir.path(), "loss", &loss_curve()).expect_err("a directory is no file");
    assert!(format!("{error:#}").contains("loss.png"), "{error:#}");
}

#[test]
fn labels_do_not_overlap() {
    check(&throughput_depth(4, NAMES));
    check(&throughput_depth(8, LONG_NAMES));
    check(&memory_depth(4, NAMES));
    check(&memory_depth(8, LONG_NAMES));
    check(&pareto(4, NAMES));
    check(&pareto(8, LONG_NAMES));
    for groups in 1..=8 {
        check(&utilisation(groups, NAMES));
        check(&utilisation(groups, LONG_NAMES));
    }
    check(&slots_over_time());
    for policies in [1, 2, 4, 8] {
        check(&mixing(policies, NAMES, 6));
        check(&mixing(policies, LONG_NAMES, 24));
    }
    check(&timeline(NAMES));
    check(&timeline(LONG_NAMES));
    check(&loss_curve());
    for variants in [1, 3, 6] {
        check(&groups(variants, NAMES));
    }
    check(&prediction(6));
    check(&prediction(1));
    check(&prediction(16));
    for (checkpoints, names) in [(1, NAMES), (2, NAMES), (12, LONG_NAMES)] {
        check(&acceptance(checkpoints, names));
    }
}

#[test]
fn extreme_values_do_not_break_a_figure() {
    for scale in [
        0.0,
        1e-12,
        1e-3,
        1.0,
        1e9,
        1e30,
        1e300,
        f64::NAN,
        f64::INFINITY,
        -1.0,
    ] {
        let point = |depth, value| DepthPoint {
            depth,
            throughput_tok_s: value * scale,
            ci_low_tok_s: value * scale * 0.9,
            ci_high_tok_s: value * scale * 1.1,
        };
        let mut figure = throughput_depth(1, NAMES);
        figure.bound_tok_s = Some(2.0 * scale);
        figure.policies[0].points = vec![point(1.0, 1.0), point(scale, 1.5), point(f64::NAN, 1.0)];
        check(&figure);
        figure.policies[0].points.truncate(1);
        check(&figure);

        let mut figure = pareto(1, NAMES);
        figure.policies[0].points = [1.0, 2.0]
            .map(|value| ParetoPoint {
                hs_gib: scale,
                throughput_tok_s: value * scale,
            })
            .to_vec();
        figure.chosen = None;
        figure.front = figure.policies[0].points.clone();
        check(&figure);

        let mut figure = slots_over_time();
        figure.series[0].points = vec![(0.0, scale), (scale, 1.0)];
        check(&figure);

        let mut figure = timeline(NAMES);
        figure.spans[0].end_s = scale;
        figure.spans.truncate(1);
        check(&figure);

        let mut figure = loss_curve();
        figure.runs[0].loss = vec![(0.0, scale), (1.0, scale * 2.0), (2.0, f64::NAN)];
        figure.learning_rate = vec![(0.0, scale)];
        check(&figure);

        let mut figure = prediction(2);
        figure.panels[0].pairs[0].predicted = scale;
        check(&figure);

        let mut figure = acceptance(3, NAMES);
        figure.steps[1].length = scale;
        figure.steps[2].step = scale;
        figure.series[0].slots[0] = scale;
        figure.series[1].length = scale;
        check(&figure);

        let mut figure = utilisation(1, NAMES);
        figure.groups[0].workers[0].busy = scale;
        check(&figure);

        let mut figure = mixing(1, NAMES, 6);
        figure.policies[0].tv = vec![scale; 3];
        figure.policies[0].share_by_distinct = vec![scale; 3];
        check(&figure);

        let mut figure = memory_depth(1, NAMES);
        figure.policies[0].points = vec![MemoryPoint {
            depth: 3.0,
            hs_gib: scale,
            host_gib: f64::NAN,
        }];
        check(&figure);
    }
}

#[test]
fn empty_figures_say_so() {
    let heading = || Heading {
        title: "Empty".to_owned(),
        ..Heading::default()
    };
    says_no_data(&ThroughputDepth {
        heading: heading(),
        policies: vec![],
        bound_tok_s: Some(1.0),
    });
    says_no_data(&MemoryDepth {
        heading: heading(),
        policies: vec![],
    });
    says_no_data(&Pareto {
        heading: heading(),
        policies: vec![],
        front: vec![],
        chosen: None,
        bound_tok_s: None,
    });
    says_no_data(&Utilisation {
        heading: heading(),
        groups: vec![],
    });
    says_no_data(&SlotsOverTime {
        heading: heading(),
        series: vec![],
    });
    says_no_data(&Mixing {
        heading: heading(),
        policies: vec![],
    });
    let lanes = vec!["t0".to_owned()];
    says_no_data(&Timeline {
        heading: heading(),
        buckets: vec![],
        workers: lanes,
        spans: vec![],
        steps: vec![],
    });
    says_no_data(&LossCurve {
        heading: heading(),
        runs: vec![],
        learning_rate: vec![],
    });
    says_no_data(&Acceptance {
        heading: heading(),
        steps: vec![],
        series: vec![],
    });
    says_no_data(&PredictionMeasurement {
        heading: heading(),
        panels: vec![],
    });
}

fn says_no_data(figure: &impl Figure) {
    let text = svg(figure).expect("an empty figure is drawn");
    assert!(text.contains("no data") && text.contains("Empty"), "{text}");
}

/// Asserts that the figure can be rendered, that no two texts overlap and that none leaves the sheet.
fn check(figure: &impl Figure) {
    let sheet = sheet_of(figure);
    render::svg(&sheet).expect("the figure is drawn");
    let texts: Vec<&Text> = sheet
        .shapes
        .iter()
        .filter_map(|shape| {
            if let Shape::Text(text) = shape {
                Some(text)
            } else {
                None
            }
        })
        .collect();
    let boxes: Vec<[f64; 4]> = texts.iter().map(|text| extent(text)).collect();
    for (i, a) in boxes.iter().enumerate() {
        assert!(
            a[0] >= 0.0 && a[1] >= 0.0 && a[2] <= sheet.width && a[3] <= sheet.height,
            "{:?} leaves the sheet: {a:?}",
            texts[i].text
        );
        for (j, b) in boxes.iter().enumerate().skip(i + 1) {
            let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
            assert!(
                apart,
                "{:?} {a:?} overlaps {:?} {b:?}",
                texts[i].text, texts[j].text
            );
        }
    }
}

/// Left, top, right and bottom of the capitals of a text.
fn extent(text: &Text) -> [f64; 4] {
    let (width, rise) = (text.width(), text.size * 0.72);
    let before = match text.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => width / 2.0,
        Anchor::End => width,
    };
    let (x, y) = text.at;
    if text.upwards {
        [x - rise, y - width + before, x, y + before]
    } else {
        [x - before, y - rise, x - before + width, y]
    }
}

fn save_all(dir: &Path) {
    saved(dir, "throughput-depth", &throughput_depth(4, NAMES));
    saved(dir, "memory-depth", &memory_depth(4, NAMES));
    saved(dir, "pareto", &pareto(4, NAMES));
    saved(dir, "utilisation", &utilisation(2, NAMES));
    saved(dir, "slots-over-time", &slots_over_time());
    saved(dir, "mixing", &mixing(4, NAMES, 6));
    saved(dir, "timeline", &timeline(NAMES));
    saved(dir, "loss-curve", &loss_curve());
    saved(dir, "prediction-measurement", &prediction(6));
    saved(dir, "acceptance", &acceptance(8, NAMES));
    saved(dir, "acceptance-1", &acceptance(1, NAMES));
}

fn save_stress(dir: &Path) {
    saved(
        dir,
        "stress-throughput-depth",
        &throughput_depth(8, LONG_NAMES),
    );
    saved(dir, "stress-memory-depth", &memory_depth(8, LONG_NAMES));
    saved(dir, "stress-pareto", &pareto(8, LONG_NAMES));
    saved(dir, "stress-utilisation-1", &utilisation(1, NAMES));
    saved(dir, "stress-utilisation-8", &utilisation(8, LONG_NAMES));
    saved(dir, "stress-mixing", &mixing(8, LONG_NAMES, 24));
    saved(dir, "stress-mixing-1", &mixing(1, NAMES, 6));
    saved(dir, "stress-prediction", &prediction(16));
    let mut single = throughput_depth(2, NAMES);
    single
        .policies
        .iter_mut()
        .for_each(|series| series.points.truncate(1));
    saved(dir, "stress-single", &single);
}

fn saved(dir: &Path, stem: &str, figure: &dyn Figure) {
    let drawn = save(dir, stem, figure).expect("the figure is saved");
    let file = |ending: &str| dir.join(format!("{stem}.{ending}"));
    let text = fs::read_to_string(file("svg")).expect("the SVG is text");
    assert_eq!(drawn, text, "{stem}");
    assert!(
        text.starts_with("<svg") && text.trim_end().ends_with("</svg>"),
        "{stem}"
    );
    assert!(
        text.contains(&figure.heading().title),
        "{stem} has its title"
    );
    assert!(!text.contains("NaN") && !text.contains("inf"), "{stem}");
    let image = image::open(file("png")).expect("the PNG decodes");
    assert_eq!(
        (image.width(), image.height()),
        (1600, figure.height().round() as u32),
        "{stem}"
    );
    let dark = image
        .to_rgb8()
        .pixels()
        .filter(|pixel| pixel.0.iter().all(|c| *c < 100))
        .count();
    assert!(dark > 500, "{stem} holds text, but only {dark} dark pixels");
}
