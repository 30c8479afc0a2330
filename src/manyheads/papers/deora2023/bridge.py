"""Statements that still stand in the old files; this module goes when they are ported.

`start_of(work)` is what `initialization.start_of` will be: the good start of a run, to be used as
`work.shared(initialization.start_of)`.
"""

from __future__ import annotations

import math
from importlib import import_module

from manyheads._lazy import lazy
from manyheads.certificates.statement import Statement
from manyheads.certificates.verdict import OURS, Bound, Certificate, Hypothesis

init, general = lazy("manyheads.certificates.initialization"), lazy("manyheads.certificates.generalization")
targets, training = lazy("manyheads.certificates.targets"), lazy("manyheads.papers.deora2023.training")


def Entry(checker, **texts):
    def check(effort):
        module, name = checker.split(".")
        return getattr(import_module(f"manyheads.certificates.{module}"), name)(effort)

    return Statement(check=check, about=ABOUT.get(texts["id"]), on_request=texts["id"] in ("lemma3", "loo"), **texts)


def start_of(work):
    work.progress("tangent kernel and its margin")
    return init.good_start(work.run.start, work.dataset, token_radius=work.radius)


def _definition(name):
    return lambda work: [c for c in work.shared(start_of).certificates() if c.statement == name]


def _without_margin(work, name, title):
    bound = Bound(OURS, math.nan, work.shared(start_of).hypotheses())
    return [Certificate(name, title, math.nan, (bound,))]


def _prop7(work):
    good = work.shared(start_of)
    if not good.holds:
        return _without_margin(work, "prop7", "realizability from a good start")
    return [init.realize(good, 1 / work.num_steps)[1]]


def _cor2(work):
    good, K, eta = work.shared(start_of), work.num_steps, work.step_size
    if not good.holds:
        return _without_margin(work, "cor2", "bounds under a good initialization")
    walk = work.shared(training.repetition)
    versions = init.good_start_conditions(good, num_steps=K, step_size=eta)
    bounds = tuple(v.as_bound() for v in versions)
    found = [Certificate("cor2", "train loss after K steps", float(walk.loss[-1]), bounds)]
    if work.test is not None:
        free = general.independence(work.independent)
        versions = init.good_start_conditions(good, num_steps=K, step_size=eta, generalization=True)
        n = work.dataset.num_examples
        bounds = tuple(
            Bound(
                v.variant,
                init.gap_bound(good, K, eta, n, v.variant),
                (*v.hypotheses, free, _one_sample()),
                v.up_to_constant,
            )
            for v in versions
        )
        gap = targets.train_loss(walk.final, work.test) - float(walk.loss[-1])
        found.append(Certificate("cor2", "generalization gap, in expectation over samples", gap, bounds))
    return found


def _thm2(work):
    walk, case = work.shared(training.repetition), work.shared(training.best_case)[1]
    versions = general.generalization_conditions(case, work.dataset.num_examples, independent=work.independent)
    measured = Hypothesis("test data are given", work.test is not None, "pass test=")
    gap = math.nan if work.test is None else targets.train_loss(walk.final, work.test) - float(walk.loss[-1])
    bounds = tuple(
        Bound(v.variant, v.bound, (*v.hypotheses, measured, _one_sample()), v.up_to_constant) for v in versions
    )
    return [Certificate("thm2", "generalization gap, in expectation over samples", gap, bounds)]


def _one_sample() -> Hypothesis:
    return Hypothesis(
        "the expectation over samples is estimated",
        False,
        "one sample is one draw: use certify_generalization on several (`verify thm2` does)",
    )


def _twins(work):
    work.progress(f"{work.dataset.num_examples} leave-one-out runs")
    twins = general.measure_leave_one_out(
        work.run.start, work.dataset, step_size=work.step_size, num_steps=work.num_steps, test=work.test,
        token_radius=work.radius, independent=work.independent,
    )  # fmt: skip
    return general.certify_generalization([twins])


def _left_out(name):
    return lambda work: [c for c in work.shared(_twins) if c.statement == name]


ABOUT = {
    **{name: _definition(name) for name in ("def1.p1", "def1.p2", "def1.p3")},
    "prop7": _prop7,
    "cor2": _cor2,
    "thm2": _thm2,
    **{name: _left_out(name) for name in ("lemma3", "loo")},
}


from manyheads.certificates.errata import ENTRIES as ERRATA  # noqa: E402, F401, I001
from manyheads.certificates.statements_generalization import ENTRIES as GENERALIZATION  # noqa: E402, F401
from manyheads.certificates.statements_mixture import ENTRIES as MIXTURE  # noqa: E402, F401
