"""Seeded, tileable noise images and the bilinear look-ups that read them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Cells(NamedTuple):
    """Worley cells: distance to the nearest and to the second seed (in cell widths), and a random value per cell."""

    near: Floats  # [n, n]
    second: Floats  # [n, n]
    value: Floats  # [n, n], 0 to 1


def spectral(rng: np.random.Generator, n: int, slope: float, band: tuple[float, float]) -> Floats:
    """Return Gaussian noise [n, n] with amplitude ~ 1/f**slope between two frequencies (cycles per tile), std 1."""
    fy = np.fft.fftfreq(n, 1 / n)[:, None]
    fx = np.fft.rfftfreq(n, 1 / n)[None]
    f = np.maximum(np.hypot(fx, fy), 1e-6)
    low, high = band
    gain = np.where(f < low, 0, f**-slope) * np.exp(-((f / high) ** 2))
    noise = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((n, n))) * gain, (n, n))
    return (noise / noise.std()).astype(np.float32)


def cells(rng: np.random.Generator, n: int, num_cells: int) -> Cells:
    """Return tileable Worley cells [n, n], `num_cells` along each side."""
    seeds = rng.random((num_cells, num_cells, 2), dtype=np.float32)
    values = rng.random((num_cells, num_cells), dtype=np.float32)
    pos = (np.arange(n, dtype=np.float32) + 0.5) * np.float32(num_cells / n)
    home = pos.astype(int)
    near = np.full((n, n), 9, np.float32)
    second = near.copy()
    value = np.zeros((n, n), np.float32)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            cy, cx = np.ix_((home + dy) % num_cells, (home + dx) % num_cells)
            sy = (home + dy)[:, None] + seeds[cy, cx, 0] - pos[:, None]
            sx = (home + dx)[None] + seeds[cy, cx, 1] - pos[None]
            dist = np.sqrt(sx * sx + sy * sy)
            closer = dist < near
            second = np.where(closer, near, np.minimum(second, dist))
            value = np.where(closer, values[cy, cx], value)
            near = np.minimum(near, dist)
    return Cells(near, second.astype(np.float32), value)


def bilinear(grid: Floats, col: Floats, row: Floats) -> Floats:
    """Read `grid` [h, w] or [h, w, c] at fractional positions [k], held at the border."""
    rows, cols = grid.shape[:2]
    col, row = np.clip(col, 0, cols - 1.001), np.clip(row, 0, rows - 1.001)
    return _blend(grid, (col.astype(np.int32), row.astype(np.int32)), (col, row), (1, 1))


def bilinear_tiled(tile: Floats, col: Floats, row: Floats) -> Floats:
    """Read `tile` [h, w] or [h, w, c] at fractional positions [k], repeated without end."""
    rows, cols = tile.shape[:2]
    whole_col, whole_row = np.floor(col).astype(np.int32), np.floor(row).astype(np.int32)
    fraction = (col - whole_col, row - whole_row)
    at_col, at_row = whole_col % cols, whole_row % rows
    step = (np.where(at_col == cols - 1, 1 - cols, 1), np.where(at_row == rows - 1, 1 - rows, 1))
    return _blend(tile, (at_col, at_row), (at_col + fraction[0], at_row + fraction[1]), step)


def blur(grid: Floats, sigma_cells: float) -> Floats:
    """Return `grid` [h, w] blurred by a Gaussian (periodic at the border)."""
    fy, fx = np.fft.fftfreq(grid.shape[0])[:, None], np.fft.rfftfreq(grid.shape[1])[None]
    gain = np.exp(-2 * (np.pi * sigma_cells) ** 2 * (fx**2 + fy**2))
    return np.fft.irfft2(np.fft.rfft2(grid) * gain, grid.shape).astype(np.float32)


def smoothstep(low: float, high: float, x: Floats) -> Floats:
    """Return 0 below `low`, 1 above `high`, a smooth ramp between (either order)."""
    t = np.clip((x - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def _blend(grid: Floats, at: tuple, position: tuple, step: tuple) -> Floats:
    col, row = at
    u, v = (position[0] - col).astype(np.float32), (position[1] - row).astype(np.float32)
    if grid.ndim == 3:
        u, v = u[:, None], v[:, None]
    top = grid[row, col] * (1 - u) + grid[row, col + step[0]] * u
    bottom = grid[row + step[1], col] * (1 - u) + grid[row + step[1], col + step[0]] * u
    return top * (1 - v) + bottom * v
