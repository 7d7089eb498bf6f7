"""The merged scene measured: by a process that may fail, whose record counts if it is whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from splatbatch.config import Config
from splatbatch.errors import SceneError, SplatbatchError, TrainerError
from splatbatch.files import read_tail, write_json
from splatbatch.outcome import Cancelled, Diagnosis, Exit, Exited
from splatbatch.plain_text import one_line
from splatbatch.scheduler import judge
from splatbatch.scheduler.scene.attempt import Errand, Hooks, run
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.folders.scene import SceneFolder
from splatbatch.store.records.evaluation import EvaluationSettings, SceneEvaluation

MODULE = "splatbatch.training.scene"
SAYS = "splatbatch: "
"""What a process of ours that knows why it ends says before the reason."""


MOST_ATTEMPTS = 3
LESS = 0.25
"""Times the memory for Gaussians that wait to be drawn, after an attempt that ran out of it."""


def evaluate(config: Config, settings: EvaluationSettings, scene: SceneFolder, hooks: Hooks) -> SceneEvaluation:
    """Measure a scene and write down how good it is; what may pass is tried again, with less memory where that lacked.

    Raises:
        SplatbatchError: it could not be measured: why, and where the log of its process lies.
        ExecutorError: there is no slot for it here.
    """
    seen: list[str] = []
    while True:
        folder, end = run(config, Errand("scene-evaluation", scene.evaluating, _prepared(settings)), hooks)
        found = folder.read_evaluation()
        if found is not None and found.inputs == settings.inputs:
            write_json(scene.evaluation_of(Path(settings.splat)), found.to_record())
            return found
        why = _known(folder, end) or judge.why(folder, end)
        if not isinstance(why, Diagnosis):
            raise why
        is_new = why.cause not in seen or why.action == "degrade"
        seen.append(why.cause)
        if why.action not in ("retry", "degrade") or not is_new or len(seen) == MOST_ATTEMPTS:
            evidence = f" ({one_line(why.evidence[-1])})" if why.evidence else ""
            advice = why.advice.partition(" Try: ")[0]  # what is to be typed is of a patch
            raise SplatbatchError(f"evaluate: {why.cause}: {advice}{evidence}", _place(folder))
        if why.action == "degrade":
            settings = replace(settings, held_share=LESS * settings.held_share)


def _prepared(settings: EvaluationSettings) -> Callable[[AttemptFolder], tuple[str, ...]]:
    """Return what writes down what is to be measured, and returns the command that measures it."""

    def prepare(folder: AttemptFolder) -> tuple[str, ...]:
        write_json(folder.settings, settings.to_record())
        return (sys.executable, "-m", MODULE, str(folder.path))

    return prepare


def _known(folder: AttemptFolder, end: Exit) -> SplatbatchError | None:
    """Return why it could not be measured where nothing has to be diagnosed: it was stopped, or its process knew."""
    if isinstance(end, Cancelled):
        return SplatbatchError(f"evaluate: stopped ({end.by}); nothing was measured", "Run it again.")
    if end == Exited(0):
        return SplatbatchError("evaluate: its process ended normally, and left no record that counts", _place(folder))
    said = [line for line in read_tail(folder.log).splitlines() if line.startswith(SAYS)]
    known = {kind.exit_code: kind for kind in (SceneError, TrainerError)}
    if isinstance(end, Exited) and end.code in known and said:
        return known[end.code](f"evaluate: {said[-1].removeprefix(SAYS)}", _place(folder))
    return None


def _place(folder: AttemptFolder) -> str:
    return f"The log of its process: {folder.log}"
