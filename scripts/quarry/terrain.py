"""The ground: benches, rubble and bushes as a heightfield in metres, with everything about it that never changes."""

from dataclasses import dataclass

import numpy as np

from quarry.noise import Floats, bilinear, blur, cells, smoothstep, spectral

CELL_M = 0.08
NUM_CELLS = 1536  # 123 m square, centred on the pit
BENCH_HEIGHT_M = 2.5
BENCH_WIDTH_M = 4.6
WATER_Z_M = -3.25
SUN = np.array([-0.66, -0.42, 0.74], np.float32) / np.float32(np.linalg.norm([-0.66, -0.42, 0.74]))


@dataclass(frozen=True)
class Terrain:
    """Heights [n, n] in metres, and per cell what shading needs: slope x, slope y, sun, openness, grass, wear."""

    height: Floats
    surface: Floats  # [n, n, 6]

    @property
    def z_range(self) -> tuple[float, float]:
        """Lowest and highest point, in metres."""
        return float(self.height.min()), float(self.height.max())

    def height_at(self, x: Floats, y: Floats) -> Floats:
        """Return heights [k] in metres."""
        return bilinear(self.height, *_to_cells(x, y))

    def surface_at(self, x: Floats, y: Floats) -> Floats:
        """Return the surface channels [k, 6]."""
        return bilinear(self.surface, *_to_cells(x, y))


def build(seed: int) -> Terrain:
    """Return the same quarry for the same seed."""
    rng = np.random.default_rng(seed)
    x, y = _grid()
    level = _benches(rng, x, y)
    steep = np.hypot(*np.gradient(blur(level, 3), CELL_M)[::-1])
    rim = smoothstep(1.7, 3.2, level / BENCH_HEIGHT_M) * smoothstep(0.6, 0.2, steep)
    grass = smoothstep(0.1, 0.9, 1.1 * rim + 0.35 * spectral(rng, NUM_CELLS, 1.1, (4, 250)) - 0.35)
    height = level + _roughness(rng, steep) + _rubble(rng, steep, rim) + _heaps(x, y)
    bushes = _bushes(rng, grass)
    height = np.maximum(height + bushes, WATER_Z_M)
    slope_y, slope_x = np.gradient(height, CELL_M)
    openness = np.clip(1 + 0.45 * (height - blur(height, 7)) + 0.16 * (height - blur(height, 30)), 0.25, 1.15)
    grass = np.maximum(grass * 0.8, (bushes > 0.02) * 1.0)
    channels = (slope_x, slope_y, _sunlight(height), openness, grass, _wear(x, y, rng))
    return Terrain(height.astype(np.float32), np.stack(channels, -1).astype(np.float32))


def _grid() -> tuple[Floats, Floats]:
    axis = (np.arange(NUM_CELLS, dtype=np.float32) - NUM_CELLS / 2) * np.float32(CELL_M)
    return axis[None].repeat(NUM_CELLS, 0), axis[:, None].repeat(NUM_CELLS, 1)


