"""Fit the cost model's constants to what was measured and show how well it does, also for kernels left out.

Usage: python tests/calibration/fit_cost_model.py            figures of the constants in the code
       python tests/calibration/fit_cost_model.py fit        fit anew, all and leaving one kernel out; constants.json
       python tests/calibration/fit_cost_model.py ROWS FEATURES   figures on another set of measurements
"""
import json
import math
import pathlib
import random
import statistics
import sys
from dataclasses import asdict, dataclass, fields, replace

from mkevolve.data.codec import decode
from mkevolve.data.measurement import Traffic
from mkevolve.data.plan import LaunchPlan
from mkevolve.measure.chips import load_chip
from mkevolve.measure.cost_model import DEFAULT, Constants, launch_times, total
from mkevolve.measure.features import Features, features

HERE = pathlib.Path(__file__).resolve().parent
SETS = (("h200.jsonl", "features.json"), ("h200_fp32.jsonl", "features_fp32.json"))
CONSTANTS = HERE / "constants.json"
# Made before any fit, from vendor documents and common micro-benchmarks; what a fit is pulled towards.
GUESS = Constants(
    start=2.0, program=0.25, memory_latency=0.8, cache_latency=0.25, loop_latency=0.9, reduction=0.12, cycles=4.0, address=4.0,
    line=1.0, fill=1.5, matrix=0.75, fp32=0.9, read=1.0, conflict=4.0, split=0.2, l2=1.0, scatter=1.0, stream=1.0, spill=8.0, spill_loop=0.5, serial=0.6, norm=3.0,
)


@dataclass(frozen=True)
class Row:
    kernel: str
    case: tuple
    config: str
    us: float
    parts: tuple[Features, ...]


@dataclass(frozen=True)
class Figures:
    """`spearman`: of each case whose slowest configuration takes 1.3 times its fastest. `ordered`: share of
    the pairs of one case that differ by more than 20 % and are ordered rightly. `factors`: sorted, >= 1.
    """

    spearman: tuple[float, ...]
    pairs: int
    ordered: float
    factors: tuple[float, ...]

    def __str__(self):
        ranks = f"Spearman {statistics.median(self.spearman):.2f} (median of {len(self.spearman)})" if self.spearman else "Spearman -"
        return f"{ranks}, {self.ordered:.1%} of {self.pairs} pairs, factor {statistics.median(self.factors):.2f} (90 %: {quantile(self.factors, 0.9):.2f})"


def quantile(values, share):
    return values[min(int(len(values) * share), len(values) - 1)]


def load(rows=HERE / "h200.jsonl", stored=HERE / "features.json"):
    """The rows that were timed, and (row, message of our refusal or None) for those that did not launch."""
    chip = load_chip("h200")
    timed, failed, wrong = [], [], []
    for line, entry in zip(pathlib.Path(rows).read_text().splitlines(), json.loads(pathlib.Path(stored).read_text()), strict=True):
        row = json.loads(line)
        if "error" in row:
            failed.append((row, entry.get("refused")))
        elif entry["plan"] is None:
            wrong.append((row, entry["refused"]))
        else:
            plan = decode(LaunchPlan, entry["plan"])
            buffers = {b.name: b for b in plan.buffers}
            samples = [decode(Traffic, t) for t in entry["traffic"]]
            parts = tuple(features(la, t, buffers, chip) for la, t in zip(plan.launches, samples, strict=True))
            config = " ".join(f"{k}={v}" for k, v in row["config"].items())
            timed.append(Row(row["kernel"], tuple(row["case"]), config, row["us"], parts))
    return timed, failed, wrong


def load_all():
    """Every row that was timed, of all sets."""
    return [row for rows, stored in SETS for row in load(HERE / rows, HERE / stored)[0]]


def predict(row, constants):
    chip = load_chip("h200")
    return constants.start + sum(total(launch_times(p, chip, constants), chip, constants) for p in row.parts)


def cases(rows):
    found = {}
    for number, row in enumerate(rows):
        found.setdefault((row.kernel, row.case), []).append(number)
    return found.values()


