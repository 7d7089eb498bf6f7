"""The colours of a batch as they were solved, and whether a result was trained with others."""

from __future__ import annotations

from splatbatch.config import Scene
from splatbatch.identity import stamp_of
from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.colors import tone_to_record
from splatbatch.store.records.fingerprint import Fingerprint
from splatbatch.store.records.result import Result
from splatbatch.tasks.colors.tones import tones_of, wants_tones, why_moved
from splatbatch.tasks.task import Task

ASKS_FOR_COLORS = frozenset({"training.colors", "evaluation.colors_from"})


class SolvedColors:
    """colors.json as it lies in the output folder when this is made."""

    def __init__(self, output: OutputFolder, scene: Scene) -> None:
        self._scene = scene
        self._stamp = stamp_of(str(output.colors))
        self._colors = output.read_colors() if self._stamp.num_bytes >= 0 else None

    def key(self, task: Task) -> str:
        """Return what says which tones hold for a task: which file, and how it is asked for them."""
        asked = f"{task.recipe.training.colors} {self._scene.evened_copies}"
        return f"{self._stamp.num_bytes} {self._stamp.mtime_ns} {asked}"

    def why_other_tones(self, result: Result, held: Fingerprint, task: Task) -> str:
        """Say which photographs have tones by now that a result was not trained with; empty for none."""
        if ASKS_FOR_COLORS & result.changes.keys() or (self._colors is None and wants_tones(task.recipe, self._scene)):
            return ""  # somebody wanted it so, or nobody has solved any
        now = tones_of(self._colors, task.patch.name, task.recipe, self._scene)
        if not now and not held.tones:
            return ""
        names = list(held.photographs)
        return why_moved(held.tones, {name: tone_to_record(now[name]) for name in names if name in now}, names)
