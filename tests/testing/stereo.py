"""Made-up photographs of a stereo rig that flies on in steps of 0.1, its eyes 0.04 apart, with their models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from fake_batch import FakeBatch, write_photos
from scenes import MadeScene, pinhole

from splatbatch.scene.colmap.rigs import CAMERA, Rig, RigFrame, Rigs, frames_bytes, rigs_bytes
from splatbatch.scene.colmap.types import Image

EYES = ("left", "right")
STEP, BASELINE = 0.1, 0.04
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
NAMES: dict[str, Callable[[str, int], str]] = {
    "rigs": lambda eye, moment: f"{eye[0] * 2}{moment:02d}.png",
    "folders": lambda eye, moment: f"{'AB'[eye == 'right']}/{moment:04d}.png",
    "words": lambda eye, moment: f"IMG_{moment:04d}_{eye}.png",
}
"""What tells that two photographs are of one moment; with rigs the names say nothing."""


def image(number: int, name: str, place: Sequence[float], camera: int = 1) -> Image:
    """Return a photograph that was taken at a place [3], looking along z."""
    x, y, z = (-float(one) for one in place)
    return Image(number, name, camera, UPRIGHT, (x, y, z))


def stereo(kind: str = "folders", num: int = 20) -> list[Image]:
    """Return `num` photographs of each eye."""
    return [
        image(1 + 2 * moment + side, NAMES[kind](eye, moment), (STEP * moment, BASELINE * side, 0), 1 + side)
        for moment in range(num)
        for side, eye in enumerate(EYES)
    ]


def rigs_of_two(images: Sequence[Image]) -> Rigs:
    """Return the rig of such photographs, and its frames."""
    across = (*UPRIGHT, 0.0, -BASELINE, 0.0)
    rig = Rig(1, (((CAMERA, 1), None), ((CAMERA, 2), across)))
    pairs = zip(images[::2], images[1::2], strict=True)
    frames = [
        RigFrame(number, 1, (*left.quat, *left.translation), ((CAMERA, 1, left.id), (CAMERA, 2, right.id)))
        for number, (left, right) in enumerate(pairs, start=1)
    ]
    return Rigs((rig,), tuple(frames))


def write_stereo(folder: Path, kind: str, images: Sequence[Image] | None = None) -> list[Image]:
    """Write sparse/0 of a folder; a rig has its two files if it is of that kind."""
    images = stereo(kind) if images is None else list(images)
    points = np.random.default_rng(1).uniform((-0.5, -1, 3), (2.5, 1, 4), (200, 3))
    made = MadeScene(folder, [pinhole(1), pinhole(2)], images, points)
    made.write_model()
    if kind == "rigs":
        (made.sparse / "rigs.bin").write_bytes(rigs_bytes(rigs_of_two(images)))
        (made.sparse / "frames.bin").write_bytes(frames_bytes(rigs_of_two(images)))
    return images


def stereo_batch(folder: Path, kind: str) -> FakeBatch:
    """Return a batch whose source is such a scene of 20 + 20, with its photographs; it has no patches yet."""
    batch = FakeBatch(folder).make(scene={"source": "."})
    images = write_stereo(folder, kind)
    write_photos(folder / "images", [one.name for one in images], (96, 72))
    return batch


def twins_trained_on(names: Sequence[str], held_out: set[str], images: Sequence[Image]) -> list[str]:
    """Return which photographs that are held out have their twin among `names`, that are not."""
    twin = dict(zip([one.name for one in images[::2]], [one.name for one in images[1::2]], strict=True))
    twin |= {other: one for one, other in twin.items()}
    return sorted(name for name in held_out if twin[name] in set(names) - held_out)
