"""One start: Definition 1 measured on it, and how many heads differ."""

from __future__ import annotations

import json

from manyheads.model.attention import MultiHead, collapse
from manyheads.studies.kit.cells import mixture_of, verdicts
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up
from manyheads.theory.deora2023.initialization import GoodStart, good_start


def look(cell: Cell, *, card: str = "") -> dict:
    r"""Definition 1 as measured (`b2`, `b_phi`, `p3_margin` and its certified upper end), and `distinct` heads.

    With a `card` it also keeps what the report's card and ledger show.
    """
    setup = set_up(cell)
    good = good_start(setup.start, setup.dataset, token_radius=mixture_of(setup).token_radius)
    low, high = good.interval.p3_interval
    return {
        "b2": good.parameter_bound,
        "b_phi": good.model_bound,
        "p3_margin": low,
        "p3_upper": high,
        "distinct": collapse(setup.start).num_classes,
        "good_start": json.dumps([_card(card, good, setup.start)] if card else []),
        "certificates": verdicts(
            f"{card} start, seed {cell.seed}", good.certificates() if card else []
        ),
    }


def _card(name: str, good: GoodStart, start: MultiHead) -> dict:
    heads = f"{start.num_heads:.15g}"
    return {
        "name": name,
        "about": f"{heads} heads on {good.dataset.num_examples} sequences of the {good.dataset.name}",
        "b2": good.parameter_bound,
        "b_phi": good.model_bound,
        "p3_margin": good.interval.p3_interval[0],
        "p3_upper": good.interval.p3_interval[1],
        "distinct": f"{collapse(start).num_classes} of {heads}",
    }
