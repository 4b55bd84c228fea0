//! Sessions against whole forwards.

use candle_core::{Device, Tensor};
use serde_json::Value;

use super::*;
use crate::model::fixture::{Row, microbatch, row, target_json};
use crate::model::{Target, TargetConfig};

fn llama() -> Value {
    let mut json = target_json();
    json["architectures"][0] = "LlamaForCausalLM".into();
    json
}

fn hybrid() -> Value {
    serde_json::json!({
        "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 50, "rope_theta": 1e4, "tie_word_embeddings": true,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "full_attention_interval": 3,
    })
}

/// A target of each family; wide weights make layers matter.
fn targets() -> Vec<Target> {
    [target_json(), llama(), hybrid()]
        .into_iter()
        .map(|mut json| {
            json["initializer_range"] = 0.2.into();
            let config = TargetConfig::from_json(json, "fixture").unwrap();
            let target = Target::random(config, 7, &[4, 1], &Device::Cpu).unwrap();
            target.with_last_hidden(true)
        })
        .collect()
}

fn tokens(id: u64, count: usize) -> Vec<u32> {
    row(id, count, 0).input_ids
}

/// Features and last hidden state of a whole row, by [`Target::forward`].
fn whole(target: &Target, ids: &[u32]) -> (Tensor, Tensor) {
    let row = Row {
        input_ids: ids.to_vec(),
        loss_mask: vec![true; ids.len()],
        anchors: vec![],
    };
    let states = target.forward(&microbatch(&[&row], ids.len()).0).unwrap();
    let last = states.last_hidden.unwrap();
    (states.features.get(0).unwrap(), last.get(0).unwrap())
}

#[track_caller]
fn close(a: &Tensor, b: &Tensor) {
    assert_eq!(a.dims(), b.dims());
    let norm = |x: Tensor| {
        let square = x.sqr().unwrap().sum_all().unwrap();
        f64::from(square.to_scalar::<f32>().unwrap()).sqrt()
    };
    let apart = norm((a - b).unwrap()) / norm(b.clone());
    assert!(apart < 1e-5, "{apart:.2e} apart");
}

/// Rows `first..` of what a whole forward gives.
#[track_caller]
fn matches(target: &Target, got: &Extension, ids: &[u32], first: usize) {
    let (features, last) = whole(target, ids);
    let tail = |x: &Tensor| x.narrow(0, first, ids.len() - first).unwrap();
    close(&got.features, &tail(&features));
    close(&got.last_hidden, &tail(&last));
}

#[test]
fn any_cut_into_pieces_gives_the_whole() {
    let ids = tokens(1, 150);
    for target in targets() {
        for piece in [1, 7, 64, 150] {
            let mut session = target.session().unwrap();
            for (n, part) in ids.chunks(piece).enumerate() {
                let got = session.extend(part).unwrap();
                let end = n * piece + part.len();
                assert_eq!(session.len(), end);
                // A whole forward a piece is dear; the last piece depends on all before it.
                if end == ids.len() || n < 2 {
                    matches(&target, &got, &ids[..end], n * piece);
                }
            }
        }
    }
}

#[test]
fn rejected_tokens_leave_nothing_behind() {
    let (kept, rejected, next) = (tokens(1, 30), tokens(2, 9), tokens(3, 12));
    let ids = [&kept[..25], &next].concat();
    for target in targets() {
        let mut session = target.session().unwrap();
        session.extend(&kept[..20]).unwrap();
        session.extend(&kept[20..]).unwrap();
        session.extend(&rejected).unwrap();
        // Into an earlier piece, and back by nothing.
        session.truncate(25).unwrap();
        session.truncate(99).unwrap();
        assert_eq!(session.len(), 25);
        let got = session.extend(&next).unwrap();
        matches(&target, &got, &ids, 25);
        session.truncate(0).unwrap();
        assert!(session.is_empty());
        let got = session.extend(&next).unwrap();
        matches(&target, &got, &next, 0);
    }
}

#[test]
fn rows_of_a_batch_equal_rows_alone() {
    let mut rows: Vec<Vec<u32>> = (0..4)
        .map(|n| tokens(n, [9, 140, 1, 33][n as usize]))
        .collect();
    for target in targets() {
        let mut batch = target.batch_session(4).unwrap();
        let slices: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let first = batch.extend(&slices).unwrap();
        for (n, row) in rows.iter().enumerate() {
            assert_eq!(batch.len(n), row.len());
            matches(&target, &first.row(n).unwrap(), row, 0);
        }
        let saved = rows.clone();
        // A token a row, then none for one of them, then more than one for some.
        for step in [vec![1; 4], vec![1, 0, 1, 1], vec![3, 1, 0, 2]] {
            let news: Vec<Vec<u32>> = (0..4u64)
                .map(|n| tokens(50 + n, step[n as usize]))
                .collect();
            let slices: Vec<&[u32]> = news.iter().map(Vec::as_slice).collect();
            let got = batch.extend(&slices).unwrap();
            let last = got.last().unwrap();
            for (n, new) in news.iter().enumerate().filter(|(_, new)| !new.is_empty()) {
                let past = rows[n].len();
                rows[n].extend(new);
                matches(&target, &got.row(n).unwrap(), &rows[n], past);
                let of_row = got.row(n).unwrap().last_hidden;
                let want = of_row.get(new.len() - 1).unwrap().to_vec1::<f32>().unwrap();
                assert_eq!(last.get(n).unwrap().to_vec1::<f32>().unwrap(), want);
            }
        }
        rows = saved;
    }
}

