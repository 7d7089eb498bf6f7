"""Retries never lose a good splat, say what came of them, and can be taken back or saved."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_batch import FakeBatch

from splatbatch import accept
from splatbatch.errors import ConfigError
from splatbatch.tasks.batch import open_batch

SET = ("--set", "training.init_scale=40")


def retry(batch: FakeBatch, *options: str) -> Any:
    return batch.run("retry", "p0", *options)


def kept(batch: FakeBatch) -> str:
    return batch.result("p0")["attempt"]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = FakeBatch(tmp_path_factory.mktemp("trained") / "batch").make("p0", "p1")
    batch.script(p0=["measure 24.6", "measure 16.5"], p1=["measure 20"]).run("train")
    return batch


@pytest.fixture
def trained(trained_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    """A batch whose second attempt is 8.1 dB worse than its first."""
    return trained_once.copied(tmp_path / "batch")


def test_a_worse_retry_leaves_the_better_splat_and_says_so(trained: FakeBatch) -> None:
    before = (trained.output / "patches/p0/splat.ply").stat()
    ended = retry(trained, *SET)
    assert ended.returncode == 0
    assert "8.1 dB worse than attempt 1: kept attempt 1" in ended.stderr
    after = (trained.output / "patches/p0/splat.ply").stat()
    assert (kept(trained), after.st_ino) == ("attempt-01", before.st_ino)
    assert trained.run("train").returncode == 0
    assert len(trained.events("attempt_started")) == 3


def test_a_better_retry_replaces_it_and_the_earlier_splat_stays_beside_it(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "measure 25.0"])
    ended = retry(trained, *SET)
    assert "0.4 dB better than attempt 1" in ended.stderr
    assert kept(trained) == "attempt-02"
    assert (trained.output / "patches/p0/attempt-01/splat.ply").exists()


def test_a_setting_lets_the_newer_win(trained: FakeBatch) -> None:
    trained.change(retry={"keep": "newer"})
    retry(trained, *SET)
    assert kept(trained) == "attempt-02"


def test_what_cannot_be_compared_stays_an_attempt_aloud(trained: FakeBatch) -> None:
    ended = retry(trained, "--set", "evaluation.holdout_every=4", "--set", "training.resolution=1/2")
    assert "cannot be compared with attempt 1 (24.60 dB): measured at 1/2" in ended.stderr
    assert kept(trained) == "attempt-01"


def test_a_train_forced_by_settings_takes_the_new_splat_and_warns_when_it_is_worse(trained: FakeBatch) -> None:
    trained.change(training={"max_steps": 30})
    ended = trained.run("train", "p0")
    assert (ended.returncode, kept(trained)) == (0, "attempt-02")
    assert "`splatbatch accept p0 --attempt 1` brings attempt 1 back" in ended.stderr


def test_accept_goes_back_and_forward_and_an_unchanged_yaml_leaves_it_so(trained: FakeBatch) -> None:
    trained.change(training={"max_steps": 30})
    trained.run("train")
    assert trained.run("accept", "p0", "--attempt", "1").returncode == 0
    assert kept(trained) == "attempt-01"
    assert (trained.run("train").returncode, kept(trained)) == (0, "attempt-01")
    trained.change(training={"max_steps": 40})
    assert (trained.run("train").returncode, kept(trained)) == (0, "attempt-03")
    assert trained.run("accept", "p0", "-a", "1").returncode == 0
    assert kept(trained) == "attempt-01"


def test_accept_names_what_cannot_be_accepted(trained: FakeBatch) -> None:
    (trained.output / "patches/p0/attempt-01/splat.ply").unlink()
    for number, words in (("1", "its splat file is missing"), ("7", "no attempt 7 (there are: 1)")):
        ended = trained.run("accept", "p0", "--attempt", number)
        assert (ended.returncode, words in ended.stderr) == (2, True)
    with pytest.raises(ConfigError, match=r"p0: no attempt 0 \(there are: 1\)"):
        accept(open_batch(trained.config, ["p0"]), "p0", 0)


def test_another_setting_is_reason_enough_for_a_retry_and_the_same_one_is_not(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "measure 25.0"])
    assert retry(trained).returncode == 2
    assert retry(trained, *SET).returncode == 0
    again = retry(trained, *SET)
    assert (again.returncode, "with these settings" in again.stderr) == (2, True)


def test_a_retry_says_how_to_keep_its_settings_and_ends_with_the_attempts_side_by_side(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "measure 25.0"])
    said = retry(trained, *SET).stdout
    assert "patches: {p0: {training: {init_scale: 40}}}" in said
    assert "training.init_scale=40" in said
    assert "kept" in said
    assert "25.00" in said


def test_save_writes_the_settings_into_the_yaml_and_leaves_its_comments(trained: FakeBatch) -> None:
    text = f"# my reef\n{trained.config.read_text()}# the end\n"
    trained.config.write_text(text)
    trained.script(p0=["measure 24.6", "measure 25.0"])
    assert retry(trained, *SET, "--save").returncode == 0
    saved = trained.config.read_text()
    assert ("# my reef" in saved, "# the end" in saved) == (True, True)
    assert yaml.safe_load(saved)["patches"] == {"p0": {"training": {"init_scale": 40}}}
    assert trained.run("train").returncode == 0
    assert (kept(trained), len(trained.events("attempt_started"))) == ("attempt-02", 3)


def test_settings_that_came_out_worse_are_not_recommended(trained: FakeBatch) -> None:
    assert "kept attempt 1" in (said := trained.run("retry", "p0", *SET)).stderr
    assert "To keep these settings" not in said.stdout
    trained.script(p0=["measure 25.0"])
    assert "To keep these settings" in trained.run("retry", "p0", "--set", "training.init_scale=3").stdout


def test_explain_shows_attempts(trained: FakeBatch) -> None:
    retry(trained, *SET)
    attempts = json.loads(trained.run("explain", "p0", "--json").stdout)["attempts"]
    assert [(one["psnr"], one["is_kept"], one["unlike_yaml"]) for one in attempts] == [
        (24.6, True, {}),
        (16.5, False, {"training.init_scale": 40}),
    ]
    assert "24.60" in trained.run("explain", "p0").stdout


def test_ctrl_c_in_a_retry_keeps_the_earlier_splat_and_says_so(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "hang"])
    running = trained.beside("retry", "-p", "p0", "--force")
    running.until((trained.output / "patches/p0/attempt-02/progress.jsonl").exists).send(signal.SIGINT)
    ended = running.ended()
    assert ended.returncode == 130
    assert "interrupted (SIGINT); the earlier splat of p0 is kept" in ended.stdout
    assert "0 of 1 requested patches trained" in ended.stdout
    assert kept(trained) == "attempt-01"


def test_a_forced_retry_that_fails_is_1_and_keeps_the_splat(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "exit 1 lost", "exit 1 lost"])
    ended = retry(trained, "--force")
    assert (ended.returncode, kept(trained)) == (1, "attempt-01")
    assert "the splat of attempt-01 is kept" in ended.stdout


def test_all_but_the_accepted_splat_and_the_one_before_can_be_cleaned_away(trained: FakeBatch) -> None:
    trained.script(p0=[f"measure {psnr}" for psnr in (24, 23, 22)])
    for scale in (1, 2):
        retry(trained, "--set", f"training.init_scale={scale}.5")
    patch = trained.output / "patches/p0"
    (patch / "attempt-02/renders").mkdir()
    (patch / "attempt-02/checkpoint.pt").touch()
    dry = trained.run("clean", "--dry-run").stdout
    assert ("checkpoint.pt" in dry, (patch / "attempt-02/checkpoint.pt").exists()) == (True, True)
    assert trained.run("clean").returncode == 0
    left = sorted(path.relative_to(patch).as_posix() for path in patch.rglob("*") if path.name == "splat.ply")
    assert left == ["attempt-01/splat.ply", "attempt-03/splat.ply", "splat.ply"]
    assert not (patch / "attempt-02/checkpoint.pt").exists()
    assert not (patch / "attempt-02/renders").exists()


def test_two_retries_without_a_figure_leave_the_measured_splat_and_say_how_to_take_them(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "train", "measure nan", "measure 99999"])
    for number, seed in ((2, 1), (3, 2), (4, 3)):
        said = retry(trained, "--set", f"training.seed={seed}").stderr
        assert f"cannot be compared with attempt 1 (24.60 dB): attempt {number} has no hold-out PSNR" in said
        assert f"kept attempt 1: `splatbatch accept p0 --attempt {number}` accepts attempt {number} anyway" in said
    assert kept(trained) == "attempt-01"
    report = json.loads((trained.output / "report.json").read_text())
    assert [one["command"].partition(" -c")[0] for one in report["todo"]] == ["splatbatch accept p0 --attempt 4"]
    assert "attempt 4: cannot be compared with attempt 1" in trained.run("status").stdout


def test_a_splat_that_was_trained_on_the_held_out_photographs_replaces_none(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "measure 40", "measure 41"])
    for every in (0, 5):
        said = retry(trained, "--set", f"evaluation.holdout_every={every}").stderr
        assert "was trained on photographs that attempt 1 holds out: kept attempt 1" in said
    assert kept(trained) == "attempt-01"
    assert trained.run("accept", "p0", "--attempt", "2").returncode == 0
    assert kept(trained) == "attempt-02"


def test_the_best_of_the_other_splats_takes_the_place_of_one_that_was_tampered_with(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "measure 25.0"])
    retry(trained, *SET)
    splat = trained.output / "patches/p0/attempt-02/splat.ply"
    splat.write_bytes(bytes(splat.stat().st_size))
    said = trained.run("train").stderr
    assert "p0: the splat of attempt-02 is damaged: attempt-01, the best of the others, takes its place" in said
    assert (kept(trained), len(trained.events("attempt_started"))) == ("attempt-01", 3)


def test_accept_says_what_an_attempt_lacks(trained: FakeBatch) -> None:
    trained.script(p0=["measure 24.6", "exit 1 lost", "measure 25.0"])
    retry(trained, "--force")
    patch = trained.output / "patches/p0"
    (patch / "attempt-03/splat.ply").write_bytes(b"ply")
    (patch / "attempt-01/splat.ply").unlink()
    said = {number: trained.run("accept", "p0", "--attempt", str(number)).stderr for number in (1, 2, 3)}
    assert "attempt 1: its splat file is missing: " in said[1] and "attempt-01/splat.ply" in said[1]
    assert "attempt 2 has no valid splat" in said[2]
    assert "attempt 3: its splat file has changed" in said[3]


def touch(batch: FakeBatch) -> None:
    for photo in (batch.folder / "images").iterdir():
        os.utime(photo)


def test_photographs_that_were_touched_leave_two_splats_comparable(trained: FakeBatch) -> None:
    touch(trained)
    ended = retry(trained, *SET)
    assert "8.1 dB worse than attempt 1: kept attempt 1" in ended.stderr
    assert kept(trained) == "attempt-01"


def test_photographs_that_differ_are_named_where_splats_cannot_be_compared(trained: FakeBatch) -> None:
    photo = trained.folder / "images/img3.png"
    photo.write_bytes(bytes(byte ^ (place == 60) for place, byte in enumerate(photo.read_bytes())))
    touch(trained)
    ended = retry(trained, *SET)
    assert "the two cannot be compared: other input files: images/img3.png\n" in ended.stderr


def test_no_retry_deletes_a_splat_that_was_measured_better(trained: FakeBatch) -> None:
    trained.change(retry={"keep": "newer"})
    trained.script(p0=["measure 24.6", "measure 16.5", "measure 17", "measure 18"])
    for scale in (2, 3, 4):
        retry(trained, "--set", f"training.init_scale={scale}.5")
        touch(trained)
    splats = trained.output.glob("patches/p0/attempt-*/splat.ply")
    assert {"attempt-01", "attempt-04"} <= {splat.parent.name for splat in splats}
    assert trained.run("clean").returncode == 0
    assert (trained.output / "patches/p0/attempt-01/splat.ply").exists()


def test_the_splat_is_kept_that_is_better_where_photographs_see_it_and_the_report_says_both(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["measure 30.1 10 36.0", "measure 33.5 10 35.0"]).run("train")  # it invents less
    ended = retry(batch, *SET)
    assert "1.0 dB worse than attempt 1 on covered pixels (3.4 dB better on all): kept attempt 1" in ended.stderr
    assert kept(batch) == "attempt-01"
    report = json.loads((batch.output / "report.json").read_text())["patches"][0]
    assert [(one["psnr_covered"], one["psnr"]) for one in report["attempts"]] == [(36.0, 30.1), (35.0, 33.5)]
    assert (report["psnr_covered"], report["psnr"], report["covered_share"]) == (36.0, 30.1, 0.9)
    page = (batch.output / "report.html").read_text()
    assert "36.00 dB on covered pixels, 30.10 on all (90 % of pixels covered)" in page
