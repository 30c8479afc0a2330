"""Estimates before work: what there is, what is refused, how to allow more."""

import zipfile

import jax
import numpy as np
import psutil
import pytest

import manyheads as mh
from manyheads.data import budget
from manyheads.measures.kernel import tangent_kernel

DATA = mh.Dataset.from_arrays(np.random.default_rng(0).standard_normal((60, 2, 2)), [0, 1] * 30)
KEY = jax.random.key(0)
MODEL = mh.zero_start(2, num_tokens=2, dim=2)


def test_the_memory_is_what_the_system_says():
    told = psutil.virtual_memory()
    assert budget.total_memory() <= told.total
    assert budget.available_memory() <= told.total and budget.available_memory() > 0


def test_memory_that_is_not_there_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setenv(budget.MEMORY, "1e-5")  # 10.7 kB
    for call in (
        lambda: tangent_kernel(MODEL, DATA),
        lambda: mh.theory.good_start(MODEL, DATA),
        lambda: mh.theory.plan(DATA, start="zero", key=KEY),
        lambda: mh.measures.hard_margin(DATA.labels, gram=np.eye(60)),
        lambda: mh.measures.gaussian_limit(DATA, key=KEY, num_draws=2, num_batches=2),
        lambda: mh.gaussian_start(100, num_tokens=4, dim=4, key=KEY),
        lambda: mh.data.RandomLabels().sample(100, key=KEY),
        lambda: mh.TokenizedMixture(frame="axis").sample(100, key=KEY),
    ):
        with pytest.raises(
            ValueError, match=r"needs about .* GiB, and 1e-05 GiB are free; .*MANYHEADS_MEMORY=N"
        ):
            call()


def test_kernels_of_many_sequences_are_refused_here(monkeypatch):
    """298 GiB in one array: no allocation may be tried."""
    monkeypatch.setattr(np, "zeros", lambda *a, **k: pytest.fail("something was allocated"))
    many = DATA.subset(np.tile(np.arange(60), 3400))  # 204,000
    with pytest.raises(
        ValueError, match="a tangent kernel of 204,000 x 204,000 entries needs about 1.24e.03 GiB"
    ):
        tangent_kernel(MODEL, many)


def test_days_of_work_are_refused_unless_they_are_allowed(monkeypatch):
    many = DATA.subset(np.tile(np.arange(60), 3400))
    with pytest.raises(
        ValueError,
        match="204,001 runs of 1,000 steps takes at least .*; pass fewer steps, num_left_out=50 or",
    ):
        mh.measures.leave_one_out(MODEL, many, step_size=0.1, num_steps=1000)
    with pytest.raises(ValueError, match="takes at least 16.7 h"):
        budget.fits_time("it", 6e4, "do less")
    monkeypatch.setenv(budget.HOURS, "17")
    budget.fits_time("it", 6e4, "do less")
    monkeypatch.setenv(budget.HOURS, "soon")
    with pytest.raises(ValueError, match="MANYHEADS_HOURS='soon' must be a number >= 0"):
        budget.fits_time("it", 1.0, "do less")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "0.5 s"),
        (90, "1.5 min"),
        (7300, "2.03 h"),
        (200_000, "2.31 days"),
        (1e9, "31.7 years"),
    ],
)
def test_times_are_said_as_people_say_them(seconds, words):
    assert budget.duration(seconds) == words


def test_an_archive_that_unpacks_to_more_than_there_is_room_for_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tokens.npy", bytes(2**22))
    assert path.stat().st_size < 2**14
    monkeypatch.setenv(budget.MEMORY, "0.001")
    with pytest.raises(
        ValueError, match=r"bomb.npz unpacked needs about 0.00391 GiB, .* is it the right file"
    ):
        mh.Dataset.load(path)
