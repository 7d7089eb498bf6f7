"""`inspect` as a supervised step: what it writes, when it does nothing, what it says of what cannot be inspected."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended, in_time, invoke
from cut_quarry import QUARRY, trained_p0
from published_shapes import checked

from splatbatch.config import load
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.quality import GRADES, seal_of
from splatbatch.output.records.result import Result
from splatbatch.report.quality import quality_of
from splatbatch.scene.holdout import choose_holdout
from splatbatch.tasks.batch import open_batch


@pytest.fixture(scope="module")
def quarry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quarry with p0 trained, and inspected once."""
    folder = tmp_path_factory.mktemp("inspected") / "quarry"
    shutil.copytree(QUARRY, folder, ignore=shutil.ignore_patterns("output"))
    trained_p0(folder)
    assert inspect(folder, "p0").code == 0
    return folder


def inspect(folder: Path, *arguments: str) -> Ended:
    return invoke("inspect", *arguments, "--config", str(folder / "splat_config.yml"))


@pytest.mark.all
def test_the_process_is_an_attempt_and_its_record_lies_beside_the_splat(quarry: Path) -> None:
    patch = OutputFolder(quarry / "output").patch("p0")
    attempt, found, result = patch.inspecting.attempts()[0], patch.read_inspection(), patch.read_result()
    job, told = attempt.read_job(), attempt.read_exit()
    assert job is not None and "splatbatch.training.inspection" in job.argv
    assert told is not None and told.end.code == 0 and attempt.last_progress().phase == "pictures"
    assert found is not None and result is not None and found.splat == result.sha256
    assert found.grade in "ABCD" and len(found.figures) == 10


def test_what_was_inspected_as_it_is_is_not_inspected_again(quarry: Path) -> None:
    patch = OutputFolder(quarry / "output").patch("p0")
    ended = inspect(quarry, "p0", "--json")
    (name,) = checked("inspect", ended.out)
    assert name == "p0" and ended.code == 0 and len(patch.inspecting.attempts()) == 1


def test_a_patch_that_is_not_trained_is_told_and_the_others_are_inspected(quarry: Path) -> None:
    ended = inspect(quarry)
    assert ended.code == 1 and "p0" in ended.out
    assert "p1: not trained yet" in ended.err and "Traceback" not in ended.err


@pytest.mark.all
def test_a_photograph_that_is_gone_is_named(quarry: Path, tmp_path: Path) -> None:
    shutil.copytree(quarry, tmp_path / "quarry")
    gone = next((tmp_path / "quarry/images").rglob("*.jpg"))
    gone.unlink()
    OutputFolder(tmp_path / "quarry/output").patch("p0").inspection.unlink()
    ended = inspect(tmp_path / "quarry", "p0")
    assert ended.code == 1 and gone.name in ended.err and "train.log" in ended.err


def test_whether_splats_are_inspected_changes_no_splat(quarry: Path) -> None:
    config = load(quarry / "splat_config.yml").recipe("p0")
    other = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"inspect": True})})
    assert config.decisive() == other.decisive()


@pytest.mark.all
def test_a_certificate_is_made_again_where_it_is_damaged(quarry: Path, tmp_path: Path) -> None:
    shutil.copytree(quarry, tmp_path / "quarry")
    output = OutputFolder(tmp_path / "quarry/output")
    genuine = output.patch("p0").certificate.read_text()
    for there in ("{}", genuine.replace('"grade": "', '"grade": "Z'), None, genuine):
        output.patch("p0").certificate.write_text(there) if there else output.patch("p0").certificate.unlink()
        assert inspect(tmp_path / "quarry", "p0").code == 0
        assert output.patch("p0").certificate.read_text() == genuine
    assert len(output.patch("p0").inspecting.attempts()) == 1


def verify(folder: Path, *arguments: str) -> Ended:
    return invoke("inspect", "--check", *arguments, "--config", str(folder / "splat_config.yml"))


def test_a_certificate_holds_until_something_changes(quarry: Path) -> None:
    ended = verify(quarry, "p0")
    assert (ended.code, ended.out.strip()) == (0, "p0: the certificate holds")
    assert verify(quarry).code == 1 and "p1: no certificate; `splatbatch inspect`" in verify(quarry).out
    file = OutputFolder(quarry / "output").patch("p0").certificate
    told = checked("inspect", verify(quarry, str(file), "--json").out)
    assert told == {str(file): {"holds": True, "problems": []}}
    told = checked("inspect", verify(quarry, "--json").out)
    assert not told["p1"]["holds"] and told["p1"]["problems"]


def change_splat(quarry: Path) -> None:
    splat = OutputFolder(quarry / "output").patch("p0").splat
    data = bytearray(splat.read_bytes())
    data[-1] ^= 1
    splat.write_bytes(data)


