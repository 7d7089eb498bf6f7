"""`serve`: the report while a batch runs, for whoever has its whole URL; what changes reaches the page by itself."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pytest
from accessible import violations
from browser import Watched, artifacts_folder, browser
from fake_batch import FakeBatch

from splatbatch.cli import server
from splatbatch.cli.server import LiveStatus
from splatbatch.tasks.batch import open_batch


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def served(batch: FakeBatch) -> Iterator[tuple[SplitResult, subprocess.Popen[str]]]:
    """Serve the report of a batch; the URL that it names, and the process."""
    process = batch.start("serve", "--port", str(free_port()))
    assert process.stdout
    try:
        said = process.stdout.readline()
        yield urlsplit(said.partition(" at ")[2].partition(" until ")[0]), process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SplitResult]:
    """The URL of a report that is served, of a batch of which one patch is trained; no test changes it."""
    batch = FakeBatch(tmp_path_factory.mktemp("shown"))
    batch.make("p0", "p1").script(p0=["measure 21.5"])
    assert batch.run("train", "p0").returncode == 0
    with served(batch) as (url, _):
        yield url


def get(url: SplitResult, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=20)
    connection.request("GET", path, headers={"Host": url.netloc, **headers})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def stream_of(url: SplitResult) -> Iterator[dict[str, Any]]:
    """Yield what the stream says, as it comes."""
    with socket.create_connection((url.hostname, url.port), timeout=30) as connection:
        connection.sendall(f"GET {url.path}events HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
        for line in connection.makefile(encoding="utf-8"):
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


@pytest.mark.all
@pytest.mark.contract
def test_who_has_the_whole_url_sees_the_report_as_it_is_now(shown: SplitResult) -> None:
    code, page, headers = get(shown, shown.path)
    assert code == 200 and "1 of 2 patches trained. 1 thing to do" in page and 'id="live"' in page
    assert "connect-src 'self'; " in unescape(page) and headers["Cache-Control"] == "no-store"
    now = json.loads(get(shown, f"{shown.path}now")[1])
    assert now["line"] == "1 of 2 trained" and now["left"] == 1 and now["states"] == {"p0": "trained", "p1": "waiting"}
    assert get(shown, f"{shown.path}report.json")[0] == 404
    assert f'data-version="{now["version"]}"' in page


@pytest.mark.contract
@pytest.mark.all(but="now")
@pytest.mark.parametrize("name", ["", "now", "events"])
def test_nobody_else_is_answered(shown: SplitResult, name: str) -> None:
    by_name = f"localhost:{shown.port}"
    for path in (f"/{name}", f"{shown.path[:-2]}/{name}", f"/x{shown.path}{name}"):
        assert get(shown, path)[0] == 403
    for host in ("evil.example", f"127.0.0.1.evil.example:{shown.port}"):
        assert get(shown, f"{shown.path}{name}", Host=host)[0] == 403
    for origin in ("http://evil.example", "null", f"http://{by_name}"):
        assert get(shown, f"{shown.path}{name}", Origin=origin)[0] == 403
    if name != "events":  # through `ssh -L`, under another name and port of the browser's own machine
        assert get(shown, f"{shown.path}{name}", Host="localhost:9999")[0] == 200


@pytest.mark.contract
def test_it_writes_nothing_and_ends_at_ctrl_c(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train"])
    assert batch.run("train").returncode == 0
    before = {path: path.stat().st_mtime_ns for path in batch.output.rglob("*")}
    with served(batch) as (url, process):
        assert get(url, url.path)[0] == 200
        assert {path: path.stat().st_mtime_ns for path in batch.output.rglob("*")} == before
        stream = stream_of(url)
        next(stream)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130


@pytest.mark.all
@pytest.mark.contract
def test_the_stream_tells_what_a_training_does(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["await go"])
    with served(batch) as (url, _):
        stream = stream_of(url)
        first = next(stream)
        assert first["line"] == "0 of 1 trained" and first["running"] == [] and first["run"] == ""
        training = batch.beside("train").until((batch.output / "patches/p0/attempt-01/progress.jsonl").exists)
        told = next(one for one in stream if one["running"])
        assert told["running"][0]["patch"] == "p0" and told["run"].startswith(f"process {os.getpid()} on ")
        assert told["version"] != first["version"]
        (batch.folder / "go").touch()
        assert training.ended().returncode == 0
        assert next(one for one in stream if one["states"]["p0"] == "trained")["left"] == 0


@pytest.mark.all
def test_no_more_pages_follow_than_there_is_room_for(shown: SplitResult) -> None:
    streams = [stream_of(shown) for _ in range(16)]
    for stream in streams:
        next(stream)
    assert get(shown, f"{shown.path}events")[0] == 503
    for stream in streams:
        stream.close()
    deadline = time.monotonic() + 60
    while get(shown, f"{shown.path}now")[0] != 200:
        assert time.monotonic() < deadline


def test_without_a_free_port_it_says_so(batch: FakeBatch) -> None:
    ended = batch.make("p0").run("serve", "--port", "0")
    assert ended.returncode == 2


@pytest.mark.long
def test_a_page_that_is_open_follows_the_night(batch: FakeBatch, tmp_path: Any) -> None:
    batch.make("p0", "p1").script(p0=["train 5"], p1=["train 5"])
    artifacts = artifacts_folder(tmp_path)
    with served(batch) as (url, process), browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        watched = Watched(page)
        page.on("pageerror", lambda error: watched.errors.append(str(error)))
        page.on("console", lambda said: said.type == "error" and watched.errors.append(said.text))
        page.goto(url.geturl())
        assert "0 of 2 patches trained" in page.locator("h1").text_content()
        training = batch.start("train")
        watched.until("document.querySelectorAll('#live tbody tr').length > 0", timeout_s=60)
        page.fill("#filter", "p1")
        watched.shoot(artifacts, "live-running")
        assert violations(page) == []
        page.locator("h1", has_text="2 of 2 patches").wait_for(timeout=120_000)
        assert page.input_value("#filter") == "p1"  # what one has typed outlives a report that was loaded anew
        watched.shoot(artifacts, "live-done")
        training.communicate()
        assert watched.errors == []
        os.kill(process.pid, signal.SIGINT)
        watched.until("document.getElementById('live').dataset.lost === 'yes'", timeout_s=30)


def test_a_report_that_takes_long_to_make_stands_for_long(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    batch.make("p0", "p1").script(p0=["train"], p1=["train"])
    board = LiveStatus(open_batch(batch.config))
    monkeypatch.setattr(server, "LOOK_S", 0.0)
    first = board.page()
    assert batch.run("train", "p0").returncode == 0
    monkeypatch.setattr(server, "REST", 1e9)
    assert board.now()["states"]["p0"] == "trained" and board.page() == first
    monkeypatch.setattr(server, "REST", 0.0)
    assert "1 of 2 patches trained" in board.page() != first
