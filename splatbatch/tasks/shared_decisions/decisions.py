"""What all patches of a batch share: decided once before training, in files of the output folder, and applied to tasks.

Loads no numpy: `status` asks, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from splatbatch.config import Config, Recipe
from splatbatch.files import names_in, write_json
from splatbatch.hashing import Stamp, stamp_of
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.colors import Colors, tone_to_record
from splatbatch.output.records.deadline import DeadlineDecision
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.frame import Frame
from splatbatch.output.records.result import Result
from splatbatch.scene.colors.correction import NEUTRAL, ColorCorrection
from splatbatch.scene.partition.files import PARTITION, find_partition
from splatbatch.tasks.task import Task, with_step_budget
from splatbatch.text import spell_place

MOST_MOVED = 0.01
"""Share by which a gain, or the falloff in a corner, may move before what was trained with it is stale."""
ASKS_FOR_COLORS = "training.colors"


@dataclass(frozen=True)
class SharedDecisions:
    """What is decided for a batch; None of anything as long as it is not.

    If one changes, results trained under the old one become stale, but for the step budget and the hold-out: splats of
    every recorded budget count, and another hold-out is another recipe or input.
    """

    frame: Frame | None = None
    """The offset that is taken off the coordinates of every model."""
    by_frames: bool | None = None
    """Whole frames are held out, as the first splat of the batch says."""
    colors: Colors | None = None
    """How bright and how tinted each photograph is beside the others."""
    deadline: DeadlineDecision | None = None
    """With how many steps, on how large photographs, it ends in time."""
    stamps: tuple[Stamp, ...] = ()
    """Of the files that say so: while these stay, so do the decisions."""

    @classmethod
    def known(cls, config: Config, output: OutputFolder) -> SharedDecisions:
        """Return what holds for a batch by its YAML, else by the files of its output folder.

        Raises:
            SceneError: a split was interrupted, or its partition.json is broken.
        """
        stamps, chosen = stamps_of(config, output), DeadlineDecision.read(output.deadline)
        deadline = chosen if config.deadline and chosen and chosen.asked == config.deadline else None
        return cls(_known_frame(config, output), holds_out_frames(output), Colors.read(output.colors), deadline, stamps)

    def is_other(self, than: SharedDecisions) -> bool:
        """Return whether anything is decided otherwise."""
        return self._decided() != than._decided()

    def _decided(self) -> tuple[object, ...]:
        return self.frame or Frame(), self.by_frames, self.colors or Colors(), self.deadline or DeadlineDecision()

    def write(self, output: OutputFolder) -> None:
        """Write down what the files do not say yet, for every run that goes on with the batch."""
        files = {output.frame: self.frame, output.colors: self.colors, output.deadline: self.deadline}
        for file, decided in files.items():
            if decided and decided != type(decided).read(file):
                write_json(file, decided.to_record())

    def apply(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return tasks as they are trained under it."""
        return tuple(map(self._shared_by, with_step_budget(tasks, self.deadline.budgets if self.deadline else ())))

    def _shared_by(self, task: Task) -> Task:
        patch = task.patch
        offset = self.frame.of(patch.name) if self.frame else patch.offset
        by_name = patch.by_name if self.by_frames is None else not self.by_frames
        tones = tones_of(self.colors, patch.name, task.requested_settings.recipe)
        if (patch.offset, patch.by_name, patch.tones) == (offset, by_name, tones):
            return task
        return replace(task, patch=replace(patch, offset=offset, by_name=by_name, tones=tones))

    def why_stale(self, result: Result, task: Task) -> str:
        """Say why a result was trained under other decisions; empty if it was not."""
        held = result.held_against
        then = held.offset
        now = self.frame.of(task.patch.name) if self.frame else then
        if now != then:
            return f"the offset has changed: {spell_place(then)} -> {spell_place(now)}"
        if ASKS_FOR_COLORS in result.changes or (self.colors is None and wants_tones(task.recipe)):
            return ""  # it was requested, or none was solved
        tones = tones_of(self.colors, task.patch.name, task.recipe)
        if not tones and not held.tones:
            return ""
        names = list(held.photographs)
        return describe_tone_changes(
            held.tones, {name: tone_to_record(tones[name]) for name in names if name in tones}, names
        )

    def key(self, task: Task) -> str:
        """Return what tells whether the decisions that hold for a task are those of an earlier look."""
        files = " ".join(f"{one.num_bytes} {one.mtime_ns}" for one in self.stamps)
        return f"{files} {self.frame and self.frame.of(task.patch.name)} {task.recipe.training.colors}"


