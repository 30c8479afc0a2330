"""The time left: estimated before, corrected along the way."""

import numpy as np

import manyheads as mh
from manyheads.estimator.clock import Clock, memory, plan_stages
from manyheads.estimator.search import CANDIDATES

STAGES = [("margins", 10.0), ("trial run", 20.0), ("trial run", 20.0), ("training on all", 10.0)]


def test_what_is_left_is_corrected_by_the_time_that_the_stages_before_took():
    said, times = [], iter([0.0, 20.0, 60.0, 100.0])  # twice as slow as estimated
    clock = Clock(STAGES, said.append, now=lambda: next(times))
    for text in (
        "margins",
        "trial run with 2 heads",
        "trial run with 16 heads",
        "training on all 5 sequences",
    ):
        clock(text)
    assert said == [
        "margins (about 1 min left)",
        "trial run with 2 heads (about 1.04 min left)",  # 50 s, times (20 + 30) / (10 + 30)
        "trial run with 16 heads (about 45 s left)",  # 30 s, times (60 + 30) / (30 + 30)
        "training on all 5 sequences (about 16.2 s left)",  # 10 s, times (100 + 30) / (50 + 30)
    ]


def test_one_short_stage_that_takes_long_does_not_multiply_the_rest():
    said, times = (
        [],
        iter([0.0, 1.0, 31.0]),
    )  # the second stage takes thirty times as long as estimated
    clock = Clock(
        [("margins", 1.0), ("theory", 1.0), ("trial run", 120.0)],
        said.append,
        now=lambda: next(times),
    )
    for text in ("margins", "theory", "trial run"):
        clock(text)
    assert (
        said[-1] == "trial run (about 2.92 min left)"
    )  # 120 s, times (31 + 61) / (2 + 61); not half an hour


def test_short_work_is_not_announced_and_a_line_that_no_stage_has_keeps_the_place():
    said = []
    clock = Clock([("margins", 2.0)], said.append, now=lambda: 0.0)
    assert clock.estimate("planning", 2**30) == ""
    clock("something else")
    assert said == ["something else"]
    assert Clock(STAGES, said.append).estimate("planning", 2**30) == (
        "planning: about 1 min and 1 GiB of memory; Ctrl-C stops"
    )


def test_a_plan_of_many_sequences_takes_minutes_and_the_time_does_not_grow_with_those_not_looked_at():
    few, many = (
        mh.Dataset.from_arrays(np.ones((n, 16, 16)), [1, -1] * (n // 2)) for n in (2000, 4000)
    )
    totals = [
        sum(s for _, s in plan_stages(data, 1000, 4000, CANDIDATES, (2, 2, 2)))
        for data in (few, many)
    ]
    assert totals[0] == totals[1] and 10 < totals[0] < 600
    assert memory(many, 1000) > memory(few, 1000) > 8e6
