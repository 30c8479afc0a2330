"""Question: is a probe without a seed as accurate as one tuned in PyTorch, at how much of its time?

Run:  python benchmarks/probe_data.py DATA; python benchmarks/probe_accuracy.py DATA LINES.jsonl METHOD ... [--sets A B]
      python benchmarks/probe_accuracy.py --table LINES.jsonl RESULT.json

One JSON line for each method, set and fold, as soon as it is there; what is in the file is not done again. Seconds are
those of all cores (`process_time`), choices included, for one fold. Methods: ours, seeds (20 random starts of the probe
that ours chose), logistic, forest, torch (8 random queries, AdamW, the best of 20 settings on a quarter held out, one
last fit and five more seeds), abmil (gated attention on bags, the best of 6 settings), minirocket (needs aeon).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

SERIES = ("ArrowHead", "BasicMotions", "GunPoint", "ItalyPowerDemand", "JapaneseVowels", "Trace")
SERIES += ("OSULeaf", "PickupGestureWiimoteZ")
BAGS = ("MUSK1", "MUSK2", "Elephant", "CorelDogs", "BrownCreeper")
METHODS = ("ours", "seeds", "logistic", "forest", "torch", "abmil", "minirocket")
QUARTER = 4
STEPS = 400  # of PyTorch's probe, full batch
SEEDS = 3
RATES, DECAYS = (0.1, 0.03, 0.01, 0.003, 0.001), (1e-3, 1e-2, 1e-1, 1.0)  # 20 settings of AdamW


def load(folder: Path, name: str, fold: int):
    """Training and test parts as (tokens, mask, codes), and the number of labels."""
    with np.load(folder / f"{name}.npz") as file:
        tokens, labels, folds = file["tokens"].astype(float), file["labels"], file["fold"]
        mask = file["mask"] if "mask" in file else np.ones(tokens.shape[:2], bool)
    classes, codes = np.unique(labels, return_inverse=True)
    parts = [(tokens[use], mask[use], codes[use]) for use in (folds != fold, folds == fold)]
    return *parts, len(classes)


def scored(logs: np.ndarray, codes: np.ndarray) -> dict:
    """How many are wrong, the mean loss, of log-probabilities."""
    wrong = int(np.sum(np.argmax(logs, axis=1) != codes))
    loss = -float(np.mean(logs[np.arange(len(codes)), codes]))
    return {"wrong": wrong, "count": len(codes), "loss": loss}


def ours(train, test, classes: int) -> dict:
    from manyheads.probe.attention_probe import AttentionProbe

    probe = AttentionProbe().fit(train[0], train[2], mask=train[1])
    found = scored(probe.predict_log_proba(test[0], mask=test[1]), test[2])
    setting = (
        f"{probe.num_heads_} heads, positions {probe.positions_}, penalty {probe.penalty_:.0e}"
    )
    return found | {"setting": setting}


def seeds(train, test, classes: int) -> dict:
    """Twenty random starts of the probe that ours chose, as columns of one descent."""
    from manyheads.probe.attention_probe import AttentionProbe
    from manyheads.probe.choice import predicted
    from manyheads.probe.problem import Problem
    from manyheads.probe.sequences import Sequences

    probe = AttentionProbe().fit(train[0], train[2], mask=train[1])
    ours = int(np.sum(probe.predict(test[0], mask=test[1]) != test[2]))
    fit = probe.fit_
    rng = np.random.default_rng(0)
    features = fit.layout.read(Sequences(*train[:2]))
    problem = Problem.of(fit.kind, features, train[1], train[2], classes, 20)
    start = np.zeros((20, problem.shape.size))
    queries = rng.normal(size=(20, fit.kind.heads, problem.shape.features))
    queries *= (fit.kind.spread or 1.0) / np.linalg.norm(queries, axis=2, keepdims=True)
    start[:, : problem.shape.queries] = queries.reshape(20, -1)
    weight = np.full((20, len(features)), 1 / len(features))
    found = problem.minimize(start, weight, np.full(20, fit.penalty), steps=500)
    rest = Problem.of(
        fit.kind, fit.layout.read(Sequences(*test[:2])), test[1], test[2], classes, 20
    )
    wrong = np.sum(predicted(rest.scores(found.theta)) != test[2], axis=1)
    return {"wrong": ours, "count": len(test[2]), "loss": 0.0, "random": sorted(wrong.tolist())}


def rival(name: str):
    """Logistic regression, the better of two by the truth of the test part, and the forest, as the report has them."""

    def run(train, test, classes: int) -> dict:
        from manyheads.probe.report import FLAT, FOREST, MEAN, rivals
        from manyheads.probe.sequences import Sequences

        names = (FOREST,) if name == "forest" else (MEAN, FLAT)
        logs = rivals(Sequences(*train[:2]), train[2], Sequences(*test[:2]), names)
        return min((scored(logs[k], test[2]) for k in logs), key=lambda one: one["wrong"])

    return run


def features(train, test):
    """As ours with positions, and a quarter of the training part to choose on."""
    from manyheads.probe.sequences import LONGEST_POSITIONS, Layout, Sequences

    some = Sequences(*train[:2])
    positions = 1 < some.mask.shape[1] <= LONGEST_POSITIONS
    layout = Layout.measured(some, np.ones(len(train[2])), positions)
    held = np.zeros(len(train[2]), bool)
    for code in np.unique(train[2]):
        held[np.flatnonzero(train[2] == code)[::QUARTER]] = True
    return layout.read(some), layout.read(Sequences(*test[:2])), held


def descended(make, X, mask, codes, rate: float, decay: float, seed: int, steps: int):
    """A module after full-batch AdamW."""
    import torch

    torch.manual_seed(seed)
    module = make()
    optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=decay)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(X, mask), codes).backward()
        optimizer.step()
    return module


def tuned(make, train, test, settings, steps: int, more: int) -> dict:
    """The best setting on the held-out quarter, fitted to all, and again with other seeds."""
    import torch

    torch.set_num_threads(1)
    F, G, held = features(train, test)
    X, Z = (
        torch.tensor(part, dtype=torch.float32)
        for part in (F * np.sqrt(F.shape[2]), G * np.sqrt(F.shape[2]))
    )
    masks = [torch.from_numpy(part[1]) for part in (train, test)]
    codes = torch.from_numpy(train[2])
    use = torch.from_numpy(held)
    began = time.process_time()
    best = (np.inf, 0.0, 0.0)
    for rate, decay in settings:
        module = descended(make(X), X[~use], masks[0][~use], codes[~use], rate, decay, 0, steps)
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(module(X[use], masks[0][use]), codes[use])
        best = min(best, (float(loss.nan_to_num(1e9)), rate, decay))
    results = []
    seconds = 0.0
    for seed in range(1 + more):
        module = descended(make(X), X, masks[0], codes, *best[1:], seed, steps)
        with torch.no_grad():
            logs = torch.log_softmax(module(Z, masks[1]).double(), dim=1).numpy()
        results.append(scored(logs, test[2]))
        seconds = seconds or time.process_time() - began
    again = [one["wrong"] for one in results]
    mean = float(np.mean([one["loss"] for one in results]))
    return results[0] | {"seeds": again, "loss": mean, "seconds": seconds, "setting": str(best[1:])}


def torch_probe(train, test, classes: int) -> dict:
    import torch

    class Probe(torch.nn.Module):
        def __init__(self, dim: int):
            super().__init__()
            self.query = torch.nn.Parameter(torch.randn(8, dim) / dim**0.5)
            self.value = torch.nn.Parameter(torch.zeros(8, dim, classes))

        def forward(self, X, mask):
            S = (X @ self.query.T).masked_fill(~mask[:, :, None], -torch.inf)
            return torch.einsum("nth,ntd,hdo->no", torch.softmax(S, 1), X, self.value)

    settings = [(rate, decay) for rate in RATES for decay in DECAYS]
    return tuned(lambda X: lambda: Probe(X.shape[2]), train, test, settings, STEPS, SEEDS)


def abmil(train, test, classes: int) -> dict:
    """Gated attention of Ilse, Tomczak and Welling (2018), 64 hidden units."""
    import torch
    from torch import nn

    class Gated(nn.Module):
        def __init__(self, dim: int):
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(dim, 64), nn.ReLU())
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
            self.weigh, self.read = nn.Linear(64, 1), nn.Linear(64, classes)

        def forward(self, X, mask):
            E = self.embed(X)
            S = self.weigh(torch.tanh(self.first(E)) * torch.sigmoid(self.second(E)))
            A = torch.softmax(S.masked_fill(~mask[:, :, None], -torch.inf), 1)
            return self.read((A * E).sum(1))

    settings = [(rate, decay) for rate in (3e-3, 1e-3) for decay in (1e-2, 1e-1, 1.0)]
    return tuned(lambda X: lambda: Gated(X.shape[2]), train, test, settings, 150, 2)


def minirocket(train, test, classes: int) -> dict:
    from aeon.transformations.collection.convolution_based import MiniRocket
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    flat = [part[0].transpose(0, 2, 1).reshape(len(part[0]), 1, -1) for part in (train, test)]
    model = make_pipeline(
        MiniRocket(2_000, random_state=0), StandardScaler(), LogisticRegression(C=0.1, max_iter=200)
    )
    if len(flat[0]) > 0:
        flat = [np.swapaxes(part[0] * part[1][:, :, None], 1, 2) for part in (train, test)]
        flat = [part.transpose(0, 2, 1).reshape(len(part), 1, -1) for part in flat]
    return scored(model.fit(flat[0], train[2]).predict_log_proba(flat[1]), test[2])


RUN = {"ours": ours, "seeds": seeds, "logistic": rival("logistic"), "forest": rival("forest")}
RUN |= {"torch": torch_probe, "abmil": abmil, "minirocket": minirocket}


def main(options: argparse.Namespace) -> None:
    """Run what is not there yet."""
    there = set()
    if options.lines.exists():
        rows = [json.loads(line) for line in options.lines.read_text().splitlines()]
        there = {(row["method"], row["set"], row["fold"]) for row in rows}
    import manyheads.probe.report  # noqa: F401 (imports are not timed)

    names = options.sets or sorted(path.stem for path in options.data.glob("*.npz"))
    for fold in options.folds:
        for name in names:
            for method in options.methods:
                fits = name in {"abmil": BAGS, "minirocket": SERIES}.get(method, names)
                if (method, name, fold) in there or not fits:
                    continue
                train, test, classes = load(options.data, name, fold)
                began = time.process_time()
                row = RUN[method](train, test, classes)
                row = {"method": method, "set": name, "fold": fold, **row}
                row.setdefault("seconds", time.process_time() - began)
                with options.lines.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


def beside(rows: list[dict], method: str) -> dict:
    """Means over sets of ours and of a rival, on the folds that both have."""
    ours = {(row["set"], row["fold"]): row for row in rows if row["method"] == "ours"}
    pairs = [(ours.get((r["set"], r["fold"])), r) for r in rows if r["method"] == method]
    pairs = [(one, other) for one, other in pairs if one]
    names = sorted({other["set"] for _, other in pairs})
    entry: dict = {"sets": len(names), "folds": len(pairs)} if pairs else {}
    for which, name in enumerate(("ours", method) if pairs else ()):
        shares, losses = [], []
        for one in names:
            mine = [pair[which] for pair in pairs if pair[1]["set"] == one]
            count = sum(row["count"] for row in mine)
            again = [np.mean(row.get("seeds", [row["wrong"]])) for row in mine]
            shares.append(1 - sum(again) / count)  # a mean over seeds where there are several
            losses.append(sum(row["loss"] * row["count"] for row in mine) / count)
        seconds = sum(pair[which]["seconds"] for pair in pairs)
        entry[name] = {"accuracy": float(np.mean(shares)), "loss": float(np.mean(losses))}
        entry[name]["seconds"] = seconds
    return entry


def table(lines: Path, result: Path) -> None:
    """Shares of errors with exact intervals, losses and seconds of a fold, as one JSON; a table to the screen."""
    from scipy.stats import binomtest

    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    found: dict = {}
    for name in sorted({row["set"] for row in rows}):
        for method in METHODS:
            mine = [row for row in rows if (row["set"], row["method"]) == (name, method)]
            if not mine:
                continue
            wrong, count = (sum(row[key] for row in mine) for key in ("wrong", "count"))
            interval = binomtest(wrong, count).proportion_ci()
            entry = {"folds": len(mine), "count": count, "accuracy": 1 - wrong / count}
            entry["interval"] = [1 - interval.high, 1 - interval.low]
            entry["loss"] = float(
                np.average([r["loss"] for r in mine], weights=[r["count"] for r in mine])
            )
            entry["seconds"] = float(np.mean([row["seconds"] for row in mine]))
            again = [row.get("seeds") or row.get("random") for row in mine]
            if all(again):
                by_seed = 1 - np.sum(again, axis=0) / count
                spread = {"mean": by_seed.mean(), "least": by_seed.min(), "best": by_seed.max()}
                entry["seeds"] = {key: float(value) for key, value in spread.items()}
                entry["median_seed"] = float(np.median(by_seed))
            found.setdefault(name, {})[method] = entry
    both = {method: beside(rows, method) for method in METHODS if method != "ours"}
    both = {method: entry for method, entry in both.items() if entry}
    result.write_text(json.dumps({"sets": found, "ours beside": both}, indent=1) + "\n")
    for method, entry in both.items():
        print(f"ours beside {method}: {json.dumps(entry)}")
    for name, methods in found.items():
        words = [
            f"{m} {e['accuracy']:.3f} {e['loss']:.3f} {e['seconds']:.1f}s"
            for m, e in methods.items()
        ]
        print(f"{name:<22}", " | ".join(words))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", nargs=2, type=Path)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("lines", nargs="?", type=Path)
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=["ours"])
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--folds", nargs="*", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table(*options.table) if options.table else main(options)
