//! The exact values: a table of what queueing theory says, with the source of each formula.

use std::sync::OnceLock;

/// One exact value.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub struct Exact {
    /// The case's name.
    pub case: String,
    /// The line it belongs to, in words.
    pub parameters: String,
    /// What is measured.
    pub metric: String,
    /// Its exact value; times in milliseconds.
    pub value: f64,
    /// Who derived the formula.
    #[serde(rename = "source of formula")]
    pub source: String,
}

const FILE: &str = include_str!("../../data/queueing-reference.csv");

/// All rows, in the order of the file.
pub fn rows() -> &'static [Exact] {
    static ROWS: OnceLock<Vec<Exact>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let mut reader = csv::Reader::from_reader(FILE.as_bytes());
        let rows = reader.deserialize().collect::<Result<_, _>>();
        rows.expect("the table that is compiled in is well-formed")
    })
}

/// The row of a metric. `parameters` is the beginning of that column and names one line of the case.
///
/// # Panics
/// When there is no such row or more than one: the suite and its table are compiled in together.
pub(super) fn exact(case: &str, parameters: &str, metric: &str) -> &'static Exact {
    let mut hits = rows().iter().filter(|row| {
        row.case == case && row.parameters.starts_with(parameters) && row.metric == metric
    });
    let hit = hits.next();
    let hit = hit.unwrap_or_else(|| panic!("{case} ({parameters}) {metric} is a row"));
    assert!(
        hits.next().is_none(),
        "{case} ({parameters}) {metric} is one row"
    );
    hit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_whole() {
        assert_eq!(rows().len(), 131);
        let mut names: Vec<_> = rows().iter().map(|row| row.case.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 23);
        let conserved = exact("MG1_conservation", "3 buckets", "sum rho_i*Wq_i");
        assert_eq!(conserved.value, 5.8);
        assert!(
            conserved
                .parameters
                .contains("(FIFO, round-robin, priority)")
        );
    }
}
