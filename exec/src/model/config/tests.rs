//! Which configs are read and which are refused.

use super::*;
use serde_json::json;

fn drafter() -> Value {
    json!({
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_act": "silu",
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
        "vocab_size": 256, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "num_target_layers": 5,
        "block_size": 4, "dflash_config": {"mask_token_id": 255, "target_layer_ids": [0, 2, 3]},
    })
}

fn refused(change: impl FnOnce(&mut Value)) -> String {
    let mut json = drafter();
    change(&mut json);
    DrafterConfig::from_json(json, "d/config.json")
        .unwrap_err()
        .to_string()
}

#[test]
fn a_good_config_is_read_in_full() {
    let config = DrafterConfig::from_json(drafter(), "config.json").unwrap();
    assert_eq!(config.block_size, 4);
    assert_eq!(config.target_layer_ids, [0, 2, 3]);
    assert_eq!(config.mask_token_id, 255);
    assert_eq!(config.geometry.rope_theta, 1e6);
}

#[test]
fn errors_name_file_key_and_value() {
    assert_eq!(
        refused(|j| j["num_key_value_heads"] = 4.into()),
        "d/config.json: num_key_value_heads = 4: must divide num_attention_heads = 6"
    );
    assert_eq!(
        refused(|j| j["dflash_config"]["target_layer_ids"][2] = 5.into()),
        "d/config.json: dflash_config.target_layer_ids = 5: must be below num_target_layers = 5"
    );
    assert_eq!(
        refused(|j| j["dflash_config"]["mask_token_id"] = 256.into()),
        "d/config.json: dflash_config.mask_token_id = 256: must be below vocab_size = 256"
    );
    let missing = refused(|j| {
        j.as_object_mut().unwrap().remove("hidden_size");
    });
    assert!(
        missing.starts_with("d/config.json: hidden_size = (missing)"),
        "{missing}"
    );
    let sliding = refused(|j| j["layer_types"] = json!(["sliding_attention", "full_attention"]));
    assert!(sliding.contains("sliding_window = (missing)"), "{sliding}");
    let chunked = refused(|j| j["layer_types"] = json!(["chunked_attention", "full_attention"]));
    assert!(chunked.contains("expected 2 entries"), "{chunked}");
    let untold = refused(|j| j["use_sliding_window"] = true.into());
    assert!(untold.contains("use_sliding_window = true"), "{untold}");
    assert!(refused(|j| j["hidden_act"] = "gelu".into()).contains("hidden_act = \"gelu\""));
    assert!(refused(|j| j["rope_scaling"] = json!({"factor": 2})).contains("rope_scaling"));
    assert!(refused(|j| j["architectures"][0] = "X".into()).contains("DFlashDraftModel"));
    assert!(refused(|j| j["block_size"] = 1.into()).contains("block_size = 1"));
    assert!(refused(|j| j["hidden_size"] = json!(-3)).contains("hidden_size = -3"));
}

#[test]
fn other_layers_may_be_read_if_the_target_has_them() {
    let config = DrafterConfig::from_json(drafter(), "config.json").unwrap();
    let ids = |ids: &[usize]| config.clone().with_target_layer_ids(ids.to_vec());
    assert_eq!(ids(&[4, 1]).unwrap().target_layer_ids, [4, 1]);
    let messages = [&[5][..], &[], &[1, 1]].map(|list| ids(list).unwrap_err().to_string());
    assert!(
        messages[0].contains("= 5: must be below"),
        "{}",
        messages[0]
    );
    assert!(messages[1].contains("at least one"), "{}", messages[1]);
    assert!(messages[2].contains("twice"), "{}", messages[2]);
}

#[test]
fn rope_theta_may_stand_in_rope_parameters() {
    let mut json = drafter();
    json.as_object_mut().unwrap().remove("rope_theta");
    json["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 5e5});
    let config = DrafterConfig::from_json(json, "config.json").unwrap();
    assert_eq!(config.geometry.rope_theta, 5e5);
}
