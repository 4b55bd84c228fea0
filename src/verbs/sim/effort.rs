//! What a search rests on, in lines: how sure its order is, and what it took.

use super::Searched;
use crate::report::quantity::{count, percent, whole};
use crate::report::{point_name, terminal_paragraph};
use sim::{Basis, Comparison, Ranking, Refusal, Standing};

/// Rounds of short runs that are listed one by one.
const ROUNDS_SHOWN: usize = 4;

/// The lines, each fact wrapped to the terminal.
pub(super) fn lines(searched: &Searched) -> Vec<String> {
    let ranking = searched.choice.ranking.as_ref();
    let next = ranking.and_then(|ranking| closest(searched, ranking));
    let open = ranking.and_then(|ranking| open(searched, ranking));
    let facts = [
        ("next: ", next),
        ("open: ", open),
        ("search: ", Some(took(searched))),
    ];
    let wrapped = facts
        .into_iter()
        .filter_map(|(start, text)| Some(terminal_paragraph(start, &text?)));
    wrapped.flatten().collect()
}

/// Why the ranking is refused, with the policies it is about.
pub(super) fn refused(searched: &Searched) -> Option<String> {
    let ranking = searched.choice.ranking.as_ref()?;
    let text = ranking.refusal.as_ref()?;
    Some(match *text {
        Refusal::Replications { row, .. } => format!(
            "{} against {}: {text}",
            named(searched, ranking.fastest),
            named(searched, row)
        ),
        Refusal::WarmUp { row, .. } => format!("{}: {text}", named(searched, row)),
    })
}

/// The rival that is surely slower and nearest.
fn closest(searched: &Searched, ranking: &Ranking) -> Option<String> {
    let slower = ranking.comparisons.iter();
    let slower = slower.filter(|c| c.standing == Standing::Slower);
    let nearest = slower.min_by(|a, b| a.difference.total_cmp(&b.difference))?;
    Some(format!(
        "{} is slower by {}",
        named(searched, nearest.row),
        difference(nearest)
    ))
}

fn difference(comparison: &Comparison) -> String {
    let by = whole(comparison.difference);
    match (comparison.basis, comparison.half_width) {
        (Basis::Paired(pairs), Some(half)) => {
            let ratio = comparison.variance_ratio.map_or_else(String::new, |ratio| {
                format!("; common random numbers divide the variance by {ratio:.1}")
            });
            format!("{by} ± {} tok/s ({pairs} pairs{ratio})", whole(half.ceil()))
        }
        (_, Some(half)) => format!(
            "{by} ± {} tok/s (by the batches of one run each)",
            whole(half.ceil())
        ),
        _ => format!("{by} tok/s (one short run each: not tested)"),
    }
}

/// Those that can be told neither from a tie nor from slower.
fn open(searched: &Searched, ranking: &Ranking) -> Option<String> {
    let open = ranking.comparisons.iter();
    let open: Vec<&Comparison> = open.filter(|c| c.standing == Standing::Open).collect();
    let first = open.first()?;
    Some(format!(
        "{} may tie with the fastest or be slower, such as {} ({} behind); more replications would tell",
        count(open.len(), "point"),
        named(searched, first.row),
        difference(first)
    ))
}

fn took(searched: &Searched) -> String {
    let effort = &searched.effort;
    let mut parts = vec![count(effort.points, "point")];
    if effort.screened > 0 {
        parts.push(format!("{} ruled out by bounds and rules", effort.screened));
    }
    if effort.rounds.len() > ROUNDS_SHOWN {
        let points: usize = effort.rounds.iter().map(|round| round.points).sum();
        let rounds = count(effort.rounds.len(), "round");
        parts.push(format!("{} in {rounds}", count(points, "short run")));
    } else {
        let round = |round: &sim::Round| format!("{} by {} steps", round.points, round.steps);
        parts.extend(effort.rounds.iter().map(round));
    }
    if effort.share < 1.0 && effort.contenders > 0 {
        parts.push(format!(
            "{} ranked by up to {} of {} % of the work",
            effort.contenders,
            count(effort.replications, "run"),
            percent(effort.share)
        ));
    }
    let search = &searched.cases[0].search;
    if effort.is_selected {
        parts.push(format!(
            "the best or within {} % of it with probability {}",
            percent(search.tolerance),
            search.confidence
        ));
    }
    let mut spent = format!(
        "{} microbatches simulated",
        whole(effort.microbatches as f64)
    );
    if let Some((_, confirmation)) = &searched.confirmation {
        let fresh = whole(confirmation.microbatches as f64);
        spent.push_str(&format!(" and {fresh} on fresh seeds"));
    }
    parts.push(spent);
    parts.join(", ")
}

/// A point by its policy and the values of its swept fields.
fn named(searched: &Searched, row: usize) -> String {
    let case = &searched.cases[searched.rows[row].index];
    let point = point_name(case);
    let name = &case.file.policy.name;
    if point.is_empty() {
        name.clone()
    } else {
        format!("{name} ({point})")
    }
}
