"""The documents: every link leads somewhere, every example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("design/*.md")])
EXAMPLES = sorted(ROOT.glob("docs/examples/*.py"))
LONG = {"classifier.py"}  # a grid search
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def targets(page: Path) -> list[str]:
    prose = re.sub(r"`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$", "", FENCED.sub("", page.read_text()), flags=re.DOTALL)
    return [target for target in LINK.findall(prose) if "://" not in target]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page):
    assert [target for target in targets(page) if not (page.parent / target).exists()] == []


def test_the_links_of_the_readme_are_seen():
    assert "CONTRIBUTING.md" in targets(ROOT / "README.md")


@pytest.mark.parametrize("page", ["README.md", "docs/measures.md", "docs/your-data.md"])
def test_the_example_of_a_page_runs(page, tmp_path):
    examples = [code for language, code in FENCED.findall((ROOT / page).read_text()) if language == "python"]
    assert examples
    for code in examples:
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.parametrize(
    "example",
    [pytest.param(one, marks=pytest.mark.full if one.name in LONG else ()) for one in EXAMPLES],
    ids=lambda example: example.name,
)
def test_every_example_runs(example, tmp_path):
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
