"""Programs that train. A trainer starts no process: it returns a command and checks the files left afterwards."""

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
    """A program that trains one patch in one attempt folder; an instance is made for one recipe."""

    stands_by: bool
    """Whether its process may be started early: it then prepares without touching the GPU until it gets `go`."""

    def command(self, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        """Prepare `folder` and return the argv that trains `patch` into it."""
        ...

    def collect(self, folder: AttemptFolder) -> Splat | Rejected:
        """Return the splat that a finished process left in `folder`, or why no splat there is valid."""
        ...


TRAINERS = {"gsplat": BuiltinTrainer}
"""Builtin trainers by name; any other name is an external program of the YAML."""


def open_trainer(recipe: Recipe) -> Trainer:
    """Return the trainer that a recipe names, external or builtin."""
    if recipe.program:
        return ExternalTrainer(recipe, recipe.program)
    return TRAINERS[recipe.training.trainer](recipe)


def rules_of(recipes: Iterable[Recipe]) -> TrainerRules:
    """Return what all trainers of these recipes accept, for the scene audit; without recipes the builtin rules."""
    programs = {recipe.training.trainer: recipe.program for recipe in recipes} or {"gsplat": None}
    plain = [frozenset(one.cameras.models) if one else CAMERA_MODELS for one in programs.values()]
    taken = [frozenset(one.cameras.models) if one else CAMERA_MODELS | UNDISTORTED_MODELS for one in programs.values()]
    as_they_are, at_all = frozenset.intersection(*plain), frozenset.intersection(*taken)
    absorbs = all(one is not None and one.cameras.absorbs_resize for one in programs.values())
    return TrainerRules(absorbs, as_they_are, ", ".join(programs), at_all - as_they_are)