def stamps_of(config: Config, output: OutputFolder) -> tuple[Stamp, ...]:
    """Return the stamps of the files whose change may mean another decision."""
    files = (output.frame, config.scene.patches / PARTITION, output.colors, output.deadline)
    return tuple(stamp_of(str(file)) for file in files)


def is_trained_otherwise(then: Fingerprint, now: Fingerprint) -> bool:
    """Return whether two trainings had other offsets, surroundings, or another tone of a photograph."""
    return (then.offset, then.surroundings) != (now.offset, now.surroundings) or bool(
        describe_tone_changes(then.tones, now.tones, now.tones.keys() | then.tones.keys())
    )


def _known_frame(config: Config, output: OutputFolder) -> Frame | None:
    """Return the frame that the YAML asks for, else the partition's, else the one of the output folder."""
    if config.scene.offset is not None:
        return Frame() if config.scene.offset == "none" else Frame(config.scene.offset)
    path = None if config.scene.scenes else find_partition(config.scene.patches)
    if path is None:
        return Frame.read(output.frame)
    from splatbatch.scene.partition.record import read_partition  # reads arrays, which other batches have no use for

    return Frame(read_partition(path).offset)


def holds_out_frames(output: OutputFolder) -> bool | None:
    """Return whether the first splat that there is holds out frames; None before there is any."""
    results = (output.patch(name).read_result() for name in sorted(names_in(f"{output.path}/patches")))
    return next((bool(one.trained_from.holdout) for one in results if one), None)


def wants_tones(recipe: Recipe) -> bool:
    """Return whether tones may have a say in a training; an external trainer knows them as evened copies alone."""
    return recipe.training.colors == "even" or (recipe.training.colors == "auto" and recipe.program is None)


def tones_of(colors: Colors | None, patch: str, recipe: Recipe) -> Mapping[str, ColorCorrection]:
    """Return the tones in which a patch is trained, by image name; none: as its photographs are."""
    if colors is None or not wants_tones(recipe):
        return {}
    solved = colors.of(patch)
    return solved.tones if recipe.training.colors == "even" or solved.is_even else {}


def describe_tone_changes(
    then: Mapping[str, Sequence[float]], now: Mapping[str, Sequence[float]], names: Iterable[str]
) -> str:
    """Say which photographs have other tones than before, each given as gains and vignetting; empty if none has."""
    moved = {name: by for name in names if (by := _tone_change(then.get(name, ()), now.get(name, ()))) > MOST_MOVED}
    if not moved:
        return ""
    worst = max(moved, key=lambda name: moved[name])
    more = f" and {len(moved) - 1} more" if moved.keys() - {worst} else ""
    return f"the colour correction of photographs has changed: {worst} by {100 * moved[worst]:.2g} %{more}"


def _tone_change(then: Sequence[float], now: Sequence[float]) -> float:
    """Return by which share a photograph is rendered otherwise, in a channel or in its corners."""
    before, after = (ColorCorrection.of([*one, *NEUTRAL.gain[len(one) :]]) for one in (then, now))
    gains = [abs(math.log(b / a)) for a, b in zip(before.gain, after.gain, strict=True) if a > 0 and b > 0]
    slopes = sum(abs(b - a) for a, b in zip(before.shading_gradient, after.shading_gradient, strict=True))
    lights = [[tint * node for tint in tone.shading_color for node in tone.shading_grid] for tone in (before, after)]
    own = [abs(b - a) for a, b in zip_longest(*lights, fillvalue=0.0)]
    return math.expm1(max([*gains, abs(sum(after.vignetting) - sum(before.vignetting)) + slopes, *own]))
