"""Forged results in a store: home takes nothing but files that came by their hash, and names what it refuses."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trainer_kinds
from external_program import write_ply
from fake_batch import FakeBatch
from process_family import wait_until
from travelling import QUICK, SHORT, run, states, work

from splatbatch import processes
from splatbatch.hashing import sha256_of
from splatbatch.transfer import blobs, exchange
from splatbatch.transfer.bundle import Bundle
from splatbatch.transfer.exchange import TransferResult
from splatbatch.transfer.schemes import open_store

Change = Callable[[dict[str, dict[str, Any]]], None]


class Forgery:
    """A result in a store, trained by a worker, that is written anew with other files."""

    def __init__(self, home: FakeBatch, url: str, folder: Path) -> None:
        self.home, self.url, self.folder = home, url, folder
        [self.name] = [path.name for path in Path(url, "results").iterdir()]
        self.record = exchange.read_sealed(open_store(url), f"results/{self.name}")
        self.pieces = {one["name"]: one for one in self.record["attempts"][0]["pieces"]}

    def content(self, name: str) -> dict[str, Any]:
        return json.loads(self.blob(name).read_bytes())

    def blob(self, name: str) -> Path:
        return Path(self.url, "blobs", self.pieces[name]["sha256"])

    def put(self, name: str, content: dict[str, Any]) -> None:
        """Put another file under a name, with its own hash."""
        file = self.folder / "forged.json"
        file.write_text(json.dumps(content))
        sha256 = sha256_of(file)
        blobs.put(open_store(self.url), [(blobs.blob(sha256), file)])
        self.pieces[name] = {"name": name, "sha256": sha256, "num_bytes": file.stat().st_size, "mtime_ns": 1}

    def put_bundle(self, **settings: object) -> None:
        """Put the bundle anew, with other settings, and the result as one of it."""
        [path] = Path(self.url, "bundles").iterdir()
        bundle = Bundle.from_record(json.loads(path.read_bytes()))
        path.unlink()
        forged = replace(bundle, settings={**bundle.settings, **settings})
        self.record["bundle"] = name = exchange.put_sealed(open_store(self.url), "bundles/", forged)
        true, self.name = Path(self.url, "results", self.name), self.name.replace(path.name, name)
        true.rename(true.with_name(self.name))

    def adopt(self) -> str:
        """Seal the result anew, in place of the true one, and have home adopt it; return what it said."""
        self.record["attempts"][0]["pieces"] = list(self.pieces.values())
        Path(self.url, "results", self.name).unlink()
        begins = self.name.rpartition(".")[0]
        exchange.put_sealed(open_store(self.url), f"results/{begins}.", TransferResult.from_record(self.record))
        said = run(self.home, self.url, "adopt", self.url)
        assert "Traceback" not in said.stderr
        return said.stdout + said.stderr

    def is_accepted(self) -> bool:
        return states(self.home)["p0"] == "trained"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    """Make a batch with a store beside it, in which the result of its patch waits."""
    home = FakeBatch(tmp_path_factory.mktemp("trained")).make("p0", constants=SHORT, **QUICK)
    home.change(trainers={"beside": trainer_kinds.argv()}, patches={"p0": {"training": {"trainer": "beside"}}})
    url, far = str(home.folder / "store"), home.folder / "far"
    run(home, url, "pack", "--to", url)
    assert work(home, far, url)[0] == 0
    return home


@pytest.fixture
def forgery(trained: FakeBatch, tmp_path: Path) -> Forgery:
    home = trained.copied(tmp_path / "home")
    return Forgery(home, str(home.folder / "store"), tmp_path)


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Write a splat that lies at home, and was never in the store."""
    write_ply(tmp_path / "local" / "point_cloud_20.ply", 12)
    return tmp_path / "local" / "point_cloud_20.ply"


def test_what_is_sealed_anew_as_it_was_comes_home(forgery: Forgery) -> None:
    forgery.adopt()
    assert forgery.is_accepted()


def test_a_folder_in_a_forged_watch_is_not_looked_into(forgery: Forgery, local: Path) -> None:
    watch = forgery.content("watch.json")
    watch["finish"]["folder"] = str(local.parent)
    forgery.put("watch.json", watch)
    del forgery.pieces["output/point_cloud_20.ply"], forgery.pieces["splat.ply"]
    forgery.adopt()
    assert (forgery.is_accepted(), list(forgery.home.output.rglob("*.ply"))) == (False, [])


