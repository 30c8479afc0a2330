r"""Theorem W: how long attention sleeps, proved before the run for every number of heads.

A head's readout moves by at most $aG/\sqrt H$ and its key-query matrix by $w(\|U_h\|G/\sqrt
H+aG^2/2H)$, where $G$ is the sum of $\eta\,\frac1n\sum_i|\ell'_i|$ over the steps. Where uniform
attention separates the data by a margin $\gamma$, that sum grows like $\log k$ only:
$\gamma^2G/2\le\log(\eta k/G)$. So from the zero start attention cannot move by a share $\delta$
before about $e^{c\sqrt{H\delta}}$ steps. Proof: docs/theory/sleep.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from manyheads import _check
from manyheads._check import check, positive
from manyheads.data import dataset as datasets
from manyheads.data.dataset import is_dataset
from manyheads.measures import margin as margins
from manyheads.model.attention import is_multi_head
from manyheads.theory import shift as shifts
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.deora2023.setting import require_scope
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.manyheads2026.region import ENLARGE
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis
from manyheads.training import start as starts

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead
    from manyheads.theory.examination import Examination


SHARES = np.geomspace(
    1e-6, 0.5, 400
)  # shares of moved attention among which a run's bound is searched
# the most that are promised; more would overflow
MOST_STEPS = 1e300
LARGEST = math.log(MOST_STEPS)


@dataclass(frozen=True)
class Sleep:
    r"""For `steps` steps of descent no head moves more than the share `moved` of any query's attention.

    `travel` is the $G$ that this movement takes, `margin` is $\gamma_\delta$, the margin of uniform
    attention less what the movement can take from it, and `step_limit` the largest step size for
    which it is proved. `normalized_steps` is the same for normalized descent, whose steps have the
    length `step_size`. Both are 0 if nothing is proved.
    """

    moved: float
    num_heads: float
    step_size: float
    travel: float
    margin: float
    step_limit: float
    offset: float  # B: by how much the starting scores may help

    @property
    def steps(self) -> float:
        r"""$\frac G\eta e^{\gamma^2G/2-B}$, rounded down."""
        if not (self.margin > 0 and self.step_size <= self.step_limit):
            return 0.0
        logarithm = (
            math.log(self.travel / self.step_size) + self.margin**2 * self.travel / 2 - self.offset
        )
        return (
            float(math.floor(math.exp(logarithm) * (1 - ENLARGE)))
            if logarithm < LARGEST
            else MOST_STEPS
        )

    @property
    def normalized_steps(self) -> float:
        if not self.margin > 0:
            return 0.0
        return float(
            math.floor(min(self.margin * self.travel / self.step_size * (1 - ENLARGE), MOST_STEPS))
        )

    @property
    def reason(self) -> str:
        """Why nothing is proved, and what would help; empty if something is."""
        if not self.margin > 0:
            return "uniform attention does not separate the data by enough; ask for a smaller movement, or other data"
        if self.step_size > self.step_limit:
            return f"the step size {self.step_size:g} is above {self.step_limit:.3g}; use a smaller one"
        return "" if self.steps else "attention may move at the first step; use a smaller step size"

    def __str__(self) -> str:
        heads = f"{self.num_heads:,.15g} {'head' if self.num_heads == 1 else 'heads'}"
        if self.reason:
            return (
                f"With {heads} and step size {self.step_size:g} nothing is promised: {self.reason}."
            )
        first = "first step" if self.steps == 1 else f"first {_count(self.steps)} steps"
        return (
            f"With {heads} and step size {self.step_size:g}, no query moves more than "
            f"{self.moved:g} of its attention "
            f"in the {first} of gradient descent."
        )


def _count(steps: float) -> str:
    return f"{steps:,.0f}" if steps < 1e6 else f"10^{math.floor(math.log10(steps))}"


class Uniform:
    """What the theorem needs from the data under uniform attention, and from the start."""

    def __init__(self, start: MultiHead, dataset: Dataset):
        X, y = dataset.tokens.astype(float), dataset.labels.astype(float)
        n, T, _ = X.shape
        mean = X.mean(axis=1)
        found = margins.hard_margin(y, features=mean)
        direction = np.asarray(found.direction, float)
        length = np.linalg.norm(direction)
        along = X @ (direction / length if length > 0 else direction)
        self.signed, self.range = y * along.mean(axis=1), np.ptp(along, axis=1)
        gaps = np.linalg.norm(X[:, :, None] - X[:, None], axis=-1)
        self.diameter = gaps.max(axis=(1, 2))
        centered = X - mean[:, None]
        self.variance = np.linalg.eigvalsh(centered.transpose(0, 2, 1) @ centered / T)[:, -1]
        self.largest = np.linalg.norm(X, 2, axis=(1, 2))
        self.norm, self.mean_norm = (
            np.linalg.norm(X, axis=2).max(axis=1),
            np.linalg.norm(mean, axis=1),
        )
        self.reach = float(np.max(self.norm * self.diameter))
        self.second_moment = float(np.linalg.norm(mean, 2) ** 2 / n)
        self.root_tokens = math.sqrt(T)
        self.num_heads, counts = start.num_heads, np.asarray(start.multiplicity, float)
        readout = np.asarray(start.readout, float)
        self.readout_norm = float(np.sqrt(np.sum(readout**2, axis=(1, 2))).max())
        self.rows = float(counts @ np.linalg.norm(readout, axis=2).sum(axis=1)) / math.sqrt(
            self.num_heads
        )
        self.worst_score = float(np.max(-y * np.asarray(start.scores(dataset), float)))

    def sleep(self, moved: float, step_size: float) -> Sleep:
        r"""The promise for a share $\delta$ of a query's attention."""
        root, H = self.root_tokens, self.num_heads
        margin = root * float(np.min(self.signed - moved * self.range)) * (1 - ENLARGE)
        a, w = self.constants(moved)
        needed = 4 * math.atanh(moved) / self.reach if self.reach else math.inf
        linear, square = w * self.readout_norm / math.sqrt(H), w * a / (2 * H)
        travel = (
            2 * needed / (linear + math.sqrt(linear**2 + 4 * square * needed))
            if square
            else math.inf
        )
        smoothness = (root * math.sqrt(self.second_moment) + self.added(moved)) ** 2
        limit, offset = 2 / smoothness, moved * float(self.diameter.max()) * self.rows
        both = 2 / (smoothness + (w * (self.readout_norm + a * travel / math.sqrt(H))) ** 2)
        if step_size <= both * (1 - ENLARGE):
            bent = (
                float(np.max((self.diameter / 2) ** 3 * self.norm**2)) * self.rows * needed**2 / 2
            )
            offset = min(offset, w * a * travel * needed + bent)
        offset += self.worst_score + ENLARGE * (abs(self.worst_score) + offset)
        return Sleep(
            moved, H, step_size, travel * (1 - ENLARGE), margin, limit * (1 - ENLARGE), offset
        )

    def longest(self, moved: float, step_size: float) -> Sleep:
        r"""The promise that lasts longest for a share of at most $\delta$, which is a promise for $\delta$ too."""
        shares = [moved, *SHARES[SHARES < moved]]
        return max(
            (self.sleep(float(share), step_size) for share in shares),
            key=lambda promise: promise.steps,
        )

    def constants(self, moved: float) -> tuple[float, float]:
        r"""$a$ and $w$: how fast a readout and a key-query matrix can move per unit of $G$."""
        a = self.root_tokens * float(np.max(self.mean_norm + moved * self.diameter))
        w = float(np.max(self.largest * (self.variance + moved * self.diameter**2)))
        return a * (1 + ENLARGE), w * (1 + ENLARGE)

    def added(self, moved: float) -> float:
        """What the movement can add to the root mean square norm of the features."""
        return self.root_tokens * moved * math.sqrt(float(np.mean(self.diameter**2)))

    def least_movement(self, step_size: float, num_steps: int) -> Sleep | None:
        """The smallest movement in `SHARES` that this many steps are proved not to exceed; None if there is none."""
        found = (self.sleep(float(share), step_size) for share in SHARES)
        return next((promise for promise in found if promise.steps >= num_steps), None)


