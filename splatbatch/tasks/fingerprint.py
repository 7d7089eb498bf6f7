"""What results depend on: settings, model, photographs and masks; hashed, and kept, so that a change has a name.

Most looks ask only for size and time of files. Where those have moved, the content decides: a folder that was copied is
not trained again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from splatbatch.config import Recipe
from splatbatch.config.recipe import LEAST_GAIN_DB, Refinement
from splatbatch.errors import SceneError
from splatbatch.files import MOST_JSON_BYTES, names_in, read_regular
from splatbatch.hashing import FileDifference, FileFact, FileFacts, Files, difference, hash_of
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.colors import tones_to_record
from splatbatch.output.records.fingerprint import MODEL, Fingerprint, is_content, photographs_of
from splatbatch.scene.partition.files import PATCH
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch, model_folder
from splatbatch.scene.photos.folders import DIVISORS

PLACES = (("evaluation", "holdout_list"), ("program", "working_folder"))
"""Settings that say where something lies: a copy of it elsewhere is the same."""


def changed_settings(then: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what differs between two trees of settings, as "training.max_steps 7000 -> 1000".

    A setting that one of them does not know yet, or no longer, counts as its default: a new version alone changes
    nothing.
    """
    before, after, standard = leaves(then), leaves(now), leaves(defaults)
    pairs = {key: (before.get(key, standard.get(key)), after.get(key, standard.get(key))) for key in before | after}
    for key in pairs.keys() & {".".join(place) for place in PLACES}:  # of places the names alone
        old, new = pairs[key]
        pairs[key] = old and PurePath(str(old)).name, new and PurePath(str(new)).name
    return tuple(
        f"{key} {_shown(old)} -> {_shown(new)}"
        for key, (old, new) in sorted(pairs.items())
        if key in after and old != new
    )


def leaves(tree: Any, above: str = "") -> dict[str, Any]:
    """Return what a tree of settings holds by its full name, as "training.max_steps"."""
    if not isinstance(tree, Mapping) or (above and not tree):
        return {above: tree}
    return {
        key: value for name, one in tree.items() for key, value in leaves(one, f"{above}.{name}".strip(".")).items()
    }


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


COPIES = tuple(divisor for divisor in DIVISORS.values() if divisor > 1)
"""images_2, images_4, images_8 beside the photographs."""


def inputs_of(patch: Patch, recipe: Recipe, facts: FileFacts | None = None) -> Fingerprint:
    """Return the files that a patch would be trained from now, and their hash; the model is read for it.

    The hash is of the model by content, the choice of hold-out, and photographs and masks by name and size.
    """
    from splatbatch.scene.colmap.reconstruction import read_images
    from splatbatch.scene.holdout import choose_holdout  # which loads numpy: `status` does without
    from splatbatch.scene.photos.folders import find_masks

    facts, digest, files, place = facts or FileFacts(), hashlib.sha256(), Files(), places(patch, recipe)
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
        files |= {key: facts.of(place(key)) for key in _other_inputs(patch, recipe, names)}
    return Fingerprint(inputs=digest.hexdigest()[:16], files=files)


def state_of(files: Mapping[str, FileFact]) -> str:
    """Return 16 hexadecimal digits for size and time of every file."""
    text = "\0".join(f"{key} {fact.num_bytes} {fact.mtime_ns}" for key, fact in sorted(files.items()))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def list_changed_files(
    files: Mapping[str, FileFact], patch: Patch, recipe: Recipe, facts: FileFacts | None = None
) -> tuple[str, ...]:
    """Return which files have another size or time than written down, came or went; nothing is read for it."""
    facts = facts or FileFacts()
    model = {key.removeprefix(MODEL): fact for key, fact in files.items() if key.startswith(MODEL)}
    others = {key: fact for key, fact in files.items() if not key.startswith(MODEL)}
    return (*moved_model(model, patch, facts), *list_changed_shared_files(others, patch, recipe, facts))


