"""`python -m splatbatch.training.inspection <attempt folder>`: inspect a splat and write metrics.json."""

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from splatbatch.config import Recipe
from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.quality import InspectionSettings
from splatbatch.training.attempt import STANDBY_VARIABLE, open_device
from splatbatch.training.inspection.inspect import STAGES, inspect
from splatbatch.training.inspection.pictures import illustrated
from splatbatch.training.inspection.subject import open_subject
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.standby import wait_for_go
from splatbatch.training.stop_request import exit_code_of, leave


def run(folder: AttemptFolder, *, stands_by: bool = False) -> None:
    """Inspect the splat that an attempt's settings name; write metrics.json and, if possible, pictures into its folder.

    With `stands_by`, go.json, the order to begin, is awaited without a limit after all files are decoded.

    Raises:
        SplatbatchError: as an unreadable file, NaN pixels in a rendering, no usable GPU or kernels, a dead supervisor.
        KeyError, ValueError: the border in the settings lacks a key, or the recipe is invalid.
        OSError: metrics.json cannot be written.
    """
    settings = folder.read(folder.settings, InspectionSettings) or InspectionSettings()
    progress = ProgressRecorder(folder.progress, len(STAGES) + 1)
    progress.phase("load")

    def begin() -> torch.device:
        if stands_by:
            wait_for_go(folder, progress, lambda: None)
            progress.phase("load")
        return open_device(Recipe.model_validate(settings.recipe).training.device)

    subject = open_subject(settings, begin)
    found = inspect(subject, lambda stage: progress.phase(stage, STAGES.index(stage))).aware_of(settings.warnings)
    progress.phase("pictures", len(STAGES))
    with contextlib.suppress(OSError):  # on a full disk only the pictures are missing
        found = illustrated(subject, found, folder.pictures)
    found = replace(found, patch=settings.patch, splat=settings.sha256, inputs=settings.inputs)
    found = replace(found, attempt=folder.path.name, seconds=progress.seconds)
    write_json(folder.metrics, found.to_record())


if __name__ == "__main__":
    stands_by = os.environ.get(STANDBY_VARIABLE) == "1"
    leave(exit_code_of(lambda: run(AttemptFolder(Path(sys.argv[1])), stands_by=stands_by)))
