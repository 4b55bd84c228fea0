"""Predicted and measured throughput of a twin, and what its workers did: `python3 figure.py TWIN_FOLDER OUT_FOLDER`, with `dflash` on PATH.

Reads twin.csv and, by `dflash replay --metrics=json`, the traces of each policy's prediction and of its first run, if it ran. Writes policies.csv (one row a
prediction or run) and policies.png.
"""

import csv
import json
import os
import re
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

twin, out = sys.argv[1], sys.argv[2]
KINDS = ["composed", "bucketed", "drafter-queues", "staged-fifo", "composed-pinned", "composed-pageable"]
TRANSPORT = {"staged-fifo": "host-pageable", "composed-pinned": "host-pinned", "composed-pageable": "host-pageable"}
PARTS = ["busy", "copying", "blocked", "starved", "barrier"]
PART_COLOURS = ["#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#999999"]
PREDICTED, MEASURED, INK, SOFT = "#56B4E9", "#0072B2", "#1C1C1C", "#5C5C5C"
plt.rcParams.update({"font.family": "sans-serif", "font.sans-serif": ["Noto Sans", "DejaVu Sans"], "font.size": 9, "text.color": INK,
                     "axes.edgecolor": "#C8C8C8", "axes.labelcolor": SOFT, "xtick.color": INK, "ytick.color": SOFT})


def metrics(trace):
    lines = subprocess.run(["dflash", "replay", "--metrics=json", trace], capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return {row["metric"]: row["value"] for row in rows}


def place(name):
    """A folder's policy and split: composed-drafters-2-targets-3 is composed on 3+2, and one without numbers has one worker of each kind."""
    found = re.match(r"(.*?)-drafters-(\d)-targets-(\d)$", name)
    return (found[1], f"{found[3]}+{found[2]}") if found else (name, "1+1")


measured = {}
if os.path.exists(f"{twin}/twin.csv"):
    for row in csv.DictReader(open(f"{twin}/twin.csv")):
        measured.setdefault(row["policy"], []).append(float(row["measured_tok_s"]))
rank = lambda name: (["1+1", "3+1", "2+2"].index(place(name)[1]), KINDS.index(place(name)[0]))
names = sorted((f for f in os.listdir(twin) if os.path.exists(f"{twin}/{f}/sim/trace.txt")), key=rank)

table = []
for name in names:
    for kind in ["sim"] + (["exec-1"] if name in measured else []):
        found = metrics(f"{twin}/{name}/{kind}/trace.txt")
        policy, split = place(name)
        row = {"policy": policy, "split": split, "transport": TRANSPORT.get(policy, "p2p"), "run": kind, "tok_s": round(found["throughput_tok_s"]),
               "hs_slots_peak": found["hs_slots_peak"], "hs_bytes_peak": found["hs_bytes_peak"], "host_bytes_peak": found["host_bytes_peak"]}
        table.append(row | {f"{who}_{part}": found[f"{who}_{part}"] for who in ("target", "drafter") for part in PARTS})
with open(f"{out}/policies.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, table[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)

figure, (top, bottom) = plt.subplots(2, 1, figsize=(max(8.5, 0.93 * len(names)), 9.2), gridspec_kw={"height_ratios": [1.15, 1], "hspace": 0.4})
for at, name in enumerate(names):
    found = next(r for r in table if (r["policy"], r["split"], r["run"]) == (*place(name), "sim"))
    predicted, runs = found["tok_s"], measured.get(name)
    top.bar(at - 0.2 if runs else at, predicted / 1e3, 0.38, color=PREDICTED, label="predicted" if at == 0 else None)
    if runs:
        mean = sum(runs) / len(runs)
        top.bar(at + 0.2, mean / 1e3, 0.38, color=MEASURED, label="measured" if at == 0 else None)
        top.text(at, max(predicted, mean) / 1e3 + 12, f"{100 * (predicted / mean - 1):+.1f} %", ha="center", fontsize=8.5)
    else:
        top.text(at, predicted / 1e3 + 12, "not run", ha="center", fontsize=8.5, color=SOFT)
    done = next((r for r in table if (r["policy"], r["split"], r["run"]) == (*place(name), "exec-1")), found)
    for shift, who in ((-0.2, "target"), (0.2, "drafter")):
        height = 0
        for part, colour in zip(PARTS, PART_COLOURS):
            share = 100 * done[f"{who}_{part}"]
            bottom.bar(at + shift, share, 0.36, bottom=height, color=colour, label=part if (at, who) == (0, "target") else None)
            height += share
        bottom.text(at + shift, 102, who[0].upper(), ha="center", fontsize=8, color=SOFT)
short = lambda policy: re.sub("-(pinned|pageable)$", "", policy).replace("-queues", "\nqueues")
way = lambda policy: TRANSPORT.get(policy, "p2p").replace("host-", "")
labels = ["\n".join([short(policy), way(policy), split]) for policy, split in map(place, names)]
for axis in (top, bottom):
    axis.set_xticks(range(len(names)), labels, fontsize=8.5)
    axis.set_xlim(-0.7, len(names) - 0.3)
    axis.tick_params(length=0)
    axis.set_axisbelow(True)
    axis.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
top.set_ylabel("trained tokens/s (thousands)")
top.set_ylim(0, 1.2 * max(row["tok_s"] for row in table) / 1e3)
top.legend(loc="upper left", frameon=False, ncols=2)
gpus = max(sum(map(int, place(name)[1].split("+"))) for name in names)
top.set_title(f"Throughput of {len(names)} policies on up to {gpus} H200,\n2.94 GB of hidden states a microbatch", loc="left", fontsize=13, fontweight="bold")
bottom.set_ylabel("share of the run (%)")
bottom.set_ylim(0, 110)
bottom.set_title("what targets (T) and drafters (D) do, " + ("as measured in each first run" if len(measured) == len(names) else "as measured where run, else as simulated"), loc="left", fontsize=11, pad=26)
bottom.legend(loc="lower left", bbox_to_anchor=(0, 1.005), frameon=False, ncols=5)
figure.savefig(f"{out}/policies.png", dpi=110, bbox_inches="tight")
