"""`manyheads explore`: what it refuses before it serves; tests/explorer has the rest."""

import socket
import subprocess
import sys

import pytest

from manyheads.cli.main import main


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_does_not_exist_is_refused(capsys, port):
    assert main(["explore", "--port", port]) == 2
    assert (
        capsys.readouterr().err
        == f"error: --port {port} must be from 0 to 65535; 0 picks a free one.\n"
    )


def test_a_port_in_use_is_refused_in_one_line(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["explore", "--no-browser", "--port", str(taken.getsockname()[1])]) == 2
    told = capsys.readouterr()
    assert "cannot be used" in told.err and told.err.count("\n") == 1 and told.out == ""


def test_without_the_extra_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "manyheads.explorer.server", raising=False)
    assert main(["explore", "--no-browser"]) == 2
    assert "pip install 'manyheads[explore]'" in capsys.readouterr().err


def test_the_server_needs_no_jax():
    code = "import sys, manyheads.explorer.server as s; s.application(); assert 'jax' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
