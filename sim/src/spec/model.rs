//! What the models weigh: hidden states a token, and memory that does not depend on dispatch.

use super::check::{Checks, Problem};
use super::units::ByteSize;
use serde::{Deserialize, Serialize};
use shared::id::Bytes;

/// Sizes of target, drafter and hidden states.
///
/// Hidden states are given either as `bytes_per_token`, or by `captured_layers` and `hidden_size` with `last_hidden` and
/// `element_bytes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Hidden states of one token. (bytes/token)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_token: Option<ByteSize>,
    /// Layers of the target whose output is handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured_layers: Option<u32>,
    /// Features of one token in one layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_size: Option<u32>,
    /// Whether the last hidden state travels too.
    #[serde(default)]
    pub last_hidden: bool,
    /// Size of one feature: 2 for bf16. (bytes)
    #[serde(default = "bf16_bytes")]
    pub element_bytes: u32,
    /// The target's weights, on each target's GPU.
    #[serde(default)]
    pub target_weights: ByteSize,
    /// The target's activations at the token budget, on each target's GPU.
    #[serde(default)]
    pub target_activations: ByteSize,
    /// The drafter's weights, gradients and optimizer state, on each drafter's GPU.
    #[serde(default)]
    pub drafter_state: ByteSize,
    /// The drafter's activations at the token budget, on each drafter's GPU.
    #[serde(default)]
    pub drafter_activations: ByteSize,
    /// What a process takes on its GPU before any tensor: context, libraries, communication buffers.
    #[serde(default)]
    pub process_overhead: ByteSize,
    /// Host memory in use before any hidden state arrives.
    #[serde(default)]
    pub host_base: ByteSize,
}

const fn bf16_bytes() -> u32 {
    2
}

impl Model {
    /// Hidden states of one token, (layers + last) x features x element size. (bytes/token)
    ///
    /// Zero when neither form is given, which [`Model::validate`] refuses.
    pub fn bytes_per_token(&self) -> Bytes {
        if let Some(size) = self.bytes_per_token {
            return size.bytes();
        }
        let layers =
            u64::from(self.captured_layers.unwrap_or(0)) + u64::from(u8::from(self.last_hidden));
        let features = layers.saturating_mul(u64::from(self.hidden_size.unwrap_or(0)));
        Bytes(features.saturating_mul(u64::from(self.element_bytes)))
    }

    /// What cannot be simulated; `at` is the path of this section.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        match (self.bytes_per_token, self.captured_layers, self.hidden_size) {
            (Some(size), None, None) => {
                checks.at_least_one("bytes_per_token", size.0, "write the size of one token");
            }
            (None, Some(layers), Some(features)) => {
                checks.at_least_one("captured_layers", layers, "count the layers handed over");
                checks.at_least_one("hidden_size", features, "write the target's hidden_size");
                checks.at_least_one("element_bytes", self.element_bytes, "write 2 for bf16");
            }
            (Some(size), _, _) => checks.require(
                false,
                "bytes_per_token",
                size,
                "cannot stand beside captured_layers or hidden_size",
                "keep one of the two forms",
            ),
            (None, _, _) => checks.require(
                false,
                "",
                "size of hidden states",
                "must be given",
                "set bytes_per_token, or captured_layers and hidden_size",
            ),
        }
        let size = self.bytes_per_token().0;
        checks.require(
            size <= BYTES_PER_TOKEN_MAX,
            "",
            format!("{size} bytes of hidden states a token"),
            "must be at most 1 GiB",
            "check captured_layers, hidden_size and element_bytes",
        );
        checks.done()
    }
}

/// Keeps a microbatch's size, at most 2^32 tokens, inside 64 bits; no real model comes near.
const BYTES_PER_TOKEN_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    fn model(text: &str) -> Model {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn hidden_states_are_layers_times_features_times_element() {
        let captured = "captured_layers = 5\nhidden_size = 5120";
        assert_eq!(model(captured).bytes_per_token(), Bytes(51_200));
        let last = format!("{captured}\nlast_hidden = true");
        assert_eq!(model(&last).bytes_per_token(), Bytes(61_440));
        let wide = format!("{captured}\nelement_bytes = 4");
        assert_eq!(model(&wide).bytes_per_token(), Bytes(102_400));
        assert_eq!(
            model("bytes_per_token = 61440").bytes_per_token(),
            Bytes(61_440)
        );
        assert_eq!(
            model("bytes_per_token = '60 KiB'").bytes_per_token(),
            Bytes(61_440)
        );
        assert_eq!(model(&last).validate("model"), []);
    }

    #[test]
    fn exactly_one_form_is_given() {
        let found = |text| lines(&model(text).validate("model"));
        assert_eq!(
            found(""),
            [
                "model: size of hidden states must be given; set bytes_per_token, or captured_layers and hidden_size"
            ]
        );
        assert_eq!(found("captured_layers = 5").len(), 1);
        assert_eq!(
            found("bytes_per_token = 2048\nhidden_size = 5120"),
            [
                "model.bytes_per_token: 2 KiB cannot stand beside captured_layers or hidden_size; keep one of the two forms"
            ]
        );
        assert_eq!(
            found("captured_layers = 0\nhidden_size = 5120"),
            ["model.captured_layers: 0 must be at least 1; count the layers handed over"]
        );
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let huge = "captured_layers = 4294967295\nhidden_size = 4294967295\nelement_bytes = 8";
        assert_eq!(
            lines(&model(huge).validate("model")),
            [
                "model: 18446744073709551615 bytes of hidden states a token must be at most 1 GiB; check captured_layers, hidden_size and element_bytes"
            ]
        );
    }

    #[test]
    fn memory_defaults_to_nothing_and_reads_back() {
        let model = model("bytes_per_token = 61440\ntarget_weights = '54 GB'");
        assert_eq!(model.drafter_state, ByteSize(0));
        assert_eq!(model.target_weights, ByteSize(54_000_000_000));
        let text = toml::to_string(&model).unwrap();
        assert_eq!(toml::from_str::<Model>(&text).unwrap(), model);
    }
}
