"""The page served: nothing but this machine is served, work ends with its tab, and nothing piles up."""

import contextlib
import http.client
import signal
import sys
import threading
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
from processes import descendants, end, processes, wait_until

TINY = "#T=3&d=4&M=2&relevant=1&n=8&nTest=8&nFresh=8&numSteps=10"
ANSWER = 1200  # seconds; the library starts and compiles, on a machine that may be busy


class Served:
    """A running `manyheads explore`."""

    def __init__(self, start):
        command = [sys.executable, "-m", "manyheads.cli.main", "explore", "--no-browser"]
        self.process = start(command, stdout=-1, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.address

    def post(self, path, body=b"", headers=None):
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=300)
        with contextlib.closing(connection):
            connection.request(
                "POST", path, body, {"X-Manyheads": "explorer"} if headers is None else headers
            )
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    @property
    def work(self):
        return descendants(self.process)


def chromium_memory():
    """Bytes that all processes of the browser hold for themselves."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "chrom" in process.name():
                total += process.memory_full_info().uss
    return total


@pytest.fixture(scope="module")
def server():
    with processes() as start:
        yield Served(start)


def ask(tab, button):
    """Press a button of the library's panel and wait for what it shows."""
    tab.page.click(button)
    tab.until(
        "document.querySelector('#libraryOut') && !document.querySelector('#askStop')", limit=ANSWER
    )
    return tab.text("#libraryOut")


