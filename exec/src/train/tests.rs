//! Properties of whole training steps.

use candle_core::{DType, Device, Tensor};

use super::{AdamW, BlockPlan, Contribution, Optimizer, Schedule, anchors};
use crate::model::fixture::{Row, drafter_config, microbatch, models, row, target_config};
use crate::model::{Drafter, HiddenStates, PaddedBatch, Target, Tensors};

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// ‖a − b‖ / ‖b‖.
fn distance(a: &Tensor, b: &Tensor) -> f64 {
    let norm = |t: &Tensor| {
        let sum = t
            .sqr()
            .unwrap()
            .sum_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        f64::from(sum).sqrt()
    };
    norm(&(a - b).unwrap()) / norm(b)
}

fn contribution(
    target: &Target,
    drafter: &Drafter,
    batch: &PaddedBatch,
    plan: &BlockPlan,
) -> Contribution {
    drafter
        .accumulate(&target.forward(batch).unwrap(), plan)
        .unwrap()
}

/// The contribution of rows split into microbatches: indices and padded length of each.
fn split(rows: &[Row], parts: &[(&[usize], usize)]) -> Contribution {
    let (target, drafter) = models();
    let mut total: Option<Contribution> = None;
    for (indices, padded) in parts {
        let members: Vec<&Row> = indices.iter().map(|&i| &rows[i]).collect();
        let (batch, plan) = microbatch(&members, *padded);
        let part = contribution(&target, &drafter, &batch, &plan);
        match &mut total {
            None => total = Some(part),
            Some(total) => total.add(part).unwrap(),
        }
    }
    total.unwrap()
}

fn rows() -> Vec<Row> {
    // The last row is too short for any anchor.
    [(1, 20, 5), (2, 9, 5), (3, 31, 3), (4, 14, 5), (5, 3, 5)]
        .map(|(id, tokens, anchors)| row(id, tokens, anchors))
        .into()
}

#[test]
fn any_split_of_the_same_samples_gives_the_same_gradient() {
    let rows = rows();
    let whole = split(&rows, &[(&[0, 1, 2, 3, 4], 32)]);
    assert!(whole.tally.supervised.iter().sum::<u64>() > 20);
    let splits: [&[(&[usize], usize)]; 3] = [
        &[(&[0, 1], 20), (&[2, 3, 4], 40)],
        &[(&[4, 3], 16), (&[2], 31), (&[1, 0], 64)],
        &[(&[0], 20), (&[1], 9), (&[2], 33), (&[3], 14), (&[4], 3)],
    ];
    for parts in splits {
        let other = split(&rows, parts);
        assert_eq!(other.tally, whole.tally);
        assert!((other.weight_sum - whole.weight_sum).abs() < 1e-12 * whole.weight_sum);
        assert!((other.loss_sum - whole.loss_sum).abs() < 1e-6 * whole.loss_sum);
        for (name, gradient) in &whole.gradients {
            let error = distance(&other.gradients[name], gradient);
            assert!(error < 5e-6, "{name}: {error:.1e} for {parts:?}");
        }
    }
}

#[test]
fn gradients_match_central_differences() {
    let (target, drafter) = models();
    let rows = rows();
    let (batch, plan) = microbatch(&rows.iter().collect::<Vec<_>>(), 32);
    let states = target.forward(&batch).unwrap();
    let gradients = drafter.accumulate(&states, &plan).unwrap().gradients;
    let loss = |name: &str, at: usize, h: f32| {
        let mut weights = drafter.weights().clone();
        let mut values = numbers(&weights[name]);
        values[at] += h;
        let shape = weights[name].dims().to_vec();
        weights.insert(
            name.into(),
            Tensor::from_vec(values, shape, &Device::Cpu).unwrap(),
        );
        let mut moved = drafter.clone();
        moved.set_weights(&weights).unwrap();
        moved.accumulate(&states, &plan).unwrap().loss_sum
    };
    for (name, gradient) in &gradients {
        // The entry with the largest slope stands clearest above f32 rounding of the loss.
        let gradient = numbers(gradient);
        let at = (0..gradient.len())
            .max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()))
            .unwrap();
        let h = if drafter.weights()[name].rank() == 1 {
            2e-2
        } else {
            2e-3
        };
        let difference = (loss(name, at, h) - loss(name, at, -h)) / (2.0 * f64::from(h));
        let (slope, noise) = (f64::from(gradient[at]), 1e-5 / f64::from(h));
        let error = (difference - slope).abs();
        assert!(
            error < 0.01 * slope.abs() + noise,
            "{name}[{at}]: {slope} {difference}"
        );
    }
}

