//! AdamW on f32 master weights, one step for all contributions of a step.

use candle_core::{D, DType, Result, Tensor};

use super::{Contribution, Schedule, TrainError};
use crate::model::Tensors;

/// Settings of AdamW (Loshchilov and Hutter 2019) and of gradient clipping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Longest gradient, as global L2 norm; longer ones are scaled down to it.
    pub norm_max: f64,
}

impl Default for AdamW {
    /// The published recipe: betas 0.9 and 0.999, eps 1e-8, no decay, norm at most 1.
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            norm_max: 1.0,
        }
    }
}

/// Master weights, their moments, and the step count.
#[derive(Debug, Clone)]
pub struct Optimizer {
    settings: AdamW,
    schedule: Schedule,
    weights: Tensors,
    first_moments: Tensors,
    second_moments: Tensors,
    step: u64,
}

/// What one optimizer step did.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The step, from 1.
    pub step: u64,
    /// The objective over the step: for the usual one the weighted mean cross entropy over its
    /// supervised slots, in nats.
    pub loss: f64,
    /// Global L2 norm of the gradient of that loss, before clipping.
    pub grad_norm: f64,
    /// Learning rate used.
    pub lr: f64,
    /// Right over supervised slots.
    pub accuracy: f64,
    /// The same for slots 1 … T−1.
    pub accuracy_per_slot: Vec<f64>,
    /// Expected accepted tokens a block, without the target's bonus token.
    pub expected_accepted_length: f64,
    /// Mean run of right slots from slot 1 on, in tokens.
    pub mean_leading_run: f64,
}

impl Optimizer {
    /// A fresh optimizer over `weights` (f32).
    pub fn new(weights: Tensors, settings: AdamW, schedule: Schedule) -> Result<Self> {
        let zeros = |weights: &Tensors| {
            weights
                .iter()
                .map(|(name, w)| Ok((name.clone(), w.zeros_like()?)))
                .collect()
        };
        let (first_moments, second_moments): (Result<Tensors>, Result<Tensors>) =
            (zeros(&weights), zeros(&weights));
        Ok(Self {
            settings,
            schedule,
            first_moments: first_moments?,
            second_moments: second_moments?,
            weights,
            step: 0,
        })
    }

    /// The master weights, to be handed to all replicas after each step.
    pub fn weights(&self) -> &Tensors {
        &self.weights
    }

    /// Clipping and AdamW.
    pub fn settings(&self) -> &AdamW {
        &self.settings
    }

    /// Learning rates.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Steps applied so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Divides the step's sums by its total weight, clips, and updates the weights.
    ///
    /// Errors leave weights and moments as they were: nothing supervised, a loss or gradient that
    /// is not finite, gradients of other weights.
    pub fn apply(&mut self, total: Contribution) -> std::result::Result<StepReport, TrainError> {
        let step = self.step + 1;
        if total.weight_sum == 0.0 {
            return Err(TrainError::NothingSupervised { step });
        }
        if !total.loss_sum.is_finite() || !total.weight_sum.is_finite() {
            return Err(TrainError::LossNotFinite {
                step,
                loss: total.loss_sum,
            });
        }
        same_shapes("gradients", &total.gradients, &self.weights)?;
        let norm = global_norm(&total.gradients)? / total.weight_sum;
        if !norm.is_finite() {
            return Err(TrainError::GradientNotFinite { step, norm });
        }
        let lr = self.schedule.rate(step);
        let clip = (self.settings.norm_max / (norm + 1e-6)).min(1.0);
        self.update(&total.gradients, clip / total.weight_sum, lr, step)?;
        let tally = &total.tally;
        Ok(StepReport {
            step,
            loss: total.loss_sum / total.weight_sum,
            grad_norm: norm,
            lr,
            accuracy: tally.accuracy(),
            accuracy_per_slot: tally.accuracy_per_slot(),
            expected_accepted_length: tally.expected_accepted_length(),
            mean_leading_run: tally.mean_leading_run(),
        })
    }

