"""Flipped bits in bundles and results, and secrets: what is damaged counts for nothing, what is secret is nowhere."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_batch import SHARED, FakeBatch
from store_sites import SECRET, Site
from travelling import QUICK, SHORT, bundles, ends, files_below, run, states, work, worker

from splatbatch.hashing import sha256_of
from splatbatch.transfer import blobs, exchange
from splatbatch.transfer.blobs import FileRef
from splatbatch.transfer.folder import FolderStore

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDERS = ("blobs", "bundles", "results")


@pytest.fixture
def home(batch: FakeBatch) -> FakeBatch:
    return batch.make("p0", "p1", constants=SHORT, **QUICK)


def flip(path: Path, chance: random.Random) -> bytes:
    """Flip one bit of a file; return the file as it was."""
    before = path.read_bytes()
    bit = chance.randrange(len(before) * 8)
    content = bytearray(before)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return before


def is_refused(store: FolderStore, file: Path, into: Path) -> bool:
    """Return whether a file of a store is refused by whoever reads it."""
    if file.parent.name == "blobs":
        [fault] = blobs.fetch(store, into, [FileRef("a", file.name, file.stat().st_size)])
        return fault == "damaged" and not (into / file.name).exists()
    return exchange.read_sealed(store, f"{file.parent.name}/{file.name}") is None


class Noisy(FolderStore):
    """Flips a bit of each file that it reads for the first time, as a cable may."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        super().__init__(folder)
        self.chance, self.flipped = chance, set[str]()

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        content = bytearray(b"".join(super().read(name, start)))
        if content and name not in self.flipped:
            self.flipped.add(name)
            bit = self.chance.randrange(len(content) * 8)
            content[bit // 8] ^= 1 << bit % 8
        yield bytes(content)


@pytest.mark.all
def test_five_hundred_flipped_bits_are_refused_and_fetched_again(home: FakeBatch, tmp_path: Path) -> None:
    url, chance, refused, again = str(tmp_path / "store"), random.Random(37), 0, 0
    run(home, url, "pack", "--to", url)
    work(home, tmp_path / "far", url)
    for number in range(250):  # at rest, in the store: never taken for what it was
        files = [path for path in files_below(tmp_path / "store") if path.parent.name in FOLDERS if path.stat().st_size]
        file = chance.choice([path for path in sorted(files) if path.parent.name == FOLDERS[number % 3]])
        before = flip(file, chance)
        refused += is_refused(FolderStore(tmp_path / "store"), file, tmp_path / "into")
        file.write_bytes(before)
    whole = sorted((tmp_path / "store/blobs").iterdir())
    for number in range(250):  # on the way: refused and fetched again
        one, into = chance.choice([path for path in whole if path.stat().st_size]), tmp_path / f"again-{number}"
        noisy = Noisy(tmp_path / "store", chance)
        faults = blobs.fetch(noisy, into, [FileRef("a", one.name, one.stat().st_size)])
        is_whole = (into / one.name).read_bytes() == one.read_bytes()
        again += faults == [""] and len(noisy.flipped) == 1 and is_whole
    assert (refused, again) == (250, 250)


def test_a_photograph_that_is_damaged_in_the_store_is_told_and_put_there_anew(home: FakeBatch, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    home.change(executor={"store": url})
    run(home, url, "pack", "--to", url)
    photograph = sha256_of(home.folder / "images" / "img3.png")
    flip(tmp_path / "store/blobs" / photograph, random.Random(1))
    said = list[str]()

    def first() -> None:
        said.append(work(home, tmp_path / "far", url, "--idle", "1s")[1])
        assert list((tmp_path / "store/results").glob("*.damaged.*"))

    ended = run(home, url, "train", others=(first, lambda: work(home, tmp_path / "other", url)))
    assert (
        "images/img3.png is damaged or missing in the store; waiting until the machine that packed it uploads it again"
        in said[0]
    )
    assert ended.returncode == 0, ended.stderr
    assert states(home) == {"p0": "trained", "p1": "trained"}


def test_a_splat_that_is_damaged_in_the_store_is_refused_by_name_and_trained_again(
    home: FakeBatch, tmp_path: Path
) -> None:
    url = str(tmp_path / "store")
    run(home, url, "pack", "p0", "--to", url)
    work(home, tmp_path / "far", url)
    [name] = [path.name for path in (tmp_path / "store/results").iterdir()]
    pieces = exchange.read_sealed(FolderStore(tmp_path / "store"), f"results/{name}")["attempts"][0]["pieces"]
    [splat] = [one["sha256"] for one in pieces if one["name"] == "splat.ply"]
    flip(tmp_path / "store/blobs" / splat, random.Random(2))
    said = run(home, url, "adopt", url)
    assert "p0: a result in the store is refused" in said.stdout + said.stderr
    assert [one["state"] for one in bundles(url)] != ["trained"]
    assert (work(home, tmp_path / "other", url)[0], run(home, url, "adopt", url).returncode) in ((0, 0), (0, 1))
    assert (states(home)["p0"], [one[3] for one in ends(home)]) == ("trained", [True])


@pytest.mark.all
@pytest.mark.parametrize("kind", ["s3", "ssh"])
def test_no_secret_lies_in_any_file_log_report_or_process_list(
    home: FakeBatch, sites: dict[str, Site], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = sites[kind]
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    secret = SECRET if kind == "s3" else (Path(site.environment["HOME"]) / ".ssh/id_ed25519").read_text().split("\n")[2]
    url = site.below(f"secret-{time.time_ns()}")
    home.change(executor={"store": url})
    parent, far = home.start("train"), worker(home, tmp_path / "far", url, "--idle", "600s")
    lists = []
    while parent.poll() is None:
        lists.append(b"".join(_command_lines()))
        time.sleep(0.2)
    told = "".join(parent.communicate())
    far.terminate()
    told += far.communicate(timeout=60)[0]
    assert parent.returncode == 0, told
    places = [home.folder, tmp_path / "far", *([site.kept] if site.kept else [])]
    files = [path for place in places for path in files_below(place) if path.is_file()]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert (secret in told, any(secret.encode() in one for one in lists), len(files) > 20) == (False, False, True)


def _command_lines() -> Iterator[bytes]:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield place.read_bytes()


@pytest.mark.all
@pytest.mark.skipif(not (SHARED / "data/caliterra").exists(), reason="needs the caliterra scene beside the repository")
def test_four_bundles_are_as_large_as_their_distinct_files(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """At most 1.1 times the photographs and models of caliterra's four patches, each counted once."""
    scene, batch = SHARED / "data/caliterra", FakeBatch(tmp_path)
    batch.settings = {"scene": {"patches": str(scene / "patches"), "images": str(scene / "images")}}
    batch.change(training={"device": "cpu", "max_steps": 100}, output={"folder": str(tmp_path / "output")})
    batch.script()
    done = batch.run_apart("pack", "--to", str(tmp_path / "store"), timeout_s=120)
    assert done.returncode == 0, done.stderr
    in_store = sum(path.stat().st_size for path in files_below(tmp_path / "store"))
    names = [path.name for path in (scene / "images").iterdir()]
    used = {name for path in files_below(scene / "patches") if path.name.startswith("images.") for name in names
            if name.encode() in path.read_bytes()}  # fmt: skip
    models = {path.read_bytes() for path in files_below(scene / "patches")
              if path.stem in ("cameras", "images", "points3D", "rigs", "frames")}  # fmt: skip
    distinct = sum((scene / "images" / name).stat().st_size for name in used) + sum(map(len, models))
    record_property("figure", f"{in_store} bytes in the store, {distinct} distinct: {in_store / distinct:.4f}")
    assert in_store <= 1.1 * distinct
