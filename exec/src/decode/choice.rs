//! The token a model would say next.

use candle_core::{D, Tensor};

use crate::model::ModelError;

/// The most likely token, and by how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Its id; of equally likely ones the lowest.
    pub token: u32,
    /// Its logit minus that of the runner-up: how close the decision was.
    pub gap: f32,
}

impl Choice {
    /// The choice among logits `[V]`.
    pub fn among(logits: &[f32]) -> Self {
        let (mut best, mut second) = ((0, f32::NEG_INFINITY), f32::NEG_INFINITY);
        for (token, &logit) in logits.iter().enumerate() {
            if logit > best.1 {
                second = best.1;
                best = (token, logit);
            } else if logit > second {
                second = logit;
            }
        }
        Self {
            token: best.0 as u32,
            gap: best.1 - second,
        }
    }
}

/// The choice in each row of logits [n, V].
///
/// Errors: the tensor library's.
pub fn choices(logits: &Tensor) -> Result<Vec<Choice>, ModelError> {
    let width = logits.dim(D::Minus1)?;
    let flat = logits.flatten_all()?.to_vec1::<f32>()?;
    Ok(flat.chunks(width).map(Choice::among).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Device;

    #[test]
    fn the_largest_logit_wins_and_the_lowest_of_equals() {
        let rows = [[0.5f32, 2.0, 1.25, -3.0], [1.0, 0.0, 1.0, 1.0]];
        let chosen = choices(&Tensor::new(&rows, &Device::Cpu).unwrap()).unwrap();
        let expected = [(1, 0.75), (0, 0.0)].map(|(token, gap)| Choice { token, gap });
        assert_eq!(chosen, expected);
        assert_eq!(Choice::among(&[-2.0, -1.0, -4.0]).gap, 1.0);
    }
}
