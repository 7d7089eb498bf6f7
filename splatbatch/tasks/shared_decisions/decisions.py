"""The shared decisions of a batch: made once before training, kept in the output folder, and applied to all tasks.

This module imports no numpy, so that `status`, which reads the decisions, starts quickly.
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
"""Largest change of a gain, or of the falloff in a corner, that does not make a splat stale; a share."""
ASKS_FOR_COLORS = "training.colors"
"""Name of the setting that turns the colour correction on or off."""


@dataclass(frozen=True)
class SharedDecisions:
    """Values that all patches of a batch must share; a field is None until it is decided.

    It is None, too, if its file cannot be read.

    If offset or colours change, splats trained under the old ones become stale. The step budget makes none stale, since
    splats of every recorded budget count. Another hold-out shows as another recipe or input.
    """

    frame: Frame | None = None
    """Offset that is subtracted from the coordinates of every model; None: not decided yet."""
    by_frames: bool | None = None
    """Whether whole frames are held out instead of single photographs; the first splat of the batch decides.

    Without a splat, frames are chosen. None: not decided yet.
    """
    colors: Colors | None = None
    """Colour correction of each photograph; None: not solved."""
    deadline: DeadlineDecision | None = None
    """Step budget for the deadline; None: no deadline, or not chosen yet."""
    stamps: tuple[Stamp, ...] = ()
    """Sizes and times of the files of these decisions: while they stay the same, the decisions hold.

    Empty: not read.
    """

    @classmethod
    def known(cls, config: Config, output: OutputFolder) -> SharedDecisions:
        """Return the decisions made so far, by the YAML, the partition, and the files of the output folder.

        A step budget for another deadline than the YAML's is left out.

        Raises:
            SceneError: a split was interrupted, or its partition.json is broken.
            LaterFormatError: a later version of splatbatch wrote a record that is read.
        """
        stamps, chosen = stamps_of(config, output), DeadlineDecision.read(output.deadline)
        deadline = chosen if config.deadline and chosen and chosen.asked == config.deadline else None
        return cls(_known_frame(config, output), holds_out_frames(output), Colors.read(output.colors), deadline, stamps)

    def is_other(self, than: SharedDecisions) -> bool:
        """Return whether any decision differs from those of another set; stamps are not compared."""
        return self._decided() != than._decided()

    def _decided(self) -> tuple[object, ...]:
        return self.frame or Frame(), self.by_frames, self.colors or Colors(), self.deadline or DeadlineDecision()

    def write(self, output: OutputFolder) -> None:
        """Write frame.json, colors.json and deadline.json where they differ, for all workers and later runs.

        Each file is written whole. A decision that is None writes no file, and removes none.

        Raises:
            OSError: a file cannot be written.
            LaterFormatError: a later version of splatbatch wrote one of the files.
        """
        files = {output.frame: self.frame, output.colors: self.colors, output.deadline: self.deadline}
        for file, decided in files.items():
            if decided and decided != type(decided).read(file):
                write_json(file, decided.to_record())

    def apply(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return the tasks with offset, hold-out, colour correction and step budget of these decisions.

        An undecided offset or hold-out stays; without decided colours or deadline, tones or step budget are removed.
        """
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
        """Return why a splat is stale under these decisions (offset or colours); empty if it is not."""
        held = result.held_against
        then = held.offset
        now = self.frame.of(task.patch.name) if self.frame else then
        if now != then:
            return f"the offset of the coordinates has changed: {spell_place(then)} -> {spell_place(now)}"
        if ASKS_FOR_COLORS in result.changes or (self.colors is None and wants_tones(task.recipe)):
            return ""  # its colours were set by --set, or no tones were solved
        tones = tones_of(self.colors, task.patch.name, task.recipe)
        if not tones and not held.tones:
            return ""
        names = list(held.photographs)
        return describe_tone_changes(
            held.tones, {name: tone_to_record(tones[name]) for name in names if name in tones}, names
        )


