"""Signatures of a site: asked before those that are known, checked when they are read, never waited for."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from logs import diagnose_log

from splatbatch.errors import ConfigError
from splatbatch.failures.signatures import site_signatures

if TYPE_CHECKING:
    from fake_batch import FakeBatch

REFUSED = "ERROR: licence server lic01 refused the request"
LICENCE = f"""
[[signature]]
cause = "licence_refused"
action = "retry"
advice = "All licences are taken: ask again later."
patterns = [['licence server (?P<Name>\\S+) refused', "{REFUSED}"]]
"""
CATASTROPHIC = """
[[signature]]
cause = "slow"
action = "fail"
advice = "Never."
patterns = [['(a+)+$', "aaa"]]
"""
SLOW_LINE = f"{'a' * 60}b\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "my_signatures.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_failure_of_a_site_is_told_as_it_says(tmp_path: Path) -> None:
    found = diagnose_log(f"step 3\n{REFUSED}\n", 1, own=site_signatures(written(tmp_path, LICENCE)))
    assert (found.cause, found.action, found.evidence) == ("licence_refused", "retry", (f"line 2: {REFUSED}",))
    assert found.advice == "All licences are taken: ask again later."


def test_of_signatures_that_count_alike_those_of_the_site_win(tmp_path: Path) -> None:
    log = "RuntimeError: CUDA out of memory: lic01\n"
    text = LICENCE.replace(
        f"'licence server (?P<Name>\\S+) refused', \"{REFUSED}\"", f"'memory: lic01', '{log.strip()}'"
    )
    assert diagnose_log(log, 1, own=site_signatures(written(tmp_path, text))).cause == "licence_refused"


def test_a_known_cause_needs_no_advice_of_its_own(tmp_path: Path) -> None:
    text = "[[signature]]\ncause = 'disk_full'\naction = 'fail'\npatterns = [['scratch is out', 'scratch is out']]"
    found = diagnose_log("scratch is out\n", 1, own=site_signatures(written(tmp_path, text)))
    assert (found.cause, found.advice.startswith("The disk (or the quota) is full")) == ("disk_full", True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"retry"', '"again"', "signature.0.action: 'again': should be 'retry', 'degrade' or 'fail'"),
        ("action =", "actoin =", "signature.0.actoin: unknown key. Did you mean action?"),
        ("licence_refused", "Licence refused", "'Licence refused': should be a name in small letters"),
        ("advice =", "# advice =", "licence_refused is not a known cause: say in `advice` what to do"),
        (" refused'", " (refused'", "signature.0.patterns.0: ['licence server (?P<Name>\\\\S+) (refused'"),
        (" refused'", " declined'", f"S+) declined': does not match '{REFUSED}'"),
        (f', "{REFUSED}"', "", "should be a regular expression and example lines that it matches"),
        ("'licence server (?P<Name>\\S+) refused'", "'{gone}'", "{gone}: no such group under [words]"),
        (" refused'", " refused\\n'", "is matched within one line"),
        ("[[signature]]", "[[signature]", "is not TOML"),
        ("[[signature]]", "[x]\n[[signature]]", "x: unknown key"),
        ("patterns = [[", "patterns = [['(a+)+$', '"+ "a" * 40 + "b'], [", "takes too long on"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_file_key_value_and_remedy(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in LICENCE
    path = written(tmp_path, LICENCE.replace(old, new))
    with pytest.raises(ConfigError) as told:
        site_signatures(path)
    assert said in told.value.message
    assert str(path) in told.value.message
    assert "[[signature]]" in told.value.hint


@pytest.mark.all
def test_a_regular_expression_that_explodes_is_left_out_and_named(tmp_path: Path) -> None:
    signatures = site_signatures(
        written(tmp_path, "".join(CATASTROPHIC.replace("slow", f"slow{n}") for n in range(10, 30)) + LICENCE)
    )
    begin = time.monotonic()
    found = diagnose_log(f"{SLOW_LINE}RuntimeError: CUDA out of memory\n", 1, own=signatures)
    assert (found.cause, time.monotonic() - begin < 5) == ("cuda_oom", True)
    assert [line.partition("slow1")[0] for line in found.evidence[1:]] == ["skipped: the patterns for "] * 3


def test_a_night_asks_the_signatures_that_its_yaml_names(batch: FakeBatch) -> None:
    batch.make("p0", constants={"splatbatch.failures.retry.FIRST_WAIT_S": 0.01}).script(
        p0=[f"exit 1 {REFUSED}", "train"]
    )
    written(batch.folder, CATASTROPHIC + LICENCE)
    batch.settings["failures"] = "my_signatures.toml"
    batch.change()
    assert batch.run("train").returncode == 0
    assert "licence_refused" in batch.run("explain", "p0").stdout


def test_explain_asks_them_too_and_says_what_is_wrong_with_them(batch: FakeBatch) -> None:
    batch.make("p0")
    path, log = written(batch.folder, LICENCE), batch.folder / "train.log"
    log.write_text(f"{REFUSED}\n")
    batch.settings["failures"] = path.name
    batch.change()
    assert json.loads(batch.run("explain", str(log), "--exit-code", "1", "--json").stdout)["cause"] == "licence_refused"
    batch.settings["failures"] = "gone.toml"
    batch.change()
    ended = batch.run("train")
    assert (ended.returncode, "failures: " in ended.stderr, "gone.toml: cannot be read" in ended.stderr) == (
        2,
        True,
        True,
    )
