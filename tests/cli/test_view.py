"""`view` serves a splat to this machine alone, asks nothing, and ends on Ctrl-C."""

from __future__ import annotations

import http.client
import json
import signal
import urllib.request
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

import numpy as np
import pytest
from fake_batch import FakeBatch

from splatbatch.report.viewer.viewer import viewer_gz
from splatbatch.splats.ply import covariances

built = pytest.mark.skipif(not viewer_gz(), reason="the viewer is not built (scripts/build_web, needs npm)")


def url_of(process: object) -> str:
    line: str = process.stdout.readline()  # type: ignore[attr-defined]
    return line.partition(" at ")[2].partition(" until ")[0]


@pytest.fixture
def viewed(batch: FakeBatch) -> Iterator[SplitResult]:
    """The URL of a viewer that runs."""
    batch.make("p0").script(p0=["train"])
    assert batch.run("train").returncode == 0
    process = batch.start("view", "p0", "--port", "18180")
    yield urlsplit(url_of(process))
    process.kill()
    process.communicate()


def asked(url: SplitResult, path: str, *, host: str = "", origin: str = "") -> int:
    """Return what a page gets."""
    headers = {"Host": host or url.netloc, **({"Origin": origin} if origin else {})}
    page = http.client.HTTPConnection(url.hostname or "", url.port, timeout=10)
    page.request("GET", path, headers=headers)
    return page.getresponse().status


@pytest.mark.all
@pytest.mark.contract
@built
def test_only_who_has_the_whole_url_is_answered_and_only_from_a_page_of_its_own(viewed: SplitResult) -> None:
    assert len(viewed.path.strip("/")) >= 32
    assert asked(viewed, viewed.path) == 200 == asked(viewed, viewed.path, origin=f"http://{viewed.netloc}")
    by_name = f"localhost:{viewed.port}"
    assert asked(viewed, viewed.path, host=by_name, origin=f"http://{by_name}") == 200
    for path in ("/", "/index.html", f"/x{viewed.path[2:]}", f"{viewed.path[:-2]}/", f"/x{viewed.path}"):
        assert asked(viewed, path) == 403, path
    for host in ("evil.example", f"evil.example:{viewed.port}", f"127.0.0.1.evil.example:{viewed.port}"):
        assert asked(viewed, viewed.path, host=host) == 403, host
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null", f"https://{viewed.netloc}"):
        assert asked(viewed, viewed.path, origin=origin) == 403, origin


@pytest.mark.all
@pytest.mark.contract
@built
def test_the_splat_of_a_patch_is_served_with_all_that_is_in_it_until_ctrl_c(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train"])
    assert batch.run("train").returncode == 0
    batch.change(training={"max_steps": 21})  # a stale splat can be looked at
    process = batch.start("view", "p0", "--port", "18180")
    url = url_of(process)
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert b"<html" in answer.read(2000).lower()
    with urllib.request.urlopen(f"{url}splat.ply", timeout=10) as answer:
        served, trained = answer.read(), (batch.output / "patches/p0/splat.ply").read_bytes()
    assert served.partition(b"end_header\n")[2] == trained.partition(b"end_header\n")[2]
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    process.communicate()


def test_without_a_splat_there_is_nothing_to_view(batch: FakeBatch) -> None:
    batch.make("p0")
    ended = batch.run("view", "p0")
    assert ended.returncode == 2
    assert "p0: has no splat yet" in ended.stderr


@pytest.mark.parametrize("content", [b"", b"ply\nend_header\n", json.dumps({}).encode()])
def test_a_broken_splat_is_an_error_with_a_remedy(batch: FakeBatch, content: bytes) -> None:
    batch.make("p0")
    folder = batch.output / "patches" / "p0"
    folder.mkdir(parents=True)
    (folder / "splat.ply").write_bytes(content)
    ended = batch.run("view", "p0")
    assert ended.returncode == 6
    assert "Train it again: splatbatch train p0." in ended.stderr


def test_a_covariance_is_the_square_of_the_turned_scales() -> None:
    scales = np.log(np.array([[3.0, 1.0, 0.5]], dtype=np.float32))
    quarter_z = np.array([[2.0, 0, 0, 2.0]], dtype=np.float32)
    assert np.allclose(covariances(scales, quarter_z)[0], np.diag([1.0, 9.0, 0.25]), atol=1e-6)
