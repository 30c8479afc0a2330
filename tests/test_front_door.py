import ast
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import manyheads


def without_jax(statements: str) -> None:
    """Run the statements in a fresh process and fail if JAX was imported."""
    code = f"import sys\n{statements}\nsys.exit('jax was imported' if 'jax' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_does_not_import_jax():
    without_jax("import manyheads; dir(manyheads); manyheads.__version__")


@pytest.mark.parametrize("name", manyheads._HOME)
def test_every_name_of_the_front_door_exists(name):
    assert name in dir(manyheads)
    assert getattr(manyheads, name).__name__ == name


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(AttributeError, match="no attribute 'trian'; it offers .*train"):
        manyheads.trian  # noqa: B018


def test_every_room_says_what_it_holds():
    rooms = [module.name for module in pkgutil.iter_modules(manyheads.__path__) if module.ispkg]
    assert {"data", "model", "training", "report", "cli"} <= set(rooms)
    for room in rooms:
        origin = importlib.util.find_spec(f"manyheads.{room}").origin
        assert ast.get_docstring(ast.parse(Path(origin).read_text())), room
