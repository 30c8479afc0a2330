r"""The certificate along the run: an exact decomposition of the mean train loss.

For any target $\theta$, any step size and any differentiable loss, with $c_k=\hat
L_k+\langle\nabla\hat L_k,\theta-\theta_k\rangle-\hat L(\theta)$ and $\delta_k=\hat L_{k+1}-\hat
L_k+\frac\eta2\|\nabla\hat L_k\|^2$, $$\frac1K\sum_{k=1}^K\hat L_k=\hat
L(\theta)+\frac{\|\theta-\theta_0\|^2-\|\theta-\theta_K\|^2}{2\eta K}
+\frac1K\sum_{k<K}(c_k+\delta_k).$$ Proof: docs/theory/identity.md. It explains a finished run; it
does not predict one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyheads._check import check, many, none, positive, whole
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.mixture import is_mixture
from manyheads.model.attention import MultiHead
from manyheads.model.autodiff import is_model
from manyheads.model.loss import is_loss
from manyheads.theory.targets import (
    Direction,
    Target,
    along,
    attention_target,
    is_direction,
    measure_target,
    proximal_target,
)
from manyheads.theory.walk import Walk, follow

SCALES = np.geomspace(0.1, 10, 13)
SHOWN_STEPS = 1000


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The mean train loss of a run, split into the terms of the paper's proof, for one target."""

    target: Target
    step_size: float
    loss: np.ndarray  # steps 0..K
    convexity_gap: np.ndarray  # c_k, k < K
    descent_defect: np.ndarray  # delta_k, k < K
    last_distance: float  # from the target

    @property
    def num_steps(self) -> int:
        return len(self.loss) - 1

    @property
    def mean_loss(self) -> float:
        return float(np.mean(self.loss[1:]))

    @property
    def distance_term(self) -> float:
        r"""$\|\theta-\theta_0\|^2/(2\eta K)$."""
        return self.target.distance**2 / (2 * self.step_size * self.num_steps)

    @property
    def returned(self) -> float:
        r"""$\|\theta-\theta_K\|^2/(2\eta K)$, the part of the distance that was not used up."""
        return self.last_distance**2 / (2 * self.step_size * self.num_steps)

    @property
    def convexity_term(self) -> float:
        """Mean of the positive parts of c_k: what non-convexity costs."""
        return float(np.mean(np.maximum(self.convexity_gap, 0)))

    @property
    def descent_term(self) -> float:
        """Mean of the positive parts of delta_k: what failed descent costs."""
        return float(np.mean(np.maximum(self.descent_defect, 0)))

    @property
    def residual(self) -> float:
        """Left side minus right side of the identity: rounding, or a bug."""
        middle = float(np.mean(self.convexity_gap + self.descent_defect))
        return self.mean_loss - (self.target.loss + self.distance_term - self.returned + middle)

    @property
    def bound(self) -> float:
        """The certificate: target loss, distance, and the positive parts."""
        return self.target.loss + self.distance_term + self.convexity_term + self.descent_term

    @property
    def times_measured(self) -> float:
        """The certificate divided by the mean loss; infinite if the loss underflows."""
        return self.bound / self.mean_loss if self.mean_loss else math.inf

    @property
    def rounding(self) -> float:
        r"""The largest residual that rounding alone can explain.

        Every term is exact to a few units in its last place. Every one of the $K$ steps also rounds
        the iterate, which enters the distances divided by $2\eta K$.
        """
        sizes = self.loss.max() + self.target.loss + self.distance_term + self.returned
        sizes += np.mean(np.abs(self.convexity_gap)) + np.mean(np.abs(self.descent_defect))
        moved = (self.target.distance + self.last_distance) ** 2 / self.step_size
        return float(np.finfo(float).eps * (64 * sizes + 8 * moved))

    def by_step(self) -> dict[str, list]:
        """Convexity gap and descent defect of each step, or of 1000 evenly spaced steps if there are more."""
        steps = np.unique(
            np.linspace(0, self.num_steps - 1, min(self.num_steps, SHOWN_STEPS)).astype(int)
        )
        return {
            "step": steps.tolist(),
            "convexity gap": self.convexity_gap[steps].tolist(),
            "descent defect": self.descent_defect[steps].tolist(),
        }

    def __str__(self) -> str:
        return (
            f"mean train loss {self.mean_loss:.4g} <= {self.bound:.4g} = target loss "
            f"{self.target.loss:.4g} + distance "
            f"{self.distance_term:.4g} + convexity gap {self.convexity_term:.3g} + descent defect "
            f"{self.descent_term:.3g}"
            f"  ({self.times_measured:.3g} times measured; {self.target.name}; residual "
            f"{self.residual:.1e})"
        )


def decompose(walk: Walk) -> tuple[Decomposition, ...]:
    """The decomposition of a walk for each target it was measured against."""
    parts = []
    for i, target in enumerate(walk.targets):
        gap = walk.loss[:-1] + walk.slope[i, :-1] - target.loss
        defect = np.diff(walk.loss) + walk.step_size / 2 * walk.gradient_norm[:-1] ** 2
        parts.append(
            Decomposition(
                target, walk.step_size, walk.loss, gap, defect, float(walk.target_distance[i, -1])
            )
        )
    return tuple(parts)


@check(
    start=is_model,
    dataset=is_dataset,
    step_size=positive,
    num_steps=whole(),
    directions=many(is_direction),
    mixture=is_mixture | none,
    longer=whole() | none,
    loss=is_loss,
)
def explain_run(
    start: Any,
    dataset: Dataset,
    *,
    step_size: float,
    num_steps: int,
    directions: Sequence[Direction] = (),
    mixture=None,
    longer: int | None = 2,
    loss: str = "logistic",
) -> tuple[Decomposition, ...]:
    """Run plain descent of any model and decompose its mean loss for every target, the smallest certificate first.

    Targets: the proximal one; the end of a run `longer` times as long (None skips it). For a
    MultiHead also the best of several scales along each direction (the NTK targets) and, with
    `mixture`, the attention target of Section 5.3.
    """
    if not isinstance(start, MultiHead) and (directions or mixture is not None):
        raise ValueError(
            "directions= and mixture= are targets of a MultiHead; leave them out for another model."
        )
    targets = [proximal_target(start, dataset, step_size=step_size, num_steps=num_steps, loss=loss)]
    for direction in directions:
        targets += [along(direction, float(c), start, dataset, loss) for c in SCALES]
    if mixture is not None:
        targets.append(attention_target(start, dataset, mixture, loss=loss))
    if longer is not None:
        end = follow(
            start, dataset, step_size=step_size, num_steps=longer * num_steps, loss=loss
        ).displacement
        targets.append(
            measure_target(f"the end of a run {longer} times as long", start, dataset, end, loss)
        )
    walk = follow(
        start, dataset, step_size=step_size, num_steps=num_steps, targets=targets, loss=loss
    )
    return best_of_each(decompose(walk))


def best_of_each(parts: Sequence[Decomposition]) -> tuple[Decomposition, ...]:
    """Sorted by certificate; of the scales along one direction, only the one with the smallest is kept."""
    chosen: dict[str, Decomposition] = {}
    for part in parts:
        name = part.target.name.split(", scale")[0]
        if name not in chosen or part.bound < chosen[name].bound:
            chosen[name] = part
    return tuple(sorted(chosen.values(), key=lambda part: part.bound))
