"""Chooses held-out photographs on the whole scene, so that a photograph is held out in all patches or in none.

All photographs of a frame (taken at one moment, see `scene.moments`) are held out together: if the right photograph of
a stereo pair is trained on, the left photograph is no test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np

from splatbatch.config import Evaluation
from splatbatch.errors import SceneError
from splatbatch.files import MIB, read_regular
from splatbatch.scene.colmap.indexed_model import IndexedModel
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.rigs import rigs_of
from splatbatch.scene.colmap.types import Floats, Image, centers_of
from splatbatch.scene.moments import Frames, frames_of
from splatbatch.scene.partition.record import Partition, read_partition
from splatbatch.scene.patches import Patch, model_folder
from splatbatch.text import plural

EVERY = 8
MOST_LIST_BYTES = 64 * MIB
"""Largest file in bytes that is read as a hold-out list (`evaluation.holdout_list`: one image name per line)."""
PIECE = 0.1
"""Share of a scene's photographs that is held out as a block (taken side by side) if no split has chosen a block.

The other photographs of their frames are held out, too.
"""
MOST_SHARE, MOST_TIMES = 0.25, 1.5
"""Limits of what may be held out as whole frames; above the larger limit single photographs are held out instead.

`MOST_SHARE` is a share of all photographs, `MOST_TIMES` a multiple of the requested share.
"""


@dataclass(frozen=True)
class HoldOut:
    """Held-out and trained photographs of a scene, by image name, as a split records them."""

    test: frozenset[str]
    """Photographs held out in every patch by `evaluation.holdout: every` (the default) or `both`."""
    train: frozenset[str]
    """All photographs that are not in `test`; a later split never adds them to `test`."""
    contiguous: frozenset[str]
    """Photographs held out as one block, for `evaluation.holdout: contiguous` or `both`; empty: there is no block.

    They may be in `test` or `train`, too.
    """
    words: str
    """Note for people on held-out frames; empty if each held-out photograph was taken alone."""


def hold_out(sightings: IndexedModel, share: float, before: Partition | None) -> HoldOut:
    """Return the hold-out of a scene that is split: every 8th of the new frames, and a block if requested.

    A photograph that an earlier split held out stays held out. A photograph that was trained on never enters `test`;
    only a block that is requested later may contain it. A photograph added to a known frame is held out if all known
    photographs of the frame are.

    Args:
        sightings: the whole scene.
        share: share of the photographs that the block takes, 0 to 1; 0: no block. Ignored if `before` has a block,
            which keeps its photographs, and gains new ones that were taken inside it, with those of their frames.
        before: partition of an earlier split; None: the scene was not split before.
    """
    names, frames = [image.name for image in sightings.images], frames_of(sightings.images, rigs_of(sightings.folder))
    known_test, known_train = (before.test, before.train) if before else (frozenset[str](), frozenset[str]())
    known, centers = known_test | known_train, sightings.centers()
    test = known_test | every_nth_frame([frame for frame in frames if known.isdisjoint(frame)], EVERY)
    test |= _with_twins(frames, known_test) - _with_twins(frames, known_train)
    train, new = known_train | (frozenset(names) - test), frozenset(names) - known
    if before and (piece := before.contiguous):
        piece |= _with_twins(frames, piece | _joining(names, centers, piece, new)) & new
    else:
        piece = _with_twins(frames, block(names, centers, share))
    return HoldOut(test, train, piece, in_words(frames, test))


def in_words(frames: Frames, held_out: Collection[str]) -> str:
    """Return a note for people: how many photographs, of how many frames, are held out.

    Empty if every held-out photograph was taken alone. The note warns if only a part of a frame is held out.

    Args:
        frames: frames of the scene.
        held_out: names of the held-out photographs.
    """
    whole = [frame for frame in frames if {*frame}.issubset(held_out)]
    num, num_whole = (len({*chain(*these)}.intersection(held_out)) for these in (frames, whole))
    said = f"{num} of {plural(sum(map(len, frames)), 'photograph')} are held out"
    if num > num_whole:
        return (
            f"{said}; for {num - num_whole} of them another photograph of the same moment is trained on, so that their"
            " PSNR is too good"
        )
    return f"{said}: {plural(len(whole), 'frame')}, so that no stereo twin is trained on" if num > len(whole) else ""


def scene_in_words(patch: Patch, evaluation: Evaluation) -> str:
    """Return the note of `in_words` for the scene that a patch was cut from, or for the patch itself.

    Empty if each held-out photograph was taken alone. Empty also if a model, partition or list cannot be read or a
    requested block is missing, which the audit reports.

    Raises:
        PermissionError: the source scene has several models, and the folder of one may not be entered.
    """
    with contextlib.suppress(SceneError):
        sparse = read_partition(patch.partition).source if patch.partition else _source_of(patch)
        images = read_images(sparse)
        frames = _frames(sparse, images, by_name=False)
        return in_words(frames, choose_holdout(replace(patch, sparse=sparse), evaluation, images))
    return ""


def every_nth_frame(frames: Iterable[Sequence[str]], n: int) -> frozenset[str]:
    """Return the names of the photographs of about every n-th frame, the first frame included; none for n = 0.

    A frame is taken whenever less than one photograph in n was taken so far. If each frame is one photograph, exactly
    every n-th photograph is taken. Where whole frames would take more than the larger of `MOST_SHARE` and `MOST_TIMES`
    / n of all photographs, every n-th photograph by name is taken instead. A moment of a rig of 40 cameras may be most
    of a scene.
    """
    held, names = list[str](), list[str]()
    for frame in frames:
        names += frame
        held += frame if len(held) * n < len(names) and n else ()
    is_too_many = n and len(held) > max(MOST_SHARE, MOST_TIMES / n) * len(names)
    return frozenset(sorted(names)[::n] if is_too_many else held)


def _with_twins(frames: Iterable[Sequence[str]], names: Collection[str]) -> frozenset[str]:
    """Return all photographs of the frames that contain any of the given photographs."""
    return frozenset(name for frame in frames if not {*frame}.isdisjoint(names) for name in frame)


def block(names: Sequence[str], centers: Floats, share: float) -> frozenset[str]:
    """Return the names of photographs that were taken side by side, around a photograph not at the edge of the scene.

    The same names in the same order give the same result in every call. Photographs without a finite centre are never
    taken.

    Args:
        names: image names of the scene.
        centers: camera centres in the order of `names`, [n, 3].
        share: share of the photographs to take, 0 to 1; empty result if it rounds to none.
    """
    sound = np.flatnonzero(np.isfinite(centers).all(axis=1))
    count = round(share * len(sound))
    if not count:
        return frozenset()
    away = np.linalg.norm(centers[sound] - np.median(centers[sound], axis=0), axis=1)
    inner = sound[away <= np.median(away)]
    middle = centers[inner[np.random.default_rng(0).integers(len(inner))]]
    order = np.argsort(np.linalg.norm(centers[sound] - middle, axis=1), kind="stable")
    return frozenset(names[index] for index in sound[order[:count]])


def _joining(names: list[str], centers: Floats, block: frozenset[str], new: frozenset[str]) -> frozenset[str]:
    """Return the new photographs taken inside a block; if trained on, they would show what the block hides."""
    inside = np.array([name in block for name in names]) & np.isfinite(centers).all(axis=1)
    if not inside.any():
        return frozenset()
    middle = centers[inside].mean(axis=0)
    radius = np.linalg.norm(centers[inside] - middle, axis=1).max()
    near = np.linalg.norm(centers - middle, axis=1) <= radius
    return frozenset(name for name, is_near in zip(names, near, strict=True) if is_near and name in new)


def choose_holdout(patch: Patch, evaluation: Evaluation, images: Iterable[Image] | None = None) -> tuple[str, ...]:
    """Return the names of the patch's held-out photographs, sorted; names that its model lacks are left out.

    The first of these decides: `patch.held_out`, `evaluation.holdout_list`, the partition of the patch, and last the
    frames of the scene that the patch was cut from, or of its own model. Of the last two, `evaluation.holdout` chooses
    whole frames, a block or both. Where a partition decides, `holdout_every` matters only if it is 0: then its frames
    are trained on.

    Args:
        patch: the patch.
        evaluation: hold-out settings.
        images: images of the patch's model, if they were read already; None: they are read from `patch.sparse`.

    Raises:
        SceneError: a model, the partition or the hold-out list cannot be read; or `evaluation.holdout` asks for a block
            that the partition lacks (`contiguous` also if there is no partition).
        PermissionError: the source scene has several models, and the folder of one may not be entered.
    """
    images = [*(read_images(patch.sparse) if images is None else images)]
    if patch.held_out is not None:
        chosen = frozenset(patch.held_out)
    elif evaluation.holdout_list is not None:
        chosen = _listed(evaluation)
    elif patch.partition is not None or evaluation.holdout == "contiguous":
        partition = read_partition(patch.partition) if patch.partition else None
        chosen = _block_of(patch, evaluation) if evaluation.holdout != "every" else frozenset()
        if partition and evaluation.holdout_every and evaluation.holdout != "contiguous":
            chosen |= partition.test
    else:
        sparse, by_name = _source_of(patch), patch.by_name
        frames = _frames_of_source(sparse, by_name) if patch.source else _frames(sparse, images, by_name)
        chosen = every_nth_frame(frames, evaluation.holdout_every) | in_one_piece(patch, evaluation)
    return tuple(sorted(image.name for image in images if image.name in chosen))


def in_one_piece(patch: Patch, evaluation: Evaluation) -> frozenset[str]:
    """Return the names of the photographs that are held out as a block: taken side by side, none between trained on.

    It is the block of the partition; without a partition a tenth of the scene (`PIECE`). Empty if `evaluation.holdout`
    is `every`, or a hold-out list is set. Names of the whole scene are returned, also of photographs that the patch
    lacks.

    Raises:
        SceneError: a model or the partition cannot be read, or the partition has no block.
        PermissionError: the source scene has several models, and the folder of one may not be entered.
    """
    if evaluation.holdout == "every" or evaluation.holdout_list is not None:
        return frozenset()
    if patch.partition is not None:
        return _block_of(patch, evaluation)
    return _side_by_side(_source_of(patch), patch.by_name)


def _source_of(patch: Patch) -> Path:
    """Return the model in which photographs are chosen: that of the source scene if known, else the patch's own."""
    return patch.sparse if patch.source is None else model_folder(patch.source) or patch.source


