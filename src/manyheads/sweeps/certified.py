"""Certificates of a cell: what the theory says about its run, as values to store."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyheads._fields import SpecError
from manyheads._registry import nearest
from manyheads.sweeps.measures import Run, resolve
from manyheads.theory.certify import certify
from manyheads.theory.ledger import about_runs, entry
from manyheads.theory.verdict import Certificate, Verdict


def check_certificate(name: str) -> None:
    """That a certificate's name is a statement about one run, or a function of your own."""
    if ":" in name:
        resolve(name)
        return
    try:
        known = entry(name).about is not None
    except ValueError:
        known = False
    if not known:
        raise SpecError(
            f"certificates has no {name!r}; {nearest(name, about_runs())} (or write 'module:function')"
        )


def certificate_values(run: Run) -> dict[str, Any]:
    """Verdict, measured value, bound and tightness of every certificate that the cell names.

    A sweep chooses start, step size, heads and steps before it draws the sample, which the generalization statements
    need. A statement with several parts has the verdict of `Verdict.of`; the numbers are those of the tightest.
    """
    names = run.setup.cell.certificates
    statements = [name for name in names if ":" not in name]
    found: dict[str, tuple[Certificate, ...]] = {}
    if statements:
        options: dict[str, Any] = dict(test=run.setup.test, mixture=run.mixture, independent=True)
        answers = certify(run.trajectory, run.setup.dataset, statements, **options)
        found = {name: answers.about(name) for name in statements}
    for name in names:
        if ":" in name:
            answer = resolve(name)(run)
            found[name.partition(":")[2]] = (
                (answer,) if isinstance(answer, Certificate) else tuple(answer)
            )
    values: dict[str, Any] = {}
    for name, parts in found.items():
        label = name.replace(".", "_")
        tightest = max(
            parts, key=lambda part: -np.inf if np.isnan(part.tightness) else part.tightness
        )
        values[f"{label}_verdict"] = Verdict.of(part.verdict for part in parts).name
        values[f"{label}_measured"] = tightest.measured
        values[f"{label}_bound"] = tightest.bound().value
        values[f"{label}_tightness"] = tightest.tightness
    return values
