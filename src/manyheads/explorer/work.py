"""One question of the page, answered by the library in a process of its own: `python -m manyheads.explorer.work KIND`.

Standard input holds the length of the question in eight bytes, then the question. When standard input closes, the
server is gone and the process exits, whatever it is doing. The answer is lines of JSON on standard output:
`{"progress": text}`, and last the answer or `{"error": text}`.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import sys
import tempfile
import threading
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyheads._lazy import lazy
from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.data.planted import Planted, RandomLabels

jax = lazy("jax")
MOST_NUMBERS = 500_000  # of a file that the page can hold
MOST_BYTES = 2**28  # of a file when unpacked
CERTIFIED = 0.5  # mean train loss for which the number of heads that Theorem 1 needs is computed
READOUT, TANGENT = "readout scale: ", "tangent scale: "
NEEDED = "thm1: number of heads from which it applies"


class Question(NamedTuple):
    """A run of the page as objects of the library."""

    data: Dataset
    test: Dataset | None
    start: Any
    mixture: TokenizedMixture | None
    plan: dict


def tell(line: str) -> None:
    """Progress, for the page."""
    _say({"progress": line})


def certify(body: bytes) -> dict:
    """All statements about the run."""
    import manyheads as mh

    asked = _question(body)
    run = _trained(asked)
    radius = None if asked.mixture is None else asked.mixture.token_radius
    found = mh.certify(
        run, asked.data, test=asked.test, mixture=asked.mixture, token_radius=radius, progress=tell
    )
    cards = [
        {"verdict": c.verdict.name, "title": f"{c.statement}: {c.claim}", "lines": [c.reason]}
        for c in found
    ]
    tally = Counter(card["verdict"] for card in cards)
    return {
        "title": f"{asked.data}",
        "tally": {name: tally[name] for name in ("HOLDS", "VIOLATED", "SILENT")},
        "cards": cards,
    }


def good_start(body: bytes) -> dict:
    """P1, P2, P3 with numbers, and the number of heads from which Theorem 1 applies."""
    import manyheads as mh
    from manyheads.theory.targets import mixture_direction

    asked = _question(body)
    tell("measuring the start")
    loss = asked.plan.get("loss", "logistic")
    good = mh.good_start(asked.start, asked.data, loss=loss)
    cards = [
        {
            "verdict": c.verdict.name,
            "title": f"{c.statement}: {c.claim}",
            "lines": [h.text] if h.holds else [h.text, h.remedy],
        }
        for c, h in zip(good.certificates(), good.hypotheses(), strict=True)
    ]
    tell("searching for the number of heads from which Theorem 1 applies")
    have = asked.start.num_heads
    try:
        directions = [good.theta_star()]
        if asked.mixture is not None:
            directions.append(mixture_direction(asked.start, asked.mixture))
        found = mh.smallest_heads(
            asked.start, asked.data, directions, certified=CERTIFIED, loss=loss
        )
        enough = have >= found.num_heads
        lines = [
            f"A mean train loss below {CERTIFIED:g} needs {np.ceil(found.num_heads):,.0f} heads; you have {have:,.0f}."
        ]
        steps, step = found.case.num_steps, found.case.step_size
        lines.append(
            f"It is certified for {steps:,.0f} steps of size {step:.3g}, along {found.direction.name}."
        )
        cards.append(
            {
                "verdict": "HOLDS" if enough else "SILENT",
                "title": NEEDED,
                "lines": lines,
            }
        )
    except ValueError as error:
        cards.append({"verdict": "SILENT", "title": NEEDED, "lines": [str(error)]})
    return {"title": f"{asked.start}", "cards": cards}


def margins(body: bytes) -> dict:
    """The ladder of hard margins of the trained model."""
    import manyheads as mh

    asked = _question(body)
    run = _trained(asked)
    tell("measuring hard margins")
    ladder = mh.margin_ladder(
        run.final, asked.data, start=asked.start, mixture=asked.mixture, key=jax.random.key(0)
    )
    low, high = ladder.tangent.p3_interval
    rows = [(READOUT + "best linear classifier", str(ladder.linear))]
    if ladder.attention is not None:
        rows.append((READOUT + "attention on relevant tokens only", str(ladder.attention)))
    if ladder.iterate is not None:
        rows.append((READOUT + "this model", f"{ladder.iterate:.6g}"))
    rows += [
        (READOUT + "best found by search", f"at least {ladder.found.lower:.6g}"),
        (TANGENT + "best direction (P3)", f"in [{low:.6g}, {high:.6g}]"),
    ]
    if ladder.along_star is not None:
        rows.append((TANGENT + "along the paper's direction", f"{ladder.along_star:.6g}"))
    return {"title": "Numbers on different scales cannot be compared.", "cards": [], "rows": rows}


def draw(body: bytes) -> dict:
    """Data of the library's own generator for the settings of the page, with the code that makes them."""
    s = json.loads(body)
    seed = int(s["seed"])
    counts = {
        part: int(s[name]) for part, name in (("fresh", "nFresh"), ("data", "n"), ("test", "nTest"))
    }
    keys = jax.random.split(jax.random.key(seed), 5)
    task, made = _source(s, keys[0])
    lines = [f"keys = jax.random.split(jax.random.key({seed}), 5)", f"task = mh.{made}"]
    parts: dict[str, Dataset | None] = {}
    for place, (part, count) in enumerate(counts.items(), 1):
        parts[part] = task.sample(count, key=keys[place]) if count else None
        lines.append(
            f"{part} = task.sample({count}, key=keys[{place}])" if count else f"{part} = None"
        )
    data = parts["data"]
    assert data is not None
    told: dict[str, Any] = {
        "train" if place == "data" else place: None if part is None else _lists(part)
        for place, part in parts.items()
    }
    told |= {
        "name": data.name,
        "recipe": "\n".join(lines),
        "mixture": _facts(task) if isinstance(task, TokenizedMixture) else None,
    }
    if s["start"] == "gaussian":
        from manyheads.training.start import gaussian_start

        scale = float(s["scale"])
        start = gaussian_start(
            int(s["heads"]),
            num_tokens=data.num_tokens,
            dim=data.dim,
            decoder=str(s["decoder"]),
            key=keys[4],
            key_query_scale=scale,
            readout_scale=scale,
        )
        told["start"] = {
            "keyQuery": np.asarray(start.key_query).tolist(),
            "readout": np.asarray(start.readout).tolist(),
            "multiplicity": start.multiplicity.tolist(),
            "decoder": start.decoder,
            "exponent": start.exponent,
        }
    return {
        "text": f"Drawn by the library with seed {seed}; Python code is now a few lines.",
        "data": told,
    }


