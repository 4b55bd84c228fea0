"""Makes the tiny Qwen3.5 checkpoint of this folder and what transformers computes for it.

    python make_qwen3_5.py        (transformers 5.17, torch 2.11, CPU, float32)

Weights are bfloat16 numbers, as released ones are; the computation is in float32. A vision tower is there to be
left alone. Rows are longer than a chunk of the gated delta rule (64 tokens).
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

HERE = pathlib.Path(__file__).parent
TOKENS, ROWS = 83, 2
TEXT = dict(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=5,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
    layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention"],
    linear_conv_kernel_dim=4,
    linear_key_head_dim=8,
    linear_value_head_dim=12,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    rope_parameters=dict(
        rope_type="default",
        rope_theta=10000.0,
        partial_rotary_factor=0.25,
        mrope_section=[1, 1, 0],
        mrope_interleaved=True,
    ),
    eos_token_id=60,
    # Wider than usual, so that layers matter and mistakes show.
    initializer_range=0.2,
)
VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=32, patch_size=2,
              temporal_patch_size=1, num_position_embeddings=4)

torch.manual_seed(11)
config = Qwen3_5Config(text_config=TEXT, vision_config=VISION, attn_implementation="eager")
model = Qwen3_5ForConditionalGeneration(config).float().eval()
for name, weight in model.named_parameters():
    # Random norms and rates too: their initial values would hide one that is left out.
    if name.endswith("A_log"):
        weight.data = torch.empty_like(weight).uniform_(-4, 1)
    elif weight.dim() == 1:
        weight.data += 0.3 * torch.randn_like(weight)
    elif "conv1d" in name:
        weight.data = 0.5 * torch.randn_like(weight)
    weight.data = weight.data.bfloat16().float()

outputs = []
for layer in model.model.language_model.layers:
    layer.register_forward_hook(lambda _m, _i, out: outputs.append(out[0] if isinstance(out, tuple) else out))
ids = torch.randint(0, TEXT["vocab_size"], (ROWS, TOKENS))
with torch.no_grad():
    result = model(input_ids=ids, output_hidden_states=True, use_cache=False)
    last = model.model.language_model.norm(outputs[-1])
tensors = {f"layer.{n}": x.contiguous() for n, x in enumerate(outputs)}
tensors |= {"input_ids": ids.to(torch.int64), "last_hidden": last.contiguous(), "logits": result.logits.contiguous()}
save_file(tensors, HERE / "expected.safetensors")
model.bfloat16().save_pretrained(HERE)
(HERE / "generation_config.json").unlink(missing_ok=True)
