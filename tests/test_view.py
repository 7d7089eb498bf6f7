"""`view` serves a splat to this machine alone, asks nothing, and ends on Ctrl-C."""

from __future__ import annotations

import json
import signal
import socket
import sys
import urllib.request
from importlib.util import find_spec

import numpy as np
import pytest
from fake_batch import FakeBatch

from splatbatch.splats.shapes import covariances

needs_viser = pytest.mark.skipif(find_spec("viser") is None, reason="viser is not installed (extra view)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
    from splatbatch.commands.view import view
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
