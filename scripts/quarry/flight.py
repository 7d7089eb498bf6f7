"""The stereo rig and its path: two unlike PINHOLE cameras, 16 positions, x east, y north, z up, metres."""

from dataclasses import dataclass

import numpy as np

from quarry.noise import Floats

WIDTH_PX, HEIGHT_PX = 320, 240
OVERSIZE = 4  # pictures are rendered and matched this much larger
BASELINE_M = 1.2
HALF_LINE_M = 16.0
EYES = {  # fx, fy, cx, cy of the small pictures, in pixels
    "left": (301.2, 300.6, 161.4, 118.9),
    "right": (268.3, 268.9, 157.7, 121.6),
}


@dataclass(frozen=True)
class View:
    """One picture to take: its name, intrinsics (px, of the large picture) and pose."""

    name: str  # "left/0001.jpg"
    params: tuple[float, float, float, float]
    centre: Floats  # [3] metres
    world_from_cam: Floats  # [3, 3]: columns right, down, forward

    def directions(self, rows: slice) -> Floats:
        """Return the unit rays [k, 3] through the pixel centres of some rows."""
        fx, fy, cx, cy = self.params
        u = (np.arange(WIDTH_PX * OVERSIZE) + 0.5 - cx) / fx
        v = (np.arange(rows.start, rows.stop) + 0.5 - cy) / fy
        rays = np.stack([*np.meshgrid(u, v), np.ones((len(v), len(u)))], -1).reshape(-1, 3)
        rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
        return (rays @ self.world_from_cam.T).astype(np.float32)


def right_from_left() -> tuple[np.ndarray, np.ndarray]:
    """Return rotation [3, 3] and translation [3] (metres) from left to right camera: toe-in and a little roll."""
    rotation = _about(1, np.radians(1.5)) @ _about(2, np.radians(0.4))
    return rotation, -rotation @ np.array([BASELINE_M, 0.0, 0.0])


def plan(seed: int) -> list[View]:
    """Return 32 views: two lines of eight positions, flown there and back, looking north and down."""
    rng = np.random.default_rng(seed)
    rotation, translation = right_from_left()
    views = []
    for number in range(16):
        centre, world_from_left = _position(number, rng)
        right_centre = centre - world_from_left @ rotation.T @ translation
        # counted from the middle of the first line: every eighth picture, held out, then lies inside the flight
        name = f"{(number - 3) % 16 + 1:04d}.jpg"
        views.append(_view(f"left/{name}", centre, world_from_left))
        views.append(_view(f"right/{name}", right_centre, world_from_left @ rotation.T))
    return sorted(views, key=lambda view: view.name)


def large_params(eye: str) -> tuple[float, float, float, float]:
    """Return an eye's intrinsics in pixels of the large picture."""
    fx, fy, cx, cy = (value * OVERSIZE for value in EYES[eye])
    return fx, fy, cx, cy


def _position(number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    along = (number % 8) / 7 * 2 - 1
    line = number // 8
    east = (along if line == 0 else -along) * HALF_LINE_M
    centre = np.array([east, (-27.0, -14.0)[line], (23.0, 26.0)[line]]) + rng.normal(0, 0.35, 3)
    yaw = -east * 0.012 + rng.normal(0, 0.02)  # turned a little towards the middle
    down = np.radians((50.0, 58.0)[line]) + rng.normal(0, 0.012)
    forward = np.array([np.sin(yaw) * np.cos(down), np.cos(yaw) * np.cos(down), -np.sin(down)])
    right = np.array([np.cos(yaw), -np.sin(yaw), 0.0])
    level = np.stack([right, np.cross(forward, right), forward], 1)
    return centre, level @ _about(2, rng.normal(0, 0.02))


def _view(name: str, centre: np.ndarray, world_from_cam: np.ndarray) -> View:
    params = large_params(name.partition("/")[0])
    return View(name, params, centre.astype(np.float32), world_from_cam.astype(np.float32))


def _about(axis: int, angle: float) -> np.ndarray:
    """Return the rotation [3, 3] about a coordinate axis, in radians."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    turn = np.eye(3)
    turn[i, i] = turn[j, j] = np.cos(angle)
    turn[j, i], turn[i, j] = np.sin(angle), -np.sin(angle)
    return turn
