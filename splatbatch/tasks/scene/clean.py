"""What cleaning goes by: the cameras of all patches, and for each the points around it; read patch by patch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from splatbatch.config import Offset
from splatbatch.hashing import FileFacts, short_hash
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images, read_reconstruction
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.partition.record import Partition
from splatbatch.scene.patches import MODEL_FILE_NAMES, Patch
from splatbatch.splats.clean import IN_WORDS, CleaningViews, FaintRule, PatchRules, views_of
from splatbatch.splats.merge import Mask, MergeRules
from splatbatch.splats.ply import FloatArray


class CleaningRules:
    """Makes the rules for each patch of a scene; of models, one at a time is held."""

    def __init__(self, partition: Partition, patches: Sequence[Patch], offset: Offset) -> None:
        """Take the patches of a batch, merged or not: what any of them has photographed counts."""
        self._partition, self._offset = partition, offset
        self._patches = {patch.name: patch for patch in patches if not patch.is_whole}
        self._last: tuple[str, MergeRules] | None = None
        files, facts = [(patch, name) for patch in self._patches.values() for name in MODEL_FILE_NAMES], FileFacts()
        contents = {f"{patch.name}/{name}": facts.sha256(f"{patch.sparse}/{name}") for patch, name in files}
        self.key = short_hash(json.dumps([dict(IN_WORDS), contents, partition.axes, offset]))
        """Hash of all that decides what is removed, but for the Gaussians."""

    def rules(self, name: str) -> MergeRules:
        """Return the rules for a patch, or for the whole scene; what they go by is read once they are asked."""
        return _OnDemand(self, name) if name in self._patches else FaintRule()

    def of_patch(self, name: str) -> MergeRules:
        """Return the rules for a patch with what they go by; the latest are kept, and no others.

        Raises:
            SceneError: a model cannot be read.
        """
        if self._last is None or self._last[0] != name:
            self._last = None  # before the next are read
            own = self._views([self._patches[name]])
            rules: MergeRules = FaintRule()
            if len(own):
                points = np.concatenate([self._points(patch) for patch in self._around(name)])
                rules = PatchRules(self._everyone, own, points)
            self._last = (name, rules)
        return self._last[1]

    @cached_property
    def _everyone(self) -> CleaningViews:
        """The cameras of all patches."""
        return self._views(self._patches.values())

    def _around(self, name: str) -> list[Patch]:
        """Return a patch and those that share some of its surroundings: the nearest point may be a neighbour's."""
        here = self._partition.core(name)
        cores = {other: self._partition.core(other) for other in self._patches}
        return [self._patches[other] for other, core in cores.items() if here and core and core.grown.meets(here.grown)]

    def _views(self, patches: Iterable[Patch]) -> CleaningViews:
        """Return the cameras of patches, each photograph once."""
        known: set[str] = set()
        found = []
        for patch in patches:
            images = [image for image in read_images(patch.sparse) if image.name not in known]
            known.update(image.name for image in images)
            found.append(views_of(images, read_cameras(patch.sparse), self._offset))
        return CleaningViews.of_all(found)

    def _points(self, patch: Patch) -> Floats:
        points: Floats = read_reconstruction(patch.sparse).points.xyz - np.array(self._offset)
        return points[np.isfinite(points).all(axis=1)]


@dataclass(frozen=True)
class _OnDemand:
    """The rules for a patch, which are not held while other patches are cleaned."""

    cleaning: CleaningRules
    name: str

    def removed(self, rows: FloatArray) -> Mapping[str, Mask]:
        return self.cleaning.of_patch(self.name).removed(rows)
