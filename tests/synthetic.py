"""Made-up results in the shape a sweep would give, so that a finding can be fed what it would say the opposite of."""

import itertools

import numpy as np
import xarray


def filled(sweep, **values):
    """The dataset of a sweep with every variable computed from the coordinates.

    A value is a function of the coordinates (by name, as keywords: `lambda num_heads, seed, **_: ...`) that returns a
    number, a text, or `(dims, array)`.
    """
    from manyheads.sweeps.plan import make_plan

    plan = make_plan(sweep)
    coordinates = {dim: plan.coordinates[dim]["values"] for dim in plan.dims}
    shape = tuple(len(c) for c in coordinates.values())
    variables = {}
    for name, function in values.items():
        cells = []
        for point in itertools.product(*coordinates.values()):
            cell = function(**dict(zip(coordinates, point, strict=True)))
            cells.append(cell if isinstance(cell, tuple) else ((), cell))
        inner = cells[0][0]
        stacked = np.array([np.asarray(array) for _, array in cells])
        variables[name] = ((*plan.dims, *inner), stacked.reshape(*shape, *stacked.shape[1:]))
    return xarray.Dataset(variables, coords=coordinates)


def wiggle(seed, size=0.01):
    """A factor near 1 that differs between seeds, so that intervals are not points."""
    return 1 + size * np.sin(1.0 + 2.7 * seed)
