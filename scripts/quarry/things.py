"""What people left in the quarry: boxes and cylinders, met by rays analytically."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from quarry.noise import Floats
from quarry.terrain import Terrain

Finish = Literal["steel", "corrugated", "stone", "concrete"]
Shape = Literal["box", "cylinder"]


@dataclass(frozen=True)
class Thing:
    """A box, or a cylinder along its third axis; metres, axes in the rows of `frame`."""

    shape: Shape
    centre: Floats  # [3]
    frame: Floats  # [3, 3], world to local
    half: Floats  # [3] half sizes; of a cylinder (radius, radius, half length)
    colour: tuple[float, float, float]  # linear albedo
    finish: Finish = "steel"

    @property
    def reach_m(self) -> float:
        """Radius of the sphere around the thing."""
        return float(np.linalg.norm(self.half))

    def hit(self, origins: Floats, directions: Floats) -> tuple[Floats, Floats]:
        """Return the distance [k] where each ray enters (inf: never) and the world normal [k, 3] there."""
        local_o = (origins - self.centre) @ self.frame.T
        local_d = directions @ self.frame.T
        t, normal = (_hit_box if self.shape == "box" else _hit_cylinder)(local_o, local_d, self.half)
        return np.where(t > 1e-3, t, np.inf).astype(np.float32), normal @ self.frame

    def near_rays(self, origins: Floats, directions: Floats) -> np.ndarray:
        """Return the indices of the rays that pass within `reach_m`; directions are unit vectors."""
        to_centre = self.centre - origins
        along = np.einsum("ij,ij->i", to_centre, directions)
        apart = np.einsum("ij,ij->i", to_centre, to_centre) - along**2
        return np.nonzero(apart < self.reach_m**2)[0]

    def gap(self, points: Floats) -> Floats:
        """Return the distance [k] in metres from points to the thing's box (0 inside)."""
        outside = np.abs((points - self.centre) @ self.frame.T) - self.half
        return np.linalg.norm(np.maximum(outside, 0), axis=-1)


def _hit_box(o: Floats, d: Floats, half: Floats) -> tuple[Floats, Floats]:
    inverse = 1 / np.where(np.abs(d) < 1e-9, 1e-9, d)
    entry = -o * inverse - np.abs(inverse) * half
    leave = -o * inverse + np.abs(inverse) * half
    axis = entry.argmax(-1)
    t = entry.max(-1)
    normal = np.zeros_like(o)
    rows = np.arange(len(o))
    normal[rows, axis] = -np.sign(d[rows, axis])
    return np.where(t < leave.min(-1), t, np.inf), normal


def _hit_cylinder(o: Floats, d: Floats, half: Floats) -> tuple[Floats, Floats]:
    radius, length = half[0], half[2]
    a = np.maximum(d[:, 0] ** 2 + d[:, 1] ** 2, 1e-12)
    b = o[:, 0] * d[:, 0] + o[:, 1] * d[:, 1]
    root = b * b - a * (o[:, 0] ** 2 + o[:, 1] ** 2 - radius**2)
    t_side = (-b - np.sqrt(np.maximum(root, 0))) / a
    side = (root > 0) & (np.abs(o[:, 2] + t_side * d[:, 2]) < length)
    dz = np.where(np.abs(d[:, 2]) < 1e-9, 1e-9, d[:, 2])
    t_cap = (-np.sign(dz) * length - o[:, 2]) / dz
    cap = np.hypot(o[:, 0] + t_cap * d[:, 0], o[:, 1] + t_cap * d[:, 1]) < radius
    t = np.where(side, t_side, np.where(cap, t_cap, np.inf))
    reach = np.where(np.isfinite(t), t, 0)[:, None]
    round_normal = (o + reach * d) * np.array([1, 1, 0], np.float32) / radius
    cap_normal = -np.sign(dz)[:, None] * np.array([0, 0, 1], np.float32)
    return t, np.where(side[:, None], round_normal, cap_normal)


def furnish(land: Terrain, seed: int) -> list[Thing]:
    """Return the things, each standing on the ground."""
    rng = np.random.default_rng(seed)
    return [*_containers(land), *_pipes(land), *_blocks(land, rng), *_plant(land)]


