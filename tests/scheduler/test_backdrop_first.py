"""A scene that was cut: its backdrop is trained first, its patches wait for it, and are held against it."""

from __future__ import annotations

import json
import shutil

import pytest
from cut_scene import TEST, cut, halves
from fake_batch import FakeBatch

from splatbatch.run.context import status
from splatbatch.scene.holdout import choose_holdout
from splatbatch.scene.partition.record import write_partition
from splatbatch.tasks.batch import open_batch

EXTERNAL = {
    "mine": {"command": ["sh", "-c", "true"], "cameras": {"models": ["PINHOLE"]}, "artifact": {"ply": "splat.ply"}}
}


def started(batch: FakeBatch) -> list[str]:
    return [event["patch"] for event in batch.events("attempt_started")]


def causes(batch: FakeBatch) -> dict[str, str]:
    return {one.patch: f"{one.state} {one.cause}".strip() for one in status(open_batch(batch.config))}


def test_the_backdrop_is_trained_first_though_there_is_room_for_all(batch: FakeBatch) -> None:
    cut(batch, executor={"cpu_slots": 3}).script(backdrop=["train 0.5"])
    done = batch.run("train")
    assert done.returncode == 0, done.stderr
    told = [(event["event"], event["patch"]) for event in batch.events() if "attempt" in event["event"]]
    assert told[:2] == [("attempt_started", "backdrop"), ("attempt_ended", "backdrop")]
    assert set(started(batch)[1:]) == {"p0", "p1"}
    assert batch.result("p0")["backdrop"] == batch.result("backdrop")["splat"]["sha256"]
    assert batch.run("train").returncode == 0
    assert len(started(batch)) == 3


def test_a_patch_that_is_not_drawn_against_the_backdrop_does_not_wait_for_it(batch: FakeBatch) -> None:
    alone = {"p1": {"training": {"border": "none"}}}
    cut(batch, executor={"cpu_slots": 2}, patches=alone).script(backdrop=["train 0.5"])
    assert batch.run("train").returncode == 0
    assert (set(started(batch)[:2]), started(batch)[2]) == ({"backdrop", "p1"}, "p0")
    assert "backdrop" not in batch.result("p1")


def test_patches_wait_for_a_backdrop_that_is_tried_again(batch: FakeBatch) -> None:
    cut(batch, executor={"cpu_slots": 2}).script(backdrop=["die SIGKILL", "train"])
    assert batch.run("train").returncode == 0
    assert started(batch)[:2] == ["backdrop", "backdrop"]
    assert batch.result("p1")["backdrop"]


def test_a_backdrop_that_fails_for_good_costs_no_patch(batch: FakeBatch) -> None:
    cut(batch).script(backdrop=["exit 1 Traceback: IndexError"])
    done = batch.run("train")
    assert done.returncode == 1
    assert "2 of 2 patches trained; failed: backdrop" in done.stdout
    assert "to do: backdrop: cause unknown" in done.stdout
    assert "backdrop" not in batch.result("p0")


def test_what_was_trained_without_a_backdrop_is_trained_again_once_there_is_one(batch: FakeBatch) -> None:
    cut(batch).script(backdrop=["exit 1 Traceback: IndexError"])
    batch.run("train")
    tried = len(started(batch))
    batch.script()
    done = batch.run("retry", "--patch", "backdrop")
    assert started(batch)[tried:] == ["backdrop"]
    assert done.returncode == 0, done.stdout
    assert causes(batch)["p0"] == "stale the backdrop behind the patch has changed"
    assert batch.run("train").returncode == 0
    assert started(batch)[tried + 1 :] == ["p0", "p1"]


def test_a_new_backdrop_and_all_that_is_drawn_against_it_are_one_run(batch: FakeBatch) -> None:
    cut(batch).run("train")
    batch.change(patches={"backdrop": {"training": {"max_steps": 7}}})
    assert batch.run("train").returncode == 0
    assert started(batch)[3:] == ["backdrop", "p0", "p1"]