    /// AdamW with gradients times `scale`; the new state replaces the old one only when all of it
    /// is computed.
    fn update(&mut self, gradients: &Tensors, scale: f64, lr: f64, step: u64) -> Result<()> {
        let AdamW {
            beta1,
            beta2,
            eps,
            weight_decay,
            ..
        } = self.settings;
        let correction = |beta: f64| 1.0 - beta.powi(step.min(i32::MAX as u64) as i32);
        let (mut weights, mut firsts, mut seconds) =
            (Tensors::new(), Tensors::new(), Tensors::new());
        for (name, weight) in &self.weights {
            let g = gradients[name].affine(scale, 0.0)?;
            let first =
                (self.first_moments[name].affine(beta1, 0.0)? + g.affine(1.0 - beta1, 0.0)?)?;
            let second = (self.second_moments[name].affine(beta2, 0.0)?
                + g.sqr()?.affine(1.0 - beta2, 0.0)?)?;
            let spread = second.sqrt()?.affine(1.0 / correction(beta2).sqrt(), eps)?;
            let stride = (&first / spread)?.affine(lr / correction(beta1), 0.0)?;
            let decayed = weight.affine(1.0 - lr * weight_decay, 0.0)?;
            weights.insert(name.clone(), (decayed - stride)?);
            firsts.insert(name.clone(), first);
            seconds.insert(name.clone(), second);
        }
        (self.weights, self.first_moments, self.second_moments) = (weights, firsts, seconds);
        self.step = step;
        Ok(())
    }

    /// The whole state as named tensors: `weight.*`, `first_moment.*`, `second_moment.*` (f32). The
    /// step count travels apart, see [`Optimizer::step`].
    pub fn export(&self) -> Tensors {
        let parts = [
            ("weight", &self.weights),
            ("first_moment", &self.first_moments),
            ("second_moment", &self.second_moments),
        ];
        let named = parts.into_iter().flat_map(|(part, tensors)| {
            tensors
                .iter()
                .map(move |(name, t)| (format!("{part}.{name}"), t.clone()))
        });
        named.collect()
    }

    /// Takes back what [`Optimizer::export`] gave, and the step count.
    ///
    /// Errors: tensors missing, unknown, or of other shapes; the state stays as it was.
    pub fn import(&mut self, state: &Tensors, step: u64) -> std::result::Result<(), TrainError> {
        let part = |part: &str| -> Tensors {
            let strip = |(name, tensor): (&String, &Tensor)| {
                let name = name.strip_prefix(part)?.strip_prefix('.')?;
                Some((name.to_owned(), tensor.clone()))
            };
            state.iter().filter_map(strip).collect()
        };
        let parts = [part("weight"), part("first_moment"), part("second_moment")];
        for tensors in &parts {
            same_shapes("optimizer state", tensors, &self.weights)?;
        }
        if state.len() != parts.iter().map(Tensors::len).sum::<usize>() {
            return Err(mismatch(
                "optimizer state",
                "(any)",
                "has an unknown name".to_owned(),
            ));
        }
        [self.weights, self.first_moments, self.second_moments] = parts;
        self.step = step;
        Ok(())
    }
}

/// L2 norm over all tensors. Rows are summed in the tensors' dtype, everything else in f64 and in
/// order of names.
fn global_norm(tensors: &Tensors) -> Result<f64> {
    let mut square = 0.0;
    for tensor in tensors.values() {
        let rows = tensor
            .sqr()?
            .sum(D::Minus1)?
            .flatten_all()?
            .to_dtype(DType::F64)?;
        square += rows.to_vec1::<f64>()?.into_iter().sum::<f64>();
    }
    Ok(square.sqrt())
}

fn same_shapes(
    what: &'static str,
    tensors: &Tensors,
    like: &Tensors,
) -> std::result::Result<(), TrainError> {
    for (name, model) in like {
        match tensors.get(name) {
            None => return Err(mismatch(what, name, "is missing".to_owned())),
            Some(tensor) if tensor.dims() != model.dims() => {
                let problem = format!("is {:?}, expected {:?}", tensor.dims(), model.dims());
                return Err(mismatch(what, name, problem));
            }
            Some(_) => {}
        }
    }
    match tensors.keys().find(|name| !like.contains_key(*name)) {
        Some(name) => Err(mismatch(what, name, "belongs to no weight".to_owned())),
        None => Ok(()),
    }
}

