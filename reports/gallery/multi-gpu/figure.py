"""Throughput and stall shares of the runs of a twin: `python3 figure.py TWIN_FOLDER OUT_FOLDER`, with `dflash` beside it or on PATH.

Writes policies.csv (one row a run, from `dflash replay --metrics=json` of its trace) and policies.png.
"""

import csv
import glob
import json
import os
import shutil
import subprocess
import sys

twin, out = sys.argv[1], sys.argv[2]
dflash = "./dflash" if os.path.exists("./dflash") else shutil.which("dflash")
ORDER = ["composed", "bucketed", "drafter-queues", "composed-pinned", "composed-pageable", "staged-fifo"]
PARTS = ["busy", "copying", "blocked", "starved", "barrier"]
COLOURS = ["#3b6ea5", "#9ecae1", "#d95f02", "#e6ab02", "#999999"]


def metrics(trace):
    lines = subprocess.run([dflash, "replay", "--metrics=json", trace], capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return {row["metric"]: row["value"] for row in rows}


table = []
for policy in ORDER:
    predicted = None
    for kind in ["sim"] + sorted(os.path.basename(f) for f in glob.glob(f"{twin}/{policy}/exec-*")):
        trace = f"{twin}/{policy}/{kind}/trace.txt"
        if not os.path.exists(trace):
            continue
        try:
            found = metrics(trace)
        except subprocess.CalledProcessError:
            continue
        row = {"policy": policy, "run": kind, "tok_s": round(found["throughput_tok_s"]), "hs_slots_peak": found["hs_slots_peak"],
               "hs_bytes_peak": found["hs_bytes_peak"], "host_bytes_peak": found["host_bytes_peak"]}
        row |= {f"{who}_{part}": found[f"{who}_{part}"] for who in ("target", "drafter") for part in PARTS}
        table.append(row)

with open(f"{out}/policies.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, table[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

policies = [p for p in ORDER if any(r["policy"] == p for r in table)]
figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.6), gridspec_kw={"width_ratios": [1, 1.35]})
for at, policy in enumerate(policies):
    runs = [r for r in table if r["policy"] == policy]
    simulated = [r["tok_s"] / 1e3 for r in runs if r["run"] == "sim"]
    measured = [r["tok_s"] / 1e3 for r in runs if r["run"] != "sim"]
    left.bar(at, simulated, 0.6, color="#9ecae1", label="predicted" if at == 0 else None)
    left.plot([at] * len(measured), measured, "D", color="#d95f02", label="measured" if at == 0 else None)
    for shift, who in ((-0.2, "target"), (0.2, "drafter")):
        run = next(r for r in runs if r["run"] == "sim")
        bottom = 0
        for part, colour in zip(PARTS, COLOURS):
            share = 100 * run[f"{who}_{part}"]
            right.bar(at + shift, share, 0.36, bottom=bottom, color=colour, label=part if (at, who) == (0, "target") else None)
            bottom += share
        right.text(at + shift, 101, who[0].upper(), ha="center", fontsize=8)
names = [p.replace("composed-", "composed\n") for p in policies]
for axis in (left, right):
    axis.set_xticks(range(len(policies)), names, fontsize=8)
left.set_ylabel("trained tokens/s (thousands)")
left.legend(loc="upper right", fontsize=8)
left.set_title("Throughput, 2.94 GB of hidden states a microbatch", fontsize=10)
right.set_ylabel("share of the run (%)")
right.set_ylim(0, 108)
right.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
right.set_title("What target (T) and drafter (D) do, predicted", fontsize=10)
figure.tight_layout()
figure.savefig(f"{out}/policies.png", dpi=110)
