"""WHICH program trains. A trainer knows nothing of processes: it names a command and judges what is left."""

from splatbatch.config import Recipe
from splatbatch.errors import TrainerError
from splatbatch.trainers.gsplat import CAMERA_MODELS, UNDISTORTED_MODELS, GsplatTrainer, check_importable
from splatbatch.trainers.protocol import Trainer

__all__ = ["CAMERA_MODELS", "UNDISTORTED_MODELS", "Trainer", "check_importable", "open_trainer"]


def open_trainer(recipe: Recipe) -> Trainer:
    """Return the trainer of a recipe.

    Raises:
        TrainerError: it is a program of somebody else.
    """
    if recipe.program:
        raise TrainerError(f"trainers.{recipe.training.trainer}: programs cannot be run yet")
    return TRAINERS[recipe.training.trainer](recipe)


TRAINERS = {"gsplat": GsplatTrainer}