def _unmet(start: MultiHead, dataset: Dataset) -> list[Hypothesis]:
    W = start.key_query
    uniform = not isinstance(W, tuple) and not np.any(np.asarray(W))
    needed = [
        Hypothesis(
            "full readout", start.decoder == "full", "Theorem W is proved for the full readout"
        ),
        Hypothesis(
            "attention starts uniform (W = 0)",
            uniform,
            "use the zero start or the first-phase start",
        ),
        Hypothesis(
            "sequences of one length", dataset.mask is None, "Theorem W is proved without masks"
        ),
    ]
    return [hypothesis for hypothesis in needed if not hypothesis.holds]


@check(start=is_multi_head, dataset=is_dataset, step_size=positive, moved=_check.share)
def attention_sleep(
    start: MultiHead, dataset: Dataset, *, step_size: float, moved: float = 0.05
) -> Sleep:
    """For how many steps of gradient descent from `start` no query moves more than the share `moved` of its attention.

    Proved before the run, for the logistic loss and starts with uniform attention (zero, first
    phase). Where a smaller share is proved not to move for longer, that promise is returned: its
    `moved` is at most the share asked for.
    """
    require_scope(start)
    for hypothesis in _unmet(start, dataset):
        raise ValueError(
            f"the start or the data do not have: {hypothesis.text}; {hypothesis.remedy}."
        )
    return Uniform(start, dataset).longest(moved, step_size)