def moved_model(files: Mapping[str, Sequence[Any]], patch: Patch, facts: FileFacts) -> list[str]:
    """Return which files of a model, given by their names, have another size or time, came or went."""
    folder = str(patch.sparse)
    found = [name for name, fact in files.items() if facts.of(f"{folder}/{name}")[:2] != tuple(fact[:2])]
    new = sorted({*names_in(folder)}.difference(files).intersection(MODEL_FILE_NAMES))
    found += [name for name in new if facts.of(f"{folder}/{name}").num_bytes >= 0]
    return [MODEL + name for name in found]


def list_changed_shared_files(
    files: Mapping[str, Sequence[Any]], patch: Patch, recipe: Recipe, facts: FileFacts
) -> list[str]:
    """Return which photographs, masks and lists have another size or time, came or went: the same for many patches."""
    place = places(patch, recipe)
    found = [key for key, fact in files.items() if facts.of(place(key))[:2] != tuple(fact[:2])]
    kinds = {key.partition("/")[0] for key in files}
    return found + [kind for kind in _kinds(patch, recipe) if kind not in kinds]


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


def list_unhashed_files(files: Mapping[str, FileFact], patch: Patch, recipe: Recipe) -> Iterator[tuple[str, Path]]:
    """Yield the files whose content was not hashed yet, with their paths."""
    place = places(patch, recipe)
    for key, fact in files.items():
        if not fact.sha256 and fact.num_bytes >= 0 and is_content(key):
            yield key, Path(place(key))


def _model_files(patch: Patch) -> Iterator[tuple[str, str]]:
    for name in MODEL_FILE_NAMES:
        path = f"{patch.sparse}/{name}"  # strings here and above, not paths: thousands of patches have ten each
        if os.path.isfile(path):  # noqa: PTH113
            yield name, path


def _kinds(patch: Patch, recipe: Recipe) -> list[str]:
    """Return which kinds of files there should be besides model and photographs, in the order of records."""
    kinds = {
        "masks": patch.masks is not None,
        **dict.fromkeys(_copies(patch, recipe), True),
        "source": patch.source is not None and patch.partition is None,
        "patch": patch.partition is not None,
        "holdout": recipe.evaluation.holdout_list is not None,
    }
    return [kind for kind, is_there in kinds.items() if is_there]


def _copies(patch: Patch, recipe: Recipe) -> tuple[str, ...]:
    """Return the folders of smaller photographs that may be trained from instead."""
    if recipe.training.resolution == "full" and patch.images.is_dir():
        return ()
    folders = (f"images_{divisor}" for divisor in COPIES)
    return tuple(kind for kind in folders if os.path.isdir(_root(kind, patch, recipe)))  # noqa: PTH112


def _other_inputs(patch: Patch, recipe: Recipe, names: Iterable[str]) -> Iterator[str]:
    """Yield what decides besides: folders of masks, smaller photographs, source and list of the hold-out."""
    for kind in _kinds(patch, recipe):
        match kind:
            case "masks":
                yield from {f"masks/{PurePosixPath(name).parent}/".replace("/./", "/") for name in names}
            case "source":
                yield from ("source/images.bin", "source/images.txt")
            case "patch":
                yield f"patch/{PATCH}"
            case "holdout":
                yield "holdout/list"
            case _:
                yield from (f"{kind}/{name}" for name in names)


def places(patch: Patch, recipe: Recipe) -> Callable[[str], str]:
    """Return what tells where a file of a fingerprint lies; the folder of each kind is looked for once."""
    known: dict[str, str] = {}

    def place(key: str) -> str:
        kind, _, rest = key.partition("/")
        if kind not in known:
            known[kind] = _root(kind, patch, recipe)
        return known[kind] if kind == "holdout" else f"{known[kind]}/{rest}"

    return place


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


NEWER = (
    *(("training", "colors", "auto"), ("training", "border", "auto")),
    ("evaluation", "holdout", "every"),
    ("refinement", "prune_loss_db", Refinement().prune_loss_db),
)
"""Settings that earlier versions had no word for: at their defaults no part of the hash, so that results stay fresh."""

