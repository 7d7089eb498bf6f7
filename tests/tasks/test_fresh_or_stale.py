"""What counts as trained: the outcome of this run, or a product that is still what it was."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from fake_batch import FakeBatch
from PIL import Image

from splatbatch.output.events import UNTIL


def states(batch: FakeBatch, *options: str) -> dict[str, str]:
    record = json.loads(batch.run("status", "--json", *options).stdout)
    return {one["patch"]: one["state"] for one in record["patches"]}


def planned(batch: FakeBatch) -> dict[str, str]:
    record = json.loads(batch.run("plan", "--json").stdout)
    return {one["patch"]: one["decision"] for one in record["patches"]}


def num_attempts(batch: FakeBatch, patch: str = "p0") -> int:
    return len(list((batch.output / "patches" / patch).glob("attempt-*")))


def spoil_camera(batch: FakeBatch, patch: str) -> None:
    (batch.folder / "patches" / patch / "sparse/0/cameras.txt").write_text("1 PINHOLE 64 48 30 30 32 24\n")


def test_an_old_splat_hides_no_failed_retraining(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2").run("train")
    batch.change(training={"max_steps": 30, "device": "cpu"})
    given_up = ["train", "exit 1 Traceback: IndexError", "exit 1 Traceback: IndexError"]
    batch.script(p0=given_up, p2=["train", "exit 1 ModuleNotFoundError: No module named 'x'"])
    ended = batch.run("train")
    assert ended.returncode == 1
    assert "1 of 3 patches trained" in ended.stdout
    assert "p0" in ended.stdout
    assert states(batch) == {"p0": "failed", "p1": "trained", "p2": "failed"}
    assert planned(batch) == {"p0": "given_up", "p1": "skip", "p2": "train"}


def test_a_cut_splat_whose_retraining_fails_is_not_trained(batch: FakeBatch) -> None:
    batch.make("p0").run("train")
    os.truncate(batch.output / "patches/p0/splat.ply", 500)
    ended = batch.script(p0=["train", "exit 1 lost", "exit 1 lost"]).run("train")
    assert (ended.returncode, "0 of 1 patches trained" in ended.stdout) == (1, True)


def test_a_trained_patch_whose_changed_camera_is_refused_is_refused_everywhere(batch: FakeBatch) -> None:
    batch.make("p0", "p1").run("train")
    spoil_camera(batch, "p0")
    ended = batch.run("train")
    assert (ended.returncode, "1 of 2 patches trained; refused: p0" in ended.stdout) == (1, True)
    assert states(batch) == {"p0": "refused", "p1": "trained"}
    assert planned(batch) == {"p0": "refuse", "p1": "skip"}
    assert 'splatbatch_patches{state="refused"} 1.0' in (batch.output / "metrics.prom").read_text()


def test_fewer_steps_are_trained_once_and_then_skipped(batch: FakeBatch) -> None:
    batch.make("p0", training={"max_steps": 7000, "device": "cpu"}).run("train")
    batch.change(training={"max_steps": 1000})
    assert [batch.run("train").returncode for _ in range(2)] == [0, 0]
    assert num_attempts(batch) == 2
    assert batch.result("p0")["step"] == 1000


@pytest.mark.parametrize("version", ["", "0.1.9"])
def test_the_million_of_earlier_versions_is_no_other_setting_than_auto(batch: FakeBatch, version: str) -> None:
    batch.make("p0", training={"max_steps": 20, "device": "cpu", "cap_max": 1_000_000}).run("train")
    if version:  # which hashed settings otherwise
        for path in (batch.output / "patches/p0/result.json", *batch.output.glob("patches/p0/accepted/*.json")):
            record = json.loads(path.read_text()) | {"version": version, "recipe": "0123456789abcdef", "effective": ""}
            path.write_text(json.dumps(record))
    batch.change(training={"cap_max": "auto"})
    assert planned(batch) == {"p0": "skip"}
    batch.change(training={"seed": 7})
    assert "settings have changed: training.seed 42 -> 7\n" in batch.run("plan").stdout


def test_status_says_stale_where_plan_would_train(batch: FakeBatch) -> None:
    batch.make("p0").run("train")
    batch.change(training={"max_steps": 30})
    assert (states(batch), planned(batch)) == ({"p0": "stale"}, {"p0": "train"})
    said = batch.run("status", "--json").stdout
    assert "training.max_steps 20 -> 30" in said


def test_what_an_earlier_version_trained_at_full_size_stays_trained_where_the_config_says_so(batch: FakeBatch) -> None:
    batch.make("p0", training={"strategy": "default", "device": "cpu", "max_steps": 20}).run("train")
    for record in (batch.output / "patches/p0/result.json", *batch.output.glob("patches/p0/accepted/*.json")):
        text = record.read_text()
        assert '"coarse_to_fine": "auto"' in text
        record.write_text(text.replace('"coarse_to_fine": "auto"', '"coarse_to_fine": false'))
    shutil.rmtree(batch.output / "index", ignore_errors=True)
    batch.change(training={"coarse_to_fine": False})
    assert states(batch) == {"p0": "trained"}
    batch.change(training={"coarse_to_fine": True})
    assert states(batch) == {"p0": "stale"}


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = FakeBatch(tmp_path_factory.mktemp("trained") / "batch").make("p0")
    assert batch.run("train").returncode == 0
    return batch


@pytest.fixture
def trained(trained_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return trained_once.copied(tmp_path / "batch")


UNCOMPARED = "file times changed, contents not compared"


def replace_a_byte(photo: Path) -> None:
    data = bytearray(photo.read_bytes())
    data[-20] ^= 1
    photo.write_bytes(data)


def test_a_photograph_that_was_replaced_by_one_of_equal_size_is_noticed(trained: FakeBatch) -> None:
    replace_a_byte(trained.folder / "images/img3.png")
    assert UNCOMPARED in trained.run("status").stdout  # which reads no photographs
    assert "photographs have changed: images/img3.png" in trained.run("plan").stdout
    assert (trained.run("train").returncode, num_attempts(trained)) == (0, 2)


def test_photographs_and_splats_that_were_copied_are_the_same_ones(trained: FakeBatch) -> None:
    for file in (*trained.folder.glob("images/*"), *trained.output.rglob("*"), *trained.folder.glob("patches/**/*")):
        os.utime(file)
    assert (states(trained), planned(trained)) == ({"p0": "trained"}, {"p0": "skip"})
    assert UNCOMPARED in trained.run("status").stdout
    assert trained.run("train").returncode == 0
    assert (states(trained), num_attempts(trained)) == ({"p0": "trained"}, 1)
    assert UNCOMPARED not in trained.run("status").stdout


def test_what_was_accepted_by_hand_stays_so_in_a_copy(trained: FakeBatch) -> None:
    assert trained.run("retry", "p0", "--set", "training.seed=7").returncode == 0
    other = 3 - int(trained.result("p0")["attempt"][-1])
    assert trained.run("accept", "p0", "--attempt", str(other)).returncode == 0
    for file in (*trained.folder.glob("images/*"), *trained.output.rglob("*"), *trained.folder.glob("patches/**/*")):
        os.utime(file)
    assert (states(trained), planned(trained)) == ({"p0": "trained"}, {"p0": "skip"})


def test_a_photograph_of_another_size_is_stale_at_once_and_named(trained: FakeBatch) -> None:
    Image.new("RGB", (32, 24)).save(trained.folder / "images/img3.png")
    assert states(trained) == {"p0": "stale"}
    assert "images/img3.png" in trained.run("status").stdout


def test_a_query_writes_nothing_into_the_output_folder(trained: FakeBatch) -> None:
    for photo in (trained.folder / "images").iterdir():
        os.utime(photo)
    before = {path: path.lstat().st_mtime_ns for path in trained.output.rglob("*")}
    for query in ("status", "plan", "report"):
        trained.run(query)
    after = {path: path.lstat().st_mtime_ns for path in trained.output.rglob("*")}
    changed = {path.name for path in before | after if before.get(path) != after.get(path)}
    assert changed <= {"output", "report.html", "report.md", "report.json"}  # a report is asked for


def test_200_zeroed_bytes_of_a_splat_are_noticed_and_trained_again(trained: FakeBatch) -> None:
    splat = trained.output / "patches/p0/splat.ply"
    splat.write_bytes(splat.read_bytes()[:-200] + bytes(200))
    assert UNCOMPARED in trained.run("status").stdout
    assert planned(trained) == {"p0": "train"}
    assert trained.run("train").returncode == 0
    assert (states(trained), num_attempts(trained)) == ({"p0": "trained"}, 2)


def test_a_splat_that_was_replaced_comes_back_from_its_attempt(trained: FakeBatch, tmp_path: Path) -> None:
    splat, whole = trained.output / "patches/p0/splat.ply", (trained.output / "patches/p0/splat.ply").read_bytes()
    (tmp_path / "other.ply").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "other.ply").replace(splat)
    assert states(trained) == {"p0": "stale"}
    assert trained.run("train").returncode == 0
    assert (splat.read_bytes() == whole, num_attempts(trained)) == (True, 1)


def test_status_verify_reads_what_hides_its_time(trained: FakeBatch) -> None:
    splat = trained.output / "patches/p0/splat.ply"
    stat = splat.stat()
    splat.write_bytes(splat.read_bytes()[:-4] + np.float32(7).tobytes())
    os.utime(splat, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert states(trained) == {"p0": "trained"}
    assert states(trained, "--verify") == {"p0": "stale"}


def test_a_mask_that_comes_or_goes_is_a_change(trained: FakeBatch) -> None:
    (trained.folder / "masks").mkdir()
    Image.new("L", (32, 24), 255).save(trained.folder / "masks/img3.png.png")
    assert states(trained) == {"p0": "stale"}
    assert trained.run("train").returncode == 0
    assert (states(trained), num_attempts(trained)) == ({"p0": "trained"}, 2)
    (trained.folder / "masks/img3.png.png").unlink()
    assert states(trained) == {"p0": "stale"}


def test_a_patch_that_failed_for_good_is_left_alone_until_something_changes(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["exit 1 nobody knows why"]).run("train")
    tried = num_attempts(batch)
    again = batch.run("train")
    assert (again.returncode, num_attempts(batch), planned(batch)) == (1, tried, {"p0": "given_up"})
    assert "to do: p0: cause unknown" in again.stdout
    assert "splatbatch explain p0 " in again.stdout
    assert UNTIL in again.stderr
    assert UNTIL in batch.run("plan").stdout
    assert UNTIL in " ".join(batch.run("status").stdout.split())
    assert UNTIL in " ".join(batch.run("explain", "p0").stdout.split())
    batch.run("retry", "p0")
    assert num_attempts(batch) > tried
    tried = num_attempts(batch)
    batch.change(training={"max_steps": 30})
    assert planned(batch) == {"p0": "train"}
    batch.run("train")
    assert num_attempts(batch) > tried


@pytest.mark.parametrize(
    "fault", ["exit 1 UnboundLocalError: local variable 'radii'", "exit 1 Segmentation fault (core dumped)"]
)
def test_a_fault_of_the_program_and_a_last_attempt_are_given_up_until_something_changes(
    batch: FakeBatch, fault: str
) -> None:
    batch.make("p0", retry={"max_attempts": 1}).script(p0=[fault]).run("train")
    assert planned(batch) == {"p0": "given_up"}
    batch.change(retry={"max_attempts": 2})
    assert planned(batch) == {"p0": "train"}


def test_what_lies_in_an_installation_is_tried_again(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["exit 1 ModuleNotFoundError: No module named 'plyfile'"])
    assert "given up in this run, the next `train` tries it again" in batch.run("train").stderr
    assert planned(batch) == {"p0": "train"}


def test_what_lies_in_the_machine_gets_one_fresh_round_with_each_train(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["exit 1 ModuleNotFoundError: No module named 'gsplat'"])
    assert [batch.run("train").returncode for _ in range(2)] == [1, 1]
    assert num_attempts(batch) == 2


def test_a_manifest_that_does_not_tell_its_splat_counts_as_damaged_and_is_trained_anew(trained: FakeBatch) -> None:
    path = trained.output / "patches/p0/result.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in told.items() if key != "splat"}))
    (trained.output / "patches/p0/attempt-01/result.json").unlink()
    (trained.output / "patches/p0/accepted/1.json").unlink()
    assert states(trained)["p0"] == "stale"
    assert (trained.run("train").returncode, num_attempts(trained)) == (0, 2)
