//! The tables of the report.

use super::Detailed;
use super::group::{Group, point_name};
use super::quantity::{gib, half_width, percent, whole};
use super::reasons::Reason;
use crate::figure::Table;
use crate::results::bound_share;
use crate::verbs::sim::Searched;
use shared::core::Activity;
use sim::{End, Part};

fn table(caption: &str, header: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        caption: caption.to_owned(),
        header: header.iter().map(|&cell| cell.to_owned()).collect(),
        rows,
    }
}

/// One row a policy: throughput, memory and mixing of the run that stands for it.
pub(crate) fn policies(searched: &Searched, detailed: &[Detailed]) -> Table {
    let row = |detail: &Detailed| {
        let row = &searched.rows[detail.row];
        let policy = &searched.cases[row.index].file.policy;
        let metrics = &detail.outcome.metrics;
        let (peaks, mix) = (&metrics.peaks, &metrics.mix);
        let [tok_s, half, share] = speed(searched, detail);
        vec![
            detail.name.clone(),
            format!("{} + {}", policy.targets, policy.drafters),
            tok_s,
            half,
            share,
            peaks.slots.to_string(),
            gib(peaks.slot_bytes.0),
            gib(peaks.alive_bytes.0),
            gib(detail.outcome.memory.host.total().0),
            mix.distinct_min.to_string(),
            format!("{:.3}", mix.tv_mean),
            format!("{:.3}", mix.tv_max),
            mix.exceptions.to_string(),
            outcome(searched, detail),
        ]
    };
    table(
        "Policies",
        &[
            "policy",
            "split",
            "tok/s",
            "± tok/s",
            "of bound %",
            "HS slots",
            "in slots GiB",
            "HS GiB",
            "host GiB",
            "fewest buckets",
            "mean TV",
            "worst TV",
            "exceptions",
            "outcome",
        ],
        detailed.iter().map(row).collect(),
    )
}

/// Throughput (tok/s), half of its interval (tok/s) and its share of the bound (%); dashes for a run that hung.
pub(crate) fn speed(searched: &Searched, detail: &Detailed) -> [String; 3] {
    if detail.outcome.end != End::Done {
        return ["–"; 3].map(str::to_owned);
    }
    let throughput = &searched.rows[detail.row].throughput;
    [
        whole(throughput.mean),
        half_width(throughput),
        percent(bound_share(&detail.outcome)),
    ]
}

/// How a policy fared: `best`, `done`, `excluded`, `deadlock`, `infeasible`.
pub(crate) fn outcome(searched: &Searched, detail: &Detailed) -> String {
    let choice = &searched.choice;
    if choice.named() == Some(detail.row) {
        "best".to_owned()
    } else if choice.excluded.iter().any(|&(row, _)| row == detail.row) {
        "excluded".to_owned()
    } else if choice.ties.contains(&detail.row) {
        "tie".to_owned()
    } else {
        searched.rows[detail.row].verdict().name().to_owned()
    }
}

/// Where the time of targets and drafters goes.
pub(crate) fn time(detailed: &[Detailed]) -> Table {
    let row = |detail: &Detailed| {
        let metrics = &detail.outcome.metrics;
        let targets = [Activity::Busy, Activity::Copying, Activity::Blocked];
        let drafters = [
            Activity::Busy,
            Activity::Copying,
            Activity::Starved,
            Activity::Barrier,
        ];
        let mut cells = vec![detail.name.clone()];
        cells.extend(targets.map(|activity| percent(metrics.target_share(activity))));
        cells.extend(drafters.map(|activity| percent(metrics.drafter_share(activity))));
        cells.push(percent(metrics.padding()));
        cells
    };
    table(
        "Share of the time, mean over the workers [%], and padding [% of the tokens computed]",
        &[
            "policy",
            "targets busy",
            "copying",
            "blocked",
            "drafters busy",
            "copying",
            "starved",
            "barrier",
            "padding",
        ],
        detailed.iter().map(row).collect(),
    )
}

