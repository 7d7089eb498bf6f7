"""Which photographs of a scene are held out in every patch: chosen once, kept when photographs are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.sightings import Mask, Sightings
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.partition.record import Partition

EVERY = 8


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
