"""Programs that train.

A trainer object starts no process: it returns a command, and checks the files left by the process.
"""

from collections.abc import Iterable
from typing import Protocol

from splatbatch.config import Recipe
from splatbatch.outcome import Rejected, Splat
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.audit.findings import TrainerRules
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.undistort import UNDISTORTED_MODELS
from splatbatch.trainers.builtin import CAMERA_MODELS, BuiltinTrainer
from splatbatch.trainers.external import ExternalTrainer


class Trainer(Protocol):
    """A program that trains one patch in one attempt folder.

    A trainer object is made for one recipe (all settings of a task).
    """

    stands_by: bool
    """Whether the program may be started early: it then prepares without touching the GPU, and waits for go.json."""

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Prepare the folder of an attempt, and return the command with its arguments that trains the patch into it.

        Args:
            patch: the patch.
            folder: folder of the attempt, which exists.

        Raises:
            SplatbatchError: a file that the command needs cannot be read or made.
            OSError: the folder cannot be written.
            KeyError: the model lacks the camera of a photograph that gets colour correction.
        """
        ...

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        """Return the splat that a finished process left in the folder of an attempt, or why no splat there is valid.

        Raises:
            SplatbatchError: a record of another task cannot be read.
            OSError: the splat was removed meanwhile.
        """
        ...


TRAINERS = {"gsplat": BuiltinTrainer}
"""Builtin trainers by name; any other name of a trainer is an external program described in the YAML."""


def open_trainer(recipe: Recipe) -> Trainer:
    """Return the trainer that a recipe (all settings of a task) names, external or builtin.

    Raises:
        KeyError: the name is neither a builtin trainer nor a program of the YAML; the config is checked for this
            before.
    """
    if recipe.program:
        return ExternalTrainer(recipe, recipe.program)
    return TRAINERS[recipe.training.trainer](recipe)


def rules_of(recipes: Iterable[Recipe]) -> TrainerRules:
    """Return which camera models and photographs all trainers of these recipes accept, for the audit of the scene.

    Without recipes they are the rules of the builtin trainer.
    """
    programs = {recipe.training.trainer: recipe.program for recipe in recipes} or {"gsplat": None}
    plain = [frozenset(one.cameras.models) if one else CAMERA_MODELS for one in programs.values()]
    taken = [frozenset(one.cameras.models) if one else CAMERA_MODELS | UNDISTORTED_MODELS for one in programs.values()]
    as_they_are, at_all = frozenset.intersection(*plain), frozenset.intersection(*taken)
    absorbs = all(one is not None and one.cameras.absorbs_resize for one in programs.values())
    return TrainerRules(absorbs, as_they_are, ", ".join(programs), at_all - as_they_are)
