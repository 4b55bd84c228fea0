//! The figure and the page.

use super::measure::Measured;
use super::setup::{Kind, Setup};
use super::sums::{Bucket, Sum, sum};
use super::words::{newest, with_interval};
use crate::failure::Failure;
use crate::figure::{
    Acceptance, AcceptancePoint, AcceptanceSeries, Heading, Part, Report, Table, report, save,
};
use crate::output::OutputDir;
use crate::report::quantity::{count, percent};

/// Writes `acceptance.svg`, `acceptance.png` and `report.html`.
pub(super) fn write(
    dir: &OutputDir,
    setup: &Setup,
    measured: &Measured,
    answer: &[String],
) -> Result<(), Failure> {
    let sums: Vec<Sum> = (0..setup.drafters.len())
        .map(|index| sum(measured, index, setup.slots, &setup.edges))
        .collect();
    let figure = figure(setup, measured, &sums);
    let figure = save(dir.path(), "acceptance", &figure)?;
    let page = report(&Report {
        title: format!("dflash eval: {}", setup.file.name),
        question: "How many tokens does each forward of the target yield with this drafter?"
            .to_owned(),
        summary: answer.to_vec(),
        parts: vec![
            Part::Table(drafters(setup, &sums)),
            Part::Figure(figure),
            Part::Table(slots(setup, &sums)),
            Part::Table(lengths(
                "Acceptance length by the length of prompt and answer, mean over prompts with its 95 % interval",
                setup,
                &sums,
                |sum| &sum.by_length,
            )),
            Part::Table(lengths(
                "Acceptance length by the length of the text before the block",
                setup,
                &sums,
                |sum| &sum.by_context,
            )),
        ],
        notes: notes(setup, measured),
    });
    dir.write("report.html", page.as_bytes())?;
    Ok(())
}

fn figure(setup: &Setup, measured: &Measured, sums: &[Sum]) -> Acceptance {
    let newest = newest(setup);
    let point = |(named, sum): (&super::setup::Named, &Sum)| {
        let Kind::Trained {
            step: Some(step), ..
        } = named.kind
        else {
            return None;
        };
        let known = sum.length.count > 1;
        Some(AcceptancePoint {
            step: step as f64,
            length: sum.length.mean,
            low: if known { sum.length.low() } else { f64::NAN },
            high: if known { sum.length.high() } else { f64::NAN },
        })
    };
    let series = |index: usize| AcceptanceSeries {
        name: setup.drafters[index].name.clone(),
        length: sums[index].length.mean,
        slots: sums[index]
            .tally
            .slots
            .iter()
            .map(|slot| slot.cumulative())
            .collect(),
    };
    let is_other = |index: &usize| !matches!(setup.drafters[*index].kind, Kind::Trained { .. });
    let others = (0..sums.len()).filter(is_other);
    Acceptance {
        heading: Heading {
            title: "How much of its drafts the target accepts".to_owned(),
            shown: format!(
                "greedy, {} of at most {} tokens, {} drafts a round",
                count(measured.prompts.len(), "answer"),
                setup.limits.new_tokens_max,
                setup.slots
            ),
            scenario: setup.file.name.clone(),
            seed: Some(setup.file.seed),
        },
        steps: setup.drafters.iter().zip(sums).filter_map(point).collect(),
        series: std::iter::once(newest).chain(others).map(series).collect(),
    }
}

fn drafters(setup: &Setup, sums: &[Sum]) -> Table {
    let row = |(named, sum): (&super::setup::Named, &Sum)| {
        let tally = &sum.tally;
        let shown = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        vec![
            named.name.clone(),
            with_interval(&sum.length),
            format!("{:.2}", tally.acceptance_length()),
            format!("{:.2}", sum.tokens_per_forward),
            tally.rounds.to_string(),
            tally.offered.to_string(),
            percent(tally.accepted as f64 / tally.offered.max(1) as f64),
            shown(sum.identical.map(|same| same.to_string())),
            shown(sum.time_ratio.map(|ratio| format!("{ratio:.2}"))),
        ]
    };
    let mut rows: Vec<Vec<String>> = setup.drafters.iter().zip(sums).map(row).collect();
    let alone = ["target alone", "1", "1", "1", "–", "0", "–", "–", "1"];
    rows.push(alone.map(str::to_owned).to_vec());
    table(
        "Drafters",
        &[
            "drafter",
            "acceptance length",
            "pooled over rounds",
            "tokens a forward, prompt included",
            "rounds",
            "drafts",
            "accepted %",
            "identical answers",
            "time a token over target alone",
        ],
        rows,
    )
}

