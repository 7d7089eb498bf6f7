"""The merged scene measured: by a process that may fail, whose record counts if it is whole."""

from __future__ import annotations

import sys
from pathlib import Path

from splatbatch.config import Config
from splatbatch.errors import SceneError, SplatbatchError, TrainerError
from splatbatch.files import read_tail, write_json
from splatbatch.outcome import Cancelled, Exit, Exited
from splatbatch.plain_text import one_line
from splatbatch.scheduler import judge
from splatbatch.scheduler.scene.attempt import Errand, Hooks, run
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.layout import SceneFolder
from splatbatch.store.records.evaluation import EvaluationSettings, SceneEvaluation

MODULE = "splatbatch.training.scene"
SAYS = "splatbatch: "
"""What a process of ours that knows why it ends says before the reason."""


def evaluate(config: Config, settings: EvaluationSettings, scene: SceneFolder, hooks: Hooks) -> SceneEvaluation:
    """Measure a scene and write down how good it is.

    Raises:
        SplatbatchError: it could not be measured: why, and where the log of its process lies.
        ExecutorError: there is no slot for it here.
    """

    def prepare(folder: AttemptFolder) -> tuple[str, ...]:
        write_json(folder.settings, settings.to_record())
        return (sys.executable, "-m", MODULE, str(folder.path))

    folder, end = run(config, Errand("scene-evaluation", scene.evaluating, prepare), hooks)
    found = folder.read_evaluation()
    if found is None or found.inputs != settings.inputs:
        raise _failed(folder, end)
    write_json(scene.evaluation_of(Path(settings.splat)), found.to_record())
    return found


def _failed(folder: AttemptFolder, end: Exit) -> SplatbatchError:
    """Return why it could not be measured: in the words of its process where it knew, else diagnosed."""
    if isinstance(end, Cancelled):
        return SplatbatchError(f"evaluate: stopped ({end.by}); nothing was measured", "Run it again.")
    hint = f"The log of its process: {folder.log}"
    said = [line for line in read_tail(folder.log).splitlines() if line.startswith(SAYS)]
    known = {kind.exit_code: kind for kind in (SceneError, TrainerError)}
    if isinstance(end, Exited) and end.code in known and said:
        return known[end.code](f"evaluate: {said[-1].removeprefix(SAYS)}", hint)
    found = judge.why(folder, end)
    evidence = f" ({one_line(found.evidence[-1])})" if found.evidence else ""
    return SplatbatchError(f"evaluate: {found.cause}: {found.advice}{evidence}", hint)