def test_only_this_machine_is_served(server):
    assert server.process.poll() is None
    sockets = psutil.Process(server.process.pid).net_connections()
    assert {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def test_other_sites_and_other_names_are_refused(server):
    assert server.post("/api/draw", headers={}) == (
        403,
        "only the explorer's own page may send requests.",
    )
    status, text = server.post(
        "/api/draw", headers={"X-Manyheads": "explorer", "Host": "evil.example"}
    )
    assert status == 403 and "127.0.0.1 and localhost only" in text
    assert server.post("/api/shell")[0] == 404
    assert server.post("/api/upload", b"0" * 65_000_000)[0] == 413
    assert server.work == []


def test_the_page_is_the_same_and_asks_only_its_server(server, opened):
    tab = opened(TINY, address=server.address)
    tab.train()
    assert {urlsplit(url).netloc for url in tab.requests if url.startswith("http")} == {
        urlsplit(server.address).netloc
    }
    assert tab.ask("document.documentElement.dataset.served") == "yes" and tab.complaints == []


@pytest.mark.browser
def test_the_good_start_card_has_numbers_and_what_would_make_the_theorem_speak(server, opened):
    tab = opened(TINY, address=server.address)
    text = ask(tab, "#askStart")
    assert all(name in text for name in ("def1.p1", "def1.p2", "def1.p3")), text
    assert "heads; you have 8." in text
    wait_until(lambda: not server.work, what="end of the work")


@pytest.mark.browser
def test_all_theorems_are_asked_about_the_run_shown(server, opened):
    tab = opened(TINY, address=server.address)
    tab.train()
    text = ask(tab, "#askCertify")
    assert "0 violated" in text and "thm1" in text and "identity" in text, text
    assert tab.page.locator("#libraryOut [data-verdict=HOLDS]").count() > 3
    assert tab.page.locator("#libraryOut [data-verdict=SILENT]").count() > 3


@pytest.mark.browser
def test_hard_margins_are_shown_on_their_scales(server, opened):
    tab = opened(TINY, address=server.address)
    text = ask(tab, "#askMargins")
    assert (
        "readout scale: best linear classifier" in text
        and "tangent scale: best direction (P3)" in text
    )


@pytest.mark.browser
def test_data_drawn_by_the_library_need_only_a_seed(server, opened):
    tab = opened(TINY + "&start=gaussian&heads=3", address=server.address)
    assert "seed 1" in ask(tab, "#askDraw")
    tab.until("explorer.app.run.own")
    tab.train()
    code, scope = tab.ask("explorer.pythonCode(explorer.app.run)"), {}
    assert len(code) < 2000 and "jax.random.key(1)" in code
    exec(code.replace("print(run)", "run"), scope)
    np.testing.assert_allclose(
        tab.ask("explorer.app.run.rows.map((row) => row.trainLoss)"),
        scope["run"].train_loss,
        rtol=1e-9,
    )
    assert tab.ask("[...new Set(explorer.app.run.train.pattern)].every((k) => k >= 0)")


def test_own_data_are_trained_on_and_their_names_stay_text(server, opened, tmp_path):
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((40, 3, 2))
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    np.savez(
        tmp_path / "<b>mine.npz", tokens=tokens, labels=np.where(tokens[:, 0, 0] > 0, evil, "ham")
    )
    tab = opened(TINY, address=server.address)
    dialogs = []
    tab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    tab.page.set_input_files("#ownFile", tmp_path / "<b>mine.npz")
    tab.until("explorer.app.run.settings.data === 'own'", limit=ANSWER)
    assert evil in tab.text("#ownTold") and tab.page.locator("#ownTold *").count() == 0
    tab.train()
    assert (
        tab.ask("explorer.app.run.train.n + explorer.app.run.test.n + explorer.app.run.fresh.n")
        == 40
    )
    assert evil in tab.text("#mapsBody") + tab.text("#picture") or "ham" in tab.text("#mapsBody")
    assert (
        dialogs == [] and tab.page.locator("#mapsBody img, #picture img, #library img").count() == 0
    )
    code = tab.ask("explorer.pythonCode(explorer.app.run)")
    scope = {}
    exec(code.replace("print(run)", "run"), scope)
    np.testing.assert_allclose(
        tab.ask("explorer.app.run.last.trainLoss"), scope["run"].train_loss[-1], rtol=1e-9
    )


def test_a_bad_upload_is_a_message_in_the_page(server, opened, tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"nonsense")
    (tmp_path / "bad.csv").write_text("one,two\n1,2\n")
    tab = opened(TINY, address=server.address)
    for name in ("bad.npz", "bad.csv"):
        tab.page.set_input_files("#ownFile", tmp_path / name)
        tab.until(
            f"(document.querySelector('#libraryError')?.textContent || '').startsWith('{name}')",
            limit=ANSWER,
        )
    tab.train()
    assert tab.ask("explorer.app.run.settings.data") == "mixture"


def test_closing_the_tab_ends_its_work_and_stop_does_too(server, opened):
    for leave in ("stop", "close"):
        tab = opened(TINY, address=server.address)
        tab.page.click("#askCertify")
        wait_until(lambda: server.work, what="work for the tab")
        if leave == "stop":
            tab.page.click("#askStop")
        else:
            tab.page.close()
        wait_until(lambda: not server.work, what="end of the tab's work")
    assert server.process.poll() is None


@pytest.mark.parametrize("sessions", [4, pytest.param(20, marks=pytest.mark.browser)])
def test_sessions_leave_nothing_behind(server, opened, sessions):
    watched = psutil.Process(server.process.pid)
    first = opened(TINY, address=server.address)
    first.page.close()
    threads, memory, browser_memory = (
        watched.num_threads(),
        watched.memory_info().rss,
        chromium_memory(),
    )
    for session in range(sessions):
        tab = type(first)(first.context, server.address + TINY)
        tab.page.click(
            "#train" if session % 4 else "#askCertify"
        )  # either is left while it is at work
        tab.until("explorer.app.run.step > 0 || document.querySelector('#askStop')")
        tab.page.close()
    wait_until(lambda: not server.work, what="end of all work")
    wait_until(lambda: watched.num_threads() <= threads, what="end of all threads")
    assert watched.memory_info().rss - memory < 100e6
    wait_until(
        lambda: chromium_memory() - browser_memory < 100e6,
        what="memory that the browser gives back",
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_server_ends_its_work(opened, how):
    with processes() as start:
        own = Served(start)
        tab = opened(TINY, address=own.address)
        tab.page.click("#askCertify")
        wait_until(lambda: own.work, what="work")
        work = own.work
        own.process.send_signal(how)
        wait_until(lambda: own.process.poll() is not None, what="end of the server")
        wait_until(
            lambda: (
                not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in work)
            ),
            what="end of its work",
        )
        assert threading.active_count() < 50
        end(own.process)
