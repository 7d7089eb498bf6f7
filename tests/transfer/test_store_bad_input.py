"""What may be wrong with a store and with who works there: it is said, nothing is lost, nothing counts twice."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import late_clock
import pytest
import trainer_kinds
from travelling import QUICK, SHORT, bundles, decided_at_home, ends, files_below, run, states, work, work_apart, worker

from splatbatch import __version__
from splatbatch.errors import ConfigError, CutOffError, StoreError, in_full
from splatbatch.transfer import blobs, exchange
from splatbatch.transfer.bundle import Bundle, open_bundle, why_left
from splatbatch.transfer.folder import FolderStore

if TYPE_CHECKING:
    from fake_batch import FakeBatch
    from store_sites import Site

    from splatbatch.tasks.batch import Batch

TWO = ("p0", "p1")


@pytest.fixture
def home(batch: FakeBatch) -> FakeBatch:
    return batch.make(*TWO, constants=SHORT, **QUICK)


def test_a_worker_of_another_version_leaves_what_is_packed_and_says_so(home: FakeBatch, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    run(home, url, "pack", "--to", url)
    home.constants |= {f"splatbatch.{module}.__version__": "9.9" for module in ("run.store_worker", "transfer.bundle")}
    code, said = work(home, tmp_path / "far", url, "--idle", "2s")
    assert (code, said.count("was packed by splatbatch")) == (0, 2), said
    assert [one["state"] for one in bundles(url)] == ["waiting"] * 2


def test_a_worker_of_builtin_trainers_leaves_what_brings_a_command_unclaimed(batch: FakeBatch, tmp_path: Path) -> None:
    url, external = str(tmp_path / "store"), {"training": {"trainer": "beside"}}
    batch.make(*TWO, constants=SHORT, trainers={"beside": trainer_kinds.argv()}, patches={"p0": external}, **QUICK)
    run(batch, url, "pack", "--to", url)
    code, said = work(batch, tmp_path / "far", url, "--only-builtin")
    refused = "p0: --only-builtin forbids the command from the store (trainers.beside.command): "
    assert (code, said.count(refused), said.count("external_program.py")) == (0, 1, 1), said
    told = {one["task"]: (one["state"], one["claims"]) for one in bundles(url)}
    assert told == {"p0": ("waiting", 0), "p1": ("trained", 1)}


@pytest.mark.parametrize("trainers", [["x"], "x", 1, None, {}])
def test_trainers_of_a_forged_bundle_that_are_none_bring_no_command(trainers: object) -> None:
    bundle = Bundle.from_record({"patch": "p0", "version": __version__, "settings": {"trainers": trainers}})
    assert why_left(bundle, only_builtin=True) == ""


@pytest.mark.parametrize("told", [{"command": ["rm", "-r", "a b"]}, {"command": "rm"}, {"artifact": {}}, None, []])
def test_any_trainer_of_a_bundle_is_a_command_that_the_store_brings(told: object) -> None:
    bundle = Bundle.from_record({"patch": "p0", "version": __version__, "settings": {"trainers": {"odd": told}}})
    assert why_left(bundle, only_builtin=False) == ""
    assert why_left(bundle, only_builtin=True).startswith(
        "p0: --only-builtin forbids the command from the store (trainers.odd.command): "
    )


@pytest.mark.parametrize("told", [["x"], "x", 1, None, {"max_steps": "x"}])
def test_sections_of_a_forged_bundle_that_are_none_have_no_steps(told: object) -> None:
    bundle = Bundle.from_record({"patch": "p0", "version": __version__, "settings": {"training": told}})
    assert bundle.max_steps == 0


BOX = [[0, 0, 0], [1, 1, 1]]
BORDER = {"axes": [[1, 0, 0], [0, 1, 0], [0, 0, 1]], "core": BOX, "reach": BOX}


@pytest.mark.parametrize(
    "border",
    [
        {"axes": BORDER["axes"], "core": BOX},
        BORDER | {"axes": BOX},
        BORDER | {"axes": 7},
        BORDER | {"core": [[0, 0, 0]]},
        BORDER | {"reach": [[0, 0, "x"], [1, 1, 1]]},
        BORDER | {"reach": [[0, 0, 10**400], [1, 1, 1]]},
    ],
    ids=repr,
)
def test_a_border_of_a_forged_bundle_that_is_none_is_refused_as_its_settings_are(
    border: dict[str, object], tmp_path: Path
) -> None:
    assert opened({"border": BORDER}, tmp_path).tasks[0].patch.border is not None
    with pytest.raises(StoreError, match="p0: the settings that came with the task from the store are invalid"):
        opened({"border": border}, tmp_path)


def test_a_variable_that_is_no_number_here_is_named_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADS_HERE", "secret")
    trainer = {"command": ["true"], "env": {"THREADS_HERE": "int"}, "artifact": {"splat": "point_cloud.ply"}}
    with pytest.raises(
        ConfigError, match=r"trainers\.odd\.env: the variable THREADS_HERE is not a number on this machine"
    ) as told:
        opened({"settings": {"trainers": {"odd": trainer}}}, tmp_path)
    assert "secret" not in in_full(told.value)


def opened(manifest: dict[str, object], folder: Path) -> Batch:
    """Return the batch of a bundle of a patch p0 with this in its manifest."""
    return open_bundle(Bundle.from_record({"patch": "p0"} | manifest), folder / "scene", folder / "output")


def test_stray_files_among_bundles_are_none_and_one_that_is_broken_fails_alone(home: FakeBatch, tmp_path: Path) -> None:
    url, broken = str(tmp_path / "store"), "0123456789abcdef" * 2
    run(home, url, "pack", "--to", url)
    with (tmp_path / "store/bundles/disk.img").open("wb") as stray:
        stray.truncate(300 << 20)
    (tmp_path / "store/bundles" / broken).write_bytes(b"{}")
    assert sorted((one["task"], one["state"]) for one in bundles(url)) == [
        (broken, "altered"), *((name, "waiting") for name in TWO)
    ]  # fmt: skip
    adopted = run(home, url, "adopt", url)
    assert (
        f"bundle {broken}, a packed task, is damaged or missing in the store and is skipped"
        in adopted.stdout + adopted.stderr
    )
    assert "in the store: 2 waiting" in adopted.stdout + adopted.stderr


def test_of_a_bundle_that_is_too_large_no_more_is_read_than_could_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, num_read = "f" * 32, list[int]()
    (tmp_path / "bundles").mkdir()
    with (tmp_path / "bundles" / name).open("wb") as large:
        large.truncate(300 << 20)
    monkeypatch.setattr(exchange, "MOST_JSON_BYTES", 10 << 20)
    whole = exchange.read_whole
    monkeypatch.setattr(exchange, "read_whole", lambda *told: num_read.append(len(found := whole(*told))) or found)
    assert exchange.read_sealed(FolderStore(tmp_path), f"bundles/{name}") is None
    assert max(num_read) < 15 << 20


def test_a_store_that_is_cut_off_has_altered_neither_a_result_nor_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> bytes:
        raise CutOffError("the store does not answer")

    monkeypatch.setattr(exchange, "read_whole", cut)
    with pytest.raises(CutOffError):
        exchange.read_sealed(FolderStore(tmp_path), "f" * 32)


def test_what_was_closed_is_told_by_its_name(tmp_path: Path) -> None:
    """The answer to a sign of life may come when its worker is at another bundle already."""
    store, sign = FolderStore(tmp_path), exchange.WorkerStatus("far", bundle="a")
    assert exchange.heartbeat(store, sign) == ""
    blobs.put(store, [(f"{exchange.CLOSED}/a", b"cancelled")])
    assert exchange.heartbeat(store, sign) == "a"


def test_a_claim_that_could_not_be_read_at_one_look_holds_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its task is free after a while, although its owner beats; and one such claim would free all others."""
    store, watch, sign = FolderStore(tmp_path), exchange.StoreWatch(), exchange.WorkerStatus("far", "token")
    now = [0.0]
    monkeypatch.setattr(exchange.time, "monotonic", lambda: now[0])
    name = exchange.put_sealed(store, "bundles/", Bundle(patch="p0", home="h"))
    blobs.put(store, [(f"{exchange.CLAIMS}/{name}.1", b'{"worker": "f')])

    def is_dead() -> bool:
        return watch.is_dead(name, exchange.StoreListing.from_record(exchange.list_store(store)).state(name))

    assert not is_dead()
    blobs.put(store, [(f"{exchange.CLAIMS}/{name}.1", b'{"worker": "far", "token": "token"}')])
    for number in range(1, 8):
        now[0] += exchange.SILENCE_S / 2
        assert exchange.heartbeat(store, replace(sign, sequence=number)) == ""
        assert not is_dead()
    now[0] += 2 * exchange.SILENCE_S
    assert is_dead()


