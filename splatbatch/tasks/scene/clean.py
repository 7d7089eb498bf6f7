"""Cleaning of the patches of a merged scene, by the cameras of all patches and the points around each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from splatbatch.config import Offset
from splatbatch.hashing import FileFacts, short_hash
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images, read_reconstruction
from splatbatch.scene.colmap.types import Floats, Mask
from splatbatch.scene.partition.record import Partition
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch
from splatbatch.splats.clean import IN_WORDS, CleaningViews, PatchRules, faint, views_of
from splatbatch.splats.merge import Removed
from splatbatch.splats.ply import FloatArray


class CleaningRules:
    """Tells which Gaussians cleaning removes from each patch of a scene; it holds one model at a time in memory."""

    def __init__(self, partition: Partition, patches: Sequence[Patch], offset: Offset) -> None:
        """Take all patches of a batch, also those not merged, since the cameras of all count.

        The model files of all patches are hashed here; the models are read by `removed`.

        Args:
            partition: partition of the scene.
            patches: all patches; the backdrop among them is ignored.
            offset: offset of the splats.
        """
        self._partition, self._offset = partition, offset
        self._patches = {patch.name: patch for patch in patches if not patch.is_whole}
        self._last: tuple[str, Removed] | None = None
        files, facts = [(patch, name) for patch in self._patches.values() for name in MODEL_FILE_NAMES], FileFacts()
        contents = {f"{patch.name}/{name}": facts.sha256(f"{patch.sparse}/{name}") for patch, name in files}
        self.key = short_hash(json.dumps([dict(IN_WORDS), contents, partition.axes, offset]))
        """Hash of all inputs of the cleaning except the Gaussians; it is part of the key of a merge."""

    def removed(self, name: str, rows: FloatArray) -> Mapping[str, Mask]:
        """Return which Gaussians of a patch, or of the backdrop, cleaning removes: by rule, a mask of bool [N].

        The rules of the latest patch are kept in memory, so that blocks of rows of the same patch should follow each
        other.

        Args:
            name: name of the patch; for the backdrop, or without cameras, only the rule for faint Gaussians holds.
            rows: Gaussians as float32 rows of a splat file, [N, number of properties].

        Raises:
            SceneError: a model cannot be read.
        """
        if name not in self._patches:
            return faint(rows)
        if self._last is None or self._last[0] != name:
            self._last = None  # before the next are read
            own = self._views([self._patches[name]])
            own_rules = PatchRules(self._everyone, own, self._points_around(name)) if len(own) else None
            self._last = (name, own_rules.removed if own_rules else faint)
        return self._last[1](rows)

    @cached_property
    def _everyone(self) -> CleaningViews:
        """Cameras of all patches."""
        return self._views(self._patches.values())

    def _points_around(self, name: str) -> Floats:
        """Return the points of a patch and of its neighbours, since the nearest points may be of a neighbour."""
        here, found = self._partition.core(name), []
        for other, patch in self._patches.items():
            core = self._partition.core(other)
            if here and core and core.grown.meets(here.grown):
                points: Floats = read_reconstruction(patch.sparse).points.xyz - np.array(self._offset)
                found.append(points[np.isfinite(points).all(axis=1)])
        return np.concatenate(found)

    def _views(self, patches: Iterable[Patch]) -> CleaningViews:
        """Return the cameras of patches, each photograph once."""
        known: set[str] = set()
        found = []
        for patch in patches:
            images = [image for image in read_images(patch.sparse) if image.name not in known]
            known.update(image.name for image in images)
            found.append(views_of(images, read_cameras(patch.sparse), self._offset))
        return CleaningViews.of_all(found)