@pytest.mark.parametrize("glob", ["{local}", "../../../../../local/*.ply"])
@pytest.mark.parametrize("key", ["products", "files"])
def test_a_glob_that_leads_out_of_an_attempt_is_refused_by_name(
    forgery: Forgery, local: Path, key: str, glob: str
) -> None:
    watch, glob = forgery.content("watch.json"), glob.format(local=local)
    watch["finish"][key] = [glob]
    forgery.put("watch.json", watch)
    said = forgery.adopt()
    assert f"watch.json names {glob}, which lies outside the attempt's folder" in said
    assert not forgery.is_accepted()


@pytest.mark.parametrize(
    "name", ["/{local}", "../../stolen.ply", "output/../../x.ply", "job.json/x", "", "a\0b", "\ud800", "result.json"]
)
def test_a_file_that_cannot_lie_in_an_attempt_is_refused_by_name(forgery: Forgery, local: Path, name: str) -> None:
    name = name.format(local=local)
    before = local.read_bytes()
    forgery.pieces[name] = forgery.pieces["output/point_cloud_20.ply"] | {"name": name}
    said = forgery.adopt()
    assert ("a result in the store is refused" in said, repr(name) in said) == (True, True), said
    assert (forgery.is_accepted(), local.read_bytes(), list(forgery.home.folder.rglob("stolen*"))) == (
        False,
        before,
        [],
    )


@pytest.mark.parametrize("sha256", ["../../local/point_cloud_20.ply", "{local}", "", "0" * 64])
def test_a_hash_that_is_none_is_no_path(forgery: Forgery, local: Path, sha256: str) -> None:
    forgery.pieces["splat.ply"]["sha256"] = sha256.format(local=local)
    said = forgery.adopt()
    assert "splat.ply is missing in the store" in said
    assert (forgery.is_accepted(), local.exists()) == (False, True)


def link(blob: Path, local: Path) -> None:
    blob.symlink_to(local)


def hard_link(blob: Path, local: Path) -> None:
    blob.hardlink_to(local)


def pipe(blob: Path, local: Path) -> None:
    os.mkfifo(blob)


def device(blob: Path, local: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("makes a device file, which root alone may")
    os.mknod(blob, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero


@pytest.mark.parametrize("put", [link, hard_link, pipe, device])
def test_what_is_no_file_of_its_hash_is_refused(
    forgery: Forgery, local: Path, put: Callable[[Path, Path], None]
) -> None:
    blob = forgery.blob("splat.ply")
    blob.unlink()
    put(blob, local)
    said = forgery.adopt()
    assert "a result in the store is refused" in said
    assert (forgery.is_accepted(), list(forgery.home.output.rglob("*.ply"))) == (False, [])


def test_the_model_that_forged_settings_name_is_not_read(forgery: Forgery, local: Path) -> None:
    forgery.put("settings.json", forgery.content("settings.json") | {"sparse": str(local.parent)})
    forgery.adopt()
    [settings] = forgery.home.output.glob("patches/p0/attempt-*/settings.json")
    assert json.loads(settings.read_text())["sparse"] == str(forgery.home.folder / "patches/p0/sparse/0")


@pytest.mark.parametrize("section", [None, [1], "max_steps", 5])
def test_settings_of_a_forged_bundle_that_are_none_are_refused_by_name(forgery: Forgery, section: object) -> None:
    forgery.put_bundle(training=section)
    said = forgery.adopt()
    assert "a result in the store is refused" in said
    assert "settings.training of its bundle is not an object" in said
    assert not forgery.is_accepted()


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    wait_until(lambda: bool(processes.start_ticks(process.pid)))
    yield process
    process.kill()
    process.wait()


@pytest.mark.contract
def test_no_process_of_home_is_ended_by_a_forged_attempt(forgery: Forgery, bystander: subprocess.Popen[bytes]) -> None:
    start = {"host": socket.gethostname(), "pid": 1 << 22, "ticks": 1, "started_at": 1.0}
    forgery.put("start.json", start | {"boot_id": processes.boot_id(), "space": processes.pid_space()})
    below = [f"{bystander.pid}:{processes.start_ticks(bystander.pid)}"]
    forgery.put("heartbeat.json", {"sequence": 1, "below": below})
    del forgery.pieces["exit.json"]
    forgery.adopt()
    assert bystander.poll() is None
