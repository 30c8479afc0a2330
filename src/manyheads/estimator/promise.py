"""What a plan promises, as a file: enough to make the same start on the same sequences again, and to check the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from manyheads.data.dataset import Dataset
from manyheads.data.door import guarded
from manyheads.data.files import checked_path, read_json, write_json
from manyheads.estimator.sharp import Proved, Sharp, proved
from manyheads.model.attention import MultiHead
from manyheads.model.loss import get_loss
from manyheads.theory.deora2023.planner import NAMES, OURS, Plan, planned_parts
from manyheads.training.resume import fingerprint

KIND = "manyheads plan"
STATEMENT, FORECAST = (
    "thm1.sharp",
    "forecast",
)  # what certifies a promise: of the plan's start, of a sharp one
PRACTICAL = 10**5  # heads; where Theorem 1 asks for more, the forecast is tried


@dataclass(frozen=True)
class Settings:
    """Heads, step size and steps, and the train loss that they are said to reach."""

    num_heads: float
    step_size: float
    num_steps: int
    loss: float


def instead_of(
    plan: Plan,
    dataset: Dataset,
    *,
    seed: int,
    key: jax.Array,
    planning_share: float,
    decoder: str,
    loss: str,
    tell: Callable[[str], None],
) -> Proved | str | None:
    """What the forecast promises where Theorem 1 is silent or not practical, or why nothing; None if it is not."""
    ours = [demand.num_heads for demand in plan.demands if demand.version == NAMES[OURS]]
    if min(ours, default=math.inf) <= PRACTICAL:
        return None
    sample, _, _ = planned_parts(
        dataset, plan.start_kind, planning_share, key, decoder, get_loss(loss)
    )
    return proved(
        sample, plan.target_loss, seed=seed, decoder=decoder, loss=get_loss(loss), tell=tell
    )


@dataclass(frozen=True)
class PlanFile:
    """A plan's promise (proved; None where the theory is silent) and its cheapest trial that reached the target.

    All numbers are those of the plan to the last digit. `data`, `num_examples` and `seed` say where the sequences come
    from, `sample` is the fingerprint of those that the plan is about. `sharp` says how tokens and start are made where
    it is the forecast that promises; None where it is Theorem 1 for the plan's start.
    """

    data: str
    num_examples: int
    seed: int
    start: str
    decoder: str
    loss: str
    planning_share: float
    target_loss: float
    sample: str
    promise: Settings | None
    trial: Settings | None
    sharp: Sharp | None = None
    positive: str | None = None  # the label that is +1, where one was named

    @classmethod
    def of(
        cls,
        plan: Plan,
        dataset: Dataset,
        *,
        data: str,
        seed: int,
        key: jax.Array,
        planning_share: float,
        decoder: str,
        loss: str,
        instead: Proved | None = None,
        positive: str | None = None,
    ) -> PlanFile:
        """What a plan found about `dataset`, and what the forecast proves `instead`."""
        sample, _, _ = planned_parts(
            dataset, plan.start_kind, planning_share, key, decoder, get_loss(loss)
        )
        promise = trial = None
        if (
            plan.looked_at[0] == plan.looked_at[1]
        ):  # else it holds for a part of these sequences only
            for demand in plan.demands:
                if demand.version == NAMES[OURS] and math.isfinite(demand.num_heads):
                    steps = int(demand.num_steps)
                    promise = Settings(
                        demand.num_heads, demand.step_size, steps, demand.certified_loss
                    )
            reached = [one for one in plan.measured if math.isfinite(one.num_steps)]
            if reached:
                best = min(reached, key=lambda one: (one.num_steps, one.num_heads))
                trial = Settings(
                    best.num_heads, best.step_size, int(best.num_steps), plan.target_loss
                )
        if instead is not None:
            promise = Settings(
                instead.num_heads, instead.step_size, instead.num_steps, instead.loss
            )
        return cls(
            data,
            dataset.num_examples,
            seed,
            plan.start_kind,
            decoder,
            loss,
            planning_share,
            plan.target_loss,
            fingerprint(sample),
            promise,
            trial,
            None if instead is None else instead.how,
            positive,
        )

    @property
    def statement(self) -> str:
        """What certifies a run made with this plan."""
        if self.promise is None:
            return "descent"
        return STATEMENT if self.sharp is None else FORECAST

    @property
    def settings(self) -> Settings:
        """Those to train with: of the promise, or of the trial where nothing is promised."""
        found = self.promise or self.trial
        if found is None:
            raise ValueError(
                "this plan names no settings: the theory is silent and no trial reached the target. Plan with a larger "
                "--target-loss, another --start, or fewer sequences."
            )
        return found

    def parts(self, dataset: Dataset, key: jax.Array) -> tuple[Dataset, Dataset, MultiHead]:
        """The sequences the plan is about, those it left alone, and its start."""
        sample, rest, make = planned_parts(
            dataset, self.start, self.planning_share, key, self.decoder, get_loss(self.loss)
        )
        if fingerprint(sample) != self.sample:
            raise ValueError(
                f"the data are not those that were planned on, {self.data}; pass the same file."
            )
        if self.sharp is None:
            return sample, rest, make(self.settings.num_heads)
        sample, rest = self.sharp.data(sample, rest)
        return sample, rest, self.sharp.start(self.settings.num_heads, sample, self.decoder)

    @guarded()
    def save(self, path: str | Path) -> None:
        """Write a JSON file with a checksum."""
        write_json(checked_path(path), {"kind": KIND, **asdict(self)})

    @classmethod
    @guarded()
    def load(cls, path: str | Path) -> PlanFile:
        """Read what `save` wrote."""
        if not Path(path).is_file():
            raise FileNotFoundError(
                f"{path} does not exist or is not a file; pass one written by `manyheads plan --out`."
            )
        stored: dict[str, Any] = read_json(Path(path), "make it anew with `manyheads plan --out`.")
        if stored.pop("kind", None) != KIND:
            raise ValueError(
                f"{path} holds no plan; pass a file written by `manyheads plan --out`."
            )
        stored.pop("format_version")
        for name in ("promise", "trial"):
            stored[name] = None if stored[name] is None else Settings(**stored[name])
        sharp = stored.pop("sharp", None)  # not in version 2
        return cls(**stored, sharp=None if sharp is None else Sharp(**sharp))
