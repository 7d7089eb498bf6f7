"""`scene`: one command from a reconstruction to a merged splat and its figures; again, it goes on where it ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import Ended, invoke
from cut_quarry import QUARRY

from splatbatch.config import load
from splatbatch.output.layout import OutputFolder

QUICK = (
    *("training.max_steps=10", "training.strategy=default", "training.cap_max=4000", "training.init_opacity=0.5"),
    *("training.resolution=1/8", "training.device=cpu", "retry.max_attempts=1"),
)


def arguments(out: Path, *settings: str) -> list[str]:
    named = ["scene", "--source", str(QUARRY / "sparse/0"), "--images", str(QUARRY / "images"), "--out", str(out)]
    return [*named, "--", *QUICK, *settings]


def cut_in_two(out: Path) -> None:
    named = ("--source", str(QUARRY / "sparse/0"), "--images", str(QUARRY / "images"), "--max-images", "31")
    if not (out / "patches").exists():
        assert invoke("split", *named, "--out", str(out / "patches")).code == 0


def scene(out: Path, *settings: str) -> Ended:
    cut_in_two(out)
    return invoke(*arguments(out, *settings))


def attempts(out: Path) -> dict[str, int]:
    output = OutputFolder(out / "output")
    found = {name: len(output.patch(name).attempts()) for name in ("p0", "p1", "backdrop")}
    return found | {"evaluating": len(output.scene.evaluating.attempts())}


@pytest.mark.all
def test_one_command_makes_and_publishes_a_scene_and_does_again_only_what_has_changed(tmp_path: Path) -> None:
    asked = ("publish.formats=[ply]", "publish.measure=false")
    made = scene(tmp_path, *asked)
    assert made.code == 0, made.err
    assert sorted(path.name for path in (tmp_path / "published").iterdir()) == ["publish.json", "scene.ply"]
    assert "published: " in made.out
    output = OutputFolder(tmp_path / "output")
    found = output.scene.read_evaluation()
    assert found is not None and found.total.num_photos == 4 and [seam.name for seam in found.seams] == ["p0|p1"]
    assert found.seams[0].depth_step is not None and found.seams[0].color_offset is not None
    assert "PSNR of the merged scene: " in output.report("html").read_text()
    assert load(tmp_path / "splat_config.yml").training.max_steps == 10
    assert attempts(tmp_path) == {"p0": 1, "p1": 1, "backdrop": 1, "evaluating": 1}
    merged = output.scene.splat.stat().st_mtime_ns

    again = scene(tmp_path, *asked)
    assert again.code == 0, again.err
    assert "nothing has changed" in again.out and "already evaluated" in again.err
    assert attempts(tmp_path) == {"p0": 1, "p1": 1, "backdrop": 1, "evaluating": 1}
    assert output.scene.splat.stat().st_mtime_ns == merged

    output.scene.evaluation.unlink()
    last = scene(tmp_path, *asked)
    assert last.code == 0, last.err
    assert attempts(tmp_path) == {"p0": 1, "p1": 1, "backdrop": 1, "evaluating": 2}


def test_a_setting_that_is_none_leaves_no_yaml_behind_and_spoils_none(tmp_path: Path) -> None:
    ended = scene(tmp_path, "training.max_stepz=7")
    assert ended.code == 2
    assert "training.max_stepz" in ended.err and "max_steps" in ended.err
    assert not (tmp_path / "splat_config.yml").exists()
    (tmp_path / "splat_config.yml").write_text("scene: {patches: patches}\n")
    assert scene(tmp_path, "training.max_stepz=7").code == 2
    assert (tmp_path / "splat_config.yml").read_text() == "scene: {patches: patches}\n"


def test_a_source_that_is_none_ends_it(tmp_path: Path) -> None:
    ended = invoke(
        "scene", "--source", str(tmp_path / "none"), "--images", str(QUARRY / "images"), "--out", str(tmp_path)
    )
    assert ended.code == 3 and str(tmp_path / "none") in ended.err


FAILS = json.dumps({"p0": ["exit 1 odd"], "p1": ["exit 1 odd"]})


def test_a_patch_that_fails_keeps_the_scene_from_being_merged(tmp_path: Path, script: Path) -> None:
    script.write_text(FAILS)
    ended = scene(tmp_path)
    assert ended.code == 1
    assert "not merged: a patch is missing" in ended.err
    assert not OutputFolder(tmp_path / "output").scene.splat.exists()


@pytest.mark.long
@pytest.mark.parametrize("after", ["p0: attempt 1 started", "evaluate: step 4 of 4"])
def test_what_was_killed_goes_on_where_it_ended(tmp_path: Path, after: str) -> None:
    log = tmp_path / "said"
    cut_in_two(tmp_path / "scene")
    with log.open("w") as said:
        command = [sys.executable, "-m", "splatbatch", *arguments(tmp_path / "scene")]
        process = subprocess.Popen(command, stdout=said, stderr=said)
        give_up_at = time.monotonic() + 300
        while after not in log.read_text():
            assert process.poll() is None and time.monotonic() < give_up_at, log.read_text()
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert scene(tmp_path / "scene").code == 0
    found = OutputFolder(tmp_path / "scene/output").scene.read_evaluation()
    assert found is not None and found.total.num_photos == 4


@pytest.mark.all
def test_a_scene_that_is_not_merged_says_that_nothing_is_published(tmp_path: Path, script: Path) -> None:
    script.write_text(FAILS)
    ended = scene(tmp_path, "publish.formats=[ply]")
    assert ended.code == 1
    assert "not published: the scene is not merged: a patch is missing" in ended.err
    assert "not published" in (tmp_path / "output/report.md").read_text()