def pairs(rows):
    """(slower, faster) of each case where they differ by more than 20 %."""
    for members in cases(rows):
        for a in members:
            for b in members:
                if rows[a].us > 1.2 * rows[b].us:
                    yield a, b


def ranks(values):
    order = sorted(values)
    return [(order.index(v) + len(order) - 1 - order[::-1].index(v)) / 2 for v in values]


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    return statistics.correlation(a, b) if len(set(a)) > 1 and len(set(b)) > 1 else 0.0


def figures(rows, predicted):
    ranked = []
    for members in cases(rows):
        times = [rows[i].us for i in members]
        if max(times) >= 1.3 * min(times):
            ranked.append(spearman(times, [predicted[i] for i in members]))
    found = list(pairs(rows))
    right = sum(predicted[a] > predicted[b] for a, b in found)
    factors = sorted(max(p / r.us, r.us / p) for r, p in zip(rows, predicted))
    return Figures(tuple(ranked), len(found), right / max(len(found), 1), tuple(factors))


def loss(rows, constants):
    """Errors of the logarithms, pairs in the wrong order, and the distance from the constants' first guess."""
    predicted = [predict(r, constants) for r in rows]
    errors = [min(abs(math.log(p / r.us)), 1.5) ** 1.5 for r, p in zip(rows, predicted)]
    found = list(pairs(rows))
    wrong = [1 / (1 + math.exp(math.log(predicted[a] / predicted[b]) / 0.08)) for a, b in found]
    moved = [math.log(getattr(constants, f.name) / getattr(GUESS, f.name)) ** 2 for f in fields(Constants)]
    return statistics.fmean(errors) + 0.5 * sum(wrong) / max(len(wrong), 1) + 0.02 * statistics.fmean(moved)


def fit(rows, steps=1200, seed=0):
    """Random coordinate steps that shrink; enough for a dozen smooth constants."""
    rng = random.Random(seed)
    names = [f.name for f in fields(Constants)]
    best, least = GUESS, loss(rows, GUESS)
    for step in range(steps):
        name, width = rng.choice(names), 0.5 * (1 - step / steps) + 0.05
        tried = replace(best, **{name: getattr(best, name) * math.exp(rng.gauss(0, width))})
        if (found := loss(rows, tried)) < least:
            best, least = tried, found
    return best


def left_out(rows, stored):
    """Predictions of every kernel by constants that were fitted without it."""
    return [predict(r, Constants(**stored["without"][r.kernel])) for r in rows]


def refit(rows):
    tidy = lambda c: {k: float(f"{v:.3g}") for k, v in asdict(c).items()}  # noqa: E731
    without = {k: tidy(fit([r for r in rows if r.kernel != k])) for k in dict.fromkeys(r.kernel for r in rows)}
    CONSTANTS.write_text(json.dumps({"all": tidy(fit(rows)), "without": without}, indent=1) + "\n")


def report(rows, constants):
    predicted = [predict(r, constants) for r in rows]
    print("all:", figures(rows, predicted))
    stored = json.loads(CONSTANTS.read_text()) if CONSTANTS.exists() else None
    if stored and {r.kernel for r in rows} <= set(stored["without"]):
        held = left_out(rows, stored)
        print("each kernel by constants fitted without it:", figures(rows, held))
        for kernel in dict.fromkeys(r.kernel for r in rows):
            mine = [i for i, r in enumerate(rows) if r.kernel == kernel]
            print(f"  {kernel:20}", figures([rows[i] for i in mine], [held[i] for i in mine]))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    timed, failed, wrong = load(*arguments) if len(arguments) == 2 else load()
    if arguments == ["fit"]:
        refit(load_all())
    report(timed if len(arguments) == 2 else load_all(), DEFAULT)
    if len(arguments) != 2:
        print("the nine kernels alone:", figures(timed, [predict(r, DEFAULT) for r in timed]))
    print(f"launch failures predicted: {sum(m is not None for _, m in failed)} of {len(failed)}; false alarms: {len(wrong)}")
