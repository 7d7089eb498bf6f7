"""`python -m splatbatch.training.evaluation <attempt folder> <splat>`: evaluate the splat of an external trainer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from splatbatch.config import Recipe
from splatbatch.errors import SceneError
from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.metrics import TrainingSettings
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.coverage_mask import CoverageMask
from splatbatch.scene.frame import shifted
from splatbatch.scene.photos.undistort import load_lenses
from splatbatch.training.attempt import open_device, versions
from splatbatch.training.evaluation.evaluate import SplatFiles, earlier_figures
from splatbatch.training.evaluation.lpips import load_lpips
from splatbatch.training.photos.dataset import PhotoFolders, covered_of, decode_views, with_covered
from splatbatch.training.stop_request import exit_code_of

MEASURED_BY = "splatbatch"


def measure(folder: AttemptFolder, splat: Path) -> None:
    """Evaluate a splat on the held-out photographs of an attempt; write metrics.json, covered.json and pictures.

    With held-out photographs the accepted splat of the patch is evaluated too, unless its figures are of these pixels.

    Args:
        folder: folder of the attempt, with the settings of the measurement; files are written there.
        splat: path of the splat, inside `folder`.

    Raises:
        SplatbatchError: a splat, the model or a photograph cannot be read; a splat has another offset; a rendering has
            NaN pixels; or a GPU is asked for and cannot be used, or there are no kernels for it.
        KeyError: the border in the settings lacks a key.
        ValueError: the recipe is invalid, or `splat` does not lie in `folder`.
        OSError: a file cannot be written.
    """
    settings = folder.read(folder.measuring, TrainingSettings) or TrainingSettings()
    recipe = Recipe.model_validate(settings.recipe)
    whole = read_reconstruction(Path(settings.sparse), tracks=True)
    folders = PhotoFolders.of(settings)
    model, holdout = shifted(whole, settings.offset), frozenset(settings.holdout)
    load_lenses(model.cameras.values())
    views = decode_views(model, folders, holdout, recipe.training, is_training=False)
    covered = covered_of(settings, whole) or CoverageMask()
    device = open_device(recipe.training.device)
    views = with_covered(views, covered).to(device, "host")
    is_evened = bool(settings.tones)
    files = SplatFiles(views.holdout, views.frame, recipe, device, settings.offset, is_evened=is_evened)
    try:
        figures = files.figures(splat, load_lpips(), folder)
        largest, record = views.loaded.get("largest"), dict[str, Any]()
        if figures:
            record = earlier_figures(settings.earlier, covered.hash, largest, files.figures)
    except (OSError, ValueError) as error:
        raise SceneError(f"{splat}: this splat cannot be evaluated ({error}): train the patch again") from error
    write_json(folder.covered, covered.to_record())
    record |= {"final": figures or None, "covered": covered.facts(), "resolution": dict(views.loaded)}
    record |= {"made_with": versions(device), "measured_by": MEASURED_BY}
    record["splat"] = str(splat.relative_to(folder.path))
    write_json(folder.metrics, record)


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: measure(AttemptFolder(Path(sys.argv[1])), Path(sys.argv[2]))))
