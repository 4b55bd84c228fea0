//! Which layers a target captures.

use super::Target;
use crate::model::ModelError;

impl Target {
    /// The same target, capturing the layers that a drafter reads.
    ///
    /// Errors: a layer that the target does not have.
    pub fn capturing(mut self, target_layer_ids: &[usize]) -> Result<Self, ModelError> {
        let layers = self.config.geometry.num_hidden_layers;
        check_layers(target_layer_ids, layers, "drafter config")?;
        self.captured = target_layer_ids.to_vec();
        Ok(self)
    }
}

/// Refuses layers that a target of `layers` does not have; `origin` names who asks for them.
pub(super) fn check_layers(asked: &[usize], layers: usize, origin: &str) -> Result<(), ModelError> {
    match asked.iter().find(|&&id| id >= layers) {
        Some(id) => Err(ModelError::Config {
            file: origin.to_owned(),
            key: "target_layer_ids".to_owned(),
            value: id.to_string(),
            problem: format!("the target has {layers} layers, from 0"),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::fixture::{microbatch, models, row};

    #[test]
    fn other_layers_can_be_captured_and_no_missing_ones() {
        let (target, _) = models();
        let (batch, _) = microbatch(&[&row(1, 6, 0)], 6);
        let other = target.clone().capturing(&[0, 2]).unwrap();
        assert_eq!(other.captured(), [0, 2]);
        assert_eq!(other.forward(&batch).unwrap().features.dims(), [1, 6, 64]);
        assert_eq!(
            target.capturing(&[0, 6]).unwrap_err().to_string(),
            "drafter config: target_layer_ids = 6: the target has 6 layers, from 0"
        );
    }
}
