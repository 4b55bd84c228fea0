//! The explanation as an HTML page.

use super::Explanation;
use super::show;
use crate::failure::Failure;
use crate::figure::{Heading, Part, Report, report, svg};
use crate::report::run_figures::{Shown, utilisation};
use crate::verbs::best;

/// The page: answer, where the time goes as a table and a figure, keys, both configurations.
pub(super) fn page(explanation: &Explanation) -> Result<String, Failure> {
    let file = &explanation.a.case.file;
    let sides = [&explanation.a, &explanation.b];
    let names = sides.map(|side| format!("{}: {}", side.letter, side.name()));
    let shown: Vec<Shown<'_>> = sides
        .iter()
        .zip(&names)
        .enumerate()
        .filter_map(|(color, (side, name))| {
            Some(Shown {
                name,
                metrics: &side.outcomes.first()?.metrics,
                buckets: &[],
                color,
                slots_max: None,
            })
        })
        .collect();
    let figure = utilisation(&shown, |title, shown| Heading {
        title: title.to_owned(),
        shown: shown.to_owned(),
        scenario: file.name.clone(),
        seed: Some(file.seed),
    });
    let mut parts = vec![
        Part::Table(show::time(explanation)),
        Part::Table(show::keys(explanation)),
        Part::Figure(svg(&figure)?),
    ];
    for side in sides {
        parts.push(Part::Text {
            caption: format!("{}: {}", side.letter, side.path.display()),
            text: best::text(&side.case.file)?,
        });
    }
    let mut sentences = show::sentences(explanation);
    // Who is faster goes first.
    sentences.swap(0, 1);
    Ok(report(&Report {
        title: format!("dflash explain: {} and {}", explanation.a.name(), explanation.b.name()),
        question: "Why does one policy beat the other on the same work?".to_owned(),
        summary: sentences,
        parts,
        notes: vec![
            "The activities of a stage add up to the whole time in both stages, so that differences of parts add up to the difference of the policies.".to_owned(),
            "A stage that waits least limits; what grows most there is called the first cause. Keys changed alone show what that is worth; \"not alone\" marks a value that the rest of the policy does not allow.".to_owned(),
            "The figure shows the first replication.".to_owned(),
        ],
    }))
}