def upload(body: bytes, name: str) -> dict:
    """A file of the user as a dataset."""
    suffix = Path(name).suffix.lower()
    if suffix == ".csv":
        data = read_csv(body, name)
    elif suffix == ".npz":
        data = _read_npz(body, name)
    else:
        raise ValueError(f"{name} is neither an .npz nor a .csv file; drop one of these.")
    if data.tokens.size > MOST_NUMBERS:
        raise ValueError(
            f"{name} holds {data.tokens.size:,} numbers; the page takes up to {MOST_NUMBERS:,}. "
            "Keep fewer sequences here, or use `manyheads train`."
        )
    return {
        "text": f"{data}",
        "data": {**_lists(data), "name": data.name, "labelNames": list(data.label_names)},
    }


def read_csv(body: bytes, name: str) -> Dataset:
    """Tokens as rows: columns `sequence`, `label`, optionally `relevant`, and one for each number of a token."""
    try:
        rows = list(csv.reader(io.StringIO(body.decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{name} is not a readable .csv file ({error}); save it as UTF-8 text."
        ) from None
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if not {"sequence", "label"} <= set(header) or len(header) < 3:
        raise ValueError(
            f"{name} starts with {', '.join(header[:4]) or 'nothing'}; it needs a first line with the columns "
            "sequence, label and one for each number of a token."
        )
    numbers = [k for k, cell in enumerate(header) if cell not in ("sequence", "label", "relevant")]
    sequences: dict[str, list] = {}
    for place, row in enumerate((r for r in rows[1:] if r), 2):
        try:
            token = [float(row[k]) for k in numbers]
            flag = (
                row[header.index("relevant")].strip() in ("1", "true", "True")
                if "relevant" in header
                else False
            )
            sequences.setdefault(row[header.index("sequence")], []).append(
                (token, row[header.index("label")], flag)
            )
        except (ValueError, IndexError):
            raise ValueError(
                f"line {place} of {name} has {len(row)} cells that do not match the columns of the first line; fix it."
            ) from None
    if not sequences:
        raise ValueError(f"{name} has a header line but no tokens; add one line for each token.")
    T, d = max(map(len, sequences.values())), len(numbers)
    tokens, mask = np.zeros((len(sequences), T, d)), np.zeros((len(sequences), T), bool)
    relevant, labels = np.zeros_like(mask), []
    for i, (which, found) in enumerate(sequences.items()):
        if len({label for _, label, _ in found}) > 1:
            raise ValueError(
                f"sequence {which[:40]} of {name} has several labels; give all its tokens one."
            )
        labels.append(found[0][1])
        mask[i, : len(found)] = True
        tokens[i, : len(found)] = [token for token, _, _ in found]
        relevant[i, : len(found)] = [flag for _, _, flag in found]
    marked = relevant if "relevant" in header else None
    return Dataset.from_arrays(
        tokens, labels, mask=None if mask.all() else mask, relevant=marked, name=Path(name).stem
    )


def _read_npz(body: bytes, name: str) -> Dataset:
    try:
        size = sum(part.file_size for part in zipfile.ZipFile(io.BytesIO(body)).infolist())
    except zipfile.BadZipFile:
        raise ValueError(
            f"{name} is not a readable .npz file; write it with numpy.savez."
        ) from None
    if size > MOST_BYTES:
        raise ValueError(
            f"{name} unpacks to {size / 2**20:,.0f} MiB; at most {MOST_BYTES / 2**20:.0f} MiB are read here."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        path.write_bytes(body)
        try:
            data = Dataset.load(path)
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), name)) from None
    named = data.name if data.name != "data" else Path(name).stem
    return Dataset(data.tokens, data.labels, data.mask, data.relevant, data.label_names, named)


