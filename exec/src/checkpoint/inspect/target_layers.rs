//! Which target layers the drafter reads, and by which convention they are numbered.

use serde_json::{Map, Value};

use super::config::{TargetFacts, shown, whole};
use super::{BOTH, Notes, SGLANG, VLLM};
use crate::model::default_target_layer_ids;

const KEY: &str = "dflash_config.target_layer_ids";

/// Checks `target_layer_ids` and `num_target_layers`; how many layers are read.
pub(super) fn check(
    map: &Map<String, Value>,
    dflash: Option<&Map<String, Value>>,
    draft_layers: Option<usize>,
    target: Option<&TargetFacts>,
    notes: &mut Notes,
) -> Option<usize> {
    let layers = target_depth(map, dflash, target, notes);
    let named = dflash.and_then(|inner| inner.get("target_layer_ids"));
    let Some(named) = named.or_else(|| map.get("target_layer_ids")) else {
        let way_out = "list the layers whose outputs the drafter was trained on";
        notes.refuse(
            VLLM,
            KEY,
            "is missing: vLLM reads its own default layers",
            way_out,
        );
        let finding = "is missing: SGLang spreads as many layers as the drafter has";
        notes.warn(SGLANG, KEY, finding, way_out);
        return draft_layers;
    };
    let ids: Option<Vec<usize>> = named.as_array().and_then(|list| {
        list.iter()
            .map(|id| usize::try_from(id.as_u64()?).ok())
            .collect()
    });
    let Some(ids) = ids.filter(|ids| !ids.is_empty()) else {
        let finding = format!("{named}: expected a list of layer numbers from 0");
        let way_out = "list the layers whose outputs the drafter was trained on";
        notes.refuse(BOTH, KEY, finding, way_out);
        return None;
    };
    order(&ids, notes);
    if let Some(layers) = layers {
        range(&ids, layers, notes);
    }
    auxiliary(map, &ids, notes);
    Some(ids.len())
}

fn target_depth(
    map: &Map<String, Value>,
    dflash: Option<&Map<String, Value>>,
    target: Option<&TargetFacts>,
    notes: &mut Notes,
) -> Option<usize> {
    const KEY: &str = "num_target_layers";
    let named = dflash.and_then(|inner| inner.get(KEY));
    let said = match named.or_else(|| map.get(KEY)) {
        None | Some(Value::Null) => {
            let finding = "left out: SGLang takes the drafter's own layers and refuses higher ids";
            let way_out = "write how many layers the target has";
            notes.warn(SGLANG, KEY, finding, way_out);
            None
        }
        Some(value) => {
            let said = whole(value);
            if said.is_none() {
                let finding = format!("{}: expected a whole number", shown(Some(value)));
                let way_out = "write how many layers the target has";
                notes.refuse(SGLANG, KEY, finding, way_out);
            }
            said
        }
    };
    let real = target.map(|target| target.num_hidden_layers);
    match (said, real) {
        (Some(said), Some(real)) if said != real => {
            let finding = format!("{said}, the target has {real}");
            let way_out = "serve it with the target that it was trained for";
            notes.refuse(BOTH, KEY, finding, way_out);
        }
        (Some(said), _) => notes.pass(KEY, said.to_string()),
        (None, _) => {}
    }
    real.or(said)
}

fn order(ids: &[usize], notes: &mut Notes) {
    let twice = (1..ids.len()).find(|&n| ids[..n].contains(&ids[n]));
    if let Some(n) = twice {
        let finding = format!("{ids:?} names layer {} twice", ids[n]);
        let way_out = "list each layer once, in the order of training";
        notes.refuse(BOTH, KEY, finding, way_out);
    } else if !ids.is_sorted() {
        let finding = format!("{ids:?} is not increasing: engines concatenate in this order");
        let way_out = "keep it only if the drafter was trained in this order";
        notes.warn(BOTH, KEY, finding, way_out);
    } else {
        notes.pass(KEY, format!("{ids:?}"));
    }
}

fn range(ids: &[usize], layers: usize, notes: &mut Notes) {
    if let Some(high) = ids.iter().find(|&&id| id >= layers) {
        let finding = format!("{high} is not below num_target_layers = {layers}");
        let way_out = "write 0-based ids of the layers whose outputs are read";
        notes.refuse(BOTH, KEY, finding, way_out);
        return;
    }
    let usual = default_target_layer_ids(layers, ids.len());
    let shifted: Vec<usize> = usual.iter().map(|id| id + 1).collect();
    if ids == shifted {
        let finding = format!(
            "{ids:?} are the usual layers {usual:?} plus 1: they look like indices of hidden_states, which begin with the embedding"
        );
        notes.warn(
            BOTH,
            KEY,
            finding,
            "subtract 1 if they were written by that convention",
        );
    }
}

/// vLLM prefers the other list, whose numbers are one higher.
fn auxiliary(map: &Map<String, Value>, ids: &[usize], notes: &mut Notes) {
    const KEY: &str = "eagle_aux_hidden_state_layer_ids";
    let Some(list) = map.get(KEY).and_then(Value::as_array) else {
        return;
    };
    let expected: Vec<u64> = ids.iter().map(|&id| id as u64 + 1).collect();
    let found: Vec<u64> = list.iter().filter_map(Value::as_u64).collect();
    if found == expected {
        notes.pass(KEY, format!("{found:?}, each one above target_layer_ids"));
    } else {
        let finding = format!(
            "{found:?}, but target_layer_ids {ids:?} mean {expected:?}: vLLM would read other layers"
        );
        notes.refuse(VLLM, KEY, finding, "leave it out");
    }
}
