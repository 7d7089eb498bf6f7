"""`work`: several workers share a batch; what each tells, when it ends, and who is refused."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from command_line import invoke
from process_family import left_of, may_unshare, wait_until
from turns import CLOCK

from splatbatch.cli import train
from splatbatch.config import Limits
from splatbatch.output.endings import TaskHistory
from splatbatch.output.layout import OutputFolder
from splatbatch.output.workers import WorkerFile

if TYPE_CHECKING:
    from command_line import Beside
    from fake_batch import FakeBatch

QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}}


def events_of(batch: FakeBatch, kind: str) -> list[dict[str, Any]]:
    """Return the events of a kind in all ledgers."""
    texts = [path.read_text() for path in sorted(batch.output.glob("ledger/*.jsonl"))]
    events = [json.loads(line) for text in texts for line in text.splitlines()]
    return [event for event in events if event["event"] == kind]


def ends_of(batch: FakeBatch) -> list[tuple[str, str]]:
    return sorted((event["patch"], event["outcome"]) for event in events_of(batch, "attempt_ended"))


def wait_for(batch: FakeBatch, pattern: str) -> None:
    wait_until(lambda: list(batch.output.glob(pattern)))


@contextmanager
def working(batch: FakeBatch, *patches: str) -> Iterator[subprocess.Popen[str]]:
    """Have a worker at work, in a process of its own, on patches that do not end by themselves."""
    worker = batch.start("work", *patches)
    try:
        wait_for(batch, "patches/*/attempt-*/start.json")
        yield worker
    finally:
        worker.kill()
        worker.communicate(timeout=60)


def at_work(batch: FakeBatch, *patches: str) -> Beside:
    """Return a worker that takes turns with the test, once it has begun to train."""
    return batch.beside("work", *patches).until(lambda: list(batch.output.glob("patches/*/attempt-*/start.json")))


def share(batch: FakeBatch) -> list[str]:
    """Return the names of four patches that take so long that two workers begin."""
    names = [f"p{number}" for number in range(4)]
    batch.make(*names, **QUICK).script(**{name: ["train 0.5"] for name in names})
    return names


def see_shared(batch: FakeBatch, names: list[str]) -> None:
    """See that each was trained once, and that the next train knows it."""
    assert ends_of(batch) == [(name, "trained") for name in names]
    assert {batch.result(name)["accepted"] for name in names} == {1}
    assert len(list(batch.output.glob("ledger/*.jsonl"))) == 2
    assert batch.run("train").returncode == 0  # which reads what they have told
    assert ends_of(batch) == [(name, "trained") for name in names]


def test_two_workers_that_take_turns_train_each_task_once(batch: FakeBatch) -> None:
    names = share(batch)
    both = [batch.beside("work") for _ in range(2)]
    told = [worker.ended() for worker in both]
    assert [one.returncode for one in told] == [0, 0]
    assert all("4 of 4 patches trained" in one.stdout for one in told)
    assert all(len(path.read_text().splitlines()) > 3 for path in batch.output.glob("ledger/*.jsonl"))
    see_shared(batch, names)


@pytest.mark.all
@pytest.mark.journey
def test_two_workers_share_a_batch_and_each_task_is_trained_once(batch: FakeBatch) -> None:
    names = share(batch)
    both = [batch.start("work") for _ in range(2)]
    told = [worker.communicate(timeout=120)[0] for worker in both]
    assert [worker.returncode for worker in both] == [0, 0]
    assert all("4 of 4 patches trained" in one for one in told)
    see_shared(batch, names)


@pytest.mark.all
def test_the_last_of_several_workers_publishes(batch: FakeBatch) -> None:
    batch.make("p0", "p1", publish={"formats": ["ply"], "folder": "site", "measure": False}, **QUICK)
    batch.script(p1=["await go"])
    with working(batch, "p1") as slow:
        ended = batch.run_apart("work", "p0")
        assert ended.returncode == 0 and "other workers are still training; the last one publishes" in ended.stderr
        assert not (batch.folder / "site").exists()
        (batch.folder / "go").touch()
        said, complaints = slow.communicate(timeout=120)
        assert slow.returncode == 0 and "not published" not in complaints, complaints
    assert sorted(path.name for path in (batch.folder / "site").iterdir()) == ["p0.ply", "p1.ply", "publish.json"]
    assert "p1.ply" in said


def test_a_worker_that_is_told_to_stop_ends_with_75_and_another_goes_on(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK).script(p0=["train 600", "train"])
    worker, began = at_work(batch), CLOCK.now()
    worker.send(signal.SIGTERM)
    assert worker.ended().returncode == 75
    assert CLOCK.now() - began < 30
    assert ends_of(batch) == [("p0", "stopped")]
    assert batch.run("work").returncode == 0
    assert ends_of(batch) == [("p0", "stopped"), ("p0", "trained")]


@pytest.mark.all
def test_a_trainer_that_is_deaf_keeps_no_worker_from_ending_within_the_grace_of_an_engine(batch: FakeBatch) -> None:
    settings = {**QUICK, "limits": {**QUICK["limits"], "grace_s": Limits().grace_s}}
    batch.make("p0", **settings).script(p0=["hang deaf"])
    with working(batch) as worker:
        wait_for(batch, "patches/*/attempt-*/heartbeat.json")
        worker.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert worker.wait(60) == 75
        assert time.monotonic() - began < 30
    assert left_of(batch) == []


@pytest.mark.all
def test_what_a_killed_worker_had_is_trained_by_another_and_not_held_against_the_task(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK, retry={"max_attempts": 1}).script(p0=["train 600", "exit 1 odd", "train"])
    with working(batch) as worker:
        worker.kill()
        worker.wait()
    assert batch.run_apart("work").returncode == 1  # it failed once by itself, after it was lost once
    rows = [(event["attempt"], event["outcome"]) for event in events_of(batch, "attempt_ended")]
    assert [number for number, _ in rows] == [1, 2]
    assert rows[1] == (2, "failed")
    assert left_of(batch) == []


@pytest.mark.all
@pytest.mark.skipif(not may_unshare(), reason="needs a host name of its own: unshare --uts")
def test_a_worker_of_another_host_that_freezes_is_replaced_and_its_twin_is_not_accepted(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK).script(p0=["await go", "train"])
    command = ["unshare", "--uts", "sh", "-c", 'hostname far-away && exec "$@"', "sh", *batch.command("work")]
    frozen = subprocess.Popen(command, env=batch.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(batch, "patches/*/attempt-*/start.json")
    frozen.send_signal(signal.SIGSTOP)
    other = subprocess.run(
        batch.command("work"),
        env={**batch.environment(), "FAKE_TRAINER_CONSTANTS": '{"splatbatch.output.workers.SILENCE_S": 7}'},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (other.returncode, batch.result("p0")["attempt"]) == (0, "attempt-02"), other.stderr
    (batch.folder / "go").touch()
    frozen.send_signal(signal.SIGCONT)
    assert frozen.wait(120) == 0  # the patch is trained, whoever did it
    assert sorted(path.name for path in batch.output.glob("patches/p0/accepted/*")) == ["1.json"]
    assert batch.result("p0")["attempt"] == "attempt-02"
    assert left_of(batch) == []


def patient(batch: FakeBatch, silence_s: float, **more: float) -> dict[str, str]:
    """Return the environment of a worker that counts others as gone after so many seconds of silence."""
    constants = {"splatbatch.output.workers.SILENCE_S": silence_s, **more}
    return {**batch.environment(), "FAKE_TRAINER_CONSTANTS": json.dumps(constants)}


@pytest.mark.all
def test_a_frozen_worker_of_the_same_host_is_replaced_and_what_it_brings_later_is_not_accepted(
    batch: FakeBatch,
) -> None:
    batch.make("p0", "p1", **QUICK).script(p0=["await go", "train"], p1=["train"])
    with working(batch) as frozen:
        frozen.send_signal(signal.SIGSTOP)
        other = subprocess.run(
            batch.command("work"), env=patient(batch, 8), capture_output=True, text=True, timeout=100, check=False
        )
        assert (other.returncode, batch.result("p0")["attempt"]) == (0, "attempt-02"), other.stderr
        (batch.folder / "go").touch()
        frozen.send_signal(signal.SIGCONT)
        assert frozen.wait(60) == 0  # the patch is trained, whoever did it
    assert sorted(path.name for path in batch.output.glob("patches/p0/accepted/*")) == ["1.json"]
    assert (batch.result("p0")["attempt"], left_of(batch)) == ("attempt-02", [])


@pytest.mark.all
def test_status_says_for_how_long_a_worker_has_been_silent_and_when_its_tasks_are_free(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK).script(p0=["train 600"])
    with working(batch) as frozen:
        frozen.send_signal(signal.SIGSTOP)
        time.sleep(5.5)
        env = patient(batch, 180, **{"splatbatch.output.workers.QUIET_S": 5})
        told = subprocess.run(batch.command("status"), env=env, capture_output=True, text=True, check=False).stdout
        words = " ".join(told.split())
        assert re.search(r"p0; silent for \d+ s, its tasks are taken over after 180 s", words), told
        assert "Running: 1 worker" in words


@pytest.mark.all
def test_a_worker_says_on_whom_it_waits_that_has_fallen_silent(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK).script(p0=["train 600", "train"])
    with working(batch) as frozen:
        frozen.send_signal(signal.SIGSTOP)
        env = patient(batch, 25, **{"splatbatch.output.workers.QUIET_S": 1})
        other = subprocess.run(batch.command("work"), env=env, capture_output=True, text=True, check=False)
    assert other.returncode == 0, other.stderr
    assert re.search(r"waiting for p0: claimed by worker \S+ on \S+; silent for \d+ s", other.stderr), other.stderr


def with_torn_claim(batch: FakeBatch) -> None:
    """Leave what a killed train and a torn file leave."""
    batch.make("p0", **QUICK).script(p0=["train 600", "train"])
    killed = batch.start("train")
    wait_for(batch, "patches/*/attempt-*/start.json")
    killed.kill()
    killed.communicate()
    (batch.output / "claims/p0/1").write_bytes(b"")


@pytest.mark.all
def test_a_torn_claim_of_a_train_that_was_killed_holds_up_nobody(batch: FakeBatch) -> None:
    with_torn_claim(batch)
    began = time.monotonic()
    assert batch.run_apart("train").returncode == 0
    assert time.monotonic() - began < 30


@pytest.mark.all
def test_where_a_torn_claim_has_to_be_waited_for_it_is_named_at_once(batch: FakeBatch) -> None:
    with_torn_claim(batch)
    env = {**patient(batch, 4), "FAKE_TRAINER_NO_FLOCK": "1"}
    ended = subprocess.run(batch.command("train"), env=env, capture_output=True, text=True, timeout=60, check=False)
    words = r"waiting for p0: its claim \S+/claims/p0/1 cannot be read; silent for 0 s, .* taken over after 4 s"
    assert (ended.returncode, bool(re.search(words, ended.stderr))) == (0, True), ended.stderr


@pytest.mark.all
def test_failures_count_whoever_has_seen_them(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK, constants={"splatbatch.failures.retry.FIRST_WAIT_S": 60}).script(
        p0=["exit 1 Traceback: IndexError"]
    )
    worker = batch.start("work")
    wait_until(lambda: events_of(batch, "retry"))
    worker.kill()
    worker.communicate()
    assert batch.run_apart("work").returncode == 1
    [gave_up] = events_of(batch, "gave_up")
    assert "twice" in gave_up["reason"]
    assert len(ends_of(batch)) == 2


def test_while_a_worker_works_train_is_refused_with_6_and_status_tells_who_works_on_what(batch: FakeBatch) -> None:
    batch.make("p0", "p1", **QUICK).script(p0=["train 600"], p1=["train 600"])
    at_work(batch, "p0")
    refused = batch.run("train")
    assert refused.returncode == 6
    assert "worker" in refused.stderr
    assert "splatbatch cancel" in refused.stderr
    told = json.loads(batch.run("status", "--json").stdout)
    [one] = told["workers"]
    assert (one["tasks"], one["has_ended"]) == (["p0"], False)
    assert "Running: 1 worker" in batch.run("status").stdout


@pytest.mark.all
def test_a_worker_may_join_a_train_that_runs(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2", **QUICK).script(p0=["await go"])
    train = batch.start("train")
    wait_for(batch, "patches/p0/attempt-*/start.json")
    worker = batch.start("work")
    wait_until(lambda: len(list(batch.output.glob("patches/*/accepted/1.json"))) == 2)
    (batch.folder / "go").touch()
    told = [one.communicate(timeout=120)[0] for one in (train, worker)]
    assert [train.returncode, worker.returncode] == [0, 0], told
    assert ends_of(batch) == [(name, "trained") for name in ("p0", "p1", "p2")]


def test_where_claims_cannot_be_made_its_attempt_tells(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK)
    (batch.output / "claims").mkdir(parents=True)
    (batch.output / "claims/p0").touch()
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["accepted"] == 1


def test_a_worker_by_another_yaml_is_refused_with_5(batch: FakeBatch) -> None:
    batch.make("p0", "p1", **QUICK).script(p0=["train 600"])
    at_work(batch, "p0")
    batch.change(training={"max_steps": 21})
    refused = batch.run("work")
    assert refused.returncode == 5
    assert "another YAML" in refused.stderr


def test_cancel_reaches_workers(batch: FakeBatch) -> None:
    batch.make("p0", "p1", **QUICK).script(p0=["train 600"], p1=["train 600"])
    worker = at_work(batch)
    done = batch.run("cancel")
    assert (done.returncode, worker.ended().returncode) == (0, 143)
    assert "stopped: p0" in done.stdout


@pytest.mark.all
def test_cancel_of_one_patch_leaves_the_worker_at_work(batch: FakeBatch) -> None:
    batch.make("p0", "p1", **QUICK).script(p0=["train 600"])
    worker = batch.start("work")
    wait_for(batch, "patches/p0/attempt-*/start.json")
    assert batch.run("cancel", "p0").returncode == 0
    assert worker.wait(60) == 1
    worker.communicate()
    assert ends_of(batch) == [("p0", "stopped"), ("p1", "trained")]


@pytest.mark.all
def test_a_worker_takes_nothing_that_its_time_does_not_hold(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK)
    assert batch.run_apart("work", "--for", "1s").returncode == 75
    assert not list(batch.output.glob("patches/*/attempt-*"))
    assert batch.run_apart("work", "--for", "2h").returncode == 0


@pytest.mark.all
def test_a_detached_batch_goes_on_by_itself_and_whoever_attaches_sees_it_end(batch: FakeBatch) -> None:
    batch.make("p0", **QUICK).script(p0=["await go"])
    started = batch.run_apart("train", "--detach")
    assert (started.returncode, " started; log: " in started.stdout) == (0, True)
    again = batch.run_apart("train", "--detach")
    assert (again.returncode, "nothing was started" in again.stdout) == (0, True)
    wait_for(batch, "patches/p0/attempt-*/start.json")
    attached = batch.start("status", "--watch")
    (batch.folder / "go").touch()
    out, err = attached.communicate(timeout=120)
    assert (attached.returncode, out.splitlines()[-1]) == (0, "1 of 1 patches trained"), err
    assert left_of(batch) == []


@pytest.mark.all
def test_a_detached_worker_that_cannot_train_has_its_words_told(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRAINER_CONSTANTS", '{"splatbatch.run.detach.SETTLE_S": 60}')
    settings = {**QUICK, "training": {"colors": "as_is", "device": "auto"}, "executor": {"gpus": [977]}}
    refused = batch.make("p0", **settings).run_apart("train", "--detach")
    assert refused.returncode == 5
    assert "977" in refused.stderr
    only = batch.run("train", "--detach", "--only", "patch=p0")
    assert (only.returncode, "--only" in only.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "seconds"), [("3h30m", 12_600), ("90m", 5400), ("45s", 45), ("5400", 5400), ("1.5h", 5400)]
)
def test_durations_are_read(words: str, seconds: float) -> None:
    assert train.seconds(words) == seconds


@pytest.mark.parametrize("words", ["soon", "", "-3h", "3x", "h"])
def test_what_is_no_duration_is_an_error_of_the_command_line(batch: FakeBatch, words: str) -> None:
    ended = batch.make("p0").run("work", f"--for={words}")
    assert (ended.returncode, "--for" in ended.stderr) == ((2, True) if words else (0, False))


def lines_of(patch: str, *events: dict[str, Any]) -> str:
    return "".join(json.dumps({"patch": patch, "attempt": 1, **event}) + "\n" for event in events)


@pytest.mark.parametrize("change", [lambda path: path, lambda path: path.with_name("zz.jsonl")])
def test_what_was_last_is_told_by_claims_and_not_by_clocks_or_names(
    batch: FakeBatch, change: Callable[..., Any]
) -> None:
    output = OutputFolder(batch.output)
    output.ledger.parent.mkdir(parents=True)
    failed = {"event": "attempt_ended", "outcome": "failed", "t": 200.0, "generation": 1}
    trained = {"event": "attempt_ended", "outcome": "trained", "t": 100.0, "generation": 2, "attempt": 2}
    change(output.ledger).write_text(lines_of("p0", trained))
    output.ledger_of("another").write_text(lines_of("p0", failed))
    last = TaskHistory(output).last("p0")
    assert (last.outcome, last.attempt) == ("trained", 2)
    assert TaskHistory(output).is_judged("p0", 1)


def test_ledgers_of_workers_that_come_later_are_read_too(batch: FakeBatch) -> None:
    output = OutputFolder(batch.output)
    output.create()
    endings = TaskHistory(output)
    assert endings.last("p0") is None
    output.ledger.parent.mkdir()
    event = {"event": "attempt_ended", "outcome": "trained", "t": 1.0}
    output.ledger_of("late").write_text(lines_of("p0", event))
    assert endings.last("p0").outcome == "trained"


def test_a_worker_leaves_a_record_that_says_it_has_ended(batch: FakeBatch) -> None:
    output = OutputFolder(batch.output)
    output.create()
    with WorkerFile(output) as presence:
        assert not json.loads(presence.path.read_text())["has_ended"]
    assert json.loads(presence.path.read_text())["has_ended"]


def test_only_builtin_is_of_a_store_and_never_passed_over(batch: FakeBatch) -> None:
    ended = batch.make("p0", **QUICK).run("work", "--only-builtin")
    assert (ended.returncode, "work --only-builtin: no store given" in ended.stderr) == (2, True), ended.stderr


def test_a_mistyped_store_is_refused_with_2_and_made_by_no_worker(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(batch.make("p0", **QUICK).folder)
    ended = invoke("work", "patchs", "--idle", "1m")
    assert ended.code == 2 and "work patchs: no such store" in ended.err and "patches" in ended.err, ended
    assert not (batch.folder / "patchs").exists()


def test_status_either_follows_or_verifies(batch: FakeBatch) -> None:
    ended = invoke("status", "--watch", "--verify", batch=batch.make("p0", **QUICK))
    assert ended.code == 2 and "--watch and --verify exclude each other" in ended.err, ended