fn mismatch(what: &'static str, name: &str, problem: String) -> TrainError {
    TrainError::Mismatch {
        what,
        name: name.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Tally;
    use candle_core::Device;

    fn one(values: &[f32]) -> Tensors {
        Tensors::from([("w".to_owned(), Tensor::new(values, &Device::Cpu).unwrap())])
    }

    fn total(gradient: &[f32], loss_sum: f64, weight_sum: f64) -> Contribution {
        Contribution {
            gradients: one(gradient),
            loss_sum,
            weight_sum,
            tally: Tally::default(),
        }
    }

    fn values(optimizer: &Optimizer) -> Vec<f32> {
        optimizer.weights()["w"].to_vec1().unwrap()
    }

    #[test]
    fn the_first_step_moves_by_the_learning_rate_against_the_sign() {
        let settings = AdamW {
            weight_decay: 0.5,
            ..AdamW::default()
        };
        let mut o = Optimizer::new(one(&[1.0, 2.0]), settings, Schedule::constant(0.1)).unwrap();
        let report = o.apply(total(&[6.0, -8.0], 5.0, 2.0)).unwrap();
        assert_eq!((report.step, report.loss, report.lr), (1, 2.5, 0.1));
        assert!((report.grad_norm - 5.0).abs() < 1e-6);
        // Decay by 1 − 0.1·0.5, then a stride of 0.1.
        let got = values(&o);
        assert!(
            (got[0] - 0.85).abs() < 1e-6 && (got[1] - 2.0).abs() < 1e-6,
            "{got:?}"
        );
    }

    #[test]
    fn numbers_that_are_not_finite_change_nothing_and_name_the_step() {
        let fresh = || {
            let weights = one(&[1.0]);
            Optimizer::new(weights, AdamW::default(), Schedule::constant(0.1)).unwrap()
        };
        let mut o = fresh();
        o.apply(total(&[1.0], 1.0, 1.0)).unwrap();
        let before = values(&o);
        let loss = o.apply(total(&[1.0], f64::NAN, 1.0)).unwrap_err();
        assert!(
            matches!(loss, TrainError::LossNotFinite { step: 2, .. }),
            "{loss}"
        );
        let gradient = o.apply(total(&[f32::INFINITY], 1.0, 1.0)).unwrap_err();
        assert!(
            matches!(gradient, TrainError::GradientNotFinite { step: 2, .. }),
            "{gradient}"
        );
        let nothing = o.apply(total(&[0.0], 0.0, 0.0)).unwrap_err();
        assert!(
            matches!(nothing, TrainError::NothingSupervised { step: 2 }),
            "{nothing}"
        );
        assert_eq!((values(&o), o.step()), (before, 1));
    }

    #[test]
    fn exported_state_continues_exactly() {
        let schedule = Schedule {
            peak: 0.1,
            minimum: 0.0,
            warmup_steps: 2,
            total_steps: 9,
        };
        let mut a = Optimizer::new(one(&[1.0, -1.0]), AdamW::default(), schedule).unwrap();
        a.apply(total(&[0.3, 0.1], 1.0, 1.0)).unwrap();
        let mut b = Optimizer::new(one(&[0.0, 0.0]), AdamW::default(), schedule).unwrap();
        b.import(&a.export(), a.step()).unwrap();
        for o in [&mut a, &mut b] {
            o.apply(total(&[-0.2, 0.4], 1.0, 1.0)).unwrap();
        }
        assert_eq!(values(&a), values(&b));
        let mut damaged = a.export();
        damaged.remove("second_moment.w");
        let error = b.import(&damaged, 1).unwrap_err().to_string();
        assert_eq!(error, "optimizer state: tensor w is missing");
    }
}
