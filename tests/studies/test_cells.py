"""What the cells compute, against plain loops over every head and every sequence."""

import numpy as np
import pytest

from manyheads.model.attention import expand
from manyheads.studies.attention import cells as attention
from manyheads.studies.heads import cells as heads
from manyheads.studies.kit.cells import normalized_margins
from manyheads.studies.literal import cells as literal
from manyheads.studies.step_size import cells as step_size
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep
from manyheads.training.descent import train
from manyheads.training.rules import GD

SMALL = {
    "num_tokens": 4,
    "dim": 6,
    "num_patterns": 2,
    "sparsity": 0.5,
    "signal": 1.5,
    "num_examples": 12,
    "num_test": 8,
}


def cell(start="first_phase", num_heads=6, **train_section):
    sweep = Sweep(
        name="small",
        data=SMALL,
        start={"kind": start},
        model={"num_heads": num_heads},
        train={"step_size": 0.5, "num_steps": 12, **train_section},
    )
    return make_plan(sweep).cells[0]


def softmax_rows(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("start", ["first_phase", "zero"])
def test_normalized_margins_count_every_head(start):
    setup = set_up(cell(start))
    run = train(
        setup.start,
        setup.dataset,
        rule=GD(0.5),
        num_steps=12,
        snapshots="records",
        dtype="float64",
    )
    found = normalized_margins(run)
    for k in (3, len(run.steps) - 1):
        model = expand(run.model(int(run.steps[k])))
        W, U = np.asarray(model.key_query), np.asarray(model.readout)
        scores = [
            sum(np.sum(U[h] * (softmax_rows(X @ W[h] @ X.T) @ X)) for h in range(6)) / np.sqrt(6)
            for X in setup.dataset.tokens
        ]
        by_hand = np.min(setup.dataset.labels * scores) / np.linalg.norm(U)
        assert found[k] == pytest.approx(by_hand, rel=1e-9)
    assert np.isnan(found[0]) == (start == "zero")


def test_maps_put_the_relevant_tokens_first():
    setup = set_up(cell())
    run = train(setup.start, setup.dataset, rule=GD(2.0), num_steps=12, dtype="float64")
    found = attention.sorted_maps(run.final, setup.dataset)
    for g, W in enumerate(np.asarray(run.final.key_query)):
        total = np.zeros((4, 4))
        for X, relevant in zip(setup.dataset.tokens, setup.dataset.relevant, strict=True):
            sorted_tokens = np.concatenate([X[relevant], X[~relevant]])
            total += softmax_rows(sorted_tokens @ W @ sorted_tokens.T)
        np.testing.assert_allclose(found[g], total / len(setup.dataset.tokens), rtol=1e-10)
    assert found[0, :, :2].sum() > found[0, :, 2:].sum()


def test_attention_by_sign_averages_to_the_focus():
    values = attention.look(cell(), map_steps=[4])
    mass, focus = values["mass"][1], values["focus"][1]
    np.testing.assert_allclose(mass.mean(axis=0), focus, rtol=1e-6)  # three heads of each sign
    assert values["classes"] == 2 and list(values["map_step"][1]) == [0, 4, 12]
    assert np.abs(values["alignment"][1][-1]).max() <= 1 and values["mean_alignment"][1][-1] > 0.5


def test_the_stable_step_is_the_last_one_that_descends():
    setup = set_up(cell("gaussian", num_heads=2))
    stable, capped = step_size.largest_stable(setup)

    def rises(eta):
        losses = train(
            setup.start, setup.dataset, rule=GD(eta), num_steps=12, record="all", dtype="float64"
        ).train_loss
        return len(losses) < 13 or np.any(np.diff(losses) > 0)

    assert not rises(stable)
    assert capped or rises(stable * 2 ** (1 / 8) * 1.0001)


def test_a_ladder_of_step_sizes_is_that_of_single_runs():
    values = heads.speed(cell(), rungs=3, noise=0.1)
    setup = set_up(cell())
    assert values["step_sizes"][1].tolist() == [0.5, 1.0, 2.0]
    one = train(
        setup.start, setup.dataset, rule=GD(2.0), num_steps=12, record="all", dtype="float64"
    )
    assert values["final"][1][2] == pytest.approx(one.train_loss[-1], rel=1e-10)
    assert bool(values["falls"][1][2]) == bool(np.all(np.diff(one.train_loss) <= 0))
    noisy = train(
        setup.start,
        setup.dataset,
        rule=GD(2.0),
        num_steps=12,
        loss=heads.noisy_labels(0.1),
        dtype="float64",
    )
    margins = setup.dataset.labels * noisy.final.scores(setup.dataset)
    both = 0.9 * np.logaddexp(0, -margins) + 0.1 * np.logaddexp(0, margins)
    entropy = -0.1 * np.log(0.1) - 0.9 * np.log(0.9)
    assert (
        values["noisy"][1][2] == pytest.approx(both.mean() - entropy, rel=1e-9)
        and values["noisy"][1][2] > 0
    )
    assert values["smallest"] < 0 < values["largest"]


def test_the_convexity_gap_is_part_of_an_identity():
    values = heads.convexity(cell())
    assert values["residual"] < 1e-12 and 0 <= values["gap"] <= values["bound"]
    assert values["mean_loss"] <= values["bound"] * (1 + 1e-12)


def test_one_head_may_suffice_and_no_number_of_heads_reaches_the_impossible():
    setup = set_up(cell())
    assert literal.suffices(setup, 0.5, 12, level=0.69) == 1
    assert literal.suffices(setup, 0.5, 12, level=1e-9) == np.inf