fn slots(setup: &Setup, sums: &[Sum]) -> Table {
    let mut header = vec!["slot".to_owned()];
    for named in &setup.drafters {
        header.push(format!("{} %", named.name));
        header.push("if reached %".to_owned());
    }
    let shown = |share: f64| match share.is_nan() {
        true => "–".to_owned(),
        false => percent(share),
    };
    let row = |slot: usize| {
        let cells = sums.iter().flat_map(|sum| {
            let count = &sum.tally.slots[slot];
            [shown(count.cumulative()), shown(count.conditional())]
        });
        std::iter::once((slot + 1).to_string())
            .chain(cells)
            .collect()
    };
    Table {
        caption:
            "Rounds accepted up to each slot, and the slot's own acceptance where it was reached"
                .to_owned(),
        header,
        rows: (0..setup.slots).map(row).collect(),
    }
}

fn lengths(
    caption: &str,
    setup: &Setup,
    sums: &[Sum],
    buckets: impl Fn(&Sum) -> &Vec<Bucket>,
) -> Table {
    let mut header = vec!["tokens".to_owned(), "prompts".to_owned()];
    header.extend(setup.drafters.iter().map(|named| named.name.clone()));
    // Drafters differ in their rounds, so a bucket of contexts may be empty for one of them.
    let mut names: Vec<(u32, String, usize)> = Vec::new();
    for bucket in sums.iter().flat_map(&buckets) {
        if !names.iter().any(|(above, _, _)| *above == bucket.above) {
            names.push((bucket.above, bucket.name(), bucket.prompts));
        }
    }
    names.sort();
    let row = |(above, name, prompts): (u32, String, usize)| {
        let cells = sums.iter().map(|sum| {
            let found = buckets(sum).iter().find(|bucket| bucket.above == above);
            found.map_or_else(|| "–".to_owned(), |bucket| with_interval(&bucket.length))
        });
        [name, prompts.to_string()]
            .into_iter()
            .chain(cells)
            .collect()
    };
    Table {
        caption: caption.to_owned(),
        header,
        rows: names.into_iter().map(row).collect(),
    }
}

fn notes(setup: &Setup, measured: &Measured) -> Vec<String> {
    let mut notes = vec![
        format!(
            "dflash {}, commit {}, seed {}; prompts: {}, {} too long and {} repeated left out.",
            env!("CARGO_PKG_VERSION"),
            option_env!("DFLASH_COMMIT").unwrap_or("unknown"),
            setup.file.seed,
            setup.source.name,
            setup.source.too_long,
            setup.source.repeated
        ),
        "A round is one forward of the target behind the prompt. Acceptance length counts the drafts it accepts and its own bonus token; its mean and interval are over prompts (Student's t).".to_owned(),
        "The untrained drafter has the newest checkpoint's shape and random weights. N-grams: the most recent occurrence of the longest suffix of up to 8 tokens in prompt and answer drafts what followed it.".to_owned(),
        "Where the target's recorded answers judge drafts, counts are those of real decoding: for greedy decoding the accepted drafts are those that equal the target's answer.".to_owned(),
        "Times depend on this machine and are shown as ratios alone.".to_owned(),
        "Beside this file: eval.json (all numbers), prompts.csv (each prompt and drafter), acceptance.svg and .png.".to_owned(),
    ];
    if measured.prompts.len() < setup.prompts.len() {
        notes.insert(
            0,
            format!(
                "Interrupted: {} of {} prompts were decoded.",
                measured.prompts.len(),
                setup.prompts.len()
            ),
        );
    }
    notes
}

fn table(caption: &str, header: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        caption: caption.to_owned(),
        header: header.iter().map(|&cell| cell.to_owned()).collect(),
        rows,
    }
}
