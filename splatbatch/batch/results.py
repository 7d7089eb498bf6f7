"""Accepted products: what they depend on, how a splat becomes one, and what lies there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from splatbatch import __version__
from splatbatch.attempt import Attempt
from splatbatch.batch.folder import OutputFolder, PatchFolder
from splatbatch.batch.plan import Fingerprint, Found
from splatbatch.config import Evaluation, Recipe
from splatbatch.errors import SceneError
from splatbatch.files import path_beside, read_json, write_json, write_whole
from splatbatch.outcome import Trained
from splatbatch.scene.holdout import choose_holdout
from splatbatch.scene.masks import find_masks
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch
from splatbatch.scene.reconstruction import read_images
from splatbatch.splats import check_splat

CHUNK_BYTES = 1 << 20


def fingerprint(patch: Patch, recipe: Recipe) -> Fingerprint:
    """Return what a result of this patch under this recipe depends on."""
    return fingerprints([(patch, recipe)])[0]


def fingerprints(units: Iterable[tuple[Patch, Recipe]]) -> list[Fingerprint]:
    """Return the fingerprints of many; inputs that variants of a sweep share are read once."""
    inputs: dict[tuple[Patch, Evaluation], str] = {}
    found = []
    for patch, recipe in units:
        key = (replace(patch, name=""), recipe.evaluation)
        if key not in inputs:
            inputs[key] = _inputs_hash(patch, recipe.evaluation)
        found.append(Fingerprint(_recipe_hash(recipe), inputs[key]))
    return found


def found(folder: PatchFolder) -> Found:
    """Look at what lies in the output folder for a patch."""
    return Found(read_json(folder.result), check_splat(folder.splat))


def accept(folder: PatchFolder, attempt: Attempt, trained: Trained, facts: Mapping[str, Any]) -> None:
    """Make the splat of an attempt the patch's product; the attempt keeps its own until the ledger knows of it.

    At every moment result.json, if it is there, belongs to the splat.ply beside it: a kill between any two steps
    leaves a finished attempt that the next run accepts again.
    """
    splat = trained.splat
    folder.result.unlink(missing_ok=True)
    _link_over(splat.path, folder.splat)
    write_json(
        folder.result,
        {
            **facts,
            **attempt.depends_on,
            "patch": attempt.patch,
            "attempt": attempt.folder.path.name,
            "attempts": attempt.folder.number,
            "changes": attempt.changes,
            "num_gaussians": splat.num_gaussians,
            "sh_degree": splat.sh_degree,
            "step": splat.step,
            "bytes": splat.path.stat().st_size,
            "metrics": splat.metrics,
            "warnings": list(trained.warnings),
            "version": __version__,
        },
    )


def _link_over(source: Path, target: Path) -> None:
    """Make `target` the file `source`, at once: a second name for it, or a copy where links are not possible."""
    aside = path_beside(target)
    aside.unlink(missing_ok=True)
    try:
        os.link(source, aside)
    except OSError:
        with source.open("rb") as file:
            write_whole(target, lambda copy: copy.writelines(iter(lambda: file.read(CHUNK_BYTES), b"")))
        return
    aside.replace(target)
    # rename(2) leaves both names alone where they are one file already: an attempt that is accepted once more
    aside.unlink(missing_ok=True)


def short_hash(text: str) -> str:
    """Return 16 hexadecimal digits that stand for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def batch_name(output: OutputFolder) -> str:
    """Return a name for everything this output folder starts: stable, and unlike that of any other folder."""
    return short_hash(str(output.path.resolve()))


def _recipe_hash(recipe: Recipe) -> str:
    return short_hash(json.dumps(recipe.decisive(), sort_keys=True))


def _inputs_hash(patch: Patch, evaluation: Evaluation) -> str:
    """Hash the model by content, the choice of hold-out, and photographs by name and size: they are many."""
    digest = hashlib.sha256()
    for name in MODEL_FILE_NAMES:
        path = f"{patch.sparse}/{name}"  # strings here and below, not paths: thousands of patches have ten each
        if os.path.isfile(path):  # noqa: PTH113
            digest.update(name.encode())
            with open(path, "rb") as file:  # noqa: PTH123
                digest.update(hashlib.file_digest(file, "sha256").digest())
    with contextlib.suppress(SceneError):  # a broken model is the audit's to report, and fails when it is trained
        digest.update("\0".join(choose_holdout(patch, evaluation)).encode())
        folder = str(patch.images)
        for name in sorted(image.name for image in read_images(patch.sparse)):
            digest.update(f"{name}\0{_size(os.path.join(folder, name))}\0".encode())  # noqa: PTH118
        for name, mask in sorted(find_masks(patch.masks, (image.name for image in read_images(patch.sparse))).items()):
            digest.update(f"{name}\0{_size(mask)}\0".encode())
    return digest.hexdigest()[:16]


def _size(path: str | Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except (OSError, ValueError):
        return -1