def certify_sleep(work: Examination) -> list[Certificate]:
    """The largest share of a query's attention that moved during the run, against the share that the theorem allows."""
    start, data = work.run.start, work.dataset
    claim = "largest share of a query's attention that moved"
    logistic = Hypothesis(
        "logistic loss", work.loss.name == "logistic", "Theorem W is proved for the logistic loss"
    )
    unmet = [h for h in (logistic, *_unmet(start, data)) if not h.holds]
    promise = None
    if not unmet:
        uniform = Uniform(start, data)
        promise = uniform.least_movement(work.step_size, work.num_steps)
        most = max(uniform.sleep(float(share), work.step_size).steps for share in SHARES[::20])
        told = f"the run has at most the {most:,.0f} steps for which something is promised"
        unmet = [
            Hypothesis(
                told, promise is not None, "use more heads, fewer steps or a smaller step size"
            )
        ]
    if promise is None:
        return [Certificate("sleep", claim, math.nan, (Bound(OURS, math.nan, tuple(unmet)),))]
    seen = shifts.attention_shift(start, data, step_size=work.step_size, num_steps=work.num_steps)
    details = {
        "margin of uniform attention": promise.margin,
        "travel allowed": promise.travel,
        "travel measured": float(seen.travel[-1]),
    }
    return [
        Certificate(
            "sleep", claim, float(seen.moved.max()), (Bound(OURS, promise.moved),), details=details
        )
    ]


def add_run(
    tally: Tally, start: MultiHead, data: Dataset, share: float, step_size: float, most: int
) -> dict[str, float]:
    """One run for as long as it is proved to sleep (at most `most` steps), with every inequality of the proof."""
    uniform = Uniform(start, data)
    promise = uniform.sleep(share, step_size)
    steps = int(min(promise.steps, most))
    if steps < 1:
        return {}
    seen = shifts.attention_shift(
        start, data, step_size=step_size, num_steps=most
    )  # one length, compiled once
    seen = seen._replace(
        **{name: getattr(seen, name)[: steps + 1] for name in seen._fields if name != "walk"}
    )
    a, w = uniform.constants(share)
    G, H, k = seen.travel[1:], start.num_heads, np.arange(1, steps + 1)
    log = np.log(step_size * k / G) + promise.offset
    with np.errstate(invalid="ignore"):
        parts = {
            "readout of a head": (seen.readout[1:], a * G / math.sqrt(H)),
            "key-query of a head": (
                seen.key_query[1:],
                w * (uniform.readout_norm * G / math.sqrt(H) + a * G**2 / (2 * H)),
            ),
            "all readouts": (seen.total_readout[1:], np.sqrt(2 * G * log)),
            "travel": (promise.margin**2 * G / 2, log),
            "attention": (seen.moved[1:], np.tanh(uniform.reach * seen.key_query[1:] / 4)),
        }
    noise = 1e-12
    for measured, bound in parts.values():
        worst = int(np.argmax(measured - bound))
        tally.add(measured[worst], bound[worst], noise=noise)
    tally.add(float(seen.moved.max()), share, noise=noise)
    known = {
        name: (m[b > 0], b[b > 0]) for name, (m, b) in parts.items()
    }  # nothing has moved after one step
    shares = {name: float(np.max(m / b, initial=0.0)) for name, (m, b) in known.items()}
    return shares | {"movement": float(seen.moved.max()) / share}


