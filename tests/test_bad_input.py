"""Bad input, case by case: the right exit code, what is wrong and where, a remedy, and never a traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from command_line import invoke
from PIL import Image
from sampled import each

from splatbatch.machine import gpu
from splatbatch.output.layout import OutputFolder

if TYPE_CHECKING:
    from fake_batch import FakeBatch

Spoil = Callable[["FakeBatch"], object]
HIDE_GSPLAT = """
import importlib.machinery as machinery
find = machinery.PathFinder.find_spec
def without_gsplat(cls, name, path=None, target=None):
    return None if name == "gsplat" else find(name, path, target)
machinery.PathFinder.find_spec = classmethod(without_gsplat)
"""


def text(content: str) -> Spoil:
    return lambda batch: batch.config.write_text(content)


def remove(path: str) -> Spoil:
    def spoil(batch: FakeBatch) -> None:
        target = batch.folder / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return spoil


def fill(path: str, content: bytes) -> Spoil:
    return lambda batch: (batch.folder / path).write_bytes(content)


def replace(path: str, old: str, new: str) -> Spoil:
    def spoil(batch: FakeBatch) -> None:
        file = batch.folder / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return spoil


def resize(path: str, size: tuple[int, int]) -> Spoil:
    return lambda batch: Image.new("RGB", size).save(batch.folder / path)


def change(**sections: dict[str, object]) -> Spoil:
    return lambda batch: batch.change(**sections)


def run_everything(batch: FakeBatch, arguments: list[str]) -> tuple[int, str, str]:
    ended = invoke(*arguments, batch=batch)
    return ended.code, ended.out + ended.err, "\n".join(p.read_text() for p in batch.output.glob("report.md"))


CONFIG_MISTAKES = [
    (remove("splat_config.yml"), ["splat_config.yml: no such configuration file", "splatbatch init DIR"]),
    (text("training: {max_steps: 3"), ["splat_config.yml:1: no valid YAML", "hint: Look for"]),
    (text("training:\n  max_stepps: 3\n"), ["line 2, training.max_stepps: unknown key. Did you mean max_steps?"]),
    (text("training:\n  max_steps: many\n"), ["line 2, training.max_steps: 'many'", "whole number", "hint: "]),
    (text("a: 1\ntraining: {seed: x, sh_degree: 7}\n"), ["3 mistakes", "line 1, a:", "training.seed", "sh_degree: 7"]),
    (change(patches={"p7": {}}), ["patches.p7: no such patch", "hint: "]),
    (change(patches={"p0": {"training": {"sed": 1}}}), ["patches.p0.training.sed: unknown key. Did you mean seed?"]),
]


@pytest.mark.parametrize("command", [["train"], ["verify-dims"], ["status"]], ids=" ".join)
@pytest.mark.parametrize(("spoil", "words"), CONFIG_MISTAKES)
def test_a_mistake_in_the_config_ends_with_2(
    batch: FakeBatch, spoil: Spoil, words: list[str], command: list[str]
) -> None:
    spoil(batch.make("p0"))
    code, said, _ = run_everything(batch, command)
    assert code == 2, said
    for word in words:
        assert word in said
    assert not batch.output.exists()


MODEL = "patches/p0/sparse/0"
REFUSALS = [
    (remove(MODEL), ["patches", "sparse/0"]),
    (remove(f"{MODEL}/points3D.txt"), ["points3D.txt"]),
    (fill(f"{MODEL}/cameras.txt", b"1 PINHOLE 32\n"), ["cameras.txt"]),
    (fill(f"{MODEL}/images.txt", b"\0\xff\n"), ["images.txt"]),
    (fill(f"{MODEL}/images.txt", b"1 1 0 0 0 0 0 0 1 a\xff.png\n\n"), ["images.txt: line 1", "can't decode byte 0xff"]),
    (fill(f"{MODEL}/cameras.txt", b"1 PINHOLE 32 24 1e999 30 16 12\n"), ["no finite numbers: inf"]),
    (fill(f"{MODEL}/points3D.txt", b"1 1e999 0 3 1e99 0 0 0.5\n"), ["points3D.txt: line 1"]),
    (fill(f"{MODEL}/images.txt", b""), ["images.txt", "empty (0 bytes)"]),
    (remove("images/img3.png"), ["img3.png: no such file"]),
    (fill("images/img3.png", b"no picture"), ["img3.png"]),
    (fill("images/img3.png", b""), ["img3.png", "0 bytes"]),
    (
        replace(f"{MODEL}/cameras.txt", "PINHOLE 32 24 30 30 16.0 12.0", "FOV 32 24 30 30 16 12 0.9"),
        ["FOV"],
    ),
    (resize("images/img3.png", (16, 12)), ["16", "32", "24"]),
    (resize("images/img3.png", (24, 32)), ["24", "32"]),
    (remove("images"), ["images"]),
]


@pytest.mark.parametrize(("spoil", "words"), each(4, REFUSALS))
def test_a_patch_that_cannot_be_trained_is_refused_and_the_other_is_trained(
    batch: FakeBatch, spoil: Spoil, words: list[str]
) -> None:
    batch.make("p0", "p1")
    shutil.copytree(batch.folder / "images", batch.folder / "patches/p1/images")
    batch.settings["scene"] = {}
    (batch.folder / "patches/p0/images").symlink_to(batch.folder / "images")
    batch.change()
    spoil(batch)
    code, said, report = run_everything(batch, ["train"])
    assert code == 1, said
    assert "p0: refused" in said
    assert "1 of 2 patches trained" in said
    for word in words:
        assert word in report


@pytest.mark.parametrize(("spoil", "words"), REFUSALS)
def test_a_batch_of_which_every_patch_is_refused_ends_with_3(batch: FakeBatch, spoil: Spoil, words: list[str]) -> None:
    spoil(batch.make("p0"))
    code, said, _ = run_everything(batch, ["train"])
    assert code == 3, said
    assert run_everything(batch, ["verify-dims"])[0] == 3
    for word in words:
        assert word in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", [["train"], ["train", "--dry-run"], ["plan"], ["verify-dims"]], ids=" ".join)
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (remove("patches"), ["scene.patches: ", "patches: no such folder", "hint: "]),
        (change(scene={"patches": "patches/nowhere"}), ["patches/nowhere: no such folder", "hint: "]),
        (change(scene={"patches": "images"}), ["images: no patch with sparse/0 (found nothing)", "hint: "]),
        (change(scene={"patches": "splat_config.yml"}), ["splat_config.yml: a file, not a folder"]),
    ],
)
def test_a_scene_without_patches_ends_with_3(
    batch: FakeBatch, spoil: Spoil, words: list[str], command: list[str]
) -> None:
    spoil(batch.make("p0"))
    code, said, _ = run_everything(batch, command)
    assert code == 3, said
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "p5"], ["p5: no such patch", "Known: p0, p1."]),
        (["retry", "--patch", "p10"], ["p10: no such patch", "Did you mean p1"]),
        (["explain", "p5", "--log"], ["p5: no such patch"]),
        (["explain", "p0", "--attempt", "3"], ["p0: no attempt 3 (there are: none)", "hint: "]),
        (["explain", "p0", "--attempt", "0"], ["p0: no attempt 0 (there are: none)", "hint: "]),
        (["retry"], ["no patch given", "retry p5", "--failed"]),
        (["retry", "--patch", "p0", "--set", "training.seed"], ["should have the form KEY=VALUE", "hint: "]),
        (["retry", "--patch", "p0", "--set", "training.sed=1"], ["training.sed: unknown setting", "training.seed"]),
        (["retry", "--patch", "p0", "--set", "training.seed=x"], ["training.seed: 'x'", "whole number"]),
        (["retry", "--patch", "p0", "--set", "training.init_scale=x"], ["  training.init_scale: 'x'", "1 mistake"]),
        (["verify-dims", "--fix", "stretch"], ["'--fix': 'stretch' is not one of 'scale', 'crop'."]),
        (["explain", "p0", "--attempt", "x"], ["'--attempt' / '-a': 'x' should be a whole number"]),
        (["serve", "--port", "99999"], ["'--port': '99999' should be at most 65535"]),
        (["publish", "--min-opacity", "x"], ["'--min-opacity': 'x' should be a number"]),
        (["verify-dims", "--fix", "scale"], ["--fix and --out belong together", "--out FOLDER"]),
        (["config", "show", "p9"], ["p9: no such patch"]),
        (["explain", "train.log"], ["train.log: no such patch, file or folder", "holds images, ", "Known: p0, p1."]),
        (["explain", "splat_config.yml", "--log"], ["no patch given"]),
        (["explain", "--log", "images/left.png"], ["images/left.png: no such patch, file or folder"]),
        (["work", "store"], ["store: no such patch, file or folder"]),
        (["plan-capture", "views.kml"], ["views.kml: no such patch, file or folder"]),
        (["scene", "imagess"], ["scene imagess: ", "Did you mean images?", "--source or --images"]),
        (["inspect", "--check", "c.json"], ["c.json: no such patch, file or folder"]),
        (["evaluate", "--splat", "scene.ply"], ["--splat scene.ply: no such file"]),
        (["evaluate", "--splat", "images"], ["--splat images: a folder, not a file"]),
        (["status", "-c", "/dev/null"], ["/dev/null: a device or a pipe, not a configuration file", "init DIR"]),
        (["status", "--watch", "--json"], ["--watch and --json", "status --json"]),
        (["train", "--detach", "--only", "patch=p1"], ["--only patch=p1", "Name the patches: splatbatch train p1"]),
        (["trian"], ["No such command"]),
        (["train", "--stepps"], ["No such option"]),
        (["train", "--config", "nowhere.yml"], ["nowhere.yml: no such configuration file"]),
    ],
)
def test_a_wrong_option_ends_with_2(
    batch: FakeBatch, arguments: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(batch.folder)
    code, said, _ = run_everything(batch.make("p0", "p1"), arguments)
    assert code == 2, said
    assert "hint:  " not in said
    for word in words:
        assert word in said


MISSING = [
    ({"scene": {"masks": "nix", "source": "nax"}}, ["scene.masks: ", "/nix: no such folder", "scene.source: ", "/nax"]),
    ({"evaluation": {"holdout_list": "nox.txt"}}, ["evaluation.holdout_list: ", "/nox.txt: cannot be read (No such"]),
]


@pytest.mark.parametrize("command", ["train", "verify-dims", "plan"])
@pytest.mark.parametrize(("sections", "words"), MISSING)
def test_what_the_config_names_and_is_not_there_ends_with_3(
    batch: FakeBatch, sections: dict[str, dict[str, object]], words: list[str], command: str
) -> None:
    code, said, _ = run_everything(batch.make("p0", **sections), [command])
    assert code == 3, said
    for word in [*words, "hint: "]:
        assert word in said


@pytest.mark.parametrize("folder", ["in-the-way", "in-the-way/below", "splat_config.yml"])
def test_an_output_folder_that_cannot_be_written_ends_with_6(batch: FakeBatch, folder: str) -> None:
    batch.make("p0", output={"folder": folder})
    (batch.folder / "in-the-way").touch()
    code, said, _ = run_everything(batch, ["train"])
    assert code == 6
    assert f"output.folder: {batch.folder}/{folder}: cannot be written" in said
    assert "hint: " in said


def test_a_report_whose_place_is_taken_is_named(batch: FakeBatch) -> None:
    (batch.make("p0").output / "report.html").mkdir(parents=True)
    code, said, _ = run_everything(batch, ["report"])
    assert (code, f"{batch.output}/report.html: Is a directory" in said) == (6, True)


def test_a_folder_that_cannot_be_claimed_ends_with_6(batch: FakeBatch) -> None:
    batch.make("p0").output.mkdir(parents=True)
    (batch.output / "claims").touch()
    code, said, _ = run_everything(batch, ["train"])
    assert (code, "output/claims" in said, "hint: " in said) == (6, True, True)


@pytest.mark.skipif(bool(gpu.gpus()), reason="there is a GPU here")
@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"executor": {"gpus": [0]}, "training": {"device": "auto"}},
            ["executor.gpus: [0]: no such GPU", "nvidia-smi"],
        ),
        ({"training": {"device": "cuda"}}, ["training.device: cuda: NVML sees no GPU here", "auto or cpu"]),
    ],
)
def test_a_gpu_that_is_demanded_and_not_there_ends_with_5(
    batch: FakeBatch, sections: dict[str, dict[str, object]], words: list[str]
) -> None:
    code, said, _ = run_everything(batch.make("p0", **sections), ["train"])
    assert code == 5, said
    for word in [*words, "hint: "]:
        assert word in said


@pytest.mark.journey
def test_without_gsplat_train_ends_with_4(batch: FakeBatch) -> None:
    batch.make("p0")
    (batch.folder / "sitecustomize.py").write_text(HIDE_GSPLAT)
    command = [sys.executable, "-m", "splatbatch", "train", "--config", str(batch.config)]
    environment = {**os.environ, "PYTHONPATH": str(batch.folder)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 4, ended.stderr
    assert "the Python package gsplat is not importable" in ended.stderr
    assert "hint: Install splatbatch" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.journey
@pytest.mark.parametrize(
    ("arguments", "code"),
    each(3, [(["train", "p5"], 2), (["verify-dims"], 3), (["train", "--config", "nowhere.yml"], 2)]),
)
def test_in_a_process_of_its_own_a_message_stands_alone(batch: FakeBatch, arguments: list[str], code: int) -> None:
    batch.make("p0")
    remove("images/img3.png")(batch)
    command = [sys.executable, "-m", "splatbatch", *arguments]
    ended = subprocess.run(command, env=batch.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("junk", [b"", b"\0" * 100, b"[]", b'{"pid": 1}', b'{"pid": "abc", "host": "x"}', b"\xff"])
def test_junk_in_the_output_folder_stops_nothing(batch: FakeBatch, junk: bytes) -> None:
    batch.make("p0")
    folder = batch.output / "patches/p0"
    (folder / "attempt-01").mkdir(parents=True)
    for name in ("splat.ply", "result.json", "attempt-01/job.json", "attempt-01/exit.json", "attempt-01/start.json"):
        (folder / name).write_bytes(junk)
    for path in (batch.output / "lock", batch.output / "ledger.jsonl", OutputFolder(batch.output).audit_cache):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(junk)
    assert invoke("status", "--json", batch=batch).code == 0
    ended = invoke("train", batch=batch)
    assert ended.code == 0, ended.err
    assert batch.result("p0")["attempt"] == "attempt-02"