LEAST_GAIN_BEFORE = 0.02
"""The default of `evaluation.least_gain_db` up to 0.2.0; where no training ends early it decides nothing."""

GONE_FROM_TRAINING = {"exposure": False, "packed": False}
"""Settings that earlier versions had: at what was their default they stay part of the hash, for the same reason."""


def fingerprint(patch: Patch, recipe: Recipe) -> Fingerprint:
    """Return what a result of this patch under this recipe depends on."""
    known = inputs_of(patch, recipe)
    return replace(
        known,
        recipe=recipe_hash(recipe),
        settings=settings_of(recipe),
        border=border_hash(patch, recipe),
        backdrop=backdrop_hash(patch, recipe),
        tones=tones_to_record({name: patch.tones[name] for name in known.photographs if name in patch.tones}),
        offset=patch.offset,
        holdout="" if patch.by_name else "frames",
    )


def border_hash(patch: Patch, recipe: Recipe) -> str:
    """Return the hash of what bounds a patch; empty where nothing does, or its trainer knows of no borders."""
    if patch.border is None or recipe.program is not None or not recipe.training.keeps_to_core:
        return ""
    return hash_of(patch.border.to_record())


def backdrop_hash(patch: Patch, recipe: Recipe) -> str:
    """Return the hash of the splat that is drawn behind a patch now; empty for none."""
    if patch.behind is None or not is_drawn_behind(patch, recipe):
        return ""
    return PatchFolder(patch.behind).accepted_splat()[1]


def is_drawn_behind(patch: Patch, recipe: Recipe) -> bool:
    """Return whether the splat of the whole scene, once there is one, is drawn behind a patch."""
    return patch.behind is not None and recipe.program is None and recipe.training.draws_behind


def recipe_hash(recipe: Recipe) -> str:
    """Return the hash of everything in a recipe that decides what is computed."""
    unset = recipe.training.model_copy(update={"coarse_to_fine": "auto"})
    # where it is not set, it is hashed as the false of earlier versions; a false that changes something is not
    is_against = recipe.training.coarse_to_fine is False and unset.resolved().coarse_to_fine
    return _hash(recipe, "no" if is_against else recipe.training.coarse_to_fine is True)


def earlier_hashes(recipe: Recipe) -> tuple[str, ...]:
    """Return the hashes of versions that hashed whole paths, or where coarse_to_fine was false unless asked for."""
    is_coarse = recipe.training.coarse_to_fine is True
    return tuple(_hash(recipe, is_coarse, has_paths=has_paths) for has_paths in (False, True))


def _hash(recipe: Recipe, coarse_to_fine: bool | str, *, has_paths: bool = False) -> str:
    tree = recipe.decisive()
    for name, setting in () if has_paths else PLACES:  # a list is an input, and a folder may be copied elsewhere
        if (section := tree.get(name)) and section.get(setting) is not None:
            tree = tree | {name: section | {setting: PurePath(section[setting]).name}}
    if "program" not in tree and not recipe.stops_after():
        tree["evaluation"] |= {"stop_after": 0}  # `auto` in a short run: all its steps, as earlier versions made them
        if recipe.evaluation.least_gain_db == LEAST_GAIN_DB:
            tree["evaluation"] |= {"least_gain_db": LEAST_GAIN_BEFORE}
    for section, setting, default in NEWER:
        if tree.get(section, {}).get(setting) == default:
            del tree[section][setting]
    if "program" not in tree:
        tree["training"] |= GONE_FROM_TRAINING | {"coarse_to_fine": coarse_to_fine}
    return hash_of(tree)


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """Return what decides what is computed, as it may be written down: of environment variables the names alone."""
    tree = recipe.decisive()
    if "program" in tree:
        tree["program"] = tree["program"] | {"env": sorted(tree["program"].get("env") or {})}
    return tree