def change_photograph(quarry: Path) -> None:
    photo = min((quarry / "images/left").glob("*.jpg"))
    photo.write_bytes(photo.read_bytes() + b" ")


def change_settings(quarry: Path) -> None:
    config = quarry / "splat_config.yml"
    config.write_text(config.read_text().replace("max_steps: 300", "max_steps: 400"))


def change_certificate(quarry: Path, **keys: object) -> None:
    file = OutputFolder(quarry / "output").patch("p0").certificate
    file.write_text(json.dumps({**json.loads(file.read_text()), **(keys or {"num_gaussians": 7})}))


def forge_grade(quarry: Path) -> None:
    """Also seal it anew."""
    change_certificate(quarry, grade="Z")
    file = OutputFolder(quarry / "output").patch("p0").certificate
    change_certificate(quarry, seal=seal_of(json.loads(file.read_text())))


def change_versions(quarry: Path) -> None:
    """And seal it anew."""
    file = OutputFolder(quarry / "output").patch("p0").certificate
    change_certificate(quarry, made_with={**json.loads(file.read_text())["made_with"], "torch": "0.1"})
    change_certificate(quarry, seal=seal_of(json.loads(file.read_text())))


def forge(quarry: Path, **keys: object) -> None:
    """Change a certificate and seal it anew."""
    file = OutputFolder(quarry / "output").patch("p0").certificate
    change_certificate(quarry, **keys)
    change_certificate(quarry, seal=seal_of(json.loads(file.read_text())))


FORGED = [
    (lambda said: {"patch": "p7"}, "certificate: patch p7, but p0 in result.json"),
    (lambda said: {"num_gaussians": 7}, "certificate: num_gaussians 7, but "),
    (lambda said: {"offset": [5, 0, 0]}, "certificate: offset (5, 0, 0), but (0, 0, 0) in result.json"),
    (
        lambda said: {"settings": {**said["settings"], "training": {**said["settings"]["training"], "max_steps": 7}}},
        "certificate: training.max_steps 7, but 300 in result.json",
    ),
    (lambda said: {"settings_hash": "0" * 16}, "has other settings than result.json: settings_hash 0000"),
    (lambda said: {"inputs": said["inputs"] | {"sparse/images.bin": "00"}}, "has other files than result.json"),
    (lambda said: {"inputs": said["inputs"] | {"images/no.jpg": "00"}}, "lists files that result.json does not"),
    (lambda said: {"holdout": raised(said, psnr=40.0)}, "certificate: psnr 40 of "),
    (lambda said: {"holdout": raised(said, x=9e9)}, "certificate: x 9e+09 of "),
    (
        lambda said: {"holdout": dict([*said["holdout"].items()][1:])},
        "the certificate has fewer held-out photographs than result.json",
    ),
    (
        lambda said: {"holdout": said["holdout"] | {"left/no.jpg": {}}},
        "the certificate has more held-out photographs than result.json",
    ),
    (
        lambda said: {"figures": [one | {"value": 0} for one in said["figures"]], "grade": "A"},
        "has other figures than inspection.json: ",
    ),
]


def raised(said: dict[str, Any], **figures: float) -> dict[str, Any]:
    return {name: {**one, **figures} for name, one in said["holdout"].items()}


@pytest.fixture
def measured(quarry: Path, tmp_path: Path) -> Path:
    """The same, of which each held-out photograph has a PSNR in result.json."""
    shutil.copytree(quarry, tmp_path / "quarry")
    folder = OutputFolder(tmp_path / "quarry/output").patch("p0")
    (task,) = open_batch(tmp_path / "quarry/splat_config.yml", ["p0"]).tasks
    psnrs = {name: {"psnr": 20.0} for name in choose_holdout(task.patch, task.recipe.evaluation)}
    result = json.loads(folder.result.read_text()) | {"metrics": {"final": {"images": psnrs}}}
    folder.result.write_text(json.dumps(result))
    assert inspect(tmp_path / "quarry", "p0").code == 0
    return tmp_path / "quarry"


def test_a_certificate_that_was_forged_and_sealed_anew_contradicts_the_records(measured: Path) -> None:
    file = OutputFolder(measured / "output").patch("p0").certificate
    genuine = file.read_text()
    assert verify(measured, "p0").out.strip() == "p0: the certificate holds"
    for forged, words in FORGED:
        forge(measured, **forged(json.loads(genuine)))
        for ended in (verify(measured, "p0"), verify(measured, str(file))):
            assert (ended.code, words in ended.out) == (1, True), (words, ended.out)
        file.write_text(genuine)


def test_a_certificate_without_the_records_that_it_speaks_of_does_not_hold(measured: Path) -> None:
    folder = OutputFolder(measured / "output").patch("p0")
    folder.inspection.unlink()
    assert "the figures of the certificate cannot be checked: inspection.json is missing" in verify(measured, "p0").out