def test_two_homes_of_one_store_take_home_their_own(home: FakeBatch, tmp_path: Path) -> None:
    url, other = str(tmp_path / "store"), home.copied(tmp_path.with_name(f"{tmp_path.name}-other"))
    for one in (home, other):
        assert run(one, url, "pack", "--to", url).returncode == 0
    work(home, tmp_path / "far", url)
    for one in (home, other):
        run(one, url, "adopt", url)
    assert states(home) == states(other) == dict.fromkeys(TWO, "trained")
    assert [len(ends(one)) for one in (home, other)] == [2, 2]


def test_a_worker_whose_clock_is_hours_ahead_trains_as_any(home: FakeBatch, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    run(home, url, "pack", "--to", url)
    now, now_ns = time.time, time.time_ns
    with pytest.MonkeyPatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now() + late_clock.AHEAD_S)
        ahead.setattr(time, "time_ns", lambda: now_ns() + late_clock.AHEAD_S * 1_000_000_000)
        code, said = work(home, tmp_path / "far", url)
    run(home, url, "adopt", url)
    assert (code, states(home)) == (0, dict.fromkeys(TWO, "trained")), said


@pytest.mark.all
@pytest.mark.parametrize("by", ["--for", "slurm"])
@decided_at_home
def test_a_worker_whose_time_is_up_sends_its_attempt_and_lets_go(
    home: FakeBatch, place: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    home.script(p0=["train 600"], p1=["train 600"])
    run(home, place.url, "pack", "--to", place.url)
    home.constants["splatbatch.run.store_worker.MARGIN_S"] = 1.0
    if by == "slurm":
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 7))
    code, said = work_apart(home, tmp_path / "far", place.url, *(("--for", "6s") if by == "--for" else ()))
    assert (code, [one["state"] for one in bundles(place.url)]) == (75, ["waiting"] * 2), said
    run(home, place.url, "adopt", place.url)
    assert [outcome for _, _, outcome, _ in ends(home)] == ["stopped"]