def _containers(land: Terrain) -> list[Thing]:
    places = (
        (-15.5, 0.5, 0.35, (0.42, 0.09, 0.06)),
        (-14.2, 3.4, 0.28, (0.07, 0.17, 0.30)),
        (8.5, -8.5, -1.15, (0.50, 0.30, 0.06)),
        (18.0, -6.5, 1.35, (0.10, 0.26, 0.18)),
    )
    half = (3.0, 1.2, 1.25)
    return [_stand(land, "box", (x, y, yaw), half, (colour, "corrugated")) for x, y, yaw, colour in places]


def _pipes(land: Terrain) -> list[Thing]:
    stacks = (((-2.0, -6.0), 0.5, 5.0, 0.42), ((7.0, 1.0), 1.9, 4.0, 0.5))
    things = []
    for (x, y), yaw, length, radius in stacks:
        across = np.array([-np.sin(yaw), np.cos(yaw)])
        for number, (step, tier) in enumerate(((-2, 0), (0, 0), (2, 0), (-1, 1), (1, 1), (0, 2))):
            px, py = np.array([x, y]) + across * radius * step * 1.02
            shade = (0.36, 0.37, 0.38) if number % 2 else (0.45, 0.42, 0.36)
            pipe = _stand(land, "cylinder", (px, py, yaw), (radius, radius, length / 2), (shade, "concrete"))
            base = float(land.height_at(np.float32([x]), np.float32([y]))[0]) + radius + tier * radius * 1.75
            things.append(_moved(pipe, z=base))
    return things


def _blocks(land: Terrain, rng: np.random.Generator) -> list[Thing]:
    things = []
    for _ in range(26):
        strewn = rng.random() < 0.5  # the others lie on one heap
        x, y = rng.uniform((-21, -11), (21, 6)) if strewn else rng.normal((3.5, -11.0), (2.5, 1.2))
        half = rng.uniform((0.5, 0.4, 0.35), (1.1, 0.8, 0.7))
        tone = rng.uniform(0.36, 0.52)
        colour = (tone, tone * rng.uniform(0.86, 0.94), tone * rng.uniform(0.68, 0.82))
        things.append(_stand(land, "box", (x, y, rng.uniform(0, np.pi)), half, (colour, "stone")))
    return things


def _plant(land: Terrain) -> list[Thing]:
    """Return a crusher: hopper, conveyor, silo and a shed on the first bench."""
    silo = _stand(land, "cylinder", (-4.5, 2.2, 0.0), (1.5, 1.5, 2.6), ((0.52, 0.52, 0.50), "steel"))
    upright = Thing("cylinder", silo.centre, np.eye(3, dtype=np.float32), silo.half, silo.colour, "steel")
    base = float(land.height_at(np.float32([-4.5]), np.float32([2.2]))[0])
    hopper = _stand(land, "box", (1.2, -2.0, 0.2), (1.3, 1.3, 1.4), ((0.48, 0.36, 0.08), "steel"))
    foot, head = hopper.centre + np.float32([0, 0, 0.3]), np.float32([-4.0, 1.9, base + 5.5])
    shed = _stand(land, "box", (-10.5, 9.0, 0.15), (2.2, 1.5, 1.2), ((0.34, 0.33, 0.31), "corrugated"))
    return [_moved(upright, z=base + 2.5), hopper, _beam(foot, head, (0.45, 0.16)), shed]


def _stand(land: Terrain, shape: Shape, place: tuple, half: tuple, look: tuple) -> Thing:
    x, y, yaw = place
    c, s = np.cos(yaw), np.sin(yaw)
    frame = np.float32([[c, s, 0], [-s, c, 0], [0, 0, 1]])
    if shape == "cylinder":  # lying: its axis is the heading
        frame = frame[[1, 2, 0]]
    ground = float(land.height_at(np.float32([x]), np.float32([y]))[0])
    lift = half[0] if shape == "cylinder" else half[2] - 0.08
    return Thing(shape, np.float32([x, y, ground + lift]), frame, np.float32(half), *look)


def _moved(thing: Thing, z: float) -> Thing:
    centre = np.float32([thing.centre[0], thing.centre[1], z])
    return Thing(thing.shape, centre, thing.frame, thing.half, thing.colour, thing.finish)


def _beam(start: Floats, end: Floats, half: tuple[float, float]) -> Thing:
    along = (end - start) / np.linalg.norm(end - start)
    side = np.cross([0, 0, 1], along)
    side = side / np.linalg.norm(side)
    frame = np.float32([along, side, np.cross(along, side)])
    size = np.float32([np.linalg.norm(end - start) / 2, *half])
    return Thing("box", np.float32((start + end) / 2), frame, size, (0.22, 0.23, 0.24), "steel")
