"""What must be true of the files themselves."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import manyheads

ROOT = Path(__file__).parent.parent
VENDORED = ("docs/assets/",)  # other people's files, which speak their own language
THIS_FILE = "tests/test_repository.py"


def tracked() -> dict[str, str]:
    """Path -> text of every text file that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    texts = {}
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and not name.startswith(VENDORED) and name != THIS_FILE:
            content = path.read_bytes()
            if b"\0" not in content:
                texts[name] = content.decode()
                if (
                    path.suffix == ".html"
                ):  # a page carries the drawing library, which is vendored too
                    texts[name] = re.sub(
                        r"(?s)(<script\b[^>]*>).*?(</script>)", r"\1\2", texts[name]
                    )
    return texts


def found(pattern: str, flags: int = re.IGNORECASE) -> list[str]:
    compiled = re.compile(pattern, flags)
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in tracked().items()
        for number, line in enumerate(text.splitlines(), 1)
        if compiled.search(line)
    ]


def test_git_tracks_the_files_under_test():
    assert {"pyproject.toml", "Makefile", "src/manyheads/__init__.py"} <= tracked().keys()


def test_no_file_names_a_package_registry():
    assert (
        found(
            r"(pypi|pythonhosted|npmjs|yarnpkg|anaconda|conda-forge|debian)\.(org|com)|(index|registry)[-_]url\s*="
        )
        == []
    )


def test_no_file_names_a_path_of_one_machine():
    assert found(r"(?<![\w.}*])/(home|root|Users|work|tmp|opt|mnt)/", flags=0) == []


def test_nothing_is_left_unfinished():
    words = [
        r"\bTODO\b",
        r"\bFIXME\b",
        r"\bXXX\b",
        r"\bHACK\b",
        "NotImplementedError",
        r"pytest\.skip",
        r"\bxfail\b",
    ]
    assert found("|".join(words), flags=0) == []
    assert found(r"\bplaceholder|\bfor now\b|\bcoming soon\b") == []


def test_american_spelling():
    words = r"\b(behaviour|colour|neighbour|favour|centre|labelled|modelling|analyse[sd]?|grey)\b"
    stems = (
        "optim|general|normal|linear|regular|factor|token|initial|visual|special|summar|parametr"
    )
    endings = rf"\b({stems})is(e|ed|es|ing|ation)\b"
    assert found(f"{words}|{endings}") == []


def test_python_files_stay_small():
    lengths = {name: text.count("\n") for name, text in tracked().items() if name.endswith(".py")}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def badly_wrapped(docstring: str) -> list[str]:
    """Lines of a few words between a full line and the next one: the mark of text that was wrapped twice."""
    lines = docstring.splitlines()
    return [
        line
        for before, line, after in zip(lines, lines[1:], lines[2:], strict=False)
        if len(before) >= 80 and len(line) <= 40 and 1 <= len(line.split()) <= 3 and after.strip()
        if not line.endswith((":", "$$")) and indent(before) == indent(line) == indent(after)
    ]


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def test_badly_wrapped_text_is_recognized():
    full = "word " * 20
    assert badly_wrapped(f"{full}\nand a\n{full}") == ["and a"]
    assert badly_wrapped(f"{full}\n\n{full}\nthe end.\n\n{full}\nthe end.") == []
    assert badly_wrapped(f"{full}\nArgs:\n    name: {full}\n    rest: of it\nthe end.") == []


def test_docstrings_are_not_wrapped_twice():
    found = []
    for name, text in tracked().items():
        for node in ast.walk(ast.parse(text)) if name.endswith(".py") else ():
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                found += [
                    f"{name}, {getattr(node, 'name', 'module')}: {line}"
                    for line in badly_wrapped(docstring)
                ]
    assert found == []


def test_constraints_are_pins_and_nothing_else():
    pin = re.compile(r"[a-z0-9][a-z0-9.-]*==[0-9][\w.+]*( ; [\w. <>=!'()-]+)?")
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not pin.fullmatch(line)] == []
    assert "jax==0.10.2 ; python_full_version < '3.12'" in lines


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(need for extra in project["optional-dependencies"].values() for need in extra),
    ]
    names = {re.match(r"[\w.-]+", need)[0].lower().replace("_", "-") for need in wanted}
    names.discard("manyheads")  # an extra made of other extras
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert names - pinned == set()


@pytest.mark.parametrize("name", ["CITATION.cff", "CHANGELOG.md"])
def test_the_version_is_the_same_everywhere(name):
    assert manyheads.__version__ in (ROOT / name).read_text()


def test_make_help_lists_every_target():
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for target in ("run", "test", "lint", "test-full", "bench", "docs", "clean", "help"):
        assert f"  make {target} " in shown
