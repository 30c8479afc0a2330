r"""The generalization gap of a run to first order in 1/n, from its own sample: no test set, no run done again.

Let $\theta_K(w)$ be the end of descent on $\sum_j w_j \ell_j$ and $I_{ij} = -\partial
\ell_i(\theta_K) / \partial w_j$ at equal weights 1/n, the influence of example j on the loss of
example i. Then n times the expected gap is, up to O(1/n), the expectation of $$\tau = \frac1n
\sum_i I_{ii} - \frac1{n^2} \sum_{ij} I_{ij}$$ (docs/theory/generalization.md, "The constant of the
1/n law"). At a minimum this is Takeuchi's $\operatorname{tr}(J H^{-1})$. The derivatives are exact,
by forward mode through the whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from manyheads import _check
from manyheads._check import check, many, none, positive, whole
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.model.autodiff import is_model
from manyheads.model.loss import Loss, get_loss, is_loss
from manyheads.training.loop import Observer, Problem, View, whole_run
from manyheads.training.problem import check_descent, listed_steps, make_problem
from manyheads.training.rules import GD


@dataclass(frozen=True, eq=False)
class Optimism:
    r"""The trace $\tau$ at each of `steps`, and the standard error that probes leave in it (0 without probes)."""

    steps: np.ndarray
    trace: np.ndarray
    standard_error: np.ndarray
    train_loss: np.ndarray
    num_examples: int

    @property
    def gap(self) -> np.ndarray:
        """The expected gap between test and train loss, to first order."""
        return self.trace / self.num_examples

    def __str__(self) -> str:
        lines = [f"gap of a run on {self.num_examples:,} examples, to first order in 1/n"]
        for k, step in enumerate(self.steps):
            error = f" ± {self.standard_error[k]:.2g}" if self.standard_error[k] > 0 else ""
            lines.append(
                f"  step {step:>8d}: n times gap {self.trace[k]:.6g}{error}, train loss "
                f"{self.train_loss[k]:.6g}, "
                f"test loss about {self.train_loss[k] + self.gap[k]:.6g}"
            )
        return "\n".join(lines)


@check(
    model=is_model,
    dataset=is_dataset,
    step_size=positive,
    num_steps=whole(),
    steps=many(whole(0)) | none,
    num_probes=whole() | none,
    key=_check.key | none,
    loss=is_loss,
)
def optimism(
    model: Any,
    dataset: Dataset,
    *,
    step_size: float,
    num_steps: int,
    steps: Sequence[int] | None = None,
    num_probes: int | None = None,
    key: jax.Array | None = None,
    loss: str | Loss = "logistic",
) -> Optimism:
    """n times the expected gap at `steps` of a run (the last one is always there), to first order in 1/n.

    The trace needs n derivatives of the run, each about two runs long; `num_probes` random
    directions drawn with `key` estimate it without bias.
    """
    n = dataset.num_examples
    compared = np.union1d(
        listed_steps([] if steps is None else steps, num_steps, "steps"), [num_steps]
    )
    if num_probes is None:
        probes = np.eye(n) * np.sqrt(n)
    elif key is None:
        raise ValueError(
            f"num_probes={num_probes} directions are drawn at random: pass key=jax.random.key(0)."
        )
    else:
        probes = np.asarray(jax.random.rademacher(key, (num_probes, n)), float)
    check_descent(
        model, dataset, num_steps, 2 * len(probes), records=len(compared) * n * (2 + len(probes))
    )
    probes = probes - probes.mean(axis=1, keepdims=True)
    problem = make_problem(model, dataset, GD(step_size), get_loss(loss))
    with jax.enable_x64(True):
        losses, along = map(np.asarray, _derivatives(problem, compared.astype(np.int32), probes))
    products = -np.einsum("pi,psi->ps", probes, along) / n
    error = np.zeros(len(compared))
    if num_probes is not None:
        error = (
            products.std(axis=0, ddof=1) / np.sqrt(num_probes) if num_probes > 1 else error + np.nan
        )
    return Optimism(compared, products.mean(axis=0), error, losses.mean(axis=1), n)


def _losses(view: View) -> jax.Array:
    return view.problem.method.loss.value(view.objective.labels * view.scores)


@jax.jit
def _derivatives(problem: Problem, steps, directions) -> tuple[jax.Array, jax.Array]:
    """The losses of all examples at some steps, and their derivatives along directions of the weights."""
    observers = {"losses": Observer(_losses, steps)}

    def losses(weight):
        changed = Problem(problem.start, problem.objective, weight, problem.rule, problem.method)
        return whole_run(changed, observers, steps[-1]).kept["losses"]

    weight = jax.numpy.asarray(problem.sample_weight)
    along = jax.lax.map(lambda direction: jax.jvp(losses, (weight,), (direction,))[1], directions)
    return losses(weight), along
