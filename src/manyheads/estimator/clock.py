"""How long a plan or a fit takes and how much memory: said before it begins, and what is left along the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from manyheads.data.budget import duration, processors
from manyheads.data.dataset import Dataset

LONG = 10.0  # seconds from which on an estimate is given
FLOP_SECONDS = 1e-10  # of a core, measured on trial runs of 1,000 sequences
STEP_SECONDS = 1e-3  # of a step with few sequences
COMPILE_SECONDS = 3.0  # of a core, for one kind of run
THEORY_SECONDS = 0.01  # for each sequence looked at, where the theory has an answer
TRUSTED = 0.5  # share of all work that the estimate counts for, beside what was measured


class Clock:
    """Passes on what is done, with the time left: `stages` are the first words of what will be told, and seconds.

    The estimate of what is left is corrected by how long the stages before have taken, as if half of all work had been
    done before at the speed that was estimated: the first stages are short, of another kind than those to come, and may
    take several times as long as expected without saying much about these.
    """

    def __init__(
        self,
        stages: Sequence[tuple[str, float]],
        tell: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ):
        self.stages, self.tell, self.now = list(stages), tell, now
        self.at, self.began = -1, now()

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.stages)

    def estimate(self, what: str, size: float) -> str:
        """What is ahead, if it is long; else nothing."""
        if self.total <= LONG:
            return ""
        return f"{what}: about {duration(self.total)} and {size / 2**30:.2g} GiB of memory; Ctrl-C stops"

    def __call__(self, text: str) -> None:
        ahead = (
            k for k in range(self.at + 1, len(self.stages)) if text.startswith(self.stages[k][0])
        )
        self.at = next(ahead, self.at)
        done = sum(seconds for _, seconds in self.stages[: max(self.at, 0)])
        trusted = TRUSTED * self.total
        speed = (self.now() - self.began + trusted) / (done + trusted) if done else 1.0
        left = speed * (self.total - done)
        self.tell(
            f"{text} (about {duration(left)} left)" if self.total > LONG and left >= 1 else text
        )


def memory(dataset: Dataset, looked_at: int) -> float:
    """Bytes: the tokens in double precision twice, and the tangent kernel with what its margin needs."""
    return 16.0 * dataset.tokens.size + 6 * 8.0 * looked_at**2


def run_seconds(
    steps: float, num: int, dataset: Dataset, classes: float, itemsize: int = 8
) -> float:
    """Time of that many steps on `num` sequences, with all cores; half of it in float32, with an itemsize of 4."""
    T, d, each = dataset.num_tokens, dataset.dim, FLOP_SECONDS * itemsize / 8
    step = max(
        STEP_SECONDS, num * classes * (4.0 * T * d * d + 8.0 * T * T * d) * each / processors()
    )
    return COMPILE_SECONDS + steps * step


def search_stages(
    dataset: Dataset, num: int, candidates: Sequence[tuple[str, float]]
) -> list[tuple[str, float]]:
    """What `recommend` does with `num` sequences."""
    trials = [
        (
            "trying",
            run_seconds(1300, num, dataset, heads if kind == "gaussian" else min(heads, 2), 4),
        )
        for kind, heads in candidates
    ]
    last = ("training on all", max((seconds for _, seconds in trials), default=LONG) / 2)
    return [
        *trials,
        last,
        ("logistic regression", 1.0 + 1e-7 * num * dataset.num_tokens * dataset.dim),
    ]


def plan_stages(
    dataset: Dataset,
    num: int,
    advised: int,
    candidates: Sequence[tuple[str, float]],
    classes: Sequence[int],
) -> list[tuple[str, float]]:
    """What `plan` does: margins on `num` sequences, trial runs, a recommendation on `advised`."""
    margins = ("margins", COMPILE_SECONDS + 3.5e-6 * num**2)
    trials = [("trial run", run_seconds(1000, num, dataset, count)) for count in classes]
    theory = ("what the theory asks", 1.0 + THEORY_SECONDS * num)
    return [margins, theory, *trials, *search_stages(dataset, advised, candidates)]
