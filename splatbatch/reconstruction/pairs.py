"""Chooses the pairs of photographs to match: nearest by GPS, next in sequence and similar in appearance, or all pairs.

By GPS and by sequence the number of pairs grows linearly with the number of photographs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from splatbatch.groups import grouped
from splatbatch.reconstruction.photographs import in_meters
from splatbatch.reconstruction.plan import ALIKE, NEIGHBOURS, WINDOW, ReconstructionPlan

Pair = tuple[int, int]
"""Two photographs, as indices into the plan's photographs."""
Descriptors = NDArray[np.float32]
WORDS, SAMPLE, ROUNDS = 64, 40_000, 8
"""Most visual words, most descriptors that the words are found from, and number of iterations of k-means for them.

Of more than SAMPLE photographs, one descriptor each is taken.
"""
NEXT = 2
"""Number of next photographs in sequence that are paired in addition to those nearest by GPS.

A GPS position may be wrong.
"""
_BLOCK = 512


def pairs_of(plan: ReconstructionPlan, descriptors: Iterable[Descriptors] = ()) -> list[Pair]:
    """Return the pairs of photographs to match, sorted, each pair once.

    A pair is two indices into the plan's photographs, the smaller first.

    Args:
        plan: the photographs, and how pairs are chosen.
        descriptors: descriptors of each photograph, [n, 128], in the order of the plan. They are not read if all
            pairs are matched, or if pairs are chosen by GPS and every photograph has a position. Empty: no pair is
            chosen by appearance.
    """
    n = len(plan.photographs)
    if plan.pairing == "all":
        return list(combinations(range(n), 2))
    found = set[Pair]()
    placed = [place for place, one in enumerate(plan.photographs) if one.place is not None]
    lonely = list(range(n))
    if plan.pairing == "gps":
        found |= set(_near(plan, placed))
        found |= set(_following(plan, NEXT, [1]))
        lonely = [place for place in range(n) if plan.photographs[place].place is None]
    if lonely:
        asked = set(lonely)
        following = _following(plan, WINDOW // 2, [2**power for power in range(3, 3 + WINDOW // 2)])
        found |= {pair for pair in following if asked & set(pair)}
        if known := list(descriptors):
            found |= set(_alike(known, lonely))
    return sorted(found)


def _ordered(pairs: Iterable[tuple[int, int]]) -> Iterator[Pair]:
    return ((min(a, b), max(a, b)) for a, b in pairs if a != b)


def _near(plan: ReconstructionPlan, placed: Sequence[int]) -> Iterator[Pair]:
    """Yield pairs of each photograph with its nearest by GPS; horizontally, since altitudes drift."""
    from scipy.spatial import cKDTree

    where = in_meters([one.place for one in plan.photographs if one.place is not None])[:, :2]
    _, nearest = cKDTree(where).query(where, min(NEIGHBOURS + 1, len(placed)))
    return _ordered((placed[one], placed[other]) for one, row in enumerate(nearest) for other in row)


def _following(plan: ReconstructionPlan, window: int, further: Sequence[int]) -> set[Pair]:
    """Return pairs of each photograph with later ones in its folder.

    In a rig also with the photographs taken at the same time, and at the next.

    Args:
        plan: the photographs in order, and the rig.
        window: number of following photographs.
        further: further distances in the sequence.
    """
    found, sequences = set[Pair](), dict[str, list[int]]()
    for place, one in enumerate(plan.photographs):
        folder = plan.frame_of(one.name)[0] or one.name.rpartition("/")[0]
        sequences.setdefault(folder, []).append(place)
    steps = sorted({*range(1, window + 1), *further})
    for sequence in sequences.values():
        for start, step in ((start, step) for start in range(len(sequence)) for step in steps):
            if start + step < len(sequence):
                found.add((sequence[start], sequence[start + step]))
    rigged = enumerate(plan.photographs if plan.wanted.rig else ())
    frames = grouped((plan.frame_of(one.name)[1], place) for place, one in rigged)
    in_turn = [*frames.values()]
    for place, here in enumerate(in_turn):
        after = in_turn[place + 1] if place + 1 < len(in_turn) else []
        found |= set(combinations([*here, *after], 2))
    return set(_ordered(found))


def _alike(descriptors: Sequence[Descriptors], asked: Sequence[int]) -> Iterator[Pair]:
    """Yield pairs of each photograph in `asked` with the ALIKE photographs most similar to it."""
    vectors = likeness(descriptors)
    for start in range(0, len(asked), _BLOCK):
        block = list(asked[start : start + _BLOCK])
        products = vectors[block] @ vectors.T
        products[np.arange(len(block)), block] = -np.inf
        best = np.argsort(-products, axis=1)[:, : min(ALIKE, len(vectors) - 1)]
        yield from _ordered((one, int(other)) for one, row in zip(block, best, strict=True) for other in row)


def likeness(descriptors: Sequence[Descriptors]) -> NDArray[np.float32]:
    """Return a vector of length 1 for each photograph, [n, d]; vectors of similar photographs have a large dot product.

    A photograph without descriptors has a vector of zeros; d is 1 if no photograph has descriptors.

    VLAD (Jegou et al. 2010, "Aggregating local descriptors into a compact image representation") with the signed square
    root and per-word normalisation of Arandjelovic and Zisserman 2013 ("All about VLAD"). The visual words come from
    these descriptors, not from a vocabulary.

    Args:
        descriptors: descriptors of each photograph, [number of features, 128].
    """
    random = np.random.default_rng(0)
    share = max(1, SAMPLE // max(1, len(descriptors)))
    sample = [one[random.permutation(len(one))[:share]] for one in descriptors if len(one)]
    if not sample:
        return np.zeros((len(descriptors), 1), np.float32)
    pool = np.concatenate(sample)
    words = pool[random.permutation(len(pool))[:WORDS]]
    for _ in range(ROUNDS):
        nearest = _nearest(pool, words)
        words = np.stack(
            [pool[nearest == k].mean(axis=0) if (nearest == k).any() else words[k] for k in range(len(words))]
        )
    found = np.zeros((len(descriptors), len(words), 128), np.float32)
    for place, one in enumerate(descriptors):
        if len(one):
            nearest = _nearest(one, words)
            np.add.at(found[place], nearest, one - words[nearest])
    found = np.sign(found) * np.sqrt(np.abs(found))
    found /= np.linalg.norm(found, axis=2, keepdims=True) + 1e-9
    flat = found.reshape(len(descriptors), -1)
    return np.asarray(flat / (np.linalg.norm(flat, axis=1, keepdims=True) + 1e-9), np.float32)


def _nearest(vectors: Descriptors, words: Descriptors) -> NDArray[np.intp]:
    return np.asarray(np.argmin((words**2).sum(axis=1) - 2 * vectors @ words.T, axis=1), np.intp)
