"""The live page: what the server answers to whom, and what a browser shows while a sweep runs."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from support.browsers import BROWSER, WatchedPage, dumped

from kising import run_sweep
from kising.cli import main
from kising.live.child import page_of
from kising.live.server import COOKIE, LiveServer, free_port, is_loopback
from kising.live.state import live_state
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import BatchProgress, NodeProgress, RunProgress

SWEEP = {
    "name": "tiny",
    "seed": 5,
    "realizations": 3,
    "model": {"visible": 6, "hidden": 2},
    "learner": {"max_iterations": 15, "estimator": "exact", "bias": False},
    "axes": {"data.length": [200, 800]},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("live") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        run_sweep({**SWEEP, "realizations": 2}, out=place, in_process=True)
    return place


@contextmanager
def serving(path: Path, **options: Any) -> Iterator[LiveServer]:
    server = LiveServer(path, **{"port": 0, **options})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(
    server: LiveServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def in_flight(directory: SweepDirectory) -> None:
    """Write the progress of a driver that has two runs in flight and one failed."""
    before = directory.read_progress()
    assert before is not None
    node = NodeProgress(cores=2.0, busy=2, runs=2, finished=4, rate=1.5)
    run = RunProgress(run_id="0123456789abcdef", label="data.length=800, realization 2", error=None)
    failed = RunProgress(
        run_id="fedcba9876543210", label="data.length=200, realization 2", error="out of <luck>"
    )
    directory.write_progress(before.model_copy(update={
        "state": "running", "total": 6, "done": 3, "failed": 1, "running": 2, "workers": 2, "rate": 1.5, "eta": 100.0,
        "nodes": {"one": node}, "oldest": [BatchProgress(host="one", runs=2, seconds=65.0, run=run)],
        "failures": [failed],
    }))  # fmt: skip


def test_the_state_has_progress_nodes_flights_and_failures(finished: Path, tmp_path: Path) -> None:
    directory = SweepDirectory(Path(shutil.copytree(finished, tmp_path / "copy")))
    assert live_state(directory.path)["state"] == "finished"
    with directory.lock("kising run"):
        in_flight(directory)
        state = live_state(directory.path)
    assert (state["state"], state["done"], state["failed"], state["total"]) == ("running", 3, 1, 6)
    assert state["headline"] == "2 runs in flight on 2 workers, 1.5 runs/s, 1 min 40 s left"
    assert state["nodes"] == [["one", "2 of 2 cores in use", "2 runs in flight", "4 finished", "1.5 runs/s"]]
    assert state["flights"] == [
        ["1 min 5 s on one", "2 runs", "0123456789abcdef, data.length=800, realization 2"]
    ]
    assert state["failures"] == [["fedcba9876543210", "data.length=200, realization 2", "out of <luck>"]]
    # The driver was killed: nothing is in flight any more.
    ended = live_state(directory.path)
    assert (ended["state"], ended["nodes"], ended["flights"]) == ("interrupted", [], [])
    assert ended["headline"] == f"to resume: kising run {directory.path}"
    directory.write_manifest(numerics=1, command="kising run a.yaml --address auto --mirror s3://b/p")
    resume = f"kising run {directory.path} --address auto --mirror s3://b/p"
    assert live_state(directory.path)["headline"] == f"to resume: {resume}"
    directory.progress_file.unlink()
    assert live_state(directory.path)["total"] == 4
    assert live_state(tmp_path / "nowhere")["state"] == "waiting"


@pytest.mark.slow
def test_the_report_follows_the_parts_and_nothing_is_written(finished: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(finished, tmp_path / "copy"))
    before = sorted(path.rglob("*"))
    with serving(path) as server:
        until(lambda: server.renderer.latest.version == 1)
        status, headers, html = ask(server, "/report.html")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "4 runs done" in html
        assert '<a href="error-against-length.csv">' in html
        assert ".svg" not in html
        assert ask(server, "/error-against-length.csv")[2].startswith("panel,line,quantity,data.length,value")
        assert json.loads(ask(server, "/state.json")[2])["report"] == 1
        assert sorted(path.rglob("*")) == before
        run_sweep(SWEEP, out=path, in_process=True)
        until(lambda: "6 runs done" in ask(server, "/report.html")[2])
        for wrong in ("/sweep.yaml", "/../sweep.yaml", "/parts", "/runs.parquet", "/report.json"):
            assert ask(server, wrong)[0] == 404


def test_on_loopback_only_requests_for_loopback_are_answered(finished: Path) -> None:
    with serving(finished) as server:
        assert server.url == f"http://127.0.0.1:{server.server_address[1]}/"
        for host in ("127.0.0.1", f"localhost:{server.server_address[1]}", "[::1]:80"):
            assert ask(server, "/", Host=host)[0] == 200
        for host in ("evil.example", "evil.example:8765", ""):
            assert ask(server, "/state.json", Host=host)[0] == 403
        _, headers, page = ask(server, "/")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert page.count("<script") == page.count('<script src="live.js">') == 1
        assert ask(server, "/", method="POST")[0] == 501


def test_elsewhere_every_request_needs_the_token(finished: Path) -> None:
    with serving(finished, host="0.0.0.0") as server:
        assert server.token is not None
        assert len(server.token) >= 20
        assert server.url.endswith(f":{server.server_address[1]}/?token={server.token}")
        for path in ("/", "/state.json", "/report.html", "/live.js", "/?token=", f"/?token={server.token}x"):
            assert ask(server, path)[0] == 403
            assert ask(server, path, Cookie=f"{COOKIE}=wrong")[0] == 403
        assert ask(server, "/state.json", Cookie="=;=\x80".encode("ascii", "ignore").decode())[0] == 403
        status, headers, _ = ask(server, f"/?token={server.token}")
        assert (status, headers["Location"]) == (303, "/")
        assert headers["Set-Cookie"] == f"{COOKIE}={server.token}; HttpOnly; SameSite=Strict; Path=/"
        cookie = headers["Set-Cookie"].partition(";")[0]
        for path in ("/", "/state.json", "/live.js"):
            assert ask(server, path, Cookie=cookie)[0] == 200
    assert [
        is_loopback(x) for x in ("127.0.0.1", "localhost", "::1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "x")
    ] == [*(True, True, True, True, False, False, False)]


def test_mistakes_of_the_command_are_one_line(finished: Path, tmp_path: Path) -> None:
    with serving(finished) as server:
        port = server.server_address[1]
        assert free_port(port) != port
        taken = CliRunner().invoke(main, ["serve", str(finished), "--port", str(port)])
    assert taken.exit_code == 2
    assert f"cannot listen on 127.0.0.1 port {port}: " in taken.output
    nowhere = CliRunner().invoke(main, ["serve", str(tmp_path / "nowhere")])
    assert (nowhere.exit_code, nowhere.output.count("\n")) == (1, 1)


def test_the_page_of_a_driver_ends_with_it_however_it_ends(finished: Path, tmp_path: Path) -> None:
    with page_of(finished) as url:
        until(lambda: b'"total": 4' in _read(url + "state.json"))
    assert _read(url) == b""
    script = (
        "import os, sys, time\nfrom pathlib import Path\nfrom kising.live.child import page_of\n"
        f"with page_of(Path({str(tmp_path / 'later')!r})) as url:\n    print(url, flush=True)\n    time.sleep(600)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    url = driver.stdout.readline().strip()
    until(lambda: b'"waiting"' in _read(url + "state.json"))
    driver.kill()
    driver.wait()
    driver.stdout.close()
    until(lambda: _read(url) == b"")


def _read(url: str) -> bytes:
    try:
        with urlopen(url, timeout=10) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


def test_a_run_with_a_page_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(json.dumps({**SWEEP, "realizations": 1}))
    result = CliRunner().invoke(main, ["run", "tiny.yaml", "--local-debug", "--page"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "Page: http://127.0.0.1:" in result.output


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed: the live page is not looked at")
def test_a_browser_follows_a_sweep_through_a_restart(finished: Path, tmp_path: Path) -> None:
    directory = SweepDirectory(Path(shutil.copytree(finished, tmp_path / "copy")))
    port = free_port()
    with directory.lock("kising run"):
        in_flight(directory)
        with (
            serving(directory.path, port=port) as server,
            WatchedPage(server.url, tmp_path / "watched") as page,
        ):
            until(lambda: page.title() == "running 4/6 copy")
            until(lambda: server.renderer.latest.version == 1)
            seen = dumped(server.url, tmp_path / "dumped", 390)
            for words in (
                "running: 3 of 6 runs done, 1 failed",
                "2 runs in flight on 2 workers",
                "one · 2 of 2 cores in use",
                "0123456789abcdef, data.length=800, realization 2",
                "data.length=200, realization 2 · out of &lt;luck&gt;",
                "RMSE of the learned couplings",
            ):
                assert words in seen
            assert seen.count("<img ") == 2
            # Progress arrives by itself.
            progress = directory.read_progress()
            assert progress is not None
            directory.write_progress(progress.model_copy(update={"done": 4}))
            until(lambda: page.title() == "running 5/6 copy")
            # The server goes away, and comes back, as with a driver that is started again.
            server.shutdown()
            server.server_close()
            until(lambda: page.title() == "no connection copy")
            with serving(directory.path, port=port):
                until(lambda: page.title() == "running 5/6 copy")
