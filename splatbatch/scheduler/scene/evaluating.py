"""The merged scene measured: by a process that may fail, whose record counts if it is whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from splatbatch.config import Config
from splatbatch.errors import SplatbatchError
from splatbatch.files import write_json
from splatbatch.outcome import Diagnosis
from splatbatch.plain_text import one_line
from splatbatch.scheduler import judge
from splatbatch.scheduler.scene.attempt import Errand, Hooks, run
from splatbatch.scheduler.scene.known import known, place_of_log
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.folders.scene import SceneFolder
from splatbatch.store.records.evaluation import EvaluationSettings, SceneEvaluation

MODULE, VERB = "splatbatch.training.scene", "evaluate"
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
        why = known(VERB, folder, end) or judge.why(folder, end)
        if not isinstance(why, Diagnosis):
            raise why
        is_new = why.cause not in seen or why.action == "degrade"
        seen.append(why.cause)
        if why.action not in ("retry", "degrade") or not is_new or len(seen) == MOST_ATTEMPTS:
            evidence = f" ({one_line(why.evidence[-1])})" if why.evidence else ""
            advice = why.advice.partition(" Try: ")[0]  # what is to be typed is of a patch
            raise SplatbatchError(f"{VERB}: {why.cause}: {advice}{evidence}", place_of_log(folder))
        if why.action == "degrade":
            settings = replace(settings, held_share=LESS * settings.held_share)


def _prepared(settings: EvaluationSettings) -> Callable[[AttemptFolder], tuple[str, ...]]:
    """Return what writes down what is to be measured, and returns the command that measures it."""

    def prepare(folder: AttemptFolder) -> tuple[str, ...]:
        write_json(folder.settings, settings.to_record())
        return (sys.executable, "-m", MODULE, str(folder.path))

    return prepare
