"""Every study asks a question, runs at its smallest size, and each of its claims can come out in each way."""

import inspect

import numpy as np
import pytest
import xarray
from studies.__main__ import names, study

from manyheads import lab

VERDICTS = ("supported", "refuted", "undecided")
TRIES = 1000


def tried(module):
    """The cells of a study at a few points, with two seeds; names, further axes and positions of what they return."""
    points = getattr(module, "TRY", module.QUICK.points[:1])
    shapes, positions = {}, {}
    for point in points:
        found = module.cell(**point, seeds=[0, 1])
        pairs = {n: v if isinstance(v, tuple) else ((), v) for n, v in found.items()}
        further = {axis for more, _ in pairs.values() for axis in more}
        for name, (more, values) in pairs.items():
            if name in further:
                positions[name] = np.asarray(values, float)
            else:
                assert np.shape(values)[0] == 2, f"the first axis of {name} must be the seeds"
                truth = set(np.ravel(values).tolist()) <= {0.0, 1.0}
                shapes[name] = (more, truth and shapes.get(name, ((), True))[1])
    return shapes, positions


def invented(module, shapes, positions, claim, random):
    """A dataset of the shape of the study's, whose numbers are drawn so that any verdict may come out."""
    grid = module.QUICK.replace(seeds=6)
    known = {**grid.axes, "seed": grid.seeds, **positions}
    landmarks = [bound for bound in (claim.near, claim.above, claim.below) if bound]
    factors = [1.0, *np.abs(landmarks), *(1 / np.abs(landmarks)), 0.1, 10.0]
    powers = [0, 0.5, 1, 2, -0.5, -1, *landmarks]
    variables = {}
    for name, (more, truth) in shapes.items():
        dims = [*grid.axes, "seed", *more]
        size = [len(known[axis]) for axis in dims]
        level = random.choice([0.0, *np.log(np.abs(landmarks)), random.uniform(-30, 5)])
        values = np.full(size, level + random.choice([0, 0, random.normal()]))
        for k, axis in enumerate(dims):
            if axis == "seed":
                continue
            place = np.array(known[axis]) if not isinstance(known[axis][0], str) else None
            if place is not None and (place > 0).all():
                grows = place ** random.choice([0.25, 0.5, 1]) if random.random() < 0.3 else None
                slope = random.choice(powers) * (np.log(place) if grows is None else grows)
            else:
                slope = np.log(random.choice(factors, len(known[axis])))
            values = values + np.expand_dims(slope, [i for i in range(len(dims)) if i != k])
        noise = random.choice([0.0, 1e-4, 0.03, 0.3, 3.0])
        values = np.exp(np.clip(values + noise * random.standard_normal(size), -300, 300))
        if truth:
            values = (random.random(size) < random.choice([0, 0.3, 0.7, 0.95, 1])).astype(float)
        if random.random() < 0.05:
            values[random.random(size) < 0.3] = np.nan
        variables[name] = (dims, values)
    return xarray.Dataset(variables, known)


@pytest.mark.parametrize("name", names())
def test_a_study(name):
    module = study(name)
    assert module.__doc__.partition("\n")[0].endswith("?")
    assert 1 <= len(module.CLAIMS) <= 5
    for axis, values in module.QUICK.axes.items():
        assert set(values) <= set(module.GRID.axes[axis]), f"quick has another {axis} than full"
    assert len(inspect.getsource(module).splitlines()) <= 220
    shapes, positions = tried(module)
    random = np.random.default_rng(0)
    data = invented(module, shapes, positions, module.CLAIMS[0], random)
    lab.draw(module.figure, lab.Results(data), getattr(module, "PANELS", 1))
    for claim in module.CLAIMS:
        seen = set()
        for _ in range(TRIES):
            with np.errstate(all="ignore"):
                data = invented(module, shapes, positions, claim, random)
                seen.add(lab.decide([claim], data)[0].verdict)
            if len(seen) == 3:
                break
        assert seen == set(VERDICTS), f"{claim.sentence} only came out {sorted(seen)}"
