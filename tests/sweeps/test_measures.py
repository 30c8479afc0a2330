import numpy as np
import pytest

from manyheads._fields import SpecError
from manyheads.measures.curvature import loss_curvature
from manyheads.measures.focus import attention_focus
from manyheads.sweeps.cell import measured, train_setup
from manyheads.sweeps.engine import check_plan, run
from manyheads.sweeps.measures import MEASURES, Run, find_measure
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep
from manyheads.theory.certify import certify

SWEEP = Sweep(
    data=dict(num_examples=8, num_tokens=4, dim=4, num_patterns=2, num_test=6),
    start={"num_examples": 20},
    train={"num_steps": 6, "dtype": "float64"},
    measures=list(MEASURES),
    certificates=["descent", "identity", "sweep_cells:small_loss"],
)


@pytest.fixture(scope="module")
def finished():
    setup = set_up(make_plan(SWEEP).cells[0])
    return Run(setup, train_setup(setup))


def test_every_measure_is_the_library_s_own(finished):
    values = measured(finished)
    final, data = finished.trajectory.final, finished.setup.dataset
    ends = loss_curvature(final, data)
    assert (
        values["smallest_eigenvalue"] == ends.smallest.value
        and values["largest_eigenvalue"] == ends.largest.value
    )
    focus = attention_focus(final, data, mixture=finished.mixture)
    assert np.array_equal(values["final_saturation"][1], focus.saturation[0])
    assert values["effective_heads"] == focus.effective_heads[0]


def test_certificates_become_values(finished):
    values = measured(finished)
    answers = certify(
        finished.trajectory,
        finished.setup.dataset,
        ["descent", "identity"],
        test=finished.setup.test,
        mixture=finished.mixture,
        token_radius=finished.mixture.token_radius,
        independent=True,
    )
    for name in ("descent", "identity"):
        parts = answers.about(name)
        assert values[f"{name}_verdict"] in {part.verdict.name for part in parts}
        assert values[f"{name}_measured"] in [part.measured for part in parts]
    assert values["small_loss_verdict"] == "VIOLATED" and values["small_loss_bound"] == 0.0


def test_they_are_stored(tmp_path):
    data = run(SWEEP, tmp_path, progress=False)
    assert data.status.item() == "finished", data.message.item()
    assert data.identity_verdict.item() in ("HOLDS", "SILENT")
    assert np.isfinite(data.smallest_eigenvalue.item())


def test_without_test_data_risk_has_no_test_values(finished):
    from dataclasses import replace

    alone = Run(replace(finished.setup, test=None), finished.trajectory)
    assert set(find_measure("risk")(alone)) == {"final_train_loss", "final_train_error"}


@pytest.mark.parametrize(
    ("name", "near"), [("thmm1", "thm1"), ("descnt", "descent"), ("prop2", "prop7")]
)
def test_a_statement_that_is_not_about_one_run_is_refused(name, near):
    with pytest.raises(SpecError, match=f"certificates has no '{name}'; did you mean '{near}'"):
        check_plan(make_plan(Sweep(certificates=[name])))
