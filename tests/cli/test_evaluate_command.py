"""`evaluate`: what it measures, what it refuses, and what it says when its process fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from command_line import Beside, Ended, invoke
from cut_quarry import accept, lay_out, part, quarry_splat, tinted
from published_shapes import checked

from splatbatch.outcome import Cancelled
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import SceneEvaluation
from splatbatch.output.workers import WorkerFile
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.partition.record import Partition
from splatbatch.splats.ply import Gaussians, offset_comments, write_splat
from splatbatch.tasks.scene import evaluation


@pytest.fixture(scope="module")
def whole() -> Gaussians:
    return part(quarry_splat(), slice(None))


@pytest.fixture
def quarry(tmp_path: Path, whole: Gaussians) -> Partition:
    return lay_out(tmp_path / "quarry", whole)


def output_of(quarry: Partition) -> OutputFolder:
    return OutputFolder(quarry.path.parents[1] / "output")


def arguments(quarry: Partition, *options: str, **changes: str) -> tuple[str, ...]:
    config = quarry.path.parents[1] / "splat_config.yml"
    text = config.read_text().replace("training:\n", "training:\n  device: cpu\n  resolution: 1/4\n", 1)
    text += "".join(f"{section}: {setting}\n" for section, setting in changes.items())
    path = config.with_name("evaluated.yml")
    path.write_text(text)
    return ("evaluate", "--config", str(path), *options)


def evaluate(quarry: Partition, *options: str, **changes: str) -> Ended:
    return invoke(*arguments(quarry, *options, **changes))


@pytest.mark.all
def test_a_scene_is_measured_as_a_whole_by_patch_and_by_seam(quarry: Partition, whole: Gaussians) -> None:
    places = quarry.in_axes(whole.means.astype(np.float64))
    other = tinted(part(whole, quarry.cores[1].grown.holds(places)), (0.0, 5.0, 0.0))
    measured, photographs = dict.fromkeys(sorted(quarry.test)[:2], 30.0), {"held_out": sorted(quarry.test)}
    accept(output_of(quarry).path, "p1", other, measured, photographs=photographs)
    ended = evaluate(quarry)
    assert ended.code == 0, ended.err
    for word in ("all held-out", "across a seam", "p0|p1", "gain dB", "5.0"):
        assert word in ended.out
    assert "PSNR of the merged scene: " in output_of(quarry).report("html").read_text()
    found = output_of(quarry).scene.read_evaluation()
    assert found is not None and found.total.num_photos == len(quarry.test) == len(found.photos) == 4
    assert found.total.psnr is not None and found.total.psnr > 10
    assert found.patches["p0"].own_psnr == 20.0
    assert found.patches["p1"].num_photos == 2
    assert found.patches["p1"].gain_db == pytest.approx(found.patches["p1"].psnr - 30.0)
    (seam,) = found.seams
    assert seam.color_offset == pytest.approx(5.0, abs=0.3) and seam.color_offsets[1] < 0
    assert seam.across.num_photos + found.within.num_photos == 4
    again = checked("evaluate", evaluate(quarry, "--json").out)
    assert SceneEvaluation.from_record(again).photos == found.photos


@pytest.mark.all
def test_a_photograph_that_was_trained_on_is_not_measured_whatever_the_partition_says(quarry: Partition) -> None:
    wanted = quarry.test
    name = next(one.name for one in read_images(quarry.source) if one.name not in wanted)
    known = json.loads(quarry.path.read_text())
    quarry.path.write_text(json.dumps({**known, "test": [*known["test"], name]}))
    ended = evaluate(quarry)
    assert ended.code == 0, ended.err
    found = output_of(quarry).scene.read_evaluation()
    assert found is not None and found.photos.keys() == wanted
    assert [note for note in found.notes if name in note] == [
        f"hold-out: partition.json and YAML now hold out {name}, but the splat was trained on it"
    ]


@pytest.mark.all
def test_it_is_an_attempt_like_any_other(quarry: Partition) -> None:
    assert evaluate(quarry).code == 0
    (attempt,) = output_of(quarry).scene.evaluating.attempts()
    job, told = attempt.read_job(), attempt.read_exit()
    assert job is not None and "splatbatch.training.scene" in job.argv and job.limits.wall_s == 14_400
    assert told is not None and told.end.code == 0
    assert attempt.last_progress().step == 5  # four photographs and a seam


@pytest.mark.all
def test_a_splat_may_be_named_from_any_working_folder(
    quarry: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(output_of(quarry).scene.splat, tmp_path / "elsewhere/other.ply")
    monkeypatch.chdir(tmp_path / "elsewhere")
    ended = evaluate(quarry, "--splat", "other.ply")
    assert ended.code == 0, ended.err
    assert output_of(quarry).scene.read_evaluation(tmp_path / "elsewhere/other.ply") is not None


@pytest.mark.all
def test_a_missing_patch_is_told_and_the_rest_is_measured(quarry: Partition) -> None:
    output_of(quarry).patch("p1").result.unlink()
    ended = evaluate(quarry)
    assert ended.code == 1
    assert "p1: not trained yet" in ended.err and "p0|p1" in ended.out
    found = output_of(quarry).scene.read_evaluation()
    assert found is not None and found.total.num_photos == 4 and found.seams[0].color_offset is None


def spoil_nan(quarry: Partition) -> None:
    path = output_of(quarry).scene.splat
    data = bytearray(path.read_bytes())
    data[-60:-56] = np.float32(np.nan).tobytes()
    path.write_bytes(data)


def truncate(quarry: Partition) -> None:
    path = output_of(quarry).scene.splat
    os.truncate(path, path.stat().st_size - 1000)


def offset_splat(quarry: Partition) -> None:
    write_splat(output_of(quarry).scene.splat, quarry_splat(), 1, comments=offset_comments((500.0, 0.0, 0.0)))


def move_splat(quarry: Partition) -> None:
    splat = quarry_splat()
    write_splat(output_of(quarry).scene.splat, Gaussians(**{**vars(splat), "means": splat.means + 900}), 1)


def hide_photographs(quarry: Partition) -> None:
    images = quarry.path.parents[1] / "images"
    kept = images.resolve()
    images.unlink()
    shutil.copytree(kept, images)
    (images / sorted(quarry.test)[1]).unlink()


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (lambda quarry: quarry.path.unlink(), 3, ("no partition.json", "splatbatch split")),
        (
            lambda quarry: quarry.path.write_text('{"format": 1, "axes": [], "patches": []}'),
            3,
            ("partition.json", "source: Field required"),
        ),
        (lambda quarry: output_of(quarry).scene.splat.unlink(), 3, ("scene/splat.ply: missing", "splatbatch merge")),
        (spoil_nan, 3, ("not finite: 1 of",)),
        (truncate, 3, ("cut: ",)),
        (offset_splat, 3, ("its coordinates have the offset", "(500, 0, 0)", "(0, 0, 0)")),
        (move_splat, 3, ("lies elsewhere", "0 % of its Gaussians")),
        (hide_photographs, 3, ("1 of 4 held-out photographs are missing", "left/0009.jpg")),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_process_starts(quarry: Partition, spoil, code, words) -> None:
    spoil(quarry)
    ended = evaluate(quarry)
    assert ended.code == code, ended.err
    for word in (*words, "hint: "):
        assert word in ended.err
    assert not output_of(quarry).scene.evaluation.exists()
    assert not output_of(quarry).scene.evaluating.attempts()


@pytest.mark.all
def test_a_photograph_that_cannot_be_decoded_is_named_with_the_log(quarry: Partition) -> None:
    hide_photographs(quarry)
    name = sorted(quarry.test)[1]
    (quarry.path.parents[1] / "images" / name).write_bytes(b"\xff\xd8\xff\xe0 no photograph")
    ended = evaluate(quarry)
    assert ended.code == 3
    assert name in ended.err and "cannot identify image file" in ended.err and "attempt-01/train.log" in ended.err
    assert not output_of(quarry).scene.evaluation.exists()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", ("segfault", "attempt-02")),
        ("raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')", ("cuda_oom", "attempt-03")),
        ("print('done')", ("left no valid record of its result", "attempt-01")),
    ],
)
def test_a_process_that_fails_is_diagnosed_with_the_place_of_its_log(
    quarry: Partition, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "fails_at_once.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(evaluation.EvaluateTask, "module", "fails_at_once")
    ended = evaluate(quarry)
    assert ended.code == 1, ended.err
    for word in (*words, "scene/evaluating/attempt-0", "train.log"):
        assert word in ended.err
    assert "Traceback" not in ended.err


@pytest.fixture
def sleeps_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have the process that measures sleep for ever."""
    (tmp_path / "sleeps_on.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(evaluation.EvaluateTask, "module", "sleeps_on")


@pytest.mark.usefixtures("sleeps_on")
def test_who_interrupts_it_stops_its_process(quarry: Partition) -> None:
    asked = Beside(None, *arguments(quarry, limits="{grace_s: 0.5}"))
    attempts = output_of(quarry).scene.evaluating.attempts
    asked.until(lambda: any(one.start.exists() for one in attempts())).send(signal.SIGTERM)
    ended = asked.ended()
    assert ended.returncode == 143, ended.stderr
    assert "stopped" in ended.stderr
    (attempt,) = attempts()
    told = attempt.read_exit()
    assert told is not None and isinstance(told.end, Cancelled)


@pytest.mark.usefixtures("sleeps_on")
def test_one_that_takes_too_long_is_ended(quarry: Partition) -> None:
    ended = evaluate(quarry, limits="{wall_s: 0.3, grace_s: 0.1}")
    assert ended.code == 1
    assert "time_limit" in ended.err and "train.log" in ended.err


@pytest.mark.all
def test_another_splat_is_measured_beside_the_scene_s_own(quarry: Partition, tmp_path: Path) -> None:
    shutil.copy(output_of(quarry).scene.splat, tmp_path / "other.ply")
    output_of(quarry).scene.splat.unlink()
    assert evaluate(quarry, "--splat", str(tmp_path / "other.ply")).code == 0
    assert not output_of(quarry).scene.evaluation.exists()
    assert output_of(quarry).scene.read_evaluation(tmp_path / "other.ply") is not None


def test_a_scene_is_not_measured_while_a_worker_may_replace_its_patches(quarry: Partition) -> None:
    output = output_of(quarry)
    with WorkerFile(output):
        ended = evaluate(quarry)
    assert (ended.code, "trains into this folder" in ended.err) == (6, True), ended.err
    assert output.scene.read_evaluation() is None