@cache
def _side_by_side(sparse: Path, by_name: bool) -> frozenset[str]:
    """Return a tenth of a scene's photographs around one that is not at its edge; the same ones in every call."""
    images = sorted(read_images(sparse), key=lambda image: image.name)
    piece = block([image.name for image in images], centers_of(images), PIECE)
    return _with_twins(_frames(sparse, images, by_name), piece)


def _block_of(patch: Patch, evaluation: Evaluation) -> frozenset[str]:
    """Return the photographs that the partition of a patch holds out side by side.

    Raises:
        SceneError: it cannot be read, or holds no such block.
    """
    partition = read_partition(patch.partition) if patch.partition else None
    if partition is None or not partition.contiguous:
        where = patch.partition or f"patch {patch.name} (not cut by `splatbatch split`)"
        raise SceneError(
            f"evaluation.holdout: {evaluation.holdout}: {where} has no block of held-out photographs",
            "Choose a block when the scene is cut: split --holdout-block. Or remove evaluation.holdout.",
        )
    return partition.contiguous


def _frames(sparse: Path, images: Sequence[Image], by_name: bool) -> Frames:
    names = sorted(image.name for image in images)
    return tuple((name,) for name in names) if by_name else frames_of(images, rigs_of(sparse))


@cache
def _frames_of_source(sparse: Path, by_name: bool) -> Frames:
    """Return the frames of the source; cached, since every patch asks for them."""
    return _frames(sparse, read_images(sparse), by_name)


