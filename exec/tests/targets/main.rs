//! Targets of every family against an independent implementation.
//!
//! The scripts in `tests/data` make the checkpoints and record what transformers computes for them.

mod llama;
mod qwen3_5;
mod reference;
mod smollm2;
