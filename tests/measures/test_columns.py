"""The margin from a few columns against that of the whole matrix."""

import numpy as np
import pytest

from manyheads.measures.columns import JOIN, Columns, margin_by_columns
from manyheads.measures.margin import hard_margin


def columns_of(features):
    asked = []

    def compute(indices):
        asked.append(len(indices))
        return features @ features[indices].T, 1e-15

    return Columns(compute, len(features), float(np.linalg.norm(features, axis=1).max())), asked


def planted(n, p, margin, seed=0):
    """Labels of a direction from which all features keep away by a margin."""
    rng = np.random.default_rng(seed)
    features, direction = rng.standard_normal((n, p)), rng.standard_normal(p)
    direction /= np.linalg.norm(direction)
    labels = np.where(features @ direction >= 0, 1.0, -1.0)
    return features + margin * labels[:, None] * direction, labels


def test_it_is_the_margin_of_the_whole_matrix_from_a_part_of_the_columns():
    features, labels = planted(1500, 10, 0.5)
    columns, asked = columns_of(features)
    found, chosen = margin_by_columns(labels, columns, tolerance=1e-6)
    whole = hard_margin(labels, features=features, tolerance=1e-8)
    assert found.verdict == "separable" and found.relative_gap <= 1e-6
    assert found.lower <= whole.upper and found.upper >= whole.lower
    assert found.lower == pytest.approx(whole.lower, rel=1e-5)
    assert set(asked) == {JOIN} and len(chosen) < 1500 / 2  # one shape, and not all columns
    # a search on the first 700 begins with what is known of them, and asks for little
    before = len(asked)
    part, _ = margin_by_columns(labels[:700], columns, tolerance=1e-6, first=chosen[chosen < 700])
    assert part.lower == pytest.approx(
        hard_margin(labels[:700], features=features[:700]).lower, rel=1e-5
    )
    assert len(asked) - before <= 4


def test_the_lower_end_is_proved_on_all_examples():
    """One example that the first working set does not know has by far the smallest margin."""
    features, labels = planted(400, 6, 2.0)
    features[-1] *= 0.05
    columns, _ = columns_of(features)
    found, chosen = margin_by_columns(labels, columns, tolerance=1e-3)
    whole = hard_margin(labels, features=features)
    assert found.lower <= whole.lower * (1 + 1e-9) and found.lower == pytest.approx(
        whole.lower, rel=1e-3
    )
    assert 399 in chosen


def test_one_contradiction_among_many_is_found():
    features, labels = planted(600, 8, 0.3)
    features[599] = features[300]
    labels[599] = -labels[300]
    columns, _ = columns_of(features)
    found, _ = margin_by_columns(labels, columns, tolerance=1e-3)
    assert found.verdict == "not separable" and found.lower == 0
    separated, _ = margin_by_columns(labels[:599], columns, tolerance=1e-3)
    assert separated.verdict == "separable"
