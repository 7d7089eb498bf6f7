"""configs/engines/ssh_workers.sh: workers over plain ssh, here to hosts that are all this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fake_batch import ROOT, FakeBatch
from process_family import left_of, wait_until
from programs import put_programs

SCRIPT = ROOT / "configs/engines/ssh_workers.sh"
QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}}


def call(batch: FakeBatch, hosts: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Start workers on the hosts of a list."""
    (batch.folder / "hosts").write_text(hosts)
    command = ["bash", str(SCRIPT), str(batch.folder / "hosts"), str(batch.config), *words]
    environment = put_programs(batch, batch.folder / "bin")
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.all
def test_workers_on_all_hosts_outlive_the_call_and_train_the_batch(batch: FakeBatch) -> None:
    names = [f"p{number}" for number in range(6)]
    batch.make(*names, **QUICK).script(**{name: ["await go", "train"] for name in names[:2]})
    ended = call(batch, "alice@one  # the old one\n\n# two is away\nthree\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    (batch.folder / "go").touch()
    assert sorted((batch.folder / "bin/called").read_text().split()) == ["alice@one", "three"]
    wait_until(lambda: len(list(batch.output.glob("patches/*/result.json"))) == 6)
    assert len(list(batch.output.glob("ledger/*.jsonl"))) == 2
    wait_until(lambda: left_of(batch) == [])
    assert "6 of 6 patches trained" in (batch.folder / "work-three.log").read_text()


@pytest.mark.all
def test_what_a_host_is_asked_to_add_reaches_its_worker(batch: FakeBatch) -> None:
    batch.make("p 0", "p1", **QUICK)
    assert call(batch, "one", "--no-verify", "--for", "1h", "p 0").returncode == 0
    wait_until(lambda: left_of(batch) == [])
    assert [path.parent.name for path in batch.output.glob("patches/*/result.json")] == ["p 0"]


@pytest.mark.all
def test_a_word_that_is_not_ascii_reaches_its_worker_in_any_locale(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.make("it's gr\u00fcn", "p1", **QUICK)
    monkeypatch.setenv("LC_ALL", "C")
    assert call(batch, "one", "it's gr\u00fcn").returncode == 0
    wait_until(lambda: [path.parent.name for path in batch.output.glob("patches/*/result.json")] == ["it's gr\u00fcn"])


@pytest.mark.all
def test_workers_of_a_store_need_its_url_alone(batch: FakeBatch, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'store'}"
    batch.make("p0", "p1", **QUICK).run_apart("pack", "--to", url)
    (batch.folder / "hosts").write_text("one\ntwo\n")
    command = ["bash", str(SCRIPT), str(batch.folder / "hosts"), url, "--scratch", str(tmp_path / "scratch")]
    environment = put_programs(batch, batch.folder / "bin")
    del environment["SPLATBATCH_CONFIG"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    wait_until(lambda: len(list((tmp_path / "store/results").glob("*.trained.*"))) == 2)
    assert (batch.folder / "bin/homes/one/work-one.log").exists()


@pytest.mark.all
def test_a_host_that_is_not_reached_is_named_with_sshs_own_words_and_the_others_work(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK)
    ended = call(batch, "gone\none\n")
    assert ended.returncode == 5
    assert "gone: not started (exit code 255): ssh: connect to host gone port 22: No route to host" in ended.stderr
    wait_until(lambda: "1 of 1 patches trained" in (batch.folder / "work-one.log").read_text())
    assert batch.result("p0")["accepted"] == 1


@pytest.mark.contract
def test_a_worker_that_ends_at_once_is_told_in_its_own_words(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK).change(training={"max_step": 5})
    ended = call(batch, "one")
    assert ended.returncode == 5
    assert "one: not started (exit code 2)" in ended.stderr
    assert "max_steps" in ended.stderr


@pytest.mark.parametrize(
    ("hosts", "config", "words"),
    [("none", "c.yml", "none: no such file"), ("h", "c.yml", "c.yml: no such"), ("h", "no/c.yml", "no/c.yml: no such")],
)
@pytest.mark.contract
def test_a_wrong_call_starts_nothing(tmp_path: Path, hosts: str, config: str, words: str) -> None:
    (tmp_path / "h").write_text("one")
    command = ["bash", str(SCRIPT), hosts, config]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert words in ended.stderr