#[test]
fn rows_can_be_dropped_turned_back_and_doubled() {
    let rows: Vec<Vec<u32>> = (0..3).map(|n| tokens(n, 10 + n as usize)).collect();
    let next = tokens(9, 1);
    for target in targets() {
        let mut batch = target.batch_session(3).unwrap();
        let slices: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        batch.extend(&slices).unwrap();
        batch.truncate(2, 4).unwrap();
        batch.keep(&[2, 0, 2]).unwrap();
        assert_eq!((0..3).map(|n| batch.len(n)).collect::<Vec<_>>(), [4, 10, 4]);
        let got = batch.extend(&[&next, &next, &tokens(5, 1)]).unwrap();
        matches(
            &target,
            &got.row(0).unwrap(),
            &[&rows[2][..4], &next].concat(),
            4,
        );
        matches(
            &target,
            &got.row(1).unwrap(),
            &[&rows[0][..], &next].concat(),
            10,
        );
        matches(
            &target,
            &got.row(2).unwrap(),
            &[&rows[2][..4], &tokens(5, 1)].concat(),
            4,
        );
    }
}

#[test]
fn speculation_round_after_round_stays_exact() {
    for target in targets() {
        let mut batch = target.batch_session(2).unwrap();
        let mut rows = vec![tokens(1, 12), tokens(2, 5)];
        batch.extend(&[&rows[0], &rows[1]]).unwrap();
        for round in 0..6u64 {
            let drafts = [tokens(10 + round, 6), tokens(20 + round, 4)];
            let got = batch.extend(&[&drafts[0], &drafts[1]]).unwrap();
            for (n, draft) in drafts.iter().enumerate() {
                let past = rows[n].len();
                rows[n].extend(draft);
                matches(&target, &got.row(n).unwrap(), &rows[n], past);
                // From all of the draft to none of it, and once behind its start.
                let kept = (past + round as usize * (n + 1)).min(rows[n].len());
                let kept = if round == 4 { past - 3 } else { kept };
                rows[n].truncate(kept);
                batch.truncate(n, kept + 1).unwrap();
                batch.truncate(n, kept).unwrap();
                assert_eq!(batch.len(n), kept);
            }
        }
        // Rows that have tokens to read again can be taken apart.
        batch.truncate(0, 3).unwrap();
        batch.keep(&[1, 0]).unwrap();
        let got = batch.extend(&[&[7], &[8, 9]]).unwrap();
        matches(
            &target,
            &got.row(0).unwrap(),
            &[&rows[1][..], &[7]].concat(),
            rows[1].len(),
        );
        matches(
            &target,
            &got.row(1).unwrap(),
            &[&rows[0][..3], &[8, 9]].concat(),
            3,
        );
    }
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    for target in &targets() {
        refuses_bad_input(target);
    }
}

fn refuses_bad_input(target: &Target) {
    let mut session = target.session().unwrap();
    let ids = tokens(1, 5);
    session.extend(&ids).unwrap();
    for bad in [&[][..], &[1, 50]] {
        session.extend(bad).unwrap_err();
    }
    let error = session.extend(&[50]).unwrap_err().to_string();
    assert_eq!(
        error,
        "batch row 0: token 50 is outside the vocabulary of 50"
    );
    let got = session.extend(&[3]).unwrap();
    matches(target, &got, &[&ids[..], &[3]].concat(), 5);
    assert!(target.batch_session(0).is_err());
    let mut batch = target.batch_session(2).unwrap();
    assert!(batch.extend(&[&ids]).is_err());
    assert!(batch.keep(&[2]).is_err());
    assert!(batch.keep(&[]).is_err());
}

#[test]
fn the_head_ranks_what_forward_ranks() {
    let target = &targets()[0];
    let ids = tokens(4, 20);
    let got = target.session().unwrap().extend(&ids).unwrap();
    let logits = target.head(&got.last_hidden).unwrap();
    assert_eq!(logits.dims(), [20, 50]);
    let by_hand = whole(target, &ids)
        .1
        .matmul(&target.lm_head().t().unwrap())
        .unwrap();
    close(&logits, &by_hand);
}
