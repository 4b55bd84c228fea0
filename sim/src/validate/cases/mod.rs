//! The lines that queueing theory has solved, as this model says them.

mod bounded;
mod closed;
mod open;
mod steps;
mod sure;

use super::case::{Case, Kind, Measure};
use super::line::Line;

/// All cases, in the order of the table.
pub fn suite() -> Vec<Case> {
    let mut all = open::cases();
    all.extend(bounded::cases());
    all.extend(closed::cases());
    all.extend(steps::cases());
    all.extend(sure::cases());
    all
}

/// Cases of the table that this model has no words for, and why.
pub const OUT_OF_SCOPE: [(&str, &str); 1] = [(
    "jackson_open",
    "a quarter of what the second station is through with returns to the first, with new service times; here hidden states \
     go one way, and what is done again takes as long as before",
)];

fn sampled(
    name: &'static str,
    parameters: impl Into<String>,
    how: &'static str,
    line: Line,
    items: u32,
    measures: Vec<Measure>,
) -> Case {
    Case {
        name,
        parameters: parameters.into(),
        how,
        kind: Kind::Sampled {
            line: Box::new(line),
            items,
            measures,
        },
    }
}