#[test]
fn a_row_alone_gives_what_it_gives_in_a_batch() {
    let (target, drafter) = models();
    let rows = rows();
    let outputs = |members: &[&Row], padded| {
        let (batch, plan) = microbatch(members, padded);
        let states = target.forward(&batch).unwrap();
        (
            states.features.clone(),
            drafter.hidden(&states, &plan).unwrap(),
        )
    };
    let (all_features, all_hidden) = outputs(&[&rows[0], &rows[2], &rows[3]], 32);
    let (features, hidden) = outputs(&[&rows[2]], 31);
    let in_batch = all_features
        .narrow(0, 1, 1)
        .unwrap()
        .narrow(1, 0, 31)
        .unwrap();
    assert!(distance(&features, &in_batch) < 1e-6);
    let blocks = hidden.dim(1).unwrap();
    let in_batch = all_hidden
        .narrow(0, 1, 1)
        .unwrap()
        .narrow(1, 0, blocks)
        .unwrap();
    assert!(distance(&hidden, &in_batch) < 1e-6);
}

#[test]
fn a_block_sees_the_context_strictly_before_its_anchor_and_nothing_of_other_blocks() {
    let (target, drafter) = models();
    let row = Row {
        anchors: vec![6, 11],
        ..row(3, 20, 0)
    };
    let (batch, plan) = microbatch(&[&row], 20);
    let states = target.forward(&batch).unwrap();
    let logits = |states: &HiddenStates, plan: &BlockPlan| {
        let logits = drafter
            .logits(&drafter.hidden(states, plan).unwrap())
            .unwrap();
        [0, 1].map(|block| numbers(&logits.narrow(1, block, 1).unwrap()))
    };
    let changed_at = |position: usize| {
        let width = states.features.dim(2).unwrap();
        let other = Tensor::full(0.5f32, (1, 1, width), &Device::Cpu).unwrap();
        let features = states
            .features
            .slice_assign(&[0..1, position..position + 1, 0..width], &other);
        HiddenStates {
            features: features.unwrap(),
            last_hidden: None,
        }
    };
    let [first, second] = logits(&states, &plan);
    let [first_at, second_at] = logits(&changed_at(6), &plan);
    assert_eq!(first, first_at, "the anchor's own state must stay unseen");
    assert_ne!(second, second_at, "a later block does see it");
    assert_ne!(
        first,
        logits(&changed_at(5), &plan)[0],
        "the position before the anchor is seen"
    );
    assert_eq!(second, logits(&changed_at(11), &plan)[1]);

    let moved = Row {
        anchors: vec![6, 12],
        ..self::row(3, 20, 0)
    };
    let plan = microbatch(&[&moved], 20).1;
    let close = logits(&states, &plan)[0]
        .iter()
        .zip(&first)
        .all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close, "blocks must not see each other");
}