@pytest.mark.all
@pytest.mark.contract
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_store_that_fills_up_is_said_and_shows_nothing_half_written(home: FakeBatch, tmp_path: Path) -> None:
    """In a mount namespace of its own; 16 KiB hold no bundle."""
    store = tmp_path / "store"
    store.mkdir()
    mounted = f'mount -t tmpfs -o size=16k none {store} && "$@"; code=$?; ls -R {store}; exit $code'
    command = ["unshare", "--mount", "sh", "-c", mounted, "sh", *home.command("pack", "--to", str(store))]
    ended = subprocess.run(command, env=home.environment(), capture_output=True, text=True, timeout=90, check=False)
    assert (ended.returncode, "no space left" in ended.stderr.lower()) == (6, True), ended
    assert "Traceback" not in ended.stderr
    assert not files_below(store)


@pytest.mark.parametrize("num", [pytest.param(40, marks=pytest.mark.all), pytest.param(200, marks=pytest.mark.long)])
def test_tasks_by_the_hundred_come_home_once(batch: FakeBatch, place: Site, tmp_path: Path, num: int) -> None:
    names = [f"p{number:03d}" for number in range(num)]
    batch.make(*names, constants=SHORT, **QUICK).change(executor={"store": place.url})
    parent = batch.start("train")
    workers = [worker(batch, tmp_path / name, place.url, "--idle", "600s") for name in ("far", "other")]
    out, err = parent.communicate(timeout=600)
    for one in workers:
        one.terminate()
        one.communicate(timeout=60)
    assert (parent.returncode, f"{num} of {num} patches trained" in out) == (0, True), err
    assert sorted(patch for patch, _, outcome, accepted in ends(batch) if outcome == "trained" and accepted) == names


def test_adopt_from_a_store_that_is_not_there_is_refused(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train"])
    assert batch.run("train").returncode == 0
    said = batch.run("adopt", "nosuchstore")
    assert (said.returncode, said.stderr.splitlines()[0]) == (2, "splatbatch: adopt nosuchstore: no such store")
    assert "splatbatch adopt [FOLDER] STORE" in said.stderr
    many = batch.run("adopt", str(batch.folder), "b", "c")
    assert (many.returncode, "too many arguments" in many.stderr) == (2, True)