def extremal(spread: float) -> Dataset:
    """Two sequences of two nearly equal tokens on one line: every inequality of the proof is nearly attained."""
    labels = np.array([1.0, -1.0])
    return datasets.Dataset(
        labels[:, None, None] * np.array([[1 + spread, 0.0], [1 - spread, 0.0]]), labels
    )


def check_sleep(effort: Effort) -> Finding:
    """Runs for as long as they are proved to sleep, from both starts, and on tokens chosen by ascent to break it."""
    # which tries this bound
    from manyheads.theory.manyheads2026 import sleep_attack as attacks

    tally, best = Tally(), {}
    cases = [
        (share, heads) for heads in (1.0, 8.0, 64.0, 1024.0, 1e5, 1e8) for share in (0.02, 0.1, 0.2)
    ]
    for k in range(effort.count(90, 1)):
        _, data, fresh = small_problem(effort.seed + k)
        for j, (share, heads) in enumerate(cases if not effort.quick else cases[1::6]):
            flat = (j + k) % 2 == 0
            start = (
                starts.zero_start(heads, num_tokens=data.num_tokens, dim=data.dim)
                if flat
                else starts.first_phase(fresh, heads)
            )
            limit = Uniform(start, data).sleep(share, 1.0).step_limit
            found = add_run(tally, start, data, share, limit * (1.0, 0.5, 0.1)[j % 3], 300)
            best |= {name: max(best.get(name, 0.0), value) for name, value in found.items()}
    data, start = extremal(0.05), starts.zero_start(100.0, num_tokens=2, dim=2)
    for share, part in ((1e-6, 0.1), (1e-5, 1.0)):
        step = part * Uniform(start, data).sleep(share, 1.0).step_limit
        found = add_run(tally, start, data, share, step, 300)
        best |= {name: max(best.get(name, 0.0), value) for name, value in found.items()}
    found = attacks.attacked(tally, effort)
    best |= {name: max(best.get(name, 0.0), value) for name, value in found.items()}
    return tally.finding(
        "largest shares: " + ", ".join(f"{name} {value:.3f}" for name, value in best.items())
    )


SLEEP = Statement(
    id="sleep",
    place="ours, Theorem W",
    title="attention does not move for a computed number of steps, exp(c √H) from the zero start",
    ours="if W_h(0) = 0 for every head, uniform attention separates the data with margin γ_δ = √T min_i(y_i⟨x̄_i,v⟩ − "
    "δ range_s⟨x_s,v⟩) > 0 and η ≤ 2/λ_δ, then for k ≤ (G/η)exp(γ_δ²G/2 − B) no query of any head "
    "moves more than δ "
    "of its attention, where w(‖U_h(0)‖G/√H + aG²/2H) = 4 artanh(δ)/max‖x_t‖diam(X); from the zero "
    "start B = 0 and "
    "G grows like √(Hδ); normalized descent: k ≤ γ_δ G/η",
    proof="docs/theory/sleep.md#theorem-w",
    tightness=0.65,
    remark="of δ has moved at the last step promised, on nearly equal tokens; every inequality of the proof along runs "
    "from both starts, and on tokens chosen by ascent",
    check=check_sleep,
    about=certify_sleep,
    on_request=True,
    aliases=("theorem-w",),
    used_by=("certify",),
)
