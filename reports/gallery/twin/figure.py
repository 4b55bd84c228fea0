"""How far predictions were off in three runs of the twin, on three machines: `python3 figure.py` in this folder writes errors.png from their twin.csv."""

import csv

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RUNS = [("ninth", "#B4B4B4", "s", "ninth run, a host with slower memory"), ("tenth", "#56B4E9", "o", "tenth run"), ("eleventh", "#0072B2", "D", "eleventh run")]
KINDS = [("composed-local", "composed\nlocal"), ("drafter-queues-two-targets", "drafter-\nqueues, p2p\n2 targets"), ("composed-one-slot", "composed\none slot"),
         ("staged-fifo-pinned", "staged-fifo\npinned"), ("composed-pageable", "composed\npageable"), ("staged-fifo", "staged-fifo\npageable")]
BUCKETS = ["4", "2"]
INK, SOFT = "#1C1C1C", "#5C5C5C"
plt.rcParams.update({"font.family": "sans-serif", "font.sans-serif": ["Noto Sans", "DejaVu Sans"], "font.size": 10, "text.color": INK,
                     "axes.edgecolor": "#C8C8C8", "axes.labelcolor": SOFT, "xtick.color": INK, "ytick.color": SOFT})


def errors(run):
    """Percent by policy: prediction over the mean of the runs."""
    rows = {}
    for row in csv.DictReader(open(f"{run}/twin.csv")):
        rows.setdefault(row["policy"], []).append((float(row["predicted_tok_s"]), float(row["measured_tok_s"])))
    return {name: 100 * (all[0][0] * len(all) / sum(m for _, m in all) - 1) for name, all in rows.items()}


figure, axis = plt.subplots(figsize=(12.5, 5.6))
axis.axhspan(-3, 3, color="#E9F3EC", zorder=0)
axis.text(11.62, 3, "3 %", va="center", fontsize=9, color=SOFT)
axis.text(11.62, -3, "−3 %", va="center", fontsize=9, color=SOFT)
axis.axhline(0, color="#9A9A9A", linewidth=1, zorder=1)
for shift, (run, colour, marker, label) in zip((-0.29, 0, 0.29), RUNS):
    found = errors(run)
    names = [(at, f"{kind}-optimal-{n}") for at, (kind, n) in enumerate((k, n) for k, _ in KINDS for n in BUCKETS)]
    shown = [(at + shift, found[name]) for at, name in names]
    axis.scatter(*zip(*shown), s=56, color=colour, marker=marker, label=label, zorder=3)
    for x, y in shown:
        axis.text(x, y + (0.25 if y >= 0 else -0.25), f"{y:+.1f}", ha="center", va="bottom" if y >= 0 else "top", fontsize=8, color=SOFT)
axis.set_xticks(range(12), [f"{label}\n{n} buckets" for _, label in KINDS for n in BUCKETS], fontsize=8.5)
axis.tick_params(length=0)
axis.set_xlim(-0.6, 11.6)
axis.set_ylim(-6, 5)
axis.set_ylabel("predicted over measured throughput (%)")
for side in ("top", "right", "left", "bottom"):
    axis.spines[side].set_visible(False)
for at in range(2, 12, 2):
    axis.axvline(at - 0.5, color="#ECECEC", linewidth=1, zorder=0)
axis.set_title("Twelve policies on one H200: how far off the predictions were", loc="left", fontsize=14, fontweight="bold", pad=30)
axis.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False)
figure.savefig("errors.png", dpi=110, bbox_inches="tight")
