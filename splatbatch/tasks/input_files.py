"""The input files of a patch: their paths, their sizes, times and hashes, and which of them have changed.

Most checks read only size and time. Where these differ, the content decides, so that a copied folder is not trained
again. A file has a key, which names its kind and its path in the folder of that kind: "images/0001.jpg". A fingerprint
is the record of settings and inputs, with their hashes, that is kept with a splat.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from splatbatch.config import Recipe
from splatbatch.errors import SceneError
from splatbatch.files import MOST_JSON_BYTES, names_in, read_regular
from splatbatch.hashing import FileDifference, FileFact, FileFacts, Files, difference, short_hash
from splatbatch.output.records.fingerprint import MODEL, Fingerprint, is_content, photographs_of
from splatbatch.scene.partition.files import PATCH
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch, model_folder
from splatbatch.scene.photos.folders import DIVISORS

COPIES = tuple(divisor for divisor in DIVISORS.values() if divisor > 1)
"""Divisors of the folders images_2, images_4 and images_8 beside the photographs."""


@dataclass(frozen=True, eq=False)
class InputFiles:
    """The input files of a patch under a recipe, by their keys in fingerprints, as "sparse/images.bin"."""

    patch: Patch
    recipe: Recipe
    facts: FileFacts = field(default_factory=FileFacts)
    """Known hashes of files, and whether more may be read."""
    _folders: dict[str, str] = field(default_factory=dict)
    """Folder of each kind of files that was asked for."""

    def place(self, key: str) -> str:
        """Return the path of the file of a key; whether it exists is not checked.

        The folder of each kind is looked up once.
        """
        kind, _, rest = key.partition("/")
        if kind not in self._folders:
            self._folders[kind] = self._folder(kind)
        return self._folders[kind] if kind == "holdout" else f"{self._folders[kind]}/{rest}"

    def now(self) -> Fingerprint:
        """Return the files as they are now, and their hash, in an otherwise blank fingerprint; the model is read.

        The hash is of the model by content, the choice of hold-out, and photographs and masks by name and size. A
        missing file is recorded as missing, a missing one of the model left out. Of a broken model the photographs are
        left out, since the audit reports it.
        """
        from splatbatch.scene.colmap.reconstruction import read_images
        from splatbatch.scene.holdout import choose_holdout  # which loads numpy: `status` does without

        patch, facts, digest, files = self.patch, self.facts, hashlib.sha256(), Files()
        for name in MODEL_FILE_NAMES:
            path = f"{patch.sparse}/{name}"  # a string, not a path: thousands of patches have ten each
            if os.path.isfile(path):  # noqa: PTH113
                digest.update(name.encode())
                content = facts.sha256(path)
                digest.update(bytes.fromhex(content))
                files[f"sparse/{name}"] = facts.of(path)._replace(sha256=content)
        if patch.partition:
            with contextlib.suppress(OSError):  # a core that has moved is another patch, whatever its model holds
                digest.update(read_regular(Path(self.place(f"patch/{PATCH}")), MOST_JSON_BYTES))
        with contextlib.suppress(SceneError):  # a broken model is the audit's to report, and fails when it is trained
            digest.update("\0".join(choose_holdout(patch, self.recipe.evaluation)).encode())
            names = sorted(image.name for image in read_images(patch.sparse))
            photographs = [(name, f"images/{name}", f"{patch.images}/{name}") for name in names]
            for name, key, place in (*photographs, *self._masks(names)):
                fact = files[key] = facts.of(place)
                digest.update(f"{name}\0{fact.num_bytes}\0".encode())
            files |= {key: facts.of(self.place(key)) for keys in self._other_keys(names).values() for key in keys}
        return Fingerprint(inputs=digest.hexdigest()[:16], files=files)

    def known_now(self, then: Mapping[str, FileFact]) -> Files:
        """Return the recorded files as they are now, and new ones beside them; the model is not read.

        Args:
            then: recorded files by key; missing ones stay in the result, recorded as missing, but masks do not.
        """
        names = sorted(photographs_of(then))
        keys = [key for key in then if not key.startswith("masks/")]
        keys += [f"{MODEL}{name}" for name in MODEL_FILE_NAMES]
        keys += [f"{kind}/{name}" for kind in self._copies for name in names]
        found = {key: self.facts.of(self.place(key)) for key in keys}
        return found | {key: self.facts.of(mask) for _, key, mask in self._masks(names)}

    def list_moved(self, files: Mapping[str, FileFact]) -> tuple[str, ...]:
        """Return the keys of files whose size or time differs from the record, of missing ones, and of new model files.

        A kind of inputs that the record lacks is named without a path, as "masks". No content is read. Empty: no
        difference.
        """
        found = [key for key, fact in files.items() if self.facts.of(self.place(key))[:2] != fact[:2]]
        model = {f"{MODEL}{name}" for name in {*names_in(self.place(MODEL))}.intersection(MODEL_FILE_NAMES)}
        new = [key for key in sorted(model - files.keys()) if self.facts.of(self.place(key)).num_bytes >= 0]
        kinds = {key.partition("/")[0] for key in files}
        return (*found, *new, *(kind for kind in self._other_keys(()) if kind not in kinds))

    def compare(self, then: Mapping[str, FileFact], now: Mapping[str, FileFact]) -> FileDifference:
        """Return the differences of model, photographs and masks, by content where size or time differ.

        Files that may not be read are listed as such. Changes of lists and folders are left out; they show in the hash
        that `now` returns.

        Args:
            then: recorded files by key.
            now: present files by key.
        """
        before, after = ({key: fact for key, fact in files.items() if is_content(key)} for files in (then, now))
        return difference(before, after, self.place, self.facts)

    def _masks(self, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Yield for each mask the name of its photograph, the key of the mask, and its path."""
        from splatbatch.scene.photos.folders import find_masks

        for name, mask in sorted(find_masks(self.patch.masks, names).items()):
            yield name, f"masks/{mask.relative_to(self.patch.masks or '/').as_posix()}", str(mask)

    @cached_property
    def _copies(self) -> tuple[str, ...]:
        """Names of the folders of smaller photographs that may be trained from instead."""
        if self.recipe.training.resolution == "full" and self.patch.images.is_dir():
            return ()
        folders = (f"images_{divisor}" for divisor in COPIES)
        return tuple(kind for kind in folders if os.path.isdir(self._folder(kind)))  # noqa: PTH112

    def _other_keys(self, names: Sequence[str]) -> Mapping[str, Iterable[str]]:
        """Return the keys of all further inputs by kind, in the order of records.

        They are folders of masks, smaller photographs, the source, patch.json, and the list of the hold-out.
        """
        patch, is_cut = self.patch, self.patch.partition is not None
        folders = {f"masks/{PurePosixPath(name).parent}/".replace("/./", "/") for name in names}
        found: Mapping[str, Iterable[str] | None] = {
            "masks": folders if patch.masks is not None else None,
            **{kind: [f"{kind}/{name}" for name in names] for kind in self._copies},
            "source": ["source/images.bin", "source/images.txt"] if patch.source is not None and not is_cut else None,
            "patch": [f"patch/{PATCH}"] if is_cut else None,
            "holdout": ["holdout/list"] if self.recipe.evaluation.holdout_list is not None else None,
        }
        return {kind: keys for kind, keys in found.items() if keys is not None}

    def _folder(self, kind: str) -> str:
        patch = self.patch
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
                return str(self.recipe.evaluation.holdout_list or "")
            case _:
                return str(patch.images.with_name(kind.replace("images", patch.images.name, 1)))


def state_of(files: Mapping[str, FileFact]) -> str:
    """Return a hash of size and time of every file, in 16 hexadecimal digits; events record it as `inputs`.

    Args:
        files: files by key, in any order; a missing file counts with a size of its own.
    """
    text = "\0".join(f"{key} {fact.num_bytes} {fact.mtime_ns}" for key, fact in sorted(files.items()))
    return short_hash(text)