#[test]
fn threads_and_repetition_do_not_change_a_bit() {
    let (target, drafter) = models();
    let rows = rows();
    let microbatches: Vec<_> = [&[0usize, 1][..], &[2], &[3, 4]]
        .map(|indices| {
            let members: Vec<&Row> = indices.iter().map(|&i| &rows[i]).collect();
            microbatch(&members, 32)
        })
        .into();
    let alone: Vec<Contribution> = microbatches
        .iter()
        .map(|(b, p)| contribution(&target, &drafter, b, p))
        .collect();
    let together: Vec<Contribution> = std::thread::scope(|scope| {
        let spawn = |(batch, plan)| {
            let (target, replica) = (target.clone(), drafter.clone());
            scope.spawn(move || contribution(&target, &replica, batch, plan))
        };
        let workers: Vec<_> = microbatches.iter().map(|(b, p)| spawn((b, p))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    let sum = |parts: Vec<Contribution>| {
        let mut parts = parts.into_iter();
        let mut total = parts.next().unwrap();
        parts.for_each(|part| total.add(part).unwrap());
        total
    };
    let (alone, together) = (sum(alone), sum(together));
    assert_eq!(alone.loss_sum.to_bits(), together.loss_sum.to_bits());
    let bits = |g: &Tensors| {
        g.values()
            .flat_map(numbers)
            .map(f32::to_bits)
            .collect::<Vec<_>>()
    };
    assert_eq!(bits(&alone.gradients), bits(&together.gradients));
}

#[test]
fn training_on_a_pattern_learns_it() {
    // Embedding rows long enough for the tied head to give confident logits at this small width.
    let mut config = target_config();
    config.initializer_range = 0.2;
    let layers = drafter_config().target_layer_ids;
    let target = Target::random(config, 1, &layers, &Device::Cpu).unwrap();
    let mut drafter = Drafter::random(drafter_config(), 2, &target).unwrap();
    // Each token is the one before it plus 7: a block follows from its anchor alone.
    let rows: Vec<Row> = (0..4u64)
        .map(|id| {
            let input_ids = (0..32).map(|at| (id as u32 * 5 + at * 7) % 49).collect();
            let loss_mask = vec![true; 32];
            let anchors = anchors::draw(1, 0, id, &loss_mask, 12);
            Row {
                input_ids,
                loss_mask,
                anchors,
            }
        })
        .collect();
    let (batch, plan) = microbatch(&rows.iter().collect::<Vec<_>>(), 32);
    let states = target.forward(&batch).unwrap();
    let schedule = Schedule {
        peak: 1e-2,
        minimum: 1e-3,
        warmup_steps: 4,
        total_steps: 60,
    };
    let weights = drafter.weights().clone();
    let mut optimizer = Optimizer::new(weights, AdamW::default(), schedule).unwrap();
    let mut reports = Vec::new();
    for _ in 0..60 {
        reports.push(
            optimizer
                .apply(drafter.accumulate(&states, &plan).unwrap())
                .unwrap(),
        );
        drafter.set_weights(optimizer.weights()).unwrap();
    }
    let (first, last) = (&reports[0], &reports[59]);
    assert!(first.accuracy < 0.2, "{first:?}");
    assert!(last.loss < 0.5 * first.loss, "{} {}", first.loss, last.loss);
    assert!(last.expected_accepted_length > 1.0, "{last:?}");
}

#[test]
fn states_stored_in_bf16_train_too_and_weigh_half() {
    let (target, drafter) = models();
    let rows = rows();
    let (batch, plan) = microbatch(&[&rows[0]], 20);
    let wide = target.forward(&batch).unwrap();
    let narrow = target
        .clone()
        .with_storage(DType::BF16)
        .forward(&batch)
        .unwrap();
    assert_eq!(wide.bytes(), 20 * 2 * 32 * 4);
    assert_eq!(narrow.bytes(), wide.bytes() / 2);
    let (a, b) = (
        drafter.accumulate(&wide, &plan).unwrap(),
        drafter.accumulate(&narrow, &plan).unwrap(),
    );
    let error = distance(&b.gradients["fc.weight"], &a.gradients["fc.weight"]);
    assert!(error > 1e-6 && error < 3e-2, "{error}");
}

#[test]
fn a_microbatch_without_anchors_contributes_zeros() {
    let (target, drafter) = models();
    let rows = rows();
    let (batch, plan) = microbatch(&[&rows[4]], 8);
    let nothing = contribution(&target, &drafter, &batch, &plan);
    assert_eq!(
        (nothing.loss_sum, nothing.weight_sum, nothing.tally.blocks),
        (0.0, 0.0, 0)
    );
    assert!(
        nothing
            .gradients
            .values()
            .all(|g| numbers(g).iter().all(|&x| x == 0.0))
    );
    assert_eq!(nothing.gradients.len(), 25);
}
