"""The losses' values and gradients, computed by PyTorch's autograd in float64, independently of the Rust code.

    python make_losses.py ../parity .

Takes the drafter's outputs, the target's last hidden states and head, and the microbatches of the parity case; writes
`expected.safetensors`: for every objective and microbatch the gradient of the objective's SUM (not yet divided) for the drafter's
output, `{objective}.mb{m}.for_hidden` [B, A, T, H], and `{objective}.mb{m}.sums` = [sum, divisor].
"""
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

OBJECTIVES = {
    "cross_entropy": {},
    "d_pace": {"alpha": 0.5},
    "d_pace_low": {"alpha": 0.1},
    "distillation": {"temperature": 1.0, "hard_share": 0.0},
    "distillation_mixed": {"temperature": 2.5, "hard_share": 0.3},
}


def slots(batch, m, size, gamma):
    """Labels, positions, weights and the rows of supervised slots, straight from the definition."""
    ids, mask, lengths, anchors = (batch[f"mb{m}.{name}"] for name in ("input_ids", "loss_mask", "lengths", "anchors"))
    rows, blocks = anchors.shape
    labels = torch.zeros(rows, blocks, size, dtype=torch.long)
    before = torch.zeros(rows, blocks, size, dtype=torch.long)
    weights = torch.zeros(rows, blocks, size, dtype=torch.float64)
    for b in range(rows):
        for j in range(blocks):
            for k in range(1, size):
                position = int(anchors[b, j]) + k
                if anchors[b, j] >= 0 and position < lengths[b] and mask[b, position] == 1:
                    labels[b, j, k] = ids[b, position]
                    before[b, j, k] = position - 1
                    weights[b, j, k] = torch.exp(torch.tensor(-(k - 1) / gamma, dtype=torch.float64))
    return labels, before, weights


def d_pace(entropy, asked, alpha):
    """The position values of SpecForge's D-PACE: prefix products of smoothed confidence, summed from the slot on; detached."""
    smooth = (1 - alpha) * torch.exp(-entropy.detach()) + alpha
    prefix = torch.where(asked, smooth, torch.ones_like(smooth)).cumprod(-1)
    return torch.flip(torch.flip(prefix * asked, [-1]).cumsum(-1), [-1]) * asked


def objective(name, hidden, last_hidden, lm_head, labels, before, weights):
    settings, asked = OBJECTIVES[name], weights > 0
    logits = hidden @ lm_head.T
    entropy = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none").view_as(weights)
    if name == "cross_entropy":
        return (weights * entropy).sum(), weights.sum()
    if name.startswith("d_pace"):
        return (d_pace(entropy, asked, settings["alpha"]) * entropy).sum(), asked.any(-1).sum()
    tau, hard = settings["temperature"], settings["hard_share"]
    row = torch.arange(len(last_hidden))[:, None, None].expand_as(before)
    teacher = F.log_softmax(last_hidden[row, before] @ lm_head.T / tau, -1)
    student = F.log_softmax(logits / tau, -1)
    divergence = F.kl_div(student, teacher, reduction="none", log_target=True).sum(-1)
    return (weights * ((1 - hard) * tau**2 * divergence + hard * entropy)).sum(), weights.sum()


def main():
    parity, out = Path(sys.argv[1]), Path(sys.argv[2])
    case = json.loads((parity / "case.json").read_text())
    batch, expected = load_file(parity / "batch.safetensors"), load_file(parity / "expected_f32.safetensors")
    lm_head = load_file(parity / "target/model.safetensors")["lm_head.weight"].double()
    made = {}
    for m in range(case["microbatches"]):
        plan = slots(batch, m, case["block_size"], case["gamma"])
        hidden = expected[f"mb{m}.hidden"].double().requires_grad_()
        last_hidden = expected[f"mb{m}.last_hidden"].double()
        for name in OBJECTIVES:
            total, divisor = objective(name, hidden, last_hidden, lm_head, *plan)
            made[f"{name}.mb{m}.for_hidden"], = torch.autograd.grad(total, hidden)
            made[f"{name}.mb{m}.sums"] = torch.stack([total.detach(), divisor.double()])
            print(name, m, [round(float(x), 6) for x in made[f"{name}.mb{m}.sums"]])
    save_file(made, out / "expected.safetensors")


if __name__ == "__main__":
    main()
