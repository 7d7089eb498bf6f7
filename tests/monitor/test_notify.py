"""People are told, beside the batch: JSON for a command, letters for Apprise; passwords are shown to nobody."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fake_batch import FakeBatch
from supervised import alive, wait_for
from told import listen

from splatbatch.config import load
from splatbatch.errors import ConfigError
from splatbatch.machine.limited_program import Hook

KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
PASSWORD = "hunter2secret"


def told(batch: FakeBatch) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (batch.folder / "told").read_text().splitlines()]


def keeping(batch: FakeBatch) -> list[str]:
    return [sys.executable, "-c", KEEP, str(batch.folder / "told")]


@pytest.mark.contract
def test_the_end_and_every_failure_for_good_are_told(batch: FakeBatch) -> None:
    batch.make("p0", "p1", notify={"command": keeping(batch)}, retry={"max_attempts": 1})
    batch.script(p0=["exit 1 CUDA error: out of memory"], p1=["train"])
    assert batch.run("train").returncode == 1
    failed, ended = told(batch)
    assert (failed["event"], [one["patch"] for one in failed["patches"]]) == ("patches_failed", ["p0"])
    assert (ended["event"], ended["summary"]) == ("batch_ended", "1 of 2 patches trained; failed: p0")
    assert [(one["patch"], one["state"], one["cause"]) for one in ended["patches"]] == [
        ("p0", "failed", "cuda_oom"),
        ("p1", "trained", ""),
    ]


@pytest.mark.all(but=("command0", "command1"))
@pytest.mark.contract
@pytest.mark.parametrize(
    "command", [["/no/such/program"], ["false"], [sys.executable, "-c", "import time; time.sleep(60)"]]
)
def test_a_failing_hook_fails_no_batch(batch: FakeBatch, command: list[str]) -> None:
    batch.make("p0", notify={"command": command}, constants={"splatbatch.monitor.notify.TIMEOUT_S": 0.5}).script(
        p0=["train"]
    )
    started = time.monotonic()
    ended = batch.run("train")
    assert ended.returncode == 0
    assert "notification failed: notify.command: " in ended.stderr
    assert time.monotonic() - started < 30


def test_a_password_is_shown_nowhere(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    told = listen(monkeypatch, lambda argv: "exit code 1" if argv[0] == "false" else "")
    urls = [f"json://user:{PASSWORD}@127.0.0.1:9/"] if find_spec("apprise") else []
    batch.make("p0", notify={"command": ["false", f"https://x/{PASSWORD}"], "urls": urls})
    batch.script(p0=["exit 1 CUDA error: out of memory"]).change(retry={"max_attempts": 1})
    ended = batch.run("train")
    shown = batch.run("config", "show")
    assert "notification failed: notify.command: exit code 1" in ended.stderr
    assert any(PASSWORD.encode() in one for one in told.heard) is bool(urls)
    written = [path.read_bytes() for path in batch.output.rglob("*") if path.is_file()]
    assert PASSWORD.encode() not in b"".join([*written, ended.stdout.encode(), ended.stderr.encode()])
    assert PASSWORD not in shown.stdout + shown.stderr
    assert "**********" in (batch.output / "batch.yaml").read_text()


@pytest.mark.parametrize(
    "notify",
    [
        {"urls": {"slack": PASSWORD}},
        {"urls": [[PASSWORD]]},
        {"command": [{"a": PASSWORD}]},
        {"urls": [f"mailto://me:pa${PASSWORD}@x.org"]},
    ],
)
def test_a_mistake_beside_a_password_does_not_quote_it(batch: FakeBatch, notify: dict[str, Any]) -> None:
    batch.make("p0", notify=notify)
    with pytest.raises(ConfigError) as said:
        load(batch.config)
    assert "notify" in said.value.message
    assert PASSWORD not in said.value.message + said.value.hint


def test_a_variable_of_the_environment_is_filled_in(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANNEL", "ntfy://x/y")
    batch.make("p0", notify={"urls": "$CHANNEL"})
    assert load(batch.config).notify.urls[0].get_secret_value() == "ntfy://x/y"


class Listening(BaseHTTPRequestHandler):
    heard: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[HTTPServer]:
    Listening.heard = []
    server = HTTPServer(("127.0.0.1", 0), Listening)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.mark.all
@pytest.mark.skipif(find_spec("apprise") is None, reason="Apprise is not installed (extra notify)")
def test_apprise_delivers_what_failed_and_why(batch: FakeBatch, service: HTTPServer) -> None:
    batch.make("p0", notify={"urls": [f"json://127.0.0.1:{service.server_port}/"]}, retry={"max_attempts": 1})
    batch.script(p0=["exit 1 CUDA error: out of memory"])
    ended = batch.run("train")
    assert "not told" not in ended.stderr
    assert Listening.heard[-1]["title"] == "splatbatch: 0 of 1 patches trained; failed: p0"
    assert "p0: failed: GPU memory ran out" in Listening.heard[-1]["message"]


def test_urls_without_apprise_are_refused_before_anything_starts(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from splatbatch.errors import TrainerError
    from splatbatch.monitor import notify
    from splatbatch.output.layout import OutputFolder

    monkeypatch.setattr(notify, "find_spec", lambda _: None)
    batch.make("p0", notify={"urls": ["ntfy://x"]})
    with pytest.raises(TrainerError, match="Apprise is not installed"):
        notify.Notifier(load(batch.config).notify, OutputFolder(batch.output), ["p0"])


@pytest.mark.contract
def test_a_hook_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/aside; setsid sleep 600 & echo $! > {tmp_path}/apart; wait"
    hook = Hook(["bash", "-c", script], b"x" * 1_000_000, 60)  # more than a pipe holds, and nobody reads
    places = [tmp_path / name for name in ("aside", "apart")]
    pids = [wait_for(lambda place=place: place.exists() and place.read_text()) for place in places]
    assert all(alive(int(pid)) for pid in pids)
    assert hook.verdict() is None
    hook.end()
    wait_for(lambda: not any(alive(int(pid)) for pid in pids))
