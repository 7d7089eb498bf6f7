"""A splat inspected: by a process that may fail, whose record counts if it is whole."""

from __future__ import annotations

import sys
from collections.abc import Callable

from splatbatch.config import Config
from splatbatch.errors import SplatbatchError
from splatbatch.files import write_json
from splatbatch.outcome import Diagnosis
from splatbatch.plain_text import one_line
from splatbatch.scheduler import judge
from splatbatch.scheduler.scene.attempt import Errand, Hooks, run
from splatbatch.scheduler.scene.known import known, place_of_log
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.folders.inspecting import InspectingFolder
from splatbatch.store.folders.patch import PatchFolder
from splatbatch.store.folders.scene import SceneFolder
from splatbatch.store.records.quality.inspection import Inspection, InspectionSettings

MODULE = "splatbatch.training.inspection"
MOST_ATTEMPTS = 2


def inspect(config: Config, settings: InspectionSettings, home: PatchFolder | SceneFolder, hooks: Hooks) -> Inspection:
    """Inspect the splat of a patch, or of the scene, and write down how good it is; what may pass is tried once more.

    Raises:
        SplatbatchError: it could not be inspected: why, and where the log of its process lies.
        ExecutorError: there is no slot for it here.
    """
    verb = f"inspect {settings.patch}"
    tries = 0
    while True:
        folder, end = run(config, Errand(f"{settings.patch}-inspection", home.inspecting, _prepared(settings)), hooks)
        found = InspectingFolder(folder.path).read_inspection()
        if found is not None and found.inputs == settings.inputs:
            write_json(home.inspection, found.to_record())
            return found
        why = known(verb, folder, end) or judge.why(folder, end)
        if not isinstance(why, Diagnosis):
            raise why
        tries += 1
        if why.action != "retry" or tries == MOST_ATTEMPTS:
            evidence = f" ({one_line(why.evidence[-1])})" if why.evidence else ""
            advice = why.advice.partition(" Try: ")[0]  # what is to be typed is of a training
            raise SplatbatchError(f"{verb}: {why.cause}: {advice}{evidence}", place_of_log(folder))


def _prepared(settings: InspectionSettings) -> Callable[[AttemptFolder], tuple[str, ...]]:
    """Return what writes down what is to be inspected, and returns the command that does it."""

    def prepare(folder: AttemptFolder) -> tuple[str, ...]:
        write_json(folder.settings, settings.to_record())
        return (sys.executable, "-m", MODULE, str(folder.path))

    return prepare
