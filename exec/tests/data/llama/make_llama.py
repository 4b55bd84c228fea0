"""Makes the tiny Llama checkpoints of this folder and what transformers computes for them.

    python make_llama.py        (transformers 5.17, torch 2.11, CPU, float32)

`plain` ties its embedding; `llama3` has the scaled rope of Llama 3 and a head of its own, in shards.
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
COMMON = dict(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    attn_implementation="eager",
    # Wider than usual, so that layers matter and mistakes show.
    initializer_range=0.15,
)
SCALED = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
CASES = {
    "plain": dict(num_hidden_layers=4, rope_parameters=dict(rope_type="default", rope_theta=10000.0), tie_word_embeddings=True),
    "llama3": dict(num_hidden_layers=2, rope_parameters=SCALED, tie_word_embeddings=False),
}
TOKENS, ROWS = 24, 2


def randomise(model):
    """Random norms too: weights of 1 would hide a norm that is left out."""
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.data = 1 + 0.3 * torch.randn_like(weight)


def hidden_states(model, ids):
    """Outputs of all layers before the final norm, and the last hidden state after it."""
    outputs = []
    hooks = [
        layer.register_forward_hook(lambda _m, _i, out: outputs.append(out[0] if isinstance(out, tuple) else out))
        for layer in model.model.layers
    ]
    with torch.no_grad():
        result = model(ids, output_hidden_states=True, use_cache=False)
    for hook in hooks:
        hook.remove()
    tensors = {f"layer.{n}": x.contiguous() for n, x in enumerate(outputs)}
    tensors["last_hidden"] = result.hidden_states[-1].contiguous()
    tensors["logits"] = result.logits.contiguous()
    return tensors


for name, extra in CASES.items():
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(**COMMON, **extra)).float().eval()
    randomise(model)
    folder = HERE / name
    shard = {} if name == "plain" else dict(max_shard_size="30KB")
    model.save_pretrained(folder, **shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(0, COMMON["vocab_size"], (ROWS, TOKENS))
    save_file({"input_ids": ids.to(torch.int64), **hidden_states(model, ids)}, folder / "expected.safetensors")