def test_another_core_makes_a_patch_stale_and_leaves_the_backdrop(batch: FakeBatch) -> None:
    cut(batch).run("train")
    write_partition(halves(batch.folder, at=0.3))
    assert causes(batch) == {
        "backdrop": "trained",
        "p0": "stale the core of the patch (its box of space) has changed",
        "p1": "stale the core of the patch (its box of space) has changed",
    }


def test_a_backdrop_is_frozen_with_its_partition(batch: FakeBatch) -> None:
    cut(batch).run("train")
    images = batch.folder / "sparse/0/images.txt"
    images.write_text(images.read_text() + "10 1 0 0 0 -0.9 0 0 1 img4.png\n10 10 1\n")
    assert set(causes(batch).values()) == {"trained"}


def test_naming_a_patch_trains_the_backdrop_that_it_needs(batch: FakeBatch) -> None:
    cut(batch)
    assert batch.run("train", "p1").returncode == 0
    assert started(batch) == ["backdrop", "p1"]
    batch.run("retry", "--patch", "p1", "--force")
    assert started(batch) == ["backdrop", "p1", "p1"]


def test_a_source_that_is_gone_refuses_the_backdrop_alone(batch: FakeBatch) -> None:
    cut(batch)
    shutil.rmtree(batch.folder / "sparse")
    done = batch.run("train")
    assert started(batch) == ["p0", "p1"]
    assert "refused: backdrop\n" in done.stdout
    assert done.returncode == 1


def test_its_recipe_is_the_batchs_at_a_low_cap_and_changes_as_that_of_any_patch(batch: FakeBatch) -> None:
    cut(batch, training={"max_steps": 30_000, "cap_max": 900_000, "strategy": "default"})
    recipe = open_batch(batch.config).every[0].recipe.training
    assert (recipe.cap_max, recipe.max_steps, recipe.strategy) == (300_000, 7_500, "default")
    batch.change(patches={"backdrop": {"training": {"cap_max": 5}}}, training={"max_steps": 300, "cap_max": "2x"})
    recipe = open_batch(batch.config).every[0].recipe.training
    assert (recipe.cap_max, recipe.max_steps) == (5, 300)


def test_hold_out_and_offset_are_those_of_the_partition(batch: FakeBatch) -> None:
    tasks = open_batch(cut(batch, evaluation={"holdout_every": 3}).config).every
    assert {task.name for task in tasks} == {"backdrop", "p0", "p1"}
    assert {choose_holdout(task.patch, task.recipe.evaluation) for task in tasks} == {tuple(sorted(TEST))}


def test_external_trainers_draw_no_backdrop_and_have_none(batch: FakeBatch) -> None:
    cut(batch, trainers=EXTERNAL, training={"trainer": "mine", "max_steps": 20, "device": "cpu"})
    assert [task.name for task in open_batch(batch.config).every] == ["p0", "p1"]


def test_in_a_sweep_all_variants_are_drawn_against_one_backdrop(batch: FakeBatch) -> None:
    cut(batch, sweep={"matrix": {"training.seed": [1, 2]}})
    done = batch.run("train")
    assert done.returncode == 0, done.stdout
    assert started(batch)[0] == "backdrop"
    assert len(started(batch)) == 5


@pytest.mark.parametrize("verb", ["status", "plan", "report"])
def test_every_command_knows_the_backdrop(batch: FakeBatch, verb: str) -> None:
    cut(batch)
    said = batch.run(verb, "--json")
    assert said.returncode in (0, 1), said.stderr
    assert "backdrop" in json.dumps(json.loads(said.stdout))


def test_memory_is_planned_with_the_backdrop_behind(batch: FakeBatch) -> None:
    from splatbatch.tasks.estimates import footprints_of

    cut(batch, training={"cap_max": 900_000, "device": "cuda", "strategy": "default"})
    opened = open_batch(batch.config)
    with_it = footprints_of(opened.config, opened.tasks)["p0"]
    (batch.folder / "patches/partition.json").unlink()
    alone = open_batch(batch.config)
    assert with_it.gpu_mib > footprints_of(alone.config, alone.tasks)["p0"].gpu_mib
