"""The builtin trainer: `python -m splatbatch.training`, on gsplat's rasteriser or on the CPU."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from splatbatch.config import Recipe
from splatbatch.files import write_json
from splatbatch.outcome import Rejected, Splat
from splatbatch.output import retention
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.colors import as_photographed
from splatbatch.output.records.metrics import EarlierSplat, Metrics, TrainingSettings
from splatbatch.scene.holdout import choose_holdout
from splatbatch.scene.patches import Patch, model_folder
from splatbatch.splats import check_splat

CAMERA_MODELS = frozenset({"PINHOLE", "SIMPLE_PINHOLE"})
"""Camera models that the builtin trainer takes without undistortion."""


class BuiltinTrainer:
    """The builtin trainer: prepares and checks attempts whose training process is `splatbatch.training`."""

    stands_by = True

    def __init__(self, recipe: Recipe) -> None:
        """Keep the recipe, all settings of a task."""
        self._recipe = recipe

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Write settings.json into the attempt's folder, and return the command of the training process.

        The attempt resumes from the latest earlier checkpoint that has the same settings and hold-out, if there is one.

        Raises:
            SplatbatchError: the model of the patch, the list of its held-out photographs, or the manifest of the
                accepted splat or of the backdrop cannot be read.
            OSError: settings.json cannot be written.
        """
        settings = settings_for(self._recipe, patch, folder.task)
        resume = self._checkpoint_before(folder, settings.holdout)
        settings = dataclasses.replace(settings, resume=resume, earlier=earlier_splat(PatchFolder(folder.path.parent)))
        write_json(folder.settings, settings.to_record())
        return (sys.executable, "-m", "splatbatch.training", str(folder.path))

    def _checkpoint_before(self, folder: AttemptFolder, holdout: tuple[str, ...]) -> str | None:
        """Return the checkpoint of the latest earlier attempt with the same settings and hold-out; None without one.

        The training process checks the checkpoint itself.
        """
        for earlier in sorted(folder.earlier(), key=lambda attempt: -attempt.number):
            is_same = _decisive(earlier) == self._recipe.decisive() and earlier.read_settings().holdout == holdout
            if earlier.checkpoint.exists() and is_same:
                return str(earlier.checkpoint)
        return None

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        """Return the splat with its metrics if it is complete, finite and from the last step; otherwise the reason."""
        splat = check_splat(folder.splat, self._recipe.training.max_steps)
        if isinstance(splat, Splat):
            return dataclasses.replace(splat, metrics=(folder.read_metrics() or Metrics()).to_record())
        return splat


def earlier_splat(folder: PatchFolder) -> EarlierSplat:
    """Return the accepted splat of a patch, which the new one is compared with.

    A blank record if there is none, or its manifest has no hash.

    Raises:
        LaterFormatError: a later version wrote the manifest.
    """
    result = folder.read_result()
    if result is None or not result.sha256:
        return EarlierSplat()
    metrics, resolution = result.metrics, result.metrics.resolution
    largest = resolution.largest if resolution and retention.is_measured(result) else None
    return EarlierSplat(str(folder.splat_of(result)), result.sha256, metrics.covered.hash, largest)


def settings_for(recipe: Recipe, patch: Patch, task: str) -> TrainingSettings:
    """Return the settings of a patch for its training, and for measuring an external trainer's splat.

    Args:
        recipe: settings of the task.
        patch: the patch with its model and photographs.
        task: name of the task.

    Raises:
        SplatbatchError: the model of the patch, or the list of its held-out photographs, cannot be read.
        LaterFormatError: a later version wrote the manifest of the backdrop.
    """
    border = patch.border.to_record() if patch.border else {}
    behind, sha256 = PatchFolder(patch.behind).accepted_splat() if border and patch.behind else (Path(), "")
    return TrainingSettings(
        patch=task,
        recipe=recipe.model_dump(mode="json"),
        sparse=str(patch.sparse),
        source=str(model_folder(patch.source) or patch.source) if patch.source else "",
        offset=patch.offset,
        holdout=choose_holdout(patch, recipe.evaluation),
        **as_photographed([patch]),
        border=border,
        backdrop=str(behind) if sha256 else "",
        backdrop_sha256=sha256,
        is_backdrop=patch.is_whole,
    )


def _decisive(folder: AttemptFolder) -> dict[str, Any] | None:
    """Return the settings of an attempt; None if another version of this program wrote them."""
    try:
        return Recipe.model_validate(folder.read_settings().recipe).decisive()
    except ValidationError:
        return None
