//! Prompts from the samples that training left out.

use crate::failure::Failure;
use crate::scenario::Sections;
use crate::verbs::data;
use exec::config::DataSection;
use exec::decode::{Prompt, Prompts};
use std::collections::HashSet;

/// At most `prompts_max` prompts of at most `tokens_max` tokens, from samples of `exec.data` that neither `samples_max` nor
/// `workload.samples` let into the plan. A sample with the tokens of one that was trained on is not held out.
pub(super) fn prompts(
    file: &Sections,
    prompts_max: usize,
    tokens_max: usize,
) -> Result<Prompts, Failure> {
    let section = &file.exec.data;
    let trained = data::load(section)?;
    let taken = match file.workload.samples {
        0 => trained.len(),
        samples => trained.len().min(samples as usize),
    };
    let known: HashSet<&[u32]> = (0..taken).map(|i| trained.ids(i)).collect();
    let all = data::load(&DataSection {
        samples_max: 0,
        ..section.clone()
    })?;
    let mut found = Prompts::default();
    let mut seen = HashSet::new();
    for i in 0..all.len() {
        if found.prompts.len() == prompts_max {
            break;
        }
        let ids = all.ids(i);
        if known.contains(ids) {
            continue;
        }
        let Some(prompt) = Prompt::of_sample(all.place(i).to_string(), ids, all.mask(i)) else {
            continue;
        };
        if prompt.ids.len() > tokens_max {
            found.too_long += 1;
        } else if !seen.insert(prompt.ids.clone()) {
            found.repeated += 1;
        } else {
            found.prompts.push(prompt);
        }
    }
    if found.prompts.is_empty() {
        return Err(Failure::usage(format!(
            "--held-out: of {} samples in exec.data all were trained on or are longer than --prompt-tokens-max {tokens_max} ({} are); set exec.data.samples_max as in training, or give --prompts",
            all.len(),
            found.too_long
        )));
    }
    Ok(found)
}
