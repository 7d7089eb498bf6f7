"""The colours of photographs at their keypoints: each decoded once, small, in threads, and remembered."""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.files import open_regular, write_whole
from splatbatch.scene.colmap.types import Floats, Ints
from splatbatch.scene.colors.observations import Shot
from splatbatch.scene.photos.folders import MASK_COUNTS
from splatbatch.scene.photos.headers import DEEP_MODES, opened_photograph

Samples = NDArray[np.uint16]
"""[N, 3], 256 times the mean of the pixels around each keypoint; 0: left out, as masked, dark or clipped."""

LONG_SIDE_PX = 640
"""Photographs are decoded no smaller than this, if they are as large: a JPEG's own halves, quarters and eighths."""
DARKEST, BRIGHTEST = 8, 243
"""Of 255: what is darker is noise and rounding, what is brighter may be clipped."""
STRETCH = 0.02
"""The sides of a photograph may be scaled by factors this much apart: rounding; more is another shape."""
SCALE = 256
_DOWN, _RIGHT = (one.ravel() for one in np.mgrid[-2:3, -2:3])  # a JPEG smears the colours of clipped pixels so far
_NEAR = (np.abs(_DOWN) <= 1) & (np.abs(_RIGHT) <= 1)
_VERSION = "1"  # raise it when pixels are sampled differently


class SampleCache:
    """The samples of photographs, kept until a file's size or time, its mask or its keypoints change.

    A cache that is corrupt is ignored, and one that cannot be written is no error.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known = _load(path)
        self._used: dict[str, Samples] = {}

    def read(self, shots: Iterable[Shot]) -> tuple[dict[str, Samples], dict[str, str]]:
        """Return the samples of photographs by name, and why some have none."""
        found: dict[str, Samples] = {}
        problems: dict[str, str] = {}
        shots = tuple(shots)
        with warnings.catch_warnings(), ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
            warnings.simplefilter("ignore")  # Pillow's: what matters about a file becomes its problem
            for shot, samples in zip(shots, pool.map(self._read, shots), strict=True):
                if isinstance(samples, str):
                    problems[shot.name] = samples
                else:
                    found[shot.name] = samples
        return found, problems

    def _read(self, shot: Shot) -> Samples | str:
        try:
            key = _key(shot)
            samples = self._known.get(key)
            if samples is None or len(samples) != len(shot.xy):
                samples = sample(shot)
        except FileNotFoundError:
            return "missing"
        except Unlike as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - Pillow's plug-ins raise whatever the bytes lead them to
            return f"cannot be decoded ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        self._used[key] = samples
        return samples

    def keep(self) -> None:
        """Write what was used, if it is not what is there."""
        if self._path and self._used and self._used.keys() != self._known.keys():
            keys, lists = list(self._used), list(self._used.values())
            lengths = np.array([len(one) for one in lists], np.int64)
            with contextlib.suppress(OSError, ValueError):
                arrays: Mapping[str, Any] = {
                    "keys": np.array(keys),
                    "lengths": lengths,
                    "samples": np.concatenate(lists),
                }
                write_whole(self._path, lambda file: np.savez(file, **arrays))


class Unlike(Exception):
    """A photograph cannot be held against its keypoints, and why."""


def sample(shot: Shot) -> Samples:
    """Return the mean of the 3 x 3 pixels around each keypoint of a photograph.

    Raises:
        OSError: it cannot be read or decoded, or its mask cannot.
        Unlike: it has not its camera's shape, or more than 8 bits.
    """
    pixels = _decode(shot)
    size = np.array([pixels.shape[1], pixels.shape[0]])
    places = np.floor(shot.xy * (size / (shot.camera.width, shot.camera.height)))
    is_inside = np.all((places >= 0) & (places < size), axis=1)
    x, y = np.where(is_inside[:, None], places, 0).astype(np.int64).T
    rows, columns = (
        np.clip(one + around[:, None], 0, most - 1) for one, around, most in ((y, _DOWN, size[1]), (x, _RIGHT, size[0]))
    )
    found = np.take(pixels.reshape(-1, 3), rows * size[0] + columns, axis=0)  # [25, N, 3]
    near = found[_NEAR]
    counts = is_inside & (near.min(axis=0).min(axis=1) >= DARKEST) & (found.max(axis=0).max(axis=1) <= BRIGHTEST)
    if shot.mask is not None:
        counts &= _unmasked(shot.mask, np.stack([columns, rows], axis=2)[_NEAR] + 0.5, size)
    return np.where(counts[:, None], near.sum(axis=0, dtype=np.uint32) * SCALE // 9, 0).astype(np.uint16)


def _decode(shot: Shot) -> NDArray[np.uint8]:
    with opened_photograph(shot.path) as file:
        ratio = (file.size[0] / shot.camera.width, file.size[1] / shot.camera.height)
        if abs(ratio[0] / ratio[1] - 1) > STRETCH and max(abs(file.size[0] / ratio[1] - shot.camera.width), 0) > 1:
            raise Unlike(f"{file.size[0]}x{file.size[1]} pixels, another shape than its camera's")
        if file.mode in DEEP_MODES:
            raise Unlike(f"more than 8 bits per channel ({file.mode})")
        share = LONG_SIDE_PX / max(file.size)
        if share < 1:
            file.draft("RGB", (int(file.size[0] * share), int(file.size[1] * share)))
        return np.asarray(file.convert("RGB"))


def _unmasked(path: Path, places: Floats, size: Ints) -> NDArray[np.bool_]:
    """Return whether a mask lets all the pixels [9, N, 2] around a keypoint count, of a photograph of this size."""
    with opened_photograph(path) as file:
        mask = np.asarray(file.convert("L"))
    x, y = np.moveaxis((places / size * (mask.shape[1], mask.shape[0])).astype(np.int64), 2, 0)
    return (mask[y, x] >= MASK_COUNTS).all(axis=0)


def _key(shot: Shot) -> str:
    """Return what a photograph's samples depend on, as a hash; OSError: it is not there."""
    stats = [os.stat(path) for path in (shot.path, shot.mask) if path]  # noqa: PTH116 - as the cache of headers does
    facts = [(one.st_size, one.st_mtime_ns) for one in stats]
    told = f"{_VERSION} {shot.path} {facts} {shot.camera.width}x{shot.camera.height}".encode(errors="surrogateescape")
    return hashlib.sha256(told + np.ascontiguousarray(shot.xy).tobytes()).hexdigest()[:32]


def _load(path: Path | None) -> dict[str, Samples]:
    if path is None:
        return {}
    try:
        with open_regular(path) as kept, np.load(kept, allow_pickle=False) as file:
            keys, lengths, samples = (file[name] for name in ("keys", "lengths", "samples"))
            parts = np.split(samples.astype(np.uint16).reshape(-1, 3), np.cumsum(lengths)[:-1])
            return dict(zip(keys.tolist(), parts, strict=True))
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return {}
