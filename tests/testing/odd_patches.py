"""Small patches whose photographs are no 8-bit pictures of one pinhole: bent by lenses, deeper, taken by a rig."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scenes import MadeScene

from splatbatch.scene.colmap.rigs import Rig, RigFrame, Rigs, frames_bytes, rigs_bytes
from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.undistort import undistorted_rays

WIDTH, HEIGHT, DEPTH = 32, 24, 3.0
FORWARD = (1.0, 0.0, 0.0, 0.0)
PINHOLE = Camera(1, "PINHOLE", WIDTH, HEIGHT, (30.0, 30.0, 16.0, 12.0))
BARREL = Camera(1, "OPENCV", WIDTH, HEIGHT, (30.0, 30.0, 16.0, 12.0, -0.1, 0.02, 0.002, -0.001))
CUSHION = Camera(2, "OPENCV", WIDTH, HEIGHT, (31.0, 29.0, 15.5, 12.5, 0.08, 0.0, 0.0, 0.001))
REEF = Camera(1, "OPENCV_FISHEYE", WIDTH, HEIGHT, (22.0, 22.0, 16.0, 12.0, 0.03, 0.005, -0.002, 0.0003))
RIGHT = Camera(2, "PINHOLE", WIDTH, HEIGHT, PINHOLE.params)
CAMERAS = {
    "distorted": [BARREL],
    "two_lenses": [BARREL, CUSHION],
    "fisheye": [REEF],
    "16_bits": [PINHOLE],
    "16_bits_of_grey": [PINHOLE],
    "see_through": [PINHOLE],
    "stereo_rig": [PINHOLE, RIGHT],
}
KINDS = tuple(CAMERAS)
BASELINE = 0.15
_COLORS = {1: 0, 3: 2, 4: 6}  # by channels: PNG 1.2, table in 4.1.1


def odd_patch(root: Path, kind: str) -> Patch:
    """Return a patch of a wavy plane whose photographs are taken in a row."""
    grid = np.stack(np.meshgrid(np.linspace(-1.3, 1.7, 8), np.linspace(-1, 1, 6)), -1).reshape(-1, 2)
    xyz = np.concatenate([grid, np.full((len(grid), 1), DEPTH)], axis=1)
    made = MadeScene(root, CAMERAS[kind], _pairs() if kind == "stereo_rig" else _row(len(CAMERAS[kind])), xyz)
    made.write_model()
    for image in made.images:
        path = made.photographs / image.name
        path.parent.mkdir(parents=True, exist_ok=True)
        shares = _painted(made, image)
        if kind == "see_through":
            shares = np.dstack([shares, np.linspace(0, 1, shares[..., 0].size).reshape(HEIGHT, WIDTH)])
        path.write_bytes(png(shares[..., :1] if kind.endswith("grey") else shares, is_deep=kind.startswith("16")))
    if kind == "stereo_rig":
        _write_rig(made.sparse)
    return made.patch()


def _row(num_cameras: int) -> list[Image]:
    return [Image(i + 1, f"img{i}.png", i % num_cameras + 1, FORWARD, (-0.1 * i, 0.0, 0.0)) for i in range(9)]


def _pairs() -> list[Image]:
    """Return what the two cameras of a rig took at five moments; images of one moment are 2 n - 1 and 2 n."""
    return [
        Image(2 * moment + eye, f"{side}/{moment}.png", eye, FORWARD, (-0.2 * moment - BASELINE * (eye - 1), 0.0, 0.0))
        for moment in range(1, 6)
        for eye, side in ((1, "left"), (2, "right"))
    ]


def _write_rig(sparse: Path) -> None:
    rig = Rig(1, (((0, 1), None), ((0, 2), (*FORWARD, -BASELINE, 0.0, 0.0))))
    frames = [
        RigFrame(moment, 1, (*FORWARD, -0.2 * moment, 0.0, 0.0), ((0, 1, 2 * moment + 1), (0, 2, 2 * moment + 2)))
        for moment in range(1, 6)
    ]
    rigs = Rigs((rig,), tuple(frames))
    (sparse / "rigs.bin").write_bytes(rigs_bytes(rigs))
    (sparse / "frames.bin").write_bytes(frames_bytes(rigs))


def _painted(made: MadeScene, image: Image) -> NDArray[np.float64]:
    """Return what an image shows, 0 to 1, [H, W, 3]: of each pixel the place on the plane that its ray meets."""
    camera = next(one for one in made.cameras if one.id == image.camera_id)
    pixels = np.stack(np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5), -1).reshape(-1, 2)
    x, y = (undistorted_rays(camera, pixels) * DEPTH - image.translation[:2]).T
    waves = np.stack([np.sin(2 * x), np.cos(2 * y), np.sin(x + y)], axis=-1)
    return (0.5 + 0.4 * waves).reshape(HEIGHT, WIDTH, 3)


def png(shares: NDArray[np.float64], *, is_deep: bool) -> bytes:
    """Return a PNG of 8 or 16 bits a channel, which Pillow cannot write in colours (PNG 1.2, chapters 3 and 4).

    Its shares [H, W, C] are grey, colours, or colours and opacity.
    """
    rows = (shares * (65535 if is_deep else 255)).round().astype(">u2" if is_deep else "u1").reshape(HEIGHT, -1)
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16 if is_deep else 8, _COLORS[shares.shape[2]], 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    chunks = [(b"IHDR", head), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )
