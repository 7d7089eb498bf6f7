"""What a batch shares: decided in one order, written down once, followed while it is looked at."""

from __future__ import annotations

import json
from dataclasses import replace

from command_line import invoke
from fake_batch import FakeBatch

from splatbatch.output.records.frame import Frame
from splatbatch.output.records.result import Result
from splatbatch.scene.holdout import choose_holdout
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.shared_decisions.decide import STEPS
from splatbatch.tasks.shared_decisions.decisions import SharedDecisions
from splatbatch.tasks.shared_decisions.holdout import photographs_of

MOVED = Frame((1000.0, 0.0, 0.0))


def test_four_things_are_decided_in_this_order() -> None:
    assert [step.__name__.removeprefix("decide_") for step in STEPS.values()] == [
        "frame",
        "holdout",
        "colors",
        "deadline",
    ]


def test_a_decision_that_no_file_holds_counts_until_a_file_changes(batch: FakeBatch) -> None:
    opened = open_batch(batch.make("p0", "p1").config)
    shared = opened.with_shared(replace(opened.shared, frame=MOVED))
    assert {task.patch.offset for task in (*shared.tasks, *shared.every)} == {MOVED.offset}
    look = shared.standing()
    look.state("p0")
    assert look.tasks["p0"].patch.offset == MOVED.offset


def test_a_decision_that_another_process_writes_down_is_followed(batch: FakeBatch) -> None:
    opened = open_batch(batch.make("p0").config)
    look = opened.standing()
    look.state("p0")
    opened.output.create()
    SharedDecisions(frame=MOVED).write(opened.output)
    look.forget()
    look.state("p0")
    assert look.tasks["p0"].patch.offset == MOVED.offset
    assert SharedDecisions.known(opened.config, opened.output).frame == MOVED


def test_what_the_files_say_already_is_not_written_again(batch: FakeBatch) -> None:
    opened = open_batch(batch.make("p0").config)
    opened.output.create()
    shared = SharedDecisions(frame=MOVED)
    shared.write(opened.output)
    before = opened.output.frame.stat()
    shared.write(opened.output)
    assert opened.output.frame.stat() == before
    assert not opened.output.colors.exists()


def test_a_result_of_another_offset_is_stale(batch: FakeBatch) -> None:
    invoke("train", batch=batch.make("p0"))
    (batch.output / "frame.json").write_text(json.dumps(MOVED.to_record()))
    (told,) = json.loads(invoke("status", "--json", batch=batch).out)["patches"]
    assert (told["state"], "the offset of the coordinates has changed" in told["cause"]) == ("stale", True)


def test_a_patch_may_hold_out_its_own_and_its_record_counts_from_then_on(batch: FakeBatch) -> None:
    batch.make("p0", "p1").change(patches={"p1": {"evaluation": {"holdout_every": 2}}})
    invoke("train", batch=batch)
    batch.change(patches={"p1": {"evaluation": {"holdout_every": 3}}})
    opened = open_batch(batch.config)
    recorded = [photographs_of(task, task.home.read_result() or Result()) for task in opened.every]
    assert [len(one.held_out) for one in recorded] == [2, 5]
    assert [len(choose_holdout(task.patch, task.recipe.evaluation)) for task in opened.every] == [2, 3]
    assert "p1: train: settings have changed: evaluation.holdout_every 2 -> 3" in invoke("plan", batch=batch).out


def test_what_is_held_out_lies_in_no_file_of_the_batch(batch: FakeBatch) -> None:
    batch.make("p0")
    invoke("train", batch=batch)
    opened = open_batch(batch.config)
    assert opened.shared.by_frames  # as the result of p0 says
    assert not list(opened.output.path.glob("hold*"))