def stamps_of(config: Config, output: OutputFolder) -> tuple[Stamp, ...]:
    """Return the sizes and times of the files whose change may change a decision.

    Files that are absent have stamps, too.
    """
    files = (output.frame, config.scene.patches / PARTITION, output.colors, output.deadline)
    return tuple(stamp_of(str(file)) for file in files)


def is_trained_otherwise(then: Fingerprint, now: Fingerprint) -> bool:
    """Return whether two trainings differ in offset, border, backdrop, or the colour correction of a photograph.

    Corrections that differ by no more than `MOST_MOVED` count as the same.
    """
    return (then.offset, then.surroundings) != (now.offset, now.surroundings) or bool(
        describe_tone_changes(then.tones, now.tones, now.tones.keys() | then.tones.keys())
    )


def _known_frame(config: Config, output: OutputFolder) -> Frame | None:
    """Return the frame in the YAML, else that of the partition, else that of the output folder; None: there is none."""
    if config.scene.offset is not None:
        return Frame() if config.scene.offset == "none" else Frame(config.scene.offset)
    path = None if config.scene.scenes else find_partition(config.scene.patches)
    if path is None:
        return Frame.read(output.frame)
    from splatbatch.scene.partition.record import read_partition  # reads arrays, which other batches have no use for

    return Frame(read_partition(path).offset)


def holds_out_frames(output: OutputFolder) -> bool | None:
    """Return whether the first accepted splat, by name, was trained with whole frames held out; None: there is none.

    Raises:
        LaterFormatError: a later version of splatbatch wrote a manifest (result.json).
    """
    results = (output.patch(name).read_result() for name in sorted(names_in(f"{output.path}/patches")))
    return next((bool(one.trained_from.holdout) for one in results if one), None)


def wants_tones(recipe: Recipe) -> bool:
    """Return whether a training may correct colours; an external trainer's does only with `colors: even`."""
    return recipe.training.colors == "even" or (recipe.training.colors == "auto" and recipe.program is None)


def tones_of(colors: Colors | None, patch: str, recipe: Recipe) -> Mapping[str, ColorCorrection]:
    """Return the colour corrections with which a patch is trained, by image name; empty: it is trained without.

    Empty, too, if `colors` is None: not solved.
    """
    if colors is None or not wants_tones(recipe):
        return {}
    solved = colors.of(patch)
    return solved.tones if recipe.training.colors == "even" or solved.is_even else {}


def describe_tone_changes(
    then: Mapping[str, Sequence[float]], now: Mapping[str, Sequence[float]], names: Iterable[str]
) -> str:
    """Return in words which photographs' colour corrections changed by more than `MOST_MOVED`; empty: none.

    Args:
        then: tones (gains and light) of a splat, as recorded, by image name; a missing tone counts as no correction.
        now: present tones, likewise.
        names: names of the photographs to compare.
    """
    moved = {name: by for name in names if (by := _tone_change(then.get(name, ()), now.get(name, ()))) > MOST_MOVED}
    if not moved:
        return ""
    worst = max(moved, key=lambda name: moved[name])
    more = f" and {len(moved) - 1} more" if moved.keys() - {worst} else ""
    return f"the colour correction of photographs has changed: {worst} by {100 * moved[worst]:.2g} %{more}"


def _tone_change(then: Sequence[float], now: Sequence[float]) -> float:
    """Return the largest change of brightness between two tones, in a channel or in the corners, as a share."""
    before, after = (ColorCorrection.of([*one, *NEUTRAL.gain[len(one) :]]) for one in (then, now))
    gains = [abs(math.log(b / a)) for a, b in zip(before.gain, after.gain, strict=True) if a > 0 and b > 0]
    slopes = sum(abs(b - a) for a, b in zip(before.shading_gradient, after.shading_gradient, strict=True))
    lights = [[tint * node for tint in tone.shading_color for node in tone.shading_grid] for tone in (before, after)]
    own = [abs(b - a) for a, b in zip_longest(*lights, fillvalue=0.0)]
    return math.expm1(max([*gains, abs(sum(after.vignetting) - sum(before.vignetting)) + slopes, *own]))
