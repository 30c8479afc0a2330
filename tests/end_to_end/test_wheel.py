"""The wheel: it holds what the package needs, installs into an empty environment, and runs there."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TRAINING = """
import numpy as np, manyheads as mh
data = mh.Dataset.from_arrays(np.random.default_rng(0).standard_normal((8, 3, 2)), [0, 1] * 4)
print(mh.train(mh.zero_start(1, num_tokens=3, dim=2), data, rule=mh.GD(0.1), num_steps=3).status, mh.__file__)
"""


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "src" / "manyheads" / "py.typed").is_file()


def command(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.full
def test_the_wheel_holds_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    tracked = command("git", "ls-files", "src/manyheads", cwd=ROOT).split()
    assert {
        name.removeprefix("src/") for name in tracked
    } - held == set() and "manyheads/py.typed" in held


@pytest.mark.full
def test_the_wheel_installs_into_an_empty_environment_and_runs(wheel, tmp_path):
    home = tmp_path / "env"
    command(sys.executable, "-m", "venv", "--without-pip", home)
    python, packages = (
        home / "bin" / "python",
        Path(sysconfig.get_path("purelib", vars={"base": str(home)})),
    )
    # the dependencies, which cannot be fetched here; what is installed for development is not seen through this file
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        wheel,
    )
    command(*install, "--disable-pip-version-check")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert command(home / "bin" / "manyheads", "--version", env=clean, cwd=tmp_path).startswith(
        "manyheads 0."
    )
    said = command(python, "-c", TRAINING, env=clean, cwd=tmp_path).split()
    assert said[0] == "finished" and Path(said[1]).is_relative_to(packages)
