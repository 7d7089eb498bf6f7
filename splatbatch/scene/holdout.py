"""Which photographs are held out: chosen on the source scene, so that one is test in every patch or in none."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from splatbatch.config import Evaluation
from splatbatch.errors import SceneError
from splatbatch.files import MIB, read_regular
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.patches import Patch, model_folder

MOST_LIST_BYTES = 64 * MIB
"""Of a list of names, one a line."""
PIECE = 0.1
"""Of the photographs of a scene that no split has cut, that are held out side by side."""


def choose_holdout(patch: Patch, evaluation: Evaluation) -> tuple[str, ...]:
    """Return the names of the patch's held-out photographs, sorted.

    Raises:
        SceneError: a model or the hold-out list cannot be read.
    """
    names = sorted(image.name for image in read_images(patch.sparse))
    if evaluation.holdout_list is not None:
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
    import numpy as np

    from splatbatch.scene.partition.holdout import block

    images = sorted(read_images(sparse), key=lambda image: image.name)
    centers = np.array([image.center() for image in images]).reshape(-1, 3)
    return block([image.name for image in images], centers, PIECE, 0)


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