def _to_cells(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    return x / CELL_M + NUM_CELLS / 2, y / CELL_M + NUM_CELLS / 2


def _benches(rng: np.random.Generator, x: Floats, y: Floats) -> Floats:
    bend = 1.8 * spectral(rng, NUM_CELLS, 1.6, (3, 30)) + 0.25 * spectral(rng, NUM_CELLS, 1.0, (25, 160))
    into_wall = np.logaddexp((np.abs(x) - 19) * 0.6, (y - 6) * 0.6) / 0.6 + bend
    into_pool = -y - 13 - 0.15 * x + 0.7 * bend
    up = _stairs(np.clip(into_wall, 0, 3.999 * BENCH_WIDTH_M))
    down = _stairs(np.clip(into_pool, -0.01, 0.999 * BENCH_WIDTH_M) + 0.7 * BENCH_WIDTH_M)
    return up - down * smoothstep(24, 16, np.abs(x))


def _stairs(distance_m: Floats) -> Floats:
    step = np.floor(distance_m / BENCH_WIDTH_M)
    within = distance_m / BENCH_WIDTH_M - step
    return BENCH_HEIGHT_M * (step + smoothstep(0.76, 1.0, within) + 0.05 * within)


def _roughness(rng: np.random.Generator, steep: Floats) -> Floats:
    wall = smoothstep(0.3, 1.5, steep)
    crags = cells(rng, NUM_CELLS, 110)
    ledges = cells(rng, NUM_CELLS, 260)
    coarse = (0.05 + 0.10 * wall) * spectral(rng, NUM_CELLS, 1.3, (12, 300))
    broken = 0.9 * (crags.value - 0.5) - 0.3 * crags.near + 0.35 * (ledges.value - 0.5)
    return coarse + wall * broken + 0.01 * spectral(rng, NUM_CELLS, 0.5, (200, 500))


def _rubble(rng: np.random.Generator, steep: Floats, rim: Floats) -> Floats:
    foot = blur(smoothstep(0.4, 1.2, steep), 14)
    stones = np.zeros_like(steep)
    for num_cells, radius in ((90, 0.42), (170, 0.36)):
        field = cells(rng, NUM_CELLS, num_cells)
        width_m = NUM_CELLS * CELL_M / num_cells
        size = radius * (0.5 + 0.6 * np.sqrt(np.mod(field.value * 37, 1)))
        lumpy = field.near * (1 + 0.22 * spectral(rng, NUM_CELLS, 1.0, (60, 500)))
        stone = np.minimum(1.6 * (size - lumpy), 0.8 * size) * width_m
        stones = np.maximum(stones, stone * (field.value < 0.9 * foot + 0.03))
    return np.maximum(stones, 0) * (1 - rim)


def _bushes(rng: np.random.Generator, grass: Floats) -> Floats:
    field = cells(rng, NUM_CELLS, 60)
    leaves = 1 + 0.25 * spectral(rng, NUM_CELLS, 0.6, (80, 400))
    dome = np.sqrt(np.maximum(0, 0.4**2 - field.near**2)) * 3.2
    return dome * leaves * (field.value < 0.32) * smoothstep(0.4, 0.7, grass)


def _heaps(x: Floats, y: Floats) -> Floats:
    total = np.zeros_like(x)
    for cx, cy, top in ((-11.0, -6.5, 2.3), (-7.3, -8.2, 1.7), (13.5, 1.5, 2.6), (2.0, 4.0, 1.3), (24.0, -13.0, 2.0)):
        total = np.maximum(total, top - 0.72 * np.sqrt((x - cx) ** 2 + (y - cy) ** 2 + 0.1))
    hollow = 2.2 * np.exp(-(((x + 6) / 5.5) ** 2 + ((y + 19.5) / 2.6) ** 2))
    return np.maximum(total, 0) - hollow


def _wear(x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    wobble = 0.35 * spectral(rng, NUM_CELLS, 1.5, (4, 60))
    lines = ((-3.0 + 3.0 * np.sin(x / 9), y), (2.0 * np.cos(x / 7 + 1) - 9.0, y), (0.35 * y + 7.0, x))
    tracks = np.zeros_like(x)
    for centre, across in lines:
        offset = np.abs(across - centre + wobble)
        tracks = np.maximum(tracks, smoothstep(0.35, 0.1, np.abs(offset - 0.9)))
    return tracks * np.clip(0.7 + 0.3 * spectral(rng, NUM_CELLS, 1.0, (10, 300)), 0, 1)


def _sunlight(height: Floats) -> Floats:
    """Return 0 (cast shadow) to 1 (lit) per cell, by walking from every cell towards the sun."""
    rows, cols = np.indices(height.shape, dtype=np.float32)
    lit = np.ones_like(height)
    along = SUN / np.hypot(SUN[0], SUN[1])
    for distance_m in np.geomspace(0.15, 16, 44, dtype=np.float32):
        shift = distance_m * along / CELL_M
        blocked = bilinear(height, (cols + shift[0]).ravel(), (rows + shift[1]).ravel()).reshape(height.shape)
        clearance = height + 0.03 + distance_m * along[2] - blocked
        lit = np.minimum(lit, smoothstep(-0.04 * distance_m, 0.02 * distance_m + 0.02, clearance))
    return blur(lit, 0.8)
