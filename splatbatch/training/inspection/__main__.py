"""`python -m splatbatch.training.inspection <attempt folder>`: inspect a splat, into metrics.json."""

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

# before torch is imported: segments that grow leave no gaps behind as the number of Gaussians changes
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

from splatbatch.config import Recipe
from splatbatch.files import append_line, write_json
from splatbatch.store.folders import InspectingFolder
from splatbatch.store.records.attempt import Progress
from splatbatch.training.ending import exit_code_of
from splatbatch.training.inspection.evidence.dropping import dropped, named
from splatbatch.training.inspection.evidence.pictures import illustrated
from splatbatch.training.inspection.inspect import STAGES, inspect
from splatbatch.training.inspection.subject import open_subject
from splatbatch.training.session import open_device


def run(folder: InspectingFolder) -> None:
    """Inspect the splat that an attempt's settings name.

    Raises:
        SplatbatchError: the splat, the model or a photograph cannot be read, or a rendering is not finite.
    """
    settings, began = folder.read_inspection_settings(), time.monotonic()

    def tell(stage: str) -> None:
        seconds = round(time.monotonic() - began, 2)
        step = STAGES.index(stage) if stage in STAGES else 0 if stage == "load" else len(STAGES)
        line = Progress(round(time.time(), 2), seconds, stage, step, len(STAGES))
        append_line(folder.progress, line.to_record(), durable=False)

    tell("load")
    device = open_device(Recipe.model_validate(settings.recipe).training.device)
    subject = open_subject(settings, Path(settings.splat), device)
    found = inspect(subject, tell).aware_of(settings.warnings)
    tell("pictures")
    with contextlib.suppress(OSError):  # a full disk costs the pictures alone
        found = illustrated(subject, found, folder.pictures)
    del subject
    seconds = round(time.monotonic() - began, 2)
    if settings.measures_drop:
        found = replace(found, dropped=dropped(settings, named(found), folder.path / "dropped", tell))
    found = replace(found, patch=settings.patch, splat=settings.sha256, inputs=settings.inputs)
    write_json(folder.metrics, replace(found, attempt=folder.path.name, seconds=seconds).to_record())


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: run(InspectingFolder(Path(sys.argv[1])))))
