"""Every study at quick scale, from nothing to its answer and its drawings."""

import pytest

from manyheads.report import matplotlib_figures, vega
from manyheads.studies.kit.catalog import studies
from manyheads.studies.kit.folder import sweep_folder
from manyheads.studies.kit.run import run_studies
from manyheads.sweeps.assembly import open_sweep


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [name for name, study in studies().items() if not study.lacks("quick")]
)
def test_a_study_runs_at_quick_scale_and_has_a_finding(name, tmp_path):
    study = studies()[name]
    run_studies([name], tmp_path, workers=1)
    results = {
        sweep: open_sweep(sweep_folder(tmp_path, name, sweep)) for sweep in study.plan("quick")
    }
    for data in results.values():
        assert not (data["status"] == "missing").any() and not (data["status"] == "failed").any()
    finding = study.finding(results)
    assert (
        finding.answer
        and finding.sentence
        and finding.numbers
        and "interval" not in finding.sentence
    )
    for figure in study.figures(results):
        assert vega.views(figure) and all(
            path.stat().st_size > 1000 for path in matplotlib_figures.save(figure, tmp_path)
        )
