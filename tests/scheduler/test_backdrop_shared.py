"""Several workers and one backdrop: whoever trains it, patches wait for it, and are held against what was accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cut_scene import cut
from fake_batch import FakeBatch
from process_family import wait_until
from turns import CLOCK

from splatbatch.config import Cooldown
from splatbatch.machine.protocol import Slot
from splatbatch.machine.slots import Slots
from splatbatch.output.claims import Claims
from splatbatch.output.folders import PatchFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.workers import Watcher, WorkerFile
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.work.claimer import LOOK_S, TaskClaimer, progress_of
from splatbatch.scheduler.work.other_workers import OtherWorkers
from splatbatch.scheduler.work.time_left import TimeLeft
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.fingerprint import fingerprint
from splatbatch.tasks.task import Task
from splatbatch.trainers.builtin import BuiltinTrainer

QUICK = {"training": {"colors": "as_is"}, "limits": {"grace_s": 0.5, "free_disk_mib": 0}, "retry": {"keep": "newer"}}


def begun(batch: FakeBatch) -> list[str]:
    """Return the patches of all attempts that were begun, whoever began them."""
    texts = [path.read_text() for path in sorted(batch.output.glob("ledger/*.jsonl"))]
    events = [json.loads(line) for text in texts for line in text.splitlines()]
    started = [event for event in events if event["event"] == "attempt_started"]
    return [event["patch"] for event in sorted(started, key=lambda event: event["t"])]


def behind(batch: FakeBatch, *names: str) -> set[str]:
    """Return against which backdrops patches were trained."""
    return {batch.result(name)["backdrop"] for name in names}


def at_work(batch: FakeBatch) -> bool:
    """Return whether a worker has decided what it trains."""
    return bool(list(batch.output.glob("claims/.prepare/*.done")))


def new_backdrop(batch: FakeBatch, hash_: str = "another") -> None:
    """Accept another backdrop, as a worker elsewhere would."""
    place = batch.output / "patches/backdrop"
    result = json.loads((place / "result.json").read_text())
    record = {**result, "splat": {**result["splat"], "sha256": hash_}}
    (place / "accepted/2.json").write_text(json.dumps(record))


def claiming(batch: Batch, presence: WorkerFile) -> TaskClaimer:
    return TaskClaimer(
        claims=Claims(batch.output, presence, lambda _: False),
        ledger=Ledger(None),
        before=progress_of(batch),
        standing=batch.standing("content"),
        others=OtherWorkers(Watcher(batch.output), lambda _: None),
    )


class TimeForPatches(TimeLeft):
    """Holds a patch, and no scene behind it."""

    def holds(self, task: Task) -> bool:
        return not task.patch.is_whole


def test_patches_wait_for_the_backdrop_that_another_worker_trains(batch: FakeBatch) -> None:
    cut(batch, **QUICK).script(backdrop=["await go"])
    one = batch.beside("work").until(lambda: begun(batch))
    other = batch.beside("work").until(lambda: len(list(batch.output.glob("claims/.prepare/*.done"))) == 2)
    CLOCK.pass_until(CLOCK.now() + 5)
    assert begun(batch) == ["backdrop"]
    (batch.folder / "go").touch()
    told = [worker.ended() for worker in (one, other)]
    assert [one.returncode for one in told] == [0, 0], told
    assert sorted(begun(batch)) == ["backdrop", "p0", "p1"]
    assert behind(batch, "p0", "p1") == {batch.result("backdrop")["splat"]["sha256"]}


@pytest.mark.all
def test_a_worker_that_is_killed_over_the_backdrop_is_replaced_and_the_patches_wait_on(batch: FakeBatch) -> None:
    cut(batch, **QUICK).script(backdrop=["train 600", "train"])
    one = batch.start("work")
    wait_until(lambda: begun(batch))
    one.kill()
    one.communicate()
    assert batch.run_apart("work").returncode == 0
    assert begun(batch)[:2] == ["backdrop", "backdrop"]
    assert behind(batch, "p0", "p1") == {batch.result("backdrop")["splat"]["sha256"]}


def test_a_worker_of_one_patch_trains_the_backdrop_that_it_needs(batch: FakeBatch) -> None:
    cut(batch, **QUICK)
    assert batch.run("work", "p1").returncode == 0
    assert begun(batch) == ["backdrop", "p1"]


@pytest.mark.all
def test_who_joins_a_run_that_trains_a_fresh_backdrop_anew_waits_and_trains_again_what_was_fresh(
    batch: FakeBatch,
) -> None:
    cut(batch, **QUICK).script(backdrop=["measure 20 25", "await go"])
    assert batch.run("train", "p0").returncode == 0
    first = batch.result("backdrop")["splat"]["sha256"]
    run = batch.beside("retry", "--patch", "backdrop", "--force")
    run.until(lambda: begun(batch).count("backdrop") == 2)
    worker = batch.beside("work").until(lambda: at_work(batch))
    CLOCK.pass_until(CLOCK.now() + 5)
    assert "p1" not in begun(batch)
    (batch.folder / "go").touch()
    told = [one.ended() for one in (run, worker)]
    assert [one.returncode for one in told] == [0, 0], told
    now = batch.result("backdrop")["splat"]["sha256"]
    assert now != first
    assert behind(batch, "p0", "p1") == {now}
    assert sorted(begun(batch)) == ["backdrop", "backdrop", "p0", "p0", "p1"]


def test_a_backdrop_that_was_accepted_elsewhere_counts_before_its_files_are_put_up(batch: FakeBatch) -> None:
    cut(batch, **QUICK).run("train")
    opened = open_batch(batch.config)
    task, place = next(task for task in opened.tasks if task.name == "p0"), batch.output / "patches/backdrop"
    before = PatchFolder(place).accepted_splat()[1]
    for name in ("result.json", "splat.ply"):
        (place / name).unlink()
    assert fingerprint(task.patch, task.recipe).backdrop == before != ""
    folder = opened.output.patch("p0").new_attempt()
    BuiltinTrainer(task.recipe).command(task.patch, folder)
    told = folder.read_settings()
    assert (told.backdrop, told.backdrop_sha256) == (str(place / "attempt-01/splat.ply"), before)


def test_what_was_decided_by_an_earlier_backdrop_is_decided_anew(batch: FakeBatch) -> None:
    cut(batch, **QUICK).run("train")
    standing = open_batch(batch.config).standing("content")
    assert standing.is_up_to_date("p0")
    new_backdrop(batch)
    assert (standing.is_due("p0"), standing.state("p0").reason) == (
        True,
        "the backdrop behind the patch has changed",
    )


def test_only_what_a_new_backdrop_has_made_stale_is_outdated(batch: FakeBatch) -> None:
    opened = open_batch(cut(batch, **QUICK).config)
    batch.run("train", "p0")
    with WorkerFile(opened.output) as presence:
        ours = claiming(opened, presence)
        assert ours.outdated(["p0"]) == ()
        new_backdrop(batch)
        assert ours.outdated(["backdrop", "p0"]) == ("p0",)


def test_patches_are_not_trained_where_time_does_not_hold_their_backdrop_unless_another_trains_it(
    batch: FakeBatch,
) -> None:
    opened = open_batch(cut(batch, **QUICK).config)
    opened.output.create()
    backdrop, p0, _ = opened.tasks
    with WorkerFile(opened.output) as presence, WorkerFile(opened.output) as other:
        ours, theirs = claiming(opened, presence), claiming(opened, other)
        ours.time_left = TimeForPatches(opened)
        assert isinstance(theirs.claim(backdrop), Task)
        assert ours.claim(backdrop) == LOOK_S
        assert (ours.is_over, isinstance(ours.claim(p0), Task)) == (False, True)
        late = claiming(opened, other)  # of whoever comes once that is done with
        late.time_left = ours.time_left
        theirs.close("backdrop")
        late.before = progress_of(opened)
        assert late.claim(backdrop) is None
        assert late.claim(p0) is None
        assert late.is_over


class Others(RunHooks):
    """Another worker has the backdrop until it is told otherwise."""

    def __init__(self) -> None:
        super().__init__(str, lambda: None)
        self.asked: list[str] = []
        self.has_it = True

    def claim(self, task: Any) -> Any:
        self.asked.append(task.name)
        return task

    def is_elsewhere(self, name: str) -> bool:
        return self.has_it and name == "backdrop"


def test_no_patch_is_claimed_before_its_backdrop_is_done_with(batch: FakeBatch) -> None:
    tasks, others = open_batch(cut(batch, **QUICK).config).tasks, Others()
    queue = Queue([task for task in tasks if not task.patch.is_whole], {}, others, Slots([Slot("cpu0")], Cooldown()))
    assert (list(queue.due(0.0)), others.asked) == ([], [])
    others.has_it = False
    assert [task.name for task in queue.due(0.0)] == ["p0", "p1"]