/// Memory by place at its peak; of GPUs alike, the one that holds most.
pub(crate) fn memory(searched: &Searched, detailed: &[Detailed]) -> Table {
    let mut rows = Vec::new();
    for detail in detailed {
        let case = &searched.cases[searched.rows[detail.row].index];
        let memory = &detail.outcome.memory;
        let hardware = &case.file.hardware;
        let gpu = hardware.gpu_memory.bytes().0;
        let host = hardware.host_memory.bytes().0;
        let fullest = |parts: &[Part]| parts.iter().copied().max_by_key(|part| part.total());
        let places = [
            ("target GPU", fullest(&memory.targets), gpu),
            ("drafter GPU", fullest(&memory.drafters), gpu),
            ("host", Some(memory.host), host),
        ];
        for (place, part, there) in places {
            rows.extend(part.map(|part| memory_row(&detail.name, place, &part, there)));
        }
    }
    table(
        "Memory by place at its peak [GiB]; of GPUs alike, the fullest",
        &[
            "policy",
            "place",
            "weights, optimizer",
            "activations",
            "processes",
            "hidden states",
            "in all",
            "there",
            "free",
        ],
        rows,
    )
}

/// Points that are listed, at most.
const POINTS_MAX: usize = 500;

/// Every point, the fastest first, those that did not run to their end last.
pub(crate) fn points(searched: &Searched, groups: &[Group]) -> Table {
    let speed = |row: usize| searched.rows[row].throughput.mean;
    let mut order: Vec<usize> = (0..searched.rows.len()).collect();
    order.sort_by(|&x, &y| {
        let verdict = |row: usize| searched.rows[row].verdict();
        verdict(x)
            .cmp(&verdict(y))
            .then(speed(y).total_cmp(&speed(x)))
    });
    let caption = if order.len() > POINTS_MAX {
        format!(
            "The first {POINTS_MAX} of {} points, by throughput; results.csv has all",
            whole(order.len() as f64)
        )
    } else {
        "All points, by throughput".to_owned()
    };
    order.truncate(POINTS_MAX);
    let row = |&row: &usize| point_row(searched, groups, row);
    table(
        &caption,
        &[
            "policy",
            "point",
            "split",
            "tok/s",
            "± tok/s",
            "of bound %",
            "HS slots",
            "HS GiB",
            "host GiB",
            "fewest buckets",
            "worst TV",
            "outcome",
        ],
        order.iter().map(row).collect(),
    )
}

fn point_row(searched: &Searched, groups: &[Group], row: usize) -> Vec<String> {
    let found = &searched.rows[row];
    let case = &searched.cases[found.index];
    let policy = &case.file.policy;
    let group = groups.iter().find(|group| group.rows.contains(&row));
    let mut cells = vec![
        group.map_or_else(|| policy.name.clone(), |group| group.name.clone()),
        point_name(case),
        format!("{} + {}", policy.targets, policy.drafters),
    ];
    match &found.outcome {
        Ok(outcome) if outcome.end == End::Done => {
            let (peaks, mix) = (&outcome.metrics.peaks, &outcome.metrics.mix);
            cells.extend([
                whole(found.throughput.mean),
                half_width(&found.throughput),
                percent(bound_share(outcome)),
                peaks.slots.to_string(),
                gib(peaks.alive_bytes.0),
                gib(outcome.memory.host.total().0),
                mix.distinct_min.to_string(),
                format!("{:.3}", mix.tv_max),
            ]);
        }
        _ => cells.extend(["–"; 8].map(str::to_owned)),
    }
    let excluded = searched.choice.excluded.iter().any(|&(i, _)| i == row);
    cells.push(if searched.choice.best == Some(row) {
        "best".to_owned()
    } else if excluded {
        "excluded".to_owned()
    } else {
        found.verdict().name().to_owned()
    });
    cells
}

fn memory_row(policy: &str, place: &str, part: &Part, there: u64) -> Vec<String> {
    let total = part.total().0;
    let free = if total > there {
        format!("−{}", gib(total - there))
    } else {
        gib(there - total)
    };
    vec![
        policy.to_owned(),
        place.to_owned(),
        gib(part.weights.0),
        gib(part.activations.0),
        gib(part.overhead.0),
        gib(part.hidden.0),
        gib(total),
        gib(there),
        free,
    ]
}

/// Points that share a reason, below `caption`; `None` if there are none.
pub(crate) fn reasons(caption: &str, reasons: &[Reason]) -> Option<Table> {
    let has_speed = reasons.iter().any(|reason| reason.speed > 0.0);
    let row = |reason: &Reason| {
        let mut cells = vec![reason.name.clone(), reason.points.to_string()];
        if has_speed {
            cells.push(whole(reason.speed));
        }
        cells.push(reason.text.clone());
        cells
    };
    let header: &[&str] = if has_speed {
        &["policy", "points", "fastest tok/s", "reason (of the first)"]
    } else {
        &["policy", "points", "reason (of the first)"]
    };
    (!reasons.is_empty()).then(|| table(caption, header, reasons.iter().map(row).collect()))
}
