"""Which photographs are held out: chosen on the source scene, so that one is test in every patch or in none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from splatbatch.config import Evaluation
from splatbatch.errors import SceneError
from splatbatch.files import MIB, read_regular
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.sightings import Mask, Sightings
from splatbatch.scene.colmap.types import Floats, Image, centers_of
from splatbatch.scene.partition.record import Partition
from splatbatch.scene.patches import Patch, model_folder

EVERY = 8
MOST_LIST_BYTES = 64 * MIB
"""Of a list of names, one a line."""
PIECE = 0.1
"""Of the photographs of a scene that no split has cut, that are held out side by side."""


@dataclass(frozen=True)
class HoldOut:
    """Names of photographs."""

    test: frozenset[str]
    """Held out everywhere."""
    train: frozenset[str]
    """The others."""
    contiguous: frozenset[str]
    """Held out in one piece, by who wants that instead."""

    def is_test(self, sightings: Sightings) -> Mask:
        """Return which photographs [I] are held out one way or the other."""
        out = self.test | self.contiguous
        return np.array([image.name in out for image in sightings.images], dtype=bool)


def hold_out(sightings: Sightings, share: float, seed: int, before: Partition | None) -> HoldOut:
    """Return what is held out: every 8th of the photographs that no partition knows yet, and a block if asked for.

    A photograph that was test stays so, and one that was trained on never becomes test.
    """
    names = [image.name for image in sightings.images]
    known_test, known_train = (before.test, before.train) if before else (frozenset[str](), frozenset[str]())
    new = sorted(set(names) - known_test - known_train)
    test = known_test | frozenset(new[::EVERY])
    train = known_train | (frozenset(new) - test)
    centers = sightings.centers()
    if before and before.contiguous:
        return HoldOut(test, train, before.contiguous | _joining(names, centers, before.contiguous, frozenset(new)))
    return HoldOut(test, train, block(names, centers, share, seed))


def block(names: Sequence[str], centers: Floats, share: float, seed: int) -> frozenset[str]:
    """Return so many photographs that were taken side by side, around one that is not at the edge of the scene."""
    sound = np.flatnonzero(np.isfinite(centers).all(axis=1))
    count = round(share * len(sound))
    if not count:
        return frozenset()
    away = np.linalg.norm(centers[sound] - np.median(centers[sound], axis=0), axis=1)
    inner = sound[away <= np.median(away)]
    middle = centers[inner[np.random.default_rng(seed).integers(len(inner))]]
    order = np.argsort(np.linalg.norm(centers[sound] - middle, axis=1), kind="stable")
    return frozenset(names[index] for index in sound[order[:count]])


def _joining(names: list[str], centers: Floats, block: frozenset[str], new: frozenset[str]) -> frozenset[str]:
    """Return the new photographs that were taken inside a block: trained on, they would show what it hides."""
    inside = np.array([name in block for name in names]) & np.isfinite(centers).all(axis=1)
    if not inside.any():
        return frozenset()
    middle = centers[inside].mean(axis=0)
    radius = np.linalg.norm(centers[inside] - middle, axis=1).max()
    near = np.linalg.norm(centers - middle, axis=1) <= radius
    return frozenset(name for name, is_near in zip(names, near, strict=True) if is_near and name in new)


def choose_holdout(patch: Patch, evaluation: Evaluation, images: Iterable[Image] | None = None) -> tuple[str, ...]:
    """Return the names of the patch's held-out photographs, sorted; `images`: of its model, if that was read already.

    Raises:
        SceneError: a model or the hold-out list cannot be read.
    """
    names = sorted(image.name for image in (read_images(patch.sparse) if images is None else images))
    if patch.held_out is not None:
        chosen = frozenset(patch.held_out)
    elif evaluation.holdout_list is not None:
        chosen = _listed(evaluation)
    elif patch.partition is not None or evaluation.holdout == "contiguous":
        chosen = _of_partition(patch, evaluation)
    else:
        known = names if patch.source is None else _source_names(_source_of(patch))
        chosen = every_nth(known, evaluation.holdout_every) | in_one_piece(patch, evaluation)
    return tuple(name for name in names if name in chosen)


def in_one_piece(patch: Patch, evaluation: Evaluation) -> frozenset[str]:
    """Return which of a patch's held-out photographs were taken side by side: what lies around them is held out, too.

    Raises:
        SceneError: a model or the partition cannot be read.
    """
    if evaluation.holdout == "every" or evaluation.holdout_list is not None:
        return frozenset()
    if patch.partition is not None:
        return _of_partition(patch, evaluation.model_copy(update={"holdout": "contiguous"}))
    return _side_by_side(_source_of(patch))


def _source_of(patch: Patch) -> Path:
    """Return the model in which photographs are chosen: of the scene that the patch is of, where that is known."""
    return patch.sparse if patch.source is None else model_folder(patch.source) or patch.source


@cache
def _side_by_side(sparse: Path) -> frozenset[str]:
    """Return a tenth of a scene's photographs, around one that is not at its edge; always the same ones."""
    images = sorted(read_images(sparse), key=lambda image: image.name)
    return block([image.name for image in images], centers_of(images), PIECE, 0)


def _of_partition(patch: Patch, evaluation: Evaluation) -> frozenset[str]:
    """Return what a partition holds out, in every patch alike; nothing for `holdout_every: 0`.

    Raises:
        SceneError: it cannot be read, or has no block of photographs where one is asked for.
    """
    from splatbatch.scene.partition.record import read_partition

    partition = read_partition(patch.partition) if patch.partition else None
    every = partition.test if partition is not None and evaluation.holdout_every else frozenset()
    if partition is not None and evaluation.holdout == "every":
        return every
    if partition is None or not partition.contiguous:
        hint = (
            "Choose one when the scene is cut: splatbatch split --holdout-block 0.1; or leave evaluation.holdout out."
        )
        where = patch.partition or f"{patch.name}, which no split has cut,"
        raise SceneError(f"evaluation.holdout: {evaluation.holdout}: {where} holds nothing out in one piece", hint)
    return partition.contiguous | (every if evaluation.holdout == "both" else frozenset())


@cache
def _source_names(sparse: Path) -> tuple[str, ...]:
    """Return the image names of the source: read once, though every patch asks."""
    return tuple(image.name for image in read_images(sparse))


def every_nth(names: Iterable[str], n: int) -> frozenset[str]:
    """Return every n-th name, the first included, in sorted order; none for n = 0."""
    return frozenset(sorted(names)[::n] if n else ())


def check_lists(trained: Iterable[tuple[Patch, Evaluation]]) -> None:
    """See that every hold-out list can be read, and that there is a block where one is asked for.

    Raises:
        SceneError: one cannot, or there is none.
    """
    for patch, evaluation in {(patch.partition, one): (patch, one) for patch, one in trained}.values():
        _listed(evaluation)
        if evaluation.holdout_list is None and _needs_a_block(patch, evaluation):
            _of_partition(patch, evaluation)


def _needs_a_block(patch: Patch, evaluation: Evaluation) -> bool:
    return evaluation.holdout == "contiguous" or (evaluation.holdout == "both" and patch.partition is not None)


def _listed(evaluation: Evaluation) -> frozenset[str]:
    path = evaluation.holdout_list
    try:
        lines = read_regular(path, MOST_LIST_BYTES).decode().splitlines() if path else []
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "Write one image name per line, or leave it out for every n-th photograph."
        raise SceneError(f"evaluation.holdout_list: {path}: cannot be read ({reason})", hint) from error
    return frozenset(line.strip() for line in lines if line.strip())