def test_a_certificate_calls_nothing_held_out_that_was_trained_on(measured: Path) -> None:
    folder = OutputFolder(measured / "output").patch("p0")
    name = next(iter(json.loads(folder.certificate.read_text())["holdout"]))
    result = json.loads(folder.result.read_text()) | {"photographs": {"trained": [name]}}
    folder.result.write_text(json.dumps(result))
    assert f"holds out photographs that result.json was trained on: {name}" in verify(measured, "p0").out


@pytest.mark.parametrize("name", ["certificate.json", "splat.ply"])
def test_a_pipe_is_never_waited_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "certificate.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    ended = in_time("inspect", "--check", str(tmp_path / "certificate.json"))
    assert ended.code in (1, 2) and "Traceback" not in ended.err


def cut_certificate(quarry: Path) -> None:
    OutputFolder(quarry / "output").patch("p0").certificate.write_text('{"grade": "A", "figures": 3}')


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_splat, "is of another splat"),
        (change_photograph, "files have changed since the certificate was written: images/left/"),
        (change_settings, "the settings of the YAML have changed"),
        (change_certificate, "its seal is broken"),
        (forge_grade, "says grade Z, but its figures result in"),
        (change_versions, "has other versions than result.json"),
        (cut_certificate, "is incomplete: it has no patch"),
    ],
)
def test_what_a_certificate_no_longer_says_truly_is_told(
    quarry: Path, tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    shutil.copytree(quarry, tmp_path / "quarry")
    change(tmp_path / "quarry")
    ended = verify(tmp_path / "quarry", "p0")
    assert ended.code == 1 and words in ended.out and "Traceback" not in ended.err


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "none.json").touch()
    ended = invoke("inspect", "--check", str(tmp_path / "none.json"))
    assert ended.code == 6 and "none.json: not a certificate" in ended.err


def test_the_report_shows_grade_figures_and_advice(quarry: Path) -> None:
    output = OutputFolder(quarry / "output")
    found = output.patch("p0").read_inspection()
    page, text = output.report("html").read_text(), output.report("md").read_text()
    report = json.loads(output.report("json").read_text())
    told = {patch["patch"]: patch["quality"] for patch in report["patches"]}
    assert found is not None and found.found and told["p1"] is None
    assert told["p0"]["grade"] == found.grade and len(told["p0"]["figures"]) == 10
    assert f"Grade {found.grade}: {GRADES[found.grade]} ({found.found[0].name}" in page
    assert "cells of the scene from above" in page
    assert f"p0: grade {found.grade}" in text and found.found[0].advice.split(":")[0] in text
    assert "Certificate" in page and "data:image/webp;base64," in page and "held out" in page
    certificate = json.loads(output.patch("p0").certificate.read_text())
    assert certificate["seal"] in page and next(iter(certificate["inputs"].values())) in page
    assert len(told["p0"]["holdout"]) == sum("psnr" in one for one in found.photos.values()) > 0


def test_what_somebody_wrote_into_records_is_text_on_the_page(quarry: Path, tmp_path: Path) -> None:
    shutil.copytree(quarry, tmp_path / "quarry")
    folder = OutputFolder(tmp_path / "quarry/output").patch("p0")
    evil = "<script>alert(1)</script>"
    record = json.loads(folder.inspection.read_text())
    record["figures"][0] |= {"value": 9, "advice": evil, "meaning": evil, "subjects": [evil], "picture": "../x.webp"}
    folder.inspection.write_text(json.dumps(record | {"thumbnails": {evil: "../../etc"}, "attempt": "../.."}))
    shown = {evil: {"psnr": 1.0, "x": 0.0, "y": 1.0}, "b": {"psnr": 2.0, "x": 3.0, "y": 1.0}}
    changes = {
        "inputs": {evil: evil},
        "made_with": {evil: evil},
        "holdout": shown,
        "offset": 5,
        "settings": {"a": evil},
    }
    change_certificate(tmp_path / "quarry", **changes)
    assert inspect(tmp_path / "quarry", "p1").code == 1  # writes the report
    page = OutputFolder(tmp_path / "quarry/output").report("html").read_text()
    assert evil not in page and page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 8


def test_an_inspection_of_another_splat_is_not_shown(quarry: Path, tmp_path: Path) -> None:
    shutil.copytree(quarry, tmp_path / "quarry")
    folder = OutputFolder(tmp_path / "quarry/output").patch("p0")
    assert quality_of(folder, (folder.read_result() or Result()).sha256) is not None
    assert quality_of(folder, "another") is None
    folder.inspection.write_text('{"figures": [{"value": "x"}], "cells": [1], "grade": 3}')
    assert quality_of(folder, (folder.read_result() or Result()).sha256) is None
