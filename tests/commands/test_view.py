"""`view` serves a splat to this machine alone, asks nothing, and ends on Ctrl-C."""

from __future__ import annotations

import http.client
import importlib.metadata
import json
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import SplitResult, urlsplit

import numpy as np
import pytest
from fake_batch import FakeBatch

from splatbatch.splats.shapes import covariances

if find_spec("viser"):
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

needs_viser = pytest.mark.skipif(find_spec("viser") is None, reason="viser is not installed (extra view)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def viewed(batch: FakeBatch) -> Iterator[SplitResult]:
    """The URL of a viewer that runs."""
    batch.make("p0").script(p0=["train"])
    assert batch.run("train").returncode == 0
    process = batch.start("view", "p0", "--port", str(free_port()))
    assert process.stdout
    yield urlsplit(process.stdout.readline().partition(" at ")[2].partition(" until ")[0])
    process.kill()
    process.communicate()


def asked(url: SplitResult, path: str, *, host: str = "", origin: str = "") -> tuple[int, int]:
    """Return what a page gets, and what a WebSocket: 101 if it is opened, and told something."""
    headers = {"Host": host or url.netloc, **({"Origin": origin} if origin else {})}
    page = http.client.HTTPConnection(url.hostname or "", url.port, timeout=10)
    page.request("GET", path, headers=headers)
    status = page.getresponse().status
    version = importlib.metadata.version("viser")
    try:
        with connect(
            f"ws://{headers['Host']}{path.rstrip('/')}",
            sock=socket.create_connection((url.hostname, url.port)),
            origin=origin or None,
            subprotocols=[f"viser-v{version}"],
        ) as client:
            return status, 101 if client.recv(timeout=10) else 0
    except InvalidStatus as refused:
        return status, refused.response.status_code


@needs_viser
def test_only_who_has_the_whole_url_is_answered_and_only_from_a_page_of_its_own(viewed: SplitResult) -> None:
    here = f"http://{viewed.netloc}"
    assert len(viewed.path.strip("/")) >= 32
    assert asked(viewed, viewed.path) == (200, 101)
    assert asked(viewed, viewed.path, origin=here) == (200, 101)
    by_name = f"localhost:{viewed.port}"
    assert asked(viewed, viewed.path, host=by_name, origin=f"http://{by_name}") == (200, 101)
    for path in ("/", "/index.html", f"/x{viewed.path[2:]}", f"{viewed.path[:-2]}/", f"/x{viewed.path}"):
        assert asked(viewed, path) == (403, 403), path
    for host in ("evil.example", f"evil.example:{viewed.port}", f"127.0.0.1.evil.example:{viewed.port}"):
        assert asked(viewed, viewed.path, host=host) == (403, 403), host
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null", f"https://{viewed.netloc}"):
        assert asked(viewed, viewed.path, origin=origin) == (403, 403), origin


@needs_viser
def test_a_splat_is_served_until_ctrl_c(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train"])
    assert batch.run("train").returncode == 0
    process = batch.start("view", "p0", "--port", str(free_port()))
    line = process.stdout.readline()
    url = line.partition(" at ")[2].partition(" until ")[0]
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert b"<html" in answer.read(2000).lower()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130


def test_without_a_splat_there_is_nothing_to_view(batch: FakeBatch) -> None:
    batch.make("p0")
    ended = batch.run("view", "p0")
    assert ended.returncode == 2
    assert "p0: has no splat yet" in ended.stderr


def test_without_viser_it_says_how_to_get_it(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    from splatbatch.commands.view.view import view
    from splatbatch.errors import MissingPartError

    batch.make("p0")
    folder = batch.output / "patches" / "p0"
    folder.mkdir(parents=True)
    (folder / "splat.ply").touch()
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(MissingPartError) as said:
        view(batch.config, "p0", 8080)
    assert (said.value.exit_code, said.value.hint) == (4, "pip install 'splatbatch[view]'")


@pytest.mark.parametrize("content", [b"", b"ply\nend_header\n", json.dumps({}).encode()])
@needs_viser
def test_a_broken_splat_is_an_error_with_a_remedy(batch: FakeBatch, content: bytes) -> None:
    batch.make("p0")
    folder = batch.output / "patches" / "p0"
    folder.mkdir(parents=True)
    (folder / "splat.ply").write_bytes(content)
    ended = batch.run("view", "p0", "--port", str(free_port()))
    assert ended.returncode == 6
    assert "retry -p p0 --force" in ended.stderr


def test_a_covariance_is_the_square_of_the_turned_scales() -> None:
    scales = np.log(np.array([[3.0, 1.0, 0.5]], dtype=np.float32))
    quarter_z = np.array([[2.0, 0, 0, 2.0]], dtype=np.float32)
    assert np.allclose(covariances(scales, quarter_z)[0], np.diag([1.0, 9.0, 0.25]), atol=1e-6)