def check_lists(trained: Iterable[tuple[Patch, Evaluation]]) -> None:
    """Check before training that hold-out lists can be read, and that requested blocks exist.

    A block is requested by `evaluation.holdout: contiguous`, or by `both` for a patch with a partition; a hold-out list
    replaces it. Of patches with one partition and equal settings only the last pair is checked.

    Args:
        trained: the patches to train, each with its hold-out settings.

    Raises:
        SceneError: a list or a partition cannot be read, or a requested block is missing.
    """
    for patch, evaluation in {(patch.partition, one): (patch, one) for patch, one in trained}.values():
        _listed(evaluation)
        wants_block = evaluation.holdout == "contiguous" or (
            evaluation.holdout == "both" and patch.partition is not None
        )
        if evaluation.holdout_list is None and wants_block:
            _block_of(patch, evaluation)


def _listed(evaluation: Evaluation) -> frozenset[str]:
    path = evaluation.holdout_list
    try:
        lines = read_regular(path, MOST_LIST_BYTES).decode().split("\n") if path else []
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "Write one image name per line, or remove evaluation.holdout_list to hold out every n-th photograph."
        raise SceneError(f"evaluation.holdout_list: {path}: cannot be read ({reason})", hint) from error
    # a name may begin with a blank, and contain characters that Unicode counts as line ends
    return frozenset(one for line in lines for one in (line.removesuffix("\r"), line.strip()) if one)
