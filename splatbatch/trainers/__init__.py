"""WHICH program trains. A trainer knows nothing of processes: it names a command and judges what is left."""

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
    """A program that trains one patch in one folder. Made for one recipe."""

    stands_by: bool
    """Whether its process may be started ahead of its turn: it then prepares without touching the GPU until `go`."""

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Prepare `folder` and return the argv that trains `patch` into it."""
        ...

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        """Return the splat that a finished process left in `folder`, or why there is none that counts."""
        ...


TRAINERS = {"gsplat": BuiltinTrainer}
"""Our own; any other name is a program of the config."""


def open_trainer(recipe: Recipe) -> Trainer:
    """Return the trainer of a recipe."""
    if recipe.program:
        return ExternalTrainer(recipe, recipe.program)
    return TRAINERS[recipe.training.trainer](recipe)


def rules_of(recipes: Iterable[Recipe]) -> TrainerRules:
    """Return what the trainers of some recipes forgive, all of them; our own trainer's rules if there are none."""
    programs = {recipe.training.trainer: recipe.program for recipe in recipes} or {"gsplat": None}
    plain = [frozenset(one.cameras.models) if one else CAMERA_MODELS for one in programs.values()]
    taken = [frozenset(one.cameras.models) if one else CAMERA_MODELS | UNDISTORTED_MODELS for one in programs.values()]
    as_they_are, at_all = frozenset.intersection(*plain), frozenset.intersection(*taken)
    absorbs = all(one is not None and one.cameras.absorbs_resize for one in programs.values())
    return TrainerRules(absorbs, as_they_are, ", ".join(programs), at_all - as_they_are)
