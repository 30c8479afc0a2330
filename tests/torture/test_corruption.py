import pytest

from torture import corruption, harness


def faults(trials, seed, folder):
    counts = harness.run(corruption, trials, seed, folder)
    assert sum(counts.values()) == trials
    print(harness.table(corruption, counts))
    return [
        line
        for line in (folder / f"corruption-{seed}.jsonl").read_text().splitlines()
        if is_fault(line)
    ]


def is_fault(line):
    return any(f'"outcome": "{fault}"' in line for fault in (*corruption.FAULTS, harness.CRASHED))


def test_the_first_damaged_files_do_no_harm(tmp_path):
    assert faults(16, 2, tmp_path) == []


@pytest.mark.full
def test_damaged_files_do_no_harm(tmp_path):
    assert faults(3 * len(corruption.KINDS), 3, tmp_path) == []
