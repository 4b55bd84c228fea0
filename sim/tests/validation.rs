//! The validation suite, shortened: queueing theory against the engine and core that serve users.

use shared::draw::Seed;
use sim::validate::{Effort, OUT_OF_SCOPE, Report, rows, suite};
use std::collections::BTreeSet;

/// An unoptimised build runs a part of the items, and its intervals may be wider in proportion.
const EFFORT: Effort = Effort {
    shorter: if cfg!(debug_assertions) { 64 } else { 8 },
};

fn reports() -> Vec<Report> {
    suite()
        .iter()
        .map(|case| case.validate(Seed(7), EFFORT, &|_| {}))
        .collect()
}

/// Every value holds, every law holds on every run, and no row of the table is left out without a reason.
#[test]
fn the_simulator_agrees_with_queueing_theory() {
    let reports = reports();
    let failed: Vec<_> = reports.iter().filter(|report| !report.holds()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let found: BTreeSet<_> = reports
        .iter()
        .flat_map(|report| &report.findings)
        .map(|f| (&f.exact.case, &f.exact.parameters, &f.exact.metric))
        .collect();
    for row in rows() {
        let is_out = OUT_OF_SCOPE.iter().any(|(case, _)| *case == row.case);
        let is_found = found.contains(&(&row.case, &row.parameters, &row.metric));
        assert!(is_out != is_found, "{row:?}");
    }
    assert!(OUT_OF_SCOPE.len() <= 3);
}
