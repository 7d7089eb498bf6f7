"""`python -m splatbatch.training.scene <attempt folder>`: evaluate the merged scene of settings.json."""

import sys
from pathlib import Path

from splatbatch.config import Recipe
from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.evaluation import EvaluationSettings
from splatbatch.training.attempt import open_device
from splatbatch.training.scene.loaded_scene import open_scene
from splatbatch.training.scene.measure import measure
from splatbatch.training.stop_request import exit_code_of


def evaluate(folder: AttemptFolder) -> None:
    """Evaluate the merged scene that an attempt's settings name, and write metrics.json and pictures into its folder.

    Raises:
        SplatbatchError: a splat, a photograph, the model or the partition cannot be read; nothing is held out; a GPU is
            asked for and cannot be used, or has no kernels; or a rendering has NaN pixels.
        ValueError: the recipe is invalid, or a splat file has become shorter since it was opened.
        OSError: a file cannot be written, or a splat no longer be read.
    """
    settings = folder.read(folder.settings, EvaluationSettings) or EvaluationSettings()
    recipe = Recipe.model_validate(settings.recipe)
    scene = open_scene(settings, recipe, open_device(recipe.training.device))
    write_json(folder.metrics, measure(scene, folder).to_record())


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: evaluate(AttemptFolder(Path(sys.argv[1])))))
