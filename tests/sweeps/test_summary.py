import numpy as np
import xarray

from manyheads.sweeps.summary import MOST_ROWS, by_axis


def results(losses, **more):
    """Two settings of an axis, two seeds, three records."""
    status = np.full(np.shape(losses)[:2], "finished")
    variables = {
        "status": (("num_heads", "seed"), status),
        "train_loss": (("num_heads", "seed", "step"), losses),
    }
    return xarray.Dataset(variables | more, {"num_heads": [1.0, 1e6], "seed": [0, 1]})


def test_rows_are_settings_and_numbers_the_last_records():
    losses = np.array(
        [[[3.0, 2.0, 1.0], [3.0, 2.0, 2.0]], [[3.0, 0.5, np.nan], [3.0, 0.1, 0.5]]]
    )  # one ended early
    error, verdict = [[0.1, 0.3], [0.2, np.nan]], [["HOLDS", "HOLDS"], ["HOLDS", "SILENT"]]
    cells = ("num_heads", "seed")
    rows = by_axis(
        results(losses, error=(cells, error), thm1_verdict=(cells, verdict), label=(cells, verdict))
    ).split("\n")
    assert rows[0].split() == ["num_heads", "train_loss", "error", "thm1_verdict"]
    assert rows[1].split() == ["1", "1.5", "±", "0.5", "0.2", "±", "0.1", "HOLDS"]
    assert rows[2].split() == ["1e+06", "0.5", "±", "0", "0.2", "HOLDS/SILENT"]
    assert (
        rows[3] == "means over 2 seeds, with their standard errors"
        and len({len(row) for row in rows[:3]}) == 1
    )


def test_a_long_grid_is_cut_and_says_where_the_rest_is():
    many = xarray.Dataset(
        {"status": ("step_size", ["finished"] * 99), "error": ("step_size", np.arange(99.0))},
        {"step_size": np.arange(99)},
    )
    rows = by_axis(many).split("\n")
    assert len(rows) == MOST_ROWS + 2 and rows[-1].startswith(
        "and 69 more rows; `manyheads export --out results.csv`"
    )


def test_cells_without_results_are_dashes():
    assert by_axis(results(np.full((2, 2, 3), np.nan))).split("\n")[1].split() == ["1", "-"]
