"""The documents: every link leads somewhere, every example runs."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import manyheads

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("design/*.md")])
EXAMPLES = sorted(ROOT.glob("docs/examples/*.py"))
LONG = (
    "attention_and_network.py",
    "grid_search.py",
    "optimizers.py",
    "two_layer_network.py",
)  # run by .ci/run
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def targets(page: Path) -> list[str]:
    prose = re.sub(
        r"`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$", "", FENCED.sub("", page.read_text()), flags=re.DOTALL
    )
    return [target for target in LINK.findall(prose) if "://" not in target]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page):
    assert [target for target in targets(page) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "$$" in page.read_text()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_displayed_formula_is_a_paragraph_of_its_own(page):
    """Inside a paragraph the site shows it in the line, and two in a row as one that cannot be read."""
    paragraphs = re.split(r"\n\s*\n", FENCED.sub("", page.read_text()))
    holding = [one.strip() for one in paragraphs if "$$" in re.sub(r"`[^`\n]*`", "", one)]
    alone = re.compile(r"\$\$(?:(?!\$\$).)+\$\$", re.DOTALL)
    assert [one for one in holding if not alone.fullmatch(one)] == []


def test_the_site_asks_nothing_of_the_network():
    """The plug-in for pages opened from a folder loads a script from outside unless one of that name is given."""
    polyfill = re.search(r"polyfills: \[(.*iframe-worker.*)\]", (ROOT / "mkdocs.yml").read_text())
    assert polyfill and (ROOT / "docs" / polyfill[1]).is_file()


def test_the_links_of_the_readme_are_seen():
    assert "CONTRIBUTING.md" in targets(ROOT / "README.md")


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(
            pytest.param(f"docs/{name}.md", marks=pytest.mark.full)  # run by .ci/run
            for name in ("measures", "your-data", "choosing", "change-one", "scale")
        ),
    ],
)
def test_the_example_of_a_page_runs(page, tmp_path):
    examples = [
        code for language, code in FENCED.findall((ROOT / page).read_text()) if language == "python"
    ]
    printed = ""
    for code in examples:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        printed += done.stdout
    assert printed  # one of them at least


@pytest.mark.full
def test_the_page_on_own_statements_runs_from_top_to_bottom(tmp_path):
    text = (ROOT / "docs/attack/your-own.md").read_text()
    code = "\n".join(code for language, code in FENCED.findall(text) if language == "python")
    settings = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=settings
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(?:HOLDS|SILENT|VIOLATED)", done.stdout, re.M) == [
        "HOLDS",
        "SILENT",
        "HOLDS",
    ]


@pytest.mark.full
@pytest.mark.parametrize("path", sorted((ROOT / "docs/attack").glob("*.py")), ids=lambda p: p.stem)
def test_the_page_of_known_inequalities_says_what_is_found(path, tmp_path):
    if path.stem == "make_page":
        return
    values = runpy.run_path(str(path))
    found = manyheads.verify(values["lemma"], store=tmp_path, quick=True, **values["settings"])
    title = values["__doc__"].partition("\n")[0].rstrip(".")
    section = (ROOT / "docs/attack/index.md").read_text().partition(f"## {title}\n")[2]
    assert section.startswith(f"\n**{found.verdict.name}")


@pytest.mark.parametrize(
    "example",
    [pytest.param(one, marks=pytest.mark.full if one.name in LONG else ()) for one in EXAMPLES],
    ids=lambda example: example.name,
)
def test_every_example_runs(example, tmp_path):
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_has_its_entry_in_the_page_of_its_room():
    made = runpy.run_path(str(ROOT / "docs/make_api.py"))
    pages, rooms = made["pages"](), {"top": manyheads}
    rooms |= {name: getattr(manyheads, name) for name in manyheads.ROOMS}
    assert [f"{name}.md" for name in rooms] == list(pages)
    for name, room in rooms.items():
        wanted = made["public_names"](room)
        assert [x for x in wanted if f"\n### {x}\n" not in pages[f"{name}.md"]] == []


def test_the_picture_of_tokens_and_heads_is_that_of_its_script():
    made = runpy.run_path(str(ROOT / "docs/images/draw_attention.py"))["picture"]()
    assert made == (ROOT / "docs/images/attention.svg").read_text(), (
        "run python docs/images/draw_attention.py"
    )


def test_every_page_is_in_the_menu():
    menu = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    made = {f"api/{name}.md" for name in ("top", *manyheads.ROOMS)}  # by `make docs`
    assert sorted(menu) == sorted({*made, *pages})


@pytest.mark.full
def test_the_notebook_opens_with_a_picture_and_runs(tmp_path):
    notebook = json.loads((ROOT / "docs/examples/first_steps.ipynb").read_text())
    cells = notebook["cells"]
    assert notebook["nbformat"] == 4 and all(
        {"id", "cell_type", "metadata", "source"} <= cell.keys() for cell in cells
    )
    first = "".join(cells[0]["source"])
    assert (
        cells[0]["cell_type"] == "markdown"
        and (ROOT / "docs/examples" / LINK.findall(first)[0]).exists()
    )
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_the_outputs_quoted_for_the_digits_are_what_the_commands_print(tmp_path):
    def printed(*words):
        done = subprocess.run(
            [sys.executable, "-m", "manyheads.cli.main", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def quoted(page, opening):
        (block,) = (
            b
            for kind, b in FENCED.findall((ROOT / page).read_text())
            if kind == "text" and opening in b
        )
        return block.strip()

    fitted = printed("fit", "digits", "-o", "digits.safetensors", "--quiet")
    assert quoted("README.md", "No difference seen") in fitted
