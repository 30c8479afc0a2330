import json

import pytest

from manyheads.data.files import Damaged, write_json
from manyheads.studies.kit.folder import read_run, write_run
from manyheads.studies.kit.run import _note


def test_a_folder_says_which_studies_it_holds(tmp_path):
    _note(tmp_path, ["heads"], "quick", 3)
    _note(tmp_path, ["margins"], "quick", 3)
    run = read_run(tmp_path)
    assert (run["studies"], run["scale"], run["seed"]) == (
        ["margins", "heads"],
        "quick",
        3,
    )  # as the story has them
    with pytest.raises(ValueError, match="holds studies with seed 3, not 4"):
        _note(tmp_path, ["heads"], "quick", 4)


def test_a_damaged_list_is_refused_set_aside_and_written_anew(tmp_path, capsys):
    write_run(tmp_path, "quick", 0, ["heads"])
    path = tmp_path / "run.json"
    damaged = path.read_bytes().replace(b"heads", b"hoods")
    path.write_bytes(damaged)
    with pytest.raises(
        Damaged, match="does not match its checksum.; run the same studies into this folder again"
    ):
        read_run(tmp_path)
    _note(tmp_path, ["heads"], "quick", 0)
    assert "kept as run.json.1.corrupt; pass every study of this folder" in capsys.readouterr().err
    assert (
        read_run(tmp_path)["studies"] == ["heads"]
        and (tmp_path / "run.json.1.corrupt").read_bytes() == damaged
    )


def test_a_list_of_the_version_before_checksums_is_read_and_gets_one(tmp_path):
    content = {
        "format_version": 1,
        "manyheads": "0",
        "scale": "quick",
        "seed": 0,
        "studies": ["heads"],
    }
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="of an older version and has no checksum"):
        _note(tmp_path, ["heads"], "quick", 0)
    assert read_run(tmp_path)["format_version"] == 2


@pytest.mark.parametrize(
    "change", [{"studies": "heads"}, {"studies": [1]}, {"seed": None}, {"scale": 1}]
)
def test_a_list_without_what_it_needs_is_refused(tmp_path, change):
    content = {"format_version": 2, "scale": "quick", "seed": 0, "studies": ["heads"], **change}
    write_json(tmp_path / "run.json", content)
    with pytest.raises(Damaged, match="does not say which studies were run"):
        read_run(tmp_path)
