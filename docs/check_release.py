"""Install the wheel of `dist` in an empty environment and type what the README says there; `make release` calls it."""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
WHEEL = max((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
SHOWN = "import importlib.metadata as m; d = m.metadata('manyheads'); print(d['Name'], d['Version'], d['License-Expression'])"


def blocks(kind: str) -> list[str]:
    """The code blocks of the README of one kind, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


def commands() -> list[str]:
    """The lines that call manyheads."""
    lines = "\n".join(blocks("")).splitlines()
    return [line.partition("#")[0].strip() for line in lines if line.startswith("manyheads ")]


with tempfile.TemporaryDirectory() as folder:
    venv.create(f"{folder}/env", with_pip=True)
    scripts = Path(folder, "env", "Scripts" if sys.platform == "win32" else "bin")

    def run(*words: str | Path) -> None:
        """One command; the release stops where one fails (3: the theory is silent, which is an answer)."""
        print("$", " ".join(Path(str(word)).name[:70] for word in words), flush=True)
        code = subprocess.run([*map(str, words)], cwd=folder, stdout=subprocess.DEVNULL).returncode
        if code not in (0, 3):
            sys.exit(f"error: exit code {code}: {' '.join(map(str, words))}")

    run(
        scripts / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "-c",
        ROOT / "constraints.txt",
        f"{WHEEL}[all]",
    )
    print(subprocess.check_output([scripts / "python", "-c", SHOWN], text=True).strip())
    for line in commands():
        run(scripts / "manyheads", *line.split()[1:])
    for code in blocks("python"):
        run(scripts / "python", "-c", code)
print(
    f"{WHEEL.name} installs in an empty environment, and the README runs there; to publish: uv publish dist/*"
)