def _question(body: bytes) -> Question:
    told = json.loads(body)
    data, start = _dataset(told["train"]), told["start"]
    from manyheads.model.attention import MultiHead

    classes, (T, d) = int(start["classes"]), data.tokens.shape[1:]
    shape = (classes, T, d) if start["decoder"] == "full" else (classes, d)
    model = MultiHead.create(
        _array(start["key_query"], (classes, d, d)),
        _array(start["readout"], shape),
        multiplicity=start["multiplicity"],
        decoder=start["decoder"],
    )
    mixture = None
    if told["mixture"] is not None and start["decoder"] == "full":
        facts = dict(told["mixture"])
        frame = np.array(facts.pop("frame"), float)
        mixture = TokenizedMixture(**facts, frame="axis")
        mixture.__dict__["_frame"] = frame  # the page's rotation in place of the one of a key
    return Question(
        data, _dataset(told["test"]) if told["test"] else None, model, mixture, told["plan"]
    )


def _trained(asked: Question):
    import manyheads as mh

    tell(f"training {asked.plan['num_steps']:,} steps with the library")
    return mh.train(asked.start, asked.data, dtype="float64", **asked.plan)


def _dataset(told: dict) -> Dataset:
    shape = tuple(map(int, told["shape"]))
    mask, relevant = (
        None if told[k] is None else np.array(told[k], bool).reshape(shape[:2])
        for k in ("mask", "relevant")
    )
    tokens = _array(told["tokens"], shape)
    data = Dataset.from_arrays(
        tokens, told["labels"], mask=mask, relevant=relevant, name="the page's data"
    )
    names = (str(told["label_names"][0]), str(told["label_names"][1]))
    return Dataset(data.tokens, data.labels, data.mask, data.relevant, names, data.name)


def _array(text: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f8").reshape(shape)


def _source(s: dict, key) -> tuple[Any, str]:
    """A data source of the library and the code for it."""
    shape = {"num_tokens": int(s["T"]), "dim": int(s["d"])}
    if s["data"] == "random":
        made, settings, random = RandomLabels, {**shape, "token_norm": float(s["tokenNorm"])}, False
    elif s["data"] == "planted":
        teacher = {
            "teacher_heads": int(s["teacherHeads"]),
            "margin": float(s["margin"]),
            "teacher_scale": float(s["teacherScale"]),
        }
        made, settings, random = Planted, {**shape, **teacher}, True
    else:
        noise = {
            "noise_mu": float(s["noise"]),
            "noise_nu": float(s["noise"]),
            "noise_norm": float(s["noiseNorm"]),
        }
        mixture = {
            "num_patterns": int(s["M"]),
            "sparsity": int(s["relevant"]) / int(s["T"]),
            "signal": float(s["signal"]),
        }
        made, settings, random = TokenizedMixture, {**shape, **mixture, **noise}, True
    code = ", ".join(
        [f"{name}={value!r}" for name, value in settings.items()]
        + (["key=keys[0]"] if random else [])
    )
    return made(**settings, key=key) if random else made(**settings), f"{made.__name__}({code})"


def _facts(task: TokenizedMixture) -> dict:
    told = {"T": task.num_tokens, "d": task.dim, "M": task.num_patterns, "sparsity": task.sparsity}
    noise = {"noiseMu": task.noise_mu, "noiseNu": task.noise_nu, "noiseNorm": task.noise_norm}
    return {**told, **noise, "signal": task.signal, "frame": task._frame.tolist()}


def _lists(data: Dataset) -> dict:
    flags = {
        name: None if (array := getattr(data, name)) is None else array.tolist()
        for name in ("mask", "relevant")
    }
    return {"tokens": data.tokens.tolist(), "labels": data.labels.tolist(), **flags}


def _say(line: dict) -> None:
    print(json.dumps(line), flush=True)


def _end_with_the_server() -> None:
    sys.stdin.buffer.read(1)  # nothing more is sent, so this returns only when the server is gone
    os._exit(1)


KINDS = {"certify": certify, "good-start": good_start, "margins": margins, "draw": draw}


def main(arguments: list[str]) -> int:
    """Answer the question of that kind; `upload` takes the file's name too."""
    kind, *rest = arguments
    length = int.from_bytes(sys.stdin.buffer.read(8), "big")
    body = sys.stdin.buffer.read(length)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    try:
        _say(upload(body, rest[0]) if kind == "upload" else KINDS[kind](body))
    except (ValueError, OSError, MemoryError) as error:
        _say({"error": " ".join(str(error).split())})
    except Exception as error:  # the page shows it, and the server keeps running
        _say(
            {
                "error": f"a bug in manyheads: {type(error).__name__}: {' '.join(str(error).split())}; please report it."
            }
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
