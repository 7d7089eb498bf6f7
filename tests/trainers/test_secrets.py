"""Values of a program's environment are secrets: named, and never shown."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from command_line import invoke
from fake_batch import FakeBatch
from told import listen

from splatbatch.config import Recipe, Training
from splatbatch.config.trainers.programs import Program
from splatbatch.tasks.fingerprint import earlier_hashes

SECRET = "hunter2"
LONG = "correct horse battery"
"""A program that tells it has it masked in its log: it is no word of other logs."""
OF_VERSION_0_1 = "daebe5e1dbea7b77"


@pytest.mark.contract
def test_the_environment_of_a_program_is_named_and_never_shown(foreign_batch: FakeBatch) -> None:
    other = foreign_batch.settings["trainers"]["foreign"]
    command = ["sh", "-c", 'echo "it is $LONG"; exec "$@"', "sh", *other["command"]]
    env = {"TOKEN": SECRET, "PIN": 7123456, "LONG": LONG}
    foreign_batch.change(trainers={"foreign": {**other, "command": command, "env": env}})
    said = [invoke(*words.split(), batch=foreign_batch) for words in ("train", "config show", "report", "plan")]
    assert "TOKEN: '**********'" in said[1].out and said[0].code == 0
    files = [path for path in foreign_batch.output.rglob("*") if path.is_file()]
    holding = [path for path in files if any(one in path.read_text("latin-1") for one in (SECRET, LONG))]
    assert {path.name for path in holding} == {"watch.json"}
    assert {path.stat().st_mode & 0o777 for path in holding} == {0o600}
    assert not any(secret in one.out + one.err for one in said for secret in (SECRET, LONG, "7123456"))


PASSWORD = "tr0ub4dor&3"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----"
LEAKS = {
    "HF_TOKEN": "hf_Zß'/+secret \\of ours",
    "TRACKING_URL": f"https://me:{PASSWORD}@tracking:5000/x",
    "A_KEY": KEY,
    "MODE": "train",
    "SHARE": "/usr/share",
}
HIDDEN = (LEAKS["HF_TOKEN"], quote(LEAKS["HF_TOKEN"], safe=""), "+secret", PASSWORD, "MIIEvQIBADANBgkq", "hkiG9w0")


def leaking(batch: FakeBatch, do: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Have a trainer tell what it must not, and ask every command; return all that is kept, and all that was said."""
    other = {**batch.settings["trainers"]["foreign"], "env": LEAKS, "settings": {"do": do}}
    other["metrics"] = {"file": "figures.json", "keys": {"psnr": "psnr"}, "evaluate": False}
    told = listen(monkeypatch)
    batch.change(trainers={"foreign": other}, notify={"command": ["tell"]}, retry={"max_attempts": 1})
    commands = ("train", "status", "explain p0", "report", "explain p0 --log", "status --json", "plan", "config show")
    said = [invoke(*words.split(), batch=batch) for words in commands]
    files = [path for path in batch.output.rglob("*") if path.is_file() and path.name != "watch.json"]
    kept = {str(path): path.read_bytes() for path in files if "attempt-01/output/" not in str(path)}
    words = {name: (one.out + one.err).encode() for name, one in zip(commands, said, strict=True)}
    return {**kept, **words, "told": b"".join(told.heard)}


@pytest.mark.parametrize("do", ["leak", "leak fail", "leak-to-end"])
def test_what_a_program_tells_of_its_environment_is_kept_and_shown_nowhere(
    foreign_batch: FakeBatch, do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = leaking(foreign_batch, do, monkeypatch)
    assert b'"event": "batch_ended"' in found["told"]
    leaks = {(name, one) for name, text in found.items() for one in HIDDEN if one.encode() in text}
    assert leaks == set()
    [log] = [text for name, text in found.items() if name.endswith("p0/attempt-01/train.log")]
    assert b"[HF_TOKEN]" in log
    if do == "leak":
        assert b"\n[HF_TOKEN][HF_TOKEN]\n[HF_TOKEN]\n" in log  # in two halves
        assert b"https://me:[TRACKING_URL]@elsewhere, step 7/10 [HF_TOKEN]\r" in log
        assert b"train /usr/share" in log  # too short, or a path: no secret


def test_the_cause_of_a_failure_is_still_found_where_secrets_are_masked(
    foreign_batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = leaking(foreign_batch, "leak fail", monkeypatch)
    [report] = [text for name, text in found.items() if name.endswith("report.json")]
    assert b"RuntimeError: 401 Client Error: token [HF_TOKEN] is refused by [TRACKING_URL]" in report
    assert b"[HF_TOKEN]" in found["explain p0 --log"]


@pytest.mark.parametrize(
    "env", [{"TOKEN": "{nix} hunter2"}, {"TOKEN": ["hunter2"]}, ["hunter2"], {"T": {"hunter2": 1}}]
)
def test_a_mistake_in_an_environment_does_not_show_it(foreign_batch: FakeBatch, env: Any) -> None:
    other = foreign_batch.settings["trainers"]["foreign"]
    foreign_batch.change(trainers={"foreign": {**other, "env": env}})
    ended = invoke("plan", batch=foreign_batch)
    assert (ended.code, "trainers.foreign.env" in ended.err, "hunter2" in ended.err) == (2, True, False)


def test_results_of_a_program_with_an_environment_stay_fresh() -> None:
    told = {"env": {"TOKEN": SECRET, "N": 1, "X": 0.5, "B": True}, "settings": {"a": 1}, "working_folder": "/opt/x"}
    program = Program.model_validate({"command": ["train", "{images}"], **told})
    recipe = Recipe(training=Training(trainer="other", max_steps=10), program=program)
    assert OF_VERSION_0_1 in earlier_hashes(recipe)
