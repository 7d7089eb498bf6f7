"""Claims and workers: who owns a task, who still lives, and what a shared folder may do to either."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from splatbatch import files
from splatbatch.files import write_json
from splatbatch.output import generations, results
from splatbatch.output.claims import Claims, highest_claim, open_claims
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import Claim
from splatbatch.output.records.result import Result
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import SILENCE_S, Watcher, WorkerFile

ELSEWHERE = {"host": "far-away", "boot_id": "another"}


@pytest.fixture
def output(tmp_path: Path) -> OutputFolder:
    folder = OutputFolder(tmp_path / "output")
    folder.create()
    return folder


def claims_of(output: OutputFolder, name: str, *, gone: bool = False) -> Claims:
    return Claims(output, WorkerFile(output, name).__enter__(), lambda _: gone)


def elsewhere(output: OutputFolder, name: str = "far") -> WorkerFile:
    """Return a worker of another host."""
    presence = WorkerFile(output, name)
    presence.record = replace(presence.record, **ELSEWHERE)
    return presence.__enter__()


def test_of_two_workers_one_has_the_task_until_it_is_done_or_gone(output: OutputFolder) -> None:
    one, other = claims_of(output, "one"), claims_of(output, "other")
    assert one.take("p0") == Claim("one", 1, 0) == one.take("p0")
    held = other.take("p0")
    assert isinstance(held, WorkerRecord)
    assert (held.worker, highest_claim(output, "p0")) == ("one", 1)
    assert open_claims(output) == {"p0": "one"}
    one.close("p0")
    assert open_claims(output) == {}
    assert other.take("p0") == Claim("other", 2, 0)


def test_what_a_worker_that_is_gone_had_is_taken_over_once_and_it_learns_of_that(output: OutputFolder) -> None:
    one, second, third = claims_of(output, "one"), claims_of(output, "b", gone=True), claims_of(output, "c")
    one.take("p0")
    assert second.take("p0") == Claim("b", 2, 0)
    assert isinstance(third.take("p0"), WorkerRecord)
    assert (one.lost(), one.lost(), second.lost()) == ({"p0": "b"}, {}, {})
    one.close("p0")  # which is not its own any more
    assert open_claims(output) == {"p0": "b"}


def test_a_claim_that_was_taken_over_is_given_out_no_more(output: OutputFolder) -> None:
    one, second = claims_of(output, "one"), claims_of(output, "b", gone=True)
    assert (one.take("p0"), second.take("p0")) == (Claim("one", 1, 0), Claim("b", 2, 0))
    held = one.take("p0")
    assert isinstance(held, WorkerRecord)
    assert (held.worker, highest_claim(output, "p0")) == ("b", 2)


def test_a_claim_is_never_changed_or_removed(output: OutputFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 4):
        assert claims_of(output, f"w{number}", gone=True).take("p0") == Claim(f"w{number}", number, 0)
    late = claims_of(output, "late", gone=True)
    monkeypatch.setattr("splatbatch.output.claims.highest_claim", lambda *_: 2)  # its listing lags behind
    assert isinstance(late.take("p0"), WorkerRecord)
    assert sorted(path.name for path in (output.claims / "p0").iterdir()) == ["1", "2", "3"]
    owners = [json.loads(output.claim("p0", number).read_text())["worker"] for number in (1, 2, 3)]
    assert owners == ["w1", "w2", "w3"]


def test_a_claim_follows_what_was_accepted_when_it_was_made(output: OutputFolder) -> None:
    record = output.patch("p0").accepted(1)
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    claims = claims_of(output, "one")
    assert claims.take("p0") == Claim("one", 1, 1)
    record.with_name("2.json").write_text("{}")
    assert claims.take("p0").follows == 1
    assert claims.renew("p0").follows == 2


@pytest.mark.parametrize("lost_answer", [True, False])
def test_an_answer_that_is_lost_and_a_file_system_without_links_change_nothing(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch, lost_answer: bool
) -> None:
    real = os.link

    def link(source: str, target: str) -> None:
        if lost_answer:
            real(source, target)
        raise OSError(5 if lost_answer else 38, "no")

    one, other = claims_of(output, "one"), claims_of(output, "other")
    monkeypatch.setattr(generations.os, "link", link)
    assert one.take("p0") == Claim("one", 1, 0)
    assert isinstance(other.take("p0"), WorkerRecord)
    assert one.take("p0") == Claim("one", 1, 0)


def test_a_listing_that_lags_behind_gives_nobody_what_another_has(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, late = claims_of(output, "one"), claims_of(output, "late", gone=True)
    one.take("p0")
    monkeypatch.setattr("splatbatch.output.claims.highest_claim", lambda *_: 0)
    held = late.take("p0")
    assert isinstance(held, WorkerRecord)
    assert (held.worker, highest_claim(output, "p0")) == ("one", 1)


def test_silence_is_content_that_does_not_change_by_the_clock_of_who_looks(output: OutputFolder) -> None:
    began = 1e9  # by the clock of the other host it beats long before
    now = [began]
    watcher, far = Watcher(output, clock=lambda: now[0]), elsewhere(output)
    for now[0] in (began, began + SILENCE_S - 1):
        assert not watcher.is_dead(far.record)
    far._write()
    for now[0] in (began + SILENCE_S, began + 2 * SILENCE_S - 1):
        assert not watcher.is_dead(far.record)
    assert watcher.lives(far.record)  # it was seen to move
    now[0] = began + 2 * SILENCE_S
    assert watcher.is_dead(far.record)
    os.utime(far.path)
    assert watcher.is_dead(far.record)  # times are of other clocks: they count for nothing
    far._write()
    assert not watcher.is_dead(far.record)


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (lambda record: record, False),
        (lambda record: replace(record, ticks=1), True),
        (lambda record: replace(record, pid=2**22 + 7), True),
        (lambda record: replace(record, space="pid:[1]", ticks=1), False),  # of another container: nobody knows yet
    ],
)
def test_on_one_host_and_boot_the_process_decides(
    output: OutputFolder, change: Callable[[WorkerRecord], WorkerRecord], gone: bool
) -> None:
    with WorkerFile(output) as mine:
        assert Watcher(output).is_dead(change(mine.record)) is gone
    assert Watcher(output).is_dead(mine.record)  # it has ended
    assert mine.record.is_alive_here


def test_a_frozen_process_of_this_host_and_boot_is_silent_like_any_other(output: OutputFolder) -> None:
    now = [0.0]
    watcher, here = Watcher(output, clock=lambda: now[0]), WorkerFile(output).__enter__()
    for now[0], gone in ((0.0, False), (SILENCE_S - 1, False), (SILENCE_S, True)):
        assert watcher.is_dead(here.record) is gone
    assert (watcher.living(), watcher.present()) == ([], [here.record])  # it may thaw
    here._write()
    assert (watcher.is_dead(here.record), watcher.living()) == (False, [here.record])


def test_one_look_tells_how_long_a_worker_of_this_boot_has_been_silent(output: OutputFolder) -> None:
    here, far = WorkerFile(output).__enter__(), elsewhere(output)
    later = time.monotonic() + 75
    assert Watcher(output, clock=lambda: later).silent_s(here.record) == pytest.approx(75, abs=1)
    assert Watcher(output, clock=lambda: later).silent_s(far.record) == 0  # of another host's clock nothing is known
    assert not Watcher(output, clock=lambda: later).lives(here.record)
    assert Watcher(output).lives(here.record)


def test_a_worker_whose_name_another_has_by_now_is_gone(output: OutputFolder) -> None:
    before = WorkerFile(output, "local").__enter__()
    before.appear()
    claims = Claims(output, before, lambda _: False)
    claims.take("p0")
    after = WorkerFile(output, "local").__enter__()
    after.appear()
    owner = claims.owner("p0", 1)
    assert (owner.token, Watcher(output).is_dead(owner)) == (before.record.token, True)
    assert not Watcher(output).is_dead(after.record)


TORN = [b"", b"[1]", b"{", b"\xff" * 64]


def torn(output: OutputFolder, content: bytes) -> WorkerFile:
    """Have a worker claim p0, and spoil the file that is claim and sign of life; return the worker."""
    owner = WorkerFile(output, "owner").__enter__()
    assert isinstance(Claims(output, owner, lambda _: False).take("p0"), Claim)
    output.claim("p0", 1).write_bytes(content)
    return owner


def waits_for_silence(output: OutputFolder) -> bool:
    """Return whether p0 can be claimed only once its claim has been silent for as long as a worker may be."""
    now = [0.0]
    watcher = Watcher(output, clock=lambda: now[0])
    claims = Claims(output, WorkerFile(output, "one").__enter__(), watcher.is_dead)
    before = claims.take("p0")
    now[0] = SILENCE_S
    return isinstance(before, WorkerRecord) and not before.worker and claims.take("p0") == Claim("one", 2, 0)


@pytest.mark.parametrize("content", TORN)
def test_a_torn_claim_whose_owner_is_gone_is_taken_over_at_once_on_a_local_disk(
    output: OutputFolder, content: bytes
) -> None:
    torn(output, content).__exit__(None, None, None)
    output.worker("owner").write_bytes(content)
    claims = Claims(output, WorkerFile(output, "one").__enter__(), lambda _: False)
    assert claims.take("p0") == Claim("one", 2, 0)


@pytest.mark.parametrize("content", TORN)
def test_a_torn_claim_whose_owner_lives_holds_until_it_has_been_silent(output: OutputFolder, content: bytes) -> None:
    assert torn(output, content)
    assert waits_for_silence(output)


def test_where_others_may_hold_the_disk_too_a_torn_claim_holds_until_it_has_been_silent(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCAL_DISKS", frozenset({"none"}))
    torn(output, b"").__exit__(None, None, None)
    output.worker("owner").write_bytes(b"")
    assert waits_for_silence(output)


def test_the_protocol_costs_less_than_five_milliseconds_per_task(
    output: OutputFolder, record_property: pytest.RecordProperty
) -> None:
    claims, num, cost_s = claims_of(output, "one"), 200, 0.0
    for number in range(num):
        folder = output.patch(f"p{number}")
        attempt = folder.new_attempt()
        attempt.splat.write_bytes(b"splat")
        write_json(attempt.result, {"patch": f"p{number}", "attempt": attempt.path.name})
        manifest, started = attempt.read_result() or Result(), time.process_time()
        claim = claims.take(f"p{number}")
        assert isinstance(claim, Claim)
        assert results.accept(folder, attempt, manifest, claim.follows)
        claims.close(f"p{number}")
        cost_s += time.process_time() - started
    record_property("figure", f"{1e3 * cost_s / num:.2f} ms of CPU per task: claimed, accepted, put up and closed")
    assert 1e3 * cost_s / num <= 5.0


def test_of_workers_that_begin_at_once_none_stumbles_over_anothers_look_at_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.touch

    def touch_and_lose(path: Path) -> None:
        real(path)
        path.unlink()

    monkeypatch.setattr(Path, "touch", touch_and_lose)
    output = OutputFolder(tmp_path / "output")
    output.create()
    assert [path.name for path in output.path.iterdir()] == ["patches"]


@pytest.mark.contract
def test_what_a_worker_left_that_was_killed_as_it_began_goes_with_the_next(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path)
    place = output.worker("one").parent
    place.mkdir()
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, written = (place / f".one.json.{socket.gethostname()}.{pid}" for pid in (gone.pid, os.getpid()))
    left.touch()
    written.touch()
    with WorkerFile(output):
        assert (left.exists(), written.exists()) == (False, True)


def test_what_a_writer_that_was_killed_left_in_the_output_folder_is_swept_and_what_may_be_in_use_is_not(
    tmp_path: Path,
) -> None:
    output, here = OutputFolder(tmp_path), socket.gethostname()
    gone, ours, far = (
        tmp_path / f".batch.yaml.{end}" for end in (f"{here}.99999999", f"{here}.{os.getpid()}", "far.7")
    )
    for path in (gone, ours, far):
        path.touch()
    output.create()
    assert [path.exists() for path in (gone, ours, far)] == [False, True, True]
