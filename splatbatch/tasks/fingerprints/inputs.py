"""The files that a result depends on: model, photographs and masks, each with its size, time and content.

Most looks ask only for size and time. Where those have moved, the content decides: a folder that was copied is not
trained again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from splatbatch.config import Recipe
from splatbatch.errors import SceneError
from splatbatch.files import MOST_JSON_BYTES, names_in, read_regular
from splatbatch.hashing import FileDifference, FileFact, FileFacts, Files, difference
from splatbatch.output.records.fingerprint import MODEL, is_content, photographs_of
from splatbatch.scene.partition.files import PATCH
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch, model_folder
from splatbatch.scene.photos.folders import DIVISORS

COPIES = tuple(divisor for divisor in DIVISORS.values() if divisor > 1)
"""images_2, images_4, images_8 beside the photographs."""


@dataclass(frozen=True)
class Inputs:
    """What a patch is trained from."""

    hash: str
    """Of the model by content, the choice of hold-out, and photographs and masks by name and size."""
    files: Files = field(default_factory=dict)


def inputs_of(patch: Patch, recipe: Recipe, facts: FileFacts | None = None) -> Inputs:
    """Return what a patch would be trained from now; the model is read for it."""
    from splatbatch.scene.colmap.reconstruction import read_images
    from splatbatch.scene.holdout import choose_holdout  # which loads numpy: `status` does without
    from splatbatch.scene.photos.folders import find_masks

    facts, digest, files = facts or FileFacts(), hashlib.sha256(), Files()
    for name, path in _model_files(patch):
        digest.update(name.encode())
        content = facts.sha256(path)
        digest.update(bytes.fromhex(content))
        files[f"sparse/{name}"] = facts.of(path)._replace(sha256=content)
    if patch.partition:
        with contextlib.suppress(OSError):  # a core that has moved is another patch, whatever its model holds
            digest.update(read_regular(Path(_root("patch", patch, recipe), PATCH), MOST_JSON_BYTES))
    with contextlib.suppress(SceneError):  # a broken model is the audit's to report, and fails when it is trained
        digest.update("\0".join(choose_holdout(patch, recipe.evaluation)).encode())
        names = sorted(image.name for image in read_images(patch.sparse))
        for name in names:
            fact = files[f"images/{name}"] = facts.of(f"{patch.images}/{name}")
            digest.update(f"{name}\0{fact.num_bytes}\0".encode())
        for name, mask in sorted(find_masks(patch.masks, names).items()):
            fact = files[f"masks/{mask.relative_to(patch.masks or '/').as_posix()}"] = facts.of(str(mask))
            digest.update(f"{name}\0{fact.num_bytes}\0".encode())
        files |= {key: facts.of(locate(key, patch, recipe)) for key in _further(patch, recipe, names)}
    return Inputs(digest.hexdigest()[:16], files)


def state_of(files: Mapping[str, FileFact]) -> str:
    """Return 16 hexadecimal digits for size and time of every file."""
    text = "\0".join(f"{key} {fact.num_bytes} {fact.mtime_ns}" for key, fact in sorted(files.items()))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def moved(
    files: Mapping[str, FileFact], patch: Patch, recipe: Recipe, facts: FileFacts | None = None
) -> tuple[str, ...]:
    """Return which files have another size or time than written down, came or went; nothing is read for it."""
    facts = facts or FileFacts()
    model = {key.removeprefix(MODEL): fact for key, fact in files.items() if key.startswith(MODEL)}
    others = {key: fact for key, fact in files.items() if not key.startswith(MODEL)}
    return (*moved_model(model, patch, facts), *moved_others(others, patch, recipe, facts))


def moved_model(files: Mapping[str, Sequence[Any]], patch: Patch, facts: FileFacts) -> list[str]:
    """Return which files of a model, given by their names, have another size or time, came or went."""
    folder = str(patch.sparse)
    found = [name for name, fact in files.items() if not _is_as(facts.of(f"{folder}/{name}"), fact)]
    new = sorted({*names_in(folder)}.difference(files).intersection(MODEL_FILE_NAMES))
    found += [name for name in new if facts.of(f"{folder}/{name}").num_bytes >= 0]
    return [MODEL + name for name in found]


def moved_others(files: Mapping[str, Sequence[Any]], patch: Patch, recipe: Recipe, facts: FileFacts) -> list[str]:
    """Return which photographs, masks and lists have another size or time, came or went: the same for many patches."""
    roots = _Roots(patch, recipe)
    found = [key for key, fact in files.items() if not _is_as(facts.of(roots.path(key)), fact)]
    kinds = {key.partition("/")[0] for key in files}
    return found + [kind for kind, is_there in _kinds(patch, recipe).items() if is_there and kind not in kinds]


def _is_as(now: FileFact, then: Sequence[Any]) -> bool:
    return now[:2] == tuple(then[:2])


def differences(
    then: Mapping[str, FileFact], now: Mapping[str, FileFact], place: Callable[[str], str], facts: FileFacts
) -> FileDifference:
    """Compare the files whose content decides what is trained; for lists and folders `Inputs.hash` speaks."""
    before, after = ({key: fact for key, fact in files.items() if is_content(key)} for files in (then, now))
    return difference(before, after, place, facts)


def files_now(then: Mapping[str, FileFact], patch: Patch, recipe: Recipe, facts: FileFacts) -> Files:
    """Return what there is now of the files that were written down, and what has come since; no model is read."""
    from splatbatch.scene.photos.folders import find_masks

    place, names = places(patch, recipe), sorted(photographs_of(then))
    keys = [key for key in then if not key.startswith("masks/")]
    keys += [f"{MODEL}{name}" for name in MODEL_FILE_NAMES]
    keys += [f"{kind}/{name}" for kind in _copies(patch, recipe) for name in names]
    found = {key: facts.of(place(key)) for key in keys}
    for mask in find_masks(patch.masks, names).values():
        found[f"masks/{mask.relative_to(patch.masks or '/').as_posix()}"] = facts.of(str(mask))
    return found


def unread(files: Mapping[str, FileFact], patch: Patch, recipe: Recipe) -> Iterator[tuple[str, Path]]:
    """Yield the files whose content nobody has read yet, with their paths."""
    for key, fact in files.items():
        if not fact.sha256 and fact.num_bytes >= 0 and is_content(key):
            yield key, Path(locate(key, patch, recipe))


def _model_files(patch: Patch) -> Iterator[tuple[str, str]]:
    for name in MODEL_FILE_NAMES:
        path = f"{patch.sparse}/{name}"  # strings here and above, not paths: thousands of patches have ten each
        if os.path.isfile(path):  # noqa: PTH113
            yield name, path


def _kinds(patch: Patch, recipe: Recipe) -> dict[str, bool]:
    """Return which kinds of files there should be besides model and photographs."""
    copies = _copies(patch, recipe)
    return {
        "masks": patch.masks is not None,
        "source": patch.source is not None and patch.partition is None,
        "patch": patch.partition is not None,
        "holdout": recipe.evaluation.holdout_list is not None,
        **dict.fromkeys(copies, True),
    }


def _copies(patch: Patch, recipe: Recipe) -> tuple[str, ...]:
    """Return the folders of smaller photographs that may be trained from instead."""
    if recipe.training.resolution == "full" and patch.images.is_dir():
        return ()
    folders = (f"images_{divisor}" for divisor in COPIES)
    return tuple(kind for kind in folders if os.path.isdir(_root(kind, patch, recipe)))  # noqa: PTH112


def _further(patch: Patch, recipe: Recipe, names: Iterable[str]) -> Iterator[str]:
    """Yield what decides besides: folders of masks, smaller photographs, source and list of the hold-out."""
    kinds = _kinds(patch, recipe)
    if kinds["masks"]:
        yield from {f"masks/{folder}/".replace("/./", "/") for folder in map(_folder_of, names)}
    for kind in _copies(patch, recipe):
        yield from (f"{kind}/{name}" for name in names)
    if kinds["source"]:
        yield from ("source/images.bin", "source/images.txt")
    if kinds["patch"]:
        yield f"patch/{PATCH}"
    if kinds["holdout"]:
        yield "holdout/list"


def _folder_of(name: str) -> str:
    return PurePosixPath(name).parent.as_posix()


class _Roots:
    """Where the kinds of files of a patch lie; each is looked for once."""

    def __init__(self, patch: Patch, recipe: Recipe) -> None:
        self._patch, self._recipe = patch, recipe
        self._known: dict[str, str] = {}

    def path(self, key: str) -> str:
        kind, _, rest = key.partition("/")
        if kind not in self._known:
            self._known[kind] = _root(kind, self._patch, self._recipe)
        return self._known[kind] if kind == "holdout" else f"{self._known[kind]}/{rest}"


def places(patch: Patch, recipe: Recipe) -> Callable[[str], str]:
    """Return what tells where a file of a fingerprint lies."""
    return _Roots(patch, recipe).path


def locate(key: str, patch: Patch, recipe: Recipe) -> str:
    """Return where a file of a fingerprint lies."""
    return _Roots(patch, recipe).path(key)


def _root(kind: str, patch: Patch, recipe: Recipe) -> str:
    match kind:
        case "sparse":
            return str(patch.sparse)
        case "images":
            return str(patch.images)
        case "masks":
            return str(patch.masks or patch.images.with_name("masks"))
        case "patch":
            return str(patch.partition.parent / patch.name if patch.partition else patch.sparse)
        case "source":
            return str((patch.source and model_folder(patch.source)) or patch.source or "")
        case "holdout":
            return str(recipe.evaluation.holdout_list or "")
        case _:
            return str(patch.images.with_name(kind.replace("images", patch.images.name, 1)))
